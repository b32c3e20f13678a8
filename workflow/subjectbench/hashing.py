"""sha256, of bytes and of files."""

from __future__ import annotations

import hashlib
from pathlib import Path


def sha256_file(path: Path) -> str:
    """Hash a file; hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
