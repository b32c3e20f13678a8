"""The engine between requests and whoever answers: asks once, keeps everything, stops in time.

It looks replies up in the transcript store, sends only what is missing, limits, repeats, counts and
saves. What is asked after a reply that cannot be read is for its user to say; a refusal is final.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from subjectbench.asking.base import Answering, Reply, Request, SendError, request_key
from subjectbench.asking.transcripts import Attempt, Spent, Step, Transcripts
from subjectbench.cards import Price
from subjectbench.config import Asking
from subjectbench.errors import InputError
from subjectbench.hashing import canonical
from subjectbench.progress import meter
from subjectbench.vocabulary import Status

if TYPE_CHECKING:
    from tqdm import tqdm

BATCH = 32
"""Requests that a judge in process gets at a time; a kill repeats at most one batch."""

BREAKER = 3
"""Requests in a row that got nowhere, after which no more are sent."""

LONGEST_WAIT = 600.0
"""Seconds; a server that wants a longer pause (``Retry-After``) is not waited for."""

POLL = 0.5
"""Seconds between two looks at what another process is asking."""


class Readable(Protocol):
    """What the engine must know of a reading."""

    @property
    def status(self) -> Status:
        """``ok``, ``refused`` or ``unparsable``."""

    @property
    def fault(self) -> str:
        """Why it is not ``ok``, in a word or a sentence that the judge could be told."""


R = TypeVar("R", bound=Readable)


@dataclass(frozen=True)
class Outcome(Generic[R]):
    """What became of one request.

    Args:
        request: as it was asked for.
        key: its key in the transcript store.
        keys: keys of everything asked for it: itself, then its follow-ups. The last gave ``reply``.
        reply: the last one; None if there was none.
        reading: what was read out of it.
        status: ``ok``, ``unparsable``, ``refused``, or ``failed``: the server will never answer it.
        fault: why it is not ``ok``.
    """

    request: Request
    key: str
    keys: tuple[str, ...]
    reply: Reply | None
    reading: R | None
    status: Status
    fault: str


class Unanswered(InputError):
    """Requests were left without a reply for a reason that may pass. What came is kept."""


class FollowUp(NamedTuple):
    """A further request after a reply that could not be read."""

    kind: str
    request: Request


Then = Callable[[Request, Reply, Readable, frozenset[str]], FollowUp | None]
"""What to ask after a reply: of the request, its reply, the reading, and the kinds tried already.

None: the reading is final. Each kind comes once.
"""


def nothing_more(
    _request: Request, _reply: Reply, _reading: Readable, _tried: frozenset[str]
) -> FollowUp | None:
    """Take every reading as final."""
    return None


# --- what it costs -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Forecast:
    """What requests would cost. Forecasts add up, and can be multiplied by a number of cases.

    Args:
        requests: how many there are, each counted once.
        answered: how many have an answer in the store already; the rest is about the others.
        prompt_tokens: a guess: a token per four characters, and the card's number per picture.
        completion_tokens: at most.
        cost: at most, without repeats and follow-ups.
    """

    requests: int = 0
    answered: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0

    @property
    def to_send(self) -> int:
        """Requests without an answer."""
        return self.requests - self.answered

    def __add__(self, other: Forecast) -> Forecast:
        return Forecast(
            self.requests + other.requests,
            self.answered + other.answered,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.cost + other.cost,
        )

    def __mul__(self, times: int) -> Forecast:
        return Forecast(
            self.requests * times,
            self.answered * times,
            self.prompt_tokens * times,
            self.completion_tokens * times,
            self.cost * times,
        )


def forecast(
    requests: Iterable[Request],
    price: Price,
    identity: Mapping[str, Any] | None = None,
    transcripts: Transcripts | None = None,
    then: Then = nothing_more,
) -> Forecast:
    """Say what requests would cost, before any is sent.

    Where pictures are not there yet, give one request with a blank picture and multiply.

    Args:
        identity: of who is asked; with ``transcripts``, to leave out what is answered already.
        then: as for :class:`Engine`.
    """
    kept = _Kept(transcripts, identity or {}, then) if transcripts else None
    unique = {r.key(identity or {}): r for r in requests}
    if kept:
        kept.load(unique)
    total = Forecast()
    for key, request in unique.items():
        if kept and kept.find(key, request, lambda _request, _reply, attempt: attempt):
            total += Forecast(1, 1)
        else:
            prompt = _prompt_tokens(request, price)
            cost = _cost(price, prompt, request.max_tokens)
            total += Forecast(1, 0, prompt, request.max_tokens, cost)
    return total


def _prompt_tokens(request: Request, price: Price) -> int:
    text = sum(len(p) for m in request.messages for p in m.parts if isinstance(p, str))
    return -(-text // 4) + price.image_tokens * len(request.pictures())


def _cost(price: Price, prompt: int, completion: int) -> float:
    return (prompt * price.prompt + completion * price.completion) / 1e6


def _ahead(price: Price) -> Spent:
    """What is counted before a request is sent: its picture's price, where pictures have one."""
    return Spent(1, 0, price.picture)


# --- what is there -------------------------------------------------------------------------------


class _Kept:
    """Looks answers up in the store, follow-ups included."""

    def __init__(self, transcripts: Transcripts, identity: Mapping[str, Any], then: Then) -> None:
        self._transcripts, self._identity, self._then = transcripts, identity, then
        self._loaded: dict[str, list[Attempt]] = {}

    def load(self, keys: Iterable[str]) -> None:
        """Read many attempts at once."""
        keys = list(keys)
        self._loaded = {key: [] for key in keys} | self._transcripts.attempts(keys)

    def find(
        self,
        key: str,
        request: Request,
        read: Callable[[Request, Reply, Attempt], R],
        tried: frozenset[str] = frozenset(),
    ) -> tuple[tuple[str, ...], Reply, R] | None:
        """Return the keys asked, the reply and its reading, if some reply is an answer.

        Replies are read anew: one that an older parser could not read need not be bought again.
        """
        attempts = self._loaded.get(key)
        if attempts is None:
            attempts = self._transcripts.attempts([key]).get(key, [])
        answers = [a for a in attempts if a.status is Status.OK]
        evidence = [a for a in reversed(attempts) if a.status is not Status.OK]
        for attempt in answers + evidence:
            if attempt.reply is None:
                continue
            reading = read(request, attempt.reply, attempt)
            if reading.status is Status.OK:
                return (key,), attempt.reply, reading
            step = self._then(request, attempt.reply, reading, tried)
            if step:
                further = step.request.key(self._identity)
                found = self.find(further, step.request, read, tried | {step.kind})
                if found:
                    return (key, *found[0]), *found[1:]
        return None


# --- asking --------------------------------------------------------------------------------------


@dataclass
class _Case(Generic[R]):
    """One request on its way."""

    request: Request
    keys: tuple[str, ...]
    current: Request
    tried: frozenset[str] = frozenset()
    last: tuple[Reply, R] | None = None
    outcome: Outcome[R] | None = None

    def end(self, status: Status, fault: str) -> None:
        reply, reading = self.last or (None, None)
        self.outcome = Outcome(self.request, self.keys[0], self.keys, reply, reading, status, fault)


class _Trouble(NamedTuple):
    """Why requests have no reply, and what to do about it."""

    fault: str
    mend: str


class Engine:
    """Asks one judge or one model behind a server, for one job.

    Args:
        backend: who is asked.
        identity: what of who is asked is part of a request's key.
        transcripts: where replies are kept.
        limits: how a server is asked.
        price: of the card, for the budget.
        run: name of the run whose budget counts; processes may share it.
        title: of the job, in messages and on the progress bar.
        expected: requests that ``ask`` will get in all, where that is known, for the time left.
        then: what is asked after a reply that is not ``ok``.
    """

    def __init__(
        self,
        backend: Answering,
        identity: Mapping[str, Any],
        transcripts: Transcripts,
        limits: Asking,
        price: Price,
        run: str,
        title: str,
        expected: int = 0,
        then: Then = nothing_more,
    ) -> None:
        self.backend, self.identity, self.transcripts = backend, identity, transcripts
        self.then, self._turn = then, 0.0
        self._judge = canonical(dict(identity))
        self.limits, self.price, self.run, self.title = limits, price, run, title
        self.expected, self._asked = expected, 0
        self._flow = _Flow(limits.concurrency)
        self._cost = 0.0
        self._bar: tqdm[Any] | None = None

    def ask(
        self, requests: Sequence[Request], read: Callable[[Request, Reply], R]
    ) -> list[Outcome[R]]:
        """Return one outcome per request, in order. A request that comes twice is sent once.

        Raises:
            Unanswered: some have no reply, for a reason that may pass: retries or a budget used up,
                a key that does not work. Everything received is kept.
            InputError: the backend cannot be asked at all.
        """
        keys = [request_key(self._judge, request.text) for request in requests]
        cases = {k: _Case[R](r, (k,), r) for k, r in zip(keys, requests)}
        self._asked += len(cases)
        self._bar = self._bar or meter(self.expected, self.title)
        self._bar.total = max(self.expected, self._asked)
        todo = self._without_answer(cases, read)
        while todo:
            mine = set(todo)
            if self.backend.remote:
                mine = self.transcripts.claim(todo)
            try:
                todo = self._without_answer(todo, read)  # another process may just be done
                turn = [case for key, case in todo.items() if key in mine]
                if turn:
                    self.backend.check()
                    self._register({case.keys[0]: case.request for case in turn})
                    (self._ask_remote if self.backend.remote else self._ask_local)(turn, read)
                elif todo:
                    time.sleep(POLL)
            finally:
                if self.backend.remote:
                    self.transcripts.release()
            todo = {key: case for key, case in todo.items() if not case.outcome}
        return [cases[key].outcome for key in keys]  # type: ignore[misc]

    def _without_answer(
        self, cases: dict[str, _Case[R]], read: Callable[[Request, Reply], R]
    ) -> dict[str, _Case[R]]:
        """Answer from the store what it answers; return the rest."""
        kept = _Kept(self.transcripts, self.identity, self.then)
        kept.load(cases)
        for key, case in cases.items():
            found = kept.find(key, case.request, lambda request, reply, _: read(request, reply))
            if found:
                case.keys, case.last = found[0], found[1:]
                case.end(Status.OK, "")
                self._progress()
        return {key: case for key, case in cases.items() if not case.outcome}

    def _progress(self) -> None:
        assert self._bar is not None
        if self._cost:
            self._bar.set_postfix_str(f"{self._cost:.4f} {self.price.currency}", refresh=False)
        self._bar.update()

    # --- one result ------------------------------------------------------------------------------

    def _read(
        self,
        case: _Case[R],
        result: Reply | SendError,
        seconds: float,
        read: Callable[[Request, Reply], R],
    ) -> tuple[R | None, Step, Exception | None]:
        """Read a result and return the step that keeps it.

        A reader that breaks must not cost a reply: it is kept, then the error is raised.
        """
        reading = broken = None
        fault: str
        if isinstance(result, SendError):
            status = Status.REFUSED if result.kind == "refused" else Status.FAILED
            fault, reply, error = result.kind, None, (result.message, result.status)
        else:
            reply, error = result, ("", None)
            try:
                reading = read(case.current, result)
                status, fault = reading.status, reading.fault
            except Exception as it:
                broken, status, fault = it, Status.UNPARSABLE, "reader"
        attempt = Attempt(status, fault, reply, *error, seconds, self.run)
        return reading, Transcripts.save(case.keys[-1], attempt), broken

    def _register(self, requests: Mapping[str, Request]) -> None:
        texts = {key: request.text for key, request in requests.items()}
        self.transcripts.write([Transcripts.register(self._judge, texts)])

    def _advance(self, case: _Case[R], result: Reply | SendError, reading: R | None) -> None:
        """Finish a case, or turn it to its follow-up. Only after the result is kept."""
        if isinstance(result, SendError):
            if case.last:  # its follow-up failed: what there was before stays true
                case.end(case.last[1].status, case.last[1].fault)
            else:
                refused = result.kind == "refused"
                case.end(Status.REFUSED if refused else Status.FAILED, result.message)
        else:
            assert reading is not None
            case.last = (result, reading)
            step = self.then(case.current, result, reading, case.tried)
            if step is None:
                case.end(reading.status, reading.fault)
            else:
                case.current, case.tried = step.request, case.tried | {step.kind}
                case.keys += (request_key(self._judge, step.request.text),)
                self._register({case.keys[-1]: case.current})
        if case.outcome:
            self._progress()

    # --- judges in process -----------------------------------------------------------------------

    def _ask_local(self, cases: list[_Case[R]], read: Callable[[Request, Reply], R]) -> None:
        todo = deque(cases)
        while todo:
            batch = [todo.popleft() for _ in range(min(BATCH, len(todo)))]
            started = time.perf_counter()
            results = self.backend.complete([case.current for case in batch])
            if len(results) != len(batch):
                raise RuntimeError(f"{len(results)} replies to {len(batch)} requests")
            seconds = (time.perf_counter() - started) / len(batch)
            readings = [self._read(case, r, seconds, read) for case, r in zip(batch, results)]
            self.transcripts.write([step for _, step, _ in readings])
            for case, result, (reading, _, broken) in zip(batch, results, readings):
                if broken:
                    raise broken
                self._advance(case, result, reading)
                if not case.outcome:
                    todo.append(case)

    # --- remote judges ---------------------------------------------------------------------------

    def _ask_remote(self, cases: list[_Case[R]], read: Callable[[Request, Reply], R]) -> None:
        trouble = asyncio.run(_Remote(self, read).solve(cases))
        missing = [case for case in cases if not case.outcome]
        if missing and trouble:
            raise Unanswered(
                self.title,
                f"{len(missing)} of {len(cases)} requests have no reply: {trouble.fault}",
                f"{trouble.mend}; what came is kept in {self.transcripts.path}, and a rerun asks "
                "only what is missing",
            )


class _Flow:
    """How many requests are in flight: one until the first reply, fewer after each 429.

    So a wrong key costs a few calls whatever the concurrency, and a strict rate limit is met by
    sending less at a time instead of using up the retries.
    """

    def __init__(self, most: int) -> None:
        self.most, self.allowed, self.inside = most, 1, 0
        self._proven = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def enter(self) -> None:
        while self.inside >= self.allowed:
            self._waiting.append(asyncio.get_running_loop().create_future())
            await self._waiting[-1]
        self.inside += 1

    def leave(self, result: Reply | SendError | None) -> None:
        self.inside -= 1
        if isinstance(result, Reply):
            self.allowed = min(self.most, self.allowed + 1) if self._proven else self.most
            self._proven = True
        elif isinstance(result, SendError) and result.status == 429:
            self.allowed = max(1, self.allowed // 2)
        for _ in range(self.allowed - self.inside):
            if self._waiting:
                future = self._waiting.popleft()
                if not future.done():
                    future.set_result(None)


class _Remote(Generic[R]):
    """One round of asking a remote judge: workers that take cases from one queue."""

    def __init__(self, engine: Engine, read: Callable[[Request, Reply], R]) -> None:
        self.engine, self.read, self.limits = engine, read, engine.limits
        self.flow, self.price = engine._flow, engine.price
        budget = {"requests": self.limits.max_requests, "tokens": self.limits.max_tokens}
        budget |= {"cost": self.limits.max_cost}  # type: ignore[dict-item]
        self.budget = {name: most for name, most in budget.items() if most is not None}
        self.stopping = asyncio.Event()
        self.trouble: _Trouble | None = None
        self.in_a_row = 0  # requests that got nowhere since the last that did
        self.broken: BaseException | None = None

    async def solve(self, cases: list[_Case[R]]) -> _Trouble | None:
        """Send until every case has an outcome, or sending has no point."""
        queue = iter(cases)
        workers = min(self.limits.concurrency, len(cases))
        try:
            await asyncio.gather(*(self._work(queue) for _ in range(workers)))
        finally:
            await self.engine.backend.close()
        if self.broken:
            raise self.broken
        return self.trouble

    async def _work(self, queue: Iterator[_Case[R]]) -> None:
        for case in queue:
            try:
                while not (case.outcome or self.stopping.is_set()):
                    result = await self._result(case)
                    if result is None:
                        break
                    self.engine._advance(case, *result)
            except Exception as error:  # the others finish what is in flight, and keep it
                self.broken = self.broken or error
                self.stopping.set()
            if self.stopping.is_set():
                return

    async def _result(self, case: _Case[R]) -> tuple[Reply | SendError, R | None] | None:
        """Send until there is a reply or a final error; None if it was given up."""
        for attempt in range(self.limits.retries + 1):
            sent = await self._send(case)
            if sent is None:
                return None
            result, _ = sent
            if isinstance(result, Reply) or result.kind in ("request", "refused"):
                self.in_a_row = 0
                return sent
            failed = result
            if result.kind == "account":
                return None
            if result.retry_after and result.retry_after > LONGEST_WAIT:
                self._gave_up(
                    f"the server wants a pause of {result.retry_after:.0f} s: {result.message}",
                    "come back later",
                )
                return None
            if attempt < self.limits.retries:
                await self._pause(attempt, result.retry_after)
                if self.stopping.is_set():
                    return None
        self._gave_up(
            f"no reply after {self.limits.retries + 1} tries, the last: {failed.message}",
            "see that the server runs and keeps up; under "
            f"{self.limits.place}, lower concurrency, or raise timeout or retries",
        )
        return None

    def _gave_up(self, fault: str, mend: str) -> None:
        self.trouble = self.trouble or _Trouble(fault, mend)
        self.in_a_row += 1
        if self.in_a_row >= BREAKER:
            self.stopping.set()

    async def _pause(self, attempt: int, asked: float | None) -> None:
        """Back off exponentially with full jitter, and never less than the server asked for."""
        longest = min(self.limits.max_backoff, self.limits.backoff * 2**attempt)
        seconds = random.uniform(0, longest)
        if asked is not None:
            seconds = asked + random.uniform(0, min(longest, self.limits.backoff))
        try:
            await asyncio.wait_for(self.stopping.wait(), seconds)
        except TimeoutError:
            return

    async def _send(self, case: _Case[R]) -> tuple[Reply | SendError, R | None] | None:
        """Send once and keep what comes; None if nothing may be sent any more."""
        result: Reply | SendError | None = None
        await self.flow.enter()
        try:
            if self.stopping.is_set() or self._budget_reached():
                return None
            await self._pace()
            started = time.perf_counter()
            try:
                async with asyncio.timeout(self.limits.timeout):
                    result = await self.engine.backend.send(case.current)
            except TimeoutError:
                result = SendError("retry", f"no reply within {self.limits.timeout:g} s")
            except SendError as error:
                result = error
            if isinstance(result, SendError) and result.kind == "account":
                self._gave_up(result.message, "mend the account, the key or the judge's card")
            seconds = time.perf_counter() - started
            return result, self._keep(case, result, seconds)
        finally:  # only what is kept is no longer in flight: that much a killed process loses
            self.flow.leave(result)

    async def _pace(self) -> None:
        """Wait for this request's turn, where the server takes only so many a minute."""
        if self.limits.requests_per_minute:
            now = time.monotonic()
            turn = max(now, self.engine._turn)
            self.engine._turn = turn + 60 / self.limits.requests_per_minute
            await asyncio.sleep(turn - now)

    def _keep(self, case: _Case[R], result: Reply | SendError, seconds: float) -> R | None:
        """Commit a result and return its reading."""
        engine = self.engine
        reading, step, broken = engine._read(case, result, seconds, self.read)
        more = self._spent(case.current, result)
        engine._cost += more.cost
        engine.transcripts.write([step, Transcripts.spend(engine.run, self.price.currency, more)])
        if broken:
            raise broken
        return reading

    def _spent(self, request: Request, result: Reply | SendError) -> Spent:
        """Count what a result took; where the server does not say, a guess."""
        ahead = _ahead(self.price) if self.budget else Spent()  # counted before it was sent
        counted = 1 - ahead.requests
        if isinstance(result, SendError):
            return Spent(counted, 0, -ahead.cost)
        prompt, completion = result.prompt_tokens, result.completion_tokens
        if prompt is None:
            prompt = _prompt_tokens(request, self.price)
        if completion is None:
            completion = -(-len(result.text or "") // 4)
        cost = _cost(self.price, prompt, completion) + result.pictures * self.price.picture
        return Spent(counted, prompt + completion, cost - ahead.cost)

    def _budget_reached(self) -> bool:
        if not self.budget:
            return False
        run, currency = self.engine.run, self.price.currency
        (name,) = self.engine.transcripts.write(
            [Transcripts.reserve(run, currency, self.budget, _ahead(self.price))]
        )
        if name and not self.stopping.is_set():
            self.trouble = self.trouble or _Trouble(
                f"the budget {self.limits.place}.max_{name} = {self.budget[name]:g} is used up",
                f"raise {self.limits.place}.max_{name}, or start another run",
            )
            self.stopping.set()
        return bool(name)
