"""What is asked and what comes back, whoever answers: judges and models behind a server.

A request is the same whoever answers it: messages with pictures for models that read and look,
and the same questions as values (``Ask.about``) for judges that do not read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal, Protocol

from subjectbench.hashing import canonical, sha256


@dataclass(frozen=True)
class Ask:
    """One thing that a judge is asked.

    Args:
        name: key of the answer in the reply.
        text: the question in words.
        scale: lowest and highest whole number of the answer; None: yes or no (1 or 0).
        about: the question in values, e.g. ``{"dimension": "preservation"}`` or
            ``{"aspect": "colour", "relevance": "image_only"}``.
    """

    name: str
    text: str
    scale: tuple[int, int] | None = None
    about: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Picture:
    """A picture as it is sent: encoded once, by the rubric's policy.

    Args:
        role: ``"reference"`` or ``"generated"``.
        data: the encoded file.
        media_type: ``"image/png"`` or ``"image/jpeg"``.
    """

    role: str
    data: bytes
    media_type: str

    @cached_property
    def sha256(self) -> str:
        """Of the encoded file; hex."""
        return sha256(self.data)


@dataclass(frozen=True)
class Message:
    """One turn; texts and pictures in the order in which the judge sees them."""

    role: Literal["system", "user", "assistant"]
    parts: tuple[str | Picture, ...]


@dataclass(frozen=True)
class Request:
    """Everything that is sent for one reply.

    Args:
        messages: in order.
        asks: what the reply must answer; empty for a reply of another form (``schema``).
        schema: JSON schema of the reply, for servers with structured output.
        max_tokens: budget of the reply.
        values: the case in values, for judges that do not read: prompt, subject.
    """

    messages: tuple[Message, ...]
    asks: tuple[Ask, ...] = ()
    schema: Mapping[str, Any] | None = None
    max_tokens: int = 1024
    values: Mapping[str, Any] = field(default_factory=dict)

    def pictures(self) -> list[Picture]:
        """Return the pictures of all messages, in order."""
        return [p for m in self.messages for p in m.parts if isinstance(p, Picture)]

    def canonical(self) -> dict[str, Any]:
        """Return the request as JSON types; a picture is its role, type, size and sha256."""
        return {
            "messages": [
                {"role": m.role, "parts": [_part(p) for p in m.parts]} for m in self.messages
            ],
            "asks": [
                {
                    "name": a.name,
                    "text": a.text,
                    "scale": a.scale and list(a.scale),
                    "about": dict(a.about),
                }
                for a in self.asks
            ],
            "schema": self.schema,
            "max_tokens": self.max_tokens,
            "values": dict(self.values),
        }

    def key(self, judge: Mapping[str, Any]) -> str:
        """Return the key of a reply in the transcript store: 32 hex digits.

        Args:
            judge: identity of the judge: model, decoding parameters; for a judge in process also
                its weights and code.
        """
        return request_key(canonical(dict(judge)), self.text)

    @cached_property
    def text(self) -> str:
        """The request as canonical JSON, formed once."""
        return canonical(self.canonical())


def request_key(judge: str, request: str) -> str:
    """Return the key of a request: 32 hex digits.

    Args:
        judge: identity of the judge, as canonical JSON.
        request: likewise.
    """
    # The same text as canonical JSON of both, without forming the request's again.
    return sha256(f'{{"judge":{judge},"request":{request}}}'.encode())[:32]


def _part(part: str | Picture) -> Any:
    if isinstance(part, str):
        return part
    return {
        "picture": part.role,
        "media_type": part.media_type,
        "bytes": len(part.data),
        "sha256": part.sha256,
    }


@dataclass(frozen=True)
class Reply:
    """What came back. Whether it says anything usable is for the parser.

    Args:
        text: the content; None where the server sent none. Reasoning is never part of it.
        finish: why it ended: ``stop``, ``length``, ``content_filter``, ...
        model: as the server names it.
        prompt_tokens: as counted by the server; None: not told.
        completion_tokens: likewise.
        graded: yes/no questions are answered by a probability of yes, 0 to 1.
        pictures: pictures that came with it, for their price.
    """

    text: str | None
    finish: str = "stop"
    model: str = ""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    graded: bool = False
    pictures: int = field(default=0, compare=False)


class SendError(Exception):
    """A request that brought no reply.

    Args:
        kind: ``retry`` (rate limit, time-out, server fault: worth another try), ``request`` (this
            request is wrong or too large: no other try will help), ``refused`` (a filter of the
            server stopped it), ``account`` (key or quota: no request will go through).
        message: what the server said, without headers and keys.
        status: HTTP status, if any.
        retry_after: seconds that the server asked to wait, if any.
    """

    def __init__(
        self,
        kind: Literal["retry", "request", "refused", "account"],
        message: str,
        status: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.kind, self.message = kind, message
        self.status, self.retry_after = status, retry_after


class Answering(Protocol):
    """Who is asked, as the engine sees it."""

    remote: ClassVar[bool]
    """True: ``send`` is called, one request each. False: ``complete``, with batches."""

    def check(self) -> None:
        """Find what stands in the way of asking: no key, no archive. Nothing is sent.

        Raises:
            InputError: naming the field and the mend.
        """

    async def send(self, request: Request) -> Reply:
        """Send one request and return its reply.

        Raises:
            SendError: there was none.
        """

    def complete(self, requests: Sequence[Request]) -> Sequence[Reply | SendError]:
        """Answer requests, one reply each, in order; an error where there is no reply to one."""

    async def close(self) -> None:
        """Release connections; a later ``send`` opens new ones."""
