"""Simulated raters who rank: what people would say if the declared truth were theirs.

A rater sees of each picture ``sum(w * truth) / sum(w) + noise`` over the three dimensions, rounded
to ``resolution`` so that ties happen, and ranks the models of a case by it. ``truth`` (0 to 1) is
in the sample's ``details``, put there by generators that know it. ``w`` is a declared weight times
``exp(taste * normal)``, one draw per rater and dimension: a mere strictness would change no order.
``noise`` is one draw per rater and picture. Every draw comes from a hash of its own ids, so no
order, batch or number of raters can change another's rank.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from subjectbench.raters.base import Raters
from subjectbench.raters.ranks import RankParams, pictures, rank_rows
from subjectbench.raters.simulated import normal, truths
from subjectbench.vocabulary import DIMENSIONS

if TYPE_CHECKING:
    import pandas as pd


class SimulatedRankRaters(Raters):
    """Raters who see the truth through a taste of their own and noise, and rank by it."""

    class Params(RankParams):
        """How many, what counts for them, and how wrong they are."""

        raters: int = Field(default=5, ge=1, le=1000, description="How many")
        preservation: float = Field(default=1.0, gt=0, description="Weight of the subject")
        following: float = Field(default=1.0, gt=0, description="Weight of the prompt")
        quality: float = Field(default=0.5, gt=0, description="Weight of the picture's quality")
        taste: float = Field(default=0.3, ge=0, le=3, description="Spread of raters' log weights")
        noise: float = Field(
            default=0.08, ge=0, le=10, description="Spread of single looks, truth being 0 to 1"
        )
        resolution: float = Field(
            default=0.05, gt=0, le=1, description="Pictures that are closer than this may tie"
        )
        seed: int = Field(default=0, ge=0)

    version: ClassVar[str] = "1"
    simulated: ClassVar[bool] = True
    params: Params

    def sources(self) -> list[Path]:
        """Return nothing: ranks follow from parameters and samples."""
        return []

    def check(self) -> None:
        """Nothing to check beyond the parameters."""

    def ratings(self, samples: dict[str, pd.DataFrame]) -> pd.DataFrame:
        """Rank the models of every case, by ``rater1``, ``rater2``, …

        Samples that are not ``ok``, or without the truth of all dimensions, are not ranked.

        Raises:
            InputError: a truth is not a number from 0 to 1.
        """
        from subjectbench.records import table

        p = self.params
        raters = {f"rater{i}": self._weights(f"rater{i}") for i in range(1, p.raters + 1)}
        shown = pictures(samples, p.replicate)
        known: dict[tuple[str, str], dict[str, float]] = {}
        for generator, frame in samples.items():
            for sample, dimension, truth in truths(generator, frame):
                known.setdefault((generator, sample), {})[dimension] = truth
        ranks: dict[tuple[str, str], dict[str, float]] = {}
        for (case, generator), sample in shown.items():
            truth_of = known.get((generator, sample), {})
            for rater, weights in raters.items():
                ranked = ranks.setdefault((case, rater), {})
                if len(truth_of) == len(DIMENSIONS):
                    mean = sum(weights[d] * truth_of[d] for d in DIMENSIONS)
                    seen = mean + p.noise * normal(p.seed, rater, generator, sample)
                    # Only order counts: the best has the lowest number.
                    ranked[generator] = -math.floor(seen / p.resolution + 0.5)
        return table("ratings", rank_rows(ranks, shown, p.min_models), "simulated ranks")

    def _weights(self, rater: str) -> dict[str, float]:
        """What counts how much for a rater; sums to 1."""
        p = self.params
        own = {d: getattr(p, d) * math.exp(p.taste * normal(p.seed, rater, d)) for d in DIMENSIONS}
        return {d: w / sum(own.values()) for d, w in own.items()}


PLUGIN = SimulatedRankRaters
