"""BLIP as ImageReward fine-tuned it: a prompt read with a picture in view, one vector for the two.

A ViT-L/16 turns the picture into tokens; a BERT reads the prompt and attends to them in every
layer. The embedding is the state of the text's first token ([CLS]) after the last layer.
ImageReward's reward is a head on it (metric ``image_reward``).

The published file has BLIP's own names, which here become those of transformers'
``BlipVisionModel`` and ``BlipTextModel``; a name that is not known stops, and so does a tensor that
is missing. Two projections for BLIP's contrastive loss, where the file has them, are left out: the
reward never uses them.

Source: Xu et al. 2023; repositories THUDM/ImageReward and salesforce/BLIP (layout).
"""

from __future__ import annotations

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

MEAN = (0.48145466, 0.4578275, 0.40821073)
DEVIATION = (0.26862954, 0.26130258, 0.27577711)

WHOLE = {
    "cls_token": "embeddings.class_embedding",
    "pos_embed": "embeddings.position_embedding",
    "patch_embed.proj": "embeddings.patch_embedding",
    "norm": "post_layernorm",
}
BLOCK = {
    "norm1": "layer_norm1",
    "norm2": "layer_norm2",
    "attn.qkv": "self_attn.qkv",
    "attn.proj": "self_attn.projection",
    "mlp.fc1": "mlp.fc1",
    "mlp.fc2": "mlp.fc2",
}
TEXT, VISION = "blip.text_encoder.", "blip.visual_encoder."
UNUSED = ("mlp.", "blip.vision_proj.", "blip.text_proj.", f"{TEXT}embeddings.position_ids")


class BlipPair(Encoder):
    """Shorter side to the model's, bicubic, by Pillow; centre crop; CLIP's mean and deviation.

    Prompts longer than ``tokens`` lose their end, as in the reference; ``cut`` says by how much.
    """

    embeds_pairs = True

    class Params(Strict):
        """Parameters of a BLIP pair card."""

        checkpoint: str = Field(description="File of tensors in the weights' folder")
        vocabulary: str = Field(description="BERT's vocabulary in the weights' folder")
        vision_heads: int = Field(ge=1, description="Attention heads of the picture tower")
        text_heads: int = Field(ge=1, description="Attention heads of the text tower")
        tokens: int = Field(ge=3, description="Tokens of a prompt, [CLS] and [SEP] included")
        compute_batch: int = Field(default=12, ge=1, description="Rows of every forward pass")

    def __init__(self, params: Any, card: EncoderCard, device: str) -> None:
        super().__init__(params, card, device)
        from transformers import BlipVisionModel
        from transformers.models.blip.modeling_blip_text import BlipTextModel
        from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

        assert card.weights is not None
        path = checkpoint.folder(card.weights)
        file = path / params.checkpoint
        vision, text = towers(checkpoint.tensors(file), file)
        config = vision_config(vision, file, params.vision_heads)
        self.vision = checkpoint.from_tensors(BlipVisionModel, config, vision, file, device)
        config = text_config(text, file, params.text_heads, config.hidden_size)
        self.text = checkpoint.from_tensors(
            BlipTextModel, config, text, file, device, add_pooling_layer=False
        )
        self.tokenizer = bert_tokenizer(path / params.vocabulary, config.vocab_size)
        side = self.vision.config.image_size
        self.processor = CLIPImageProcessorPil(
            size={"shortest_edge": side},
            crop_size={"height": side, "width": side},
            image_mean=MEAN,
            image_std=DEVIATION,
        )

    def kept(self, size: tuple[int, int]) -> float:
        """Share of a picture of this width and height that is left by the centre crop."""
        return min(size) / max(size)

    def cut(self, texts: Sequence[str]) -> list[int]:
        """Tokens that each text has beyond ``tokens``."""
        rows = self.tokenizer(list(texts), verbose=False)["input_ids"] if texts else []
        return [max(0, len(row) - self.params.tokens) for row in rows]

    def pixels(self, pictures: Sequence[Image.Image]) -> Any:
        """Preprocess RGB pictures. Returns a float32 tensor (n, 3, side, side)."""
        check_rgb(pictures)
        return self.processor(images=pictures, return_tensors="pt")["pixel_values"]

    def images(self, pictures: Sequence[Image.Image]) -> np.ndarray:
        """Refuse: the model reads a picture with its prompt.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError

    def pairs(self, pictures: Sequence[Image.Image], texts: Sequence[str]) -> np.ndarray:
        """Embed RGB pictures, each with its prompt. Returns float32 (n, width of the text tower).

        Raises:
            ValueError: not as many texts as pictures.
        """
        import numpy as np
        import torch

        rows = []
        both = list(zip(pictures, texts, strict=True))
        with torch.inference_mode():
            for batch, count in fixed_batches(both, self.params.compute_batch):
                rows.append(self._batch(batch)[:count].cpu().numpy())
        return np.concatenate(rows) if rows else np.zeros((0, self.text.config.hidden_size), "f4")

    def _batch(self, batch: Sequence[tuple[Image.Image, str]]) -> Any:
        pixels = self.pixels([picture for picture, _ in batch]).to(self.device)
        tokens = self.tokenizer(
            [text for _, text in batch],
            padding="max_length",
            truncation=True,
            max_length=self.params.tokens,
            return_tensors="pt",
        ).to(self.device)
        # The picture's tokens all count, so cross-attention needs no mask.
        states = self.text(
            input_ids=tokens["input_ids"],
            attention_mask=tokens["attention_mask"],
            encoder_hidden_states=self.vision(pixel_values=pixels).last_hidden_state,
        )
        return states.last_hidden_state[:, 0]


def towers(state: Mapping[str, Any], where: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Part a published file into the tensors of ``BlipVisionModel`` and ``BlipTextModel``, float32.

    Args:
        state: tensors by the published names.
        where: their file, for errors.

    Raises:
        InputError: a name is not known, or an entry is no tensor.
    """
    import torch

    vision: dict[str, Any] = {}
    text: dict[str, Any] = {}
    for name, tensor in state.items():
        if not isinstance(tensor, torch.Tensor):
            raise InputError(where, f"'{name}' is no tensor", "use the right checkpoint")
        if name.startswith(UNUSED):
            continue
        if name.startswith(TEXT):  # transformers kept BLIP's names for the text tower
            text[name.removeprefix(TEXT)] = tensor.float()
        else:
            vision[_vision_name(name, where)] = tensor.float()
    return vision, text


def _vision_name(name: str, where: Path) -> str:
    own = name.removeprefix(VISION) if name.startswith(VISION) else ""
    part, _, kind = own.rpartition(".")
    block = re.fullmatch(r"blocks\.(\d+)\.(.+)", part)
    if own in WHOLE:
        return WHOLE[own]
    if part in WHOLE:
        return f"{WHOLE[part]}.{kind}"
    if block and block[2] in BLOCK:
        return f"encoder.layers.{block[1]}.{BLOCK[block[2]]}.{kind}"
    raise InputError(where, f"tensor '{name}' is not known", "use ImageReward.pt of the hub")


def vision_config(state: Mapping[str, Any], where: Path, heads: int) -> Any:
    """Read the sizes of a ``BlipVisionConfig`` off converted tensors.

    Raises:
        InputError: a tensor that tells a size is missing, or the width is no multiple of the heads.
    """
    from transformers import BlipVisionConfig

    patches = _shape(state, "embeddings.patch_embedding.weight", where)
    positions = _shape(state, "embeddings.position_embedding", where)[1]
    _check_heads(patches[0], heads, where)
    return BlipVisionConfig(
        hidden_size=patches[0],
        intermediate_size=_shape(state, "encoder.layers.0.mlp.fc1.weight", where)[0],
        num_hidden_layers=_layers(state, "encoder.layers."),
        num_attention_heads=heads,
        image_size=round((positions - 1) ** 0.5) * patches[-1],
        patch_size=patches[-1],
        hidden_act="gelu",
        layer_norm_eps=1e-6,  # timm's, not transformers' 1e-5
    )


def text_config(state: Mapping[str, Any], where: Path, heads: int, vision_width: int) -> Any:
    """Read the sizes of a ``BlipTextConfig``, attending to a picture, off converted tensors.

    Raises:
        InputError: a tensor that tells a size is missing, or the width is no multiple of the heads.
    """
    from transformers.models.blip.configuration_blip import BlipTextConfig

    words, width = _shape(state, "embeddings.word_embeddings.weight", where)
    _check_heads(width, heads, where)
    return BlipTextConfig(
        vocab_size=words,
        hidden_size=width,
        encoder_hidden_size=vision_width,
        intermediate_size=_shape(state, "encoder.layer.0.intermediate.dense.weight", where)[0],
        num_hidden_layers=_layers(state, "encoder.layer."),
        num_attention_heads=heads,
        max_position_embeddings=_shape(state, "embeddings.position_embeddings.weight", where)[0],
        hidden_act="gelu",
        layer_norm_eps=1e-12,
        bos_token_id=None,  # transformers would warn of ids that belong to other models
        sep_token_id=None,
        is_decoder=True,  # gives the layers their cross-attention; the call asks for no causal mask
    )


def _shape(state: Mapping[str, Any], name: str, where: Path) -> tuple[int, ...]:
    if name not in state:
        raise InputError(where, f"has no tensor '{name}'", "use ImageReward.pt of the hub")
    return tuple(state[name].shape)


def _layers(state: Mapping[str, Any], prefix: str) -> int:
    return len({n.removeprefix(prefix).split(".")[0] for n in state if n.startswith(prefix)})


def _check_heads(width: int, heads: int, where: Path) -> None:
    if width % heads:
        raise InputError(
            where,
            f"width {width} is no multiple of {heads} heads",
            "set the card's heads to the checkpoint's",
        )


def bert_tokenizer(vocabulary: Path, words: int) -> Any:
    """Make a ``BertTokenizer`` (lower case) of a vocabulary file, one token a line.

    BLIP added two tokens to BERT's, which ImageReward never writes: the model knows ``words``.

    Raises:
        InputError: not there, not UTF-8, or not of the model's size.
    """
    from transformers import BertTokenizer

    mend = "get vocab.txt from google-bert/bert-base-uncased on the hub"
    try:
        tokens = vocabulary.read_text("utf-8").splitlines()
    except FileNotFoundError as error:
        raise InputError(vocabulary, "no such file", mend) from error
    except UnicodeDecodeError as error:
        raise InputError(vocabulary, f"not UTF-8 at byte {error.start}", mend) from error
    if len(tokens) != words - 2:
        raise InputError(
            vocabulary, f"holds {len(tokens)} tokens, the model needs {words - 2}", mend
        )
    return BertTokenizer(vocab={token: i for i, token in enumerate(tokens)})


PLUGIN = BlipPair
