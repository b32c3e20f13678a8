"""Cosine between a picture's embedding and its prompt's: CLIP-T, and HPSv2 with its own encoder.

The prompt is the case's, with the class noun and without any model's rare token.
"""

from __future__ import annotations

from subjectbench.metrics.base import Item, Vector
from subjectbench.metrics.cosine import Cosine


class CosineText(Cosine):
    """Cosine between picture and prompt."""

    needs = frozenset({"image", "text"})

    def other(self, item: Item) -> tuple[Vector, ...]:
        """Return the prompt's vector."""
        return (item.text,) if item.text else ()


PLUGIN = CosineText
