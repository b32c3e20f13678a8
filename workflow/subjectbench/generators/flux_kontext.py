"""FLUX.1 Kontext in diffusers: edits the reference as the text says (arXiv:2506.15742)."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from subjectbench.generators.base import Job
from subjectbench.generators.native import Native


class FluxKontext(Native):
    """Reference and instruction to picture.

    The pipeline resizes the reference to the nearest of the sizes that the model was trained on,
    all about one megapixel, unless ``auto_resize`` is off.
    """

    pipelines = ("FluxKontextPipeline",)

    class Params(Native.Params):
        """Parameters of a Kontext card."""

        steps: int = Field(default=28, ge=1, description="Denoising steps")
        guidance_scale: float = Field(default=2.5, ge=0, description="Of the distilled guidance")
        height: int = Field(default=1024, ge=8, description="Pixels")
        width: int = Field(default=1024, ge=8, description="Pixels")
        auto_resize: bool = Field(default=True, description="Reference to a size of the training")
        max_sequence_length: int = Field(default=512, ge=1, description="Tokens of the text")

    def arguments(self, jobs: list[Job]) -> dict[str, Any]:
        """Return guidance and the reference, which all jobs of a call share."""
        return {
            "image": jobs[0].reference,
            "guidance_scale": self.params.guidance_scale,
            "max_sequence_length": self.params.max_sequence_length,
            "max_area": self.params.height * self.params.width,
            "_auto_resize": self.params.auto_resize,
        }


PLUGIN = FluxKontext
