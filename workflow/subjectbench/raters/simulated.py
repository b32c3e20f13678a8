"""Simulated raters with a known error: what people would say if the declared truth were theirs.

``rating = clip(floor(5 * (truth + bias + noise) + 0.5), 0, 5)``: whole numbers 0 to 5. ``truth``
(0 to 1) is in the sample's ``details``, put there by generators that know it; ``bias`` is one
normal draw per rater, ``noise`` one per rater, sample and dimension. Every draw comes from a hash
of its own ids, so no order, batch or number of raters can change another's rating.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from subjectbench.config import Strict
from subjectbench.errors import InputError
from subjectbench.raters.base import Raters
from subjectbench.vocabulary import DIMENSIONS

if TYPE_CHECKING:
    import pandas as pd

SCALE = 5
"""Ratings are whole numbers from 0 to this."""


def normal(*key: object) -> float:
    """Return the standard normal draw that belongs to ``key``: JSON types, the same everywhere."""
    digest = hashlib.sha256(json.dumps(key).encode()).digest()
    # 53 bits, and never 0 or 1, where the inverse is infinite.
    uniform = ((int.from_bytes(digest[:8], "big") >> 11) + 0.5) / 2**53
    return NormalDist().inv_cdf(uniform)


class SimulatedRaters(Raters):
    """Raters that see the truth through a bias of their own and noise."""

    class Params(Strict):
        """How many, and how wrong. Standard deviations are on the truth's scale of 0 to 1."""

        raters: int = Field(default=5, ge=1, le=1000, description="How many")
        bias: float = Field(default=0.05, ge=0, le=10, description="Spread of raters' strictness")
        noise: float = Field(default=0.1, ge=0, le=10, description="Spread of single ratings")
        seed: int = Field(default=0, ge=0)

    version: ClassVar[str] = "1"
    simulated: ClassVar[bool] = True
    params: Params

    def sources(self) -> list[Path]:
        """Return nothing: ratings follow from parameters and samples."""
        return []

    def check(self) -> None:
        """Nothing to check beyond the parameters."""

    def ratings(self, samples: dict[str, pd.DataFrame]) -> pd.DataFrame:
        """Rate every sample that is ``ok`` and carries truth, by ``rater1``, ``rater2``, …

        Raises:
            InputError: a truth is not a number from 0 to 1.
        """
        from subjectbench.records import table

        p = self.params
        # Biases first: one per rater, for all generators and dimensions.
        biases = {f"rater{i}": p.bias * normal(p.seed, f"rater{i}") for i in range(1, p.raters + 1)}
        rows: list[dict[str, Any]] = []
        for generator, frame in samples.items():
            for sample, dimension, truth in truths(generator, frame):
                for rater, bias in biases.items():
                    noise = p.noise * normal(p.seed, rater, generator, sample, dimension)
                    rating = math.floor(SCALE * (truth + bias + noise) + 0.5)
                    rows.append(
                        {
                            "generator": generator,
                            "sample_id": sample,
                            "rater": rater,
                            "dimension": dimension,
                            "status": "ok",
                            "value": float(min(max(rating, 0), SCALE)),
                        }
                    )
        rows.sort(key=lambda r: (r["generator"], r["sample_id"], r["rater"], r["dimension"]))
        return table("ratings", rows, "simulated raters")


def truths(generator: str, frame: pd.DataFrame) -> Iterator[tuple[str, str, float]]:
    """Yield ``(sample, dimension, truth)`` of every sample that is ``ok`` and carries truth.

    Raises:
        InputError: a truth is not a number from 0 to 1.
    """
    for sample, status, details in zip(frame["sample_id"], frame["status"], frame["details"]):
        given = json.loads(details).get("truth")
        if status != "ok" or given is None:
            continue
        where = f"{generator}: sample '{sample}': details.truth"
        if not isinstance(given, dict):
            raise InputError(where, f"{given!r} is not an object", f"keys: {DIMENSIONS}")
        for dimension in DIMENSIONS:
            if dimension not in given:
                continue
            truth = given[dimension]
            number = isinstance(truth, int | float) and not isinstance(truth, bool)
            if not number or not 0 <= truth <= 1:  # NaN fails the comparison too
                raise InputError(f"{where}.{dimension}", f"{truth!r} is not from 0 to 1")
            yield sample, dimension, float(truth)


PLUGIN = SimulatedRaters
