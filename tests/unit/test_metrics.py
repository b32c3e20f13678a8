"""Metrics: golden values, and failures that must never become numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from subjectbench import cards
from subjectbench.cards import MetricCard
from subjectbench.config import load_study
from subjectbench.encoders.base import as_vector
from subjectbench.errors import InputError
from subjectbench.metrics.base import Item, Result, Vector
from subjectbench.metrics.cosine import PLUGIN as Cosine
from subjectbench.metrics.cosine import cosine
from subjectbench.metrics.cosine_text import PLUGIN as CosineText
from subjectbench.metrics.imported import PLUGIN as Imported
from subjectbench.plan import make_plan
from subjectbench.stages import embed
from subjectbench.vocabulary import Status

CARD = MetricCard(title="M", plugin="x", about="x", scale="cosine", range=(-1, 1))


def vector(*values: float) -> Vector:
    return Vector(Status.OK, np.array(values, np.float32))


def item(image: Vector | None, *references: Vector, text: Vector | None = None) -> Item:
    return Item("model", "c1-s0", "c1", image=image, text=text, references=references)


def score(one: Item, plugin: Any = Cosine, **params: Any) -> Result:
    (result,) = plugin(plugin.Params(**params), CARD, Path()).score([one])
    return result


@pytest.mark.parametrize(
    ("a", "b", "value"),
    [
        ((3, 4), (4, 3), 0.96),
        ((1, 0), (0, 1), 0.0),
        ((1, 2, 3), (-2, -4, -6), -1.0),
        ((1e-30, 0), (1e30, 0), 1.0),
        ((0.1, 0.2, 0.3), (0.1, 0.2, 0.3), 1.0),
    ],
)
def test_cosine_golden_values(a: tuple[float], b: tuple[float], value: float) -> None:
    result = score(item(vector(*a), vector(*b)))
    assert (result.status, result.n_raw) == (Status.OK, 1)
    assert result.value == pytest.approx(value, abs=1e-7)
    assert -1.0 <= float(result.value or 0) <= 1.0


def test_the_mean_of_cosines_not_the_cosine_with_the_mean() -> None:
    """CLIP-11: 0.5, not 0.7071."""
    result = score(item(vector(1, 0), vector(1, 0), vector(0, 1)))
    assert result.value == pytest.approx(0.5) and result.n_raw == 2


@pytest.mark.parametrize(
    "bad", [(0, 0), (float("inf"), 1), (float("nan"), 1), (-float("inf"), 0)], ids=str
)
def test_zero_and_non_finite_vectors_are_failures(bad: tuple[float, float]) -> None:
    """CLIP-14: neither NaN nor the 0 that F.normalize and nan_to_num would give."""
    for one in (item(vector(*bad), vector(1, 0)), item(vector(1, 0), vector(1, 0), vector(*bad))):
        result = score(one)
        assert (result.status, result.value) == (Status.NON_FINITE, None)
    assert cosine(np.array(bad, np.float32), np.ones(2, np.float32)) is None


def test_only_the_bad_embedding_of_a_batch_fails() -> None:
    """CLIP-14: its neighbours keep their vectors."""
    vectors = np.ones((4, 3), np.float32)
    vectors[1, 2], vectors[3] = np.inf, 0
    found = [(v.status.value, v.values is None) for v in map(as_vector, vectors)]
    assert found == [("ok", False), ("non_finite", True)] * 2


def test_embeddings_survive_the_file(tmp_path: Path) -> None:
    values = np.array([0.1, -2], np.float32)
    rows = [("2", as_vector(values, cut=3)), ("007", Vector(Status.TRUNCATED))]
    assert embed._write(rows, tmp_path / "e.parquet") == {"ok": 1, "truncated": 1}
    again = embed.read(tmp_path / "e.parquet")
    assert list(again) == ["007", "2"]
    assert again["007"] == Vector(Status.TRUNCATED, None)
    assert again["2"].values is not None
    assert again["2"].values.tobytes() == values.tobytes() and again["2"].details == {"cut": 3}


def test_a_missing_or_unread_side_gives_its_reason() -> None:
    assert score(item(vector(1, 0))) == Result(Status.MISSING)
    assert score(item(None, vector(1, 0))) == Result(Status.MISSING)
    unread = Vector(Status.TRUNCATED)
    assert score(item(vector(1, 0), unread)).status is Status.TRUNCATED
    assert score(item(vector(1, 0), vector(1, 0), unread)).value is None


def test_the_scale_is_named_and_negative_values_are_kept() -> None:
    """CLIP-08: raw by default; a scale is a parameter, so it has another key."""
    one = item(vector(1, 0), vector(-0.1, 0.99498744))
    assert score(one).value == pytest.approx(-0.1)
    assert score(one, scale=100.0).value == pytest.approx(-10)
    for card in (n for n in cards.names("metric") if "clip" in n):
        assert cards.load("metric", card).scale, card


def planned(metric: Any, **study: Any) -> Any:
    base = {"study": "s", "benchmark": "miniworld", "generators": ["noise"], "metrics": [metric]}
    return make_plan(load_study(base | study))


def test_another_scale_is_another_metric() -> None:
    """CLIP-08: tables refuse to join scores of different keys (test_tables.test_refusals)."""
    keys = set()
    for params in ({}, {"scale": 1.0}, {"scale": 100.0}, {"scale": 2.5}):
        (one,) = planned({"card": "mini_clip_i", "params": params}).of_kind("score")
        keys.add(one.job["metric_key"])
    assert len(keys) == 3


def test_no_model_has_a_say_in_the_text_that_it_is_scored_by() -> None:
    """CLIP-11: prompts are embedded once per benchmark, so no rare token can enter."""
    plan = planned("mini_clip_t", generators=["noise", "mini_diffusion"])
    (embedded,) = plan.of_kind("embed_cases")
    assert list(embedded.upstream) == ["benchmark"]
    for one in plan.of_kind("score"):
        assert one.upstream["case_embeddings"] == embedded.key


def test_text_metric_compares_with_the_prompt() -> None:
    """CLIP-11: with the case's own, which no model's rare token ever enters."""
    one = item(vector(3, 4), vector(1, 0), text=vector(4, 3))
    assert score(one, CosineText).value == pytest.approx(0.96)
    assert score(item(vector(3, 4), vector(1, 0)), CosineText).status is Status.MISSING
    assert CosineText.needs == {"image", "text"} and Cosine.needs == {"image", "reference"}


# --- imported scores -----------------------------------------------------------------------------


@pytest.fixture
def imported(tmp_path: Path) -> Any:
    (tmp_path / "model.json").write_text(
        '{"c1.jpg": {"A": 0.5, "B": 1}, "c2.jpg": {"A": NaN, "B": true}, "c3.jpg": {"A": "0.5"},'
        ' "c4.jpg": {"A": null}, "c5.jpg": {"A": -Infinity}, "c6.jpg": null, "c7.jpg": 3}'
    )

    def make(field: str, folder: str = ".", **params: Any) -> Any:
        return Imported(Imported.Params(folder=folder, field=field, **params), CARD, tmp_path)

    return make


@pytest.mark.parametrize(
    ("case", "field", "status", "value"),
    [
        ("c1", "A", Status.OK, 0.5),
        ("c1", "B", Status.OK, 1.0),
        ("c2", "A", Status.UNPARSABLE, None),
        ("c2", "B", Status.UNPARSABLE, None),
        ("c3", "A", Status.UNPARSABLE, None),
        ("c3", "B", Status.MISSING, None),
        ("c4", "A", Status.MISSING, None),
        ("c5", "A", Status.UNPARSABLE, None),
        ("c6", "A", Status.MISSING, None),
        ("c7", "A", Status.UNPARSABLE, None),
        ("c99", "A", Status.MISSING, None),
    ],
)
def test_imported_values(
    imported: Any, case: str, field: str, status: Status, value: float | None
) -> None:
    (result,) = imported(field).score([Item("model", f"{case}-s0", case)])
    assert (result.status, result.value) == (status, value)


def test_imported_faults_name_file_and_mend(imported: Any, tmp_path: Path) -> None:
    imported("A").check(["model"])
    with pytest.raises(InputError, match=r"(?s)model\.json: no entry has 'AA'.*did you mean 'A'"):
        imported("AA").check(["model"])
    with pytest.raises(InputError, match=r"(?s)modle\.json: no such file.*did you mean 'model'"):
        imported("A").check(["modle"])
    with pytest.raises(InputError, match=r"nowhere: no such folder"):
        imported("A", folder="nowhere").sources()
    for text, fault in (("{", "not UTF-8 JSON"), ("[]", "expected an object")):
        (tmp_path / "model.json").write_text(text)
        with pytest.raises(InputError, match=rf"model\.json: {fault}"):
            imported("A").check(["model"])
