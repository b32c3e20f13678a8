"""How a question is laid out for a judge: pictures named in order, text filled in, form of reply.

Shared by rubrics and decompositions. Nothing is shown that the caller does not name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from subjectbench.asking.base import Ask, Message, Picture
from subjectbench.asking.sending import PicturePolicy

if TYPE_CHECKING:
    from PIL import Image

Role = Literal["reference", "generated"]

PLACES = ("prompt", "subject")
"""Names that a template may hold between braces."""

_PLACE = re.compile(r"\{(\w+)\}")
_NAMES = {"reference": "the reference", "generated": "the generated one"}


def places(template: str) -> set[str]:
    """Return the names between braces.

    Raises:
        ValueError: one of them is not among ``PLACES``.
    """
    found = set(_PLACE.findall(template))
    if found - set(PLACES):
        raise ValueError(f"unknown {{{min(found - set(PLACES))}}}; known: {', '.join(PLACES)}")
    return found


def filled(template: str, values: Mapping[str, str]) -> str:
    """Put values into a template, once: braces inside a value stay as they are."""
    return _PLACE.sub(lambda place: values[place[1]], template)


def pictures(
    see: Sequence[Role], images: Mapping[str, Image.Image | None], policy: PicturePolicy
) -> list[str | Picture]:
    """Return the pictures in order, each after a sentence that says which it is.

    Raises:
        ValueError: one of them is not there.
    """
    parts: list[str | Picture] = []
    for ordinal, role in zip(("First", "Second"), see):
        image = images[role]
        if image is None:
            raise ValueError(f"no {role} picture to show")
        heading = "The picture" if len(see) == 1 else f"{ordinal} picture"
        parts += [f"{heading}: {_NAMES[role]}.", policy.encode(image, role)]
    return parts


def messages(system: str, parts: Sequence[str | Picture]) -> tuple[Message, ...]:
    """Return one turn of the user's, after the system's where there is one."""
    user = Message("user", tuple(parts))
    return (Message("system", (system,)), user) if system else (user,)


def form(asks: Sequence[Ask], explain: bool) -> tuple[str, dict[str, Any]]:
    """Return the form of the reply in words and as a JSON schema.

    Whole numbers are an ``enum``, which every server with structured output understands.

    Args:
        asks: what must be answered, under its name.
        explain: a ``reason`` in words is wanted too.
    """
    shown: list[str] = []
    properties: dict[str, dict[str, Any]] = {}
    for ask in asks:
        schema: dict[str, Any]
        if ask.scale is None:
            values, schema = '"yes" or "no"', {"type": "string", "enum": ["yes", "no"]}
        else:
            low, high = ask.scale
            values = f"whole number, {low} to {high}"
            schema = {"type": "integer", "enum": list(range(low, high + 1))}
        shown.append(f"{json.dumps(ask.name, ensure_ascii=False)}: <{values}>")
        properties[ask.name] = schema
    if explain:
        shown.append('"reason": "<one or two sentences>"')
        properties["reason"] = {"type": "string"}
    words = "Answer with one JSON object and nothing else:\n{" + ", ".join(shown) + "}"
    return words, {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
