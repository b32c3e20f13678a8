"""Scores on a scale: VIEScore, DreamBench++, SICS and others, each wholly described by its card."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_validator

from subjectbench.asking.base import Ask, Request
from subjectbench.asking.sending import PicturePolicy
from subjectbench.config import Strict
from subjectbench.judges import prompts
from subjectbench.rubrics.base import Judged, Rubric


class Asked(Strict):
    """One score that a judge is asked for."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$", description="Key of the score in the reply")
    text: str = Field(
        min_length=1, description="What is judged, and what the ends of the scale are"
    )
    scale: list[int] = Field(min_length=2, max_length=2, description="Lowest and highest score")
    dimension: Literal["preservation", "following", "naturalness", "artifacts", "alignment"]

    @field_validator("scale")
    @classmethod
    def _rises(cls, scale: list[int]) -> list[int]:
        if scale[0] >= scale[1]:
            raise ValueError("the lowest score comes first")
        return scale

    def ask(self) -> Ask:
        """Return the question as a judge gets it."""
        about = {"dimension": self.dimension}
        return Ask(self.name, self.text, (self.scale[0], self.scale[1]), about)


class Call(Strict):
    """One request. The prompt is shown only where ``user`` says ``{prompt}``."""

    see: list[prompts.Role] = Field(min_length=1, max_length=2, description="Pictures, in order")
    system: str = ""
    user: str = Field(description="Task and criteria; may hold {prompt} and {subject}")
    asks: list[Asked] = Field(min_length=1)
    max_tokens: int = Field(default=512, ge=16, description="Budget of the reply")

    @field_validator("user")
    @classmethod
    def _known_places(cls, user: str) -> str:
        prompts.places(user)
        return user

    def request(self, sample: Judged, policy: PicturePolicy) -> Request:
        """Return the request about a sample: nothing of it that this call does not name."""
        case = {"prompt": sample.prompt, "subject": sample.subject or "main subject"}
        values = {name: case[name] for name in sorted(prompts.places(self.user))}
        images = {"reference": sample.reference, "generated": sample.image}
        asks = tuple(asked.ask() for asked in self.asks)
        form, schema = prompts.form(asks, explain=True)
        scored = (f"- {a.name} ({a.scale[0]} to {a.scale[1]}): {a.text}" for a in self.asks)
        text = "\n\n".join([prompts.filled(self.user, values).strip(), "\n".join(scored), form])
        parts = [*prompts.pictures(self.see, images, policy), text]
        return Request(prompts.messages(self.system, parts), asks, schema, self.max_tokens, values)


class Scores(Rubric):
    """Asks for whole numbers on declared scales, with a short reason."""

    class Params(Strict):
        """What is shown and asked in each request."""

        calls: list[Call] = Field(min_length=1)
        picture: PicturePolicy = Field(default_factory=PicturePolicy)

        @model_validator(mode="after")
        def _names_differ(self) -> Scores.Params:
            names = [asked.name for call in self.calls for asked in call.asks]
            if len(set(names)) < len(names):
                raise ValueError("two scores have the same name")
            return self

    def requests(self, sample: Judged) -> list[Request]:
        """Return one request per call of the card."""
        return [call.request(sample, self.params.picture) for call in self.params.calls]


PLUGIN = Scores
