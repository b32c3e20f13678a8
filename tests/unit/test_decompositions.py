"""Decompositions: which units are kept, and which replies are taken for units."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from subjectbench import cards
from subjectbench.asking.base import Picture, Reply
from subjectbench.config import Use
from subjectbench.decompositions.asked import MAX_UNITS, TYPES
from subjectbench.decompositions.base import Case, Decomposition
from subjectbench.errors import InputError
from subjectbench.judges.replies import read
from subjectbench.units import Unit
from subjectbench.vocabulary import Status


def decomposition(name: str, **params: Any) -> Decomposition:
    use = Use(card=name, params=params)
    card = cards.load("decomposition", name)
    plugin = cards.plugin("decomposition", card, name)
    return plugin(cards.params("decomposition", use, name), card, cards.ROOT)  # type: ignore[no-any-return]


def row(name: str = "colour", level: str = "global_attribute", **changes: Any) -> dict[str, Any]:
    base = {"relevance": "image_only", "weight": 4, "question": f"Is the {name} the same?"}
    return {"level": level, "name": name, **base, **changes}


def reply(*rows: Any, **changes: Any) -> str:
    whole = {"analysis": "A mug.", "subject": "mug", "subject_type": "rigid_object"}
    return json.dumps({**whole, "units": list(rows), **changes})


# --- prepared ------------------------------------------------------------------------------------


def test_prepared_units_are_kept_by_level_and_merged() -> None:
    units = [
        Unit(**row("Colour")),
        Unit(**row(" colour", weight=1)),
        Unit(**row("colour", "part")),
        Unit(**row("place", "setting")),
    ]
    assert decomposition("prepared").chosen(units) == [units[0], *units[2:]]
    reference = decomposition("prepared", levels=["global_attribute", "part"])
    assert reference.chosen(units) == [units[0], units[2]]
    assert not reference.asks_judge
    with pytest.raises(InputError, match="at least 1"):
        decomposition("prepared", levels=[])


# --- asked: the request --------------------------------------------------------------------------


@pytest.fixture
def case(picture: Callable[..., Image.Image]) -> Case:
    return Case("c1", "mug", 'A "red" mug in {braces}', picture(1))


def test_the_request(case: Case) -> None:
    request = decomposition("asked").request(case)
    system, user = request.messages
    assert [m.role for m in request.messages] == ["system", "user"]
    assert [p.role for p in user.parts if isinstance(p, Picture)] == ["reference"]
    assert user.parts[0] == "The picture: the reference."
    assert isinstance(user.parts[-1], str)
    assert case.prompt in user.parts[-1] and "called: mug" in user.parts[-1]
    assert request.asks == () and request.values == {"prompt": case.prompt, "subject": "mug"}
    task = str(system.parts[0])
    assert all(kind in task for kind in TYPES)  # logos too (1f-16)
    words = ("image_only", "text_only", "text_and_image", "weight", "face", "level setting")
    assert all(word in task for word in words)
    jsonschema.Draft202012Validator.check_schema(request.schema)


def test_a_case_without_a_name_for_its_subject(case: Case) -> None:
    nameless = Case(case.case_id, "", case.prompt, case.reference)
    request = decomposition("asked").request(nameless)
    assert request.values == {"prompt": case.prompt}
    assert "called" not in str(request.messages[1].parts[-1])


def test_setting_units_are_a_switch(case: Case) -> None:
    """The reference scores nothing of what the prompt asks of the surroundings (1f-8)."""
    without = decomposition("asked", setting=False)
    request = without.request(case)
    assert "setting" not in json.dumps(request.canonical())
    assert request.key({}) != decomposition("asked").request(case).key({})
    text = reply(row(), row("place", "setting"))
    assert [u.name for u in without.read(text)] == ["colour"]
    assert [u.name for u in decomposition("asked").read(text)] == ["colour", "place"]


# --- asked: the reply ----------------------------------------------------------------------------


def test_units_are_read_with_all_they_have() -> None:
    (unit,) = decomposition("asked").read(reply(row("Ears", "part", weight=5)))
    assert unit == Unit(
        level="part",
        name="Ears",
        relevance="image_only",
        weight=5,
        question="Is the Ears the same?",
    )


@pytest.mark.parametrize(
    "wrapped",
    [
        "{}",
        "```json\n{}\n```",
        "Here is it [v1]: {}",
        "<think>[] {{}}</think>{}",
        "<answer>{}</answer>",
    ],
)
def test_units_are_found_wherever_they_stand(wrapped: str) -> None:
    """Only the first bracket was tried (1f-35)."""
    text = wrapped.replace("{{}}", '{"units": []}').replace("{}", reply(row()))
    assert len(decomposition("asked").read(text)) == 1


def test_equal_aspects_count_once() -> None:
    """1f-15."""
    text = reply(
        row("Colour"), row(" colour ", weight=2), row("ＣＯＬＯＵＲ"), row("colour", "part")
    )
    units = decomposition("asked").read(text)
    assert [(u.unit_id, u.weight) for u in units] == [
        ("global_attribute/colour", 4),
        ("part/colour", 4),
    ]


@pytest.mark.parametrize(
    ("name", "relevance", "kind", "tool"),
    [
        ("face", "image_only", "human", "face"),
        (" Face", "text_and_image", "human", "face"),
        ("face", "text_only", "human", "vqa"),
        ("face", "image_only", "animal", "vqa"),
        ("face", "image_only", "character", "vqa"),
        ("watercolour face", "image_only", "human", "vqa"),
        ("hair", "image_only", "human", "vqa"),
    ],
)
def test_faces_are_compared_only_where_they_can_be(
    name: str, relevance: str, kind: str, tool: str
) -> None:
    """1f-4: our decision, whatever the judge would like."""
    text = reply(row(name, "part", relevance=relevance), subject_type=kind)
    (unit,) = decomposition("asked").read(text)
    assert unit.tool == tool


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (reply(row(), subject_type="HUMAN"), "subject_type: 'HUMAN' is none of human"),
        (reply(row(), subject_type=None), "subject_type: None"),
        (reply(), "at least one unit"),
        (reply(units={"a": 1}), "must be a list"),
        (reply(row(weight=0)), r"units\[0\]: weight"),
        (reply(row(weight=9)), r"units\[0\]: weight"),
        (reply(row(), row("x", weight="5")), r"units\[1\]: weight"),
        (reply(row(weight=True)), r"units\[0\]: weight"),
        (reply(row(weight=4.5)), r"units\[0\]: weight"),
        (reply(row(relevance="image")), r"units\[0\]: relevance"),
        (reply(row(level="background")), r"units\[0\]: level"),
        (reply(row(name="")), r"units\[0\]: name"),
        (reply(row(name=" ")), r"units\[0\]: name: is blank"),
        (reply(row(name=None)), r"units\[0\]: name"),
        (reply(row(question="")), r"units\[0\]: question"),
        (reply(row(question="The colour.")), "question mark"),
        (reply(row(tool="face")), "exactly the keys"),
        (reply({"name": "colour"}), "exactly the keys"),
        (reply("colour"), "exactly the keys"),
        (reply(*[row(f"a{i}") for i in range(MAX_UNITS + 1)]), "too many"),
        (reply(row("place", "setting")), "global_attribute or a part"),
        (reply(row(weight=3), row("x", weight=2)), "weight of 4 or 5"),
        (reply(row(weight=0), row(level="x")), r"units\[0\].*; units\[1\]"),
        ("[1, 2]", "not one JSON object"),
        ("I'm sorry.", "no JSON object"),
        (reply(row())[:-9], "cut off"),
        (reply(row()) + reply(row("x")), "several different"),
        ("<think>" + reply(row()), "not closed"),
        ('{"units": [], "units": [1]}', "twice"),
        ("[" + reply(row()) + "]x", "not one JSON object"),
    ],
)
def test_replies_that_are_not_taken(text: str, message: str) -> None:
    """1f-14: the reference accepts empty lists, nameless parts and any reward."""
    with pytest.raises(ValueError, match=message) as caught:
        decomposition("asked").read(text)
    assert len(str(caught.value)) < 1200  # it goes back to the judge


def test_what_the_schema_takes_is_what_is_read(case: Case) -> None:
    schema = decomposition("asked").request(case).schema
    assert schema
    jsonschema.validate(json.loads(reply(row())), schema)
    for bad in (row(weight=0), row(weight=9), row(level="x"), row(relevance="x"), row(tool="vqa")):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(json.loads(reply(bad)), schema)
        with pytest.raises(ValueError):
            decomposition("asked").read(reply(bad))


def test_a_refusal_is_one_before_it_is_read(case: Case) -> None:
    request = decomposition("asked").request(case)
    assert read(request, Reply("I'm sorry, I can't do that.")).status is Status.REFUSED
    reading = read(request, Reply(f"<think>hm</think>{reply(row())}"))
    assert reading.status is Status.OK
    assert len(decomposition("asked").read(reading.words)) == 1


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@given(
    rows=st.lists(
        VALUES
        | st.fixed_dictionaries(
            {
                "level": st.sampled_from(["part", "global_attribute", "setting", "x"]) | VALUES,
                "name": st.sampled_from(["face", "colour"]) | VALUES,
                "relevance": st.sampled_from(["image_only", "text_only"]) | VALUES,
                "weight": st.integers(0, 6) | VALUES,
                "question": st.just("Is it?") | VALUES,
            }
        ),
        max_size=4,
    ),
    kind=st.sampled_from(TYPES) | VALUES,
    cut=st.integers(0, 3),
)
def test_any_reply_gives_valid_units_or_a_reason(rows: list[Any], kind: Any, cut: int) -> None:
    text = reply(*rows, subject_type=kind)
    text = text[: len(text) - cut]
    try:
        units = decomposition("asked").read(text)
    except ValueError as error:
        assert str(error)
    else:
        assert any(u.weight >= 4 for u in units) and any(u.level != "setting" for u in units)
        assert len({u.unit_id for u in units}) == len(units) <= MAX_UNITS
