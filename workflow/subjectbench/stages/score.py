"""Scores: one artifact per metric and model; one row per sample, whatever happened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from subjectbench import cards, records
from subjectbench.metrics.base import Answer, Item, Metric, Result, Vector
from subjectbench.records import Status
from subjectbench.stages.base import Context, count, details, to_json
from subjectbench.stages.embed import read
from subjectbench.stages.unit_table import read_units
from subjectbench.store import Partial
from subjectbench.units import Unit

LOOKS = frozenset({"image", "text", "reference", "pair"})
"""What a metric may need that comes of looking at the picture."""


def run(context: Context) -> None:
    """Write scores.parquet."""
    plugin, card, params = context.plugin("metric")
    # The study may have named another encoder than the card.
    card = card.model_copy(update={"encoder": context.artifact.job["encoder"]})
    metric: Metric = plugin(params, card, cards.ROOT)

    def build(folder: Path, _: Partial) -> dict[str, int]:
        rows: list[dict[str, Any]] = []
        for shard, source in context.roles("samples").items():  # one at a time bounds memory
            samples = records.read_table("samples", source / "samples.parquet")
            items = _items(context, metric, samples, shard)
            results = iter(metric.score([item for item in items if isinstance(item, Item)]))
            for item, sample in zip(items, samples.itertuples(), strict=True):
                result = next(results) if isinstance(item, Item) else Result(item)
                rows.append(_row(context, result, sample))
        rows.sort(key=lambda row: row["sample_id"])
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


class _Inputs:
    """What the metric needs of the samples of one model and shard, by id."""

    def __init__(self, context: Context, needs: frozenset[str], shard: str) -> None:
        self.needs = needs
        self.image: dict[str, Vector] = {}
        self.pair: dict[str, Vector] = {}
        self.reference: dict[str, Vector] = {}
        self.text: dict[str, Vector] = {}
        self.answers: dict[str, dict[str, Answer]] = {}
        self.units: dict[str, tuple[Unit, ...]] = {}
        self.without_units: dict[str, Status] = {}
        if "pair" in needs:
            self.pair = read(context.upstream(f"embeddings/{shard}") / "embeddings.parquet")
        elif needs & LOOKS:
            self.image = read(context.upstream(f"embeddings/{shard}") / "embeddings.parquet")
            self.reference = read(context.upstream("case_embeddings") / "references.parquet")
            self.text = read(context.upstream("case_embeddings") / "texts.parquet")
        if "answers" in needs:
            path = context.upstream(f"answers/{shard}") / "answers.parquet"
            for row in records.read_table("answers", path).itertuples():
                value = float(row.value) if row.status == Status.OK else None
                answer = Answer(Status(row.status), value, details(row.details))
                self.answers.setdefault(row.sample_id, {})[row.ask] = answer
        if "units" in needs:
            self.units, self.without_units = read_units(context.upstream("units"))

    def item(self, generator: str, sample: Any, reference_id: str) -> Item:
        """Put together what is needed of one sample."""
        found = self.reference.get(reference_id) if "reference" in self.needs else None
        return Item(
            generator=generator,
            sample_id=sample.sample_id,
            case_id=sample.case_id,
            image=self.image.get(sample.sample_id) if "image" in self.needs else None,
            pair=self.pair.get(sample.sample_id),
            text=self.text.get(sample.case_id) if "text" in self.needs else None,
            references=(found,) if found else (),
            answers=self.answers.get(sample.sample_id, {}),
            units=self.units.get(sample.case_id, ()),
        )


def _items(
    context: Context, metric: Metric, samples: pd.DataFrame, shard: str
) -> list[Item | Status]:
    """What the metric needs of each sample; a status for samples that cannot be scored."""
    usable = (Status.OK,) if metric.needs & LOOKS else (Status.OK, Status.EXTERNAL)
    inputs = _Inputs(context, metric.needs, shard)
    cases = records.read_table("cases", context.upstream("benchmark") / "cases.parquet")
    reference_of = dict(zip(cases["case_id"], cases["reference_id"], strict=True))
    out: list[Item | Status] = []
    for sample in samples.itertuples():
        if sample.status not in usable:
            out.append(Status(sample.status))
        elif sample.case_id in inputs.without_units:
            out.append(inputs.without_units[sample.case_id])
        else:
            generator = context.artifact.job["generator"]
            out.append(inputs.item(generator, sample, reference_of[sample.case_id]))
    return out
