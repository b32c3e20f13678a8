"""The contract of a per-subject method, and the training loop that all share.

A subject's outcome depends on its parameters, its reference and its seed alone: not on the
subjects before it, and not on how often the process was killed. The random numbers of a step come
from the seed and the step's number, so there is no random state to lose; a checkpoint holds the
trained tensors, the optimiser's state and the losses so far.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from subjectbench import checkpoint
from subjectbench.config import Strict
from subjectbench.tuning.words import check_template

if TYPE_CHECKING:
    import torch
    from PIL import Image

CHECKPOINT_SECONDS = 60.0
"""Least time between two checkpoints of a subject. Which steps are saved changes no byte."""


PIPELINES: tuple[str, ...] = ("StableDiffusionPipeline",)
"""Classes in ``model_index.json`` that can be trained."""


@dataclass(frozen=True)
class Subject:
    """What is learned from: one reference picture (RGB), and the noun of its class.

    ``seed`` is this subject's own, 0 to 2**31 - 1. ``class_pictures`` are pictures of others of
    its class, for methods that keep what the noun means.
    """

    noun: str
    reference: Image.Image
    seed: int
    class_pictures: list[Image.Image] = field(default_factory=list)


class Diverged(Exception):
    """The loss is no number any more: nothing that was trained is worth a picture."""


class Tuning(ABC):
    """Optimises something of Stable Diffusion 1.x for one subject at a time.

    Subclasses say what is trained (``begin``), how texts become conditions (``states``), what is
    written (``save``), and leave the model as it was before (``end``).
    """

    version: ClassVar[str] = "1"

    class Params(Strict):
        """Parameters of training: all that a trained file depends on, and nothing else."""

        training_steps: int = Field(ge=1, description="Optimiser steps per subject")
        learning_rate: float = Field(gt=0, description="AdamW's, constant, not scaled by batches")
        weight_decay: float = Field(default=0.01, ge=0)
        max_grad_norm: float = Field(default=1.0, ge=0, description="0: gradients are not clipped")
        training_batch: int = Field(
            default=1, ge=1, description="Noised copies of the reference per pass"
        )
        accumulate: int = Field(default=1, ge=1, description="Passes per optimiser step")
        name: str = Field(description="What the subject is called; {noun} is its class")
        training_templates: list[str] = Field(
            default=["a photo of a {name}"],
            min_length=1,
            description="Captions of the reference; one is drawn per copy",
        )
        resolution: int | None = Field(
            default=None, ge=8, description="Side of training pictures; none: the model's own"
        )
        flip: bool = Field(default=False, description="Mirror half of the copies")
        training_seed: int = Field(default=0, ge=0, description="Every subject's seed derives from")
        precision: Literal["float32", "bfloat16"] = Field(
            default="float32", description="Of forward passes; what is trained stays float32"
        )

    def __init__(self, params: Any, folder: Path, device: str) -> None:
        from diffusers import DDPMScheduler

        self.params, self.device = params, device
        pipeline = load_base(folder).to(device)
        self.tokenizer, self.text_encoder = pipeline.tokenizer, pipeline.text_encoder
        self.vae, self.unet = pipeline.vae, pipeline.unet
        self.noise = DDPMScheduler.from_config(pipeline.scheduler.config)
        side = self.unet.config.sample_size * pipeline.vae_scale_factor
        self.resolution = params.resolution or side
        for part in (self.text_encoder, self.vae, self.unet):
            part.requires_grad_(False)

    @classmethod
    def check(cls, params: Any, where: str) -> None:
        """Find faults in the templates before any work starts.

        Raises:
            InputError: naming the parameter and the mend.
        """
        check_template(params.name, ("noun",), f"{where}: name")
        for template in params.training_templates:
            check_template(template, ("name", "noun"), f"{where}: training_templates")

    @abstractmethod
    def begin(self, subject: Subject) -> dict[str, torch.nn.Parameter]:
        """Prepare for a subject; return what is trained, float32, by name."""

    @abstractmethod
    def states(self, texts: list[str]) -> torch.Tensor:
        """Condition for each text, (texts, tokens, width)."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write what was trained, in the form that is usual for the method."""

    def end(self) -> None:
        """Leave the model as it was before ``begin``."""
        return None

    def facts(self) -> dict[str, Any]:
        """Return what was decided for this subject, for its row; JSON types."""
        return {}

    def called(self, noun: str) -> str:
        """Name of a subject of this class."""
        return str(self.params.name.format(noun=noun))

    def tune(self, subject: Subject, saved: Path, folder: Path) -> list[float]:
        """Train for one subject, from its checkpoint if there is one, and write its files.

        Args:
            subject: whom to learn.
            saved: the checkpoint's file.
            folder: receives the files.

        Returns:
            The mean loss of each step.

        Raises:
            Diverged: a loss is not finite.
        """
        import torch

        torch.manual_seed(subject.seed)
        trained = self.begin(subject)
        try:
            losses = self._fit(subject, trained, saved)
            if not all(torch.isfinite(value).all() for value in trained.values()):
                raise Diverged(f"a trained tensor is not finite after step {len(losses)}")
            self.save(folder)
        finally:
            self.end()
        return losses

    def _fit(
        self, subject: Subject, trained: dict[str, torch.nn.Parameter], saved: Path
    ) -> list[float]:
        import torch

        params, tensors = self.params, list(trained.values())
        optimiser = torch.optim.AdamW(
            tensors, lr=params.learning_rate, weight_decay=params.weight_decay
        )
        losses = _resume(saved, trained, optimiser)
        pictures = self._encoded([subject.reference])
        others = self._encoded(subject.class_pictures) if subject.class_pictures else None
        last = time.monotonic()
        for step in range(len(losses), params.training_steps):
            rng = torch.Generator().manual_seed(step_seed(subject.seed, step))
            torch.manual_seed(step_seed(subject.seed, step))  # of whatever takes no generator
            total = 0.0
            for _ in range(params.accumulate):
                with torch.autocast(
                    torch.device(self.device).type,
                    torch.bfloat16,
                    enabled=params.precision == "bfloat16",
                ):
                    loss = self.loss(subject, pictures, others, rng) / params.accumulate
                loss.backward()
                total += loss.item()
            if not total < float("inf"):  # neither NaN nor infinite
                raise Diverged(f"loss {total} at step {step}")
            if params.max_grad_norm:
                torch.nn.utils.clip_grad_norm_(tensors, params.max_grad_norm)
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
            losses.append(total)
            now = time.monotonic()
            if now - last >= CHECKPOINT_SECONDS and step + 1 < params.training_steps:
                _keep(saved, trained, optimiser, losses)
                last = now
        return losses

    def loss(
        self,
        subject: Subject,
        pictures: torch.Tensor,
        others: torch.Tensor | None,
        rng: torch.Generator,
    ) -> torch.Tensor:
        """Mean squared error of the denoiser on noised copies of the reference."""
        import torch

        name = self.called(subject.noun)
        drawn = torch.randint(
            len(self.params.training_templates), (self.params.training_batch,), generator=rng
        )
        texts = [
            self.params.training_templates[i].format(name=name, noun=subject.noun) for i in drawn
        ]
        return self.error(self._latents(pictures, len(texts), rng), texts, rng)

    def error(self, latents: torch.Tensor, texts: list[str], rng: torch.Generator) -> torch.Tensor:
        """Mean squared error for latents and their texts at times drawn from all."""
        import torch

        noise = torch.randn(latents.shape, generator=rng).to(self.device)
        levels = self.noise.config.num_train_timesteps
        times = torch.randint(levels, (len(texts),), generator=rng).to(self.device)
        noised = self.noise.add_noise(latents, noise, times)
        kind = self.noise.config.prediction_type
        target = self.noise.get_velocity(latents, noise, times) if kind != "epsilon" else noise
        found = self.denoise(noised, times, texts)
        return torch.nn.functional.mse_loss(found.float(), target)

    def denoise(self, noised: torch.Tensor, times: torch.Tensor, texts: list[str]) -> torch.Tensor:
        """Return the UNet's answer to noised latents."""
        answer: torch.Tensor = self.unet(noised, times, self.states(texts)).sample
        return answer

    def encode(self, texts: list[str]) -> torch.Tensor:
        """Encode texts as the pipeline does: padded to the full length, the rest cut off."""
        states: torch.Tensor = self.text_encoder(self.ids(texts))[0]
        return states

    def ids(self, texts: list[str]) -> torch.Tensor:
        """Token ids, (texts, full length)."""
        ids: torch.Tensor = self.tokenizer(
            texts,
            padding="max_length",
            max_length=self.tokenizer.model_max_length,
            truncation=True,
            return_tensors="pt",
        ).input_ids.to(self.device)
        return ids

    def _encoded(self, pictures: list[Image.Image]) -> torch.Tensor:
        """Mean and deviation of each picture's latent, (pictures, flips, 2, channels, h, w).

        Each is encoded once: a step only draws from what the autoencoder says.
        """
        import torch

        out = []
        with torch.no_grad():
            for picture in pictures:
                pixels = to_tensor(picture, self.resolution)
                views = [pixels, pixels.flip(-1)] if self.params.flip else [pixels]
                found = [self.vae.encode(v[None].to(self.device)).latent_dist for v in views]
                out.append(torch.stack([torch.stack([f.mean[0], f.std[0]]) for f in found]))
        return torch.stack(out)

    def _latents(self, encoded: torch.Tensor, count: int, rng: torch.Generator) -> torch.Tensor:
        """Draw ``count`` latents from encoded pictures."""
        import torch

        which = torch.randint(encoded.shape[0], (count,), generator=rng)
        flipped = torch.randint(encoded.shape[1], (count,), generator=rng)
        mean, deviation = encoded[which, flipped].unbind(1)
        drawn = mean + deviation * torch.randn(mean.shape, generator=rng).to(mean.device)
        latents: torch.Tensor = drawn * self.vae.config.scaling_factor
        return latents


class PriorTuning(Tuning):
    """A method that also trains on pictures of the class, so that the noun keeps its meaning."""

    class Params(Tuning.Params):
        """Parameters of training, and of the class pictures."""

        class_template: str = Field(default="a photo of a {noun}")
        class_pictures: int = Field(default=0, ge=0, description="Per noun; 0: none are used")
        prior_weight: float = Field(default=1.0, ge=0, description="Of the loss on class pictures")
        class_steps: int = Field(default=50, ge=1, description="Denoising steps of class pictures")
        class_guidance: float = Field(default=7.5, ge=1)

    @classmethod
    def check(cls, params: Any, where: str) -> None:
        """Find faults in the templates before any work starts."""
        super().check(params, where)
        check_template(params.class_template, ("noun",), f"{where}: class_template")

    def loss(
        self,
        subject: Subject,
        pictures: torch.Tensor,
        others: torch.Tensor | None,
        rng: torch.Generator,
    ) -> torch.Tensor:
        """Error on the reference, plus the weighted one on pictures of the class."""
        loss = super().loss(subject, pictures, others, rng)
        if others is not None:
            count = self.params.training_batch
            texts = [self.params.class_template.format(noun=subject.noun)] * count
            loss = loss + self.params.prior_weight * self.error(
                self._latents(others, count, rng), texts, rng
            )
        return loss


def load_base(folder: Path) -> Any:
    """Load a Stable Diffusion 1.x pipeline on the CPU, in float32, without its safety checker.

    Raises:
        InputError: it is another pipeline, or one of its files does not fit.
    """
    without: dict[str, Any] = dict.fromkeys(
        ("safety_checker", "feature_extractor", "image_encoder")
    )
    pipeline = checkpoint.pipeline(folder, PIPELINES, **without)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def step_seed(seed: int, step: int) -> int:
    """Seed of one training step, 0 to 2**63 - 1."""
    digest = hashlib.sha256(f"{seed}/{step}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def to_tensor(picture: Image.Image, side: int) -> torch.Tensor:
    """Centre square of a picture at a size, float32 in -1 to 1, (3, side, side)."""
    import numpy as np
    import torch
    from PIL import Image as Pillow

    edge = min(picture.size)
    left, top = (picture.width - edge) // 2, (picture.height - edge) // 2
    square = picture.convert("RGB").resize(
        (side, side), Pillow.Resampling.BICUBIC, (left, top, left + edge, top + edge)
    )
    return torch.from_numpy(np.array(square)).permute(2, 0, 1).float() / 127.5 - 1


def _keep(saved: Path, trained: dict[str, Any], optimiser: Any, losses: list[float]) -> None:
    """Write a checkpoint; a kill leaves the old one or the new one."""
    import torch

    fresh = saved.with_name(f".{saved.name}")
    with fresh.open("wb") as file:
        torch.save(
            {
                "trained": {name: value.data for name, value in trained.items()},
                "optimiser": optimiser.state_dict(),
                "losses": losses,
            },
            file,
        )
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(saved)


def _resume(saved: Path, trained: dict[str, Any], optimiser: Any) -> list[float]:
    """Take up a checkpoint if there is one; return the losses of the steps that it holds."""
    import torch

    try:
        state = torch.load(saved, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        return []
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError):
        return []  # damaged: the steps are done again
    with torch.no_grad():
        for name, value in trained.items():
            value.copy_(state["trained"][name])
    optimiser.load_state_dict(state["optimiser"])
    return list(state["losses"])


def files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Every file of a folder by its name in it, sorted."""
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        yield path.relative_to(folder).as_posix(), path
