"""The tutorials, word for word, in a clone in which the first run of ``small`` has happened."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import tutorials

from .conftest import ROOT, Clone

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("page", ["change_one_metric", "share_results"])
def test_tutorial(small: Clone, tmp_path: Path, page: str) -> None:
    # Under the same names, so that each page's first run finds everything made.
    clone = small.copy(tmp_path / "clone")
    tutorials.run(ROOT / "docs" / "tutorials" / f"{page}.md", clone.folder)
