"""Metrics beside raters: the same averages for both, each named for what it is."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from subjectbench import tables
from subjectbench.errors import InputError


def world(raters: int = 3, items: int = 12) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Two models; the metric follows the truth closely, raters less so."""
    rng = np.random.default_rng(5)
    scores, ratings = [], []
    for generator in ("b", "a"):
        for item in range(items):
            truth = rng.normal()
            ids = {"generator": generator, "sample_id": f"c{item}-s0"}
            scores.append({**ids, "subject_id": f"c{item}", "value": truth + 0.1 * rng.normal()})
            ratings += [
                {**ids, "rater": f"r{r}", "value": round(truth + rng.normal(), 1)}
                for r in range(raters)
            ]
    return (
        pd.DataFrame(scores).assign(metric="m", key="k", status="ok"),
        pd.DataFrame(ratings).assign(dimension="overall", status="ok"),
    )


def test_one_row_per_metric_and_rater() -> None:
    scores, ratings = world()
    table = tables.viescore_agreement(scores, ratings, {"overall": ["m"]}, generators=["a", "b"])
    assert table["scored_by"].tolist() == ["m", "r0", "r1", "r2"]
    assert table["against"].tolist() == ["mean of raters"] + ["mean of the other raters"] * 3
    assert list(table.columns[3:5]) == ["a", "b"]
    for row in table.to_dict("records"):
        rho = [row["a"], row["b"]]
        assert row["spearman_mean"] == pytest.approx(np.mean(rho))
        assert row["spearman_fisher"] == pytest.approx(math.tanh(np.mean(np.arctanh(rho))))
        assert row["spearman_as_in_reference"] == pytest.approx(math.tanh(np.mean(rho)))
        assert (row["n"], row["coverage"], row["reason"]) == (24, 1.0, "")


def test_a_failed_score_is_left_out_and_counted() -> None:
    scores, ratings = world()
    scores.loc[0, ["status", "value"]] = ["unparsable", np.nan]
    table = tables.viescore_agreement(scores, ratings, {"overall": ["m"]})
    assert table["n"].tolist() == [23, 24, 24, 24]
    assert table["coverage"][0] == pytest.approx(23 / 24)


def test_a_constant_model_is_named_and_not_averaged() -> None:
    scores, ratings = world()
    scores.loc[scores["generator"] == "b", "value"] = 0.5
    row = tables.viescore_agreement(scores, ratings, {"overall": ["m"]}).iloc[0]
    assert np.isnan(row["b"]) and row["spearman_mean"] == pytest.approx(row["a"])
    assert row["reason"] == "1 constant_input"


def test_a_rater_alone_has_no_ceiling() -> None:
    scores, ratings = world(raters=1)
    table = tables.viescore_agreement(scores, ratings, {"overall": ["m"]})
    assert table["scored_by"].tolist() == ["m"]


def test_unknown_names_are_refused() -> None:
    scores, ratings = world()
    with pytest.raises(InputError, match="nobody rated 'overal'"):
        tables.viescore_agreement(scores, ratings, {"overal": ["m"]})
    with pytest.raises(InputError, match="no scores of 'n'"):
        tables.viescore_agreement(scores, ratings, {"overall": ["n"]})
