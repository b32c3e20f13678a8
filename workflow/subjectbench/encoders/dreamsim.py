"""DreamSim (Fu et al. 2023), the single-model variant: DINO ViT-B/16 with a low-rank update.

The published parts are DINO's own file and a PEFT adapter for the fused query, key and value of
each block. The update is added to the weights (``W + alpha / r * B A``), which then run as
``transformers.ViTModel``. The embedding is the class token after the last block, *before* the last
norm, minus the mean of its numbers; DreamSim's distance is one minus the cosine of two of them
(metric ``cosine_distance``). Source: package dreamsim 0.2.1, repository ssundaram21/dreamsim.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from subjectbench import checkpoint
from subjectbench.batches import fixed_batches
from subjectbench.cards import EncoderCard
from subjectbench.config import Strict
from subjectbench.encoders.base import Encoder, check_rgb
from subjectbench.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image

MEAN = (0.485, 0.456, 0.406)
DEVIATION = (0.229, 0.224, 0.225)

WHOLE = {
    "cls_token": "embeddings.cls_token",
    "pos_embed": "embeddings.position_embeddings",
    "patch_embed.proj.weight": "embeddings.patch_embeddings.projection.weight",
    "patch_embed.proj.bias": "embeddings.patch_embeddings.projection.bias",
    "norm.weight": "layernorm.weight",
    "norm.bias": "layernorm.bias",
}
BLOCK = {
    "norm1": "layernorm_before",
    "norm2": "layernorm_after",
    "attn.proj": "attention.o_proj",
    "mlp.fc1": "mlp.fc1",
    "mlp.fc2": "mlp.fc2",
}


class DreamSim(Encoder):
    """Squashes a picture to the model's square (bicubic, Pillow), ImageNet mean and deviation."""

    class Params(Strict):
        """Parameters of a DreamSim card."""

        backbone: str = Field(description="DINO's file in the weights' folder")
        adapter: str = Field(description="PEFT adapter in the weights' folder")
        heads: int = Field(ge=1, description="Attention heads")
        compute_batch: int = Field(default=12, ge=1, description="Rows of every forward pass")

    def __init__(self, params: Any, card: EncoderCard, device: str) -> None:
        super().__init__(params, card, device)
        import torch
        from transformers import ViTModel

        assert card.weights is not None
        path = checkpoint.folder(card.weights)
        file = path / params.backbone
        state = checkpoint.tensors(file)
        config = vit_config(state, file, params.heads)
        update = low_rank(checkpoint.tensors(path / params.adapter), path, params.adapter)
        self.model = checkpoint.from_tensors(
            ViTModel,
            config,
            vit_tensors(state, update, file),
            file,
            device,
            add_pooling_layer=False,
        )
        self.model.layernorm = torch.nn.Identity()

    def pixels(self, pictures: Sequence[Image.Image]) -> Any:
        """Preprocess RGB pictures. Returns a float32 tensor (n, 3, side, side)."""
        import numpy as np
        import torch
        from PIL import Image

        check_rgb(pictures)
        side = self.model.config.image_size
        size, how = (side, side), Image.Resampling.BICUBIC
        stack = np.stack([np.asarray(p.resize(size, how)) for p in pictures])
        values = torch.from_numpy(stack).permute(0, 3, 1, 2).float() / 255
        return (values - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(DEVIATION).view(3, 1, 1)

    def images(self, pictures: Sequence[Image.Image]) -> np.ndarray:
        """Embed RGB pictures. Returns float32 (n, hidden_size), each row with mean 0."""
        import numpy as np
        import torch

        rows = []
        with torch.inference_mode():
            for batch, count in fixed_batches(pictures, self.params.compute_batch):
                pixels = self.pixels(batch).to(self.device)
                states = self.model(pixel_values=pixels).last_hidden_state[:count, 0]
                rows.append((states - states.mean(1, keepdim=True)).cpu().numpy())
        width = self.model.config.hidden_size
        return np.concatenate(rows) if rows else np.zeros((0, width), np.float32)


def vit_config(state: Mapping[str, Any], where: Path, heads: int) -> Any:
    """Read the sizes of a ``ViTConfig`` off DINO's tensors.

    Raises:
        InputError: a tensor that tells a size is missing, or the width is no multiple of the heads.
    """
    from transformers import ViTConfig

    try:
        positions, width = state["pos_embed"].shape[1:]
        patch = state["patch_embed.proj.weight"].shape[-1]
        inner = state["blocks.0.mlp.fc1.weight"].shape[0]
    except KeyError as error:
        raise InputError(where, f"has no tensor {error}", "use DINO's own file") from None
    if width % heads:
        raise InputError(where, f"width {width} is no multiple of {heads} heads", "set the heads")
    return ViTConfig(
        hidden_size=width,
        num_hidden_layers=len({n.split(".")[1] for n in state if n.startswith("blocks.")}),
        num_attention_heads=heads,
        intermediate_size=inner,
        image_size=round((positions - 1) ** 0.5) * patch,
        patch_size=patch,
        hidden_act="gelu",
        layer_norm_eps=1e-6,
    )


def low_rank(state: Mapping[str, Any], folder: Path, name: str) -> dict[int, Any]:
    """Multiply out a PEFT adapter of fused query, key and value.

    Args:
        state: the adapter's tensors.
        folder: holds ``adapter_config.json`` beside the adapter.
        name: of the adapter's file.

    Returns:
        Update (3 x width, width), float32, by number of the block.

    Raises:
        InputError: the adapter is of another kind, or holds other tensors.
    """
    file = (folder / name).with_name("adapter_config.json")
    try:
        config = json.loads(file.read_text("utf-8"))
        scale = config["lora_alpha"] / config["r"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            file, f"cannot be read: {error}", "restore the adapter's folder"
        ) from error
    plain: dict[str, tuple[Any, ...]] = {
        "peft_type": ("LORA",),
        "bias": ("none",),
        "target_modules": (["qkv"],),
        **{key: (False, None) for key in ("use_rslora", "use_dora", "fan_in_fan_out")},
        **{key: ({}, None) for key in ("rank_pattern", "alpha_pattern")},
    }
    for key, allowed in plain.items():
        if config.get(key) not in allowed:
            raise InputError(file, f"{key} is {config.get(key)!r}", "use DreamSim's own adapter")
    parts: dict[int, dict[str, Any]] = {}
    for key, tensor in state.items():
        found = re.search(r"\.blocks\.(\d+)\.attn\.qkv\.lora_([AB])\.weight$", key)
        if not found:
            raise InputError(folder / name, f"tensor '{key}' is not known", "use DreamSim's own")
        parts.setdefault(int(found[1]), {})[found[2]] = tensor.float()
    for number, part in parts.items():
        if set(part) != {"A", "B"} or part["A"].shape[0] != config["r"]:
            raise InputError(folder / name, f"block {number} is incomplete", "use DreamSim's own")
    return {number: scale * part["B"] @ part["A"] for number, part in parts.items()}


def vit_tensors(state: Mapping[str, Any], update: Mapping[int, Any], where: Path) -> dict[str, Any]:
    """Rename and split DINO's tensors for ``ViTModel``, float32, with the update added.

    Raises:
        InputError: a name is not known, or the update is not one for every block.
    """
    out, used = {}, set()
    for name, raw in state.items():
        tensor = raw.float()
        number, _, rest = name.removeprefix("blocks.").partition(".")
        part, _, kind = rest.rpartition(".")
        if name in WHOLE:
            out[WHOLE[name]] = tensor
        elif name.startswith("blocks.") and part in BLOCK and kind in ("weight", "bias"):
            out[f"layers.{number}.{BLOCK[part]}.{kind}"] = tensor
        elif name.startswith("blocks.") and part == "attn.qkv" and kind in ("weight", "bias"):
            if kind == "weight":
                change = update.get(int(number))
                if change is None or change.shape != tensor.shape:
                    raise InputError(
                        where,
                        f"the adapter has no update of its block {number}",
                        "put both together",
                    )
                used.add(int(number))
                tensor = tensor + change
            for letter, value in zip("qkv", tensor.chunk(3), strict=True):
                out[f"layers.{number}.attention.{letter}_proj.{kind}"] = value.contiguous()
        else:
            raise InputError(where, f"tensor '{name}' is not known", "use DINO's own file")
    if set(update) != used:
        raise InputError(where, "has fewer blocks than the adapter", "put both together")
    return out


PLUGIN = DreamSim
