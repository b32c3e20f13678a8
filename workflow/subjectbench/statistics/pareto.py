"""The Pareto front of a trade-off between two dimensions."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from subjectbench.errors import InputError
from subjectbench.statistics.correlation import finite


def pareto_front(points: ArrayLike) -> NDArray[np.bool_]:
    """Mark the points that no other point beats, both coordinates being better when larger.

    Source: DSH-Bench section 4 and supplement D.1 (preservation against prompt following). A point
    is beaten when another is at least as good in both coordinates and better in one; so equal
    points are kept or dropped together.

    Args:
        points: shape (n, 2), finite; rounded to 9 decimals first.

    Returns:
        Shape (n,), true on the front.

    Raises:
        InputError: not (n, 2), or a value is NaN or infinite.
    """
    array = finite(points, "points", ndim=2) if np.size(points) else np.empty((0, 2))
    if array.shape[1] != 2:
        raise InputError("points", f"have {array.shape[1]} coordinates, expected 2")
    as_good = (array[None, :, :] >= array[:, None, :]).all(axis=2)
    better = (array[None, :, :] > array[:, None, :]).any(axis=2)
    front: NDArray[np.bool_] = ~(as_good & better).any(axis=1)
    return front
