"""The tutorial that adds a model, word for word."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import tutorials


@pytest.mark.slow
def test_the_tutorial(tmp_path: Path) -> None:
    folder = tutorials.clone(tmp_path / "clone")
    tutorials.run(tutorials.ROOT / "docs/tutorials/add_a_model.md", folder)
