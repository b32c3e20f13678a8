"""HiPer: the prompt's encoding with the subject's tail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field

from subjectbench import checkpoint
from subjectbench.generators.base import Job
from subjectbench.generators.personal import Personal
from subjectbench.generators.stable_diffusion import StableDiffusion
from subjectbench.tuning.hiper import FILE, HiPer, with_tail


class HiPerSampler(Personal):
    """Encodes prompts itself, and puts the trained tail at their end."""

    tuning = HiPer

    class Params(HiPer.Params, StableDiffusion.Params):
        """Parameters of training and of sampling."""

        tail_scale: float = Field(default=0.8, ge=0, description="Of the tail; the authors: 0.8")

    def take_up(self, folder: Path) -> None:
        """Load the tail."""
        self.tail = checkpoint.tensors(folder / FILE)["hiper"].to(self.device)

    def arguments(self, jobs: list[Job]) -> dict[str, Any]:
        """Give the pipeline encoded prompts in place of texts."""
        states, _ = self.pipeline.encode_prompt(self.texts(jobs), self.device, 1, False)
        told = with_tail(states, self.params.tail_scale * self.tail)
        return {**super().arguments(jobs), "prompt": None, "prompt_embeds": told}


PLUGIN = HiPerSampler
