"""What all diffusers pipelines share: loading, one noise per picture, memory, and pictures that
are none.
"""

from __future__ import annotations

import importlib.util
from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from subjectbench import checkpoint, devices
from subjectbench.batches import fixed_batches
from subjectbench.cards import GeneratorCard
from subjectbench.config import LOCATION, Strict
from subjectbench.errors import InputError
from subjectbench.generators.base import (
    Check,
    Generator,
    Job,
    Outcome,
    References,
    Template,
)
from subjectbench.images import from_floats
from subjectbench.vocabulary import Status


def torchvision_check() -> Check:
    """Whether torchvision is here: some pipelines of diffusers cannot be built without it."""
    here = importlib.util.find_spec("torchvision") is not None
    mend = "install the torchvision that belongs to your torch, e.g. 0.29.1 to 2.14.1"
    return Check("environment", here, "torchvision" + ("" if here else " is missing"), mend)


def check_torchvision(card: GeneratorCard) -> None:
    """Refuse a model that cannot be built here.

    Raises:
        InputError: no torchvision.
    """
    found = torchvision_check()
    if not found.ok:
        raise InputError(card.title, found.found, found.mend)


class Native(Generator):
    """A diffusers pipeline in this process."""

    uses_torch = True
    pipelines: ClassVar[tuple[str, ...]]
    """Class names in ``model_index.json`` that the plug-in can run."""

    class Params(Strict):
        """Parameters of every pipeline's card."""

        steps: int = Field(default=50, ge=1, description="Denoising steps")
        template: Template = Field(
            default="{prompt}", description="How {prompt} and {subject} are woven into the text"
        )
        height: int | None = Field(default=None, ge=8, description="Pixels; none: the model's own")
        width: int | None = Field(default=None, ge=8, description="Pixels; none: the model's own")
        dtype: Literal["float32", "float16", "bfloat16"] = "float32"
        variant: str | None = Field(
            default=None, description="Files of the repository to take, e.g. fp16"
        )
        compute_batch: int = Field(default=1, ge=1, description="Pictures per forward pass")
        offload: Literal["none", "model", "sequential"] = Field(
            default="none",
            # Where weights wait until they are needed changes no result.
            json_schema_extra=LOCATION,
            description="Keep in host memory what is not in use: whole models, or layer by layer",
        )

    def __init__(
        self, params: Any, card: GeneratorCard, references: References, device: str
    ) -> None:
        super().__init__(params, card, references, device)
        if card.weights is None:
            raise InputError(f"{card.title}: weights", "is required", "name a folder or repository")
        self.folder = checkpoint.folder(card.weights)
        self.notes: dict[str, Any] = {}
        """Kept with every picture's details."""
        self.pipeline = self.load(self.folder)
        self._watch_decoder()
        self.pipeline.set_progress_bar_config(disable=True)
        self._place()
        self.fits: int = params.compute_batch
        """Pictures per forward pass that the memory allows, as far as it was tried."""
        self.made = 0

    def load(self, folder: Path) -> Any:
        """Return the pipeline on the CPU, adapters and all."""
        return checkpoint.pipeline(
            folder, self.pipelines, self.params.dtype, self.params.variant, **self.parts(folder)
        )

    def parts(self, folder: Path) -> dict[str, Any]:
        """Parts of the pipeline that are not simply what the folder says, by name."""
        return {}

    def part(self, role: str) -> Path:
        """Folder of further weights of the card; the base's own if the card names none."""
        named = self.card.parts.get(role)
        return checkpoint.folder(named) if named else self.folder

    @abstractmethod
    def arguments(self, jobs: list[Job]) -> dict[str, Any]:
        """What the pipeline is called with, beside texts, noise and steps."""

    def texts(self, jobs: list[Job]) -> list[str]:
        """Return one text per job."""
        return [job.text(self.params.template) for job in jobs]

    def finished(self, pixels: np.ndarray) -> np.ndarray:
        """Cut the picture (height, width, 3) out of what the pipeline returned."""
        return pixels

    def generate(self, jobs: list[Job]) -> list[Outcome]:
        """Return one picture per job.

        Black, constant or non-finite ones become ``invalid_image``, those that a safety checker
        flagged ``filtered``. Where memory ends, fewer pictures go through the model at once, and
        their details say so: another shape may round the last digits differently.

        Raises:
            InputError: not one picture fits into memory, or the device is lost.
        """
        outcomes: list[Outcome] = []
        for batch, count in fixed_batches(jobs, self.params.compute_batch):
            outcomes += self._fitting(batch[:count])
        return outcomes

    def _fitting(self, jobs: list[Job]) -> list[Outcome]:
        while True:
            outcomes: list[Outcome] = []
            try:
                for batch, count in fixed_batches(jobs, self.fits):
                    outcomes += self._batch(batch)[:count]
                return outcomes
            except RuntimeError as error:
                devices.check_lost(error, self.device)
                if not devices.out_of_memory(error):
                    raise
                reason = str(error).split("\n")[0]
            # Here the traceback, and with it the tensors of the failed pass, is gone.
            devices.release_memory(self.device)
            if self.fits > 1:
                self.fits //= 2
                self.notes["pictures_per_pass"] = self.fits
            elif not self.made:
                raise InputError(
                    f"device {self.device}",
                    f"cannot hold one picture of {self.card.title}: {reason}",
                    "take a larger device, or params.offload: model (slower), or a smaller size",
                )
            elif len(jobs) == 1:
                return [Outcome(None, Status.FAILED, {**self.notes, "reason": reason})]
            else:
                return [outcome for job in jobs for outcome in self._fitting([job])]

    def _batch(self, jobs: list[Job]) -> list[Outcome]:
        import torch

        # One generator per picture: with one for all, a picture would depend on its place.
        noise = [torch.Generator().manual_seed(job.seed) for job in jobs]
        self._finite: list[bool] = []
        size = {n: getattr(self.params, n) for n in ("height", "width") if getattr(self.params, n)}
        with torch.inference_mode():
            made = self.pipeline(
                num_inference_steps=self.params.steps,
                generator=noise,
                output_type="np",
                **{"prompt": self.texts(jobs), **size, **self.arguments(jobs)},
            )
        flagged = getattr(made, "nsfw_content_detected", None) or [False] * len(jobs)
        # Decoded all at once, or in parts of which no picture is known.
        whole = self._finite if len(self._finite) == len(jobs) else [all(self._finite)] * len(jobs)
        self.made += len(jobs)
        return [
            self._outcome(*of) for of in zip(np.asarray(made.images), whole, flagged, strict=True)
        ]

    def _outcome(self, pixels: np.ndarray, finite: bool, flagged: bool) -> Outcome:
        if flagged:
            reason = "flagged by the model's safety checker"
            return Outcome(None, Status.FILTERED, {**self.notes, "reason": reason})
        if not finite:
            # The pipeline clips before it returns: infinity would come out as plain white.
            reason = "the decoder's values are not finite"
            return Outcome(None, Status.INVALID_IMAGE, {**self.notes, "reason": reason})
        picture = from_floats(self.finished(pixels))
        return Outcome(picture.image, picture.status, {**self.notes, **picture.details})

    def _watch_decoder(self) -> None:
        """Note for each picture whether the decoder's values are finite."""

        def watch(_module: Any, _given: Any, made: Any) -> None:
            self._finite += made.isfinite().flatten(1).all(1).tolist()

        self.pipeline.vae.decoder.register_forward_hook(watch)

    def _place(self) -> None:
        if self.params.offload == "none" or self.device == "cpu":
            self.pipeline.to(self.device)
        elif self.params.offload == "model":
            self.pipeline.enable_model_cpu_offload(device=self.device)
        else:
            self.pipeline.enable_sequential_cpu_offload(device=self.device)
