"""NeTI: a word whose meaning the trained network says anew at each step and layer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from subjectbench import checkpoint
from subjectbench.cards import GeneratorCard
from subjectbench.generators.base import Job, Outcome, References
from subjectbench.generators.personal import Personal
from subjectbench.generators.stable_diffusion import StableDiffusion
from subjectbench.tuning.neti import FILE, Layered, NeTI, encode_layers, make_mapper
from subjectbench.tuning.words import add_word


class NeTISampler(Personal):
    """Encodes the prompts in every denoising step, once per cross-attention."""

    tuning = NeTI

    class Params(NeTI.Params, StableDiffusion.Params):
        """Parameters of training and of sampling."""

    def __init__(
        self, params: Any, card: GeneratorCard, references: References, device: str
    ) -> None:
        super().__init__(params, card, references, device)
        pipeline = self.pipeline
        self.token = add_word(pipeline.tokenizer, pipeline.text_encoder)
        self.layered = Layered(pipeline.unet)
        self.told: list[str] = []

    def take_up(self, folder: Path) -> None:
        """Load the network."""
        import torch

        width = self.pipeline.text_encoder.config.hidden_size
        self.mapper = make_mapper(self.params, torch.ones(width), self.layered.count)
        self.mapper.load_state_dict(checkpoint.tensors(folder / FILE))
        self.mapper.to(self.device).eval()

    def texts(self, jobs: list[Job]) -> list[str]:
        """Return one text per job, and remember them for every step."""
        self.told = super().texts(jobs)
        return self.told

    def generate(self, jobs: list[Job]) -> list[Outcome]:
        """Return one picture per job."""
        unet = self.pipeline.unet
        hooks = [
            unet.register_forward_pre_hook(self._show, with_kwargs=True),
            unet.register_forward_hook(self._hide),
        ]
        try:
            return super().generate(jobs)
        finally:
            for hook in hooks:
                hook.remove()

    def _show(self, _: Any, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Before each step: encode the prompts for its time; the empty prompt stays as it is."""
        import torch

        pipeline = self.pipeline
        ids = pipeline.tokenizer(
            self.told,
            padding="max_length",
            max_length=pipeline.tokenizer.model_max_length,
            truncation=True,
            return_tensors="pt",
        ).input_ids.to(self.device)
        plain = named["encoder_hidden_states"]
        times = torch.as_tensor(inputs[1], device=self.device).expand(len(ids))
        keys, values = encode_layers(
            pipeline.text_encoder,
            self.mapper,
            ids,
            times,
            self.token,
            self.params.bypass,
            self.params.hidden,
        )
        empty = plain[: len(plain) - len(ids)]  # of guidance; none without it
        self.layered.keys = [torch.cat([empty, k.to(plain.dtype)]) for k in keys]
        self.layered.values = [torch.cat([empty, v.to(plain.dtype)]) for v in values]

    def _hide(self, *_: Any) -> None:
        self.layered.keys, self.layered.values = [], []


PLUGIN = NeTISampler
