"""DreamBench++ as published: ``images/…/<category>/<NN>.jpg`` and ``captions/…/<NN>.txt``.

Line 1 of a caption file names the subject, the next nine are its prompts. Animals and humans lie
one folder deeper (``live_subject/animal``) than objects and styles.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from subjectbench.benchmarks.base import check_id, check_prompt, near
from subjectbench.benchmarks.catalogue import (
    PICTURES,
    Catalogue,
    Prompt,
    Subject,
    pictures_in,
    read_lines,
)
from subjectbench.config import LOCATION, Strict
from subjectbench.errors import InputError, suggest

CATEGORIES = {"animal": "Animal", "human": "Human", "object": "Object", "style": None}
"""The last folder's name to DSH-Bench's second tier; a style reference shows no one subject."""

PROMPT_KINDS = ["photorealistic"] * 4 + ["style"] * 3 + ["imaginative"] * 2
"""What the prompts ask for, by their place."""

SCENARIOS = {"style": "style", "imaginative": "imagination"}
"""To DSH-Bench's scenarios. Photorealistic prompts may be of any of the other four: none."""


class DreamBenchPlus(Catalogue):
    """150 pictures with 9 prompts each.

    Ids: ``captions/live_subject/animal/07.txt`` is subject and reference ``animal-07``, its prompts
    are cases ``animal-07-p0`` to ``animal-07-p8``. ``details`` has the publishers' own id.
    """

    published = (150, 1350)

    class Params(Strict):
        """Where the published files lie."""

        path: str = Field(
            json_schema_extra=LOCATION, description="Folder that holds images and captions"
        )

    version: ClassVar[str] = "1"
    params: Params

    @property
    def _folder(self) -> Path:
        return self.root / self.params.path

    def texts(self) -> list[Path]:
        """Return every caption file, sorted.

        Raises:
            InputError: there is none.
        """
        folder = self._folder / "captions"
        found = sorted(p for p in folder.rglob("*.txt") if not p.name.startswith("."))
        if not found:
            missing = not folder.is_dir()
            raise InputError(
                folder,
                "no such folder" if missing else "holds no <category>/<NN>.txt",
                near(folder) if missing else "unpack the published archive",
            )
        return found

    def where(self) -> Path:
        """Return the folder."""
        return self._folder

    def subjects(self) -> list[Subject]:
        """Read every caption file, by path."""
        files = self.texts()
        self._refuse_uncaptioned(files)
        listed = cache(pictures_in)  # many subjects lie in one folder
        return [self._subject(path, listed) for path in files]

    def _refuse_uncaptioned(self, files: list[Path]) -> None:
        captions, images = self._folder / "captions", self._folder / "images"
        captioned = {path.relative_to(captions).with_suffix("") for path in files}
        for path in sorted(images.rglob("*")):
            if path.suffix.lower() not in PICTURES or path.name.startswith("."):
                continue
            inside = path.relative_to(images).with_suffix("")
            if inside not in captioned:
                caption = (captions / inside).with_suffix(".txt")
                raise InputError(path, f"has no caption file {caption}", near(caption))

    def _subject(self, path: Path, listed: Callable[[Path], tuple[Path, ...]]) -> Subject:
        category = path.parent.name
        if category not in CATEGORIES:
            raise InputError(path, f"unknown category '{category}'", suggest(category, CATEGORIES))
        noun, *captions = read_lines(path)
        if not noun:
            raise InputError(f"{path}: line 1", "names no subject", "line 1 is its class, e.g. cat")
        if len(captions) != len(PROMPT_KINDS):
            raise InputError(
                path,
                f"has {len(captions)} prompts below the subject, not {len(PROMPT_KINDS)}",
                "one per line; their places say what they ask for",
            )
        name = check_id(f"{category}-{path.stem}", path, "category and number")
        live = "live_subject_" if category in ("animal", "human") else ""
        published = f"{live}{category}_{path.stem}_{noun.lower().replace(' ', '_')}"
        prompts = tuple(
            Prompt(
                f"p{index}",
                check_prompt(text, f"{path}: line {index + 2}"),
                SCENARIOS.get(PROMPT_KINDS[index]),
                {
                    "prompt_index": index,
                    "prompt_kind": PROMPT_KINDS[index],
                    "collection_id": published,
                },
            )
            for index, text in enumerate(captions)
        )
        folder = self._folder / "images" / path.parent.relative_to(self._folder / "captions")
        pictures = tuple(p for p in listed(folder) if p.stem == path.stem)
        if len(pictures) > 1:
            raise InputError(
                path, f"has two pictures, {pictures[0].name} and {pictures[1].name}", "keep one"
            )
        return Subject(name, noun, prompts, pictures, kind=CATEGORIES[category], category=category)

    def _expected(self, subject: Subject) -> str:
        folder = self._folder / "images"
        return near(folder) if not folder.is_dir() else f"{folder} mirrors the folder captions"


PLUGIN = DreamBenchPlus
