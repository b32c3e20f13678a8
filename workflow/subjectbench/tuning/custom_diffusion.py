"""Custom Diffusion (Kumari et al., 2022): keys and values of cross-attention, and a new word."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from subjectbench.tuning.base import PriorTuning, Subject
from subjectbench.tuning.textual_inversion import save_word, start
from subjectbench.tuning.words import PLACEHOLDER, add_word, initial_tokens, meaning

if TYPE_CHECKING:
    import torch

FILE = "pytorch_custom_diffusion_weights.safetensors"


class CustomDiffusion(PriorTuning):
    """Trains what cross-attention makes of texts (section 3.2), through diffusers' processors."""

    class Params(PriorTuning.Params):
        """Parameters of training."""

        name: str = Field(default=f"{PLACEHOLDER} {{noun}}", description="Must say the new word")
        initial_word: str = Field(
            default="ktn", description="A rare word that the new one starts from"
        )

    def __init__(self, params: Any, folder: Path, device: str) -> None:
        super().__init__(params, folder, device)
        self.token = add_word(self.tokenizer, self.text_encoder)

    def begin(self, subject: Subject) -> dict[str, torch.nn.Parameter]:
        """Copy keys and values of every cross-attention into processors of their own."""
        from diffusers.models.attention_processor import CustomDiffusionAttnProcessor2_0

        self.initial = initial_tokens(self.tokenizer, self.params.initial_word)
        self.vector = start(self.text_encoder, self.initial)
        self.before = dict(self.unet.attn_processors)
        self.processors = {}
        for name in self.before:
            if not name.endswith("attn2.processor"):
                continue
            attention = self.unet.get_submodule(name.removesuffix(".processor"))
            rows, columns = attention.to_k.weight.shape
            processor = CustomDiffusionAttnProcessor2_0(
                train_kv=True, train_q_out=False, hidden_size=rows, cross_attention_dim=columns
            ).to(self.device)
            processor.to_k_custom_diffusion.load_state_dict(attention.to_k.state_dict())
            processor.to_v_custom_diffusion.load_state_dict(attention.to_v.state_dict())
            self.processors[name] = processor
        self.unet.set_attn_processor({**self.before, **self.processors})
        tensors = {
            f"{name}.{part}": value
            for name, processor in self.processors.items()
            for part, value in processor.named_parameters()
        }
        return {**tensors, "word": self.vector}

    def states(self, texts: list[str]) -> torch.Tensor:
        """Encode with the word's present vector."""
        with meaning(self.text_encoder, self.token, self.vector):
            return self.encode(texts)

    def facts(self) -> dict[str, Any]:
        """Tell the tokens that it started from."""
        return {"initial": self.tokenizer.convert_ids_to_tokens(self.initial)}

    def save(self, folder: Path) -> None:
        """Write keys and values under diffusers' names, and the word."""
        from safetensors.torch import save_file

        tensors = {
            f"{name}.{part}": value.detach().cpu().contiguous()
            for name, processor in self.processors.items()
            for part, value in processor.state_dict().items()
        }
        save_file(tensors, folder / FILE, {"format": "pt"})
        save_word(self.vector, folder)

    def end(self) -> None:
        """Put the base's processors back."""
        self.unet.set_attn_processor(self.before)
