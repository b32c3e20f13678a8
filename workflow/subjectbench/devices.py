"""Which GPU a job takes, and what its errors mean.

Snakemake counts GPUs but hands out no numbers, so jobs agree by locks: one file per device, held by
the system until the process ends, however it ends. Nothing here changes what comes out.
"""

from __future__ import annotations

import fcntl
import os
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from subjectbench.errors import InputError

LOST = re.compile(
    r"CUDA error|CUDA driver error|device-side assert|uncorrectable ECC|GPU is lost"
    r"|HIP error|CUDNN_STATUS_EXECUTION_FAILED|CUDNN_STATUS_INTERNAL_ERROR",
    re.IGNORECASE,
)
"""What torch says when a device does not answer any more."""

FULL = re.compile(r"out of memory|(CUBLAS|CUDNN)_STATUS_ALLOC_FAILED", re.IGNORECASE)
"""What torch's libraries say when memory ends, beside torch's own exception."""

_held: dict[str, int] = {}
"""Lock files that this process has open, by device."""


def locks_folder() -> Path:
    """Folder of the lock files: of the machine, since all its users share its devices."""
    return Path(tempfile.gettempdir()) / "subjectbench-devices"


def take(identities: Sequence[str], patience: float | None = None) -> int:
    """Take a free device for the rest of this process, and wait for one if none is.

    Args:
        identities: one name per visible device, the same in every process that sees it.
        patience: seconds to wait at most; None: for ever.

    Returns:
        Index of the device among those given. A process that has one keeps it.

    Raises:
        InputError: none was free in time.
    """
    for index, identity in enumerate(identities):
        if identity in _held:
            return index
    started, told = time.monotonic(), False
    while True:
        for index, identity in enumerate(identities):
            if _lock(identity):
                return index
        waited = time.monotonic() - started
        if patience is not None and waited >= patience:
            raise InputError(
                "devices",
                f"none of {len(identities)} was free for {waited:.0f} s",
                f"wait for the other jobs, or start fewer; {locks_folder()} says who holds one",
            )
        if not told:
            print(f"waiting for one of {len(identities)} devices", file=sys.stderr, flush=True)
            told = True
        time.sleep(0.1 if waited < 5 else 1.0)


def _lock(identity: str) -> bool:
    """Try to lock a device."""
    folder = locks_folder()
    file = folder / re.sub(r"[^A-Za-z0-9.-]", "_", identity)
    if not folder.is_dir():
        folder.mkdir(exist_ok=True)
        folder.chmod(0o1777)  # as the temporary folder: each user adds files, and removes own ones
    if not file.exists():
        file.touch()
        file.chmod(0o644)
    # Reading is enough to lock, so one user's file serves all.
    opened = os.open(file, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(opened)
        return False
    _held[identity] = opened
    if os.access(file, os.W_OK):
        file.write_text(f"{os.getpid()}\n")
    return True


def release() -> None:
    """Give back what this process holds. Its end does the same."""
    for opened in _held.values():
        os.close(opened)
    _held.clear()


def pick() -> str:
    """Take one of this machine's visible GPUs; return its name for torch, e.g. ``cuda:1``.

    ``CUDA_VISIBLE_DEVICES`` is respected: torch sees, and numbers, only what it names.
    """
    import torch

    return f"cuda:{take([_identity(torch, i) for i in range(torch.cuda.device_count())])}"


def _identity(torch: Any, index: int) -> str:
    """Name of a device that does not depend on what else a process sees: its UUID."""
    properties = torch.cuda.get_device_properties(index)
    return f"gpu-{getattr(properties, 'uuid', None) or index}"


def told(device: str, driver: Path = Path("/proc/driver/nvidia/version")) -> str:
    """Model of a GPU, version of CUDA and, where the system tells, of the driver.

    Args:
        device: as :func:`pick` returns it.
        driver: where NVIDIA's driver tells its version.
    """
    import torch

    index = int(device.rpartition(":")[2])
    facts = [torch.cuda.get_device_properties(index).name, f"CUDA {torch.version.cuda}"]
    if driver.is_file():
        facts += [
            f"driver {v}" for v in re.findall(r"\b\d+\.\d+(?:\.\d+)?\b", driver.read_text())[:1]
        ]
    return ", ".join(facts)


def out_of_memory(error: BaseException) -> bool:
    """Whether the device's memory ended, and less at once may fit."""
    import torch

    return isinstance(error, torch.OutOfMemoryError) or bool(FULL.search(str(error)))


def check_lost(error: BaseException, device: str) -> None:
    """Say what to do where an error means that the device is lost.

    After such an error the process can compute nothing more: every later call fails, too.

    Raises:
        InputError: it does.
    """
    import torch

    lost = isinstance(error, torch.AcceleratorError) or LOST.search(str(error))
    if lost and not out_of_memory(error):
        reason = str(error).strip().split("\n")[0]
        raise InputError(
            f"device {device}",
            f"does not answer any more: {reason}",
            "look at it with nvidia-smi; then run snakemake again: pictures that are done are kept",
        ) from error


def release_memory(device: str) -> None:
    """Hand memory that nothing uses back to the device."""
    import torch

    if device.startswith("cuda"):
        torch.cuda.empty_cache()
