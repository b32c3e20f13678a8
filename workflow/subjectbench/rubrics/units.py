"""UFO's verification: a yes or no about every atomic unit (UFO, section 3.2.3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field, field_validator, model_validator

from subjectbench.asking.base import Ask, Request
from subjectbench.asking.sending import PicturePolicy
from subjectbench.config import Strict
from subjectbench.judges import prompts
from subjectbench.rubrics.base import Judged, Rubric
from subjectbench.units import Unit, by_class
from subjectbench.vocabulary import RELEVANCES

_SEE: dict[str, list[prompts.Role]] = {
    "image_only": ["reference", "generated"],
    "text_only": ["generated"],
    "text_and_image": ["reference", "generated"],
}

_WORDS: dict[str, str] = {
    "image_only": (
        "For these questions only the reference counts, whatever any prompt may say. Compare the "
        "subject of the two pictures: yes if the aspect is the same in both, allowing for another "
        "pose, view, light or size; no if it differs or cannot be seen in the generated picture."
    ),
    "text_only": (
        "For these questions only the prompt counts, whatever any reference shows. Look at the "
        "generated picture: yes if the aspect is as the prompt asks; no if it is not, or cannot "
        "be seen."
    ),
    "text_and_image": (
        "For these questions reference and prompt count together. First work out what the aspect "
        "is in the reference and what the prompt does to it (keep, change, add, remove, replace, "
        "move or restyle). Then look at the generated picture: yes if the aspect is what should "
        "come out, with all that the prompt leaves alone still as in the reference; otherwise no."
    ),
}


class Units(Rubric):
    """Asks about all units of a sample, each against the condition that decides on it."""

    needs = frozenset({"image", "reference", "units"})

    class Params(Strict):
        """What is shown with which question, how many are asked at once, and in which words."""

        routing: Literal["strict", "worded", "none"] = Field(
            default="strict",
            description=(
                "strict: the condition that does not count is withheld; worded: all is shown and "
                "words say what counts, as in the reference; none: every unit counts as "
                "text_and_image"
            ),
        )
        calls: Literal["together", "per_unit"] = Field(
            default="together",
            description=(
                "together: one request, with strict routing one per class; per_unit: one each, "
                "as in the reference"
            ),
        )
        system: str = (
            "You check pictures that a model made of one subject. You answer every question by "
            "itself, from what can be seen, and you do not give the benefit of the doubt."
        )
        opening: str = Field(
            default="The questions are about the {subject} and what surrounds it.",
            description="First sentence; may hold {subject}",
        )
        prompt: str = Field(
            default='The prompt was: "{prompt}"', description="Said where the prompt is shown"
        )
        words: dict[str, str] = Field(default=_WORDS, description="What counts, by modality class")
        picture: PicturePolicy = Field(default_factory=PicturePolicy)
        max_tokens: int = Field(default=1024, ge=16, description="Budget of a reply")

        @field_validator("words")
        @classmethod
        def _every_class(cls, words: dict[str, str]) -> dict[str, str]:
            if set(words) != set(RELEVANCES):
                raise ValueError(f"say it for each of {', '.join(RELEVANCES)}")
            return words

        @model_validator(mode="after")
        def _prompt_is_routed(self) -> Units.Params:
            if "prompt" in prompts.places(self.opening):
                raise ValueError("opening: {prompt} is for 'prompt', which routing can withhold")
            if "prompt" not in prompts.places(self.prompt):
                raise ValueError("prompt: does not say {prompt}")
            return self

    def _classes(self, units: Sequence[Unit]) -> dict[str, list[Unit]]:
        if self.params.routing == "none":
            return {"text_and_image": list(units)} if units else {}
        return dict(by_class(units))

    def _groups(self, units: Sequence[Unit]) -> list[dict[str, list[Unit]]]:
        """Return the units of each request, by the class that they are asked as."""
        classes = self._classes(units)
        if self.params.calls == "per_unit":
            return [{name: [unit]} for name, some in classes.items() for unit in some]
        if self.params.routing == "strict":
            return [{name: some} for name, some in classes.items()]
        return [classes] if classes else []

    def requests(self, sample: Judged) -> list[Request]:
        """Return the requests about a sample's units; none if it has no units."""
        return [self._request(sample, group) for group in self._groups(sample.units)]

    def _request(self, sample: Judged, group: dict[str, list[Unit]]) -> Request:
        params: Units.Params = self.params
        sole = next(iter(group)) if params.routing == "strict" else "text_and_image"
        case = {"prompt": sample.prompt, "subject": sample.subject or "main subject"}
        said = [params.opening] if sole == "image_only" else [params.opening, params.prompt]
        values = {name: case[name] for text in said for name in sorted(prompts.places(text))}
        paragraphs = [prompts.filled(text, values) for text in said]
        asks: list[Ask] = []
        for relevance, units in group.items():
            some = [_ask(unit, relevance) for unit in units]
            lines = [f"- {ask.name}: {ask.text}" for ask in some]
            paragraphs.append("\n".join([params.words[relevance], *lines]))
            asks += some
        form, schema = prompts.form(asks, explain=False)
        images = {"reference": sample.reference, "generated": sample.image}
        shown = prompts.pictures(_SEE[sole], images, params.picture)
        parts = [*shown, "\n\n".join([*paragraphs, form])]
        return Request(
            prompts.messages(params.system, parts), tuple(asks), schema, params.max_tokens, values
        )


def _ask(unit: Unit, relevance: str) -> Ask:
    about = {**unit.about, "level": unit.level, "name": unit.name, "relevance": relevance}
    return Ask(unit.unit_id, unit.question, None, about)


PLUGIN = Units
