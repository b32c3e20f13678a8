"""The same bytes, whatever the cores, the shards, the batch size, or the moment of a kill."""

from __future__ import annotations

import copy
import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from .conftest import TINY, Checkout

pytestmark = pytest.mark.slow


def samples(checkout: Checkout) -> pd.DataFrame:
    """Every sample with the hash of its picture, over models and shards."""
    files = sorted((checkout.folder / "results/store/generate").rglob("samples.parquet"))
    frames = [pd.read_parquet(f).assign(model=f.parts[-4]) for f in files]
    frame = pd.concat(frames).sort_values(["model", "sample_id"], ignore_index=True)
    return frame[["model", "sample_id", "seed", "status", "image_sha256"]]


@pytest.mark.long
def test_cores_shards_and_batches_change_no_number(finished: Checkout, tmp_path: Path) -> None:
    other = Checkout(tmp_path / "sharded")
    study = copy.deepcopy(TINY)
    study |= {"shards": 2, "run": {"device": "cpu", "batch_size": 1}}
    other.configure(study)
    other.run("--cores", "1")
    pd.testing.assert_frame_equal(samples(finished), samples(other))
    for table in ("leaderboard", "by_scenario", "agreement", "coverage"):
        name = f"results/latest/tables/{table}.csv"
        left, right = (pd.read_csv(c.folder / name) for c in (finished, other))
        pd.testing.assert_frame_equal(left, right, rtol=0, atol=1e-6)


KILLS = int(os.environ.get("SUBJECTBENCH_KILLS", 3))
"""How often a run is killed; each kill costs about ten seconds, so more on demand only."""


def start(checkout: Checkout, **streams: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        checkout.command("--cores", "2"),
        cwd=checkout.folder,
        env=checkout.env,
        start_new_session=True,
        text=True,
        **streams,
    )


def test_killed_run_continues_to_the_same_bytes(finished: Checkout, tmp_path: Path) -> None:
    killed = Checkout(tmp_path / "killed")
    started = len(finished.hashes())
    moments = random.Random(KILLS)
    for _ in range(KILLS):
        nowhere = subprocess.DEVNULL
        process = start(killed, stdout=nowhere, stderr=nowhere)
        time.sleep(moments.uniform(3, 17))
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        # Whatever is there is whole: the same bytes as in the undisturbed run.
        reference = finished.hashes()
        assert all(reference[name] == value for name, value in killed.hashes().items())
    killed.run()
    assert killed.hashes() == finished.hashes()
    assert len(killed.hashes()) == started
    assert killed.planned() == {}


@pytest.mark.long
def test_two_runs_at_once_tear_nothing(finished: Checkout, tmp_path: Path) -> None:
    """Both end well, each artifact made by one of them; or the later one says why it cannot."""
    shared = Checkout(tmp_path / "shared")
    both = [start(shared, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for _ in range(2)]
    told = [process.communicate()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], "\n".join(t[-3000:] for t in told)
    assert shared.hashes() == finished.hashes()
    assert shared.planned() == {}
