"""UFO-Bench's published files: their form, their names, and how units are read from them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from subjectbench.benchmarks.base import read_json
from subjectbench.config import validate
from subjectbench.errors import InputError
from subjectbench.units import Unit, normalised, tool_for

YES_NO = ["Yes", "No"]


class _Published(BaseModel):
    """Strict in what we read; other keys are the publishers' business."""

    model_config = ConfigDict(strict=True, frozen=True)


Name = Annotated[str, Field(max_length=120, pattern=r"\S")]
Relevance = Literal["image_only", "text_only", "text_and_image"]
Level = Literal["global_attribute", "part"]
Reward = Annotated[int, Field(ge=1, le=5)]


class Templates(_Published):
    """One category object of the metadata."""

    category: Name
    subtypes: list[Name] | None = None
    templates: dict[str, list[str]] = Field(min_length=1)


class _Part(_Published):
    name: Name
    relevance: Relevance
    reward: Reward


class _Attribute(_Part):
    name: Name = Field(alias="type")


class _Subject(_Published):
    global_attributes: list[_Attribute]
    parts: list[_Part]


class _Analysis(_Published):
    subject_type: str = ""


class Decomposition(_Published):
    """``T_gt/.../<uid>.json``. Older ones have no ``uid``."""

    analysis: _Analysis = Field(default=_Analysis(), alias="_analysis")
    prompt: str = ""
    uid: str | None = None
    subject: _Subject

    def aspects(self) -> Iterator[tuple[Level, _Part]]:
        """Level and aspect, attributes first, in the file's order."""
        yield from (("global_attribute", a) for a in self.subject.global_attributes)
        yield from (("part", p) for p in self.subject.parts)


class _Asked(_Published):
    question: Annotated[str, Field(pattern=r"\S")]
    answer_space: list[str]


class _Question(_Published):
    part: Name
    level: Level
    relevance: Relevance
    reward: Reward
    question: _Asked


class Questions(_Published):
    """``Question_list/.../<uid>.json``; a bare list is read as ``questions``."""

    source: str | None = None
    questions: list[_Question]


class Listed(_Published):
    """One entry of a sample list."""

    category: Name
    subtype: str = ""
    edit_type: Name
    uid: Name


def safe(label: str) -> str:
    """Return a label as the publishers' code names folders: ``Rigid object``: ``Rigid_object``."""
    return re.sub(r"[^\w.]+", "_", re.sub(r"[ -]", "_", label)).strip("_")


def same(label: str) -> str:
    """Equal for labels that mean the same folder."""
    return safe(label).casefold()


def descend(root: Path, *labels: str) -> Path | None:
    """Follow labels into folders, each named as the label or sanitised; None if there is none.

    Raises:
        InputError: a folder holds both, so that neither is the right one; or a label is a path.
    """
    folder = root
    for label in labels:
        if "/" in label or "\\" in label or not safe(label).strip("."):
            raise InputError(folder, f"'{label}' cannot be a folder", "mend the metadata")
        found = [p for p in dict.fromkeys((folder / label, folder / safe(label))) if p.is_dir()]
        if len(found) == 2:
            both = " and ".join(f"'{p.name}'" for p in found)
            raise InputError(folder, f"holds both {both}", "put the files of both into one")
        if not found:
            return None
        folder = found[0]
    return folder


def read_units(uid: str, kind: str, tgt: Path, questions: Path) -> tuple[Decomposition, list[Unit]]:
    """Read both files of a case and join them by level and name; twins stay.

    Args:
        uid: the case's name, which the files may repeat.
        kind: the category, which says whether there is a person where ``tgt`` does not.
        tgt: file of ``T_gt``.
        questions: file of ``Question_list``.

    Raises:
        InputError: naming file and field: not the published form, a value out of range, another
            case, or a unit that only one of the two files has or that they rate differently.
    """
    decomposition = validate(Decomposition, read_json(tgt), tgt)
    value = read_json(questions)
    bare = isinstance(value, list)
    asked = validate(Questions, {"questions": value} if bare else value, questions)
    for path, named in ((tgt, decomposition.uid), (questions, asked.source)):
        if named is not None and named != uid:
            raise InputError(path, f"is about '{named}'", "each file is named after its own case")
    by_aspect: dict[tuple[str, str], _Question] = {}
    for question in asked.questions:
        by_aspect.setdefault((question.level, normalised(question.part)), question)
        if question.question.answer_space != YES_NO:
            raise InputError(
                questions,
                f"answer_space of '{question.part}' is {question.question.answer_space}",
                f"only {YES_NO} is known",
            )
    kind = decomposition.analysis.subject_type or kind
    units, known = [], set()
    for level, aspect in decomposition.aspects():
        key = (level, normalised(aspect.name))
        if key not in by_aspect:
            raise InputError(questions, f"no question about {level} '{aspect.name}'", f"see {tgt}")
        written = by_aspect[key]
        ours, theirs = (aspect.relevance, aspect.reward), (written.relevance, written.reward)
        if key not in known and ours != theirs:
            raise InputError(
                questions,
                f"{level} '{aspect.name}' is {theirs}, but {ours} in {tgt}",
                "make relevance and reward agree",
            )
        known.add(key)
        units.append(
            Unit(
                level=level,
                name=aspect.name,
                relevance=aspect.relevance,
                weight=aspect.reward,
                question=written.question.question,
                tool=tool_for(aspect.name, aspect.relevance, kind),
            )
        )
    if not units:
        raise InputError(tgt, "has neither attributes nor parts", "a case has one unit at least")
    unknown = sorted(set(by_aspect) - known)
    if unknown:
        fault = "asks about {} '{}'".format(*unknown[0])
        raise InputError(questions, fault, f"{tgt} has no such unit")
    return decomposition, units
