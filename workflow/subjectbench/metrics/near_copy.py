"""Whether a picture shows its reference again, pixel for pixel, wholly or in part.

A model that pastes the reference preserves the subject perfectly and generates nothing. Scores of
preservation reward that; neither they nor embeddings can tell it from a subject drawn anew. Local
structure can: a block of a reference that stands in a picture at the same place, up to brightness
and contrast, was copied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from subjectbench.config import Strict
from subjectbench.metrics.base import Item, Metric, Result, Vector
from subjectbench.vocabulary import Status

if TYPE_CHECKING:
    import numpy as np

FEWEST = 8
"""Blocks with structure that a reference needs: an empty one is found again everywhere."""


class NearCopy(Metric):
    """1 for a near copy of a reference, else 0; the mean is a model's share of near copies.

    Over blocks of thumbnails, which overlap by half: the share of the reference's blocks with
    structure whose normalised correlation (Lewis 1995, equation 2) with the picture's block at the
    same place reaches ``correlation``. Where the subject moved, turned or changed its size, nothing
    is found: that is no copy here.
    """

    needs = frozenset({"image", "reference"})

    class Params(Strict):
        """Parameters of a near-copy card; those of the default are fitted on the miniworld."""

        block: int = Field(default=4, ge=2, multiple_of=2, description="Side of a block in pixels")
        structure: float = Field(
            default=0.05, gt=0, description="Least standard deviation of a block that counts, of 1"
        )
        correlation: float = Field(default=0.95, gt=0, le=1, description="Of a block found again")
        share: float = Field(default=0.35, gt=0, le=1, description="Of blocks found: a near copy")

    def score(self, items: list[Item]) -> list[Result]:
        """Return one result per item; ``details`` has the ``share`` of blocks found again.

        Of several references the one found best counts. One without structure is
        ``not_applicable``.
        """
        return [self._one(item) for item in items]

    def _one(self, item: Item) -> Result:
        vectors = [item.image or Vector(Status.MISSING), *item.references]
        if len(vectors) < 2:
            return Result(Status.MISSING)
        arrays = [v.values for v in vectors if v.values is not None]
        if len(arrays) != len(vectors):
            return Result(next(v.status for v in vectors if v.values is None))
        found = [self._found(reference, arrays[0]) for reference in arrays[1:]]
        shares = [share for share in found if share is not None]
        if not shares:
            return Result(
                Status.NOT_APPLICABLE, details={"reason": "a reference without structure"}
            )
        best = max(shares)
        copied = float(best >= self.params.share)
        return Result(Status.OK, copied, len(shares), {"share": round(best, 6)})

    def _found(self, reference: np.ndarray, picture: np.ndarray) -> float | None:
        """Share of the reference's blocks that the picture has at the same place."""
        ours, theirs = self._blocks(reference), self._blocks(picture)
        spread = ours.std(1)
        counts = spread >= self.params.structure
        if counts.sum() < FEWEST:
            return None
        both = (ours[counts] * theirs[counts]).mean(1)
        # A flat block of the picture has no structure to be the same.
        norms = (spread * theirs.std(1))[counts].clip(1e-6)
        return float((both / norms >= self.params.correlation).mean())

    def _blocks(self, flat: np.ndarray) -> np.ndarray:
        """Blocks (n, side * side) of a thumbnail, the mean of each taken off."""
        import numpy as np

        side, block = round(flat.size**0.5), self.params.block
        windows = np.lib.stride_tricks.sliding_window_view(
            flat.astype(np.float64).reshape(side, side), (block, block)
        )
        cut = windows[:: block // 2, :: block // 2].reshape(-1, block * block)
        return cut - cut.mean(1, keepdims=True)


PLUGIN = NearCopy
