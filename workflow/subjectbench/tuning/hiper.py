"""HiPer (Han et al., 2023): the last few vectors of the encoded text carry the subject."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from subjectbench.tuning.base import Subject, Tuning

if TYPE_CHECKING:
    import torch

FILE = "hiper.safetensors"


class HiPer(Tuning):
    """Trains the tail of the text encoder's output (section 3.2); a prompt needs no new word.

    The tail starts as that of the caption itself, where every text has only padding.
    """

    class Params(Tuning.Params):
        """Parameters of training."""

        name: str = Field(default="{noun}")
        tail: int = Field(default=5, ge=1, description="Vectors that are trained")
        max_grad_norm: float = Field(default=0.0, ge=0)
        weight_decay: float = Field(default=0.0, ge=0)

    def begin(self, subject: Subject) -> dict[str, torch.nn.Parameter]:
        """Start from the caption's own tail."""
        import torch

        caption = self.params.training_templates[0]
        with torch.no_grad():
            text = caption.format(name=self.called(subject.noun), noun=subject.noun)
            own = self.encode([text])[0, -self.params.tail :]
        self.tail = torch.nn.Parameter(own.float().clone())
        return {"tail": self.tail}

    def states(self, texts: list[str]) -> torch.Tensor:
        """Encode, and put the trained tail in place of the text's own."""
        import torch

        with torch.no_grad():
            states = self.encode(texts)
        return with_tail(states, self.tail)

    def save(self, folder: Path) -> None:
        """Write the tail, (vectors, width)."""
        from safetensors.torch import save_file

        save_file({"hiper": self.tail.detach().cpu().contiguous()}, folder / FILE)


def with_tail(states: torch.Tensor, tail: torch.Tensor) -> torch.Tensor:
    """Put a tail in place of the last vectors of encoded texts, (texts, tokens, width)."""
    import torch

    tails = tail.to(states.dtype).expand(len(states), *tail.shape)
    return torch.cat([states[:, : -len(tail)], tails], 1)
