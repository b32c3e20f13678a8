"""The contract of a judge's backend: requests in, replies out.

A request is the same whoever answers it: messages with pictures for models that read and look,
and the same questions as values (``Ask.about``) for judges that do not read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from subjectbench.cards import JudgeCard
from subjectbench.config import Strict
from subjectbench.hashing import canonical, sha256

if TYPE_CHECKING:
    from subjectbench.encoders.base import Encoder


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
    """

    text: str | None
    finish: str = "stop"
    model: str = ""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    graded: bool = False


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


class Backend:
    """Sends requests to one model.

    Remote backends implement ``send``; the engine limits, repeats and counts. Local ones implement
    ``complete``; the engine hands over batches.

    Args:
        params: checked parameters.
        card: the judge's card.
        device: torch device, for judges in process.
        encoder: the card's encoder, for judges that need one.
    """

    Params: ClassVar[type[Strict]] = Strict
    """Parameters. Those marked ``LOCATION`` (base URL, ...) are no part of the identity."""

    version: ClassVar[str] = "1"
    remote: ClassVar[bool] = False
    uses_torch: ClassVar[bool] = False

    def __init__(
        self, params: Any, card: JudgeCard, device: str = "cpu", encoder: Encoder | None = None
    ) -> None:
        self.params, self.card, self.device, self.encoder = params, card, device, encoder

    @classmethod
    def sources(cls, params: Any, root: Path) -> list[Path]:
        """Files that the replies come from, e.g. archived transcripts."""
        return []

    @classmethod
    def identity(cls, params: Any, components: Mapping[str, Any]) -> dict[str, Any]:
        """Return what of the judge is part of every request's key.

        Of a remote judge only what the server is told: refactoring our code buys nothing anew, nor
        does a new parameter that is None (not sent) unless set.
        Of a judge in process everything that the planner knows: weights, code, packages.
        """
        if not cls.remote:
            return dict(components)
        told = {name: value for name, value in components["params"].items() if value is not None}
        return {"plugin": components["plugin"], "version": components["version"], "params": told}

    def check(self) -> None:
        """Find what stands in the way of asking: no key, no archive. Nothing is sent.

        Raises:
            InputError: naming the field and the mend.
        """
        return None

    async def send(self, request: Request) -> Reply:
        """Send one request and return its reply.

        Raises:
            SendError: there was none.
        """
        raise NotImplementedError

    def complete(self, requests: Sequence[Request]) -> Sequence[Reply | SendError]:
        """Answer requests, one reply each, in order; an error where there is no reply to one."""
        raise NotImplementedError

    async def close(self) -> None:
        """Release connections."""
        return None
