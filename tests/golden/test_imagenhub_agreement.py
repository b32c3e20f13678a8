"""Agreement of CLIP-I and DINO with people on ImagenHub, computed without the library.

An independent path (json, csv, scipy) to compare the pipeline's table with.
"""

from __future__ import annotations

import csv
import json
import math
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from subjectbench import tables

SHARED = Path(os.environ.get("SUBJECTBENCH_SHARED", Path(__file__).parents[3] / "shared"))
DATA = SHARED / "imagenhub"
MODELS = ("BLIPDiffusion_Gen", "DreamBooth", "DreamBoothLora", "TextualInversion")
METRICS = ("CLIP_I", "DINO")

needs_data = pytest.mark.skipif(
    not (DATA / "raters").is_dir(),
    reason=f"ImagenHub data not found at {DATA}; set SUBJECTBENCH_SHARED to its parent folder",
)


def human(data: Path = DATA) -> dict[tuple[str, str, str], list[float]]:
    """Per (model, uid, aspect): the three raters' values; overall = sqrt(semantic * quality)."""
    values: dict[tuple[str, str, str], list[float]] = {}
    for path in sorted((data / "raters").glob("*.tsv")):
        with path.open(newline="") as file:
            for row in csv.DictReader(file, delimiter="\t"):
                for model in MODELS:
                    semantic, quality = json.loads(row[model])
                    both = {"semantic": semantic, "quality": quality}
                    both["overall"] = math.sqrt(semantic * quality)
                    for aspect, value in both.items():
                        values.setdefault((model, row["uid"], aspect), []).append(float(value))
    return values


def machine(data: Path = DATA) -> dict[tuple[str, str, str], float]:
    """Per (model, uid, metric): the published automatic score."""
    return {
        (model, uid, metric): float(value)
        for model in MODELS
        for uid, scores in json.loads((data / f"autometrics/{model}.json").read_text()).items()
        for metric, value in scores.items()
    }


def oracle(data: Path = DATA) -> dict[tuple[str, str, str], dict[str, float]]:
    """Agreement per (metric, aspect, model or ALL): n, Spearman, tau-b, by scipy alone.

    Raters are averaged per item first and rounded to 9 decimals; items are matched by name.
    """
    people, metrics = human(data), machine(data)
    found = {}
    for metric in METRICS:
        for aspect in ("semantic", "quality", "overall"):
            for name, models in {**{m: [m] for m in MODELS}, "ALL": list(MODELS)}.items():
                keys = sorted((m, u) for m, u, a in people if a == aspect and m in models)
                x = np.round([metrics[m, u, metric] for m, u in keys], 9)
                y = np.round([np.mean(people[m, u, aspect]) for m, u in keys], 9)
                found[metric, aspect, name] = {
                    "n": len(keys),
                    "spearman": float(stats.spearmanr(x, y).statistic),
                    "kendall_tau_b": float(stats.kendalltau(x, y).statistic),
                }
    return found


@needs_data
def test_shapes_and_signs() -> None:
    found = oracle()
    assert {v["n"] for (_, _, name), v in found.items() if name != "ALL"} == {150}
    assert {v["n"] for (_, _, name), v in found.items() if name == "ALL"} == {600}
    assert {len(v) for v in human().values()} == {3}
    assert all(found[m, "semantic", "ALL"]["spearman"] > 0.2 for m in METRICS)


@needs_data
def test_tables_agree_with_the_oracle() -> None:
    rows = [
        {"generator": m, "sample_id": u, "metric": k, "value": v, "subject_id": u}
        for (m, u, k), v in machine().items()
    ]
    scores = pd.DataFrame(rows).assign(key="k", status="ok")
    ratings = pd.DataFrame(
        [
            {"generator": m, "sample_id": u, "dimension": a, "rater": f"r{i}", "value": v}
            for (m, u, a), values in human().items()
            for i, v in enumerate(values)
        ]
    ).assign(status="ok")
    frame = tables.agreement(scores, tables.targets(ratings, "raters"), draws=50)
    frame = frame[frame["generator"] != tables.MEAN]
    expected = oracle()
    assert len(frame) == len(expected)
    for row in frame.to_dict("records"):
        other = expected[row["metric"], row["dimension"], row["generator"]]
        for name, value in other.items():
            assert row[name] == pytest.approx(value, abs=1e-9), (row, name)
