"""The store on disk: whole artifacts or none, whatever happens on the way."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from subjectbench.errors import InputError
from subjectbench.records import write_table
from subjectbench.store import Artifact, Partial, Store

WORKFLOW = Path(__file__).resolve().parents[2] / "workflow"
ARTIFACT = Artifact("score", "mini/x", {"params": {"k": 1}}, {"up": "0" * 12}, ("a.bin", "b/c.txt"))


def build(folder: Path, _: Partial) -> dict[str, int]:
    (folder / "a.bin").write_bytes(bytes(range(256)))
    (folder / "b").mkdir()
    (folder / "b" / "c.txt").write_text("text\n")
    return {"ok": 3, "failed": 1}


def never(folder: Path, partial: Partial) -> dict[str, int]:
    raise AssertionError("made again")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "results with space")


def test_made_once_then_found(store: Store) -> None:
    assert not store.has(ARTIFACT)
    folder = store.make(ARTIFACT, build)
    assert folder == store.results / "store" / "score" / "mini" / "x" / ARTIFACT.key
    assert store.has(ARTIFACT) and store.verify(folder) == []
    assert store.make(ARTIFACT, never) == folder
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["key"] == ARTIFACT.key
    assert manifest["components"] == ARTIFACT.components
    assert manifest["upstream"] == ARTIFACT.upstream
    assert manifest["rows"] == {"ok": 3, "failed": 1}
    assert manifest["files"]["a.bin"]["bytes"] == 256
    assert list((store.results / "store" / ".work").iterdir()) == []


def test_an_exception_leaves_nothing_that_counts(store: Store) -> None:
    def broken(folder: Path, partial: Partial) -> dict[str, int]:
        build(folder, partial)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.make(ARTIFACT, broken)
    assert not store.has(ARTIFACT) and not store.path(ARTIFACT).exists()
    folder = store.make(ARTIFACT, build)
    assert store.verify(folder) == []
    assert list((store.results / "store" / ".work").iterdir()) == []


@pytest.mark.parametrize("extra", [True, False])
def test_the_wrong_set_of_files_is_refused(store: Store, extra: bool) -> None:
    def wrong(folder: Path, partial: Partial) -> dict[str, int]:
        build(folder, partial)
        (folder / "d").touch() if extra else (folder / "a.bin").unlink()
        return {}

    with pytest.raises(InputError, match=r"score mini/x: wrote .* announced"):
        store.make(ARTIFACT, wrong)
    assert not store.path(ARTIFACT).exists()


KILLED = """
import pathlib, sys, time
from subjectbench.store import Artifact, Store
artifact = Artifact("score", "mini/x", {"params": {"k": 1}}, {"up": "0" * 12}, ("a.bin", "b/c.txt"))

def build(folder, partial):
    partial.save("000000-000001", b"first batch")
    (folder / "a.bin").write_bytes(b"half")
    print("started", flush=True)
    time.sleep(60)

Store(pathlib.Path(sys.argv[1])).make(artifact, build)
"""


def test_a_kill_leaves_nothing_that_counts_and_batches_are_reused(store: Store) -> None:
    """SMK-03: the lock goes with the process, the half-written file is in no artifact."""
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(store.results)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(WORKFLOW)},
    )
    assert child.stdout and child.stdout.readline() == b"started\n"
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    assert not store.has(ARTIFACT) and not store.path(ARTIFACT).exists()
    found: list[bytes | None] = []

    def resumed(folder: Path, partial: Partial) -> dict[str, int]:
        found.append(partial.load("000000-000001"))
        found.append(partial.load("000002-000003"))
        return build(folder, partial)

    folder = store.make(ARTIFACT, resumed)
    assert found == [b"first batch", None]
    assert store.verify(folder) == []
    assert list((store.results / "store" / ".work").iterdir()) == []


def test_a_batch_under_way_is_no_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partial = Partial(tmp_path / "p")

    def fail(_: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        partial.save("b", b"data")
    assert partial.load("b") is None
    monkeypatch.undo()
    partial.save("b", b"data")
    assert partial.load("b") == b"data"


def _make_slowly(results: str, log: str) -> None:
    def slow(folder: Path, partial: Partial) -> dict[str, int]:
        with Path(log).open("a") as file:
            file.write("built\n")
        time.sleep(0.3)
        return build(folder, partial)

    Store(Path(results)).make(ARTIFACT, slow)


def test_two_processes_build_one_key_once(store: Store, tmp_path: Path) -> None:
    log = tmp_path / "log"
    fork = multiprocessing.get_context("fork")
    jobs = [
        fork.Process(target=_make_slowly, args=(str(store.results), str(log))) for _ in range(3)
    ]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join(30)
    assert [job.exitcode for job in jobs] == [0, 0, 0]
    assert log.read_text() == "built\n"
    assert store.verify(store.path(ARTIFACT)) == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda f: (f / "a.bin").write_bytes(bytes(range(255))),
        lambda f: (f / "b" / "c.txt").unlink(),
        lambda f: (f / "manifest.json").unlink(),
        lambda f: (f / "manifest.json").write_text((f / "manifest.json").read_text()[:40]),
        lambda f: (f / "manifest.json").write_text(""),
        lambda f: (f / "manifest.json").write_text("{}"),
        lambda f: (f / "manifest.json").write_text("[]"),
        lambda f: (f / "manifest.json").write_text('{"files": {}}'),
        lambda f: (f / "manifest.json").write_bytes(b"\xff\xfe"),
    ],
    ids=["cut", "file gone", "no manifest", "half", "empty", "{}", "[]", "no files", "no text"],
)
def test_a_damaged_artifact_is_not_there_and_is_made_again(store: Store, damage: object) -> None:
    folder = store.make(ARTIFACT, build)
    damage(folder)  # type: ignore[operator]
    assert not store.has(ARTIFACT)
    assert store.verify(folder) != []
    assert store.make(ARTIFACT, build) == folder
    assert store.has(ARTIFACT) and store.verify(folder) == []


def test_verify_finds_a_flipped_bit(store: Store) -> None:
    folder = store.make(ARTIFACT, build)
    data = bytearray((folder / "a.bin").read_bytes())
    data[100] ^= 1
    (folder / "a.bin").write_bytes(data)
    assert store.has(ARTIFACT)  # of the right size: only hashing tells
    assert store.verify(folder) == [f"{folder}/a.bin: bytes differ from the manifest"]


def test_an_empty_folder_in_the_way_is_replaced(store: Store) -> None:
    store.path(ARTIFACT).mkdir(parents=True)  # Snakemake makes the folders of its outputs
    assert not store.has(ARTIFACT)
    assert store.verify(store.make(ARTIFACT, build)) == []


def test_equal_content_gives_equal_manifests(tmp_path: Path) -> None:
    folders = []
    for name in ("one", "two"):
        folders.append(Store(tmp_path / name).make(ARTIFACT, build))
        time.sleep(0.02)
    first, second = ((f / "manifest.json").read_bytes() for f in folders)
    assert first == second
    assert set(json.loads((folders[0] / "record.json").read_text())) >= {"host", "finished"}
    assert b"host" not in first


def test_tables_have_the_same_bytes_and_ids_stay_text(tmp_path: Path) -> None:
    """TAB-03: 007, 08 and 1e3 are ids, not numbers, also after Parquet."""
    from subjectbench.records import read_table

    rows = [
        {
            "generator": "2.10",
            "sample_id": name,
            "rater": "no",
            "dimension": "preservation",
            "status": "ok",
            "value": 1.0,
        }
        for name in ("007", "08", "1e3", "nan", "None")
    ]
    for name in ("one", "two"):
        write_table("ratings", rows, tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    again = read_table("ratings", tmp_path / "one")
    assert list(again["sample_id"]) == ["007", "08", "1e3", "nan", "None"]
    assert set(again["generator"]) == {"2.10"}
    with pytest.raises(InputError, match=r"ratings\.sample_id: 7 is not text"):
        write_table("ratings", [{**rows[0], "sample_id": 7}], tmp_path / "three")
