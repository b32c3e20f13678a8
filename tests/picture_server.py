"""Servers that make pictures, on loopback: the answers of three vendors, right and wrong."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image

from subjectbench.config import Generating
from subjectbench.generators.base import Desk
from subjectbench.images import encode_png
from tests.judging_server import Answer, Call, JudgingServer

CARDS = ("nano_banana", "seedream_4_5", "openai_image")


def png(number: int, size: tuple[int, int] = (24, 16)) -> bytes:
    """A picture that no other number gives."""
    rng = np.random.default_rng(number)
    return encode_png(Image.fromarray(rng.integers(0, 256, (size[1], size[0], 3), np.uint8)))


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def gemini(*parts: dict[str, Any] | bytes | str, finish: str = "STOP", **more: Any) -> Answer:
    """A ``generateContent`` answer: texts, pictures, and other parts as they are."""
    said = [
        {"text": p}
        if isinstance(p, str)
        else {"inlineData": {"mimeType": "image/png", "data": b64(p)}}
        if isinstance(p, bytes)
        else p
        for p in parts
    ]
    candidate = {"content": {"role": "model", "parts": said}, "finishReason": finish, "index": 0}
    usage = {"promptTokenCount": 270, "candidatesTokenCount": 1290, "totalTokenCount": 1560}
    body = {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "m-001"}
    return Answer({**body, **more})


def ark(data: dict[str, Any], **more: Any) -> Answer:
    """An answer of Ark's ``images/generations``."""
    usage = {"generated_images": 1, "output_tokens": 16384, "total_tokens": 16384}
    return Answer({"model": "seedream", "created": 1, "data": [data], "usage": usage, **more})


def openai(data: dict[str, Any]) -> Answer:
    """An answer of OpenAI's ``images/edits``."""
    usage = {"input_tokens": 300, "output_tokens": 1056, "total_tokens": 1356}
    return Answer({"created": 1, "data": [data], "usage": usage})


def fault(http: int, code: Any, message: str = "no", **more: Any) -> Answer:
    """A fault in any vendor's form."""
    headers = {k.replace("_", "-"): v for k, v in more.pop("headers", {}).items()}
    return Answer({"error": {"code": code, "message": message, **more}}, http, headers)


def good(call: Call, data: bytes) -> Answer:
    """A picture, in the form of whoever is asked."""
    if call.path.endswith(":generateContent"):
        return gemini(data)
    if call.path.endswith("/images/generations"):
        return ark({"b64_json": b64(data), "size": "24x16"})
    return openai({"b64_json": b64(data)})


class PictureServer(JudgingServer):
    """The server; by default each request is a new picture."""

    def __init__(self, script: Callable[[Call], Answer] | None = None) -> None:
        super().__init__(script or self._new_picture)

    def _new_picture(self, call: Call) -> Answer:
        return good(call, png(len(self.calls)))


def desk(results: Any, run: str = "run", **limits: Any) -> Desk:
    """Where and how to ask, without waiting long."""
    fast = {"backoff": 0.01, "max_backoff": 0.02, "timeout": 20.0, "retries": 3}
    return Desk(results, Generating(**{**fast, **limits}), run, "job")
