"""Loading a checkpoint so that nothing is guessed: every tensor is there, and no other."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from subjectbench.cards import ROOT, Weights
from subjectbench.errors import InputError
from subjectbench.hashing import sha256_file

PATTERNS = ["*.json", "*.txt", "*.model", "*.safetensors", "*.bin"]
"""What is fetched of a repository: not the copies of the same weights for other frameworks."""


def folder(weights: Weights) -> Path:
    """Local folder of a checkpoint: in the checkout, in a package, or in the hub's cache.

    The hub's is fetched if need be.

    Raises:
        InputError: not there, or a file differs from the card's sha256.
    """
    if weights.path:
        path = ROOT / weights.path
    elif weights.package:
        path = _package(weights.package)
    else:
        path = _snapshot(weights)
    check(path, weights)
    return path


def check_pinned(weights: Weights, where: str) -> None:
    """Refuse a repository without a commit: nobody could say later which weights it was.

    Raises:
        InputError: naming the field of the card.
    """
    if weights.repository and not weights.revision:
        raise InputError(
            f"{where}.revision",
            f"says not which commit of {weights.repository}",
            "'subjectbench pin CARD' writes today's; or take a commit from the model's page",
        )


def check(path: Path, weights: Weights) -> None:
    """Compare a folder with the files that the card names; others in it do not matter.

    Raises:
        InputError: no such folder, or a file is missing or differs.
    """
    expected = ", ".join(f"{n} (sha256 {h[:8]}...)" for n, h in weights.sha256.items())
    restore = f"restore {expected or 'it, or train it anew'}"
    if not path.is_dir():
        raise InputError(path, "no such checkpoint folder", restore)
    for name, sha256 in weights.sha256.items():
        file = path / name
        if not file.is_file():
            deeper = next(path.glob(f"*/{name}"), None)
            if deeper:
                mend = f"unzipped one folder too deep: move what is in {deeper.parent} up"
                raise InputError(file, "is missing", mend)
            raise InputError(file, "is missing", restore)
        if sha256_file(file) != sha256:
            mend = "restore the file, or state the new sha256 in the card"
            raise InputError(file, "is another file than the card names", mend)


def _package(name: str) -> Path:
    # Found, not imported: it only holds files, and its code may need what is not installed.
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise InputError(name, "no such package with files", "see README, Installation")
    return Path(spec.submodule_search_locations[0])


def _snapshot(weights: Weights) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    check_pinned(weights, "weights")
    try:
        return Path(
            snapshot_download(
                str(weights.repository),
                revision=weights.revision,
                allow_patterns=weights.files or PATTERNS,
            )
        )
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        raise InputError(
            weights.repository,
            f"cannot be fetched: {error}",
            "check the network, the licence gate and HF_TOKEN, or fill the hub cache first",
        ) from error


def load(
    model_class: Any,
    weights: Weights | Path,
    device: str,
    ignore: tuple[str, ...] = (),
    dtype: str = "float32",
    **options: Any,
) -> Any:
    """Load a transformers model in evaluation mode.

    Args:
        model_class: e.g. ``transformers.CLIPModel``.
        weights: of the card, or the folder itself.
        device: torch device.
        ignore: beginnings of tensor names in the file that this class is known not to use.
        dtype: name of a torch type.
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
            dtype=getattr(torch, dtype),
            ignore_mismatched_sizes=True,
            **options,
        )
    except (OSError, ValueError, SafetensorError) as error:
        raise InputError(path, f"cannot be read: {error}", "restore the files") from error
    return _checked(model, info, path, ignore).to(device).eval()


def from_tensors(
    model_class: Any,
    config: Any,
    state: Mapping[str, Any],
    where: Path,
    device: str,
    **options: Any,
) -> Any:
    """Build a transformers model in evaluation mode, float32, from tensors that were read already.

    Args:
        model_class: e.g. ``transformers.CLIPModel``.
        config: of the class.
        state: every tensor of the model by its name.
        where: the file that the tensors come from, for errors.
        device: torch device.
        options: for the class's constructor.

    Raises:
        InputError: a tensor is missing, unexpected or of another shape.
    """
    import torch

    model, info = model_class.from_pretrained(
        None,
        config=config,
        state_dict=dict(state),
        output_loading_info=True,
        dtype=torch.float32,
        ignore_mismatched_sizes=True,
        **options,
    )
    return _checked(model, info, where, ()).to(device).eval()


def tensors(file: Path) -> dict[str, Any]:
    """Read a file of tensors by name: safetensors, or PyTorch's own form without any code in it.

    A PyTorch file may hold other entries beside the tensors, as its author left them.

    Raises:
        InputError: not there, damaged, or it holds more than plain data.
    """
    import pickle

    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        if file.suffix == ".safetensors":
            return dict(load_file(file))
        found = torch.load(file, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise InputError(file, "no such file", "restore it; the card says where from") from error
    except (OSError, RuntimeError, SafetensorError, pickle.UnpicklingError, EOFError) as error:
        reason = str(error).split("\n")[0]
        raise InputError(file, f"cannot be read: {reason}", "restore the file") from error
    if not isinstance(found, Mapping):
        raise InputError(file, "holds no tensors by name", "use the right checkpoint")
    return dict(found)


def _checked(model: Any, info: dict[str, Any], where: Path, ignore: tuple[str, ...]) -> Any:
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
                where, f"{len(keys)} tensors {fault}, first '{keys[0]}'", "use the right checkpoint"
            )
    return model


UNUSED = ("text_model.embeddings.position_ids", "vision_model.vision_model.embeddings.position_ids")
"""Beginnings of names in old files of tensors that transformers now makes itself."""


def pipeline(
    path: Path,
    classes: tuple[str, ...],
    dtype: str = "float32",
    variant: str | None = None,
    **given: Any,
) -> Any:
    """Load a diffusers pipeline on the CPU, every model in it whole.

    Args:
        path: folder as ``save_pretrained`` leaves it.
        classes: names of the pipelines in diffusers that will do.
        dtype: name of a torch type.
        variant: infix of the files to take, e.g. ``fp16``.
        given: parts that are loaded already, or None for those to leave out; one that the
            pipeline does not have is ignored.

    Raises:
        InputError: no such pipeline, or a tensor of a model is missing, unexpected or of another
            shape. diffusers would fill a missing one with random numbers and go on.
    """
    import diffusers
    import torch

    index = path / "model_index.json"
    try:
        parts = json.loads(index.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(index, f"cannot be read: {error}", "name a diffusers folder") from error
    name = parts.get("_class_name")
    if name not in classes:
        mend = f"this plug-in runs {', '.join(classes)}"
        raise InputError(index, f"is of the class {name}", mend)
    given = {part: value for part, value in given.items() if part in parts}
    for part, entry in parts.items():
        # Other entries are settings of the pipeline, or parts that it does without.
        if part not in given and isinstance(entry, list) and entry[1]:
            model = _model_class(*entry)
            if model:
                given[part] = _load_part(model, path / part, dtype, variant)
    try:
        return getattr(diffusers, name).from_pretrained(
            path, dtype=getattr(torch, dtype), local_files_only=True, **given
        )
    except (OSError, ValueError, TypeError) as error:
        reason = str(error).split("\n")[0]
        raise InputError(path, f"cannot be loaded: {reason}", "restore the files") from error


def _model_class(library: str, name: str) -> Any:
    """Class of a part that has weights; None for tokenizers, schedulers and the like."""
    import diffusers
    import transformers
    from diffusers import pipelines

    home = {"diffusers": diffusers, "transformers": transformers}.get(library)
    found = getattr(home or getattr(pipelines, library, None), name, None)
    models = (diffusers.ModelMixin, transformers.PreTrainedModel)
    return found if isinstance(found, type) and issubclass(found, models) else None


def _load_part(model_class: Any, path: Path, dtype: str, variant: str | None) -> Any:
    import diffusers
    import torch

    options = {"variant": variant} if variant else {}
    if not issubclass(model_class, diffusers.ModelMixin):
        return load(model_class, path, "cpu", UNUSED, dtype, **options)
    try:
        model, info = model_class.from_pretrained(
            path, output_loading_info=True, torch_dtype=getattr(torch, dtype), **options
        )
    except (OSError, ValueError) as error:
        reason = str(error).split("\n")[0]
        raise InputError(path, f"cannot be read: {reason}", "use the right checkpoint") from error
    return _checked(model, info, path, ()).eval()
