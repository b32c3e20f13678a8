"""A disk that is full: a clear word, nothing torn, and the same bytes after going on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import Checkout

pytestmark = [pytest.mark.slow, pytest.mark.long]

STUDY = {
    "study": "small",
    "benchmark": {"card": "miniworld", "params": {"subjects": 2}},
    "generators": ["sim_identity_drift", "copy_reference"],
    "metrics": ["near_copy"],
    "run": {"device": "cpu", "batch_size": 6},
}


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Checkout]:
    """A checkout whose results lie on a disk of 8 MB."""
    checkout = Checkout(tmp_path / "small")
    checkout.configure(STUDY)
    results = checkout.folder / "results"
    results.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "subjectbench", str(results)]
    try:
        subprocess.run(mount, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"cannot mount a small disk here: {error}")
    yield checkout
    subprocess.run(["umount", str(results)], check=True)


def free(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def test_a_full_disk_stops_the_run_and_tears_nothing(small: Checkout, tmp_path: Path) -> None:
    whole = Checkout(tmp_path / "whole")
    whole.configure(STUDY)
    whole.run()
    results = small.folder / "results"
    ballast = results / "ballast"
    stopped = 0
    # A little more room each time, so that the disk fills up in one stage after the other.
    for room in (8_000, 60_000, 130_000, 240_000, 420_000):
        ballast.unlink(missing_ok=True)
        with ballast.open("wb") as file:
            file.write(b"\0" * max(0, free(results) - room))
        done = small.snakemake("--cores", "2")
        if done.returncode == 0:
            break
        stopped += 1
        logs = "".join(p.read_text() for p in small.folder.glob("logs/**/*.log"))
        assert "no space left" in (done.stdout + logs).lower(), done.stdout[-2000:]
        assert "Traceback" not in logs, logs[-3000:]
        checked = subprocess.run(
            [sys.executable, "-m", "subjectbench", "verify"],
            cwd=small.folder, env=small.env, capture_output=True, text=True,
        )  # fmt: skip
        assert checked.returncode == 0, checked.stdout + checked.stderr
    assert stopped >= 3
    ballast.unlink(missing_ok=True)
    small.run()
    assert small.planned() == {}
    assert small.hashes() == whole.hashes()
