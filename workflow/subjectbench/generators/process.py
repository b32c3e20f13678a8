"""A program that answers lines of JSON with lines of JSON, watched."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

GRACE = 10.0
"""Seconds that a program gets to end by itself."""

LINE = 1 << 20
"""Longest line of an answer, bytes."""

POLL = 0.05


class Ended(Exception):
    """The program gave no answer.

    Attributes:
        code: its exit status, negative for a signal; None if it was still running and was ended.
        last: the last lines that it printed.
    """

    def __init__(self, why: str, code: int | None, last: str) -> None:
        super().__init__(why)
        self.code, self.last = code, last


class Program:
    """A running program and its group of processes; ended with this object.

    Args:
        command: what to run.
        env: its whole environment.
        folder: where it runs.
    """

    def __init__(self, command: Sequence[str], env: Mapping[str, str], folder: Path) -> None:
        self._last: deque[str] = deque(maxlen=12)
        # A session of its own, so that what it starts itself can be ended with it.
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(env),
            cwd=folder,
            start_new_session=True,
        )
        self._answers: queue.Queue[bytes | None] = queue.Queue()
        # Functions and not methods: a thread that holds this object would keep it alive.
        for target, stream in (
            (_read_answers, self._process.stdout),
            (_read_log, self._process.stderr),
        ):
            threading.Thread(
                target=target, args=(stream, self._last, self._answers), daemon=True
            ).start()
        self._finalizer = weakref.finalize(self, _stop, self._process, GRACE)

    def ask(self, line: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        """Send a line and return the next answer.

        Lines that do not begin with ``{`` are no answers but go to the log: programs print.

        Raises:
            Ended: it ended, or gave no answer in time (then it is ended).
            ValueError: the answer is no JSON object, or too long.
        """
        assert self._process.stdin
        try:
            self._process.stdin.write(json.dumps(line).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:  # it has closed its input: what it said before it ended is in the log
            raise self._ended(GRACE) from None
        answer = self._next(timeout)
        try:
            value = json.loads(answer)
        except ValueError as error:
            raise ValueError(f"answered no JSON: {answer[:120]!r}") from error
        return dict(value)

    def stop(self) -> int | None:
        """End the program: it sees the end of its input, then SIGTERM, then SIGKILL."""
        self._finalizer()
        return self._process.returncode

    def _next(self, timeout: float) -> bytes:
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            with contextlib.suppress(queue.Empty):
                answer = self._answers.get(timeout=POLL)
                if answer is None:
                    raise self._ended(GRACE)
                return answer
            # Something it started may still hold the pipe open.
            if self._process.poll() is not None and self._answers.empty():
                time.sleep(POLL)
                if self._answers.empty():
                    raise self._ended(0)
        _stop(self._process, 0)
        raise Ended(f"gave no answer within {timeout:g} s", None, self.last)

    @property
    def last(self) -> str:
        """The last lines that it printed."""
        return "\n".join(self._last)

    def _ended(self, grace: float) -> Ended:
        code = _stop(self._process, grace)
        time.sleep(POLL)  # the reader of the log is another thread
        how = f"status {code}"
        if code < 0:
            with contextlib.suppress(ValueError):
                how = signal.Signals(-code).name
        return Ended(f"ended with {how}", code, self.last)


def _read_answers(stream: IO[bytes], last: deque[str], answers: queue.Queue[bytes | None]) -> None:
    for line in iter(lambda: stream.readline(LINE), b""):
        if line.lstrip().startswith(b"{"):
            answers.put(line)
        else:
            _log(line, last)
    answers.put(None)


def _read_log(stream: IO[bytes], last: deque[str], _: queue.Queue[bytes | None]) -> None:
    for line in iter(lambda: stream.readline(LINE), b""):
        _log(line, last)


def _log(line: bytes, last: deque[str]) -> None:
    text = line.decode("utf-8", "replace").rstrip()
    last.append(text)
    print(text, file=sys.stderr, flush=True)


def _stop(process: subprocess.Popen[bytes], grace: float) -> int:
    with contextlib.suppress(OSError):
        if process.stdin:
            process.stdin.close()
    for number, seconds in ((0, grace), (signal.SIGTERM, 5.0), (signal.SIGKILL, GRACE)):
        if number and process.poll() is None:
            _signal_group(process, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
            break
    _signal_group(process, signal.SIGKILL)  # what it started and left behind
    return process.wait()


def _signal_group(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
