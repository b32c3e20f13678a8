"""open_clip's checkpoints and vocabulary, brought into the form of ``transformers.CLIPModel``.

open_clip keeps query, key and value of an attention in one matrix, its projections transposed, and
its own names. Here every tensor of its file becomes one or three of the model's; a name that is not
known stops, and so does a tensor of the model that none becomes (``checkpoint.from_tensors``).

Padding. open_clip pads texts with zeros, does not mask them, and pools at the highest token id,
which is the end token. transformers pads with the end token and pools at the first one. The text
tower is causal, so what follows the end token changes nothing, and both give the same embedding.

Source: repository mlfoundations/open_clip (layout of ViT models), openai/CLIP (vocabulary).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from subjectbench.errors import InputError

END = "<|endoftext|>"

WHOLE = {
    "logit_scale": "logit_scale",
    "token_embedding.weight": "text_model.embeddings.token_embedding.weight",
    "positional_embedding": "text_model.embeddings.position_embedding.weight",
    "ln_final.weight": "text_model.final_layer_norm.weight",
    "ln_final.bias": "text_model.final_layer_norm.bias",
    "text_projection": "text_projection.weight",
    "visual.class_embedding": "vision_model.embeddings.class_embedding",
    "visual.positional_embedding": "vision_model.embeddings.position_embedding.weight",
    "visual.conv1.weight": "vision_model.embeddings.patch_embedding.weight",
    "visual.ln_pre.weight": "vision_model.pre_layrnorm.weight",
    "visual.ln_pre.bias": "vision_model.pre_layrnorm.bias",
    "visual.ln_post.weight": "vision_model.post_layernorm.weight",
    "visual.ln_post.bias": "vision_model.post_layernorm.bias",
    "visual.proj": "visual_projection.weight",
}
TRANSPOSED = {"text_projection", "visual.proj"}
TOWERS = {
    "transformer.resblocks.": "text_model.encoder.layers.",
    "visual.transformer.resblocks.": "vision_model.encoder.layers.",
}
LAYER = {
    "ln_1": "layer_norm1",
    "ln_2": "layer_norm2",
    "attn.out_proj": "self_attn.out_proj",
    "mlp.c_fc": "mlp.fc1",
    "mlp.c_proj": "mlp.fc2",
}


def clip_tensors(state: Mapping[str, Any], where: Path) -> dict[str, Any]:
    """Rename, split and transpose the tensors of an open_clip ViT model, in float32.

    Args:
        state: tensors by open_clip's names.
        where: their file, for errors.

    Raises:
        InputError: a name is not known, an entry is no tensor, or a fused matrix cannot be split.
    """
    import torch

    out: dict[str, Any] = {}
    for name, tensor in state.items():
        if not isinstance(tensor, torch.Tensor):
            raise InputError(where, f"'{name}' is no tensor", "use the right checkpoint")
        for new, value in _renamed(name, tensor.float(), where):
            out[new] = value.contiguous()
    return out


def _renamed(name: str, tensor: Any, where: Path) -> Iterator[tuple[str, Any]]:
    if name in WHOLE:
        yield WHOLE[name], tensor.T if name in TRANSPOSED else tensor
        return
    tower = next((t for t in TOWERS if name.startswith(t)), "")
    number, _, rest = name.removeprefix(tower).partition(".")
    part, _, kind = rest.rpartition(".")
    if tower and number.isdigit() and part in LAYER and kind in ("weight", "bias"):
        yield f"{TOWERS[tower]}{number}.{LAYER[part]}.{kind}", tensor
    elif tower and number.isdigit() and rest in ("attn.in_proj_weight", "attn.in_proj_bias"):
        if tensor.shape[0] % 3:
            raise InputError(
                where, f"'{name}' is not three equal parts", "use the right checkpoint"
            )
        kind = rest.rpartition("_")[2]
        for letter, value in zip("qkv", tensor.chunk(3), strict=True):
            yield f"{TOWERS[tower]}{number}.self_attn.{letter}_proj.{kind}", value
    else:
        raise InputError(where, f"tensor '{name}' is not known", "use a ViT model of open_clip")


def clip_config(
    state: Mapping[str, Any], where: Path, vision_heads: int, text_heads: int, hidden_act: str
) -> Any:
    """Read the sizes of a ``CLIPConfig`` off an open_clip ViT model's tensors.

    Args:
        state: tensors by open_clip's names.
        where: their file, for errors.
        vision_heads: attention heads of the picture tower, which no tensor tells.
        text_heads: of the text tower.
        hidden_act: activation of both towers.

    Raises:
        InputError: a tensor that tells a size is missing, or the sizes contradict each other.
    """
    from transformers import CLIPConfig

    try:
        shape = {n: tuple(state[n].shape) for n in WHOLE}
        inner = {t: state[f"{t}0.mlp.c_fc.weight"].shape[0] for t in TOWERS}
    except KeyError as error:
        raise InputError(where, f"has no tensor {error}", "use a ViT model of open_clip") from None
    layers = {t: len({n.removeprefix(t).split(".")[0] for n in state if n.startswith(t)})
              for t in TOWERS}  # fmt: skip
    text, vision = TOWERS
    words, text_width = shape["token_embedding.weight"]
    width, _, patch, _ = shape["visual.conv1.weight"]
    grid = round((shape["visual.positional_embedding"][0] - 1) ** 0.5)
    if width % vision_heads or text_width % text_heads:
        raise InputError(
            where,
            f"widths {width} and {text_width} are not multiples of {vision_heads} and {text_heads} "
            "heads",
            "set the card's heads to the checkpoint's",
        )
    return CLIPConfig(
        projection_dim=shape["visual.proj"][1],
        text_config={
            "vocab_size": words,
            "hidden_size": text_width,
            "intermediate_size": inner[text],
            "num_hidden_layers": layers[text],
            "num_attention_heads": text_heads,
            "max_position_embeddings": shape["positional_embedding"][0],
            "hidden_act": hidden_act,
            "bos_token_id": words - 2,
            "eos_token_id": words - 1,
            "pad_token_id": words - 1,
        },
        vision_config={
            "hidden_size": width,
            "intermediate_size": inner[vision],
            "num_hidden_layers": layers[vision],
            "num_attention_heads": vision_heads,
            "image_size": grid * patch,
            "patch_size": patch,
            "hidden_act": hidden_act,
        },
    )


def clip_tokenizer(vocabulary: Path) -> Any:
    """Make a ``CLIPTokenizer`` of CLIP's vocabulary file, ``bpe_simple_vocab_16e6.txt.gz``.

    The file has more merges than the model has tokens for; the first 48,894 count.

    Raises:
        InputError: not there, or no gzip file of merges.
    """
    import gzip

    from transformers import CLIPTokenizer

    mend = "get bpe_simple_vocab_16e6.txt.gz from repository openai/CLIP"
    try:
        lines = gzip.decompress(vocabulary.read_bytes()).decode("utf-8").split("\n")
    except FileNotFoundError as error:
        raise InputError(vocabulary, "no such file", mend) from error
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise InputError(vocabulary, f"cannot be read: {error}", mend) from error
    merges = [tuple(line.split()) for line in lines[1:48895] if line]
    if any(len(merge) != 2 for merge in merges):
        raise InputError(vocabulary, "holds a line that is no merge of two", mend)
    # Bytes that print stand for themselves and come first, the others are moved up.
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = [chr(b) for b in plain] + [chr(256 + n) for n in range(256 - len(plain))]
    tokens = [*letters, *(f"{c}</w>" for c in letters), *("".join(m) for m in merges)]
    return CLIPTokenizer(
        vocab={t: i for i, t in enumerate([*tokens, "<|startoftext|>", END])}, merges=merges
    )
