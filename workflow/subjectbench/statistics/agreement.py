"""Agreement among raters, and the one number per item that metrics are compared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import krippendorff
import numpy as np
from numpy.typing import ArrayLike, NDArray

from subjectbench.errors import InputError
from subjectbench.statistics.correlation import CONSTANT, DECIMALS, TOO_FEW

Level = Literal["ordinal", "interval"]

LEVELS: tuple[Level, ...] = ("ordinal", "interval")
"""Levels of measurement offered for Krippendorff's alpha."""

MISSING = ("available", "complete")
"""Policies for items that some raters did not rate."""


@dataclass(frozen=True)
class Agreement:
    """Krippendorff's alpha, or why there is none.

    Attributes:
        value: at most 1 (0 is chance, negative is worse than chance); None where undefined.
        level: ``"ordinal"`` or ``"interval"``.
        n_raters: raters with at least one rating.
        n_items: items with at least two ratings; only those carry information.
        reason: None, ``"constant_input"`` or ``"too_few"``.
    """

    value: float | None
    level: str
    n_raters: int
    n_items: int
    reason: str | None = None


def _matrix(ratings: ArrayLike) -> NDArray[np.float64]:
    array = np.asarray(ratings, dtype=np.float64)
    if array.ndim != 2:
        raise InputError("ratings", f"have {array.ndim} axes, expected raters x items")
    if np.isinf(array).any():
        raise InputError("ratings", "some are infinite", "leave missing ratings out (NaN)")
    return np.round(array, DECIMALS)


def krippendorff_alpha(ratings: ArrayLike, level: Level = "ordinal") -> Agreement:
    """Krippendorff's alpha for any number of raters, with missing ratings.

    Args:
        ratings: shape (raters, items), NaN where a rater did not rate an item.
        level: ``"ordinal"`` for grades, ``"interval"`` where differences mean something
            (DreamBench++ section 3 uses interval).

    Returns:
        Undefined with fewer than two raters or no item rated twice (``too_few``), and when all
        comparable ratings are the same (``constant_input``): there is no chance disagreement.

    Raises:
        InputError: unknown level, wrong shape or infinite ratings.
    """
    if level not in LEVELS:
        raise InputError("ratings", f"unknown level '{level}'", f"known: {', '.join(LEVELS)}")
    array = _matrix(ratings)
    known = ~np.isnan(array)
    paired = array[:, known.sum(axis=0) >= 2]
    n_raters, n_items = int(known.any(axis=1).sum()), paired.shape[1]
    if n_raters < 2 or n_items == 0:
        return Agreement(None, level, n_raters, n_items, TOO_FEW)
    if np.nanmin(paired) == np.nanmax(paired):
        return Agreement(None, level, n_raters, n_items, CONSTANT)
    value = krippendorff.alpha(reliability_data=paired, level_of_measurement=level)
    return Agreement(float(value), level, n_raters, n_items)


def mean_over_raters(
    ratings: ArrayLike, missing: str = "available"
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Average raters per item: the unit of analysis is the item, never the single rating.

    Args:
        ratings: shape (raters, items), NaN where a rater did not rate an item.
        missing: ``"available"`` averages whoever rated the item; ``"complete"`` gives a mean only
            where all raters did.

    Returns:
        Means, shape (items,), NaN where the policy gives none; ratings per item, shape (items,).

    Raises:
        InputError: unknown policy, wrong shape or infinite ratings.
    """
    if missing not in MISSING:
        raise InputError("ratings", f"unknown policy '{missing}'", f"known: {', '.join(MISSING)}")
    array = _matrix(ratings)
    counts = (~np.isnan(array)).sum(axis=0).astype(np.int64)
    needed = max(1, array.shape[0] if missing == "complete" else 1)
    sums = np.nansum(array, axis=0)
    means: NDArray[np.float64] = np.full(len(counts), np.nan)
    given = counts >= needed
    means[given] = np.round(sums[given] / counts[given], DECIMALS)
    return means, counts
