"""Loading a checkpoint so that nothing is guessed: every tensor is there, and no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from subjectbench.cards import ROOT, Weights
from subjectbench.errors import InputError
from subjectbench.hashing import sha256_file


def folder(weights: Weights) -> Path:
    """Local folder of a checkpoint: in the checkout, or in the hub's cache (fetched if need be).

    Raises:
        InputError: not there, or a file differs from the card's sha256.
    """
    if weights.path:
        path = ROOT / weights.path
        if not path.is_dir():
            raise InputError(path, "no such checkpoint folder", "restore it, or train it anew")
    else:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

        try:
            path = Path(
                snapshot_download(
                    str(weights.repository),
                    revision=weights.revision,
                    # Not the copies of the same weights for other frameworks.
                    allow_patterns=["*.json", "*.txt", "*.model", "*.safetensors", "*.bin"],
                )
            )
        except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
            raise InputError(
                weights.repository,
                f"cannot be fetched: {error}",
                "check the network, the licence gate and HF_TOKEN, or fill the hub cache first",
            ) from error
    for name, expected in weights.sha256.items():
        if not (path / name).is_file() or sha256_file(path / name) != expected:
            raise InputError(
                path / name,
                "is missing or not the file that the card names",
                "restore the file, or state the new sha256 in the card",
            )
    return path


def load(
    model_class: Any,
    weights: Weights | Path,
    device: str,
    ignore: tuple[str, ...] = (),
    **options: Any,
) -> Any:
    """Load a transformers model in float32 and evaluation mode.

    Args:
        model_class: e.g. ``transformers.CLIPModel``.
        weights: of the card, or the folder itself.
        device: torch device.
        ignore: beginnings of tensor names in the file that this class is known not to use.
        options: for the class's constructor.

    Raises:
        InputError: a file is damaged, or a tensor is missing, unexpected or of another shape.
            transformers would fill a missing one with random numbers and go on.
    """
    import torch
    from safetensors import SafetensorError

    path = folder(weights) if isinstance(weights, Weights) else weights
    try:
        model, info = model_class.from_pretrained(
            path,
            output_loading_info=True,
            dtype=torch.float32,
            ignore_mismatched_sizes=True,
            **options,
        )
    except (OSError, ValueError, SafetensorError) as error:
        raise InputError(path, f"cannot be read: {error}", "restore the files") from error
    faults = {
        "missing": sorted(info["missing_keys"]),
        "unexpected": sorted(
            k for k in info["unexpected_keys"] if not (ignore and k.startswith(ignore))
        ),
        "of another shape": sorted(str(k[0]) for k in info["mismatched_keys"]),
    }
    for fault, keys in faults.items():
        if keys:
            raise InputError(
                path, f"{len(keys)} tensors {fault}, first '{keys[0]}'", "use the right checkpoint"
            )
    return model.to(device).eval()


def check_tensors(model: Any, file: Path) -> None:
    """Compare a loaded model with the file that it came from; diffusers only logs differences.

    Raises:
        InputError: a tensor is missing in the file, or the model does not know it.
    """
    from safetensors import safe_open

    with safe_open(file, "pt") as stored:
        found = set(stored.keys())
    wanted = set(model.state_dict())
    for fault, keys in (("missing", wanted - found), ("unexpected", found - wanted)):
        if keys:
            raise InputError(
                file,
                f"{len(keys)} tensors {fault}, first '{min(keys)}'",
                "use the right checkpoint",
            )
