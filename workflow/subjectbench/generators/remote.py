"""What all models behind a server share: one request per picture, bought once, never lost.

The engine of ``asking`` limits, repeats, counts and stops; an answer, be it a picture, a refusal or
mere words, is final and is never asked for again.
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from subjectbench import images
from subjectbench.asking.base import Message, Picture, Reply, Request, SendError, request_key
from subjectbench.asking.engine import Engine
from subjectbench.asking.sending import PicturePolicy
from subjectbench.asking.server import FILTERED, Server, mapping
from subjectbench.asking.transcripts import Transcripts
from subjectbench.cards import GeneratorCard, Price
from subjectbench.config import LOCATION, Strict, locations
from subjectbench.errors import InputError
from subjectbench.generators.base import Check, Generator, Job, Outcome, Template
from subjectbench.generators.bought import Answer, Bought
from subjectbench.hashing import canonical, sha256
from subjectbench.vocabulary import Status

if TYPE_CHECKING:
    import httpx2

WRONG = 3
"""Requests that a server calls wrong, before it accepted one, after which no more are sent."""

FETCHES = 5
"""Tries to fetch a picture that was bought and lies at an address."""

LARGEST = 128 << 20
"""Bytes of a server's answer, and of a picture at an address, at most."""


@dataclass(frozen=True)
class Given:
    """A server's answer as its format is read: a picture, where one lies, or why there is none."""

    answer: Answer
    data: bytes | None = None
    broken: str = ""


@dataclass(frozen=True)
class _Reading:
    """Every answer is final, unless its picture is no longer there."""

    status: Status
    fault: str = ""


class Remote(Generator):
    """A model behind a server. Subclasses know its form of requests and answers."""

    remote = True
    codes: ClassVar[tuple[str, ...]] = ()
    """Parts of the server's codes, lower case, that mean: a filter stopped the request."""

    class Params(Strict):
        """Parameters of every card of a server. None means: not sent."""

        model: str = Field(
            pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@-]*$", description="As the server names it"
        )
        base_url: str = Field(description="Address of the server", json_schema_extra=LOCATION)
        key_env: str | None = Field(
            description="Name of the environment variable that holds the key; none: no key",
            json_schema_extra=LOCATION,
        )
        price: float | None = Field(
            default=None,
            ge=0,
            description="Money per picture for budgets, in the card's currency; none: the card's",
            json_schema_extra=LOCATION,
        )
        template: Template = Field(
            default="{prompt}", description="How {prompt} and {subject} become the request's text"
        )
        reference: PicturePolicy = Field(
            default_factory=PicturePolicy, description="How the reference picture is sent"
        )

    def __init__(self, params: Any, card: GeneratorCard, references: Any, device: str) -> None:
        super().__init__(params, card, references, device)
        self._engine: Engine | None = None
        self._client: httpx2.AsyncClient | None = None
        self._accepted, self._wrong = False, 0

    # --- before any work -------------------------------------------------------------------------

    @classmethod
    def server_of(cls, params: Any, card: GeneratorCard) -> Server:
        """Address and key."""
        where = f"generator {card.title}: params"
        return Server(where, params.base_url, params.key_env, params.model)

    @classmethod
    def checks(cls, params: Any, card: GeneratorCard, root: Path) -> list[Check]:
        """Whether the address is one and the key is set. Nothing is sent."""
        try:
            cls.server_of(params, card).check()
        except InputError as error:
            return [Check("keys", False, f"{error.where}: {error.fault}", error.mend or "")]
        found = f"{params.key_env} is set" if params.key_env else "needs no key"
        return [Check("keys", True, found)]

    # --- a picture -------------------------------------------------------------------------------

    def generate(self, jobs: list[Job]) -> list[Outcome]:
        """Return one outcome per job: of answers that are kept, and of the server's to the rest.

        Raises:
            Unanswered: some got no answer for a reason that may pass; what came is kept.
        """
        requests = [self._request(job) for job in jobs]
        keys = [request_key(self._identity_text, request.text) for request in requests]
        missing = [r for k, r in zip(keys, requests, strict=True) if self.bought.find(k) is None]
        faults: dict[str, str] = {}
        if missing:
            for found in self._asking.ask(missing, self._read):
                if found.status is not Status.OK:
                    faults[found.key] = found.fault
        return [self._outcome(key, faults.get(key, "")) for key in keys]

    def close(self) -> None:
        """Give the store of requests up."""
        if self._engine is not None:
            engine, self._engine = self._engine, None
            spent = engine.transcripts.spent(engine.run, engine.price.currency)
            engine.transcripts.close()
            print(
                f"{engine.title}: in this run {spent.requests} requests, {spent.tokens} tokens, "
                f"{spent.cost:.2f} {engine.price.currency}"
            )

    @property
    def _asking(self) -> Engine:
        """The engine between, opened when there is something to ask."""
        if self._engine is None:
            desk = self.desk
            assert desk is not None, "the stage says where and how"
            price = self.params.price
            expected = self.card.expected
            self.bought.folder.mkdir(parents=True, exist_ok=True)
            self._engine = Engine(
                _Line(self),
                json.loads(self._identity_text),
                Transcripts(self.bought.folder / "asked.sqlite"),
                desk.limits,
                Price(
                    currency=expected.currency,
                    picture=expected.price if price is None else price,
                ),
                desk.run,
                desk.title,
            )
        return self._engine

    @cached_property
    def bought(self) -> Bought:
        """Answers kept so far, of all runs of these results."""
        assert self.desk is not None, "the stage says where and how"
        kept = Bought(self.desk.results / "pictures")
        kept.restore(self.desk.results / "store" / "generate")
        return kept

    @cached_property
    def _identity_text(self) -> str:
        """What of this model is part of every request's key: what the server is told.

        Refactoring our code buys nothing anew, nor does a new parameter that is not sent.
        """
        params = self.params.model_dump(mode="json", exclude=locations(type(self.params)))
        told = {name: value for name, value in params.items() if value is not None}
        plugin = {"plugin": self.card.plugin, "version": self.version}
        return canonical({**plugin, "params": told})

    def _request(self, job: Job) -> Request:
        picture = self.params.reference.encode(job.reference, "reference")
        message = Message("user", (job.text(self.params.template), picture))
        # The seed tells the replicates of a prompt apart, whether or not the server takes one.
        return Request((message,), max_tokens=0, values={"seed": job.seed})

    def _read(self, request: Request, reply: Reply) -> _Reading:
        key = request_key(self._identity_text, request.text)
        kept = self.bought.find(key)
        return _Reading(Status.OK) if kept else _Reading(Status.FAILED, "its picture is gone")

    def _outcome(self, key: str, fault: str) -> Outcome:
        kept = self.bought.find(key)
        if kept is None:
            return Outcome(None, Status.FAILED, {"reason": fault or "no answer"})
        answer, data = kept
        details: dict[str, Any] = {"request": key, "answer": answer.facts}
        if data is None:
            status = Status.REFUSED if answer.refused else Status.FAILED
            why = answer.words or answer.finish or "no word on why"
            return Outcome(None, status, {**details, "reason": f"no picture: {why}"})
        picture = images.read_picture(data, name=f"answer to {key}")
        details["picture"] = picture.details
        if picture.status is not Status.OK:
            details["reason"] = picture.details.get("reason", "")
        elif picture.image is not None and (asked := self.size) and picture.image.size != asked:
            got = picture.image.size
            details["unexpected_size"] = f"{got[0]}x{got[1]}, asked {asked[0]}x{asked[1]}"
        return Outcome(picture.image, picture.status, details)

    @property
    def size(self) -> tuple[int, int] | None:
        """Width and height that the server is asked for, where it is told."""
        return None

    # --- one request -----------------------------------------------------------------------------

    @cached_property
    def server(self) -> Server:
        """Address and key."""
        return self.server_of(self.params, self.card)

    @abstractmethod
    def call(self, request: Request) -> dict[str, Any]:
        """Return path (``url``), headers and body of a request, as the HTTP client takes them."""

    @abstractmethod
    def read_answer(self, answer: Mapping[str, Any]) -> Given:
        """Read a server's answer of status 200."""

    async def send(self, request: Request) -> Reply:
        """Buy one picture and keep it.

        Raises:
            SendError: there was no answer; see ``asking.server.Server.fault``.
        """
        key = request_key(self._identity_text, request.text)
        kept = self.bought.answer(key)
        if kept is not None and kept.url:  # bought before; only fetching it failed
            given = Given(kept)
        else:
            given = await self._buy(request)
            given = replace(given, answer=self._clean(given.answer))
        answer, data = given.answer, given.data
        if answer.url:
            self.bought.keep(key, answer)
            data = await self._fetch(key, answer.url)
            answer = replace(answer, url=None)
        if data is not None:
            answer = replace(answer, sha256=sha256(data))
        self.bought.keep(key, answer, data)
        self._accepted = True
        return Reply(
            canonical(asdict(answer)),
            answer.finish,
            answer.model,
            answer.prompt_tokens or 0,
            answer.completion_tokens or 0,
            pictures=int(data is not None),
        )

    async def disconnect(self) -> None:
        """Close the connections; a later request opens new ones."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    def _clean(self, answer: Answer) -> Answer:
        words, model = (self.server.without_key(text) for text in (answer.words, answer.model))
        return replace(answer, words=words[:2000], model=model)

    async def _buy(self, request: Request) -> Given:
        status, headers, body = await self._exchange("POST", **self.call(request))
        try:
            answer = json.loads(body)
        except ValueError:
            answer = None
        if status >= 400:
            return self._refusal(status, headers, mapping(answer), body)
        if not isinstance(answer, dict):  # a page of some proxy, or half a body
            text = body[:200].decode("utf-8", "replace")
            raise SendError("retry", self.server.scrubbed(f"the answer is no JSON: {text}"))
        given = self.read_answer(answer)
        if given.broken:
            raise SendError("retry", self.server.scrubbed(given.broken))
        return given

    def _refusal(
        self, status: int, headers: Mapping[str, str], answer: Mapping[str, Any], body: bytes
    ) -> Given:
        """A filter's word is an answer; all else is a fault."""
        error = mapping(answer.get("error"))
        message = str(error.get("message") or body[:200].decode("utf-8", "replace"))
        codes = {str(error[n]).lower() for n in ("code", "type", "status") if error.get(n)}
        if codes & FILTERED or any(part in code for code in codes for part in self.codes):
            code = str(error.get("code") or error.get("type") or status)
            return Given(Answer(words=message, finish=code, refused=True))
        fault = self.fault(status, message, codes, headers, error)
        if fault.kind == "request" and not self._accepted:
            self._wrong += 1
            if self._wrong >= WRONG:
                fault = SendError("account", f"{fault.message} (so are all before)", status)
        raise fault

    def fault(
        self,
        status: int,
        message: str,
        codes: set[str],
        headers: Mapping[str, str],
        error: Mapping[str, Any],
    ) -> SendError:
        """Say what a fault means; subclasses know more of their server's codes."""
        return self.server.fault(status, message, codes, headers)

    async def _fetch(self, key: str, url: str) -> bytes:
        """Fetch a picture that is bought already: no fault here may buy another."""
        for _ in range(FETCHES):
            try:
                status, _, data = await self._exchange("GET", url=url, headers={})
            except SendError as error:
                fault = error.message
                continue
            if status < 400:
                return data
            fault = f"HTTP {status}"
        raise SendError(
            "account",
            f"a picture is bought, but its address gives no file: {fault} (to buy it again, delete "
            f"{self.bought.folder}/{key[:2]}/{key}.json)",
        )

    async def _exchange(self, method: str, **call: Any) -> tuple[int, Mapping[str, str], bytes]:
        import httpx2

        if self._client is None:
            for name in ("httpx2", "httpcore2"):  # at DEBUG they show headers
                logging.getLogger(name).setLevel(logging.WARNING)
            # The engine says for how long and how often to try.
            self._client = httpx2.AsyncClient(timeout=None)
        try:
            async with self._client.stream(method, **call) as response:
                parts, size = [], 0
                async for part in response.aiter_bytes():
                    parts.append(part)
                    size += len(part)
                    if size > LARGEST:
                        raise SendError("retry", f"the answer has more than {LARGEST} bytes")
                return response.status_code, response.headers, b"".join(parts)
        except httpx2.InvalidURL as error:
            raise SendError("account", self.server.scrubbed(f"no address: {error}")) from None
        except httpx2.HTTPError as error:
            message = f"{type(error).__name__}: {error}"
            raise SendError("retry", self.server.scrubbed(message)) from None


class _Line:
    """A model as the engine sees it."""

    remote: ClassVar[bool] = True

    def __init__(self, model: Remote) -> None:
        self._model = model

    def check(self) -> None:
        self._model.server.check()

    async def send(self, request: Request) -> Reply:
        return await self._model.send(request)

    def complete(self, requests: Sequence[Request]) -> Sequence[Reply | SendError]:
        raise NotImplementedError  # a server gets one request at a time

    async def close(self) -> None:
        await self._model.disconnect()


def data_url(picture: Picture) -> str:
    """A picture as it stands in JSON."""
    return f"data:{picture.media_type};base64,{base64.b64encode(picture.data).decode('ascii')}"


def decoded(text: Any) -> bytes | None:
    """Bytes of base64, with or without ``data:...;base64,`` before; None: it is none."""
    if not isinstance(text, str) or not text:
        return None
    try:
        bare = text.rpartition(",")[2] if text[:5] == "data:" else text
        return base64.b64decode(bare, validate=True)
    except (binascii.Error, ValueError):
        return None
