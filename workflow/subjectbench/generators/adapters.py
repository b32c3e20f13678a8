"""LoRAs and IP-Adapters, loaded so that all of the file is used and all of the adapter filled.

diffusers writes a line to the log where a file does not fit and goes on with the base model alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from subjectbench import checkpoint
from subjectbench.errors import InputError

FITTING = "use the file that was made for this base model"


def load_lora(pipeline: Any, file: Path, name: str, scale: float = 1.0) -> dict[str, Any]:
    """Load a LoRA into the pipeline's denoiser, and into its text encoders where the file does.

    Args:
        pipeline: of diffusers, on the CPU.
        file: safetensors in any form that diffusers reads.
        name: of the adapter.
        scale: of what it adds.

    Returns:
        Notes for every picture: that the file changes nothing, if so.

    Raises:
        InputError: no such file, no or not every key of it fits, or not every module of the
            adapter has its tensor.
    """
    if not file.is_file():
        mend = "without it every picture would be the base model's"
        raise InputError(file, "the LoRA's file is not there", mend)
    place = {"weight_name": file.name, "local_files_only": True}
    try:
        read = pipeline.lora_state_dict(str(file.parent), **place)
        found = read[0] if isinstance(read, tuple) else read
        known = tuple(pipeline._lora_loadable_modules)
        strange = sorted(k for k in found if not k.startswith(tuple(f"{n}." for n in known)))
        if strange or not found:
            first = f", first '{strange[0]}'" if strange else ""
            fault = f"{len(strange)} of {len(found)} keys fit no part of the pipeline{first}"
            raise InputError(file, fault, f"keys begin with one of {', '.join(known)}")
        pipeline.load_lora_weights(str(file.parent), adapter_name=name, **place)
    except (ValueError, KeyError, RuntimeError, OSError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(file, f"cannot be loaded: {_first_line(error)}", FITTING) from error
    for part in known:
        given = {
            k.removeprefix(f"{part}."): v for k, v in found.items() if k.startswith(f"{part}.")
        }
        if given:
            _compare(file, part, _shapes(given), _shapes(_filled(getattr(pipeline, part), name)))
    pipeline.set_adapters([name], adapter_weights=[scale])
    if any(v.any() for k, v in found.items() if ".lora_B" in k or ".up." in k):
        return {}
    warnings.warn(f"{file}: all its 'up' matrices are zero: it changes no picture", stacklevel=2)
    return {"adapter": "without effect"}


def _filled(model: Any, name: str) -> dict[str, Any]:
    """Tensors of an adapter as they are in a model."""
    from peft import get_peft_model_state_dict

    if name not in getattr(model, "peft_config", {}):
        return {}
    return dict(get_peft_model_state_dict(model, adapter_name=name))


def _shapes(tensors: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Shapes by name, without what only tells the form of a file.

    ``x.lora.up.weight`` and ``x.lora_B.weight`` are one.
    """
    out = {}
    for key, tensor in tensors.items():
        for old, new in ((".lora.up.", ".lora_B."), (".lora.down.", ".lora_A.")):
            key = key.replace(old, new)
        for side, to in (("q", "to_q"), ("k", "to_k"), ("v", "to_v"), ("out", "to_out.0")):
            for old, new in (("up", "lora_B"), ("down", "lora_A")):
                key = key.replace(f".processor.to_{side}_lora.{old}.", f".{to}.{new}.")
        if not key.endswith(".alpha"):
            out[key] = tuple(tensor.shape)
    return out


def _compare(
    file: Path, part: str, given: dict[str, tuple[int, ...]], filled: dict[str, tuple[int, ...]]
) -> None:
    # diffusers fills up with zeros what is too small for a layer of FLUX.
    other = {k for k in given.keys() & filled.keys() if given[k] != filled[k]}
    for fault, keys in (
        ("not used", given.keys() - filled.keys()),
        ("missing", filled.keys() - given.keys()),
        ("of another shape than their layers", other),
    ):
        if keys:
            raise InputError(
                file, f"{len(keys)} tensors of {part} {fault}, first '{min(keys)}'", FITTING
            )


def image_processor(folder: Path) -> Any:
    """Read the preprocessing of CLIP's pictures, done with Pillow."""
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    return CLIPImageProcessorPil.from_pretrained(folder)


def load_ip_adapter(pipeline: Any, file: Path, encoder: Path, scale: float) -> None:
    """Load an IP-Adapter and the image encoder that it sees with.

    Args:
        pipeline: of diffusers, on the CPU.
        file: ``.safetensors`` or ``.bin`` in the form of h94/IP-Adapter.
        encoder: folder of a CLIP vision model with projection.
        scale: of the picture beside the text, 0 to 1.

    Raises:
        InputError: a file is not there, tensors are missing, left over or of another shape, or
            the encoder's vectors are not as wide as the adapter wants them.
    """
    from transformers import CLIPVisionModelWithProjection
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    if not file.is_file():
        mend = "without it every picture would ignore the reference"
        raise InputError(file, "the adapter's file is not there", mend)
    if not (encoder / "config.json").is_file():
        mend = "the adapter sees the reference through it; name params.image_encoder_folder"
        raise InputError(encoder, "no image encoder there", mend)
    parts = _ip_tensors(file)
    dtype = str(pipeline.unet.dtype).removeprefix("torch.")
    model = checkpoint.load(CLIPVisionModelWithProjection, encoder, "cpu", checkpoint.UNUSED, dtype)
    pipeline.register_modules(image_encoder=model)
    if pipeline.feature_extractor is None:
        size = model.config.image_size
        pipeline.register_modules(
            feature_extractor=CLIPImageProcessorPil(
                size={"shortest_edge": size}, crop_size={"height": size, "width": size}
            )
        )
    try:
        pipeline.load_ip_adapter(
            parts, subfolder=None, weight_name=file.name, image_encoder_folder=None
        )
    except (ValueError, KeyError, RuntimeError) as error:
        raise InputError(file, f"does not fit: {_first_line(error)}", FITTING) from error
    unet = pipeline.unet
    modules = [p for p in unet.attn_processors.values() if hasattr(p, "to_k_ip")]
    projection = unet.encoder_hid_proj.image_projection_layers[0]
    for part, filled in (("ip_adapter", modules), ("image_proj", [projection])):
        # Numbers, not names: diffusers renames, splits and joins the tensors of some adapters.
        given = sum(t.numel() for t in parts[part].values())
        taken = sum(v.numel() for module in filled for v in module.parameters())
        if given != taken:
            fault = f"holds {given} numbers of {part}, this base model takes {taken}"
            raise InputError(file, fault, FITTING)
    _check_width(file, projection, model.config)
    pipeline.set_ip_adapter_scale(scale)


def takes_hidden_states(pipeline: Any) -> bool:
    """Whether the IP-Adapter reads all of the encoder's tokens, not one vector ("plus")."""
    return hasattr(pipeline.unet.encoder_hid_proj.image_projection_layers[0], "proj_in")


def _ip_tensors(file: Path) -> dict[str, dict[str, Any]]:
    """Tensors of an adapter by part and name."""
    found = checkpoint.tensors(file)
    if file.suffix == ".safetensors":
        parts: dict[str, dict[str, Any]] = {"image_proj": {}, "ip_adapter": {}}
        for key, tensor in found.items():
            part, _, name = key.partition(".")
            parts.setdefault(part, {})[name] = tensor
        found = parts
    strange = sorted(set(found) - {"image_proj", "ip_adapter"})
    if strange or not all(found.get(part) for part in ("image_proj", "ip_adapter")):
        fault = f"keys begin with '{strange[0]}'" if strange else "is no IP-Adapter"
        raise InputError(file, fault, "keys begin with image_proj and ip_adapter")
    return found


def _check_width(file: Path, projection: Any, encoder: Any) -> None:
    if hasattr(projection, "image_embeds"):
        wanted, given = projection.image_embeds.in_features, encoder.projection_dim
    elif hasattr(projection, "proj_in"):
        wanted, given = projection.proj_in.in_features, encoder.hidden_size
    else:
        return
    if wanted != given:
        raise InputError(
            file,
            f"wants pictures as {wanted} numbers, the image encoder gives {given}",
            "name the encoder that belongs to this adapter in params.image_encoder_folder",
        )


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:300]
