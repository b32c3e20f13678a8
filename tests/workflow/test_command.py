"""An external program in its own environment, through the Snakefile, killed and gone on with."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.workflow.conftest import Checkout

SLOW = """
import os, time

def noted(make):
    def slowly(job):
        with open(os.environ["ASKED"], "a") as out:
            out.write(job.sample_id + "\\n")
        time.sleep(float(os.environ["DELAY"]))
        return make(job)
    return slowly

plain = load
def load(setup):
    return noted(plain(setup))
"""
STUDY = {
    "study": "external",
    "benchmark": {"card": "miniworld", "params": {"subjects": 2}},
    "generators": [{"card": "example_command", "params": {"wrapper": "workflow/slow.py"}}],
    "metrics": ["mini_clip_i"],
    "run": {"device": "cpu", "batch_size": 24},
}
UNTIL = ("--cores", "1", "--until", "generate_images")


@pytest.mark.long
def test_a_killed_job_goes_on_where_its_program_was(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path / "a b'c")
    wrapper = checkout.folder / "workflow" / "slow.py"
    plain = (checkout.folder / "workflow" / "wrappers" / "example.py").read_text()
    wrapper.write_text(plain.replace("\nserve(load)", f"{SLOW}\nserve(load)"))
    asked = tmp_path / "asked"
    checkout.env |= {"ASKED": str(asked), "DELAY": "0.3"}
    checkout.configure(STUDY)
    assert checkout.planned(*UNTIL) == {"generate_images": 1, "prepare_benchmark": 1}
    run = subprocess.Popen(
        checkout.command(*UNTIL),
        cwd=checkout.folder,
        env=checkout.env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    work = checkout.folder / "results" / "store" / ".work"
    wait_for(lambda: len(list(work.glob("*/kept/*"))) >= 4, 300)
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    # Its program ends too, though nobody told it: it would hold the GPU.
    wait_for(lambda: not running(str(wrapper)), 20)
    before = len(asked.read_text().splitlines())
    assert 4 <= before < 24

    checkout.env["DELAY"] = "0"
    checkout.run(*UNTIL[2:])
    names = asked.read_text().splitlines()
    assert len(set(names)) == 24 and len(names) <= 25, "what was made is not made again"
    assert not list(work.glob("*/kept")), "what a killed job left is gone with the work"
    assert checkout.planned(*UNTIL) == {}
    made = checkout.hashes("results/store/generate")

    checkout.configure({**STUDY, "results": "again"})
    checkout.run(*UNTIL[2:])
    assert checkout.hashes("again/store/generate") == made, "the kill shows in the pictures"

    generator = {"card": "example_command", "params": {"wrapper": "workflow/wrappers/example.py"}}
    patient = {**generator, "params": {**generator["params"], "picture_timeout": 5.0}}
    checkout.configure({**STUDY, "generators": [patient]})
    assert checkout.planned(*UNTIL) == {"generate_images": 1}  # another wrapper, another picture
    wrapper.rename(checkout.folder / "moved.py")
    moved = {**patient, "params": {**patient["params"], "wrapper": "moved.py"}}
    checkout.configure({**STUDY, "generators": [moved]})
    assert checkout.planned(*UNTIL) == {}  # neither its place nor a time-out


def running(wrapper: str) -> bool:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if wrapper.encode() in path.read_bytes().split(b"\0"):
                return True
        except OSError:
            continue
    return False


def wait_for(what: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.1)
