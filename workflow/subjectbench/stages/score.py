"""Scores: one artifact per metric, model and shard; one row per sample, whatever happened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from subjectbench import cards, records
from subjectbench.metrics.base import Item, Metric, Result, Vector
from subjectbench.records import Status
from subjectbench.stages.base import Context, count, to_json
from subjectbench.stages.embed import read
from subjectbench.store import Partial


def run(context: Context) -> None:
    """Write scores.parquet."""
    plugin, card, params = context.plugin("metric")
    metric: Metric = plugin(params, card, cards.ROOT)

    def build(folder: Path, _: Partial) -> dict[str, int]:
        samples = records.read_table("samples", context.upstream("samples") / "samples.parquet")
        items = _items(context, metric, samples)
        results = iter(metric.score([item for item in items if item is not None]))
        rows = []
        for item, sample in zip(items, samples.itertuples(), strict=True):
            result = next(results) if item else Result(Status(sample.status))
            rows.append(_row(context, result, sample))
        records.write_table("scores", rows, folder / "scores.parquet")
        return count(r["status"] for r in rows)

    context.store.make(context.artifact, build)


def _row(context: Context, result: Result, sample: Any) -> dict[str, Any]:
    return {
        "generator": context.artifact.job["generator"],
        "sample_id": sample.sample_id,
        "image_sha256": sample.image_sha256,
        "metric": context.artifact.job["metric"],
        "key": context.artifact.job["metric_key"],
        "status": result.status.value,
        "value": result.value,
        "n_raw": result.n_raw,
        "details": to_json(dict(result.details)),
    }


def _items(context: Context, metric: Metric, samples: pd.DataFrame) -> list[Item | None]:
    """What the metric needs of each sample; None for samples without a picture to score."""
    usable = (Status.OK,) if metric.needs else (Status.OK, Status.EXTERNAL)
    image: dict[str, Vector] = {}
    reference: dict[str, Vector] = {}
    text: dict[str, Vector] = {}
    if metric.needs:
        image = read(context.upstream("embeddings") / "embeddings.parquet")
        reference = read(context.upstream("case_embeddings") / "references.parquet")
        text = read(context.upstream("case_embeddings") / "texts.parquet")
    cases = records.read_table("cases", context.upstream("benchmark") / "cases.parquet")
    reference_of = dict(zip(cases["case_id"], cases["reference_id"], strict=True))
    out: list[Item | None] = []
    for sample in samples.itertuples():
        if sample.status not in usable:
            out.append(None)
            continue
        found = reference.get(reference_of[sample.case_id]) if "reference" in metric.needs else None
        out.append(
            Item(
                generator=context.artifact.job["generator"],
                sample_id=sample.sample_id,
                case_id=sample.case_id,
                image=image.get(sample.sample_id) if "image" in metric.needs else None,
                text=text.get(sample.case_id) if "text" in metric.needs else None,
                references=(found,) if found else (),
            )
        )
    return out
