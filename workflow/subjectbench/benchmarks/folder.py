"""Your own benchmark: a folder of pictures with prompts, in one of two forms.

Simple: ``<subject>/<picture>`` and ``prompts.txt``, one prompt per line for every subject, in which
``{}`` or ``[SUBJECT]`` stands for it. With tables: ``subjects.csv``, ``prompts.csv`` and pictures.
``subjects.csv``: ``subject_id, subject, image`` and, if you have them, ``domain, kind, category,
difficulty``. ``prompts.csv``: ``subject_id, prompt`` and, if you have them, ``prompt_id,
scenario``. Cells are text: 007 stays 007. ``image`` is a path inside the folder.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from pydantic import Field

from subjectbench.benchmarks.base import check_id, check_prompt, near, read_rows
from subjectbench.benchmarks.catalogue import (
    Catalogue,
    Prompt,
    Subject,
    pictures_in,
    read_lines,
)
from subjectbench.config import LOCATION, Strict
from subjectbench.errors import InputError, suggest

SUBJECT_COLUMNS = ("subject_id", "subject", "image")
SUBJECT_EXTRAS = ("domain", "kind", "category", "difficulty")
PROMPT_COLUMNS = ("subject_id", "prompt")
PROMPT_EXTRAS = ("prompt_id", "scenario")
PLACEHOLDER = re.compile(r"\{\}|\[SUBJECT\]")


class FolderBenchmark(Catalogue):
    """Subjects and prompts of your own.

    The simple form names a subject by its folder: ``dog6`` and ``dog_6`` are dogs; the first
    picture by name is the reference. Tables say more: other nouns, own prompts, scenarios.

    Case ids are ``<subject_id>-<prompt_id>``. Without ``prompt_id`` a subject's prompts are
    numbered ``p00, p01, …`` in the file's order: give ids if you mean to insert prompts later.
    """

    class Params(Strict):
        """Where the folder lies."""

        path: str = Field(
            json_schema_extra=LOCATION,
            description="Folder with prompts.txt, or subjects.csv and prompts.csv",
        )

    version: ClassVar[str] = "1"
    params: Params

    @property
    def _folder(self) -> Path:
        return self.root / self.params.path

    def _subject_rows(self) -> dict[str, dict[str, Any]]:
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

    def _prompt_rows(self, subjects: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
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

    @property
    def _simple(self) -> bool:
        """Whether ``prompts.txt`` holds the prompts; both forms at once are refused."""
        simple = (self._folder / "prompts.txt").is_file()
        if simple and (self._folder / "subjects.csv").is_file():
            raise InputError(
                self._folder, "holds both prompts.txt and subjects.csv", "keep one of the two forms"
            )
        return simple

    def texts(self) -> list[Path]:
        """Return ``prompts.txt``, or both CSV files."""
        names = ("prompts.txt",) if self._simple else ("subjects.csv", "prompts.csv")
        return [self._folder / name for name in names]

    def subjects(self) -> list[Subject]:
        """Read either form; subjects by name, or in the order of ``subjects.csv``."""
        return self._of_folders() if self._simple else self._of_tables()

    def _of_tables(self) -> list[Subject]:
        rows = self._subject_rows()
        prompts: dict[str, list[Prompt]] = {name: [] for name in rows}
        for prompt in self._prompt_rows(rows):
            name = prompt["subject_id"]
            number = prompt["case_id"].removeprefix(f"{name}-")
            prompts[name].append(Prompt(number, prompt["prompt"], prompt.get("scenario") or None))
        return [
            Subject(
                name,
                row["subject"],
                tuple(prompts[name]),
                (row["file"],),
                **{extra: row.get(extra) or None for extra in SUBJECT_EXTRAS},
            )
            for name, row in rows.items()
        ]

    def _of_folders(self) -> list[Subject]:
        file = self._folder / "prompts.txt"
        templates = [
            self._template(line, f"{file}: line {number}")
            for number, line in enumerate(read_lines(file), 1)
        ]
        loose = pictures_in(self._folder)
        if loose:
            raise InputError(
                loose[0],
                "lies beside the subjects' folders",
                f"put it into a folder named after its subject, e.g. {loose[0].stem}",
            )
        subjects = []
        for folder in sorted(p for p in self._folder.iterdir() if p.is_dir()):
            if folder.name.startswith("."):
                continue
            check_id(folder.name, folder, "subject")
            noun = noun_of(folder.name)
            prompts = tuple(
                Prompt(f"p{index:02d}", noun.join(PLACEHOLDER.split(text)))
                for index, text in enumerate(templates)
            )
            subjects.append(Subject(folder.name, noun, prompts, pictures_in(folder)))
        return subjects

    @staticmethod
    def _template(line: str, where: str) -> str:
        for found in re.findall(r"\{[^{}]*\}|\[\w+\]", line):
            if not PLACEHOLDER.fullmatch(found):
                raise InputError(
                    where, f"{found} is no placeholder", "write {} or [SUBJECT] for the subject"
                )
        return check_prompt(line, where)


def noun_of(folder: str) -> str:
    """Class noun of a subject's folder: ``grey_cat_2`` is a grey cat, ``dog6`` is a dog."""
    words = re.sub(r"[_-]+", " ", folder).strip()
    return words.rstrip("0123456789 ") or words


def _choice(value: str | None, known: tuple[str, ...], where: str) -> None:
    if value and value not in known:
        raise InputError(where, f"unknown value '{value}'", suggest(value, known))


PLUGIN = FolderBenchmark
