"""Google's Gemini image models (Nano-Banana), by ``models/<id>:generateContent``.

Of a candidate's parts the first picture counts that is no thought. A candidate without one says why
in ``finishReason``; a prompt that is stopped brings no candidate but a ``blockReason``.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from subjectbench.asking.base import Picture, Request, SendError
from subjectbench.asking.server import count, mapping
from subjectbench.config import LOCATION
from subjectbench.generators.bought import Answer
from subjectbench.generators.remote import Given, Remote, decoded

_DECLINED = {"safety", "recitation", "blocklist", "prohibited_content", "spii"}
_DECLINED |= {f"image_{reason}" for reason in ("safety", "recitation", "prohibited_content")}


class Gemini(Remote):
    """One picture per request, from the prompt and then the reference."""

    class Params(Remote.Params):
        """Parameters of a Gemini card."""

        base_url: str = Field(
            default="https://generativelanguage.googleapis.com/v1beta",
            description="Address up to and with the version",
            json_schema_extra=LOCATION,
        )
        key_env: str | None = Field(
            default="GEMINI_API_KEY",
            description="Name of the environment variable that holds the key; none: no key",
            json_schema_extra=LOCATION,
        )
        aspect_ratio: str | None = Field(
            default="1:1", pattern=r"^\d{1,2}:\d{1,2}$", description="None: as the reference"
        )
        image_size: Literal["1K", "2K", "4K"] | None = Field(
            default=None, description="Newer models only"
        )
        temperature: float | None = Field(default=None, ge=0, le=2)
        send_seed: bool = Field(
            default=False, description="Send each picture's seed; that it is heeded is not promised"
        )

    def call(self, request: Request) -> dict[str, Any]:
        """Return path, headers and body."""
        params = self.params
        config: dict[str, Any] = {"responseModalities": ["IMAGE"]}
        shape = {"aspectRatio": params.aspect_ratio, "imageSize": params.image_size}
        if shape := {name: value for name, value in shape.items() if value}:
            config["imageConfig"] = shape
        if params.temperature is not None:
            config["temperature"] = params.temperature
        if params.send_seed:
            config["seed"] = request.values["seed"]
        parts = [_part(part) for part in request.messages[0].parts]
        key = self.server.key()
        return {
            "url": f"{params.base_url.rstrip('/')}/models/{params.model}:generateContent",
            "headers": {"x-goog-api-key": key} if key else {},
            "json": {"contents": [{"role": "user", "parts": parts}], "generationConfig": config},
        }

    def read_answer(self, answer: Mapping[str, Any]) -> Given:
        """Read an answer: a picture, words, or why there is neither."""
        usage = mapping(answer.get("usageMetadata"))
        facts: dict[str, Any] = {
            "model": str(answer.get("modelVersion") or ""),
            "prompt_tokens": count(usage.get("promptTokenCount")),
            "completion_tokens": count(usage.get("candidatesTokenCount")),
        }
        feedback = mapping(answer.get("promptFeedback"))
        candidates = answer.get("candidates")
        if not candidates or not isinstance(candidates, list):
            reason = str(feedback.get("blockReason") or "")
            if not reason:
                return Given(Answer(), broken="an answer without candidates")
            words = str(feedback.get("blockReasonMessage") or f"the prompt is blocked: {reason}")
            return Given(Answer(words=words, finish=reason, refused=True, **facts))
        candidate = mapping(candidates[0])
        parts = mapping(candidate.get("content")).get("parts")
        parts = [mapping(p) for p in parts] if isinstance(parts, list) else []
        parts = [p for p in parts if not p.get("thought")]
        finish = str(candidate.get("finishReason") or "")
        words = "\n".join(str(p["text"]) for p in parts if p.get("text"))
        words = words or str(candidate.get("finishMessage") or "")
        inline = [mapping(p.get("inlineData") or p.get("inline_data")) for p in parts]
        pictures = [i.get("data") for i in inline if i]
        if pictures:
            data = decoded(pictures[0])
            broken = "" if data is not None else "a picture that is no base64"
            return Given(Answer(words=words, finish=finish, **facts), data, broken)
        declined = finish.lower() in _DECLINED
        return Given(Answer(words=words, finish=finish, refused=declined, **facts))

    def fault(
        self,
        status: int,
        message: str,
        codes: set[str],
        headers: Mapping[str, str],
        error: Mapping[str, Any],
    ) -> SendError:
        """Say what a fault means: Google tells reasons and pauses in ``details``."""
        found = super().fault(status, message, codes, headers, error)
        details = error.get("details")
        for detail in details if isinstance(details, list) else []:
            detail = mapping(detail)
            pause = re.fullmatch(r"(\d+(?:\.\d+)?)s", str(detail.get("retryDelay") or ""))
            if pause and found.kind == "retry" and found.retry_after is None:
                found.retry_after = float(pause[1])
            if detail.get("reason") == "API_KEY_INVALID":  # comes with status 400
                return SendError("account", found.message, status)
        if "failed_precondition" in codes:  # no billing, or not in this country
            return SendError("account", found.message, status)
        return found


def _part(part: str | Picture) -> dict[str, Any]:
    if isinstance(part, str):
        return {"text": part}
    data = base64.b64encode(part.data).decode("ascii")
    return {"inline_data": {"mime_type": part.media_type, "data": data}}


PLUGIN = Gemini
