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
    x, y = array[:, 0], array[:, 1]
    # beaten[i, j]: point j beats point i
    beaten = (x >= x[:, None]) & (y >= y[:, None]) & ((x > x[:, None]) | (y > y[:, None]))
    front: NDArray[np.bool_] = np.logical_not(np.any(beaten, axis=1))
    return front
