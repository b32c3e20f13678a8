"""OmniGen in diffusers: text with the reference in it (arXiv:2409.11340). Needs torchvision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from subjectbench.cards import GeneratorCard
from subjectbench.generators.base import Check, Job
from subjectbench.generators.native import Native, check_torchvision, torchvision_check

PLACE = "<img><|image_1|></img>"
"""Where the reference stands in the text."""


class OmniGen(Native):
    """Text and reference to picture."""

    pipelines = ("OmniGenPipeline",)

    class Params(Native.Params):
        """Parameters of an OmniGen card."""

        guidance_scale: float = Field(default=2.5, ge=1, description="Towards text and reference")
        image_guidance_scale: float = Field(default=1.6, ge=1, description="Towards the reference")
        height: int = Field(default=1024, ge=8, description="Pixels")
        width: int = Field(default=1024, ge=8, description="Pixels")
        max_input_size: int = Field(
            default=1024, ge=16, description="Larger references are made smaller"
        )

        @field_validator("template")
        @classmethod
        def _shows_the_reference(cls, template: str) -> str:
            if PLACE not in template:
                raise ValueError(f"'{PLACE}' is not in it, so the reference would not be seen")
            return template

    @classmethod
    def check(cls, params: Any, card: GeneratorCard, root: Path) -> None:
        """Refuse a machine without torchvision, which OmniGen's preprocessing is written with."""
        check_torchvision(card)

    @classmethod
    def checks(cls, params: Any, card: GeneratorCard, root: Path) -> list[Check]:
        """Say whether torchvision is here."""
        return [torchvision_check()]

    def load(self, folder: Path) -> Any:
        """Return the pipeline, with an encoder of references that draws no lots."""
        pipeline = super().load(folder)
        pipeline.encode_input_images = self._encoded
        return pipeline

    def _encoded(self, references: list[Any], device: Any = None, dtype: Any = None) -> list[Any]:
        """Latents of references: the mode of the VAE's distribution.

        The pipeline's own way draws from it without any seed, so that no picture could be made
        again.
        """
        vae = self.pipeline.vae
        place = device or self.pipeline._execution_device
        return [
            vae.encode(pixels.to(place, dtype or vae.dtype)).latent_dist.mode()
            * vae.config.scaling_factor
            for pixels in references
        ]

    def arguments(self, jobs: list[Job]) -> dict[str, Any]:
        """Return guidance and one list of references per job."""
        return {
            "input_images": [[job.reference] for job in jobs],
            "guidance_scale": self.params.guidance_scale,
            "img_guidance_scale": self.params.image_guidance_scale,
            "max_input_image_size": self.params.max_input_size,
        }


PLUGIN = OmniGen
