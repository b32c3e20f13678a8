"""The smallest wrapper: no model, a picture that depends on all that a job says. Copy it."""

from __future__ import annotations

import random

from PIL import Image
from worker import reference, serve


def load(setup):
    """Load the model once. Here there is none."""
    share = setup.settings["share"]

    def make(job):
        """Make one picture: the reference, small, on colours drawn from seed and prompt."""
        rng = random.Random(f"{job.seed} {job.prompt} {job.subject}")
        size = (job.width, job.height)
        picture = Image.frombytes("RGB", (8, 8), rng.randbytes(8 * 8 * 3)).resize(size)
        shown = reference(job)
        shown.thumbnail([int(share * side) for side in size])
        picture.paste(shown, (rng.randrange(size[0] // 2), rng.randrange(size[1] // 2)))
        return picture

    return make


serve(load)
