"""Simulated models of the miniworld: the asked scene, drawn with known defects.

What each picture truly keeps of the subject, follows of the prompt and lost in quality is in
``details["truth"]``, 0 to 1 each, so that metrics and raters can be held against it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from pydantic import Field

from subjectbench.config import Strict
from subjectbench.errors import InputError
from subjectbench.generators.base import Generator, Job, Outcome
from subjectbench.miniworld import defects
from subjectbench.miniworld.draw import draw
from subjectbench.miniworld.scenes import Scene, reference_scene
from subjectbench.miniworld.subjects import Subject, random_subject

Range = tuple[float, float]


class Simulated(Generator):
    """Draws with the miniworld's renderer; each defect's strength is drawn per picture."""

    class Params(Strict):
        """Parameters of a simulated model; each range is of strengths from 0 to 1."""

        drift: Range = Field(default=(0.0, 0.0), strict=False, description="Subject's looks change")
        ignore: Range = Field(
            default=(0.0, 0.0), strict=False, description="Asked parts of the scene are left out"
        )
        damage: Range = Field(
            default=(0.0, 0.0), strict=False, description="Blur, blocks, noise, ..."
        )
        copy_paste: float = Field(
            default=0.0, ge=0, le=1, description="Share of pictures with the reference pasted in"
        )
        any_subject: bool = Field(
            default=False,
            description="Draw any subject of the asked noun: the reference is not seen",
        )
        truth: bool = Field(default=True, description="Record the truth; off for controls")

    def generate(self, jobs: list[Job]) -> list[Outcome]:
        """Return one picture per job.

        Raises:
            InputError: the benchmark is not the miniworld, so there is no scene to draw.
        """
        return [self._one(job) for job in jobs]

    def _one(self, job: Job) -> Outcome:
        if "scene" not in job.details:
            raise InputError(
                f"case of {job.sample_id}", "has no scene to draw", "use it on the miniworld only"
            )
        rng = np.random.default_rng(job.seed)
        asked = Scene.from_dict(job.details["scene"])
        subject = Subject.from_dict(job.details["subject"])
        strengths = {
            n: float(rng.uniform(*getattr(self.params, n))) for n in ("drift", "ignore", "damage")
        }
        pasted = bool(rng.random() < self.params.copy_paste)
        drawn_subject, _ = defects.drift_identity(subject, strengths["drift"], rng)
        drawn_scene, _ = defects.ignore_prompt(asked, strengths["ignore"], rng)
        if self.params.any_subject:
            drawn_subject = random_subject(rng, noun=subject.noun)
        if pasted:
            drawn_scene = replace(reference_scene(), background=asked.background)
        picture = draw(drawn_subject, drawn_scene, job.reference.width)
        picture, quality = defects.damage(picture, strengths["damage"], rng)
        details = {"defects": {**{k: round(v, 6) for k, v in strengths.items()}, "pasted": pasted}}
        if self.params.truth:
            details["truth"] = {
                "preservation": round(defects.preservation(subject, drawn_subject, asked), 6),
                "following": round(defects.following(asked, drawn_scene), 6),
                "quality": round(quality, 6),
            }
        return Outcome(picture, details=details)


PLUGIN = Simulated
