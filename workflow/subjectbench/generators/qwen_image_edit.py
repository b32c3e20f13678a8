"""Qwen-Image-Edit "plus" (2509) in diffusers: edits the reference (arXiv:2508.02324).

Needs torchvision. The pipeline takes one picture at a time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field

from subjectbench.cards import GeneratorCard
from subjectbench.generators.base import Check, Job
from subjectbench.generators.native import Native, check_torchvision, torchvision_check


class QwenImageEdit(Native):
    """Reference and instruction to picture.

    The pipeline resizes the reference itself: to about one megapixel for the VAE, to 384 x 384
    pixels' area for the text encoder.
    """

    pipelines = ("QwenImageEditPlusPipeline",)

    class Params(Native.Params):
        """Parameters of a Qwen-Image-Edit card."""

        steps: int = Field(default=40, ge=1, description="Denoising steps")
        true_cfg_scale: float = Field(default=4.0, ge=1, description="Of classifier-free guidance")
        negative_prompt: str = Field(default=" ", description="What guidance leads away from")
        height: int = Field(default=1024, ge=8, description="Pixels")
        width: int = Field(default=1024, ge=8, description="Pixels")
        compute_batch: int = Field(default=1, ge=1, le=1, description="One: the pipeline's limit")

    @classmethod
    def check(cls, params: Any, card: GeneratorCard, root: Path) -> None:
        """Refuse a machine without torchvision, which Qwen's processor needs."""
        check_torchvision(card)

    @classmethod
    def checks(cls, params: Any, card: GeneratorCard, root: Path) -> list[Check]:
        """Say whether torchvision is here."""
        return [torchvision_check()]

    def arguments(self, jobs: list[Job]) -> dict[str, Any]:
        """Return guidance and the reference."""
        return {
            "image": [jobs[0].reference],
            "negative_prompt": [self.params.negative_prompt],
            "true_cfg_scale": self.params.true_cfg_scale,
        }


PLUGIN = QwenImageEdit
