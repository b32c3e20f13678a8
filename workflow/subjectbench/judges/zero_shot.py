"""An offline judge: a CLIP encoder that compares pictures with phrases of declared vocabularies.

It reads neither questions nor instructions. From the values of a request it takes what the prompt
asks for, and from its pictures what they show:

* **What a picture shows of an aspect** is the softmax of its scaled cosines with one text per value
  (Radford et al. 2021, section 3.1). All else in the texts is equal, and should be right: it is the
  prompt where the prompt names a value, and otherwise the judge's own caption of the picture, to
  which it adds the phrase of the scene that fits best as long as it is sure of one.
* **Is it as asked?** The share of the values that the prompt names, turned into a probability for
  even odds beforehand: among many values even the right one seldom has half of all.
* **Is it the same?** With shares p and q of n values, ``n * sum(p * q)`` is how much likelier the
  two readings are if both pictures show one value than if they show independent ones; again with
  even odds beforehand. Readings that say nothing give 0.5.
* **How alike?** The cosine of both pictures on a declared line, after what their own captions say
  beyond the bare subject has been taken out of each (text minus text).

Marks on a scale are means of these: preservation of the declared aspects that the prompt leaves
alone and of the likeness; following of the values that the prompt names and of the prompt against
the bare subject; alignment is the geometric mean of both; naturalness and artifacts are the
contrast of declared captions. What cannot be told gets no answer.
"""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from subjectbench.asking.base import Ask, Picture, Reply, Request
from subjectbench.cards import JudgeCard
from subjectbench.config import Strict
from subjectbench.errors import InputError
from subjectbench.judges.base import Backend
from subjectbench.units import normalised
from subjectbench.vocabulary import Status

if TYPE_CHECKING:
    import numpy as np

    from subjectbench.encoders.base import Encoder

_PLACE = re.compile(r"\{(\w+)\}")
_ARTICLE = re.compile(r"\b([Aa])n? (?=([A-Za-z]))")

Line = tuple[float, float]


def _check(template: str, *places: str) -> None:
    if set(_PLACE.findall(template)) != set(places):
        raise ValueError(f"'{template}' must hold {' and '.join(f'{{{p}}}' for p in places)}")


class Vocabulary(Strict):
    """The values of one aspect, and how they are said: of the subject, or of the picture."""

    values: list[str] = Field(
        min_length=2, description="Phrases that exclude each other; an empty one: nothing is said"
    )
    inside: str = Field(
        default="", description="What {subject} becomes, e.g. '{value} {subject}'; or"
    )
    caption: str = Field(
        default="", description="what a caption becomes, e.g. '{value} of a {subject}'"
    )

    @model_validator(mode="after")
    def _well_said(self) -> Vocabulary:
        if len({normalised(v) for v in self.values}) < len(self.values):
            raise ValueError("values: one appears twice")
        if bool(self.inside) == bool(self.caption):
            raise ValueError("one of 'inside' and 'caption' is needed")
        if self.caption:
            _check(self.caption, "value", "subject")
        elif "{subject}" in self.inside:
            _check(self.inside, "value", "subject")
        else:
            _check(self.inside, "value")
        return self


class Contrast(Strict):
    """Captions of good pictures and of bad ones."""

    good: list[str] = Field(min_length=1)
    bad: list[str] = Field(min_length=1)


Values = Mapping[str, str]
"""Aspect to value."""


@dataclass(frozen=True)
class _Look:
    """Unit vectors of a request's pictures by role, and of texts."""

    scale: float
    pictures: Mapping[str, np.ndarray]
    texts: Mapping[str, np.ndarray]

    def shares(self, role: str, texts: Sequence[str]) -> np.ndarray:
        """Softmax of the scaled cosines of one picture with texts."""
        import numpy as np

        logits = self.scale * (np.stack([self.texts[t] for t in texts]) @ self.pictures[role])
        powers = np.exp(logits - logits.max())
        return np.asarray(powers / powers.sum())


@dataclass(frozen=True)
class _Evidence:
    """A value, 0 to 1, that follows from a look at pictures, and the texts that it takes."""

    texts: tuple[str, ...]
    value: Callable[[_Look], float]


class ZeroShot(Backend):
    """CLIP over attribute vocabularies; see the module's text. Yes/no answers are graded."""

    uses_torch = True

    class Params(Strict):
        """What the judge knows of the world."""

        scale: float = Field(gt=0, description="Factor of cosines; the model's own logit scale")
        bare: str = Field(description="Caption that says the {subject} alone")
        vocabularies: dict[str, Vocabulary] = Field(description="Values by aspect")
        aliases: dict[str, str] = Field(
            default_factory=dict, description="Other names of aspects, e.g. color: colour"
        )
        preserved: list[str] = Field(description="Aspects that make a subject what it is")
        scene: list[str] = Field(
            min_length=1, description="Aspects of which the judge's own captions speak"
        )
        phrases: int = Field(default=2, ge=0, description="Most phrases of a caption of its own")
        sure: float = Field(
            default=0.9,
            gt=0.5,
            lt=1,
            description="Share of a caption with a phrase, against the one without, from which on "
            "the phrase is added",
        )
        alike: Line = Field(
            strict=False,
            description="Cosines of two pictures, without what captions say, that count as 0 and 1",
        )
        contrasts: dict[Literal["naturalness", "artifacts"], Contrast] = Field(
            default_factory=dict, description="Captions of good and bad pictures by dimension"
        )

        @model_validator(mode="after")
        def _names_agree(self) -> ZeroShot.Params:
            _check(self.bare, "subject")
            for name in [*self.aliases.values(), *self.preserved, *self.scene]:
                if name not in self.vocabularies:
                    raise ValueError(f"no vocabulary named '{name}'")
            for name in [*self.aliases, *self.vocabularies]:
                if name != normalised(name):
                    raise ValueError(f"write '{normalised(name)}' for '{name}'")
            if self.alike[0] >= self.alike[1]:
                raise ValueError("alike: the cosine that counts as 0 must be the lower one")
            return self

    def __init__(
        self, params: Any, card: JudgeCard, device: str = "cpu", encoder: Encoder | None = None
    ) -> None:
        super().__init__(params, card, device, encoder)
        if encoder is None or not encoder.embeds_text:
            raise InputError(
                f"judge '{card.title}': encoder",
                "the judge needs an encoder of pictures and texts",
                "name a CLIP card",
            )
        self.embed = encoder
        self._texts: dict[str, np.ndarray] = {}

    def complete(self, requests: Sequence[Request]) -> list[Reply]:
        """Answer requests by JSON, ask to number; what cannot be told is left out.

        Raises:
            InputError: a request asks for another form, such as a decomposition.
        """
        vectors = self._embed_pictures(requests)
        shown = [
            {p.role: p.sha256 for p in request.pictures() if p.sha256 in vectors}
            for request in requests
        ]
        cases = [
            _Case(self.params, request.values, seen)
            for request, seen in zip(requests, shown, strict=True)
        ]
        self._describe(cases, vectors)
        plans = [self._plan(request, case) for request, case in zip(requests, cases, strict=True)]
        self._embed_texts(t for plan in plans for e in plan.values() for t in e.texts)
        return [
            self._reply(request, plan, self._look(case, vectors))
            for request, plan, case in zip(requests, plans, cases, strict=True)
        ]

    # --- pictures and texts to vectors ---

    def _embed_pictures(self, requests: Sequence[Request]) -> dict[str, np.ndarray]:
        """Unit vectors by sha256; pictures that have none are not there."""
        from PIL import Image

        found: dict[str, Picture] = {p.sha256: p for r in requests for p in r.pictures()}
        opened = [Image.open(io.BytesIO(p.data)).convert("RGB") for p in found.values()]
        vectors = self.embed.vectors(opened)
        return {
            name: _unit(vector.values)
            for name, vector in zip(found, vectors, strict=True)
            if vector.status is Status.OK and vector.values is not None
        }

    def _embed_texts(self, texts: Iterable[str]) -> None:
        new = sorted({*texts} - self._texts.keys())
        if new:
            self._texts |= zip(new, map(_unit, self.embed.texts(new)), strict=True)

    def _look(self, case: _Case, vectors: Mapping[str, np.ndarray]) -> _Look:
        pictures = {role: vectors[name] for role, name in case.seen.items()}
        return _Look(self.params.scale, pictures, self._texts)

    # --- captions of its own ---

    def _describe(self, cases: Sequence[_Case], vectors: Mapping[str, np.ndarray]) -> None:
        """Say what the scenes of compared pictures are, a phrase at a time."""
        todo = {
            (name, case.subject): (role, case)
            for case in cases
            if {"reference", "generated"} <= case.seen.keys()
            for role, name in case.seen.items()
        }
        said: dict[tuple[str, str], Values] = {key: {} for key in todo}
        growing = list(todo)
        for _ in range(self.params.phrases):
            longer = {key: todo[key][1].longer(said[key]) for key in growing}
            self._embed_texts(t for options in longer.values() for t in options)
            for key, options in longer.items():
                role, case = todo[key]
                texts = list(options)
                shares = self._look(case, vectors).shares(role, texts)
                best = max(range(1, len(texts)), key=shares.__getitem__, default=0)
                if shares[best] > self.params.sure * (shares[best] + shares[0]):
                    said[key] = options[texts[best]]
                else:
                    growing.remove(key)
        for case in cases:
            case.said = {r: said.get((name, case.subject), {}) for r, name in case.seen.items()}

    # --- what a request asks for ---

    def _plan(self, request: Request, case: _Case) -> dict[str, _Evidence]:
        if not request.asks:
            raise InputError(
                f"judge '{self.card.title}'",
                "answers questions about pictures and writes nothing",
                "use prepared units, or a judge that reads and writes",
            )
        plan = {ask.name: case.evidence(ask) for ask in request.asks}
        return {name: evidence for name, evidence in plan.items() if evidence}

    def _reply(self, request: Request, plan: Mapping[str, _Evidence], look: _Look) -> Reply:
        scales = {ask.name: ask.scale for ask in request.asks}
        answers = {name: _mark(e.value(look), scales[name]) for name, e in plan.items()}
        return Reply(json.dumps(answers), model=self.card.encoder or "", graded=True)


class _Case:
    """The values and pictures of one request, and what can be told from them.

    Args:
        params: of the judge.
        values: of the request: prompt, subject, as far as the judge may see them.
        seen: pictures that have an embedding, role to sha256.
    """

    said: Mapping[str, Values]
    """What the judge's own captions say of the scene, by role."""

    def __init__(self, params: Any, values: Mapping[str, Any], seen: Mapping[str, str]) -> None:
        self.params, self.seen = params, seen
        self.prompt, self.subject = values.get("prompt") or "", values.get("subject") or "subject"
        self.bare = self._caption({})
        self.named = self._find_named()

    def evidence(self, ask: Ask) -> _Evidence | None:
        """Return what answers a question, or None."""
        if "generated" not in self.seen:
            return None
        if "dimension" in ask.about:
            return self._dimension(ask.about["dimension"])
        return self._unit(normalised(str(ask.about.get("name", ""))), ask.about.get("relevance"))

    def _unit(self, name: str, relevance: str | None) -> _Evidence | None:
        aspect = self.params.aliases.get(name, name)
        if relevance != "image_only" and aspect in self.named:
            return self._as_asked(aspect)
        if relevance == "text_only":
            return None
        return self._same(aspect) if aspect in self.params.vocabularies else self._alike()

    def _dimension(self, name: str) -> _Evidence | None:
        if name == "preservation":
            kept = [a for a in self.params.preserved if a not in self.named]
            return _mean([*map(self._same, kept), self._alike()])
        if name == "following":
            return _mean([*map(self._as_asked, self.named), self._beyond_bare()])
        if name == "alignment":
            both = [self._dimension("preservation"), self._dimension("following")]
            return _combined(both, lambda p, f: math.sqrt(p * f))
        contrast = self.params.contrasts.get(name)
        if contrast is None:
            return None
        return self._chosen([*contrast.good, *contrast.bad], set(range(len(contrast.good))))

    # --- kinds of evidence ---

    def _chosen(self, texts: Sequence[str], right: set[int]) -> _Evidence:
        """Whether the generated picture shows one of the right texts."""

        def value(look: _Look) -> float:
            shares = look.shares("generated", texts)
            share = float(sum(shares[i] for i in sorted(right)))
            yes, no = share * (len(texts) - len(right)), (1 - share) * len(right)
            return yes / (yes + no)

        return _Evidence(tuple(texts), value)

    def _as_asked(self, aspect: str) -> _Evidence:
        """Whether the generated picture shows what the prompt names, and not something else."""
        values = self.params.vocabularies[aspect].values
        named = {values.index(value) for value, _ in self.named[aspect]}
        start, end = self.named[aspect][0][1]
        texts = [_tidy(self.prompt[:start] + v + self.prompt[end:]) for v in values]
        return self._chosen(texts, named)

    def _beyond_bare(self) -> _Evidence | None:
        """Whether the generated picture shows the prompt rather than the bare subject."""
        return self._chosen([self.prompt, self.bare], {0}) if self.prompt else None

    def _same(self, aspect: str) -> _Evidence | None:
        """Whether both pictures show the same value."""
        if "reference" not in self.seen:
            return None
        values = self.params.vocabularies[aspect].values
        first, second = (
            [self._caption({**self.said[role], aspect: value}) for value in values]
            for role in ("reference", "generated")
        )

        def value(look: _Look) -> float:
            shares = look.shares("reference", first) * look.shares("generated", second)
            likelier = float(len(values) * shares.sum())
            return likelier / (likelier + 1)

        return _Evidence((*first, *second), value)

    def _alike(self) -> _Evidence | None:
        """How near both pictures are."""
        if "reference" not in self.seen:
            return None
        captions = {role: self._caption(said) for role, said in self.said.items()}
        low, high = self.params.alike

        def value(look: _Look) -> float:
            first, second = (
                _unit(look.pictures[role] - (look.texts[caption] - look.texts[self.bare]))
                for role, caption in captions.items()
            )
            return min(max((float(first @ second) - low) / (high - low), 0.0), 1.0)

        return _Evidence((*captions.values(), self.bare), value)

    # --- texts ---

    def _caption(self, values: Values) -> str:
        """Say the subject and these values, in the order of the vocabularies."""
        thing, whole = self.subject, self.params.bare
        for aspect, vocabulary in self.params.vocabularies.items():
            if aspect in values and vocabulary.inside:
                thing = _filled(vocabulary.inside, values[aspect], thing)
            elif aspect in values:
                whole = vocabulary.caption.replace("{value}", values[aspect])
        return _tidy(_filled(whole, "", thing))

    def longer(self, said: Values) -> dict[str, Values]:
        """Return the caption of these values, then those with one more of the scene."""
        more = [
            {**said, aspect: value}
            for aspect in self.params.scene
            if aspect not in said
            for value in self.params.vocabularies[aspect].values
            if value
        ]
        return {self._caption(values): values for values in [said, *more]}

    def _find_named(self) -> dict[str, list[tuple[str, tuple[int, int]]]]:
        """Values that the prompt names, with their place, by aspect.

        Longer phrases first: "with white wings" asks for no colour. The subject's own words ask
        for nothing.
        """
        taken = _spans(self.subject, self.prompt)
        found: dict[str, list[tuple[str, tuple[int, int]]]] = {}
        phrases = [
            (value, aspect)
            for aspect, vocabulary in self.params.vocabularies.items()
            for value in vocabulary.values
            if value
        ]
        for value, aspect in sorted(phrases, key=lambda phrase: -len(phrase[0])):
            for start, end in _spans(value, self.prompt):
                if all(end <= s or e <= start for s, e in taken):
                    taken.append((start, end))
                    found.setdefault(aspect, []).append((value, (start, end)))
        return found


def _spans(phrase: str, text: str) -> list[tuple[int, int]]:
    pattern = rf"(?<!\w){re.escape(phrase)}(?!\w)"
    return [m.span() for m in re.finditer(pattern, text, re.IGNORECASE)]


def _filled(template: str, value: str, subject: str) -> str:
    return template.replace("{value}", value).replace("{subject}", subject)


def _tidy(text: str) -> str:
    """Single spaces, and "a" or "an" as the next letter wants it."""
    text = " ".join(text.split())
    return _ARTICLE.sub(lambda m: m[1] + ("n " if m[2] in "aeiouAEIOU" else " "), text)


def _combined(
    parts: Sequence[_Evidence | None], function: Callable[..., float]
) -> _Evidence | None:
    """A function of parts that must all be there."""
    there = [p for p in parts if p]
    if not there or len(there) < len(parts):
        return None
    texts = tuple(t for p in there for t in p.texts)
    return _Evidence(texts, lambda look: function(*(p.value(look) for p in there)))


def _mean(parts: Sequence[_Evidence | None]) -> _Evidence | None:
    return _combined(parts, lambda *values: math.fsum(values) / len(values))


def _mark(value: float, scale: tuple[int, int] | None) -> float:
    """A probability as it is, or a whole mark on a scale."""
    if scale is None:
        return round(value, 6)
    low, high = scale
    return low + math.floor((high - low) * value + 0.5)


def _unit(vector: np.ndarray) -> np.ndarray:
    import numpy as np

    wide = vector.astype(np.float64)
    return np.asarray(wide / np.linalg.norm(wide))


PLUGIN = ZeroShot
