"""Miniworld: a benchmark whose truth is known, drawn from a seed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from subjectbench.benchmarks.base import Benchmark
from subjectbench.config import Strict
from subjectbench.vocabulary import DIFFICULTIES

if TYPE_CHECKING:
    import pandas as pd

    from subjectbench.miniworld.subjects import Subject


class Miniworld(Benchmark):
    """Subjects of DSH-Bench's three tiers and difficulties, 12 prompts each in its six scenarios.

    With fewer difficulties or scenarios it is a part of the same world: a subject or case keeps its
    id, its looks and its words, and there are still ``subjects`` subjects.

    ``details`` of a case holds the subject's attributes and the scene that the prompt asks for.
    """

    synthetic = True
    amounts = frozenset({"subjects"})

    class Params(Strict):
        """Parameters of the miniworld card."""

        subjects: int = Field(default=24, ge=2, le=999, description="Number of subjects")
        seed: int = Field(default=0, ge=0, description="Decides subjects, prompts and scenes")
        size: int = Field(default=64, ge=32, le=512, description="Side of the pictures in pixels")
        difficulties: list[Literal["easy", "medium", "hard"]] = Field(
            default=["easy", "medium", "hard"], min_length=1, description="Of the subjects"
        )
        scenarios: list[
            Literal["background", "viewpoint", "interaction", "attribute", "style", "imagination"]
        ] = Field(
            default=["background", "viewpoint", "interaction", "attribute", "style", "imagination"],
            min_length=1,
            description="Of the prompts, two of each",
        )

    def sources(self) -> list[Path]:
        """Return no files: everything is drawn."""
        return []

    def check(self) -> None:
        """Find nothing to check."""

    def reference_files(self) -> dict[str, Path]:
        """Return no files: what is drawn is told by the cases, and by size and seed."""
        return {}

    def _subjects(self) -> list[Subject]:
        from subjectbench.miniworld.subjects import make_subjects

        # Difficulties take turns, so of three times as many each one alone would be enough.
        world = make_subjects(self.params.seed, self.params.subjects * len(DIFFICULTIES))
        chosen = [s for s in world if s.difficulty in self.params.difficulties]
        return chosen[: self.params.subjects]

    def cases(self) -> pd.DataFrame:
        """Return two cases per subject and scenario."""
        from subjectbench import records
        from subjectbench.miniworld.scenes import make_prompts

        rows = []
        for subject in self._subjects():
            prompts = make_prompts(subject, self.params.seed)
            for number, (scenario, prompt, scene) in enumerate(prompts):
                if scenario not in self.params.scenarios:
                    continue
                rows.append(
                    {
                        "case_id": f"{subject.subject_id}-p{number:02d}",
                        "subject_id": subject.subject_id,
                        "subject": subject.noun,
                        "domain": subject.domain,
                        "kind": subject.kind,
                        "category": subject.category,
                        "difficulty": subject.difficulty,
                        "scenario": scenario,
                        "paradigm": None,
                        "prompt": prompt,
                        "reference_id": subject.subject_id,
                        "details": json.dumps(
                            {"scene": scene.to_dict(), "subject": subject.to_dict()}, sort_keys=True
                        ),
                    }
                )
        return records.table("cases", rows, "miniworld")

    def references(self) -> Iterator[tuple[str, bytes | None]]:
        """Draw each subject in the reference scene."""
        from subjectbench import images
        from subjectbench.miniworld.draw import draw
        from subjectbench.miniworld.scenes import reference_scene

        for subject in self._subjects():
            picture = draw(subject, reference_scene(), self.params.size)
            yield subject.subject_id, images.encode_png(picture)


PLUGIN = Miniworld
