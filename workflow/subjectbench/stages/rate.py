"""Ratings: one artifact per panel of raters, over all models that it judged."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from subjectbench import cards, records
from subjectbench.stages.base import Context, count
from subjectbench.store import Partial


def run(context: Context) -> None:
    """Write ratings.parquet."""
    plugin, _, params = context.plugin("raters")
    raters = plugin(params, cards.ROOT)

    def build(folder: Path, _: Partial) -> dict[str, int]:
        ratings = raters.ratings(samples_by_generator(context))
        order = ["generator", "sample_id", "rater", "dimension"]
        ratings = records.write_table(
            "ratings", ratings.sort_values(order), folder / "ratings.parquet"
        )
        return count(ratings["status"])

    context.store.make(context.artifact, build)


def samples_by_generator(context: Context) -> dict[str, pd.DataFrame]:
    """Samples of each model, its shards together. Roles are ``samples/<generator>/<shard>``."""
    shards: dict[str, list[pd.DataFrame]] = {}
    for role, folder in context.roles("samples").items():
        frame = records.read_table("samples", folder / "samples.parquet")
        shards.setdefault(role.rpartition("/")[0], []).append(frame)
    return {name: pd.concat(frames, ignore_index=True) for name, frames in shards.items()}
