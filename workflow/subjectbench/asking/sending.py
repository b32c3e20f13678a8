"""How pictures are sent."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from subjectbench.asking.base import Picture
from subjectbench.config import Strict

if TYPE_CHECKING:
    from PIL import Image


class PicturePolicy(Strict):
    """How pictures are sent. Their aspect is kept; they are never enlarged."""

    max_side: int = Field(default=1024, ge=16, le=4096, description="Longer side, in pixels")
    format: Literal["png", "jpeg"] = Field(default="png", description="png loses nothing")
    quality: int = Field(default=95, ge=1, le=100, description="Of JPEG")

    def encode(self, image: Image.Image, role: str) -> Picture:
        """Return an RGB picture as it is sent.

        Args:
            image: RGB.
            role: ``"reference"`` or ``"generated"``.
        """
        from PIL import Image

        scale = self.max_side / max(image.size)
        if scale < 1:
            width, height = (max(1, round(side * scale)) for side in image.size)
            image = image.resize((width, height), Image.Resampling.LANCZOS)
        file = io.BytesIO()
        if self.format == "png":
            image.save(file, "PNG", compress_level=6)
        else:
            image.save(file, "JPEG", quality=self.quality, subsampling=0)
        return Picture(role, file.getvalue(), f"image/{self.format}")
