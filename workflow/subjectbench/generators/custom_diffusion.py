"""Custom Diffusion: the subject's own keys and values, and its word."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from subjectbench import checkpoint
from subjectbench.errors import InputError
from subjectbench.generators.personal import Personal
from subjectbench.generators.stable_diffusion import StableDiffusion
from subjectbench.tuning.custom_diffusion import FILE, CustomDiffusion
from subjectbench.tuning.textual_inversion import FILE as WORD
from subjectbench.tuning.words import load_word


class CustomDiffusionSampler(Personal):
    """Loads word, keys and values by diffusers' own loaders."""

    tuning = CustomDiffusion

    class Params(CustomDiffusion.Params, StableDiffusion.Params):
        """Parameters of training and of sampling."""

    def take_up(self, folder: Path) -> None:
        """Load the subject's, and see that all of it is there."""
        unet, given = self.pipeline.unet, checkpoint.tensors(folder / FILE)
        load_word(self.pipeline, folder / WORD)
        # diffusers wants a processor for every attention, and safetensors keeps no empty ones.
        # Without the pipeline it would load nothing, and not say so.
        others: dict[str, Any] = {
            n: {} for n in unet.attn_processors if not n.endswith("attn2.processor")
        }
        unet.load_attn_procs({**given, **others}, _pipeline=self.pipeline)
        taken = {
            f"{name}.{part}"
            for name, processor in unet.attn_processors.items()
            for part in processor.state_dict()
        }
        if taken != set(given):
            first = min(taken ^ set(given))
            raise InputError(FILE, f"does not fit the UNet, first '{first}'", "train it anew")


PLUGIN = CustomDiffusionSampler
