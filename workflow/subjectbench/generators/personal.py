"""Stable Diffusion that was trained for the subject: what all per-subject methods share."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from pathlib import Path
from typing import Any

from subjectbench.cards import GeneratorCard
from subjectbench.generators.base import Job, Outcome
from subjectbench.generators.stable_diffusion import StableDiffusion
from subjectbench.tuning.base import PIPELINES
from subjectbench.tuning.words import weave


class Personal(StableDiffusion):
    """Takes up a subject's trained files, then samples as the base does.

    The subject's name stands in the prompt where the noun stood; ``details["woven"]`` says how it
    got there.
    """

    pipelines = PIPELINES

    @classmethod
    def check(cls, params: Any, card: GeneratorCard, root: Path) -> None:
        """Find faults in the templates."""
        assert cls.tuning
        cls.tuning.check(params, f"{card.title}: params")

    @abstractmethod
    def take_up(self, folder: Path) -> None:
        """Load what was trained for the subject of the next jobs."""

    def called(self, noun: str) -> str:
        """Name of a subject of this class, as training said it."""
        return str(self.params.name.format(noun=noun))

    def texts(self, jobs: list[Job]) -> list[str]:
        """Return one text per job, the subject by its name."""
        named = []
        for job in jobs:
            name = self.called(job.subject)
            told = weave(job.prompt, job.subject, name)[0]
            named.append(replace(job, prompt=told, subject=name).text(self.params.template))
        return named

    def generate(self, jobs: list[Job]) -> list[Outcome]:
        """Return one picture per job, made by the subject's own model."""
        outcomes = super().generate(jobs)
        for job, outcome in zip(jobs, outcomes, strict=True):
            outcome.details["woven"] = weave(job.prompt, job.subject, "")[1]
        return outcomes
