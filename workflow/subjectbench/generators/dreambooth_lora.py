"""DreamBooth with LoRA: the subject's low-rank changes of the UNet."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from subjectbench.generators.adapters import load_lora
from subjectbench.generators.personal import Personal
from subjectbench.generators.stable_diffusion import StableDiffusion
from subjectbench.tuning.dreambooth_lora import FILE, DreamBoothLora


class DreamBoothLoraSampler(Personal):
    """Loads the adapter by diffusers' own loader."""

    tuning = DreamBoothLora

    class Params(DreamBoothLora.Params, StableDiffusion.Params):
        """Parameters of training and of sampling."""

        lora_scale: float = Field(default=1.0, ge=0, description="Of what the adapter adds")

    def take_up(self, folder: Path) -> None:
        """Load the adapter in place of the last subject's."""
        self.pipeline.unload_lora_weights()
        self.notes.pop("adapter", None)
        self.notes |= load_lora(self.pipeline, folder / FILE, "subject", self.params.lora_scale)


PLUGIN = DreamBoothLoraSampler
