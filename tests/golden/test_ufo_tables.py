"""UFO's printed tables through our functions: what they mean, and what they cannot mean."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from subjectbench import cells, records, tables

Shared = Callable[[str], Path]

CASES = dict(zip(records.PARADIGMS, (119, 211, 181, 149)))
"""Cases per paradigm of UFO-Bench, solved from Table 1."""

PRINTED = dict(zip(records.PARADIGMS, ("non_editing", "local", "global", "multi_dim")))
"""Paradigm to column of the printed tables."""


def printed(shared: Shared, name: str) -> list[dict[str, str]]:
    with shared(f"published/{name}").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_totals_of_table_1_are_means_over_cases(shared: Shared) -> None:
    models = printed(shared, "ufo_table1_models.csv")
    rows: list[dict[str, Any]] = []
    for model in models:
        for paradigm, n in CASES.items():
            # Four samples per case around the printed mean, which is all that is known.
            for i in range(n):
                for r, offset in enumerate((-0.03, -0.01, 0.01, 0.03)):
                    row = {"generator": model["model"], "sample_id": f"{paradigm}-{i}-s{r}"}
                    row |= {"case_id": f"{paradigm}-{i}", "subject_id": f"s{i % 86}"}
                    row |= {"paradigm": paradigm, "metric": "ufo", "key": "k", "status": "ok"}
                    rows.append(row | {"value": float(model[PRINTED[paradigm]]) + offset})
    board = tables.models_by_paradigm(pd.DataFrame(rows), "ufo", draws=50)
    assert board["generator"].tolist() == [m["model"] for m in models]
    for (_, row), model in zip(board.iterrows(), models):
        for paradigm, column in PRINTED.items():
            assert row[f"{paradigm}_mean"] == pytest.approx(float(model[column]), abs=1e-12)
            assert row[f"{paradigm}_n"] == CASES[paradigm]
        assert row["total_mean"] == pytest.approx(float(model["total"]), abs=5e-5)
        macro = np.mean([float(model[c]) for c in PRINTED.values()])
        assert row["mean_of_paradigms"] == pytest.approx(macro, abs=1e-12)
        assert (row["total_n"], row["total_coverage"]) == (660, 1.0)
    # The mean of paradigms is not what is printed.
    total = [float(m["total"]) for m in models]
    assert np.abs(board["mean_of_paradigms"] - total).max() > 5e-3
    ranks = pd.Series(total).rank(ascending=False).astype(int)
    assert board["rank"].tolist() == ranks.tolist()


def test_headline_gain_of_table_2_is_relative_to_the_best_baseline(shared: Shared) -> None:
    table = printed(shared, "ufo_table2_human_alignment.csv")
    ours, baselines = table[-1], table[:-1]
    gains = {}
    for column in (*PRINTED.values(), "total"):
        best = max(float(row[column]) for row in baselines)
        gains[column] = (float(ours[column]) - best) / best
    assert gains["total"] == pytest.approx(0.1526, abs=5e-5)
    columns = [gains[c] for c in PRINTED.values()]
    assert np.mean(columns) == pytest.approx(0.1010, abs=5e-4)  # "on average" is not this


def test_totals_of_table_2_are_no_weighting_of_its_columns(shared: Shared) -> None:
    """So Table 2 can be recomputed from cases only, never from its columns."""
    from scipy.optimize import nnls

    table = printed(shared, "ufo_table2_human_alignment.csv")
    columns = np.array([[float(row[c]) for c in PRINTED.values()] for row in table])
    total = np.array([float(row["total"]) for row in table])
    weights, _ = nnls(columns, total)
    assert np.abs(columns @ weights - total).max() > 0.02
    micro = np.array(list(CASES.values())) / 660
    assert np.abs(columns @ micro - total).max() > 0.02


def test_ablation_without_units_is_viescore(shared: Shared) -> None:
    ablation = {r["setting"]: r["correlation"] for r in printed(shared, "ufo_table3_ablation.csv")}
    table = {r["metric"]: r["total"] for r in printed(shared, "ufo_table2_human_alignment.csv")}
    assert ablation["UFO w/o AEU decomposition"] == table["VIEScore SC"]
    assert cells.TOTAL == "total"
