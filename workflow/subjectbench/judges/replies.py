"""What a reply says: a value per question, or why there is none. Nothing is ever guessed.

JSON is read wherever it stands in the reply; where there is none, a score must carry its label
("Score: 3"). A reply that says two things, or one thing that is off its scale, has no value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from subjectbench.asking.base import Ask, Reply, Request
from subjectbench.vocabulary import Status


@dataclass(frozen=True)
class Answered:
    """An answer on its question's own scale (yes is 1, no is 0), or ``reason``: why there is none.

    Reasons: those of a whole reply (see ``Reading``), and ``missing``, ``ambiguous``,
    ``out_of_range``, ``not_whole``, ``not_a_number``, ``other_scale``, ``not_yes_or_no``.
    """

    status: Status
    value: float | None = None
    reason: str = ""


@dataclass(frozen=True)
class Reading:
    """What a reply says about all that was asked.

    Args:
        answers: by name, one per question, in the order of the questions.
        status: OK if every question is answered, else REFUSED or UNPARSABLE.
        fault: the first question's that has no answer; of a whole reply: ``empty``,
            ``truncated``, ``refused``, ``unclosed_reasoning``, ``not_json``, ``duplicate_key``,
            ``schema`` (JSON of another form), ``no_score``.
        words: the judge's explanation; the whole text where nothing was asked by name.
        repairs: what was mended to read it, of ``REPAIRS``.
    """

    answers: Mapping[str, Answered]
    status: Status
    fault: str = ""
    words: str = ""
    repairs: tuple[str, ...] = ()


REPAIRS = ("control_characters", "curly_quotes", "python_words", "single_quotes", "trailing_comma")
"""All that is ever mended in JSON; whatever else is wrong with it is a fault."""


class Fault(ValueError):
    """A reply of which nothing can be used; ``code`` says why in one word."""

    def __init__(self, code: str, message: str = "") -> None:
        super().__init__(message or code)
        self.code = code


# --- reasoning and wrappings ---------------------------------------------------------------------

_TAG = re.compile(r"<(/?)(?:think|thinking|reason|reasoning)\b[^<>]*>", re.IGNORECASE)
_ANSWER = re.compile(r"<answer>(.*?)</answer\s*>", re.IGNORECASE | re.DOTALL)
_FENCED = re.compile(r"`{3,}[^\S\n]*\w*\s*\n(.*)\n\s*`{3,}", re.DOTALL)


def without_reasoning(text: str) -> str:
    """Drop closed blocks of reasoning: ``<think>``, ``<thinking>``, ``<reason>``, ``<reasoning>``.

    A closing tag without an opening one ends a block that the model's template had opened.

    Raises:
        ValueError: a block is not closed, so that what follows may be a draft.
    """
    kept: list[str] = []
    start = depth = 0
    for tag in _TAG.finditer(text):
        if not tag[1]:
            if depth == 0:
                kept.append(text[start : tag.start()])
            depth += 1
            continue
        if depth == 0:
            kept.clear()
        depth = max(depth - 1, 0)
        start = tag.end()
    if depth:
        raise Fault("unclosed_reasoning", "a block of reasoning is not closed")
    return "".join([*kept, text[start:]])


def _answer(text: str) -> str:
    """Return what stands in the one ``<answer>`` block, else the whole text."""
    blocks = _ANSWER.findall(text)
    return (blocks[0] if len(blocks) == 1 else text).strip("\ufeff\u200b \t\r\n")


def _unfenced(text: str) -> str:
    fenced = _FENCED.fullmatch(text)
    return fenced[1].strip() if fenced else text


# --- JSON ----------------------------------------------------------------------------------------


class _Number(str):
    """A JSON number as it is written, so that 1e1 and 4.5 are seen for what they are."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise Fault("duplicate_key", "a key appears twice in one JSON object")
    return found


def _finite(text: str) -> float:
    if not abs(float(text)) < float("inf"):
        raise ValueError(f"{text} is not a JSON number")
    return float(text)


_AS_WRITTEN = json.JSONDecoder(
    object_pairs_hook=_unique, parse_int=_Number, parse_float=_Number, parse_constant=_Number
)
_AS_VALUES = json.JSONDecoder(
    object_pairs_hook=_unique, parse_float=_finite, parse_constant=_finite
)

# A brace opens an object only before a quoted key or its end: {v1} in prose is prose.
_OBJECT = re.compile(r"""\{(?=\s*["'“”„‘’‚}])""")
_OPENING = re.compile(rf"{_OBJECT.pattern}|\[")
_TOKEN = re.compile(
    r"""(?P<double>"(?:[^"\\]|\\.)*+")|(?P<single>'(?:[^'\\]|\\.)*+')"""
    r"""|(?P<curly>[“”„][^“”„]*+[“”„]|[‘’‚][^‘’‚]*+[‘’‚])"""
    r"""|(?P<mark>[{}\[\],:])|(?P<word>[^\s{}\[\],:"'“”„‘’‚]++)|(?P<space>\s++)""",
    re.DOTALL,
)
_QUOTED = {"\\'": "'", '"': '\\"'}
_PYTHON = {"True": "true", "False": "false", "None": "null"}


def _values(text: str, decoder: json.JSONDecoder) -> Iterator[tuple[Any, int, int, set[str]]]:
    """Yield outermost objects, and arrays as far as they are valid, with place and repairs.

    Raises:
        Fault: ``not_json`` (an object that no listed repair makes valid; nothing inside it or
            after it can be trusted), ``duplicate_key``.
    """
    at, sought = 0, _OPENING
    while opening := sought.search(text, at):
        start, used = opening.start(), set[str]()
        try:
            value, at = decoder.raw_decode(text, start)
        except Fault:
            raise
        except (ValueError, RecursionError):
            if opening[0] == "[":  # [v1] in prose is prose; objects may still follow
                at, sought = start + 1, _OBJECT
                continue
            mended, at, used = _mended(text, start)
            try:
                value = decoder.decode(mended)
            except Fault:
                raise
            except (ValueError, RecursionError) as error:
                raise Fault("not_json", f"the JSON is not valid: {error}") from None
        yield value, start, at, used


def _mended(text: str, start: int) -> tuple[str, int, set[str]]:
    """Rewrite one object with the repairs of ``REPAIRS``; return it, its end, and those used."""
    out: list[str] = []
    used: set[str] = set()
    depth, at = 0, start
    while token := _TOKEN.match(text, at):
        written, kind, at = token[0], token.lastgroup, token.end()
        if kind in ("double", "single", "curly"):
            body = written[1:-1]
            if kind != "double":
                used.add(f"{kind}_quotes")
                body = re.sub(r'\\.|"', lambda m: _QUOTED.get(m[0], m[0]), body, flags=re.DOTALL)
            if re.search(r"[\x00-\x1f]", body):
                used.add("control_characters")
                body = re.sub(r"[\x00-\x1f]", lambda m: json.dumps(m[0])[1:-1], body)
            written = f'"{body}"'
        elif kind == "word" and written in _PYTHON:
            used.add("python_words")
            written = _PYTHON[written]
        elif kind == "mark" and written in "}]":
            if out and out[-1] == ",":
                used.add("trailing_comma")
                out.pop()
            depth -= 1
        elif kind == "mark" and written in "{[":
            depth += 1
        if kind != "space":
            out.append(written)
        if depth == 0:
            return " ".join(out), at, used
    raise Fault("not_json", "the JSON is cut off, or a quote in it is not closed")


def find_json(text: str) -> Any:
    """Return the one JSON object that stands in a text, or its one array where no object does.

    Fences, ``<answer>`` and sentences around it do not matter; the repairs of ``REPAIRS`` are
    made. Equal repetitions count as one, empty objects as none.

    Raises:
        ValueError: none, several, a repeated key, NaN or Infinity, or not mendable.
    """
    values = [value for value, *_ in _values(_answer(text), _AS_VALUES) if value]
    found = [v for v in values if isinstance(v, dict)] or values
    if not found:
        raise Fault("not_json", "there is no JSON object in the reply")
    if any(value != found[0] for value in found):
        raise Fault("ambiguous", "there are several different JSON objects in the reply")
    return found[0]


# --- values --------------------------------------------------------------------------------------

_DIGITS = r"[-−]?\d++(?:[.,٫]\d++)*+(?:[eE][-+]?\d++)?"
_OF = r"(?:/|／|(?:out\s++)?of\b)\s*+"
_SCORE = re.compile(rf"({_DIGITS})(?:\s*+{_OF}(\d++))?\.?")
_WHOLE = re.compile(r"([-−]?)(\d++)(?:[.٫]0++)?")
_YES_NO = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}


def _none(reason: str) -> Answered:
    return Answered(Status.REFUSED if reason == "refused" else Status.UNPARSABLE, None, reason)


def _checked(ask: Ask, raw: Any, graded: bool) -> Answered:
    """Read one value as JSON or the reply's text has it."""
    if ask.scale is None:
        return _yes_or_no(raw, graded)
    score = _SCORE.fullmatch(raw.strip()) if isinstance(raw, str) else None
    if not score:
        return _none("not_a_number")
    if score[2] and _int(score[2]) != ask.scale[1]:
        return _none("other_scale")
    whole = _WHOLE.fullmatch(score[1])
    if not whole:
        return _none("not_whole")
    value = _int(whole[2]) * (-1 if whole[1] else 1)
    if not ask.scale[0] <= value <= ask.scale[1]:
        return _none("out_of_range")
    return Answered(Status.OK, float(value))


def _int(digits: str) -> int:
    """Read digits of any script; what Python refuses for its length is beyond any scale."""
    return int(digits) if len(digits) < 1000 else 10**1000


def _yes_or_no(raw: Any, graded: bool) -> Answered:
    if isinstance(raw, bool):
        return Answered(Status.OK, float(raw))
    if isinstance(raw, str):
        word = raw.strip().removesuffix(".").casefold()
        if word in _YES_NO:
            return Answered(Status.OK, _YES_NO[word])
        if graded and re.fullmatch(r"\d+(?:\.\d+)?(?:[eE]-?\d+)?", word, re.ASCII):
            value = float(word)
            return Answered(Status.OK, value) if value <= 1 else _none("out_of_range")
    return _none("not_yes_or_no")


# --- from JSON or prose to values ----------------------------------------------------------------

_HOLDERS = ("answers", "scores", "answer", "score")
_WORDS = ("reason", "reasoning", "explanation", "analysis")


def _labels(asks: Sequence[Ask], ask: Ask) -> set[str]:
    """Names of an answer; where only one thing is asked, also the general one."""
    names = {ask.name.casefold()}
    return names | {"answer" if ask.scale is None else "score"} if len(asks) == 1 else names


def _listed(asks: Sequence[Ask], values: list[Any]) -> Iterator[tuple[str, Any]]:
    if len(values) != len(asks):
        raise Fault("schema", f"{len(values)} values for {len(asks)} questions")
    yield from ((ask.name, value) for ask, value in zip(asks, values))


def _named(asks: Sequence[Ask], found: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield ``(ask, value)`` from an object, or from one inside ``answers`` or ``scores``."""
    by_key = [(key.strip().casefold(), value) for key, value in found.items()]
    for key, value in by_key:
        if key in _HOLDERS and isinstance(value, list):
            yield from _listed(asks, value)
        elif key in _HOLDERS and isinstance(value, dict):
            inner = [(name.strip().casefold(), v) for name, v in value.items()]
            yield from ((a.name, v) for k, v in inner for a in asks if k in _labels(asks, a))
        else:
            yield from ((a.name, value) for a in asks if key in _labels(asks, a))


_Raw = list[tuple[str, Any]]


def _from_json(asks: Sequence[Ask], text: str) -> tuple[_Raw, str, set[str]] | None:
    """Return values by ask, the explanation and the repairs; None: no JSON to speak of."""
    objects: list[dict[str, Any]] = []
    repairs: set[str] = set()
    whole = _unfenced(text)
    for value, start, end, used in _values(text, _AS_WRITTEN):
        inside = value if isinstance(value, list) else [value]
        held = [v for v in inside if isinstance(v, dict) and v]
        objects += held
        repairs |= used if held else set()
        if not held and isinstance(value, list) and text[start:end] == whole:
            return list(_listed(asks, value)), "", set()
    if not objects:
        return None
    raw = [pair for found in objects for pair in _named(asks, found)]
    if not raw:
        raise Fault("schema", "the JSON has none of the keys asked for")
    said = [v for o in objects for k, v in o.items() if k.strip().casefold() in _WORDS]
    words = [v for v in said if isinstance(v, str) and not isinstance(v, _Number)]
    return raw, "\n".join(words), repairs


_MARKUP = r"[*_`\s]*+"
_LEADING = re.compile(
    rf"{_MARKUP}(?:[^\W\d_]++[^\S\n]*+(?=[(\[（]))?[*_`\s(\[（]*+(?P<number>{_DIGITS})"
    rf"(?:[*_`\s()\[\]（）]*+{_OF}\[?(?P<top>\d++))?"
    # A range, a list or a unit: not one number.
    r"(?P<more>[^\S\n]*+(?:[-–—~,/／&+]|(?:to|or|and)\b)[^\S\n]*+\d++|[^\W_]++|[.,]\d++|[%+~])?"
)


def _labelled(text: str, names: str) -> Iterator[str]:
    """Yield what follows a label and a colon, if it begins with a number: ``4``, ``4/5``."""
    label = (
        rf"""(?<![\w'"/-])(?:{names})(?![\w'"]){_MARKUP}(?:\(([^()\n]{{0,60}})\){_MARKUP})?[:：=]"""
    )
    for found in re.finditer(label, text, re.IGNORECASE):
        if value := _LEADING.match(text, found.end()):
            below = "\n" in text[found.end() : value.start("number")]
            if below and text[value.end() :].split("\n")[0].strip("*_`. \t\r"):
                continue  # "Score:" above a numbered list
            declared = re.findall(r"\d+", found[1] or "")[-1:]  # "Score (0-5): 4"
            tops = dict.fromkeys([value["top"], *declared] if value["top"] else declared)
            yield "/".join([value["number"], *tops]) + (value["more"] or "")


def _from_prose(asks: Sequence[Ask], text: str) -> tuple[_Raw, str]:
    """Return labelled scores by ask, or the one answer that is the whole reply, and the text."""
    if len(asks) == 1:
        whole = _unfenced(text).strip("*_`\"'.! \t\r\n")
        read = _checked(asks[0], whole, False)
        if read.reason not in ("not_a_number", "not_yes_or_no"):
            return [(asks[0].name, whole)], ""
    raw: _Raw = []
    for ask in asks:
        if ask.scale is not None:
            names = "|".join(re.escape(label) for label in sorted(_labels(asks, ask)))
            scored = r"(?:\s+score)?" if len(asks) > 1 else ""
            raw += [(ask.name, value) for value in _labelled(text, f"(?:{names}){scored}")]
    return raw, text


_REFUSAL = re.compile(
    r"\W*(?:i(?:['’]m| am)(?: \w+)? sorry|sorry|my apologies|i apologi[sz]e"
    r"|i(?:['’]m| am) (?:unable|not able)|i (?:cannot|can['’]t|can not|won['’]t|will not)"
    r"|i must decline|unfortunately,? i|as an ai)\b",
    re.IGNORECASE,
)
_SHORT = 600


def _refuses(text: str) -> bool:
    """Whether a reply without any answer declines; a long text that opens so may well not."""
    return len(text) <= _SHORT and "{" not in text and _REFUSAL.match(text) is not None


def _said(reply: Reply) -> str:
    """Return what the judge says, without reasoning."""
    if reply.finish in ("content_filter", "refusal"):
        raise Fault("refused", "a filter stopped the reply")
    if reply.finish == "length":
        raise Fault("truncated", "the reply is cut off")
    text = _answer(without_reasoning(reply.text or ""))
    if not text:
        raise Fault("empty", "the reply is empty")
    return text


def _understood(asks: Sequence[Ask], text: str) -> tuple[_Raw, str, set[str]]:
    if asks and (found := _from_json(asks, text)):
        return found
    raw, words = _from_prose(asks, text)
    if not raw and _refuses(text):
        raise Fault("refused", "the judge declined")
    if asks and not raw:
        raise Fault("no_score", "no labelled score in the reply")
    return raw, words, set()


def read(request: Request, reply: Reply) -> Reading:
    """Read a reply. Never raises on any text, never clamps, rescales or invents a value.

    JSON decides where there is an object with the keys asked for: ``{"name": value, ...}``, also
    inside ``answers`` or ``scores``, or a list in the order of the questions. Otherwise scores
    must be labelled: "name: 3", and "Score: 3" where one thing is asked; or the whole reply is the
    answer. Two different values for one question are ``ambiguous``. A question that the reply
    leaves out is ``missing``; answers to the others are kept.
    """
    try:
        raw, words, repairs = _understood(request.asks, _said(reply))
    except Fault as fault:
        none = _none(fault.code)
        return Reading({ask.name: none for ask in request.asks}, none.status, fault.code)
    answers = {}
    for ask in request.asks:
        said = {_checked(ask, value, reply.graded) for name, value in raw if name == ask.name}
        answers[ask.name] = (
            said.pop() if len(said) == 1 else _none("ambiguous" if said else "missing")
        )
    reason = next((a.reason for a in answers.values() if a.reason), "")
    status = Status.UNPARSABLE if reason else Status.OK
    return Reading(answers, status, reason, words, tuple(sorted(repairs)))
