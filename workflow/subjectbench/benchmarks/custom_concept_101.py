"""CustomConcept101 as published with Custom Diffusion: ``dataset.json``, prompts and pictures.

Every entry of ``dataset.json`` names a class, a folder of pictures and a file of prompts in which
``{}`` stands for the concept. Concepts of one class share a file of prompts.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from pydantic import Field

from subjectbench.benchmarks.base import check_id, check_prompt, near, read_json
from subjectbench.benchmarks.catalogue import (
    Catalogue,
    Prompt,
    Subject,
    odd,
    pictures_in,
    read_lines,
)
from subjectbench.config import LOCATION, Strict
from subjectbench.errors import InputError

FIELDS = ("class_prompt", "instance_data_dir", "prompt_filename")
"""Fields that are read; ``instance_prompt`` and ``class_data_dir`` are for training."""

PLACEHOLDER = "{}"


class CustomConcept101(Catalogue):
    """101 concepts with 20 prompts each: those of one concept alone.

    Ids: ``./benchmark_dataset/pet_cat3`` is subject and reference ``pet_cat3``; its prompts,
    counted from 0 in their file, are cases ``pet_cat3-p00`` and so on. Its category is what stands
    before the first underscore.
    """

    published = (101, 2020)

    class Params(Strict):
        """Where the published files lie, and what is made of them."""

        path: str = Field(
            json_schema_extra=LOCATION, description="Folder that holds dataset.json and prompts"
        )
        images: str | None = Field(
            default=None,
            json_schema_extra=LOCATION,
            description="Folder of <concept>/<picture>; none: benchmark_dataset inside path",
        )
        reference: int = Field(
            default=0, ge=0, description="Which picture of a concept is used, by name from 0"
        )
        unique_token: str = Field(
            default="", description="Word before the class in prompts, e.g. <new1>; empty: none"
        )

    version: ClassVar[str] = "1"
    params: Params

    @property
    def _folder(self) -> Path:
        return self.root / self.params.path

    @property
    def _images(self) -> Path:
        images = self.params.images
        return self._folder / "benchmark_dataset" if images is None else self.root / images

    def _entries(self) -> list[tuple[str, str, Path, dict[str, Any]]]:
        """Id, class, file of prompts and the entry itself, in the file's order."""
        file = self._folder / "dataset.json"
        listed = read_json(file)
        if not isinstance(listed, list) or not listed:
            raise InputError(file, "is not a list of concepts", "use the published dataset.json")
        entries = []
        for number, entry in enumerate(listed):
            where = f"{file}: [{number}]"
            if isinstance(entry, list):
                raise InputError(
                    where, "lists several concepts", "use dataset.json, not the multi-concept file"
                )
            for name in FIELDS:
                value = entry.get(name) if isinstance(entry, dict) else None
                if not isinstance(value, str) or not value.strip():
                    raise InputError(where, f"field '{name}' is {value!r}, not text")
            concept = PurePosixPath(entry["instance_data_dir"]).name
            check_id(concept, f"{where}: instance_data_dir", "concept")
            prompts = PurePosixPath(entry["prompt_filename"])
            if prompts.is_absolute() or ".." in prompts.parts:
                raise InputError(f"{where}: prompt_filename", f"'{prompts}' leaves the folder")
            noun = check_prompt(entry["class_prompt"].strip(), f"{where}: class_prompt")
            entries.append((concept, noun, self._folder / prompts, entry))
        return entries

    def texts(self) -> list[Path]:
        """Return ``dataset.json`` and the files of prompts that it names."""
        return [self._folder / "dataset.json", *sorted({file for _, _, file, _ in self._entries()})]

    def where(self) -> Path:
        """Return ``dataset.json``."""
        return self._folder / "dataset.json"

    def subjects(self) -> list[Subject]:
        """Read all files; one subject per entry, in the file's order."""
        return [
            Subject(
                concept,
                noun,
                self._prompts(file, noun),
                pictures_in(self._images / concept),
                category=concept.split("_")[0],
            )
            for concept, noun, file, _ in self._entries()
        ]

    def _prompts(self, file: Path, noun: str) -> tuple[Prompt, ...]:
        called = f"{self.params.unique_token} {noun}".strip()
        prompts = []
        for number, line in enumerate(read_lines(file), 1):
            text = check_prompt(line, f"{file}: line {number}")
            details = {"prompt_index": number - 1, "template": text}
            prompts.append(
                Prompt(f"p{number - 1:02d}", text.replace(PLACEHOLDER, called), None, details)
            )
        return tuple(prompts)

    def _expected(self, subject: Subject) -> str:
        folder = self._images
        if not folder.is_dir():
            return f"{near(folder)}; set the parameter 'images'"
        return f"expected pictures in {folder / subject.subject_id}"

    def oddities(self, subjects: list[Subject]) -> list[dict[str, str | None]]:
        """Return ``no_placeholder`` and ``class_differs`` (from what training calls a concept)."""
        found = []
        for subject in subjects:
            for prompt in subject.prompts:
                if PLACEHOLDER not in prompt.details["template"]:
                    case = f"{subject.subject_id}-{prompt.number}"
                    found.append(odd("no_placeholder", prompt.text, subject.subject_id, case))
        for concept, noun, _, entry in self._entries():
            called = str(entry.get("instance_prompt", noun))
            if not called.endswith(noun):
                found.append(odd("class_differs", f"{noun}: {called}", concept, None))
        return found


PLUGIN = CustomConcept101
