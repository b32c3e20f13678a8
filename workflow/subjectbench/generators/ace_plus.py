"""ACE++ (arXiv:2501.02487): FLUX.1 Fill with a LoRA completes a picture beside the reference.

The canvas holds the reference at its left and nothing at its right; the right part is filled in
and cut out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from pydantic import Field

from subjectbench.generators import adapters
from subjectbench.generators.base import Job
from subjectbench.generators.native import Native

STEP = 16
"""Sides of a canvas are multiples of it: 8 pixels per latent, 2 latents per token."""


class AcePlus(Native):
    """Reference and text to picture."""

    pipelines = ("FluxFillPipeline",)

    class Params(Native.Params):
        """Parameters of an ACE++ card."""

        steps: int = Field(default=28, ge=1, description="Denoising steps")
        guidance_scale: float = Field(default=50.0, ge=0, description="Of the distilled guidance")
        height: int = Field(
            default=720, ge=STEP, multiple_of=STEP, description="Pixels of the picture"
        )
        width: int = Field(
            default=720, ge=STEP, multiple_of=STEP, description="Pixels of the picture"
        )
        lora_file: str = Field(description="Of the card's part lora")
        lora_scale: float = Field(default=1.0, ge=0)
        max_sequence_length: int = Field(default=512, ge=1, description="Tokens of the text")

    def load(self, folder: Path) -> Any:
        """Return the pipeline with its LoRA."""
        pipeline = super().load(folder)
        file = self.part("lora") / self.params.lora_file
        self.notes |= adapters.load_lora(pipeline, file, "ace", self.params.lora_scale)
        return pipeline

    def arguments(self, jobs: list[Job]) -> dict[str, Any]:
        """Return guidance, one canvas per job, and which part of it is to be filled."""
        canvas, mask = diptych(jobs[0].reference, self.params.width, self.params.height)
        # One canvas each, though they are alike: of a single one the pipeline would draw a single
        # latent, by the first picture's noise, so that a picture depended on its place.
        return {
            "image": [canvas] * len(jobs),
            "mask_image": [mask] * len(jobs),
            "width": canvas.width,
            "guidance_scale": self.params.guidance_scale,
            "max_sequence_length": self.params.max_sequence_length,
        }

    def finished(self, pixels: np.ndarray) -> np.ndarray:
        """Cut the filled part out of the canvas."""
        return pixels[:, -self.params.width :]


def diptych(reference: Image.Image, width: int, height: int) -> tuple[Image.Image, Image.Image]:
    """Canvas with the reference at the left, and the mask of what is to be filled.

    Args:
        reference: RGB; resized to ``height``, its width to the next multiple of 16.
        width: of the part to be filled, pixels.
        height: of the canvas, pixels.

    Returns:
        RGB canvas and L mask, white where a picture is wanted; both
        ``width`` wider than the resized reference.
    """
    shown = max(STEP, round(reference.width * height / reference.height / STEP) * STEP)
    canvas = Image.new("RGB", (shown + width, height))
    canvas.paste(reference.resize((shown, height), Image.Resampling.BILINEAR))
    mask = Image.new("L", canvas.size)
    mask.paste(255, (shown, 0, shown + width, height))
    return canvas, mask


PLUGIN = AcePlus
