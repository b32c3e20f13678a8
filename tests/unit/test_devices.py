"""Devices are shared out by locks: real processes, made-up lists of devices."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from subjectbench import devices
from subjectbench.cards import ROOT
from subjectbench.config import Study
from subjectbench.errors import InputError
from subjectbench.stages.base import Context

TAKE = """
import sys
from subjectbench import devices
print(devices.take(sys.argv[2:], float(sys.argv[1])), flush=True)
sys.stdin.read()
"""
Job = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(autouse=True)
def own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Lock files of this test, and nothing held before or after."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    devices.release()
    yield tmp_path / "subjectbench-devices"
    devices.release()


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    """``job("A", "B")``: another process that takes one of the devices and holds it."""
    started: list[subprocess.Popen[str]] = []

    def start(*names: str, patience: float = 0.0) -> subprocess.Popen[str]:
        made = subprocess.Popen(
            [sys.executable, "-c", TAKE, str(patience), *names],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT / "workflow")},
        )
        started.append(made)
        return made

    yield start
    for process in started:
        process.kill()
        process.communicate()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def test_each_process_takes_another_device(job: Job, own_locks: Path) -> None:
    """SMK-08."""
    jobs = [job("A", "B", "C") for _ in range(3)]
    assert {said(process) for process in jobs} == {"0", "1", "2"}
    with pytest.raises(InputError, match="none of 3 was free"):
        devices.take(["A", "B", "C"], patience=0)
    holders = {(own_locks / name).read_text().strip() for name in "ABC"}
    assert holders == {str(process.pid) for process in jobs}


def test_a_killed_process_gives_its_device_back(job: Job) -> None:
    first = job("A")
    assert said(first) == "0"
    waiting = job("A", patience=60)
    first.send_signal(signal.SIGKILL)
    assert said(waiting) == "0"


def test_devices_are_the_same_whatever_else_is_visible(job: Job) -> None:
    """CUDA_VISIBLE_DEVICES numbers anew: what is 0 to one process may be 3 to another."""
    assert said(job("B")) == "0"
    assert devices.take(["A", "B"], patience=0) == 0
    assert devices.take(["B", "A"], patience=0) == 1  # this process has A and keeps it
    devices.release()
    with pytest.raises(InputError):
        devices.take(["B"], patience=0)


def test_a_process_that_waits_says_so(job: Job) -> None:
    assert said(job("A")) == "0"
    _, told = job("A", patience=0.3).communicate("")
    assert "waiting for one of 1 devices" in told and "none of 1 was free" in told


def test_another_users_lock_file_serves(own_locks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_locks.mkdir()
    (own_locks / "A").touch()
    (own_locks / "A").chmod(0o444)
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert devices.take(["A"], patience=0) == 0 and (own_locks / "A").read_text() == ""


def gpus(monkeypatch: pytest.MonkeyPatch, *uuids: str | None) -> None:
    """Let torch see so many devices; there are none here."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(uuids))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(uuids))
    monkeypatch.setattr(
        torch.cuda,
        "get_device_properties",
        lambda i: SimpleNamespace(uuid=uuids[i], name="Made-up 9000"),
    )


def context(device: str) -> Context:
    study = Study.model_validate(
        {
            "study": "x",
            "benchmark": "b",
            "generators": ["g"],
            "metrics": ["m"],
            "run": {"device": device},
        }
    )
    plan: Any = SimpleNamespace(study=study.model_dump(mode="json"), results="results")
    return Context(plan, None)  # type: ignore[arg-type]


def test_a_job_gets_a_device_of_its_own(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(monkeypatch, "u-0", "u-1")
    assert said(job("gpu-u-0")) == "0"
    here = context("cpu")
    assert here.device == here.store.device == "cpu"
    assert context("auto").device == context("cuda").device == "cuda:1"
    gpus(monkeypatch)
    assert context("auto").device == "cpu"
    with pytest.raises(InputError, match="no CUDA device here"):
        _ = context("cuda").device


def test_the_record_tells_which_device_and_driver(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gpus(monkeypatch, "u-0")
    driver = tmp_path / "version"
    driver.write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build\n"
        "GCC version: 12.3.0\n"
    )
    told = f"Made-up 9000, CUDA {torch.version.cuda}"
    assert devices.told("cuda:0", driver) == f"{told}, driver 550.54.15"
    assert devices.told("cuda:0", tmp_path / "none") == told
    here = context("auto")
    assert here.device == "cuda:0"
    assert here.store.device.startswith(told)


def test_devices_without_an_id_are_known_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(monkeypatch, None, None)
    assert devices.pick() == "cuda:0" and set(devices._held) == {"gpu-0"}


@pytest.mark.parametrize(
    ("error", "full", "lost"),
    [
        (torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), True, False),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`"), True,
         False),
        (torch.AcceleratorError("CUDA error: out of memory"), True, False),
        (torch.AcceleratorError("CUDA error: device-side assert triggered"), False, True),
        (RuntimeError("CUDA error: uncorrectable ECC error encountered"), False, True),
        (RuntimeError("The size of tensor a (3) must match the size of tensor b (4)"), False,
         False),
    ],
)  # fmt: skip
def test_errors_of_devices_are_told_apart(error: RuntimeError, full: bool, lost: bool) -> None:
    assert devices.out_of_memory(error) == full
    if lost:
        with pytest.raises(InputError, match="does not answer any more"):
            devices.check_lost(error, "cuda:0")
    else:
        devices.check_lost(error, "cuda:0")
