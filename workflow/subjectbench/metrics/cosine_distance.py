"""One minus the cosine between a picture's embedding and its reference's: DreamSim."""

from __future__ import annotations

from dataclasses import replace

from subjectbench.metrics.base import Item, Result
from subjectbench.metrics.cosine import Cosine


class CosineDistance(Cosine):
    """0 for equal directions to 2 for opposite ones (times ``scale``), averaged over references."""

    def _one(self, item: Item) -> Result:
        result = super()._one(item)
        if result.value is None:
            return result
        return replace(result, value=self.params.scale - result.value)


PLUGIN = CosineDistance
