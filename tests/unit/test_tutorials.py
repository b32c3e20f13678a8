"""The runner of tutorials: a page that says what is not so fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import tutorials


def page(folder: Path, text: str) -> Path:
    path = folder / "page.md"
    path.write_text(text)
    return path


def test_blocks_share_one_shell_and_their_output_is_checked(tmp_path: Path) -> None:
    told = 'Say:\n```sh\nx=7\n```\nthen\n```sh\necho one; echo "two $x" >&2; pwd\n```\n'
    told += "```text\none\ntwo ...\n...\n```\nand\n```python\nraise SystemExit(1)\n```\n"
    found = tutorials.run(page(tmp_path, told), tmp_path)
    assert [b.output for b in found] == ["", f"one\ntwo 7\n{tmp_path}\n"]
    assert found[1].says == ["one", "two ..."]


@pytest.mark.parametrize(
    ("told", "fault"),
    [
        ("```sh\ntrue\n```\n```sh\nfalse | cat\necho after\n```\n", "failed"),
        ('```sh\necho "$unset"\n```\n', "failed"),
        ("```sh\necho one; echo two\n```\n```text\ntwo\none\n```\n", "does not print 'one'"),
        ("no blocks", "no sh blocks"),
    ],
)
def test_a_page_that_is_wrong_fails(tmp_path: Path, told: str, fault: str) -> None:
    with pytest.raises(AssertionError, match=fault):
        tutorials.run(page(tmp_path, told), tmp_path)


def test_a_clone_is_the_checkout_as_it_stands(tmp_path: Path) -> None:
    folder = tutorials.clone(tmp_path / "a b'c")
    for name in ("Snakefile", "tests/tutorials.py"):
        assert (folder / name).read_bytes() == (tutorials.ROOT / name).read_bytes()
    assert not (folder / "results").exists()
