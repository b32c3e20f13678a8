"""A program that keeps the contract of docs/wrappers.md, or breaks it, as its settings say.

Written against the lines alone, without worker.py: standard library only.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path


def say(**answer):
    print(json.dumps(answer), flush=True)


def start_child():
    child = subprocess.Popen(["sleep", "60"])
    Path(setup["settings"]["note"]).write_text(str(child.pid))


def write(how, job, reference, target, folder):
    """Write the picture in some way; return what else the answer says."""
    if how in ("crash", "crash_once"):
        marker = folder.parent / f"crashed-{folder.name}"
        if how == "crash" or not marker.exists():
            marker.write_text("")
            print("about to fall over", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGSEGV)
    if how == "hang":
        start_child()
        time.sleep(60)
    if how == "orphan":  # ends while a child still holds its output open
        start_child()
        sys.exit(1)
    if how == "unusable":
        print("no weights for me", file=sys.stderr, flush=True)
        sys.exit(2)
    if how == "symlink":
        target.symlink_to(reference)
    elif how == "dangling":
        target.symlink_to("nowhere")
    elif how == "symlinked_folder":
        (folder / "link").symlink_to(folder.parent)
        return {"file": "link/x.png"}
    elif how == "fifo":
        os.mkfifo(target)
    elif how == "text":
        target.write_text("no picture")
    elif how == "truncated":
        target.write_bytes(reference.read_bytes()[:-40])
    elif how == "empty":
        target.write_bytes(b"")
    elif how != "missing":
        shutil.copyfile(reference, target)
    return {
        "outside": {"file": "../x.png"},
        "absolute": {"file": str(target)},
        "no_name": {"file": 3},
        "odd_status": {"status": "fine"},
        "no_reason": {"status": "refused"},
        "extra": {"seconds": 3},
        "no_details": {"details": "none"},
        "refused": {"status": "refused", "reason": "a celebrity"},
        "filtered": {"status": "filtered", "reason": "safety checker", "details": {"score": 0.9}},
        "unknown": {"sample_id": "somebody-else"},
        "details": {"details": {"subject_in_prompt": True}},
    }.get(how, {})


setup = json.loads(sys.stdin.readline())
settings, folder = setup["settings"], Path(setup["folder"])
if settings.get("start") == "slow":
    time.sleep(60)
if settings.get("start") == "odd":
    say(hello=1)
say(ready=True)
for text in sys.stdin:
    job = json.loads(text)
    if "asked" in settings:
        with Path(settings["asked"]).open("a") as out:
            out.write(text)
    how = settings["how"].get(job["sample_id"], settings["how"].get("*", "ok"))
    answer = {"sample_id": job["sample_id"], "status": "ok"}
    answer.update(write(how, job, folder / job["reference"], folder / job["file"], folder))
    if how == "noise":
        print("Loading pipeline: 100%")
        print("[1, 2]", flush=True)
    if how == "no_json":
        print("{nothing", flush=True)
    if how == "seen":
        seen = ("CUDA_VISIBLE_DEVICES", "PYTHONPATH", "PATH")
        answer["details"] = {"device": setup["device"], "files": setup["files"]}
        answer["details"].update({n: os.environ.get(n) for n in seen}, cwd=str(Path.cwd()))
    say(**answer)
    if how == "twice":
        say(**answer)
