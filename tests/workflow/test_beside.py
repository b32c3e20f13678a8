"""Benchmarks beside a study's own: exact job sets, and the tables and figures of a real run."""

from __future__ import annotations

import copy
from typing import Any

import pandas as pd
import pytest

from .conftest import TINY, Checkout

pytestmark = pytest.mark.slow

OTHER = {
    "card": "miniworld_dreambench",
    "name": "dreambench",
    "params": {"subjects": 2, "scenarios": ["background", "attribute"]},
}
READERS = {"tabulate_study": 1, "write_report": 1}


def beside(**changes: Any) -> dict[str, Any]:
    study = copy.deepcopy(TINY)
    study["beside"] = {"benchmarks": [OTHER | changes], "generators": ["copy_reference"]}
    return study


@pytest.mark.long
def test_a_benchmark_beside_adds_its_own_jobs_and_a_table(ran: Checkout) -> None:
    ran.configure(beside())
    assert ran.planned() == {
        "prepare_benchmark": 1,
        "generate_images": 1,
        "embed_cases": 3,
        "embed_images": 3,
        "score_metric": 3,
        **READERS,
    }
    before = ran.hashes("results/store/score")
    ran.run()
    assert ran.planned() == {}
    after = ran.hashes("results/store/score")
    assert {name: after[name] for name in before} == before

    latest = ran.folder / "results" / "latest"
    (row,) = pd.read_csv(latest / "tables" / "benchmarks.csv").to_dict("records")
    assert row["generator"] == "copy_reference"
    for name, cases in (("miniworld", 3 * 12), ("dreambench", 2 * 4)):
        for dimension, metric in TINY["dimensions"].items():
            place = ran.folder / "results/store/score" / name / metric / "copy_reference"
            (path,) = place.glob("*/scores.parquet")
            scores = pd.read_parquet(path)["value"]
            assert row[f"{dimension}_{name}_mean"] == pytest.approx(scores.mean())
            assert row[f"{dimension}_{name}_n"] == len(scores) == cases
            assert row[f"{dimension}_{name}_coverage"] == 1.0
            assert row[f"{dimension}_{name}_ci_low"] <= row[f"{dimension}_{name}_ci_high"]
    titles = ["Miniworld", "dreambench"]
    for table in ("distributions", "reference_map"):
        frame = pd.read_csv(latest / "tables" / f"{table}.csv")
        assert list(dict.fromkeys(frame["benchmark"])) == titles
    coverage = pd.read_csv(latest / "tables" / "coverage.csv")
    assert coverage.groupby("benchmark").size().to_dict() == {"Miniworld": 12, "dreambench": 3}
    for ending in ("svg", "png"):
        assert (latest / "figures" / f"benchmarks.{ending}").stat().st_size > 1000
    page = (latest / "index.html").read_text()
    assert 'id="benchmarks"' in page and 'src="figures/benchmarks.svg"' in page
    # Made-up models have no printed numbers.
    assert "printed" not in page.split('id="benchmarks"')[1].split("<h2")[0]
    told = (latest / "tables" / "benchmarks.md").read_text().splitlines()[0]
    assert "synthetic" in told and "DSH-Bench, Table 2" in told

    # Another seed of that world: all of it, and nothing of the study's own.
    ran.configure(beside(params=OTHER["params"] | {"seed": 9}))
    expected = {"prepare_benchmark": 1, "generate_images": 1, "embed_cases": 3}
    assert ran.planned() == expected | {"embed_images": 3, "score_metric": 3} | READERS
    ran.configure(TINY)
    assert ran.planned() == {}
