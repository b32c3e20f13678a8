"""Progress bars: rate and time left on a terminal, a line now and then in a log file."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from tqdm import tqdm

T = TypeVar("T")


def _style() -> dict[str, Any]:
    quiet = not sys.stderr.isatty()
    return {"mininterval": 10 if quiet else 0.1, "ascii": quiet, "delay": 1}


def bar(items: Iterable[T], total: int, what: str) -> Iterator[T]:
    """Pass items on while showing how far the work is."""
    from tqdm import tqdm

    yield from tqdm(items, total=total, desc=what, **_style())


def meter(total: int, what: str) -> tqdm[Any]:
    """Return a bar that is moved by hand: ``update``, ``set_postfix_str``, ``close``."""
    from tqdm import tqdm

    return tqdm(total=total, desc=what, **_style())
