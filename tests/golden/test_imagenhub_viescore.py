"""VIEScore of the real GPT-4o answers against three raters, computed without the library.

An independent path (json, csv, scipy) to compare the library's with, and the numbers that
VIEScore's own code prints for the same files.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from subjectbench import cards, tables
from subjectbench.config import Use
from subjectbench.metrics.base import Answer, Item
from subjectbench.rubrics.base import Judged
from subjectbench.vocabulary import Status
from tests.golden.test_imagenhub_agreement import MODELS, human

PAIRS = {"semantic": "viescore_sc", "quality": "viescore_pq", "overall": "viescore_o"}
ASPECTS = tuple(PAIRS)

Triple = tuple[float, float, float]


@pytest.fixture(scope="module")
def data(shared: Callable[[str], Path]) -> Path:
    shared("imagenhub/judge/gpt4o_0shot")
    return shared("imagenhub")


# --- without the library -------------------------------------------------------------------------


def judged(data: Path, model: str, guesses: bool) -> dict[str, dict[str, float]]:
    """Per aspect and picture: minimum / 10; overall = sqrt(SC * PQ). ``guesses``: kept or not."""
    low: dict[str, dict[str, float]] = {}
    for aspect, name in (("semantic", "SC"), ("quality", "PQ")):
        entries = json.loads((data / f"judge/gpt4o_0shot/{model}/{name}.json").read_text())
        low[aspect] = {
            uid: min(entry["score"]) / 10
            for uid, entry in entries.items()
            if guesses or "guess_if_cannot_parse" not in entry["reasoning"]
        }
    both = low["semantic"].keys() & low["quality"].keys()
    low["overall"] = {u: math.sqrt(low["semantic"][u] * low["quality"][u]) for u in both}
    return low


def rhos(data: Path, aspect: str, guesses: bool, decimals: int | None) -> list[float]:
    """Spearman's rho of each model, with the mean over raters of each rater's value."""
    people, found = human(data), []
    for model in MODELS:
        values = judged(data, model, guesses)[aspect]
        x = np.array([values[u] for u in values])
        y = np.array([np.mean(people[model, u, aspect]) for u in values])
        if decimals is not None:
            x, y = np.round(x, decimals), np.round(y, decimals)
        found.append(float(stats.spearmanr(x, y).statistic))
    return found


def means(found: list[float]) -> Triple:
    """Plain mean, Fisher's mean, and what VIEScore's code calls Fisher's."""
    plain = float(np.mean(found))
    return plain, float(np.tanh(np.mean(np.arctanh(found)))), math.tanh(plain)


@pytest.mark.parametrize(
    ("aspect", "correct", "printed"),
    [
        ("semantic", 0.5490, 0.4806),
        ("quality", 0.2639, 0.2576),
        ("overall", 0.5226, 0.4638),
    ],
)
def test_the_published_numbers(data: Path, aspect: str, correct: float, printed: float) -> None:
    """VIEScore keeps the guess, and ranks means that differ in their last bit as they come."""
    _, fisher, as_printed = means(rhos(data, aspect, guesses=True, decimals=None))
    assert (round(fisher, 4), round(as_printed, 4)) == (correct, printed)


# --- the library on the same files ---------------------------------------------------------------


@pytest.fixture(scope="module")
def table(data: Path) -> pd.DataFrame:
    card = cards.load("rubric", "imagenhub_viescore")
    use = Use(card="imagenhub_viescore", params={"folder": str(data / "judge/gpt4o_0shot")})
    rubric = cards.plugin("rubric", card, "")(cards.params("rubric", use, ""), card, Path())
    rubric.check(list(MODELS))
    items = []
    for model in MODELS:
        for number in range(150):
            case = f"sample_{number}"
            answers = {
                s.ask: Answer(Status.UNPARSABLE if s.value is None else Status.OK, s.value)
                for s in rubric.said(Judged(model, f"{case}-s0", case, "", ""))
            }
            items.append(Item(model, f"{case}-s0", case, answers=answers))
    rows = []
    for name in PAIRS.values():
        metric_card = cards.load("metric", name)
        params = cards.params("metric", Use(card=name), "")
        metric = cards.plugin("metric", metric_card, "")(params, metric_card, Path())
        rows += [
            {
                "generator": item.generator,
                "sample_id": item.sample_id,
                "subject_id": item.case_id,
                "metric": name,
                "status": result.status.value,
                "value": result.value,
            }
            for item, result in zip(items, metric.score(items), strict=True)
        ]
    ratings = [
        {
            "generator": model,
            "sample_id": uid.replace(".jpg", "-s0"),
            "dimension": aspect,
            "rater": f"rater{number}",
            "value": value,
        }
        for (model, uid, aspect), values in human(data).items()
        for number, value in enumerate(values, 1)
    ]
    return tables.viescore_agreement(
        pd.DataFrame(rows).assign(key="k"),
        pd.DataFrame(ratings).assign(status="ok"),
        {aspect: [name] for aspect, name in PAIRS.items()},
    ).set_index(["dimension", "scored_by"])


@pytest.mark.parametrize(("aspect", "metric"), PAIRS.items())
def test_the_library_agrees(data: Path, table: pd.DataFrame, aspect: str, metric: str) -> None:
    expected = rhos(data, aspect, guesses=False, decimals=9)
    row = table.loc[(aspect, metric)]
    assert row[list(MODELS)].tolist() == pytest.approx(expected, abs=1e-9)
    columns = ["spearman_mean", "spearman_fisher", "spearman_as_in_reference"]
    assert row[columns].tolist() == pytest.approx(means(expected), abs=1e-9)
    n = sum(len(judged(data, model, guesses=False)[aspect]) for model in MODELS)
    assert n == (600 if aspect == "quality" else 599)  # the guess was about SC of one picture
    assert (row["n"], row["coverage"]) == (n, pytest.approx(n / 600))


@pytest.mark.parametrize(
    ("aspect", "numbers"),
    [
        ("semantic", (0.5244, 0.5495, 0.4811)),
        ("quality", (0.2635, 0.2639, 0.2576)),
        ("overall", (0.5024, 0.5229, 0.4640)),
    ],
)
def test_what_leaving_the_guess_out_changes(
    table: pd.DataFrame, aspect: str, numbers: Triple
) -> None:
    row = table.loc[(aspect, PAIRS[aspect])]
    columns = ["spearman_mean", "spearman_fisher", "spearman_as_in_reference"]
    assert tuple(round(v, 4) for v in row[columns]) == numbers


@pytest.mark.parametrize("aspect", ASPECTS)
def test_the_ceiling_is_each_rater_against_the_others(
    data: Path, table: pd.DataFrame, aspect: str
) -> None:
    people = human(data)
    for number in range(3):
        expected = []
        for model in MODELS:
            values = np.array([v for (m, _, a), v in people.items() if (m, a) == (model, aspect)])
            others = np.round(np.delete(values, number, axis=1).mean(axis=1), 9)
            expected.append(float(stats.spearmanr(values[:, number], others).statistic))
        row = table.loc[(aspect, f"rater{number + 1}")]
        assert row[list(MODELS)].tolist() == pytest.approx(expected, abs=1e-9)
        assert row["spearman_fisher"] == pytest.approx(means(expected)[1], abs=1e-9)
        assert (row["n"], row["coverage"], row["against"]) == (600, 1.0, "mean of the other raters")
