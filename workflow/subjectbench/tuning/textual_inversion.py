"""Textual Inversion (Gal et al., 2022): the embedding of one new word, the model frozen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from subjectbench.tuning.base import Subject, Tuning
from subjectbench.tuning.words import PLACEHOLDER, add_word, initial_tokens, meaning

if TYPE_CHECKING:
    import torch

FILE = "learned_embeds.safetensors"


class TextualInversion(Tuning):
    """Trains one vector in the text encoder's table (section 3, equation 2).

    It starts as the noun's own embedding, by the rule of :func:`~words.initial_tokens`.
    """

    class Params(Tuning.Params):
        """Parameters of training."""

        name: str = Field(default=PLACEHOLDER, description="Must say the new word")
        max_grad_norm: float = Field(default=0.0, ge=0)

    def __init__(self, params: Any, folder: Path, device: str) -> None:
        super().__init__(params, folder, device)
        self.token = add_word(self.tokenizer, self.text_encoder)

    def begin(self, subject: Subject) -> dict[str, torch.nn.Parameter]:
        """Start from the noun."""
        self.initial = initial_tokens(self.tokenizer, subject.noun)
        self.vector = start(self.text_encoder, self.initial)
        return {"word": self.vector}

    def states(self, texts: list[str]) -> torch.Tensor:
        """Encode with the word's present vector."""
        with meaning(self.text_encoder, self.token, self.vector):
            return self.encode(texts)

    def facts(self) -> dict[str, Any]:
        """Tell the tokens that it started from."""
        return {"initial": self.tokenizer.convert_ids_to_tokens(self.initial)}

    def save(self, folder: Path) -> None:
        """Write the one tensor as ``load_textual_inversion`` reads it."""
        save_word(self.vector, folder)


def start(text_encoder: Any, initial: list[int]) -> torch.nn.Parameter:
    """Mean embedding of some tokens as a new parameter, float32."""
    import torch

    rows = text_encoder.get_input_embeddings().weight.detach()[initial]
    return torch.nn.Parameter(rows.float().mean(0).clone())


def save_word(vector: torch.Tensor, folder: Path) -> None:
    """Write a word's vector, (1, width), under its token."""
    from safetensors.torch import save_file

    save_file({PLACEHOLDER: vector.detach().cpu()[None].contiguous()}, folder / FILE)
