"""DreamBench: the data set of DreamBooth as published, a folder per subject and one text file.

``prompts_and_classes.txt`` holds a list ``subject_name,class`` and two lists of 25 templates, for
objects and for live subjects; ``{0}`` stands for a rare token and ``{1}`` for the class.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from subjectbench.benchmarks.base import check_id, check_prompt
from subjectbench.benchmarks.catalogue import (
    Catalogue,
    Prompt,
    Subject,
    odd,
    pictures_in,
    read_lines,
)
from subjectbench.config import LOCATION, Strict
from subjectbench.errors import InputError, suggest

FILE = "prompts_and_classes.txt"
HEADS = {"Object Prompts": "object", "Live Subject Prompts": "live"}
TEMPLATE = re.compile(r"""(['"])(?P<text>.*)\1\.format\(unique_token, class_token\),?""")

PARTS = {
    "object": (("recontextualization", 20), ("property_modification", 5)),
    "live": (("recontextualization", 10), ("accessorization", 10), ("property_modification", 5)),
}
"""What the templates ask for, by their place in the list (DreamBooth, section 4.1)."""

PROMPT_KINDS = {name: [k for k, n in parts for _ in range(n)] for name, parts in PARTS.items()}

SCENARIOS = {"property_modification": "attribute"}
"""To DSH-Bench's scenarios, where the definitions agree (colour, surface, shape). Its paper counts
22.7 % of DreamBench's prompts as attribute changes; these are 20 %."""


class DreamBench(Catalogue):
    """30 subjects with 25 prompts each.

    Ids: folder ``dog6`` is subject and reference ``dog6``; its prompts, counted from 0 in the
    file's order, are cases ``dog6-p00`` to ``dog6-p24``.
    """

    published = (30, 750)

    class Params(Strict):
        """Where the published files lie, and what is made of them."""

        path: str = Field(
            json_schema_extra=LOCATION, description=f"Folder that holds {FILE} and <subject>/*.jpg"
        )
        reference: int = Field(
            default=0, ge=0, description="Which picture of a subject is used, by name from 0"
        )
        unique_token: str = Field(
            default="", description="Word before the class in prompts; empty: none, as most do"
        )
        live_classes: list[str] = Field(
            default=["cat", "dog"], description="Classes that get the prompts for live subjects"
        )

    version: ClassVar[str] = "1"
    params: Params

    @property
    def _folder(self) -> Path:
        return self.root / self.params.path

    def texts(self) -> list[Path]:
        """Return the one text file."""
        return [self._folder / FILE]

    def _read(self) -> tuple[dict[str, str], dict[str, list[str]]]:
        """Classes by subject, and templates by list.

        Nothing in the file is run: it is read line by line, and a line of no known form is a fault.
        """
        path = self._folder / FILE
        classes: dict[str, str] = {}
        templates: dict[str, list[str]] = {name: [] for name in HEADS.values()}
        section = ""
        for number, line in enumerate(read_lines(path), 1):
            where = f"{path}: line {number}"
            if line in HEADS or line == "Classes":
                section = HEADS.get(line, line)
            elif line in ("", "Prompts", "subject_name,class", "prompt_list = [", "]"):
                continue
            elif section == "Classes" and line.count(",") == 1:
                name, noun = (part.strip() for part in line.split(","))
                check_id(name, where, "subject_name")
                if name in classes:
                    raise InputError(where, f"subject '{name}' is listed twice", "keep one")
                classes[name] = check_prompt(noun, where)
            elif section in templates and (found := TEMPLATE.fullmatch(line)):
                templates[section].append(self._template(found["text"], where))
            else:
                raise InputError(
                    where,
                    f"{line[:60]!r} is neither a class nor a template",
                    "expected 'subject,class' or 'a {0} {1} ...'.format(unique_token, class_token)",
                )
        for name, found_templates in templates.items():
            if not found_templates:
                head = next(h for h, n in HEADS.items() if n == name)
                raise InputError(path, f"no template below '{head}'", "use the published file")
        for noun in self.params.live_classes:
            if noun not in classes.values():
                raise InputError(
                    path, f"no subject of live class '{noun}'", suggest(noun, set(classes.values()))
                )
        return classes, templates

    @staticmethod
    def _template(text: str, where: str) -> str:
        if re.findall(r"\{.*?\}", text) != ["{0}", "{1}"]:
            raise InputError(where, f"template {text!r} lacks {{0}} {{1}}", "use both, once each")
        return check_prompt(text, where)

    def subjects(self) -> list[Subject]:
        """Read the file; one subject per line of its list, in the list's order."""
        classes, templates = self._read()
        return [self._subject(name, noun, templates) for name, noun in classes.items()]

    def _subject(self, name: str, noun: str, templates: dict[str, list[str]]) -> Subject:
        which = "live" if noun in self.params.live_classes else "object"
        kinds = PROMPT_KINDS[which]
        prompts = []
        for index, template in enumerate(templates[which]):
            filled = template.replace("{0}", self.params.unique_token).replace("{1}", noun)
            details: dict[str, Any] = {"prompt_index": index}
            if len(templates[which]) == len(kinds):  # else places say nothing
                details["prompt_kind"] = kinds[index]
            scenario = SCENARIOS.get(details.get("prompt_kind", ""))
            prompts.append(Prompt(f"p{index:02d}", " ".join(filled.split()), scenario, details))
        return Subject(
            name,
            noun,
            tuple(prompts),
            pictures_in(self._folder / name),
            kind="Animal" if which == "live" else "Object",
        )

    def oddities(self, subjects: list[Subject]) -> list[dict[str, str | None]]:
        """Return ``unlisted_folder``: pictures of a subject that the text file does not name."""
        listed = {s.subject_id for s in subjects}
        folders = sorted(p for p in self._folder.iterdir() if p.is_dir() and p.name not in listed)
        return [odd("unlisted_folder", p.name) for p in folders if pictures_in(p)]


PLUGIN = DreamBench
