"""Controls: what scores do when a model ignores one of its inputs, or both.

A metric that does not rank them as their names say is not measuring what it claims.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from PIL import Image
from pydantic import Field

from subjectbench.config import Strict
from subjectbench.generators.base import Generator, Job, Outcome
from subjectbench.vocabulary import Status


class Control(Generator):
    """Pictures without a model.

    * ``copy_reference``: the reference, whatever the prompt. Upper bound of preservation.
    * ``shuffled_subject``: the reference of the next subject in order; never the right one.
    * ``noise``: uniform noise of the reference's size. Lower bound of everything.
    """

    class Params(Strict):
        """Parameters of a control card."""

        mode: Literal["copy_reference", "shuffled_subject", "noise"] = Field(
            description="What is put in place of a generated picture"
        )

    def generate(self, jobs: list[Job]) -> list[Outcome]:
        """Return one picture per job."""
        return [self._one(job) for job in jobs]

    def _one(self, job: Job) -> Outcome:
        if self.params.mode == "copy_reference":
            return Outcome(job.reference)
        if self.params.mode == "noise":
            shape = (job.reference.height, job.reference.width, 3)
            values = np.random.default_rng(job.seed).integers(0, 256, shape, np.uint8)
            return Outcome(Image.fromarray(values))
        subjects = self.references.subjects
        start = subjects.index(job.subject_id)
        for step in range(1, len(subjects)):
            other = subjects[(start + step) % len(subjects)]
            picture = self.references.picture(other)
            if picture is not None:
                return Outcome(picture, details={"shown_subject": other})
        return Outcome(None, Status.NOT_APPLICABLE, {"reason": "no other subject has a picture"})


PLUGIN = Control
