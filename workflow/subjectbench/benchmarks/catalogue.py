"""What benchmarks share that are a list of subjects, each with pictures and prompts.

A case has one reference picture, because metrics and generators get one; where several are
published, a parameter of the benchmark says which.
"""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from subjectbench.benchmarks.base import Benchmark, near, read_text
from subjectbench.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

# fmt: off
PICTURES = frozenset((
    ".avif", ".bmp", ".gif", ".heic", ".heif", ".jfif", ".jpeg", ".jpg", ".png", ".ppm", ".tif",
    ".tiff", ".webp",
))
# fmt: on
"""Endings of pictures, in lower case. HEIC too: it is read by nobody, and must not go unseen."""


def pictures_in(folder: Path) -> tuple[Path, ...]:
    """Pictures of a folder by name; none if there is no such folder. Hidden files do not count."""
    if not folder.is_dir():
        return ()
    found = (p for p in folder.iterdir() if p.suffix.lower() in PICTURES and p.is_file())
    return tuple(sorted(p for p in found if not p.name.startswith(".")))


def plain(text: str) -> str:
    """Lower case, hyphens as spaces: 'Spider-Man' names the subject 'spider man'."""
    return re.sub(r"[\s-]+", " ", text.casefold()).strip()


def read_lines(path: Path) -> list[str]:
    """Lines of a UTF-8 file without the blanks around them; blank lines at the end do not count.

    Only a line feed ends a line: other separators stay in, for ``check_prompt`` to refuse.

    Raises:
        InputError: as ``read_text``.
    """
    return [line.strip() for line in read_text(path).rstrip().split("\n")]


def odd(
    kind: str, detail: str, subject: str | None = None, case: str | None = None
) -> dict[str, str | None]:
    """One anomaly; ids are None where it is about the whole."""
    return {"kind": kind, "subject_id": subject, "case_id": case, "detail": detail}


@dataclass(frozen=True)
class Prompt:
    """One case of a subject; ``number`` makes its id, ``<subject_id>-<number>``."""

    number: str
    text: str
    scenario: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Subject:
    """One subject: its id, its class noun, its prompts, all its pictures, its place in tables."""

    subject_id: str
    noun: str
    prompts: tuple[Prompt, ...]
    pictures: tuple[Path, ...] = ()
    domain: str | None = None
    kind: str | None = None
    category: str | None = None
    difficulty: str | None = None


class Catalogue(Benchmark):
    """A benchmark that can list its subjects. Ids of references are those of subjects."""

    published: ClassVar[tuple[int, int] | None] = None
    """Subjects and cases that the publishers count."""

    @abstractmethod
    def texts(self) -> list[Path]:
        """Return the files that subjects and prompts are read from."""

    @abstractmethod
    def subjects(self) -> list[Subject]:
        """Read and check everything but pictures, in an order that depends on the data only.

        Raises:
            InputError: names file, line and mend.
        """

    def where(self) -> Path:
        """Return what to name when a fault concerns the whole."""
        return self.texts()[0]

    def _reference(self, subject: Subject) -> Path | None:
        """The picture that is used: the first by name, or the one that ``reference`` counts."""
        index = getattr(self.params, "reference", 0)
        if subject.pictures and index >= len(subject.pictures):
            raise InputError(
                self.where(),
                f"subject '{subject.subject_id}' has {len(subject.pictures)} pictures, and "
                f"reference is {index}",
                "count from 0: the first is used in every subject with 0",
            )
        return subject.pictures[index] if subject.pictures else None

    def sources(self) -> list[Path]:
        """Return the text files and the pictures that are used."""
        used = (self._reference(subject) for subject in self.subjects())
        return [*self.texts(), *sorted({path for path in used if path is not None})]

    def check(self) -> None:
        """Check every text and id, and that any picture is there."""
        from subjectbench.records import unique_ids

        subjects = self.subjects()
        if not subjects:
            raise InputError(self.where(), "names no subject", "see the benchmark's card")
        unique_ids([s.subject_id for s in subjects], self.where(), "subject")
        unique_ids(
            [f"{s.subject_id}-{p.number}" for s in subjects for p in s.prompts],
            self.where(),
            "case id",
        )
        if not any([self._reference(subject) for subject in subjects]):
            raise InputError(
                self.where(), "no picture of any subject is there", self._expected(subjects[0])
            )

    def _expected(self, subject: Subject) -> str:
        """Say where a picture of this subject would be looked for."""
        folder = self.where().parent / subject.subject_id
        return near(folder) if not folder.is_dir() else f"put pictures into {folder}"

    def cases(self) -> pd.DataFrame:
        """Return one row per prompt, by subject."""
        from subjectbench.records import table

        self.check()
        rows = [
            {
                "case_id": f"{subject.subject_id}-{prompt.number}",
                "subject_id": subject.subject_id,
                "subject": subject.noun,
                "domain": subject.domain,
                "kind": subject.kind,
                "category": subject.category,
                "difficulty": subject.difficulty,
                "scenario": prompt.scenario,
                "paradigm": None,
                "prompt": prompt.text,
                "reference_id": subject.subject_id,
                "details": json.dumps(dict(prompt.details), sort_keys=True),
            }
            for subject in self.subjects()
            for prompt in subject.prompts
        ]
        return table("cases", rows, self.where())

    def references(self) -> Iterator[tuple[str, bytes | None]]:
        """Yield each subject's picture as supplied, None where there is none."""
        for subject in self.subjects():
            path = self._reference(subject)
            yield subject.subject_id, path.read_bytes() if path else None

    def reference_files(self) -> dict[str, Path]:
        """Return each subject's picture that is there."""
        found = ((s.subject_id, self._reference(s)) for s in self.subjects())
        return {name: path for name, path in found if path}

    def anomalies(self) -> list[dict[str, str | None]]:
        """List what is odd in the data, so that a report can show it.

        Returns:
            Dicts ``kind, subject_id, case_id, detail``. Kinds: ``count`` (other numbers than
            published), ``no_picture``, ``several_pictures`` (one is used), ``shared_label`` (one
            label, several subjects), ``subject_not_in_prompt`` (hyphens and case ignored),
            ``non_ascii``, and what a benchmark adds.
        """
        found = []
        subjects = self.subjects()
        counted = len(subjects), sum(len(s.prompts) for s in subjects)
        if self.published and counted != self.published:
            there, here = (f"{s} subjects and {c} cases" for s, c in (self.published, counted))
            found.append(odd("count", f"{here}; published are {there}"))
        labels = Counter(s.noun for s in subjects)
        for subject in subjects:
            name = subject.subject_id
            if not subject.pictures:
                found.append(odd("no_picture", subject.noun, name))
            if len(subject.pictures) > 1:
                used = self._reference(subject)
                assert used is not None
                found.append(
                    odd("several_pictures", f"{used.name} of {len(subject.pictures)} is used", name)
                )
            if labels[subject.noun] > 1:
                found.append(
                    odd("shared_label", f"{subject.noun}: {labels[subject.noun]} subjects", name)
                )
            for prompt in subject.prompts:
                case = f"{name}-{prompt.number}"
                if plain(subject.noun) not in plain(prompt.text):
                    found.append(
                        odd("subject_not_in_prompt", f"{subject.noun}: {prompt.text}", name, case)
                    )
                if not prompt.text.isascii():
                    strange = sorted({c for c in prompt.text if not c.isascii()})
                    found.append(odd("non_ascii", "".join(strange), name, case))
        return [*found, *self.oddities(subjects)]

    def oddities(self, subjects: list[Subject]) -> list[dict[str, str | None]]:
        """Return anomalies that only this benchmark knows of."""
        return []
