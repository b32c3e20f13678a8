"""Replies: every recipe of the trouble reports about reading them, and properties."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from subjectbench.asking.base import Ask, Message, Reply, Request
from subjectbench.judges.replies import (
    REPAIRS,
    Answered,
    Reading,
    find_json,
    read,
    without_reasoning,
)
from subjectbench.vocabulary import Status

FOUR = Ask("preservation", "How alike?", (0, 4))
FIVE = Ask("preservation", "How alike?", (0, 5))
TEN = Ask("preservation", "How alike?", (0, 10))
FOLLOWING = Ask("following", "How well?", (0, 10))
COLOUR, FACE = Ask("global_attribute/colour", "Same colour?"), Ask("part/face", "Same face?")


def reading(*asks: Ask, text: str | None, finish: str = "stop", graded: bool = False) -> Reading:
    request = Request((Message("user", ("?",)),), asks)
    return read(request, Reply(text, finish, graded=graded))


def said(ask: Ask, text: str | None, finish: str = "stop") -> float | str:
    """The value, or the fault."""
    result = reading(ask, text=text, finish=finish)
    (answer,) = result.answers.values()
    assert (answer.status is Status.OK) == (answer.value is not None) == (not answer.reason)
    assert result.fault == answer.reason
    assert result.status is answer.status
    return answer.reason if answer.value is None else answer.value


def values(*asks: Ask, text: str, graded: bool = False) -> dict[str, float | str]:
    answers = reading(*asks, text=text, graded=graded).answers
    return {name: a.reason if a.value is None else a.value for name, a in answers.items()}


# --- one score -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # VLM-03: only a labelled score counts
        ("I compared 2 images. Score: 3 out of 5", 3),
        ("**Score:** 4", 4),
        ("**Score: 4**", 4),
        ("Score: 4/5", 4),
        ("Score: 8/10", "other_scale"),
        ("Score: 4/10", "other_scale"),
        ("Score: 2, at first. The final Score: 4", "ambiguous"),
        ("Score: 4, at first. The final Score: 4", 4),
        ("not excellent", "no_score"),
        ("excellent", "no_score"),
        ("5 reasons speak for a score of 4", "no_score"),
        ("There are 3 differences.", "no_score"),
        # DreamBench++'s parser (3f-1)
        ("**Score**: 3", 3),
        ("Score: [3]", 3),
        ("SCORE: 3", 3),
        ("Score: Good (3)", 3),
        ("score=3", 3),
        ("Score: 2.5", "not_whole"),
        ("Score: 10", "out_of_range"),
        ("Score: 3 (good)", 3),
        ("Score: 3. Only the handle differs.", 3),
        ("Score: 3 - the handle differs", 3),
        ("- Score: 3\n- 2 legs are wrong", 3),
        ("Score (0-5): 3", 3),
        ("Score (out of 10): 3", "other_scale"),
        ("Score (0-10): 3/5", "not_a_number"),
        ("Score: **3** / 5", 3),
        ("Score: 3 (out of 5)", 3),
        ("Score:\n3", 3),
        ("Score:\n1. The colour is right.\n2. The shape is not.", "no_score"),
        # SICS as DSH-Bench's figure shows it
        ("SICS Score:2；Explanation: the marks differ", 2),
        # other scripts' digits and signs
        ("Score: ٤", 4),
        ("Score：４／５", 4),
        ("Score: ४", 4),
        ("Score: 4²", "not_a_number"),
        # not one number
        ("Score: 3-4", "not_a_number"),
        ("Score: 3 – 4", "not_a_number"),
        ("Score: 3 to 4", "not_a_number"),
        ("Score: 3 or 4", "not_a_number"),
        ("Score: 3, 4", "not_a_number"),
        ("Score: 3,4", "not_whole"),
        ("Score: 4+", "not_a_number"),
        ("Score: 4%", "not_a_number"),
        ("Score: 4th", "not_a_number"),
        ("Score: about 4", "no_score"),
        ("Score: -1", "out_of_range"),
        ("Score: −1", "out_of_range"),
        ("Score: 1e0", "not_whole"),
        ("Score: " + "9" * 6000, "out_of_range"),
        ("Score: 0000000000004", 4),
        # a label is a word of its own, and no key of broken JSON
        ("underscore: 4", "no_score"),
        ("sub-score: 4", "no_score"),
        ('"score": 4', "no_score"),
        ("Preservation: 4", 4),
        ("preservation score: 4", 4),
        ("Preservation: 4. Score: 3", "ambiguous"),
        # the whole reply is the answer
        ("4", 4),
        ("**4**", 4),
        (" 4. ", 4),
        ("4/5", 4),
        ("```\n4\n```", 4),
        ("6", "out_of_range"),
        ("4 5", "no_score"),
        # VLM-18, VLM-01
        ("", "empty"),
        (None, "empty"),
        (" \r\n\ufeff", "empty"),
        ("sorry", "refused"),
    ],
)
def test_a_score_in_prose(text: str | None, expected: float | str) -> None:
    """VLM-01, VLM-03: only a labelled score on the declared scale counts, and none is no number."""
    assert said(FIVE, text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"preservation": 4}', 4),
        ('{"score": 4}', 4),
        ('{"Score": 4, "reason": "3 marks, 2 differ"}', 4),
        ('{"score": [4]}', 4),
        ("[4]", 4),
        ('{"scores": {"preservation": 4}}', 4),
        ('[{"preservation": 4}]', 4),
        ('{"score": 4.0}', 4),
        ('{"score": "4"}', 4),
        # VLM-15: fences and surroundings
        ('```json\n{"score": 4}\n```', 4),
        ('```JSON\n{"score": 4}\n```', 4),
        ('```\n{"score": 4}\n```', 4),
        ('Here is it:\n```json\n{"score": 4}\n```\nAnything else?', 4),
        ('1. My answer:\n   ```json\n   {"score": 4}\n   ```\n2. Done', 4),
        ('```json\r\n{"score": 4,\r\n"reason": "x"}\r\n```', 4),
        ('\ufeff{"score": 4}', 4),
        ('<answer>{"score": 4}</answer>', 4),
        ('{"score": 1} <answer>{"score": 4}</answer>', 4),
        ('<answer>{"score": 4}', 4),
        # only the first bracket tried (1f-35)
        ('Here is it [v1]: {"score": 4}', 4),
        ('Here is it [1]: {"score": 4}', 4),
        ('<think>[]</think>{"score": 4}', 4),
        ('In {braces} and {}: {"score": 4}', 4),
        # JSON decides over what is said around it
        ('Colour score: 2. Shape score: 3. {"score": 4}', 4),
        ('{"score": 4} {"score": 4}', 4),
        ('{"score": 3} {"score": 4}', "ambiguous"),
        ('{"score": 3, "preservation": 4}', "ambiguous"),
        ('{"score": 3, "Score": 4}', "ambiguous"),
        # VLM-16: the listed repairs, and the schema after them
        ('{"score": 4,}', 4),
        ("{'score': 4}", 4),
        ("{“score”: 4}", 4),
        ('{"score": 4, "reason": "one\ntwo"}', 4),
        ("""{'reason': "it's", 'score': 4, 'x': None}""", 4),
        ('{"score":"4/5"}', 4),
        ('{"score":"4 out of 5"}', 4),
        ('{"score":"4/10"}', "other_scale"),
        ('{"score":"4,5"}', "not_whole"),
        ('{"reason":"a, }", "score": 4}', 4),
        ('{"reason":"a, }", "score": 4,}', 4),
        ('{"reason":"said \\"4\\", {twice}", "score": 4}', 4),
        # VLM-09 and friends
        ('{"score": 85}', "out_of_range"),
        ('{"score": -1}', "out_of_range"),
        ('{"score": 4.5}', "not_whole"),
        ('{"score": 1e0}', "not_whole"),
        ('{"score": true}', "not_a_number"),
        ('{"score": null}', "not_a_number"),
        ('{"score": NaN}', "not_a_number"),
        ('{"score": Infinity}', "not_a_number"),
        ('{"score": "3-4"}', "not_a_number"),
        ('{"score": ""}', "not_a_number"),
        ('{"score": "good"}', "not_a_number"),
        ('{"preservation": {"value": 4}}', "not_a_number"),
        ('{"preservation": [4]}', "not_a_number"),
        ('{"score": 1, "score": 5}', "duplicate_key"),
        ('{"score": 4, "x": {"a": 1, "a": 1}}', "duplicate_key"),
        ("{'score': 1, 'score': 5}", "duplicate_key"),
        ('{"score": [4, 4]}', "schema"),
        ('{"score": []}', "schema"),
        ("[4, 4]", "schema"),
        ('{"rating": 4}', "schema"),
        ('{"rating": "Score: 4"} Score: 4', "schema"),
        # broken JSON is never searched for something that fits
        ('{"reason": "the form {"score": 3} is odd", "score": 5}', "not_json"),
        ('{"reason": "the "best" one", "score": 4}', "not_json"),
        ("{'reason': 'it's fine', 'score': 4}", "not_json"),
        ('{"score": 4, "reason": "cut', "not_json"),
        ('{"score": <number>} Score: 4', "not_json"),
        ('{"score": 4 "reason": "no comma"}', "not_json"),
        ("{score: 4}", 4),  # unquoted: a label in prose
    ],
)
def test_a_score_in_json(text: str, expected: float | str) -> None:
    """VLM-09, VLM-15, VLM-16: fences, listed repairs, and then the scale."""
    assert said(FIVE, text) == expected


@pytest.mark.parametrize(
    "text", ["10", "-1", "4.5", "true", "NaN", "1e1", '"3-4"', '"4/5"', "4.0001", "null", "5"]
)
def test_nothing_off_the_scale_is_clamped(text: str) -> None:
    """VLM-09."""
    assert isinstance(said(FOUR, f'{{"score": {text}}}'), str)
    assert isinstance(said(FOUR, f"Score: {text}"), str)
    assert isinstance(said(FOUR, text), str)


def test_one_e_one_is_no_ten() -> None:
    assert said(TEN, '{"score": 1e1}') == "not_whole"


@pytest.mark.parametrize(
    ("text", "repairs"),
    [
        ('{"score": 4}', ()),
        ('{"score": 4,}', ("trailing_comma",)),
        ("{'score': 4}", ("single_quotes",)),
        ("{“score”: 4}", ("curly_quotes",)),
        ("{‘score’: 4}", ("curly_quotes",)),
        ("{'score': 4, 'sure': True,}", ("python_words", "single_quotes", "trailing_comma")),
        ('{"score": 4, "reason": "a\tb"}', ("control_characters",)),
        ('{"reason": "it’s “fine”, [1,]", "score": 4}', ()),
    ],
)
def test_repairs_are_few_and_named(text: str, repairs: tuple[str, ...]) -> None:
    result = reading(FIVE, text=text)
    assert result.answers["preservation"] == Answered(Status.OK, 4.0)
    assert result.repairs == repairs
    assert set(repairs) <= set(REPAIRS)


def test_strings_keep_their_content_through_repairs() -> None:
    text = """{'score': 4, 'reason': 'a "b", {c}, it\\'s \\\\ d,}',}"""
    assert reading(FIVE, text=text).words == """a "b", {c}, it's \\ d,}"""


# --- reasoning, cut-off replies, refusals --------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>Score: 1, maybe 2</think>\nScore: 4", 4),
        ("<THINK>Score: 1</THINK>Score: 4", 4),
        ("<Thinking>Score: 1</thinking>Score: 4", 4),
        ("<reason>Score: 1</reason>Score: 4", 4),
        ('<reasoning lang="en">Score: 1</reasoning>Score: 4', 4),
        ('<think>{"score": 1}</think>{"score": 4}', 4),
        ("<think>a <think>Score: 1</think> Score: 2</think>Score: 4", 4),
        ("Score: 1, maybe</think>Score: 4", 4),  # the template had opened it
        ("Score: 1<think>or 2</think> or 3</think>Score: 4", 4),
        ("<think>Score: 5 because", "unclosed_reasoning"),
        ("Score: 4 <think>or Score: 5", "unclosed_reasoning"),
        ("<think>Score: 5</think>", "empty"),
        ("<think>Score: 5</think> I thought long.", "no_score"),
    ],
)
def test_reasoning_is_never_read(text: str, expected: float | str) -> None:
    """VLM-06."""
    assert said(FIVE, text) == expected


def test_without_reasoning() -> None:
    assert without_reasoning("a<think>b</think>c<reason>d</reason>e") == "ace"
    assert without_reasoning("<thinker>stays</thinker>") == "<thinker>stays</thinker>"
    with pytest.raises(ValueError, match="not closed"):
        without_reasoning("<think>")


@pytest.mark.parametrize("text", ['{"score":', "", None, '{"score": 4}', "Score: 4", "<think>a"])
def test_a_cut_off_reply_is_truncated_whatever_it_holds(text: str | None) -> None:
    """VLM-04."""
    assert said(FIVE, text, finish="length") == "truncated"


@pytest.mark.parametrize("finish", ["content_filter", "refusal"])
def test_a_filter_refuses(finish: str) -> None:
    result = reading(FIVE, text='{"score": 4}', finish=finish)
    assert (result.status, result.fault) == (Status.REFUSED, "refused")
    assert result.answers["preservation"] == Answered(Status.REFUSED, None, "refused")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I'm sorry, but I can't help with that.", "refused"),
        ("I’m very sorry, I cannot compare people.", "refused"),
        ("Sorry, I cannot assist with this request.", "refused"),
        ("I cannot identify people in pictures.", "refused"),
        ("I am unable to rate these.", "refused"),
        ("Unfortunately, I can't.", "refused"),
        ("As an AI, I have no eyes.", "refused"),
        # words of a refusal inside an answer (2f-16)
        ("The dog looks sorry and its collar is not available. Score: 2", 2),
        ("Sorry for the delay. Score: 2", 2),
        ('I cannot see any difference. {"score": 5}', 5),
        ("The artist is not able to hold the brush.", "no_score"),
        ("Sorryful eyes, but the same dog.", "no_score"),
        ("I cannot see a difference. " + "The mug is the same. " * 40, "no_score"),
        ('I\'m sorry {"score": }', "not_json"),
    ],
)
def test_refusals(text: str, expected: float | str) -> None:
    result = reading(FIVE, text=text)
    assert said(FIVE, text) == expected
    assert (result.status is Status.REFUSED) == (expected == "refused")


def test_a_failure_does_not_enter_a_mean() -> None:
    """VLM-01: B is 5.0 over two of four, never 2.5."""
    replies = ['{"score": 5}', "5", "sorry", ""]
    answers = [reading(FIVE, text=text).answers["preservation"] for text in replies]
    assert [a.value for a in answers] == [5.0, 5.0, None, None]


# --- several asks --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        '{"following": 8, "preservation": 7, "reason": "x"}',
        '{"answers": {"following": 8, "preservation": 7}}',
        '{"scores": {"preservation": 7, "following": 8}}',
        '{"score": {"preservation": 7, "following": 8}}',
        '{"score": [8, 7], "reasoning": "x"}',
        '{"scores": ["8/10", "7"]}',
        '{"following": 8}\n{"preservation": 7}',
        '[{"following": 8}, {"preservation": 7}]',
        "[8, 7]",
        "```json\n[8, 7]\n```",
        "Following: 8\nPreservation: 7",
        "**Following score:** 8/10, because.\n**Preservation:** 7",
    ],
)
def test_forms_of_several_scores(text: str) -> None:
    """VIEScore's parser lost ``[6, 0]`` (2f-3)."""
    assert values(FOLLOWING, TEN, text=text) == {"following": 8, "preservation": 7}


@pytest.mark.parametrize(
    ("text", "following", "preservation"),
    [
        # VLM-08: what is there is kept, what is not is no zero
        ('{"following": 8}', 8, "missing"),
        ('{"preservation": 7, "following": 11}', "out_of_range", 7),
        ("Following: 8", 8, "missing"),
        ('{"following": 8, "score": 5}', 8, "missing"),
        ('{"score": [8]}', "schema", "schema"),
        ('{"score": [8, 7, 6]}', "schema", "schema"),
        ("[8]", "schema", "schema"),
        ('{"score": 8}', "schema", "schema"),
        # VIEScore's parser let these pass (2f-7)
        ('{"score": [11, -3]}', "out_of_range", "out_of_range"),
        ('{"score": ["good", null]}', "not_a_number", "not_a_number"),
        ('{"score": []}', "schema", "schema"),
        # 2f-4, 2f-8: an inner quote, and a list that a repair must not touch
        ('{"score": [8, 7], "reasoning": "the "subject": a dog"}', "not_json", "not_json"),
        ('{"score": [8, 7,], "reasoning": "note: fine"}', 8, 7),
        # no label, no score
        ("Score: 8", "no_score", "no_score"),
        ("8, 7", "no_score", "no_score"),
        ("I compared pictures [1, 2].", "no_score", "no_score"),
        ("Following: 8. Following: 6. Preservation: 7", "ambiguous", 7),
    ],
)
def test_several_scores(text: str, following: float | str, preservation: float | str) -> None:
    result = reading(FOLLOWING, TEN, text=text)
    assert values(FOLLOWING, TEN, text=text) == {
        "following": following,
        "preservation": preservation,
    }
    faults = [v for v in (following, preservation) if isinstance(v, str)]
    assert result.fault == (faults[0] if faults else "")
    assert result.status is (Status.UNPARSABLE if faults else Status.OK)


def test_words() -> None:
    assert reading(TEN, text='{"score": 7, "reason": "same mug"}').words == "same mug"
    assert reading(TEN, text="<think>a</think>Same mug. Score: 7").words == "Same mug. Score: 7"
    assert reading(TEN, text="7").words == ""


def test_a_reply_to_no_named_question_is_its_text() -> None:
    result = reading(text='<think>a</think> {"units": []} ')
    assert (result.status, result.words, result.answers) == (Status.OK, '{"units": []}', {})
    assert reading(text="I'm sorry, I can't.").status is Status.REFUSED
    assert reading(text="").fault == "empty"
    assert reading(text='{"units": [', finish="length").fault == "truncated"
    # Even a whole answer that declines may open an answer in JSON.
    assert reading(text='I cannot do it better than {"units": []}').status is Status.OK


# --- yes or no -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ('"yes"', 1),
        ('"Yes."', 1),
        ('"NO"', 0),
        ('" no. "', 0),
        ("true", 1),
        ("false", 0),
        ('"True"', 1),
        ('"not sure"', "not_yes_or_no"),
        ('"none"', "not_yes_or_no"),
        ('"no idea"', "not_yes_or_no"),
        ('"nothing"', "not_yes_or_no"),
        ('"yes/no"', "not_yes_or_no"),
        ('"<yes or no>"', "not_yes_or_no"),
        ('""', "not_yes_or_no"),
        ("null", "not_yes_or_no"),
        ("1", "not_yes_or_no"),
        ("0.7", "not_yes_or_no"),
        ('["yes"]', "not_yes_or_no"),
    ],
)
def test_yes_or_no_in_json(value: str, expected: float | str) -> None:
    text = f'{{"global_attribute/colour": {value}, "part/face": "no"}}'
    assert values(COLOUR, FACE, text=text) == {
        "global_attribute/colour": expected,
        "part/face": 0,
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Yes", 1),
        ("**yes**", 1),
        ("no.", 0),
        ("NO", 0),
        ("```\nyes\n```", 1),
        ('"yes"', 1),
        ('{"answer": "yes"}', 1),
        ('{"global_attribute/colour": "no"}', 0),
        ("not sure", "no_score"),
        ("none", "no_score"),
        ("no idea", "no_score"),
        ("Now I see.", "no_score"),
        ("Yes and no", "no_score"),
        ("no, wait, yes", "no_score"),
        ('{"answer": "not sure"}', "not_yes_or_no"),
        ("I cannot tell, sorry.", "refused"),
    ],
)
def test_a_single_yes_or_no(text: str, expected: float | str) -> None:
    """UFO's reference takes whatever begins with "no" for no (1f-31)."""
    assert said(COLOUR, text) == expected


def test_unanswered_units_leave_the_others_alone() -> None:
    assert values(COLOUR, FACE, text='{"part/face": "yes"}') == {
        "global_attribute/colour": "missing",
        "part/face": 1,
    }
    twice = '{"part/face": "yes", "global_attribute/colour": "yes", "part/face": "no"}'
    assert set(values(COLOUR, FACE, text=twice).values()) == {"duplicate_key"}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0.7", 0.7),
        ("1", 1),
        ("0", 0),
        ("1e-05", 1e-5),
        ('"yes"', 1),
        ("true", 1),
        ("1.5", "out_of_range"),
        ("-0.1", "not_yes_or_no"),
        ("NaN", "not_yes_or_no"),
    ],
)
def test_graded_answers(value: str, expected: float | str) -> None:
    text = f'{{"part/face": {value}}}'
    assert values(FACE, text=text, graded=True) == {"part/face": expected}


# --- find_json -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": 1}', {"a": 1}),
        ('Here is it [v1]: {"a": [1, 2.5, "x"]}', {"a": [1, 2.5, "x"]}),
        ('<answer>{"a": 1}</answer>', {"a": 1}),
        ('{"a": 1} and again {"a": 1}', {"a": 1}),
        ('[] {} {"a": 1,}', {"a": 1}),
        ("[1, 2]", [1, 2]),
        ("{'a': False}", {"a": False}),
    ],
)
def test_find_json(text: str, expected: Any) -> None:
    assert find_json(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nothing", "no JSON"),
        ("{}", "no JSON"),
        ('{"a": 1} {"a": 2}', "several"),
        ('{"a": 1, "a": 1}', "twice"),
        ('{"a": NaN}', "NaN"),
        ('{"a": 1e999}', "1e999"),
        ('{"a": [1, 2', "cut off"),
        ('{"a": "b"c"}', "not closed"),
        ('{"a": "b"c}', "not valid"),
        ('{"a": ' * 100_000, "cut off"),
        ('{"a": ' * 100_000 + "1" + "}" * 100_000, "not valid"),
    ],
)
def test_find_json_refuses(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        find_json(text)


# --- properties ----------------------------------------------------------------------------------

FRAGMENTS = st.sampled_from("{}[]'\"“:,(*-\\ \n\r\ufeff٤²") | st.sampled_from(
    [
        "4",
        "4.5",
        "1e9",
        "/5",
        " of ",
        "NaN",
        "null",
        "true",
        "yes",
        "no",
        "score",
        "following",
        "Score: ",
        '{"score": ',
        "<think>",
        "</think>",
        "<answer>",
        "</answer>",
        "```json\n",
        "\n```",
    ]
)
TEXT = st.text(st.characters(categories=["L", "N", "P", "S"]) | st.just(" "))
SCALES = st.tuples(st.integers(-3, 3), st.integers(1, 12)).map(lambda t: (t[0], t[0] + t[1]))


@given(
    text=st.none() | st.text() | st.lists(FRAGMENTS, max_size=30).map("".join),
    finish=st.sampled_from(["stop", "length", "content_filter", ""]),
    graded=st.booleans(),
    scale=SCALES,
)
def test_read_never_raises_and_never_leaves_the_scale(
    text: str | None, finish: str, graded: bool, scale: tuple[int, int]
) -> None:
    asks = (Ask("following", "?", scale), Ask("preservation", "?", (0, 5)), COLOUR)
    for some in (asks, asks[:1], asks[2:], ()):
        result = reading(*some, text=text, finish=finish, graded=graded)
        assert list(result.answers) == [a.name for a in some]
        assert (result.status is Status.OK) == (not result.fault)
        for ask in some:
            answer = result.answers[ask.name]
            assert (answer.status is Status.OK) == (answer.value is not None)
            if answer.value is None:
                assert answer.reason and result.status is not Status.OK
            elif ask.scale:
                assert ask.scale[0] <= answer.value <= ask.scale[1]
                assert answer.value == int(answer.value)
            else:
                assert 0 <= answer.value <= 1


# Prose without braces, labels, tags and fences; anything else may stand around an answer.
PROSE = st.text(
    st.characters(exclude_characters="{<[`", exclude_categories=["Cs"]), max_size=80
).filter(lambda t: "score" not in t.casefold() and "preservation" not in t.casefold())


@given(
    before=PROSE,
    after=PROSE,
    value=st.integers(0, 10),
    fence=st.sampled_from([("", ""), ("```json\n", "\n```"), ("```\r\n", "\r\n```")]),
    reason=st.text(st.characters(exclude_categories=["Cs"])),
    think=PROSE,
)
def test_a_score_survives_whatever_stands_around_it(
    before: str, after: str, value: int, fence: tuple[str, str], reason: str, think: str
) -> None:
    assume("<" not in reason)  # a tag is a tag, also in a string
    body = json.dumps({"reason": reason, "preservation": value}, ensure_ascii=False)
    text = f"<think>Score: 3 {think}</think>{before}{fence[0]}{body}{fence[1]}{after}"
    assert said(TEN, text) == value


@given(before=PROSE, after=PROSE, value=st.integers(0, 10), bold=st.sampled_from(["", "**"]))
def test_a_labelled_score_survives_in_prose(before: str, after: str, value: int, bold: str) -> None:
    assert said(TEN, f"{before}\n{bold}Score:{bold} {value}/10\n\n{after}") == value


@given(
    value=st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | TEXT,
        lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
        max_leaves=10,
    )
)
def test_json_comes_back_as_it_was(value: Any) -> None:
    assume("<" not in json.dumps(value))
    whole = {"value": value}
    assert find_json(f"Look:\n```json\n{json.dumps(whole, indent=1)}\n```") == whole
    assert find_json(repr(whole)) == whole  # Python's own writing


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "[1" * 100_000,
        "score" + " " * 200_000,
        "score:" * 50_000,
        "Score: " + "(" * 100_000,
        "Score: 4" + "9" * 100_000 + "x",
        "<think></think>" * 20_000,
        '{"a":' * 20_000,
        "{'" * 50_000,
        '{"score": "' + "\\" * 100_001,
        "`" * 100_000,
    ],
    ids=lambda text: text[:12],
)
def test_hostile_text_is_read_without_harm(text: str) -> None:
    assert isinstance(said(TEN, text), str)
