"""ImageReward (Xu et al. 2023): linear layers on what BLIP makes of picture and prompt together.

The head has the form of LAION's aesthetic predictor, and is applied to the embedding as it is. Its
output is standardised by the mean and deviation that the authors measured, so that about 0 is a
middling picture for its prompt. Source: repository THUDM/ImageReward.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from subjectbench.metrics.aesthetic import Aesthetic
from subjectbench.metrics.base import Item, Result

if TYPE_CHECKING:
    import numpy as np


class ImageReward(Aesthetic):
    """Applies the head of the card's weights to the pair's embedding."""

    needs = frozenset({"pair"})

    class Params(Aesthetic.Params):
        """Parameters of an ImageReward card."""

        mean: float = Field(description="Subtracted from what the head says")
        deviation: float = Field(gt=0, description="Divides the difference")

    def score(self, items: list[Item]) -> list[Result]:
        """Return one result per item; ``details.cut`` counts tokens that the prompt lost."""
        return [self.one(item.pair) for item in items]

    def scaled(self, values: np.ndarray) -> np.ndarray:
        """Return the embedding as it is."""
        return values

    def named(self, value: float) -> float:
        """Standardise."""
        return float((value - self.params.mean) / self.params.deviation)


PLUGIN = ImageReward
