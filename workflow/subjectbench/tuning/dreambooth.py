"""DreamBooth (Ruiz et al., 2022): the whole UNet learns a rare word before the class noun."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from subjectbench.tuning.base import PriorTuning, Subject

if TYPE_CHECKING:
    import torch

FOLDER, FILE = "unet", "diffusion_pytorch_model.safetensors"


class Fixed(PriorTuning):
    """A method that leaves the text encoder alone, so that each text is encoded once."""

    def __init__(self, params: Any, folder: Path, device: str) -> None:
        super().__init__(params, folder, device)
        self._known: dict[str, torch.Tensor] = {}

    def states(self, texts: list[str]) -> torch.Tensor:
        """Encode with the frozen text encoder."""
        import torch

        with torch.no_grad():
            for text in texts:
                if text not in self._known:
                    self._known[text] = self.encode([text])[0]
        return torch.stack([self._known[text] for text in texts])

    def end(self) -> None:
        """Forget the texts."""
        self._known = {}


class DreamBooth(Fixed):
    """Trains all of the UNet (section 3.2), with prior preservation if class pictures are asked."""

    class Params(Fixed.Params):
        """Parameters of training."""

        name: str = Field(default="sks {noun}")
        gradient_checkpointing: bool = Field(default=False, description="Less memory, more time")
        saved: Literal["float32", "float16"] = Field(
            default="float16", description="Type of the written UNet: 1.7 GB each for SD 1.5"
        )

    def __init__(self, params: Any, folder: Path, device: str) -> None:
        super().__init__(params, folder, device)
        self.base = {n: v.detach().cpu().clone() for n, v in self.unet.state_dict().items()}
        if params.gradient_checkpointing:
            self.unet.enable_gradient_checkpointing()

    def begin(self, subject: Subject) -> dict[str, torch.nn.Parameter]:
        """Free every tensor of the UNet."""
        self.unet.train(self.params.gradient_checkpointing)  # it only works in training mode
        self.unet.requires_grad_(True)
        return dict(self.unet.named_parameters())

    def save(self, folder: Path) -> None:
        """Write the UNet's folder as diffusers does."""
        import torch
        from safetensors.torch import save_file

        kind = getattr(torch, self.params.saved)
        (folder / FOLDER).mkdir()
        tensors = {n: v.detach().cpu().to(kind).contiguous() for n, v in self._state().items()}
        save_file(tensors, folder / FOLDER / FILE, {"format": "pt"})

    def _state(self) -> dict[str, torch.Tensor]:
        state: dict[str, torch.Tensor] = self.unet.state_dict()
        return state

    def end(self) -> None:
        """Put the base's tensors back."""
        super().end()
        self.unet.requires_grad_(False)
        self.unet.load_state_dict(self.base)
