"""Servers with OpenAI's image endpoints: ``images/edits`` with the reference as a file, or
``images/generations`` from the prompt alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from subjectbench.asking.base import Picture, Request
from subjectbench.asking.server import count, mapping
from subjectbench.config import LOCATION
from subjectbench.generators.bought import Answer
from subjectbench.generators.remote import Given, Remote, decoded


class OpenAIImage(Remote):
    """One picture per request."""

    class Params(Remote.Params):
        """Parameters of a card of an OpenAI-compatible server. None means: not sent."""

        base_url: str = Field(
            default="https://api.openai.com/v1",
            description="Address up to and with /v1",
            json_schema_extra=LOCATION,
        )
        key_env: str | None = Field(
            default="OPENAI_API_KEY",
            description="Name of the environment variable that holds the key; none: no key",
            json_schema_extra=LOCATION,
        )
        endpoint: Literal["edits", "generations"] = Field(
            default="edits", description="generations: the reference is not sent"
        )
        picture_field: Literal["image[]", "image"] = Field(
            default="image[]", description="Form field of the reference; older servers: image"
        )
        size: str | None = Field(
            default="1024x1024", pattern=r"^(auto|\d{2,5}x\d{2,5})$", description="Pixels, or auto"
        )
        quality: Literal["low", "medium", "high", "auto", "standard", "hd"] | None = None
        input_fidelity: Literal["low", "high"] | None = Field(
            default=None, description="How closely the reference is kept; some models only"
        )
        moderation: Literal["auto", "low"] | None = None
        response_format: Literal["b64_json", "url"] | None = Field(
            default=None, description="For servers that would give addresses otherwise"
        )

    @property
    def size(self) -> tuple[int, int] | None:
        """Width and height, where the card says them."""
        width, _, height = (self.params.size or "").partition("x")
        return (int(width), int(height)) if height else None

    def call(self, request: Request) -> dict[str, Any]:
        """Return path, headers and body: a form with the reference as a file, or JSON."""
        params, parts = self.params, request.messages[0].parts
        told = {"model": params.model, "prompt": "\n".join(p for p in parts if isinstance(p, str))}
        for name in ("size", "quality", "input_fidelity", "moderation", "response_format"):
            if getattr(params, name) is not None:
                told[name] = getattr(params, name)
        key = self.server.key()
        out: dict[str, Any] = {
            "url": f"{params.base_url.rstrip('/')}/images/{params.endpoint}",
            "headers": {"Authorization": f"Bearer {key}"} if key else {},
        }
        if params.endpoint == "generations":
            return {**out, "json": {**told, "n": 1}}
        files = [
            (params.picture_field, (f"reference.{p.media_type[6:]}", p.data, p.media_type))
            for p in parts
            if isinstance(p, Picture)
        ]
        return {**out, "data": {**told, "n": "1"}, "files": files}

    def read_answer(self, answer: Mapping[str, Any]) -> Given:
        """Read an answer: one picture, in itself or at an address."""
        usage = mapping(answer.get("usage"))
        data = answer.get("data")
        first = mapping(data[0]) if isinstance(data, list) and data else {}
        told = Answer(
            words=str(first.get("revised_prompt") or ""),
            model=str(answer.get("model") or ""),
            prompt_tokens=count(usage.get("input_tokens")),
            completion_tokens=count(usage.get("output_tokens")),
            url=str(first["url"]) if first.get("url") else None,
        )
        if told.url:
            return Given(told)
        picture = decoded(first.get("b64_json"))
        if picture is None:
            fault = mapping(answer.get("error")).get("message") or "no picture in it"
            return Given(told, broken=f"the server's answer: {fault}")
        return Given(told, picture)


PLUGIN = OpenAIImage
