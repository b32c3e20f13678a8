"""Stable Diffusion in diffusers, with an IP-Adapter that shows it the reference.

Loads a folder or hub repository as ``StableDiffusionPipeline`` does. The miniworld's own small
pipeline comes through here exactly as a full-size checkpoint would.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import Field

from subjectbench import checkpoint
from subjectbench.batches import fixed_batches
from subjectbench.cards import GeneratorCard
from subjectbench.config import Strict
from subjectbench.errors import InputError
from subjectbench.generators.base import Generator, Job, Outcome, References
from subjectbench.images import from_floats


class StableDiffusion(Generator):
    """Text and reference to picture; each picture's noise comes from its own seed alone."""

    uses_torch = True

    class Params(Strict):
        """Parameters of a Stable Diffusion card."""

        steps: int = Field(default=50, ge=1, description="Denoising steps")
        guidance_scale: float = Field(default=7.5, ge=1, description="Of classifier-free guidance")
        template: str = Field(
            default="{prompt}", description="How {prompt} and {subject} are woven into the text"
        )
        adapter_folder: str | None = Field(
            default=None, description="Subfolder of the IP-Adapter; none: the reference is not seen"
        )
        adapter_file: str = Field(default="ip_adapter.safetensors")
        image_encoder_folder: str = Field(
            default="image_encoder", description="Inside the adapter's subfolder"
        )
        adapter_scale: float = Field(default=1.0, ge=0)
        compute_batch: int = Field(default=12, ge=1, description="Pictures per forward pass")

    def __init__(
        self, params: Any, card: GeneratorCard, references: References, device: str
    ) -> None:
        super().__init__(params, card, references, device)
        import torch
        from diffusers import StableDiffusionPipeline
        from transformers import CLIPTextModel

        if card.weights is None:
            raise InputError(f"{card.title}: weights", "is required", "name a folder or repository")
        folder = checkpoint.folder(card.weights)
        self.pipeline = StableDiffusionPipeline.from_pretrained(
            folder,
            dtype=torch.float32,
            text_encoder=checkpoint.load(CLIPTextModel, folder / "text_encoder", "cpu"),
            safety_checker=None,
            local_files_only=True,
        )
        for part in ("unet", "vae"):
            for file in sorted((folder / part).glob("*model.safetensors")):
                checkpoint.check_tensors(getattr(self.pipeline, part), file)
        if params.adapter_folder:
            if not (folder / params.adapter_folder / params.adapter_file).is_file():
                raise InputError(
                    folder / params.adapter_folder / params.adapter_file,
                    "the adapter's file is not there",
                    "without it every picture would ignore the reference",
                )
            self.pipeline.load_ip_adapter(
                str(folder),
                subfolder=params.adapter_folder,
                weight_name=params.adapter_file,
                image_encoder_folder=params.image_encoder_folder,
                local_files_only=True,
            )
            self.pipeline.set_ip_adapter_scale(params.adapter_scale)
        self.pipeline.to(device)
        self.pipeline.set_progress_bar_config(disable=True)

    def generate(self, jobs: list[Job]) -> list[Outcome]:
        """Return one picture per job; black or non-finite ones become ``invalid_image``."""
        outcomes: list[Outcome] = []
        for batch, count in fixed_batches(jobs, self.params.compute_batch):
            for pixels in self._batch(batch)[:count]:
                picture = from_floats(pixels)
                outcomes.append(Outcome(picture.image, picture.status, picture.details))
        return outcomes

    def _batch(self, jobs: list[Job]) -> np.ndarray:
        """Pictures (n, height, width, 3) in 0 to 1."""
        import torch

        unet = self.pipeline.unet.config
        shape = (1, unet.in_channels, unet.sample_size, unet.sample_size)
        # One generator per picture: with one for all, a picture would depend on its place.
        noise = [
            torch.randn(shape, generator=torch.Generator().manual_seed(job.seed)) for job in jobs
        ]
        extra: dict[str, Any] = {}
        with torch.inference_mode():
            if self.params.adapter_folder:
                # As embeddings: a list of pictures would be taken for references of one prompt.
                shown, nothing = self.pipeline.encode_image(
                    [job.reference for job in jobs], self.device, 1
                )
                guided = self.params.guidance_scale > 1
                both = torch.cat([nothing, shown]) if guided else shown
                extra["ip_adapter_image_embeds"] = [both[:, None]]
            pixels: np.ndarray = self.pipeline(
                prompt=[
                    self.params.template.format(prompt=j.prompt, subject=j.subject) for j in jobs
                ],
                latents=torch.cat(noise).to(self.device),
                num_inference_steps=self.params.steps,
                guidance_scale=self.params.guidance_scale,
                output_type="np",
                **extra,
            ).images
        return pixels


PLUGIN = StableDiffusion
