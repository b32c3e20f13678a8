"""Cosine between a picture's embedding and its reference's or its prompt's: CLIP-I, DINO, CLIP-T.

DreamBooth's protocol, used by DSH-Bench, section 4: with several references, the mean of the
cosines (not the cosine with the mean).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from subjectbench.config import Strict
from subjectbench.metrics.base import Item, Metric, Result, Vector
from subjectbench.vocabulary import Status

if TYPE_CHECKING:
    import numpy as np


def cosine(a: np.ndarray, b: np.ndarray) -> float | None:
    """Cosine of two vectors, -1 to 1; None where a norm is zero or a value not finite."""
    import numpy as np

    a, b = a.astype(np.float64), b.astype(np.float64)
    norms = float(np.linalg.norm(a) * np.linalg.norm(b))
    if not np.isfinite(norms) or norms == 0.0:
        return None
    return float(np.clip(a @ b / norms, -1.0, 1.0))


class Cosine(Metric):
    """Cosine between the picture and the vectors on the other side, averaged over those."""

    needs = frozenset({"image", "reference"})

    class Params(Strict):
        """Parameters of a cosine card."""

        scale: float = Field(default=1.0, gt=0, description="The raw cosine is multiplied by this")

    def other(self, item: Item) -> tuple[Vector, ...]:
        """Vectors that the picture is compared with."""
        return item.references

    def score(self, items: list[Item]) -> list[Result]:
        """Return one result per item; non-finite or zero embeddings become ``non_finite``."""
        return [self._one(item) for item in items]

    def _one(self, item: Item) -> Result:
        vectors = [item.image or Vector(Status.MISSING), *self.other(item)]
        if len(vectors) < 2:
            return Result(Status.MISSING)
        arrays = [v.values for v in vectors if v.values is not None]
        if len(arrays) != len(vectors):
            return Result(next(v.status for v in vectors if v.values is None))
        values = [cosine(arrays[0], other) for other in arrays[1:]]
        finite = [v for v in values if v is not None]
        if len(finite) != len(values):
            return Result(Status.NON_FINITE)
        value = self.params.scale * sum(finite) / len(finite)
        details = {name: found for vector in vectors for name, found in vector.details.items()}
        return Result(Status.OK, value, len(finite), details)


PLUGIN = Cosine
