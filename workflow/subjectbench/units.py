"""Atomic evaluation units: what UFO splits a case into (UFO, section 3.1). Light to import."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pydantic import Field

from subjectbench.config import Strict


class Unit(Strict):
    """One thing about a picture that can be right or wrong by itself.

    ``name`` says the aspect and never its value: "colour", not "red".
    """

    level: Literal["global_attribute", "part", "setting"]
    name: str = Field(min_length=1, max_length=120)
    relevance: Literal["image_only", "text_only", "text_and_image"]
    weight: int = Field(ge=1, le=5, description="Importance; UFO's reward")
    question: str = Field(min_length=1, description="Answered by yes or no")
    tool: Literal["vqa", "face"] = Field(
        default="vqa", description="face: also verified by comparing faces"
    )
    about: dict[str, Any] = Field(
        default_factory=dict,
        description="The same in values, for judges that do not read: e.g. {'expected': 'red'}",
    )

    @property
    def unit_id(self) -> str:
        """Level and normalised name: what makes two units the same."""
        return f"{self.level}/{normalised(self.name)}"


def normalised(name: str) -> str:
    """Return a name in lower case, NFKC, with single spaces: ``" Face "`` is ``"face"``."""
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())


def tool_for(name: str, relevance: str, subject_type: str) -> Literal["vqa", "face"]:
    """Return the tool of a unit: ``face`` only for the face of a person as in the reference.

    Args:
        name: of the unit, in any writing.
        relevance: the reference must have a say: not ``text_only``.
        subject_type: of UFO's taxonomy; only ``HUMAN``, in any writing, has a face to compare.
    """
    person = normalised(subject_type) == "human"
    compared = normalised(name) == "face" and relevance != "text_only"
    return "face" if person and compared else "vqa"


def merged(units: Iterable[Unit]) -> list[Unit]:
    """Keep the first of units with the same id, so that no aspect weighs twice, in order."""
    found: dict[str, Unit] = {}
    for unit in units:
        found.setdefault(unit.unit_id, unit)
    return list(found.values())


def by_class(units: Iterable[Unit]) -> Mapping[str, list[Unit]]:
    """Group units by modality class, classes in the order of their first unit."""
    out: dict[str, list[Unit]] = {}
    for unit in units:
        out.setdefault(unit.relevance, []).append(unit)
    return out
