"""Tutorials, run word for word: the ``sh`` blocks of a page, in order, in one shell, in a clone.

A ``text`` block right after a ``sh`` block is what that prints: its lines must appear in the
output in this order, where ``...`` stands for anything. So a page that tells of a command that
does not exist, or of words that nothing says, is a failing test.

    folder = clone(tmp_path / "clone")
    run(ROOT / "docs/tutorials/share_results.md", folder)
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.M | re.S)
_MARK = "=== block"


@dataclass
class Block:
    """One ``sh`` block, the lines that the page says it prints, and what it did print."""

    code: str
    says: list[str] = field(default_factory=list)
    output: str = ""

    def missing(self) -> str | None:
        """First line that the page promises and the output has not, in order."""
        rest = self.output
        for line in self.says:
            pattern = r".*?".join(re.escape(part) for part in line.strip().split("..."))
            found = re.search(pattern, rest)
            if not found:
                return line
            rest = rest[found.end() :]
        return None


def blocks(page: Path) -> list[Block]:
    """``sh`` blocks of a Markdown page, each with the ``text`` block that follows it."""
    out: list[Block] = []
    last = ""
    for language, body in _FENCE.findall(page.read_text("utf-8")):
        if language == "sh":
            out.append(Block(body))
        elif language == "text" and last == "sh":
            out[-1].says = [line for line in body.splitlines() if line.strip(" .")]
        last = language
    return out


def clone(folder: Path) -> Path:
    """A git clone of this checkout as it stands, uncommitted edits and new files included."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\0")
    for name in filter(None, listed):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    for arguments in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "-m", "Start"]):
        subprocess.run(["git", *arguments], cwd=folder, env=environment(folder), check=True)
    return folder


def environment(folder: Path) -> dict[str, str]:
    """What a shell needs to use the clone in a folder: this Python, its tools, a git identity."""
    tools = folder.parent / f"{folder.name}-tools"
    tools.mkdir(parents=True, exist_ok=True)
    # The installed command may be another checkout's.
    command = tools / "subjectbench"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m subjectbench "$@"\n')
    command.chmod(0o755)
    path = [str(tools), str(Path(sys.executable).parent), os.environ["PATH"]]
    who = {
        f"GIT_{role}_{what}": "tutorial"
        for role in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    }
    return {
        **os.environ,
        **who,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "PATH": os.pathsep.join(path),
        "PYTHONPATH": str(folder / "workflow"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "DVC_NO_ANALYTICS": "1",
    }


def run(page: Path, folder: Path) -> list[Block]:
    """Run a page's blocks in a folder; stop at the first command that fails.

    Raises:
        AssertionError: a command failed, or did not print what the page says.
    """
    found = blocks(page)
    assert found, f"{page}: no sh blocks"
    script = "".join(f"echo '{_MARK}'\n{block.code}\n" for block in found)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", f"exec 2>&1\n{script}"],
        cwd=folder,
        env=environment(folder),
        stdout=subprocess.PIPE,
        text=True,
    )
    outputs = done.stdout.split(f"{_MARK}\n")[1:]
    for block, output in zip(found, outputs, strict=False):
        block.output = output
    reached = found[max(len(outputs), 1) - 1]
    assert done.returncode == 0, f"{page}:\n{reached.code}\nfailed:\n{reached.output[-4000:]}"
    for block in found:
        line = block.missing()
        assert line is None, (
            f"{page}: does not print {line!r}:\n{block.code}\n{block.output[-4000:]}"
        )
    return found
