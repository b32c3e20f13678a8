"""Units that a judge finds: one request per case returns all, questions included.

UFO, sections 3.2.1 and 3.2.2; the weights of section 3.2.4 come with them.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field, ValidationError

from subjectbench.asking.base import Request
from subjectbench.asking.sending import PicturePolicy
from subjectbench.config import Strict
from subjectbench.decompositions.base import Case, Decomposition
from subjectbench.judges import prompts
from subjectbench.judges.replies import find_json, without_reasoning
from subjectbench.units import Unit, merged, normalised, tool_for
from subjectbench.vocabulary import LEVELS, RELEVANCES

TYPES = ("human", "character", "animal", "rigid_object", "soft_object", "logo", "scene")
"""Types of subjects: UFO-Bench's seven categories (UFO, section 3.1)."""

MAX_UNITS = 40
"""More are a list gone wrong: a case of UFO-Bench has some ten."""

_FORM = """Answer with one JSON object and nothing else:
{"analysis": "<what the reference shows and what the prompt does to it, in a few sentences>",
"subject": "<noun>", "subject_type": "<type>", "units": [{"level": "<%s>", "name": "<aspect>",
"relevance": "<%s>", "weight": <whole number, 1 to 5>, "question": "<question>"}, ...]}"""


class Asked(Decomposition):
    """Asks for all units of a case at once and takes only a reply that is valid throughout."""

    asks_judge = True

    class Params(Strict):
        """What the judge is told and shown."""

        instructions: str = Field(min_length=1, description="The task, as the system's turn")
        setting: bool = Field(
            default=True,
            description="Units for what the prompt asks of surroundings and action; off as in the "
            "reference",
        )
        setting_instructions: str = Field(description="Added to the task where setting is on")
        picture: PicturePolicy = Field(default_factory=PicturePolicy)
        max_tokens: int = Field(default=4096, ge=256, description="Budget of the reply")

    def _levels(self) -> list[str]:
        return [level for level in LEVELS if level != "setting" or self.params.setting]

    def request(self, case: Case) -> Request:
        """Return the one request about a case: reference, prompt, form of the reply."""
        params: Asked.Params = self.params
        told = [params.instructions, *([params.setting_instructions] if params.setting else [])]
        form = _FORM % ("|".join(self._levels()), "|".join(RELEVANCES))
        values = {"prompt": case.prompt} | ({"subject": case.subject} if case.subject else {})
        said = [f'The prompt: "{case.prompt}"']
        if case.subject:
            said.append(f"The subject is called: {case.subject}")
        shown = prompts.pictures(["reference"], {"reference": case.reference}, params.picture)
        system = "\n\n".join(text.strip() for text in told)
        turns = prompts.messages(system, [*shown, "\n\n".join([*said, form])])
        return Request(turns, (), _schema(self._levels()), params.max_tokens, values)

    def read(self, text: str) -> list[Unit]:
        """Read the units out of a reply, merged.

        Raises:
            ValueError: every fault, field by field, up to a few.
        """
        found = find_json(without_reasoning(text))
        if not isinstance(found, dict):
            raise ValueError("the reply is not one JSON object")
        kind, rows = found.get("subject_type"), found.get("units")
        faults = []
        if kind not in TYPES:
            faults.append(f"subject_type: {kind!r} is none of {', '.join(TYPES)}")
        if not isinstance(rows, list) or not rows:
            raise ValueError("; ".join([*faults, "units: must be a list with at least one unit"]))
        if len(rows) > MAX_UNITS:
            faults.append(f"units: {len(rows)} are too many, at most {MAX_UNITS}")
        units = []
        for number, row in enumerate(rows):
            try:
                units.append(_unit(row, str(kind)))
            except ValueError as fault:
                faults.append(f"units[{number}]: {fault}")
        if not faults:
            units = self.chosen(units)
            if all(unit.level == "setting" for unit in units):
                faults.append("units: at least one must be a global_attribute or a part")
            elif max(unit.weight for unit in units) < 4:
                faults.append("units: at least one must have a weight of 4 or 5")
        if faults:
            raise ValueError("; ".join(faults[:5]))
        return units

    def chosen(self, units: list[Unit]) -> list[Unit]:
        """Return the units of the levels asked for, merged."""
        return merged(unit for unit in units if unit.level in self._levels())


_FIELDS = ("level", "name", "relevance", "weight", "question")


def _unit(row: Any, subject_type: str) -> Unit:
    """Check one unit of a reply.

    Raises:
        ValueError: what is wrong with it, in one line.
    """
    if not isinstance(row, dict) or set(row) != set(_FIELDS):
        raise ValueError(f"must have exactly the keys {', '.join(_FIELDS)}")
    try:
        unit = Unit(**row)
    except ValidationError as error:
        raise ValueError(
            ", ".join(f"{fault['loc'][0]}: {fault['msg']}" for fault in error.errors())
        ) from None
    if not normalised(unit.name):
        raise ValueError("name: is blank")
    if not unit.question.rstrip().endswith(("?", "？", "؟")):
        raise ValueError("question: does not end with a question mark")
    # Our decision, never the judge's: only a person's face can be compared as a face.
    tool = tool_for(unit.name, unit.relevance, subject_type)
    return unit.model_copy(update={"tool": tool})


def _schema(levels: list[str]) -> dict[str, Any]:
    """JSON schema of the reply; written out, because a change of it asks every judge anew."""

    def closed(properties: dict[str, Any]) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }

    text = {"type": "string"}
    unit = closed(
        {
            "level": {"type": "string", "enum": levels},
            "name": text,
            "relevance": {"type": "string", "enum": list(RELEVANCES)},
            "weight": {"type": "integer", "enum": [1, 2, 3, 4, 5]},
            "question": text,
        }
    )
    return closed(
        {
            "analysis": text,
            "subject": text,
            "subject_type": {"type": "string", "enum": list(TYPES)},
            "units": {"type": "array", "items": unit},
        }
    )


PLUGIN = Asked
