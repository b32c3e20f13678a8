"""Progress bars: rate and time left on a terminal, a line now and then in a log file."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def bar(items: Iterable[T], total: int, what: str) -> Iterator[T]:
    """Pass items on while showing how far the work is."""
    from tqdm import tqdm

    quiet = not sys.stderr.isatty()
    yield from tqdm(items, total=total, desc=what, mininterval=10 if quiet else 0.1, ascii=quiet)
