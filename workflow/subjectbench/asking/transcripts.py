"""The transcript store: every request and what became of it, for good.

One SQLite file (WAL mode), written by any number of processes of one machine. A reply is committed
before it is used, so that a killed job loses at most the requests in flight. What did not answer is
kept as evidence and never given back as an answer.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from subjectbench.asking.base import Reply, SendError, request_key
from subjectbench.errors import InputError
from subjectbench.hashing import canonical
from subjectbench.vocabulary import Status

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

APPLICATION = 0x53425452
"""SQLite's ``application_id`` of our files: "SBTR"."""

VERSION = 1
"""Of the tables, and of the columns of an export."""

BUSY = 60.0
"""Seconds to wait while another process writes."""

_TABLES = """
CREATE TABLE judges(number INTEGER PRIMARY KEY, judge TEXT NOT NULL UNIQUE);
CREATE TABLE requests(
    key TEXT PRIMARY KEY, judge INTEGER NOT NULL REFERENCES judges, request TEXT NOT NULL)
    WITHOUT ROWID;
CREATE TABLE attempts(
    key TEXT NOT NULL REFERENCES requests, attempt INTEGER NOT NULL, run TEXT NOT NULL,
    status TEXT NOT NULL, fault TEXT NOT NULL,
    text TEXT, finish TEXT, model TEXT, prompt_tokens INTEGER, completion_tokens INTEGER,
    graded INTEGER, error TEXT, http INTEGER, latency REAL, time REAL,
    PRIMARY KEY (key, attempt)) WITHOUT ROWID;
CREATE TABLE runs(
    run TEXT NOT NULL, currency TEXT NOT NULL, requests INTEGER NOT NULL,
    tokens INTEGER NOT NULL, cost REAL NOT NULL, PRIMARY KEY (run, currency)) WITHOUT ROWID;
CREATE TABLE claims(key TEXT PRIMARY KEY, owner TEXT NOT NULL) WITHOUT ROWID;
"""


@dataclass(frozen=True)
class Attempt:
    """What became of sending a request once.

    Args:
        status: ``ok`` (the reply was read), ``unparsable``, ``refused`` or ``failed``.
        fault: the reader's reason code; of an error its ``SendError.kind``.
        reply: what came back, if anything.
        error: what the server said in place of a reply.
        http: its HTTP status.
        latency: seconds; recorded here, in no export.
        run: name of the run, for its budget; likewise.
    """

    status: Status
    fault: str = ""
    reply: Reply | None = None
    error: str = ""
    http: int | None = None
    latency: float = field(default=0.0, compare=False)
    run: str = field(default="", compare=False)

    @property
    def lasting(self) -> bool:
        """Whether it says something about the request, and not about a busy line or an account."""
        return self.reply is not None or self.fault in ("request", "refused")

    def send_error(self) -> SendError:
        """Return the error again, where there was no reply."""
        return SendError(self.fault, self.error, self.http)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Exchange:
    """A request, in the form in which it is kept, and one attempt at it.

    Args:
        key: of the request: 32 hex digits.
        judge: identity of the judge, as canonical JSON.
        request: ``Request.text``; a picture is its role, type, size and sha256.
    """

    key: str
    judge: str
    request: str
    attempt: Attempt


@dataclass(frozen=True)
class Spent:
    """What a run has used so far, over all its processes. Killed requests count as requests."""

    requests: int = 0
    tokens: int = 0
    cost: float = 0.0


@dataclass(frozen=True)
class Imported:
    """What an import did.

    Args:
        added: attempts that were new.
        known: attempts that were there already.
        differing: keys with another answer than the one kept; the first stays.
    """

    added: int
    known: int
    differing: tuple[str, ...]


Step = Callable[[sqlite3.Connection], Any]
"""Something written inside a transaction."""


class Transcripts:
    """The store. Use it as a context manager, or close it.

    Args:
        path: the SQLite file; made if it is not there. ``<path>.owners/`` beside it holds one
            locked file per process at work.

    Raises:
        InputError: the file is something else.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._owners = path.with_name(path.name + ".owners")
        self._owners.mkdir(parents=True, exist_ok=True)
        self._owner = uuid.uuid4().hex
        self._has_claims = False
        with _locked(self._owners):
            for other in self._owners.iterdir():
                self._lives(other.name)  # clears away what killed processes left
            self._alive = (self._owners / self._owner).open("w")
            fcntl.flock(self._alive, fcntl.LOCK_EX)  # the system drops it with the process
            self._connection = sqlite3.connect(path, timeout=BUSY, isolation_level=None)
            try:
                self._open()
            except (sqlite3.DatabaseError, InputError) as error:
                self.close()
                if isinstance(error, InputError):
                    raise
                raise InputError(path, f"is no transcript store: {error}", _MEND) from error

    def _open(self) -> None:
        """Check the file, or make its tables. Only under the lock: WAL is set without waiting."""
        ask = self._connection.execute
        (tables,) = ask("SELECT count(*) FROM sqlite_master").fetchone()
        if not tables:
            ask("PRAGMA journal_mode = WAL")
            self._connection.executescript(
                f"BEGIN; {_TABLES} PRAGMA application_id = {APPLICATION};"
                f"PRAGMA user_version = {VERSION}; COMMIT"
            )
        if ask("PRAGMA application_id").fetchone() != (APPLICATION,):
            raise InputError(self.path, "is another program's database", _MEND)
        (version,) = ask("PRAGMA user_version").fetchone()
        if version != VERSION:
            raise InputError(
                self.path,
                f"is of version {version}, this program writes version {VERSION}",
                "export it with the program that made it, and import that",
            )
        # What is committed outlives the process at once, and a power cut moments later. Waiting
        # for the disk at every reply would cost more than the replies that a cut could take.
        ask("PRAGMA synchronous = NORMAL")
        ask("PRAGMA wal_autocheckpoint = 8000")  # pages; each time it does wait

    def close(self) -> None:
        """Close the file and give up what is claimed."""
        try:
            if self._has_claims:
                self.release()
        finally:
            self._connection.close()
            (self._owners / self._owner).unlink(missing_ok=True)
            self._alive.close()

    def __enter__(self) -> Transcripts:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- writing ---------------------------------------------------------------------------------

    def write(self, steps: Sequence[Callable[[sqlite3.Connection], T]]) -> list[T]:
        """Run steps in one transaction and return their results: all of it is kept, or nothing."""
        with self._transaction() as connection:
            return [step(connection) for step in steps]

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield self._connection
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    @staticmethod
    def register(judge: str, requests: Mapping[str, str]) -> Step:
        """Step that keeps requests, so that attempts at them can be saved.

        Args:
            judge: identity of the judge, as canonical JSON.
            requests: key to ``Request.text``.
        """

        def step(connection: sqlite3.Connection) -> None:
            connection.execute("INSERT OR IGNORE INTO judges(judge) VALUES (?)", (judge,))
            connection.executemany(
                "INSERT OR IGNORE INTO requests SELECT ?, number, ? FROM judges WHERE judge = ?",
                [(key, text, judge) for key, text in requests.items()],
            )

        return step

    @staticmethod
    def save(key: str, attempt: Attempt) -> Step:
        """Step that keeps an attempt at a registered request, after those before it."""

        def step(connection: sqlite3.Connection) -> None:
            connection.execute(_SAVE, (key, *_values(attempt)))

        return step

    @staticmethod
    def spend(run: str, currency: str, more: Spent) -> Step:
        """Step that adds to what a run has used."""

        def step(connection: sqlite3.Connection) -> None:
            connection.execute(
                "INSERT INTO runs VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET"
                " requests = requests + excluded.requests, tokens = tokens + excluded.tokens,"
                " cost = cost + excluded.cost",
                (run, currency, more.requests, more.tokens, more.cost),
            )

        return step

    @staticmethod
    def reserve(
        run: str, currency: str, budget: Mapping[str, float], ahead: Spent = Spent(1)
    ) -> Step:
        """Step that counts a request about to be sent, unless a budget of its run is used up.

        It gives the name of that budget, or an empty text. Processes that share a run cannot
        overrun ``requests`` together, nor ``cost`` as far as it is known before; tokens are known
        only when a reply is there.

        Args:
            budget: the most ``requests``, ``tokens`` and ``cost``, where there is a limit.
            ahead: what the request takes, as far as that is known before it is sent.
        """

        def step(connection: sqlite3.Connection) -> str:
            spent = _spent(connection, run, currency)
            for name, most in budget.items():
                used = getattr(spent, name)
                # Sums of prices that end on the budget may miss it by a rounding error.
                if used >= most or used + getattr(ahead, name) > most * (1 + 1e-9):
                    return name
            Transcripts.spend(run, currency, ahead)(connection)
            return ""

        return step

    # --- reading ---------------------------------------------------------------------------------

    def spent(self, run: str, currency: str) -> Spent:
        """Return what a run has used: requests and tokens in all, cost in one currency."""
        return _spent(self._connection, run, currency)

    def attempts(self, keys: Iterable[str]) -> dict[str, list[Attempt]]:
        """Return all attempts at some requests, in order, by key; keys without any are left out."""
        out: dict[str, list[Attempt]] = {}
        for part in _parts(keys):
            marks = ", ".join("?" * len(part))
            for key, _, *values in self._connection.execute(
                f"SELECT * FROM attempts WHERE key IN ({marks}) ORDER BY key, attempt", part
            ):
                out.setdefault(key, []).append(_attempt(values))
        return out

    # --- one process per request -----------------------------------------------------------------

    def claim(self, keys: Iterable[str]) -> set[str]:
        """Claim requests, so that no two processes buy the same reply; return those now ours.

        A claim ends with ``release``, or with the process.
        """
        keys = list(keys)
        with self._transaction() as connection:
            held = dict(connection.execute("SELECT key, owner FROM claims"))
            dead = {o for o in set(held.values()) if not self._lives(o)}
            connection.executemany("DELETE FROM claims WHERE owner = ?", [(o,) for o in dead])
            free = {k for k in keys if held.get(k, "") in dead | {"", self._owner}}
            connection.executemany(
                "INSERT OR IGNORE INTO claims VALUES (?, ?)", [(k, self._owner) for k in free]
            )
        self._has_claims = True
        return free

    def release(self) -> None:
        """Give up all claims of this process."""
        self.write([lambda c: c.execute("DELETE FROM claims WHERE owner = ?", (self._owner,))])
        self._has_claims = False

    def _lives(self, owner: str) -> bool:
        if owner == self._owner:
            return True
        path = self._owners / owner
        try:
            with path.open() as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        path.unlink(missing_ok=True)
        return False

    # --- archives --------------------------------------------------------------------------------

    def export(self, keys: Iterable[str] | None, path: Path) -> int:
        """Write exchanges to one Parquet file, sorted by key and attempt.

        The same content gives the same bytes, whatever the machine, the time and the state of the
        line: attempts that ended without a word on the request are left out, the others counted
        from 1. Never in it: keys of an account, headers, pictures.

        Args:
            keys: requests to export; None: all.

        Returns:
            The number of rows.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        if keys is None:
            keys = [key for (key,) in self._connection.execute("SELECT key FROM requests")]
        rows = []
        for part in _parts(keys):
            marks = ", ".join("?" * len(part))
            asked = {
                key: texts
                for key, *texts in self._connection.execute(
                    "SELECT key, judges.judge, request FROM requests"
                    f" JOIN judges ON number = requests.judge WHERE key IN ({marks})",
                    part,
                )
            }
            for key, attempts in self.attempts(part).items():
                for number, attempt in enumerate((a for a in attempts if a.lasting), 1):
                    rows.append((key, number, *asked[key], *_told(attempt)))
        rows.sort(key=lambda row: row[:2])
        schema = _schema()
        columns = [list(c) for c in zip(*rows)] or [[] for _ in schema]
        table = pa.table(dict(zip(schema.names, columns)), schema=schema)
        pq.write_table(table, path, compression="zstd", write_page_checksum=True)
        return len(rows)

    def load(self, path: Path) -> Imported:
        """Take the exchanges of an export in. Doing it again changes nothing.

        Raises:
            InputError: the file is damaged, or no export of a transcript store.
        """
        archive = read_archive(path)
        added, known, differing = 0, 0, set()
        with self._transaction() as connection:
            there = self.attempts(e.key for e in archive)
            answered = {k for k, kept in there.items() if any(a.status is Status.OK for a in kept)}
            for exchange in archive:
                kept = there.get(exchange.key, [])
                if exchange.attempt in kept:
                    kept.remove(exchange.attempt)  # of two alike, each counts
                    known += 1
                elif exchange.attempt.status is Status.OK and exchange.key in answered:
                    differing.add(exchange.key)
                else:
                    asked = {exchange.key: exchange.request}
                    self.register(exchange.judge, asked)(connection)
                    self.save(exchange.key, exchange.attempt)(connection)
                    added += 1
        return Imported(added, known, tuple(sorted(differing)))


_SAVE = (
    "INSERT INTO attempts SELECT ?1, coalesce(max(attempt), 0) + 1,"
    f" {', '.join(f'?{n}' for n in range(2, 15))} FROM attempts WHERE key = ?1"
)

_MEND = "name the file that this program wrote, or remove it"

_TOLD: tuple[str, ...] = (
    "status",
    "fault",
    "text",
    "finish",
    "model",
    "prompt_tokens",
    "completion_tokens",
)
_TOLD += ("graded", "error", "http")


def _values(attempt: Attempt) -> tuple[Any, ...]:
    """Columns of the table ``attempts`` after key and number."""
    return (attempt.run, *_told(attempt), attempt.latency, time.time())


def _told(attempt: Attempt) -> tuple[Any, ...]:
    """Columns ``_TOLD``."""
    reply = attempt.reply
    said: tuple[Any, ...] = (None,) * 6
    if reply:
        said = (reply.text, reply.finish, reply.model, reply.prompt_tokens)
        said += (reply.completion_tokens, reply.graded)
    return (attempt.status.value, attempt.fault, *said, attempt.error, attempt.http)


def _attempt(values: Sequence[Any]) -> Attempt:
    run, *told, latency, _ = values
    return _from_told(told, latency, run)


def _from_told(told: Sequence[Any], latency: float = 0.0, run: str = "") -> Attempt:
    status, fault, text, finish, model, prompt, completion, graded, error, http = told
    reply = None
    if finish is not None:
        reply = Reply(text, finish, model, prompt, completion, bool(graded))
    return Attempt(Status(status), fault, reply, error, http, latency, run)


def _spent(connection: sqlite3.Connection, run: str, currency: str) -> Spent:
    row = connection.execute(
        "SELECT coalesce(sum(requests), 0), coalesce(sum(tokens), 0),"
        " coalesce(sum(cost) FILTER (WHERE currency = ?), 0.0) FROM runs WHERE run = ?",
        (currency, run),
    ).fetchone()
    return Spent(*row)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _parts(keys: Iterable[str], size: int = 500) -> Iterator[list[str]]:
    """Cut keys, each once, into parts that one statement can take."""
    unique = list(dict.fromkeys(keys))
    for start in range(0, len(unique), size):
        yield unique[start : start + size]


def _schema() -> pa.Schema:
    import pyarrow as pa

    whole = {"attempt", "prompt_tokens", "completion_tokens", "http"}
    fields = [
        (n, pa.int64() if n in whole else pa.bool_() if n == "graded" else pa.string())
        for n in ("key", "attempt", "judge", "request", *_TOLD)
    ]
    return pa.schema(fields, metadata={"subjectbench.transcripts": str(VERSION)})


def read_archive(path: Path) -> list[Exchange]:
    """Read an export, in order.

    Raises:
        InputError: the file is missing, damaged, or no export of a transcript store.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.is_file():
        raise InputError(path, "no such file", "name a file of exported transcripts")
    mend = "name a file that this program exported, or fetch it again"
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            if not file.schema_arrow.equals(_schema(), check_metadata=True):
                raise InputError(path, "holds no transcripts of this program", mend)
            rows = file.read().to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise InputError(path, f"is damaged, or no Parquet file: {error}", mend) from error
    out = []
    for number, row in enumerate(rows):
        try:
            if request_key(row["judge"], row["request"]) != row["key"]:
                raise ValueError("the key is not that of the request")
            for name in ("judge", "request"):
                if canonical(json.loads(row[name])) != row[name]:
                    raise ValueError(f"its {name} is not canonical JSON")
            attempt = _from_told([row[name] for name in _TOLD])
        except (ValueError, TypeError) as error:
            raise InputError(f"{path}: row {number}", f"is damaged: {error}", mend) from error
        out.append(Exchange(row["key"], row["judge"], row["request"], attempt))
    return out
