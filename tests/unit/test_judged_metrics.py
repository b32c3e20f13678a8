"""Scores from judges' answers: golden values, and failures that must never become numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subjectbench import cards
from subjectbench.cards import MetricCard
from subjectbench.config import Use
from subjectbench.errors import InputError
from subjectbench.metrics.base import Answer, Item, Result, Vector
from subjectbench.metrics.ufo import PLUGIN as Ufo
from subjectbench.rubrics.base import Judged, Rubric
from subjectbench.units import Unit
from subjectbench.vocabulary import LEVELS, RELEVANCES, Status

OK = Status.OK


def answers(given: Mapping[str, float | Status]) -> dict[str, Answer]:
    return {
        name: Answer(value) if isinstance(value, Status) else Answer(OK, float(value))
        for name, value in given.items()
    }


def by_card(name: str, given: Mapping[str, float | Status], **params: Any) -> Result:
    """Score one sample by a card of the repository."""
    card = cards.load("metric", name)
    checked = cards.params("metric", Use(card=name, params=params), name)
    metric = cards.plugin("metric", card, name)(checked, card, Path())
    (result,) = metric.score([Item("model", "c1-s0", "c1", answers=answers(given))])
    return result


# --- one formula for rubrics of scores -----------------------------------------------------------

VIE = {"following": 9, "preservation": 4, "naturalness": 7, "artifacts": 6}


@pytest.mark.parametrize(
    ("card", "given", "value"),
    [
        ("viescore_sc", VIE, 0.4),
        ("viescore_pq", VIE, 0.6),
        ("viescore_o", VIE, 0.4898979),
        ("viescore_o", dict.fromkeys(VIE, 10), 1.0),
        ("viescore_o", {**VIE, "preservation": 0}, 0.0),
        ("dreambench_cp", {"preservation": 3, "following": 0}, 0.75),
        ("dreambench_pf", {"preservation": 0, "following": 1}, 0.25),
        ("dreambench_cp_pf", {"preservation": 3, "following": 2}, 0.375),
        ("sics", {"preservation": 4}, 0.8),
        ("ufo_holistic", {"alignment": 7}, 0.7),
    ],
)
def test_golden_values(card: str, given: dict[str, float], value: float) -> None:
    result = by_card(card, given)
    assert result.status == OK
    assert result.value == pytest.approx(value, abs=1e-7)
    assert result.details["answers"].items() <= given.items()
    assert result.n_raw == len(result.details["answers"])


def test_dreambench_mean_over_pictures() -> None:
    """DreamBench++: scores 4, 2 and 3 of 4 are 0.75 together."""
    values = [by_card("dreambench_cp", {"preservation": s}).value or 0 for s in (4, 2, 3)]
    assert np.mean(values) == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("without", "status"),
    [
        ({"preservation": Status.UNPARSABLE}, Status.UNPARSABLE),
        ({"preservation": Status.REFUSED, "artifacts": Status.UNPARSABLE}, Status.REFUSED),
        ({"following": Status.REFUSED, "artifacts": Status.FAILED}, Status.FAILED),
        ({"following": Status.EXTERNAL}, Status.EXTERNAL),
    ],
)
def test_a_missing_answer_is_no_number(without: dict[str, Status], status: Status) -> None:
    """VLM-08: neither padded with 0 nor left out of the minimum; what was answered is kept."""
    result = by_card("viescore_o", {**VIE, **without})
    assert (result.status, result.value, result.n_raw) == (status, None, 4 - len(without))
    assert result.details["without"] == without
    assert result.details["answers"] == {n: v for n, v in VIE.items() if n not in without}


def test_an_answer_nobody_gave_is_missing() -> None:
    result = by_card("viescore_sc", {"following": 8})
    assert (result.status, result.value) == (Status.MISSING, None)
    assert by_card("viescore_pq", VIE | {"following": Status.REFUSED}).status == OK  # not asked for


@given(st.lists(st.integers(0, 10), min_size=4, max_size=4))
def test_viescore_lies_between_its_parts(scores: list[int]) -> None:
    given = dict(zip(VIE, scores))
    sc, pq, o = (by_card(f"viescore_{n}", given).value for n in ("sc", "pq", "o"))
    assert sc is not None and pq is not None and o is not None
    assert min(sc, pq) - 1e-12 <= o <= max(sc, pq) + 1e-12
    assert o == pytest.approx(math.sqrt(min(scores[:2]) * min(scores[2:])) / 10)


def test_the_mean_of_answers_and_of_groups() -> None:
    groups = [["following", "preservation"], ["naturalness"]]
    result = by_card("viescore_sc", VIE, groups=groups, inner="mean", outer="mean")
    assert result.value == pytest.approx((0.65 + 0.7) / 2)


def test_a_formula_without_questions_is_refused() -> None:
    empty: list[list[list[str]]] = [[], [[]], [["following"], []]]
    for groups in empty:
        with pytest.raises(InputError, match="groups"):
            by_card("viescore_sc", VIE, groups=groups)


def test_every_card_names_the_top_of_its_scale() -> None:
    """The best answers give 1, the worst 0."""
    for name in cards.names("metric"):
        card = cards.load("metric", name)
        if card.plugin == "judged":
            asks = [ask for group in card.params["groups"] for ask in group]
            top = card.params["divide_by"]
            assert by_card(name, dict.fromkeys(asks, top)).value == card.range[1] == 1, name
            assert by_card(name, dict.fromkeys(asks, 0)).value == card.range[0] == 0, name


# --- UFO -----------------------------------------------------------------------------------------


def unit(name: str, weight: int, level: str = "part", tool: str = "vqa", **more: Any) -> Unit:
    more = {"relevance": "image_only", "question": "?"} | more
    return Unit(level=level, name=name, weight=weight, tool=tool, **more)  # type: ignore[arg-type]


def face_vector(cosine: float | Status) -> Vector:
    """A unit vector with this cosine to (1, 0)."""
    if isinstance(cosine, Status):
        return Vector(cosine)
    return Vector(OK, np.array([cosine, math.sqrt(1 - cosine**2)]))


def ufo(
    units: Sequence[Unit],
    values: Sequence[float | Status],
    cosine: float | Status | None = None,
    reference: Status = OK,
    encoder: str | None = "faces",
    **params: Any,
) -> Result:
    card = MetricCard(
        title="U", plugin="ufo", about="u", encoder=encoder, scale="s", range=(0.0, 1.0)
    )
    metric = Ufo(Ufo.Params(**params), card, Path())
    given = answers({u.unit_id: v for u, v in zip(units, values, strict=True)})
    image = None if cosine is None else face_vector(cosine)
    other = Vector(OK, np.array([1.0, 0.0])) if reference == OK else Vector(reference)
    item = Item("m", "c-s0", "c", image, references=(other,), answers=given, units=tuple(units))
    (result,) = metric.score([item])
    json.dumps(result.details)
    return result


FOUR = [unit(n, w) for n, w in (("a", 5), ("b", 4), ("c", 1), ("d", 2))]
FACE = [unit("face", 5, tool="face"), unit("bag", 3)]


def test_weighted_mean() -> None:
    """UFO, equation (3): (5 + 0 + 1 + 0.5) / 12."""
    result = ufo(FOUR, [1, 0, 1, 0.25])
    assert result.value == pytest.approx(6.5 / 12, abs=1e-12)
    assert (result.status, result.n_raw) == (OK, 4)
    assert result.details["policy"] == {}
    assert result.details["units"][3] == {
        "unit": "part/d",
        "name": "d",
        "level": "part",
        "relevance": "image_only",
        "weight": 2,
        "value": 0.25,
        "source": "vqa",
        "status": "ok",
    }


def test_uniform_weights_need_the_stored_answers_only() -> None:
    stored = ufo(FOUR, [1, 0, 1, 0.25]).details["units"]
    again = ufo(FOUR, [1, 0, 1, 0.25], weights="uniform")
    assert again.value == pytest.approx(2.25 / 4, abs=1e-12)
    assert again.value == pytest.approx(np.mean([u["value"] for u in stored]), abs=1e-12)
    assert {u["weight"] for u in again.details["units"]} == {1}


def test_graded_answers_may_be_thresholded() -> None:
    values: list[float | Status] = [0.5, 0.49, 1, 0]
    assert ufo(FOUR, values).value == pytest.approx((2.5 + 1.96 + 1) / 12)
    assert ufo(FOUR, values, graded="threshold").value == pytest.approx((5 + 1) / 12)


def test_levels_that_do_not_count_are_not_there() -> None:
    units = [unit("a", 5, level="global_attribute"), unit("b", 4), unit("rain", 2, level="setting")]
    values: list[float | Status] = [1, 0, 0.5]
    reference = ufo(units, values, levels=["global_attribute", "part"])
    assert reference.value == pytest.approx(5 / 9)
    assert [u["level"] for u in reference.details["units"]] == ["global_attribute", "part"]
    assert ufo(units, [1, 0, Status.REFUSED], levels=["part"]).value == 0
    none = ufo(units[:2], values[:2], levels=["setting"])
    assert (none.status, none.value) == (Status.NOT_APPLICABLE, None)


@pytest.mark.parametrize(
    ("missing", "status", "value", "n"),
    [
        ("image", Status.REFUSED, None, 2),
        ("unit", OK, 5 / 6, 2),
        ("lower", OK, 5 / 12, 4),
        ("upper", OK, 11 / 12, 4),
    ],
)
def test_units_without_answer(missing: str, status: Status, value: float | None, n: int) -> None:
    result = ufo(FOUR, [1, Status.REFUSED, 0, Status.UNPARSABLE], missing=missing)
    assert (result.status, result.n_raw) == (status, n)
    assert result.value == (None if value is None else pytest.approx(value))
    assert result.details["policy"] == {"missing": missing}
    statuses = [u["status"] for u in result.details["units"]]
    assert statuses == ["ok", "refused", "ok", "unparsable"]


def test_nothing_answered_is_no_number() -> None:
    for missing in ("image", "unit"):
        result = ufo(FOUR[:2], [Status.FAILED, Status.REFUSED], missing=missing)
        assert (result.status, result.value, result.n_raw) == (Status.FAILED, None, 0)
    assert ufo([], []).status == Status.UNPARSABLE and ufo([], []).value is None


def test_a_unit_nobody_asked_about_is_missing() -> None:
    metric = Ufo(Ufo.Params(face="vqa"), cards.load("metric", "ufo_no_face"), Path())
    (result,) = metric.score([Item("m", "c-s0", "c", units=tuple(FOUR))])
    assert (result.status, result.value) == (Status.MISSING, None)


def one_face(result: Result) -> tuple[float | None, str, str]:
    found = result.details["units"][0]
    return found["value"], found["source"], found["status"]


@pytest.mark.parametrize(
    ("cosine", "params", "value"),
    [
        (0.8146, {}, 0.8146),
        (0.1509, {}, 0.1509),
        (-0.3, {}, 0.0),
        (-0.2, {"face_map": "half"}, 0.4),
        (-0.2, {"face_map": "cosine", "face_low": -1.0}, 0.4),
        (0.5, {"face_map": "threshold"}, 1.0),
        (0.49, {"face_map": "threshold"}, 0.0),
        (0.49, {"face_map": "threshold", "face_threshold": 0.3}, 1.0),
        (0.9, {"face_low": 0.6, "face_high": 1.0}, 0.75),
        (0.5, {"face_low": 0.6, "face_high": 1.0}, 0.0),
        (0.95, {"face_low": 0.1, "face_high": 0.9}, 1.0),
    ],
)
def test_the_declared_map_of_a_face(cosine: float, params: dict[str, Any], value: float) -> None:
    """UFO, equation (2), in one of its four published readings, and never the judge's answer."""
    result = ufo(FACE, [0, 1], cosine, **params)
    assert one_face(result) == (pytest.approx(value, abs=1e-7), "face", "ok")
    assert result.value == pytest.approx((5 * value + 3) / 8, abs=1e-7)


@pytest.mark.parametrize(
    ("units", "params"),
    [
        (FACE, {"face": "vqa"}),
        ([unit("face", 5), unit("bag", 3)], {}),
        ([unit("face", 5, tool="face", relevance="text_only"), unit("bag", 3)], {}),
    ],
    ids=["without tool", "a face that is no person's", "a face only the prompt describes"],
)
def test_other_faces_are_the_judges(units: list[Unit], params: dict[str, Any]) -> None:
    assert one_face(ufo(units, [1, 0], 0.2, **params)) == (1, "vqa", "ok")


@pytest.mark.parametrize(
    ("cosine", "reference", "params", "expected", "value", "policy"),
    [
        (Status.NO_FACE, OK, {}, (0, "face", "no_face"), 3 / 8, {"no_face": "zero"}),
        (
            Status.NO_FACE,
            OK,
            {"no_face": "vqa"},
            (1, "vqa", "no_face"),
            1,
            {"no_face": "vqa"},
        ),
        (
            Status.NO_FACE,
            OK,
            {"no_face": "exclude"},
            (None, "face", "no_face"),
            1,
            {"no_face": "exclude"},
        ),
        (
            0.3,
            Status.NO_FACE,
            {},
            (1, "vqa", "no_face_reference"),
            1,
            {"no_face_reference": "vqa"},
        ),
        # Without a face to compare with, a picture without a face has lost nothing.
        (
            Status.NO_FACE,
            Status.NO_FACE,
            {},
            (1, "vqa", "no_face_reference"),
            1,
            {"no_face_reference": "vqa"},
        ),
        (
            0.3,
            Status.NO_FACE,
            {"no_face_reference": "exclude"},
            (None, "face", "no_face_reference"),
            1,
            {"no_face_reference": "exclude"},
        ),
    ],
)
def test_no_face_in_the_picture_or_in_the_reference(
    cosine: float | Status,
    reference: Status,
    params: dict[str, Any],
    expected: tuple[float | None, str, str],
    value: float,
    policy: dict[str, str],
) -> None:
    """Two statuses, each with a declared policy, and what was decided is told."""
    result = ufo(FACE, [1, 1], cosine, reference, **params)
    assert (result.status, one_face(result)) == (OK, expected)
    assert result.value == pytest.approx(value)
    assert result.details["policy"] == policy


def test_only_a_face_that_is_left_out() -> None:
    result = ufo(FACE[:1], [1], 0.3, Status.NO_FACE, no_face_reference="exclude")
    assert (result.status, result.value) == (Status.NO_FACE_REFERENCE, None)


@pytest.mark.parametrize(
    ("cosine", "reference", "status"),
    [
        (Status.NON_FINITE, OK, Status.NON_FINITE),
        (None, OK, Status.MISSING),
        (0.5, Status.BAD_REFERENCE, Status.BAD_REFERENCE),
    ],
)
def test_a_face_that_could_not_be_compared_is_a_failed_unit(
    cosine: float | Status | None, reference: Status, status: Status
) -> None:
    result = ufo(FACE, [1, 1], cosine, reference)
    assert (result.status, result.value) == (status, None)
    assert ufo(FACE, [1, 1], cosine, reference, missing="unit").value == 1
    assert ufo(FACE, [1, 1], cosine, reference, missing="lower").value == pytest.approx(3 / 8)


def test_the_judge_failed_too() -> None:
    given: list[float | Status] = [Status.REFUSED, 1]
    result = ufo(FACE, given, Status.NO_FACE, no_face="vqa")
    assert (result.status, result.value) == (Status.REFUSED, None)
    # Where the faces can be compared, the judge's answer is not needed.
    assert ufo(FACE, given, 0.5).status == OK


def test_a_zero_embedding_is_no_face_score() -> None:
    item = Item(
        "m",
        "c-s0",
        "c",
        image=Vector(OK, np.zeros(2)),
        references=(Vector(OK, np.ones(2)),),
        units=tuple(FACE[:1]),
    )
    (result,) = Ufo(Ufo.Params(), cards.load("metric", "ufo"), Path()).score([item])
    assert (result.status, result.value) == (Status.NON_FINITE, None)


def test_needs_follow_the_face_tool() -> None:
    embeddings = {"image", "reference"}
    for name in ("ufo", "ufo_uniform", "ufo_unrouted", "ufo_no_face"):
        card = cards.load("metric", name)
        metric = Ufo(cards.params("metric", Use(card=name), name), card, Path())
        assert {"answers", "units"} <= metric.needs
        assert (embeddings <= metric.needs) == bool(card.encoder) == (name != "ufo_no_face")
        metric.check(["m"])
    card = cards.load("metric", "ufo_no_face")
    with pytest.raises(InputError, match="encoder"):
        Ufo(Ufo.Params(), card, Path()).check(["m"])
    with pytest.raises(InputError, match="face_low must be below"):
        cards.params("metric", Use(card="ufo", params={"face_low": 1.0}), "ufo")


NAMES = st.lists(st.text("abcdef", min_size=1, max_size=4), min_size=1, max_size=8, unique=True)
SCORES = st.floats(0, 1) | st.sampled_from([Status.REFUSED, Status.UNPARSABLE, Status.FAILED])


@st.composite
def units_and_answers(
    draw: st.DrawFn, scores: st.SearchStrategy[float | Status] = SCORES, heaviest: int = 5
) -> tuple[list[Unit], list[float | Status]]:
    units = [
        unit(
            name,
            draw(st.integers(1, heaviest)),
            draw(st.sampled_from(LEVELS)),
            draw(st.sampled_from(["vqa", "face"])),
            relevance=draw(st.sampled_from(RELEVANCES)),
        )
        for name in draw(NAMES)
    ]
    return units, [draw(scores) for _ in units]


COSINES = st.floats(-1, 1) | st.sampled_from([Status.NO_FACE, Status.NON_FINITE])


@given(units_and_answers(), COSINES, st.sampled_from([OK, Status.NO_FACE]), st.booleans())
def test_bounds_bracket_whatever_was_not_answered(
    given: tuple[list[Unit], list[float | Status]],
    cosine: float | Status,
    reference: Status,
    yes: bool,
) -> None:
    units, values = given
    lower, upper = (ufo(units, values, cosine, reference, missing=m) for m in ("lower", "upper"))
    assert lower.value is not None and upper.value is not None
    assert 0 <= lower.value <= upper.value <= 1
    filled = [float(yes) if isinstance(v, Status) else v for v in values]
    real = ufo(units, filled, cosine, reference)
    if real.value is not None:
        assert lower.value <= real.value <= upper.value
    image = ufo(units, values, cosine, reference)
    assert (image.value is None) == (image.status != OK)
    if image.value is not None:
        assert lower.value == upper.value == image.value


@given(units_and_answers(st.floats(0, 1)), st.randoms(use_true_random=False), st.floats(-1, 1))
def test_the_order_of_units_changes_nothing(
    given: tuple[list[Unit], list[float | Status]], random: Any, cosine: float
) -> None:
    pairs = list(zip(*given))
    random.shuffle(pairs)
    again = ufo([u for u, _ in pairs], [v for _, v in pairs], cosine)
    assert again.value == ufo(*given, cosine).value  # to the last bit


@given(units_and_answers(st.floats(0, 1), heaviest=2), st.floats(-1, 1))
def test_scaling_all_weights_changes_nothing(
    given: tuple[list[Unit], list[float | Status]], cosine: float
) -> None:
    units, values = given
    heavier = [u.model_copy(update={"weight": 2 * u.weight}) for u in units]
    assert ufo(heavier, values, cosine).value == pytest.approx(
        ufo(units, values, cosine).value, abs=1e-12
    )


@given(units_and_answers(st.floats(0, 1)), st.floats(-1, 1))
def test_the_score_is_the_mean_that_the_details_show(
    given: tuple[list[Unit], list[float | Status]], cosine: float
) -> None:
    """Weights can be changed from the details alone."""
    result = ufo(*given, cosine)
    rows = result.details["units"]
    assert result.value == pytest.approx(
        np.average([r["value"] for r in rows], weights=[r["weight"] for r in rows]), abs=1e-12
    )
    uniform = ufo(*given, cosine, weights="uniform").value
    assert uniform == pytest.approx(np.mean([r["value"] for r in rows]), abs=1e-12)


# --- answers that were given elsewhere -----------------------------------------------------------

GOOD = {"score": [8, 3], "reasoning": "scene right, toy differs"}
Write = Callable[..., Rubric]


@pytest.fixture
def published(tmp_path: Path) -> Write:
    """``published(sc=..., pq=...)``: the rubric on files of one model, ``m``."""
    card = cards.load("rubric", "imagenhub_viescore")
    (tmp_path / "m").mkdir()

    def write(sc: Any = None, pq: Any = None, **params: Any) -> Rubric:
        for name, data in (("SC", sc), ("PQ", pq)):
            text = data if isinstance(data, str) else json.dumps(data or {"c1.jpg": GOOD})
            (tmp_path / "m" / f"{name}.json").write_text(text)
        use = Use(card="imagenhub_viescore", params={"folder": str(tmp_path), **params})
        plugin = cards.plugin("rubric", card, "")
        return plugin(cards.params("rubric", use, ""), card, Path())

    return write


def said(rubric: Rubric, case: str = "c1") -> dict[str, float | str | None]:
    """Value or fault by question."""
    found = rubric.said(Judged("m", f"{case}-s0", case, "", ""))
    assert all((s.value is None) == bool(s.fault) for s in found)
    return {s.ask: s.fault or s.value for s in found}


def test_published_answers_in_the_order_of_the_questions(published: Write) -> None:
    rubric = published(pq={"c1.jpg": {"score": [10, 0], "reasoning": "x"}})
    rubric.check(["m"])
    assert rubric.imported and not rubric.needs
    assert [p.name for p in rubric.sources()] == ["PQ.json", "SC.json"]
    assert said(rubric) == {"following": 8, "preservation": 3, "naturalness": 10, "artifacts": 0}
    texts = [s.text for s in rubric.said(Judged("m", "c1-s0", "c1", "", ""))]
    assert texts == ["scene right, toy differs", "", "x", ""]


@pytest.mark.parametrize(
    ("entry", "faults"),
    [
        ({"score": [4, 4], "reasoning": "guess_if_cannot_parse | "}, ("guessed", "guessed")),
        ({"score": [4], "reasoning": "guess_if_cannot_parse"}, ("guessed", "guessed")),
        ({"score": [8]}, ("schema", "schema")),
        ({"score": [8, 3, 1]}, ("schema", "schema")),
        ({"score": []}, ("schema", "schema")),
        ({"score": 8}, ("schema", "schema")),
        ({"reasoning": "sorry"}, ("no_score", "no_score")),
        (None, ("no_score", "no_score")),
        ([8, 3], ("no_score", "no_score")),
        ({"score": [11, -3]}, ("out_of_range", "out_of_range")),
        ({"score": ["8", 3]}, ("schema", 3)),
        ({"score": [True, None]}, ("schema", "schema")),
        ({"score": [7.5, 10.5]}, (7.5, "out_of_range")),
        ({"score": [0, 10], "reasoning": None}, (0, 10)),
    ],
    ids=str,
)
def test_what_is_no_answer_never_becomes_a_number(
    published: Write, entry: Any, faults: tuple[str | float, str | float]
) -> None:
    """VLM-08 and VIEScore's guesses: nothing drawn, nothing padded, nothing clipped."""
    rubric = published(sc={"c0.jpg": GOOD, "c1.jpg": entry})
    rubric.check(["m"])
    found = said(rubric)
    assert (found["following"], found["preservation"]) == faults
    assert (found["naturalness"], found["artifacts"]) == (8, 3)


def test_an_infinite_score_is_out_of_range(published: Write) -> None:
    found = said(published(sc='{"c1.jpg": {"score": [1e999, 3]}}'))
    assert (found["following"], found["preservation"]) == ("out_of_range", 3)


def test_a_sample_without_entry_has_no_answers(published: Write) -> None:
    rubric = published(pq={"c2.jpg": GOOD})
    assert set(said(rubric)) == {"following", "preservation"}
    assert said(rubric, "c3") == {} and said(rubric, "c") == {}


def test_faults_of_the_files_stop_the_study_before_any_work(
    published: Write, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=r"(?s)no such folder.*known: m"):
        published().check(["M"])
    with pytest.raises(InputError, match=r"SC.json: no entry has 'score'"):
        published(sc={"c1.jpg": {"scores": [1, 2]}}).check(["m"])
    with pytest.raises(InputError, match=r"PQ.json: is not an object"):
        published(pq="[1]").check(["m"])
    with pytest.raises(InputError, match=r"SC.json: NaN is not a JSON number"):
        published(sc='{"c1.jpg": {"score": [NaN, 1]}}').check(["m"])
    with pytest.raises(InputError, match=r"key 'c1.jpg' appears twice"):
        published(sc='{"c1.jpg": {"score": [1, 1]}, "c1.jpg": {"score": [2, 2]}}').check(["m"])
    rubric = published()
    (tmp_path / "m" / "PQ.json").unlink()
    with pytest.raises(InputError, match="no such file"):
        rubric.check(["m"])
