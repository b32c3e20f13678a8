"""Stable Diffusion 1.x and XL in diffusers, alone or with an IP-Adapter that sees the reference.

Loads a folder or hub repository as ``StableDiffusionPipeline`` and ``StableDiffusionXLPipeline``
do. The miniworld's own small pipeline comes through here exactly as a full-size checkpoint would.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from subjectbench.errors import InputError
from subjectbench.generators import adapters
from subjectbench.generators.base import Job
from subjectbench.generators.native import Native


class StableDiffusion(Native):
    """Text, and with an IP-Adapter the reference, to picture.

    IP-Adapter: Ye et al. 2023, arXiv:2308.06721; its file may lie in the base's folder or be the
    card's part ``adapter``. References that are not square are cropped to their centre, as its
    image encoder's preprocessing does.
    """

    pipelines: ClassVar[tuple[str, ...]] = (
        "StableDiffusionPipeline",
        "StableDiffusionXLPipeline",
    )

    class Params(Native.Params):
        """Parameters of a Stable Diffusion card."""

        guidance_scale: float = Field(default=7.5, ge=1, description="Of classifier-free guidance")
        negative_prompt: str = Field(default="", description="What guidance leads away from")
        adapter_folder: str | None = Field(
            default=None, description="Subfolder of the IP-Adapter; none: the reference is not seen"
        )
        adapter_file: str = Field(default="ip_adapter.safetensors")
        image_encoder_folder: str = Field(
            default="image_encoder",
            description="Inside the adapter's subfolder, or with a slash from the top",
        )
        adapter_scale: float = Field(default=1.0, ge=0)
        compute_batch: int = Field(default=12, ge=1, description="Pictures per forward pass")
        safety_checker: bool = Field(
            default=False, description="Run the checkpoint's own; what it flags becomes 'filtered'"
        )

    def parts(self, folder: Path) -> dict[str, Any]:
        """Return what is not simply what the folder says: safety checker and preprocessing."""
        out: dict[str, Any] = {}
        if not self.params.safety_checker:
            out["safety_checker"] = None
        elif not (folder / "safety_checker").is_dir():
            mend = "set params.safety_checker: false, or name a checkpoint that has one"
            raise InputError(folder / "safety_checker", "the checkpoint has none", mend)
        if (folder / "feature_extractor").is_dir():
            # Said by name: with torchvision there, transformers would resize with that instead.
            out["feature_extractor"] = adapters.image_processor(folder / "feature_extractor")
        return out

    def load(self, folder: Path) -> Any:
        """Return the pipeline on the CPU, with its adapter if it has one."""
        pipeline = super().load(folder)
        if self.params.adapter_folder:
            home = self.part("adapter")
            encoder = self.params.image_encoder_folder
            inside = home if "/" in encoder else home / self.params.adapter_folder
            adapters.load_ip_adapter(
                pipeline,
                home / self.params.adapter_folder / self.params.adapter_file,
                inside / encoder,
                self.params.adapter_scale,
            )
        return pipeline

    def arguments(self, jobs: list[Job]) -> dict[str, Any]:
        """Guidance, and the reference as the adapter takes it."""
        import torch

        out: dict[str, Any] = {"guidance_scale": self.params.guidance_scale}
        if self.params.negative_prompt:
            out["negative_prompt"] = [self.params.negative_prompt] * len(jobs)
        if self.params.adapter_folder:
            # As embeddings: a list of pictures would be taken for references of one prompt.
            shown, nothing = self.pipeline.encode_image(
                [job.reference for job in jobs],
                self.device,
                1,
                adapters.takes_hidden_states(self.pipeline),
            )
            guided = self.params.guidance_scale > 1
            both = torch.cat([nothing, shown]) if guided else shown
            out["ip_adapter_image_embeds"] = [both[:, None]]
        return out


PLUGIN = StableDiffusion
