"""Questions, a small reader and an engine, shared by the tests of judging."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from subjectbench.asking.base import Ask, Message, Picture, Reply, Request
from subjectbench.asking.engine import Engine
from subjectbench.asking.transcripts import Transcripts
from subjectbench.cards import JudgeCard, Price
from subjectbench.config import Judging
from subjectbench.judges.base import Backend
from subjectbench.judges.openai import OpenAI
from subjectbench.judges.repair import follow_up
from subjectbench.vocabulary import Status

SCHEMA = {
    "type": "object",
    "properties": {"score": {"type": "integer"}},
    "required": ["score"],
    "additionalProperties": False,
}
FAST: dict[str, Any] = {"backoff": 0.01, "max_backoff": 0.02, "timeout": 20.0, "retries": 3}
CARD = JudgeCard(title="Judge", plugin="openai", about="of a test")


@dataclass(frozen=True)
class Seen:
    """A reading: a score, or why there is none."""

    status: Status
    fault: str = ""
    value: int | None = None


def read(request: Request, reply: Reply) -> Seen:
    """Read ``{"score": 4}``."""
    if reply.finish == "content_filter":
        return Seen(Status.REFUSED, "refused")
    if reply.finish == "length":
        return Seen(Status.UNPARSABLE, "truncated")
    if not reply.text:
        return Seen(Status.UNPARSABLE, "empty")
    try:
        return Seen(Status.OK, "", json.loads(reply.text)["score"])
    except (ValueError, KeyError, TypeError):
        return Seen(Status.UNPARSABLE, "no_score")


def question(words: str, picture: bytes = b"\x89PNG picture", max_tokens: int = 64) -> Request:
    """One question about one picture."""
    return Request(
        (
            Message("system", ("You are a judge.",)),
            Message("user", (words, Picture("generated", picture, "image/png"))),
        ),
        (Ask("score", "How good is it?", (0, 10)),),
        SCHEMA,
        max_tokens,
    )


def questions(number: int) -> list[Request]:
    """Different questions."""
    return [question(f"question {n}") for n in range(number)]


def openai_judge(url: str, **params: Any) -> OpenAI:
    """A judge behind a server without key."""
    return OpenAI(
        OpenAI.Params(**{"model": "judge-1", "base_url": url, "key_env": None, **params}), CARD
    )


def identity_of(backend: Backend, **more: Any) -> dict[str, Any]:
    """Identity as the planner forms it."""
    from subjectbench.config import locations

    params = backend.params.model_dump(mode="json", exclude=locations(type(backend.params)))
    components = {"plugin": backend.card.plugin, "version": backend.version, "params": params}
    return backend.identity(backend.params, {**components, **more})


def engine(
    backend: Backend,
    store: Transcripts,
    run: str = "run",
    price: Price = Price(prompt=1000.0, completion=10000.0),  # noqa: B008
    **limits: Any,
) -> Engine:
    """An engine that does not wait long."""
    judging = Judging(**{**FAST, **limits})
    return Engine(backend, identity_of(backend), store, judging, price, run, "job", then=follow_up)


def store_at(folder: Path) -> Transcripts:
    """The store of a folder."""
    return Transcripts(folder / "transcripts.sqlite")
