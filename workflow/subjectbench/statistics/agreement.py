"""Agreement among raters, and the one number per item that metrics are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import krippendorff
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from subjectbench.errors import InputError
from subjectbench.statistics.correlation import (
    CONSTANT,
    DECIMALS,
    MIN_N,
    TOO_FEW,
    Correlation,
    spearman,
)

Level = Literal["ordinal", "interval"]

LEVELS: tuple[Level, ...] = ("ordinal", "interval")
"""Levels of measurement offered for Krippendorff's alpha."""

MISSING = ("available", "complete")
"""Policies for items that some raters did not rate."""


@dataclass(frozen=True)
class Agreement:
    """Krippendorff's alpha or Kendall's W, or why there is none.

    Attributes:
        value: alpha: at most 1 (0 is chance, negative is worse than chance); W: 0 to 1. None where
            undefined.
        level: ``"ordinal"`` or ``"interval"``.
        n_raters: alpha: raters with at least one rating; W: raters who rated every rated item.
        n_items: alpha: items with at least two ratings, which alone carry information; W: items.
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


def kendall_w(ratings: ArrayLike) -> Agreement:
    """Kendall's coefficient of concordance W with average ranks, corrected for ties.

    W = 12 S / (m^2 (n^3 - n) - m T), S being the squared deviations of the items' rank sums and T
    the sum of t^3 - t over all groups of t tied items of all m raters.

    Args:
        ratings: shape (raters, items), NaN where a rater did not rate an item. A ranking counts
            only if it is whole: raters who left out an item that another rated are left out.

    Returns:
        Undefined with fewer than two whole rankings or ``MIN_N`` items (``too_few``), and when
        nobody tells any two items apart (``constant_input``).

    Raises:
        InputError: wrong shape or infinite ratings.
    """
    array = _matrix(ratings)
    rated = array[:, ~np.isnan(array).all(axis=0)]
    whole = rated[~np.isnan(rated).any(axis=1)]
    m, n = whole.shape
    if m < 2 or n < MIN_N:
        return Agreement(None, "ordinal", m, n, TOO_FEW)
    ranks = stats.rankdata(whole, axis=1)
    counts = (np.unique(row, return_counts=True)[1] for row in whole)
    ties = sum(float((c**3 - c).sum()) for c in counts)
    top = m**2 * (n**3 - n) - m * ties
    if top <= 0:
        return Agreement(None, "ordinal", m, n, CONSTANT)
    sums = ranks.sum(axis=0)
    return Agreement(float(12 * ((sums - sums.mean()) ** 2).sum() / top), "ordinal", m, n)


def between_raters(ratings: ArrayLike) -> list[Correlation]:
    """Spearman's rho of every two raters, on the items that both rated.

    Args:
        ratings: shape (raters, items), NaN where a rater did not rate an item.

    Raises:
        InputError: wrong shape or infinite ratings.
    """
    array = _matrix(ratings)
    return [_on_common(a, b) for a, b in combinations(array, 2)]


def against_others(ratings: ArrayLike) -> list[Correlation]:
    """Spearman's rho of each rater with the mean of the others: what a metric could hope for.

    Args:
        ratings: shape (raters, items), NaN where a rater did not rate an item.

    Raises:
        InputError: wrong shape or infinite ratings.
    """
    array = _matrix(ratings)
    out = []
    for i, own in enumerate(array):
        others, _ = mean_over_raters(np.delete(array, i, axis=0))
        out.append(_on_common(own, others))
    return out


def _on_common(a: NDArray[np.float64], b: NDArray[np.float64]) -> Correlation:
    both = ~(np.isnan(a) | np.isnan(b))
    return spearman(a[both], b[both])


def mean_defined(found: Sequence[Correlation]) -> float | None:
    """Mean of the correlations that are defined; None if none is."""
    known = [c.value for c in found if c.value is not None]
    return float(np.mean(known)) if known else None
