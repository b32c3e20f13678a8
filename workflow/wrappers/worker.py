"""The other side of the plug-in ``command``: lines of JSON in, pictures and lines of JSON out.

A wrapper imports this file, which needs nothing but Python 3.8 (and Pillow, where ``reference`` is
used), and says how its model is loaded and asked::

    from worker import reference, serve

    def load(setup):
        model = Model.load(setup.weights["main"], setup.device)
        def make(job):
            return model(job.prompt, reference(job), steps=setup.settings["steps"], seed=job.seed)
        return make

    serve(load)

``docs/wrappers.md`` states the contract that is kept here.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
import traceback
from pathlib import Path
from types import SimpleNamespace

LOST_DEVICE = ("CUDA error", "device-side assert", "ECC error")
"""In the text of an exception: nothing more can be computed in this process."""


class Declined(Exception):
    """There is no picture, and why. ``status`` is refused, filtered, not_applicable or failed."""

    def __init__(self, reason: str, status: str = "refused") -> None:
        super().__init__(reason)
        self.status = status


class Unusable(Exception):
    """Nothing can be made with this setup; the run stops, and this text is shown."""


def serve(load) -> None:
    """Answer jobs until there are no more. Never returns; ends the process.

    Args:
        load: called once with the setup (``settings``, ``weights``, ``files``: by name;
            ``device``: ``"cuda"`` or ``"cpu"``; ``folder``). Returns a function that takes a job
            (``sample_id``, ``prompt``, ``subject``, ``reference``: a path; ``seed``; ``width`` and
            ``height``: pixels, or None if the card leaves the size open) and returns a picture:
            anything with Pillow's ``save``; or such a picture and a dictionary of details.
    """
    # Libraries print: what they print must not be taken for answers, not even from C.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    lines = iter(sys.stdin.buffer.readline, b"")
    setup = SimpleNamespace(**json.loads(next(lines)))
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()

    def answer(value) -> None:
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    try:
        make = load(setup)
    except Unusable as error:
        print(error, file=sys.stderr, flush=True)
        os._exit(2)
    answer({"ready": True})
    for line in lines:
        job = SimpleNamespace(**json.loads(line))
        job.reference = str(Path(setup.folder) / job.reference)
        answer({"sample_id": job.sample_id, **_made(make, job, Path(setup.folder) / job.file)})
    os._exit(0)  # some libraries hang in their own clean-up


def _made(make, job, file: Path) -> dict:
    seed_everything(job.seed)
    try:
        made = make(job)
        picture, details = made if isinstance(made, tuple) else (made, {})
        picture.save(file)
        return {"status": "ok", "details": details}
    except Declined as error:
        return {"status": error.status, "reason": str(error)}
    except Unusable as error:
        print(error, file=sys.stderr, flush=True)
        os._exit(2)
    except Exception as error:
        traceback.print_exc()
        if any(text in str(error) for text in LOST_DEVICE):
            sys.stderr.flush()
            os._exit(1)
        return {"status": "failed", "reason": f"{type(error).__name__}: {error}"}


def reference(job):
    """Return the job's reference picture, RGB. It has been checked and turned upright already."""
    from PIL import Image

    with Image.open(job.reference) as image:
        return image.convert("RGB")


def require_subject(job) -> None:
    """Decline a job whose prompt does not contain the subject's word, case aside."""
    if job.subject.lower() not in job.prompt.lower():
        raise Declined(
            f"the prompt does not contain {job.subject!r}, which this model needs", "not_applicable"
        )


def pin_downloads(folders: dict) -> None:
    """Let code that fetches from the hub by itself get the card's weights, and nothing else.

    Such code names no commit, so it would take whatever the hub has today. Call this before that
    code is imported.

    Args:
        folders: repository on the hub to the folder of its weights.
    """
    import huggingface_hub

    def given(repo_id, filename, subfolder=None, local_dir=None, **_):
        if repo_id not in folders:
            raise Unusable(f"the program asks the hub for {repo_id}, which the card does not pin")
        inside = Path(subfolder or "") / filename
        file = Path(folders[repo_id]) / inside
        if not file.is_file():
            raise Unusable(f"{file} is not there: add it to 'files' of the weights in the card")
        if local_dir is None:
            return str(file)
        link = Path(local_dir) / inside
        link.parent.mkdir(parents=True, exist_ok=True)
        temporary = link.with_name(f".{link.name}.{os.getpid()}")
        temporary.symlink_to(file.resolve())
        temporary.replace(link)
        return str(link)

    huggingface_hub.hf_hub_download = given


def seed_everything(seed: int) -> None:
    """Seed Python, and numpy and torch where they are loaded; done before every job."""
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)


def _end_with_parent(parent: int) -> None:
    """Free the GPU soon after the job that started us was killed, even within a long picture."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
