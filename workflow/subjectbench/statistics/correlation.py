"""Rank correlation that names its variant, breaks no ties by noise and never turns NaN into 0.

Source: design.md, "Statistics"; DSH-Bench Table 1 (Kendall, Spearman); UFO Table 2 (Spearman).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from subjectbench.errors import InputError

DECIMALS = 9
"""Decimals kept before ranking: means of ratings differ in the last bit by the order of raters."""

MIN_N = 3
"""Fewest pairs for a correlation: with two, it can only be -1, +1 or undefined."""

CONSTANT = "constant_input"
"""Reason: one side has no variance."""

TOO_FEW = "too_few"
"""Reason: fewer than ``MIN_N`` pairs."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Correlation:
    """A correlation, or why there is none.

    Attributes:
        value: in [-1, 1], or None where undefined.
        n: pairs it rests on.
        reason: None, ``"constant_input"`` or ``"too_few"``.
    """

    value: float | None
    n: int
    reason: str | None = None


@dataclass(frozen=True)
class FisherMean:
    """Two means of the same correlations, so that neither passes for the other.

    Attributes:
        fisher: tanh(mean(arctanh(r))) with r clipped to [-clip, clip]; None without any r.
        plain: arithmetic mean; None without any r.
        n: correlations averaged.
        undefined: correlations that were None and are in neither mean.
        clip: the declared clip; with perfect correlations the result depends on it.
    """

    fisher: float | None
    plain: float | None
    n: int
    undefined: int
    clip: float


@dataclass(frozen=True)
class GroupCorrelations:
    """Correlations within groups (models, cases) and their means.

    Attributes:
        by_group: one correlation per group, groups sorted.
        mean: means over the defined ones.
        defined: how many are defined.
        groups: how many there are.
        reasons: why the others are undefined, with counts.
    """

    by_group: dict[str, Correlation]
    mean: FisherMean
    defined: int
    groups: int
    reasons: dict[str, int]

    def __str__(self) -> str:
        return f"{self.defined} of {self.groups} defined"


def finite(values: ArrayLike, name: str, ndim: int = 1) -> Floats:
    """Return values as floats rounded to ``DECIMALS``.

    Raises:
        InputError: wrong number of axes, not numeric, NaN or infinite.
    """
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(name, f"not numeric: {error}") from error
    if array.ndim != ndim:
        raise InputError(name, f"has {array.ndim} axes, expected {ndim}")
    if not np.isfinite(array).all():
        bad = int((~np.isfinite(array)).sum())
        raise InputError(
            name,
            f"{bad} of {array.size} values are NaN or infinite",
            "drop the pair and count it; a failure is not a number",
        )
    return np.round(array, DECIMALS)


def pairs(x: ArrayLike, y: ArrayLike) -> tuple[Floats, Floats]:
    """Check and round both sides of a correlation.

    Raises:
        InputError: lengths differ, or a value is NaN or infinite.
    """
    a, b = finite(x, "x"), finite(y, "y")
    if len(a) != len(b):
        raise InputError("correlation", f"x has {len(a)} values and y has {len(b)}", "join by id")
    return a, b


def _correlate(x: ArrayLike, y: ArrayLike, statistic: Callable[..., Any]) -> Correlation:
    a, b = pairs(x, y)
    if len(a) < MIN_N:
        return Correlation(None, len(a), TOO_FEW)
    # Tested here because scipy only warns (spearmanr) or says nothing (kendalltau).
    if a.min() == a.max() or b.min() == b.max():
        return Correlation(None, len(a), CONSTANT)
    return Correlation(float(np.clip(statistic(a, b), -1.0, 1.0)), len(a))


def kendall_tau_b(x: ArrayLike, y: ArrayLike) -> Correlation:
    """Kendall's tau-b, the variant corrected for ties.

    Args:
        x: shape (n,), finite; rounded to ``DECIMALS`` first.
        y: shape (n,), likewise.

    Raises:
        InputError: lengths differ, or a value is NaN or infinite.
    """
    return _correlate(x, y, lambda a, b: stats.kendalltau(a, b, variant="b").statistic)


def spearman(x: ArrayLike, y: ArrayLike) -> Correlation:
    """Spearman's rho: Pearson's r of average ranks (not the d-squared formula, wrong with ties).

    Args:
        x: shape (n,), finite; rounded to ``DECIMALS`` first.
        y: shape (n,), likewise.

    Raises:
        InputError: lengths differ, or a value is NaN or infinite.
    """
    return _correlate(x, y, lambda a, b: stats.spearmanr(a, b).statistic)


METHODS: dict[str, Callable[[ArrayLike, ArrayLike], Correlation]] = {
    "kendall_tau_b": kendall_tau_b,
    "spearman": spearman,
}
"""The correlations by name."""


def method(name: str) -> Callable[[ArrayLike, ArrayLike], Correlation]:
    """Look a correlation up.

    Raises:
        InputError: unknown name.
    """
    if name not in METHODS:
        raise InputError("correlation", f"unknown method '{name}'", f"known: {', '.join(METHODS)}")
    return METHODS[name]


def pairwise(columns: ArrayLike, name: str = "spearman") -> list[list[Correlation]]:
    """Correlate every column with every other, each pair on its own.

    A constant column makes its own pairs undefined and leaves the rest alone, which
    ``scipy.stats.spearmanr`` on the whole matrix does not.

    Args:
        columns: shape (n, k), finite.
        name: key of ``METHODS``.

    Returns:
        k lists of k correlations.

    Raises:
        InputError: not two axes, not finite, or an unknown method.
    """
    table, correlate = finite(columns, "columns", ndim=2), method(name)
    return [[correlate(a, b) for b in table.T] for a in table.T]


@dataclass(frozen=True)
class RowCorrelations:
    """Correlations of many rows at once, NaN where undefined.

    Attributes:
        spearman: shape (rows,), in [-1, 1] or NaN.
        kendall_tau_b: likewise, defined for the same rows.
        n: pairs of each row.
        constant_x: whether a row's x has no variance.
        constant_y: whether its y has none.
    """

    spearman: Floats
    kendall_tau_b: Floats
    n: NDArray[np.int64]
    constant_x: NDArray[np.bool_]
    constant_y: NDArray[np.bool_]


def by_row(x: ArrayLike, y: ArrayLike) -> RowCorrelations:
    """Correlate each row of one table with the same row of another, e.g. models within cases.

    Gives what ``spearman`` and ``kendall_tau_b`` give row by row, for thousands of short rows at
    once: an item's average rank less the mean rank is half the sum of the signs of its differences
    to all items of its row, and tau-b is made of the same signs.

    Args:
        x: shape (rows, items), NaN where missing; rounded to ``DECIMALS`` first.
        y: likewise. Pairs with one side missing are left out.

    Raises:
        InputError: shapes differ, or a value is infinite.
    """
    a, b = (np.round(np.asarray(v, dtype=np.float64), DECIMALS) for v in (x, y))
    if a.ndim != 2 or a.shape != b.shape or np.isinf(a).any() or np.isinf(b).any():
        raise InputError(
            "correlation", f"tables of shapes {a.shape} and {b.shape}, or infinite values"
        )
    known = ~(np.isnan(a) | np.isnan(b))
    pair = known[:, :, None] & known[:, None, :]
    sx, sy = (np.where(pair, np.sign(v[:, :, None] - v[:, None, :]), 0.0) for v in (a, b))
    dx, dy = sx.sum(axis=2), sy.sum(axis=2)
    nx, ny = np.abs(sx).sum(axis=(1, 2)), np.abs(sy).sum(axis=(1, 2))
    n = known.sum(axis=1).astype(np.int64)
    defined = (n >= MIN_N) & (nx > 0) & (ny > 0)

    def ratio(top: Floats, left: Floats, right: Floats) -> Floats:
        with np.errstate(invalid="ignore", divide="ignore"):
            r: Floats = np.where(defined, np.clip(top / np.sqrt(left * right), -1, 1), np.nan)
        return r

    rho = ratio((dx * dy).sum(axis=1), (dx * dx).sum(axis=1), (dy * dy).sum(axis=1))
    tau = ratio((sx * sy).sum(axis=(1, 2)), nx, ny)
    return RowCorrelations(rho, tau, n, nx == 0, ny == 0)


def fisher_mean(values: Sequence[float | None], clip: float) -> FisherMean:
    """Average correlations: tanh(mean(arctanh(r))), and the plain mean beside it.

    Args:
        values: correlations in [-1, 1]; None for undefined ones, which are counted.
        clip: r is clipped to [-clip, clip] before arctanh, because arctanh(1) is infinite. In
            (0, 1).

    Raises:
        InputError: clip outside (0, 1), or a value that is NaN or clearly outside [-1, 1].
    """
    if not 0.0 < clip < 1.0:
        raise InputError("fisher_mean", f"clip is {clip}, outside (0, 1)", "for example 0.999999")
    known = finite([v for v in values if v is not None], "correlations")
    if (np.abs(known) > 1.0).any():  # rounding has removed excess such as 1.0000000000000002
        raise InputError("correlations", f"{known[np.abs(known) > 1.0][0]} is outside [-1, 1]")
    undefined = len(values) - len(known)
    if not len(known):
        return FisherMean(None, None, 0, undefined, clip)
    fisher = float(np.tanh(np.mean(np.arctanh(np.clip(known, -clip, clip)))))
    return FisherMean(fisher, float(np.mean(known)), len(known), undefined, clip)


def group_correlations(
    x: ArrayLike, y: ArrayLike, groups: Sequence[str], clip: float, name: str = "spearman"
) -> GroupCorrelations:
    """Correlate within each group, then average the defined ones and count the others.

    Args:
        x: shape (n,), finite.
        y: shape (n,), finite.
        groups: n group names, for example the generator or the case of each pair.
        clip: see ``fisher_mean``.
        name: key of ``METHODS``.

    Raises:
        InputError: lengths differ, a value is not finite, or an unknown method or clip.
    """
    a, b = pairs(x, y)
    correlate, label = method(name), np.asarray(groups, dtype=str)
    if len(label) != len(a):
        raise InputError("correlation", f"{len(label)} groups for {len(a)} pairs", "join by id")
    found = {str(g): correlate(a[label == g], b[label == g]) for g in np.unique(label)}
    mean = fisher_mean([c.value for c in found.values()], clip)
    reasons = Counter(c.reason for c in found.values() if c.reason is not None)
    return GroupCorrelations(found, mean, mean.n, len(found), dict(sorted(reasons.items())))
