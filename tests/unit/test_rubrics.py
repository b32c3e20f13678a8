"""Rubrics: what is shown to a judge, what is withheld, and what makes a request another one."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jsonschema
import pytest
from PIL import Image

from subjectbench import cards
from subjectbench.asking.base import Picture, Reply, Request
from subjectbench.asking.sending import PicturePolicy
from subjectbench.config import Use
from subjectbench.errors import InputError
from subjectbench.judges.replies import read
from subjectbench.rubrics.base import Judged, Rubric
from subjectbench.units import Unit
from subjectbench.vocabulary import Status

JUDGED = [n for n in cards.names("rubric") if cards.load("rubric", n).plugin != "imported"]
PROMPT = 'A zebra-striped mug on the moon, by "{subject}" {0} \\d'


def rubric(name: str, **params: Any) -> Rubric:
    use = Use(card=name, params=params)
    card = cards.load("rubric", name)
    plugin = cards.plugin("rubric", card, name)
    return plugin(cards.params("rubric", use, name), card, cards.ROOT)  # type: ignore[no-any-return]


def unit(name: str, relevance: str, level: str = "part", **more: Any) -> Unit:
    fields = {"weight": 3, "question": f"Is the {name} right?"} | more
    return Unit.model_validate({"level": level, "name": name, "relevance": relevance, **fields})


UNITS = (
    unit("colour", "image_only", "global_attribute"),
    unit("hat", "text_only"),
    unit("Marking", "image_only", about={"aspect": "marking"}),
    unit("style", "text_and_image", "global_attribute"),
    unit('place "A"', "text_only", "setting"),
)


@pytest.fixture
def sample(picture: Callable[..., Image.Image]) -> Judged:
    return Judged(
        generator="model",
        sample_id="c1-s0",
        case_id="c1",
        subject="mug",
        prompt=PROMPT,
        image=picture(1, (60, 40)),
        reference=picture(2, (40, 60)),
        units=UNITS,
    )


def texts(request: Request) -> str:
    return "\n".join(p for m in request.messages for p in m.parts if isinstance(p, str))


def roles(request: Request) -> list[str]:
    return [p.role for p in request.pictures()]


def asked(request: Request) -> list[str]:
    return [a.name for a in request.asks]


# --- every rubric --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", JUDGED)
def test_names_of_asks_are_unique(name: str, sample: Judged) -> None:
    names = [ask.name for request in rubric(name).requests(sample) for ask in request.asks]
    assert len(names) == len(set(names)) > 0


@pytest.mark.parametrize("name", JUDGED)
def test_values_hold_what_is_shown_and_nothing_else(name: str, sample: Judged) -> None:
    for request in rubric(name).requests(sample):
        assert set(request.values) <= {"prompt", "subject"}
        assert ("prompt" in request.values) == (PROMPT in texts(request))
        assert ("zebra" in json.dumps(request.canonical())) == ("prompt" in request.values)
        for value in request.values.values():
            assert value in texts(request)


@pytest.mark.parametrize("name", JUDGED)
def test_the_order_of_the_pictures_is_stated_beside_them(name: str, sample: Judged) -> None:
    for request in rubric(name).requests(sample):
        (parts,) = [m.parts for m in request.messages if m.role == "user"]
        heading = ""
        for part in parts:
            if isinstance(part, Picture):
                number = roles(request).index(part.role)
                place = ["First picture", "Second picture"][number]
                place = place if len(roles(request)) == 2 else "The picture"
                what = {"reference": "the reference", "generated": "the generated one"}[part.role]
                assert heading == f"{place}: {what}."
            else:
                heading = part
        assert isinstance(parts[-1], str) and not heading.startswith(("First", "Second", "The pic"))
        assert roles(request) in (["reference", "generated"], ["generated"])


@pytest.mark.parametrize("name", JUDGED)
def test_the_form_asked_for_is_the_form_that_is_read(name: str, sample: Judged) -> None:
    for request in rubric(name).requests(sample):
        answer: dict[str, Any] = {a.name: a.scale[1] if a.scale else "yes" for a in request.asks}
        assert request.schema
        if "reason" in request.schema["properties"]:
            answer["reason"] = "they are alike"
        jsonschema.Draft202012Validator.check_schema(request.schema)
        jsonschema.validate(answer, request.schema)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(dict(list(answer.items())[1:]), request.schema)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**answer, request.asks[0].name: 11}, request.schema)
        for key in answer:
            assert f"{json.dumps(key)}: " in texts(request)
        assert all(a.text in texts(request) for a in request.asks)
        reading = read(request, Reply(json.dumps(answer)))
        assert reading.status is Status.OK
        assert reading.words == answer.get("reason", "")


@pytest.mark.parametrize("name", JUDGED)
def test_a_template_fills_in_once(name: str, sample: Judged) -> None:
    """Braces in a prompt are the prompt's."""
    odd = replace(sample, prompt="{subject} and {prompt}", subject="")
    for request in rubric(name).requests(odd):
        if "prompt" in request.values:
            assert '"{subject} and {prompt}"' in texts(request)
        else:
            assert "{subject}" not in texts(request)
        if "subject" in request.values:
            assert "the main subject" in texts(request)
        assert "{" not in texts(request).replace("{subject} and {prompt}", "").split('{"')[0]


# --- what each of them shows ---------------------------------------------------------------------


def test_viescore(sample: Judged) -> None:
    sc, pq = rubric("viescore").requests(sample)
    assert asked(sc) == ["following", "preservation"]
    assert asked(pq) == ["naturalness", "artifacts"]
    assert roles(sc) == ["reference", "generated"] and roles(pq) == ["generated"]
    assert sc.values == {"prompt": PROMPT, "subject": "mug"} and pq.values == {}
    assert {a.scale for r in (sc, pq) for a in r.asks} == {(0, 10)}
    assert [dict(a.about) for r in (sc, pq) for a in r.asks] == [
        {"dimension": d} for d in ("following", "preservation", "naturalness", "artifacts")
    ]


def test_dreambench_plus(sample: Judged) -> None:
    cp, pf = rubric("dreambench_plus").requests(sample)
    assert (asked(cp), asked(pf)) == (["preservation"], ["following"])
    assert (roles(cp), roles(pf)) == (["reference", "generated"], ["generated"])
    assert "prompt" not in cp.values and pf.values == {"prompt": PROMPT}
    assert cp.asks[0].scale == pf.asks[0].scale == (0, 4)


def test_sics_and_holistic(sample: Judged) -> None:
    (sics,) = rubric("sics").requests(sample)
    assert asked(sics) == ["preservation"] and sics.asks[0].scale == (0, 5)
    assert roles(sics) == ["reference", "generated"] and "prompt" not in sics.values
    (whole,) = rubric("holistic").requests(sample)
    assert asked(whole) == ["alignment"] and whole.asks[0].scale == (0, 10)
    assert roles(whole) == ["reference", "generated"] and whole.values["prompt"] == PROMPT


# --- units ---------------------------------------------------------------------------------------


def by_relevance(requests: list[Request]) -> dict[str, Request]:
    out = {}
    for request in requests:
        (relevance,) = {a.about["relevance"] for a in request.asks}
        out[relevance] = request
    return out


@pytest.mark.parametrize("calls", ["together", "per_unit"])
def test_strict_routing_withholds(sample: Judged, calls: str) -> None:
    """Neither words nor pictures nor values of the condition that does not count (1f-11)."""
    assert sample.reference
    reference = PicturePolicy().encode(sample.reference, "reference")
    requests = rubric("ufo", calls=calls).requests(sample)
    assert sorted(n for r in requests for n in asked(r)) == sorted(u.unit_id for u in UNITS)
    for request in requests:
        everything = json.dumps(request.canonical())
        (relevance,) = {a.about["relevance"] for a in request.asks}
        shown = any(p.data == reference.data for p in request.pictures())
        assert shown == (reference.sha256 in everything) == (relevance != "text_only")
        assert ("zebra" in everything) == (relevance != "image_only")
        assert ("First picture" in everything) == shown


def test_strict_routing_does_not_depend_on_what_it_withholds(
    sample: Judged, picture: Callable[..., Image.Image]
) -> None:
    before = by_relevance(rubric("ufo").requests(sample))
    other_prompt = by_relevance(rubric("ufo").requests(replace(sample, prompt="A red mug")))
    other = replace(sample, reference=picture(9, (40, 60)))
    other_reference = by_relevance(rubric("ufo").requests(other))
    assert before["image_only"] == other_prompt["image_only"] != other_reference["image_only"]
    assert before["text_only"] == other_reference["text_only"] != other_prompt["text_only"]
    joint = [r["text_and_image"].key({}) for r in (before, other_prompt, other_reference)]
    assert len(set(joint)) == 3


def test_worded_routing_shows_all_and_says_what_counts(sample: Judged) -> None:
    (request,) = rubric("ufo", routing="worded").requests(sample)
    assert roles(request) == ["reference", "generated"] and PROMPT in texts(request)
    said = texts(request)
    places = [said.index(w) for w in ("only the reference counts", "only the prompt counts")]
    places.append(said.index("reference and prompt count together"))
    for part, names in zip(places, (["colour", "marking"], ["hat", "place"], ["style"])):
        for name in names:  # each question stands under its own rule
            line = next(said.index(f"- {u.unit_id}:") for u in UNITS if name in u.unit_id)
            assert max(p for p in places if p < line) == part
    kept = {a.name: a.about["relevance"] for a in request.asks}
    assert kept == {u.unit_id: u.relevance for u in UNITS}


def test_without_routing_every_unit_counts_jointly(sample: Judged) -> None:
    (request,) = rubric("ufo_unrouted").requests(sample)
    assert {a.about["relevance"] for a in request.asks} == {"text_and_image"}
    assert "only the" not in texts(request).split("reference and prompt count together")[0]
    assert "only the reference counts" not in texts(request)
    assert asked(request) == [u.unit_id for u in UNITS]
    # A unit's own values must not bring its class back.
    smuggled = replace(sample, units=(unit("x", "text_only", about={"relevance": "text_only"}),))
    (request,) = rubric("ufo_unrouted").requests(smuggled)
    assert request.asks[0].about["relevance"] == "text_and_image"


def test_asks_carry_their_unit(sample: Judged) -> None:
    request = by_relevance(rubric("ufo").requests(sample))["image_only"]
    assert request.asks[1].name == "part/marking"
    assert request.asks[1].about == {
        "aspect": "marking",
        "level": "part",
        "name": "Marking",
        "relevance": "image_only",
    }
    assert request.asks[1].scale is None


@pytest.mark.parametrize(
    ("params", "count"),
    [
        ({"routing": "strict"}, 3),
        ({"routing": "worded"}, 1),
        ({"routing": "none"}, 1),
        ({"routing": "strict", "calls": "per_unit"}, 5),
        ({"routing": "worded", "calls": "per_unit"}, 5),
        ({"routing": "none", "calls": "per_unit"}, 5),
    ],
)
def test_requests_of_a_picture(sample: Judged, params: dict[str, Any], count: int) -> None:
    its = rubric("ufo", **params)
    assert len(its.requests(sample)) == count
    assert its.requests(replace(sample, units=())) == []


def test_requests_of_a_case_against_the_reference_code(sample: Judged) -> None:
    """Ten units, six models, four samples: the code asks each unit and explains each no."""
    units = [unit(str(i), ["image_only", "text_only", "text_and_image"][i % 3]) for i in range(10)]
    pictures = 6 * 4
    noes = 0  # the least that the code can need
    reference = 1 + len(units) + pictures * (len(units) + noes)
    assert reference == 251
    sample = replace(sample, units=tuple(units))
    for name, params, verified in (
        ("ufo_reference", {}, 240),
        ("ufo", {}, 72),
        ("ufo", {"routing": "worded"}, 24),
    ):
        assert pictures * len(rubric(name, **params).requests(sample)) == verified


# --- pictures ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "max_side", "sent"),
    [
        ((60, 40), 30, (30, 20)),
        ((40, 60), 30, (20, 30)),
        ((60, 40), 1024, (60, 40)),
        ((300, 2), 32, (32, 1)),
    ],
)
def test_aspect_is_kept_and_nothing_is_enlarged(
    picture: Callable[..., Image.Image],
    size: tuple[int, int],
    max_side: int,
    sent: tuple[int, int],
) -> None:
    """The reference squashes everything to 1024 x 1024 (1f-12)."""
    encoded = PicturePolicy(max_side=max_side).encode(picture(0, size), "generated")
    assert Image.open(io.BytesIO(encoded.data)).size == sent


def test_png_loses_nothing_and_jpeg_is_jpeg(picture: Callable[..., Image.Image]) -> None:
    """The type says what the bytes are (IMG-06)."""
    image = picture(3)
    png = PicturePolicy().encode(image, "generated")
    assert Image.open(io.BytesIO(png.data)).convert("RGB").tobytes() == image.tobytes()
    jpeg = PicturePolicy(format="jpeg").encode(image, "generated")
    for sent, kind in ((png, "PNG"), (jpeg, "JPEG")):
        assert Image.open(io.BytesIO(sent.data)).format == kind
        assert sent.media_type == f"image/{kind.lower()}"


def test_a_picture_that_is_not_there_is_not_left_out_quietly(sample: Judged) -> None:
    with pytest.raises(ValueError, match="no reference picture"):
        rubric("sics").requests(replace(sample, reference=None))


# --- identity ------------------------------------------------------------------------------------


def keys(its: Rubric, sample: Judged) -> list[str]:
    return [request.key({"model": "m"}) for request in its.requests(sample)]


@pytest.mark.parametrize("name", JUDGED)
def test_what_changes_a_request_changes_its_key(
    name: str, sample: Judged, picture: Callable[..., Image.Image]
) -> None:
    """VLM-11."""
    its = rubric(name)
    before = keys(its, sample)
    assert before == keys(rubric(name), replace(sample, sample_id="other", generator="other"))
    assert sample.image
    one_pixel = sample.image.copy()
    red, *others = one_pixel.getpixel((5, 5))  # type: ignore[misc]
    one_pixel.putpixel((5, 5), (red ^ 1, *others))
    params = its.params.model_dump(mode="json")
    one_letter = json.loads(json.dumps(params).replace(" the ", " thy "))
    budget = (
        {"max_tokens": params["max_tokens"] + 1}
        if "max_tokens" in params
        else {"calls": [{**c, "max_tokens": c["max_tokens"] + 1} for c in params["calls"]]}
    )
    for changed in (
        keys(its, replace(sample, image=one_pixel)),
        keys(rubric(name, picture={"max_side": 32}), sample),
        keys(rubric(name, picture={"format": "jpeg"}), sample),
        keys(rubric(name, **one_letter), sample),
        keys(rubric(name, **budget), sample),
    ):
        assert len(changed) == len(before) and not set(changed) & set(before)
    assert [r.key({"model": "n"}) for r in its.requests(sample)] != before


# --- faults in cards -----------------------------------------------------------------------------

ASK = {"name": "following", "text": "t", "scale": [0, 10], "dimension": "following"}
CALL = {"see": ["generated"], "user": "{prompt}", "asks": [ASK]}


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"calls": [{**CALL, "user": "{promt}"}]}, r"unknown \{promt\}"),
        ({"calls": [CALL, CALL]}, "same name"),
        ({"calls": [{**CALL, "asks": [{**ASK, "scale": [4, 0]}]}]}, "lowest"),
        ({"calls": [{**CALL, "asks": [{**ASK, "scale": [0, 4, 10]}]}]}, "2 items"),
        ({"calls": [{**CALL, "asks": [{**ASK, "dimension": "beauty"}]}]}, "preservation"),
        ({"calls": [{**CALL, "see": []}]}, "at least 1"),
        ({"calls": []}, "at least 1"),
    ],
)
def test_faults_in_a_card_of_scores(params: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        rubric("viescore", **params)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"routing": "loose"}, "strict"),
        ({"words": {"image_only": "x"}}, "each of"),
        ({"opening": "About {prompt}"}, "withhold"),
        ({"prompt": "About it"}, r"does not say \{prompt\}"),
        ({"prompt": "{prompt} {image}"}, r"unknown \{image\}"),
    ],
)
def test_faults_in_a_card_of_units(params: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        rubric("ufo", **params)
