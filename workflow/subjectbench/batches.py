"""Batches of one fixed shape, so that neither batch size nor shard can change a digit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def fixed_batches(items: Sequence[T], size: int) -> Iterator[tuple[list[T], int]]:
    """Cut into batches of exactly ``size``, the last padded with its last item.

    Yields each batch and how many of it count. A matrix product may round differently for another
    number of rows; with one shape for all, it cannot.
    """
    for start in range(0, len(items), size):
        batch = list(items[start : start + size])
        yield batch + [batch[-1]] * (size - len(batch)), len(batch)
