"""DreamBooth with LoRA (Hu et al., 2021): low-rank changes of the UNet's attention."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from subjectbench.tuning.base import Subject
from subjectbench.tuning.dreambooth import Fixed

if TYPE_CHECKING:
    import torch

FILE = "pytorch_lora_weights.safetensors"
TARGETS = ("to_k", "to_q", "to_v", "to_out.0")


class DreamBoothLora(Fixed):
    """Trains rank-``rank`` updates of all attention projections of the UNet."""

    class Params(Fixed.Params):
        """Parameters of training."""

        name: str = Field(default="sks {noun}")
        rank: int = Field(default=4, ge=1)
        alpha: float | None = Field(default=None, gt=0, description="None: equal to the rank")

    def begin(self, subject: Subject) -> dict[str, torch.nn.Parameter]:
        """Add the adapter; its second factor is zero, so nothing changes yet."""
        import torch
        from peft import LoraConfig

        self.unet.add_adapter(
            LoraConfig(
                r=self.params.rank,
                lora_alpha=self.params.alpha or self.params.rank,
                init_lora_weights="gaussian",
                target_modules=list(TARGETS),
            )
        )
        trained = {n: p for n, p in self.unet.named_parameters() if p.requires_grad}
        with torch.no_grad():
            for value in trained.values():
                value.data = value.data.float()
        return trained

    def save(self, folder: Path) -> None:
        """Write the adapter as ``load_lora_weights`` reads it, scale included."""
        from diffusers import StableDiffusionPipeline
        from diffusers.training_utils import _collate_lora_metadata
        from diffusers.utils import convert_state_dict_to_diffusers
        from peft import get_peft_model_state_dict

        layers = convert_state_dict_to_diffusers(get_peft_model_state_dict(self.unet))
        StableDiffusionPipeline.save_lora_weights(
            folder, unet_lora_layers=layers, **_collate_lora_metadata({"unet": self.unet})
        )
        _settle(folder / FILE)

    def end(self) -> None:
        """Take the adapter off."""
        super().end()
        self.unet.unload_lora()


def _settle(file: Path) -> None:
    """Give a file of tensors one form: its notes are written in the order of hash tables."""
    data = file.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header: dict[str, Any] = json.loads(data[8 : 8 + size])
    notes = header["__metadata__"]
    for name, text in notes.items():
        if text.startswith("{"):
            told = json.loads(text)
            lists = {n: sorted(v, key=str) for n, v in told.items() if isinstance(v, list)}
            notes[name] = json.dumps(told | lists, indent=2, sort_keys=True)
    header["__metadata__"] = dict(sorted(notes.items()))
    told = json.dumps(header, separators=(",", ":")).encode()
    told += b" " * (-len(told) % 8)  # the tensors stay aligned
    file.write_bytes(struct.pack("<Q", len(told)) + told + data[8 + size :])
