"""Your own benchmark: a folder with ``subjects.csv``, ``prompts.csv`` and reference pictures.

``subjects.csv``: ``subject_id, subject, image`` and, if you have them, ``domain, kind, category,
difficulty``. ``prompts.csv``: ``subject_id, prompt`` and, if you have them, ``prompt_id,
scenario``. Cells are text: 007 stays 007. ``image`` is a path inside the folder.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from subjectbench.benchmarks.base import Benchmark, check_id, check_prompt, near, read_rows
from subjectbench.config import LOCATION, Strict
from subjectbench.errors import InputError, suggest

if TYPE_CHECKING:
    import pandas as pd

SUBJECT_COLUMNS = ("subject_id", "subject", "image")
SUBJECT_EXTRAS = ("domain", "kind", "category", "difficulty")
PROMPT_COLUMNS = ("subject_id", "prompt")
PROMPT_EXTRAS = ("prompt_id", "scenario")


class FolderBenchmark(Benchmark):
    """Subjects and prompts from two CSV files.

    Case ids are ``<subject_id>-<prompt_id>``. Without ``prompt_id`` a subject's prompts are
    numbered ``p00, p01, …`` in the file's order: give ids if you mean to insert prompts later.
    """

    class Params(Strict):
        """Where the folder lies."""

        path: str = Field(
            json_schema_extra=LOCATION, description="Folder that holds subjects.csv and prompts.csv"
        )

    version: ClassVar[str] = "1"
    params: Params

    @property
    def _folder(self) -> Path:
        return self.root / self.params.path

    def _subjects(self) -> dict[str, dict[str, Any]]:
        """Rows of ``subjects.csv`` by id, with ``file``, the picture's path."""
        from subjectbench.records import DIFFICULTIES, unique_ids

        path = self._folder / "subjects.csv"
        _, rows = read_rows(path, ",", SUBJECT_COLUMNS, SUBJECT_EXTRAS)
        # Twins first: 'Strasse' and 'Straße' are better told as a pair than as a bad letter.
        unique_ids([row["subject_id"] for _, row in rows], path, "subject_id")
        subjects = {}
        for line, row in rows:
            where = f"{path}: line {line}"
            check_id(row["subject_id"], where, "subject_id")
            if not row["subject"].strip():
                raise InputError(where, "the subject is empty", "write its class, e.g. mug")
            _choice(row.get("difficulty"), DIFFICULTIES, f"{where}: difficulty")
            subjects[row["subject_id"]] = {**row, "file": self._picture(row["image"], where)}
        if not subjects:
            raise InputError(path, "has a header and no rows", "add a row per subject")
        return subjects

    def _picture(self, image: str, where: str) -> Path:
        inside = PurePosixPath(image)
        if not image.strip() or "\\" in image or inside.is_absolute() or ".." in inside.parts:
            raise InputError(
                where, f"image {image!r} is no path inside the folder", "e.g. images/mug.png"
            )
        file = self._folder / inside
        if not file.is_file():
            raise InputError(where, f"image '{image}' is not there", near(file))
        return file

    def _prompts(self, subjects: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
        """Rows of ``prompts.csv`` with ``case_id``, by subject, then in the file's order."""
        from subjectbench.records import SCENARIOS, unique_ids

        path = self._folder / "prompts.csv"
        _, rows = read_rows(path, ",", PROMPT_COLUMNS, PROMPT_EXTRAS)
        prompts: dict[str, list[dict[str, Any]]] = {s: [] for s in subjects}
        for line, row in rows:
            where, subject = f"{path}: line {line}", row["subject_id"]
            if subject not in subjects:
                raise InputError(
                    where, f"unknown subject_id '{subject}'", suggest(subject, subjects)
                )
            check_prompt(row["prompt"], where)
            _choice(row.get("scenario"), SCENARIOS, f"{where}: scenario")
            mine = prompts[subject]
            number = check_id(row.get("prompt_id") or f"p{len(mine):02d}", where, "prompt_id")
            mine.append({**row, "case_id": f"{subject}-{number}"})
        for subject, mine in prompts.items():
            if not mine:
                raise InputError(path, f"subject '{subject}' has no prompt", "add one")
        ordered = [row for mine in prompts.values() for row in mine]
        unique_ids([row["case_id"] for row in ordered], path, "case id")
        return ordered

    def sources(self) -> list[Path]:
        """Return both CSV files and the pictures they name."""
        path = self._folder / "subjects.csv"
        _, rows = read_rows(path, ",", SUBJECT_COLUMNS, SUBJECT_EXTRAS)
        pictures = {self._picture(row["image"], f"{path}: line {line}") for line, row in rows}
        return [path, self._folder / "prompts.csv", *sorted(pictures)]

    def check(self) -> None:
        """Check both files, all ids and prompts, and that every picture is there."""
        self._prompts(self._subjects())

    def cases(self) -> pd.DataFrame:
        """Return one row per prompt, by subject in the order of ``subjects.csv``."""
        from subjectbench.records import table

        subjects = self._subjects()
        rows = []
        for prompt in self._prompts(subjects):
            subject = subjects[prompt["subject_id"]]
            extras = {name: subject.get(name) or None for name in SUBJECT_EXTRAS}
            rows.append(
                {
                    "case_id": prompt["case_id"],
                    "subject_id": prompt["subject_id"],
                    "subject": subject["subject"],
                    **extras,
                    "scenario": prompt.get("scenario") or None,
                    "paradigm": None,
                    "prompt": prompt["prompt"],
                    "reference_id": prompt["subject_id"],
                    "details": json.dumps({}),
                }
            )
        return table("cases", rows, self._folder)

    def references(self) -> Iterator[tuple[str, bytes | None]]:
        """Yield each subject's picture as supplied."""
        for name, subject in self._subjects().items():
            yield name, subject["file"].read_bytes()


def _choice(value: str | None, known: tuple[str, ...], where: str) -> None:
    if value and value not in known:
        raise InputError(where, f"unknown value '{value}'", suggest(value, known))


PLUGIN = FolderBenchmark
