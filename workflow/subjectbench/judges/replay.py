"""Answers from exported transcripts only, as the judge of another card gave them.

So numbers of judges that their vendors have retired stay reproducible, without a key or a network.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from subjectbench import cards
from subjectbench.asking.base import Reply, Request, SendError
from subjectbench.asking.transcripts import Exchange, read_archive
from subjectbench.config import LOCATION, Strict, Use, locations
from subjectbench.errors import InputError
from subjectbench.judges.base import Backend
from subjectbench.vocabulary import Status

WHERE = "judge replay: params"


class Replay(Backend):
    """Gives the archived reply to a request, or stops with an error that names the request."""

    version = "1"

    class Params(Strict):
        """Parameters of the card."""

        path: str = Field(
            min_length=1,
            description="A file of exported transcripts (.parquet), or a folder of such files",
            json_schema_extra=LOCATION,
        )
        judge: Use = Field(
            description="Card of the judge that gave the replies, with the parameters it had then"
        )

    @classmethod
    def sources(cls, params: Any, root: Path) -> list[Path]:
        """Return the archive's files.

        Raises:
            InputError: there are none.
        """
        path = root / params.path
        files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
        if not files or not files[0].is_file():
            fault = "holds no .parquet file" if path.is_dir() else "no such file or folder"
            raise InputError(f"{WHERE}.path", f"{path}: {fault}", "name exported transcripts")
        return files

    @classmethod
    def identity(cls, params: Any, components: Mapping[str, Any]) -> dict[str, Any]:
        """Return the identity of the judge that is replayed, so that keys are the original's.

        Of a judge in process the code and weights of then are not asked for: nothing could tell
        them. Its plug-in, version and parameters must be the card's.

        Raises:
            InputError: there is no such judge, or it is a replay itself.
        """
        use = params.judge
        card = cards.load("judge", use.card, f"{WHERE}.judge")
        plugin = cards.plugin("judge", card, use.card)
        if issubclass(plugin, Replay):
            raise InputError(f"{WHERE}.judge", "is a replay itself", "name the judge that answered")
        its = cards.params("judge", use, f"{WHERE}.judge")
        told = its.model_dump(mode="json", exclude=locations(plugin.Params))
        return dict(
            plugin.identity(its, {"plugin": card.plugin, "version": plugin.version, "params": told})
        )

    _archive: _Archive | None = None

    def check(self) -> None:
        """Read the archive.

        Raises:
            InputError: it is missing or damaged, or has nothing by this judge.
        """
        if self._archive is None:
            files = self.sources(self.params, cards.ROOT)
            self._archive = _Archive(self.identity(self.params, {}), files)

    def complete(self, requests: Sequence[Request]) -> list[Reply | SendError]:
        """Return archived replies; an archived error where the server never answered.

        Raises:
            InputError: a request is not in the archive. Says what is there instead.
        """
        self.check()
        assert self._archive is not None
        found = [self._archive.find(request) for request in requests]
        missing = [r for r, result in zip(requests, found) if result is None]
        if missing:
            raise InputError(
                f"{WHERE}.path: {self.params.path}",
                f"{len(missing)} of the next {len(requests)} requests are not in the archive; "
                f"the first: {self._archive.describe(missing[0])}",
                "name the archive, the judge and the rubric that belong together, "
                "or ask the judge itself",
            )
        return [result for result in found if result is not None]


class _Archive:
    """What one judge said, by request.

    Raises:
        InputError: nothing is by this judge, or it comes from two states of it.
    """

    def __init__(self, judge: Mapping[str, Any], files: Sequence[Path]) -> None:
        self._judge = judge
        self._all = [exchange for file in files for exchange in read_archive(file)]
        self._said: dict[str, list[Exchange]] = {}
        states = set()
        for exchange in self._all:
            told = json.loads(exchange.judge)
            if all(told.get(name) == value for name, value in judge.items()):
                self._said.setdefault(exchange.request, []).append(exchange)
                states.add(exchange.judge)
        where = f"{WHERE}.judge"
        if not states:
            others = sorted({exchange.judge for exchange in self._all})
            raise InputError(
                where,
                f"the archive has nothing by this judge; {_differences(judge, others)}",
                "name the judge that answered, with the parameters it had",
            )
        if len(states) > 1:
            raise InputError(
                where,
                f"the archive has replies of {len(states)} states of this judge, whose code or "
                "weights differ",
                "keep the files of one",
            )

    def find(self, request: Request) -> Reply | SendError | None:
        """Return the first reply that was an answer, or else the last that was none."""
        attempts = [e.attempt for e in self._said.get(request.text, [])]
        if not attempts:
            return None
        best = next((a for a in attempts if a.status is Status.OK), attempts[-1])
        return best.reply or best.send_error()

    def describe(self, request: Request) -> str:
        """Name a request that is not there, and say what is there instead."""
        wanted = request.canonical()
        parts = wanted["messages"][-1]["parts"] if wanted["messages"] else []
        words = " ".join(" ".join(p for p in parts if isinstance(p, str)).split())
        shown = [f"{p['picture']} {p['sha256'][:12]}" for p in _pictures(wanted)]
        name = f"'{words[:80]}' ({', '.join(shown) or 'no picture'}; key {request.key(self._judge)}"
        near: dict[str, str] = {}
        for exchange in self._all:
            near.setdefault(_likeness(wanted, json.loads(exchange.request)), exchange.judge)
        if "same" in near:
            there = f"the same by another judge; {_differences(self._judge, [near['same']])}"
        elif "limits" in near:
            there = "the same words and pictures with another max_tokens, schema or list of asks"
        elif "pictures" in near:
            there = "the same words about other pictures"
        elif "words" in near:
            there = "other words about the same pictures"
        else:
            there = f"{len(self._said)} requests by this judge, none with these words or pictures"
        return f"{name}). In the archive: {there}"


def _pictures(request: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [p for m in request["messages"] for p in m["parts"] if not isinstance(p, str)]


def _words(request: Mapping[str, Any]) -> list[Any]:
    return [
        [m["role"], *(p for p in m["parts"] if isinstance(p, str))] for m in request["messages"]
    ]


def _likeness(wanted: Mapping[str, Any], there: Mapping[str, Any]) -> str:
    """Say in what two requests differ: ``same`` (nothing), ``pictures``, ``words``, ..."""
    if wanted == there:
        return "same"
    pictures = _pictures(wanted) == _pictures(there)
    if _words(wanted) == _words(there):
        return "limits" if pictures else "pictures"
    return "words" if pictures and _pictures(wanted) else "nothing"


def _told(judge: Mapping[str, Any]) -> dict[str, Any]:
    """Plug-in, version and parameters of a judge, flat."""
    return {
        "plugin": judge.get("plugin"),
        "version": judge.get("version"),
        **judge.get("params", {}),
    }


def _differences(judge: Mapping[str, Any], others: Iterable[str]) -> str:
    """Say in what archived judges differ from the one wanted."""
    mine, out = _told(judge), []
    for other in others:
        its = _told(json.loads(other))
        names = [n for n in sorted({*mine, *its}) if mine.get(n) != its.get(n)]
        out.append(", ".join(f"{n} is {its.get(n)!r}, not {mine.get(n)!r}" for n in names))
    return "there: " + ("; ".join(out) or "no reply at all")


PLUGIN = Replay
