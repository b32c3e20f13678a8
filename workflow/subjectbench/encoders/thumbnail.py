"""Pictures as small grey ones: what a picture looks like at a glance, without any model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import Field

from subjectbench.config import Strict
from subjectbench.encoders.base import Encoder, check_rgb

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image


class Thumbnail(Encoder):
    """Grey values, 0 to 1, of a picture squashed to a square, row by row."""

    class Params(Strict):
        """Parameters of a thumbnail card."""

        size: int = Field(default=64, ge=8, description="Side in pixels")

    def images(self, pictures: Sequence[Image.Image]) -> np.ndarray:
        """Return float32 (n, size * size)."""
        import numpy as np
        from PIL import Image

        check_rgb(pictures)
        sides = (self.params.size, self.params.size)
        small = [
            np.asarray(p.convert("L").resize(sides, Image.Resampling.BOX), np.float32)
            for p in pictures
        ]
        return np.asarray(small, np.float32).reshape(len(small), self.params.size**2) / 255


PLUGIN = Thumbnail
