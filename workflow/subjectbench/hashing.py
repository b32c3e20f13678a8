"""sha256 of bytes and files, and keys: hashes of canonical JSON."""

from __future__ import annotations

import hashlib
import json
import zlib
from pathlib import Path
from typing import Any


def sha256(data: bytes) -> str:
    """Hash bytes; hex."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    """Hash a file; hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def canonical(value: Any) -> str:
    """JSON with sorted keys and no spaces.

    Raises:
        TypeError: something in it is no JSON type (a set, a path, a key that is not text).
        ValueError: a number is NaN or infinite, which JSON cannot say.
    """
    if isinstance(value, (dict, list, tuple)):
        _check_names(value)
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def subject_shard(subject_id: str, shards: int) -> int:
    """Shard of a subject: from its id alone, so that new subjects move no others."""
    return zlib.crc32(subject_id.encode()) % shards


def _check_names(value: Any) -> None:
    """Refuse names that are not text: ``json`` would write 1 and "1" alike."""
    if isinstance(value, dict):
        for name in value:
            if not isinstance(name, str):
                raise TypeError(f"the name {name!r} is not text")
        value = value.values()
    for inner in value:
        if isinstance(inner, (dict, list, tuple)):
            _check_names(inner)


def digest(value: Any, length: int = 12) -> str:
    """First hex digits of the sha256 of the canonical JSON."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:length]
