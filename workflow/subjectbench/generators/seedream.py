"""ByteDance's Seedream models, by the Ark servers' ``images/generations``.

A picture comes in the answer itself: an address would expire after a day. Servers that give an
address all the same are asked for the file at once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from subjectbench.asking.base import Picture, Request, SendError
from subjectbench.asking.server import count, mapping
from subjectbench.config import LOCATION
from subjectbench.generators.bought import Answer
from subjectbench.generators.remote import Given, Remote, data_url, decoded

FEWEST, MOST = 3_686_400, 16_777_216
"""Pixels of a picture: 2560 x 1440 to 4096 x 4096."""


def _size(size: str) -> str:
    if size in ("2K", "4K"):
        return size
    found = re.fullmatch(r"(\d{2,5})x(\d{2,5})", size)
    if not found:
        raise ValueError("is 2K, 4K or <width>x<height>")
    width, height = int(found[1]), int(found[2])
    if not FEWEST <= width * height <= MOST:
        raise ValueError(
            f"{size} is {width * height} pixels; the server takes {FEWEST} to {MOST}, "
            "e.g. 2048x2048"
        )
    if not 1 / 16 <= width / height <= 16:
        raise ValueError(f"{size} is more than 16 times as long as wide")
    return size


class Seedream(Remote):
    """One picture per request, from the prompt and the reference."""

    codes = ("sensitivecontent", "riskdetection", "policyviolation")

    class Params(Remote.Params):
        """Parameters of a Seedream card."""

        base_url: str = Field(
            default="https://ark.ap-southeast.bytepluses.com/api/v3",
            description="Address up to and with the version",
            json_schema_extra=LOCATION,
        )
        key_env: str | None = Field(
            default="ARK_API_KEY",
            description="Name of the environment variable that holds the key; none: no key",
            json_schema_extra=LOCATION,
        )
        size: Annotated[str, AfterValidator(_size)] = Field(
            default="2048x2048", description="2K, 4K or <width>x<height>"
        )
        watermark: bool = Field(default=False, description="The server's own default is true")
        response_format: Literal["b64_json", "url"] = Field(
            default="b64_json", description="url: addresses that expire; fetched at once"
        )
        send_seed: bool = Field(default=False, description="Of older models only")

    @property
    def size(self) -> tuple[int, int] | None:
        """Width and height, where the card says more than 2K or 4K."""
        width, _, height = self.params.size.partition("x")
        return (int(width), int(height)) if height else None

    def call(self, request: Request) -> dict[str, Any]:
        """Return path, headers and body."""
        params, parts = self.params, request.messages[0].parts
        body = {
            "model": params.model,
            "prompt": "\n".join(p for p in parts if isinstance(p, str)),
            "image": next(data_url(p) for p in parts if isinstance(p, Picture)),
            "size": params.size,
            "sequential_image_generation": "disabled",
            "stream": False,
            "response_format": params.response_format,
            "watermark": params.watermark,
        }
        if params.send_seed:
            body["seed"] = request.values["seed"]
        key = self.server.key()
        return {
            "url": f"{params.base_url.rstrip('/')}/images/generations",
            "headers": {"Authorization": f"Bearer {key}"} if key else {},
            "json": body,
        }

    def read_answer(self, answer: Mapping[str, Any]) -> Given:
        """Read an answer: one picture, or the fault that stands in its place."""
        usage = mapping(answer.get("usage"))
        facts: dict[str, Any] = {
            "model": str(answer.get("model") or ""),
            "completion_tokens": count(usage.get("output_tokens")),
        }
        data = answer.get("data")
        first = mapping(data[0]) if isinstance(data, list) and data else {}
        error = mapping(first.get("error") or answer.get("error"))
        if error:
            code, words = str(error.get("code") or ""), str(error.get("message") or "")
            declined = any(part in code.lower() for part in self.codes)
            if not declined:
                return Given(Answer(), broken=f"the server reports {code}: {words}")
            return Given(Answer(words=words, finish=code, refused=True, **facts))
        if first.get("url"):
            return Given(Answer(url=str(first["url"]), **facts))
        picture = decoded(first.get("b64_json"))
        if picture is None:
            return Given(Answer(), broken="an answer without a picture")
        return Given(Answer(**facts), picture)

    def fault(
        self,
        status: int,
        message: str,
        codes: set[str],
        headers: Mapping[str, str],
        error: Mapping[str, Any],
    ) -> SendError:
        """Say what a fault means: some quotas are no matter of waiting."""
        found = super().fault(status, message, codes, headers, error)
        if codes & {"setlimitexceeded", "accountoverdueerror", "inferencelimitexceeded"}:
            return SendError("account", found.message, status)
        return found


PLUGIN = Seedream
