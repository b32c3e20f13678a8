"""Pictures of a class, made by the base model, on which methods keep what the noun means."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from subjectbench.batches import fixed_batches
from subjectbench.images import encode_png, from_floats
from subjectbench.tuning.base import load_base

COMPUTE_BATCH = 4


class NoPicture(Exception):
    """The base model made a picture that is none."""


class ClassPictures:
    """Makes pictures of classes; each depends on the text, the seed and its number alone."""

    version = "1"

    def __init__(self, folder: Path, device: str) -> None:
        self.pipeline, self.device = load_base(folder).to(device), device

    def make(self, text: str, first: int, count: int, spec: dict[str, Any]) -> dict[str, bytes]:
        """Make pictures ``first`` to ``first + count - 1`` of a text.

        Args:
            text: prompt.
            first: number of the first.
            count: how many.
            spec: ``seed``, ``steps`` and ``guidance``.

        Returns:
            File name to PNG.

        Raises:
            NoPicture: one is of one colour, or not finite.
        """
        import torch

        unet = self.pipeline.unet.config
        shape = (unet.in_channels, unet.sample_size, unet.sample_size)
        out: dict[str, bytes] = {}
        for batch, wanted in fixed_batches(range(first, first + count), COMPUTE_BATCH):
            noise = [
                torch.randn(shape, generator=torch.Generator().manual_seed(_seed(text, n, spec)))
                for n in batch
            ]
            with torch.inference_mode():
                pixels = self.pipeline(
                    prompt=[text] * len(batch),
                    latents=torch.stack(noise).to(self.device),
                    num_inference_steps=spec["steps"],
                    guidance_scale=spec["guidance"],
                    output_type="np",
                ).images
            for number, values in zip(batch[:wanted], pixels, strict=False):
                picture = from_floats(values)
                if picture.image is None:
                    raise NoPicture(f"class picture {number}: {picture.details['reason']}")
                out[f"{number:04d}.png"] = encode_png(picture.image)
        return out


def _seed(text: str, number: int, spec: dict[str, Any]) -> int:
    digest = hashlib.sha256(f"{spec['seed']}/{text}/{number}".encode()).digest()
    return int.from_bytes(digest[:4], "big") & 0x7FFFFFFF
