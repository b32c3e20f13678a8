"""Real data beside the checkout, which is no part of it; tests skip where it is absent."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def shared(name: str) -> Path:
    """Folder ``shared/<name>`` beside the checkout, or below SUBJECTBENCH_SHARED; else skip."""
    default = Path(__file__).parents[2] / "shared"
    path = Path(os.environ.get("SUBJECTBENCH_SHARED", default)) / name
    if not path.exists():
        pytest.skip(f"no {path}: the published data is not part of this repository")
    return path
