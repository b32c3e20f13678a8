"""Intervals by cluster bootstrap: subjects are drawn with replacement, with all their samples.

Samples of one subject resemble each other, so drawing samples would give intervals that are too
narrow. A draw is held as multiplicities of clusters, not as a longer array: every statistic here
is a function of multiplicities, which makes a thousand draws a few matrix operations and gives
exactly the value of the expanded sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from subjectbench.errors import InputError
from subjectbench.statistics import leaderboard
from subjectbench.statistics.correlation import MIN_N, TOO_FEW, finite, method, pairs

MAX_UNDEFINED = 0.05
"""Largest share of undefined draws (no variance, no samples) with which an interval is given."""

MAX_KENDALL = 4000
"""Most pairs for a bootstrap of Kendall's tau-b, whose cost grows with their square."""

_CHUNK = 2_000_000  # elements of a draws x samples block; bounds memory

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """A percentile interval, or why there is none.

    Attributes:
        low: lower end, or None.
        high: upper end, or None.
        confidence: e.g. 0.95.
        draws: draws made.
        undefined: draws in which the statistic was undefined; they are left out and counted.
        reason: None, ``"no_draws"``, ``"too_few_clusters"``, ``"undefined_draws"``,
            ``"perfect_correlation"`` or why the statistic itself is undefined.
    """

    low: float | None
    high: float | None
    confidence: float
    draws: int
    undefined: int = 0
    reason: str | None = None


@dataclass(frozen=True)
class Difference:
    """A difference of two correlations, or of two means of them, on the same data.

    Attributes:
        value: first minus second, or None where either is undefined.
        interval: of the difference, from draws shared by both.
        share_positive: share of defined draws in which the first is strictly higher, or None.
        n: pairs; groups that are averaged.
        reason: why ``value`` is None.
        p_value: two-sided, see ``two_sided``; None without an interval.
    """

    value: float | None
    interval: Interval
    share_positive: float | None
    n: int
    reason: str | None = None
    p_value: float | None = None


@lru_cache(maxsize=16)
def _multiplicities(clusters: int, draws: int, seed: int) -> Floats:
    rng = np.random.default_rng(seed)
    drawn = rng.multinomial(clusters, np.full(clusters, 1.0 / clusters), size=draws)
    weights = drawn.astype(np.float64)
    weights.setflags(write=False)
    return weights


@dataclass(frozen=True)
class Resample:
    """Draws of clusters, to be shared by every statistic that is compared.

    Attributes:
        labels: shape (k,), the distinct clusters, sorted so that row order cannot matter.
        weights: shape (draws, k), how often each draw has each cluster; rows sum to k.
    """

    labels: NDArray[np.str_]
    weights: Floats

    @classmethod
    def of(cls, clusters: Sequence[str], draws: int, seed: int) -> Resample:
        """Draw k of the k distinct clusters with replacement, ``draws`` times.

        Raises:
            InputError: no clusters, a negative number of draws, or a negative seed.
        """
        labels = np.unique(np.asarray(clusters, dtype=str))
        if not len(labels) or draws < 0 or seed < 0:
            raise InputError(
                "bootstrap", f"{len(labels)} clusters, {draws} draws, seed {seed}: all must be set"
            )
        return cls(labels, _multiplicities(len(labels), int(draws), int(seed)))

    def codes(self, clusters: Sequence[str]) -> NDArray[np.int64]:
        """Position of each sample's cluster in ``labels``, shape (n,).

        Raises:
            InputError: a cluster that was not drawn from.
        """
        names = np.asarray(clusters, dtype=str)
        codes = np.searchsorted(self.labels, names)
        if len(names) and (self.labels[np.minimum(codes, len(self.labels) - 1)] != names).any():
            raise InputError("bootstrap", "a sample's cluster is not among those drawn")
        return codes.astype(np.int64)

    def means(self, values: ArrayLike, clusters: Sequence[str]) -> Floats:
        """Mean over samples in every draw: shape (draws,), NaN in draws without any sample.

        Args:
            values: shape (n,), finite.
            clusters: n cluster names, all among ``labels``.

        Raises:
            InputError: lengths differ, values not finite, or an unknown cluster.
        """
        array, codes = finite(values, "values"), self.codes(clusters)
        if len(array) != len(codes):
            raise InputError("bootstrap", f"{len(array)} values for {len(codes)} clusters")
        k = len(self.labels)
        # Centred, so that the rounding of a large common offset cannot widen the interval.
        centre = float(array.mean()) if len(array) else 0.0
        sums = self.weights @ np.bincount(codes, array - centre, minlength=k)
        counts = self.weights @ np.bincount(codes, minlength=k).astype(np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):
            means: Floats = np.where(counts > 0, centre + sums / counts, np.nan)
        return means


def percentile(draws: Floats, confidence: float, clusters: int) -> Interval:
    """Percentile interval of bootstrap draws (numpy's linear interpolation).

    Args:
        draws: shape (draws,), NaN where undefined.
        confidence: in (0, 1).
        clusters: distinct clusters behind the draws; one cluster has no spread to show.

    Raises:
        InputError: confidence outside (0, 1).
    """
    if not 0.0 < confidence < 1.0:
        raise InputError("bootstrap", f"confidence {confidence} is outside (0, 1)", "e.g. 0.95")
    known = draws[np.isfinite(draws)]
    undefined = len(draws) - len(known)
    if not len(draws):
        return Interval(None, None, confidence, 0, 0, "no_draws")
    if clusters < 2:
        return Interval(None, None, confidence, len(draws), undefined, "too_few_clusters")
    if undefined > MAX_UNDEFINED * len(draws):
        return Interval(None, None, confidence, len(draws), undefined, "undefined_draws")
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(known, [tail, 1.0 - tail])
    return Interval(float(low), float(high), confidence, len(draws), undefined)


def mean_interval(
    values: ArrayLike,
    clusters: Sequence[str],
    draws: int = 1000,
    seed: int = 0,
    confidence: float = 0.95,
) -> Interval:
    """Interval of a mean. For a paired difference of means pass the differences.

    Args:
        values: shape (n,), finite.
        clusters: n cluster names (subjects).
        draws: bootstrap draws.
        seed: of numpy's default generator.
        confidence: in (0, 1).

    Raises:
        InputError: bad shapes, values, draws, seed or confidence.
    """
    resample = Resample.of(clusters, draws, seed)
    return percentile(resample.means(values, clusters), confidence, len(resample.labels))


def s_h_interval(
    values: Sequence[ArrayLike],
    clusters: Sequence[Sequence[str]],
    weights: Sequence[float] = leaderboard.WEIGHTS,
    constant: float = leaderboard.CONSTANT,
    draws: int = 1000,
    seed: int = 0,
    confidence: float = 0.95,
) -> Interval:
    """Interval of S_h (DSH-Bench equation (1)), recomputed in every draw from the three means.

    The three dimensions share the draws, because they are scores of the same pictures.

    Args:
        values: three arrays (preservation, following, quality), shapes (n1,), (n2,), (n3,).
        clusters: the cluster names of each.
        weights: see ``leaderboard.s_h``.
        constant: see ``leaderboard.s_h``.
        draws: bootstrap draws.
        seed: of numpy's default generator.
        confidence: in (0, 1).

    Raises:
        InputError: not three dimensions, or bad shapes, values, weights, draws or confidence.
    """
    if len(values) != 3 or len(clusters) != 3:
        raise InputError("S_h", f"{len(values)} dimensions, expected 3")
    names = [np.asarray(c, dtype=str) for c in clusters]
    resample = Resample.of(np.concatenate(names).tolist(), draws, seed)
    means = np.column_stack([resample.means(v, c.tolist()) for v, c in zip(values, names)])
    drawn = leaderboard.s_h_draws(means, weights, constant)
    return percentile(drawn, confidence, len(resample.labels))


def _ranks(x: Floats, weights: Floats) -> Floats:
    """Average ranks in every draw, shape (draws, n); sample i stands for weights[:, i] copies."""
    order = np.argsort(x, kind="stable")
    new = np.concatenate([[True], np.diff(x[order]) != 0])
    group = np.empty(len(x), dtype=np.int64)
    group[order] = np.cumsum(new) - 1
    sizes = np.add.reduceat(weights[:, order], np.flatnonzero(new), axis=1)
    ranks: Floats = (np.cumsum(sizes, axis=1) - sizes + (sizes + 1.0) / 2.0)[:, group]
    return ranks


def _spearman_block(x: Floats, y: Floats, weights: Floats) -> Floats:
    total = weights.sum(axis=1)
    centre = ((total + 1.0) / 2.0)[:, None]  # the mean of average ranks, exactly
    dx, dy = _ranks(x, weights) - centre, _ranks(y, weights) - centre
    wx = weights * dx
    cov, vx = (wx * dy).sum(axis=1), (wx * dx).sum(axis=1)
    vy = (weights * dy * dy).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        r = cov / np.sqrt(vx * vy)
    known: Floats = np.where((vx > 0) & (vy > 0) & (total >= MIN_N), np.clip(r, -1, 1), np.nan)
    return known


def _kendall_draws(x: Floats, y: Floats, weights: Floats) -> Floats:
    sx, sy = np.sign(x[:, None] - x[None, :]), np.sign(y[:, None] - y[None, :])
    total = weights.sum(axis=1)

    def quadratic(m: Floats) -> Floats:
        result: Floats = ((weights @ m) * weights).sum(axis=1)
        return result

    top, nx, ny = quadratic(sx * sy), quadratic(np.abs(sx)), quadratic(np.abs(sy))
    with np.errstate(invalid="ignore", divide="ignore"):
        tau = top / np.sqrt(nx * ny)
    known: Floats = np.where((nx > 0) & (ny > 0) & (total >= MIN_N), np.clip(tau, -1, 1), np.nan)
    return known


def correlation_draws(
    x: ArrayLike, y: ArrayLike, clusters: Sequence[str], resample: Resample, name: str = "spearman"
) -> Floats:
    """Correlation in every draw, ranked anew in each.

    Args:
        x: shape (n,), finite.
        y: shape (n,), finite.
        clusters: n cluster names, all among ``resample.labels``.
        resample: the draws.
        name: ``"spearman"`` or ``"kendall_tau_b"``.

    Returns:
        Shape (draws,), NaN where a draw has no variance or fewer than ``MIN_N`` pairs.

    Raises:
        InputError: bad shapes or values, an unknown method, or more than ``MAX_KENDALL`` pairs.
    """
    a, b = pairs(x, y)
    codes = resample.codes(clusters)
    if len(codes) != len(a):
        raise InputError("bootstrap", f"{len(a)} pairs for {len(codes)} clusters", "join by id")
    draws = len(resample.weights)
    if not len(a):
        return np.full(draws, np.nan)
    if name == "spearman":
        step = max(1, _CHUNK // len(a))
        blocks = [
            _spearman_block(a, b, resample.weights[i : i + step][:, codes])
            for i in range(0, max(draws, 1), step)
        ]
        return np.concatenate(blocks)
    method(name)
    if len(a) > MAX_KENDALL:
        raise InputError(
            "bootstrap",
            f"{len(a)} pairs are too many for Kendall's tau-b (limit {MAX_KENDALL})",
            "use Spearman for the interval",
        )
    return _kendall_draws(a, b, resample.weights[:, codes])


def correlation_interval(
    x: ArrayLike,
    y: ArrayLike,
    clusters: Sequence[str],
    name: str = "spearman",
    draws: int = 1000,
    seed: int = 0,
    confidence: float = 0.95,
) -> Interval:
    """Interval of a correlation; none for a perfect one, whose draws are all the same.

    Args:
        x: shape (n,), finite.
        y: shape (n,), finite.
        clusters: n cluster names (subjects).
        name: ``"spearman"`` or ``"kendall_tau_b"``.
        draws: bootstrap draws.
        seed: of numpy's default generator.
        confidence: in (0, 1).

    Raises:
        InputError: bad shapes, values, draws, seed or confidence.
    """
    point = method(name)(x, y)
    if point.value is None:
        return Interval(None, None, confidence, 0, 0, point.reason)
    if abs(point.value) >= 1.0 - 1e-12:
        return Interval(None, None, confidence, 0, 0, "perfect_correlation")
    resample = Resample.of(clusters, draws, seed)
    drawn = correlation_draws(x, y, clusters, resample, name)
    return percentile(drawn, confidence, len(resample.labels))


def correlation_difference(
    first: ArrayLike,
    second: ArrayLike,
    y: ArrayLike,
    clusters: Sequence[str],
    name: str = "spearman",
    draws: int = 1000,
    seed: int = 0,
    confidence: float = 0.95,
) -> Difference:
    """Paired bootstrap of "the first metric agrees better with people than the second".

    Args:
        first: shape (n,), scores of one metric.
        second: shape (n,), scores of another on the same samples.
        y: shape (n,), what people said.
        clusters: n cluster names (subjects).
        name: ``"spearman"`` or ``"kendall_tau_b"``.
        draws: bootstrap draws, shared by both correlations.
        seed: of numpy's default generator.
        confidence: in (0, 1).

    Raises:
        InputError: bad shapes, values, draws, seed or confidence.
    """
    a, b = method(name)(first, y), method(name)(second, y)
    if a.value is None or b.value is None:
        reason = a.reason or b.reason
        return Difference(None, Interval(None, None, confidence, 0, 0, reason), None, a.n, reason)
    resample = Resample.of(clusters, draws, seed)
    drawn = correlation_draws(first, y, clusters, resample, name) - correlation_draws(
        second, y, clusters, resample, name
    )
    return _difference(a.value - b.value, drawn, resample, confidence, a.n)


def mean_difference(
    differences: ArrayLike, clusters: Sequence[str], resample: Resample, confidence: float = 0.95
) -> Difference:
    """Paired bootstrap of a mean difference, for example of two metrics' correlations per case.

    Args:
        differences: shape (n,), first minus second of each pair, finite.
        clusters: n cluster names (subjects), all among ``resample.labels``.
        resample: the draws.
        confidence: in (0, 1).

    Raises:
        InputError: bad shapes, values or confidence, or an unknown cluster.
    """
    array = finite(differences, "differences")
    if not len(array):
        nothing = Interval(None, None, confidence, 0, 0, TOO_FEW)
        return Difference(None, nothing, None, 0, TOO_FEW)
    drawn = resample.means(array, clusters)
    return _difference(float(array.mean()), drawn, resample, confidence, len(array))


def _difference(
    value: float, drawn: Floats, resample: Resample, confidence: float, n: int
) -> Difference:
    known = drawn[np.isfinite(drawn)]
    share = float((known > 0).mean()) if len(known) else None
    interval = percentile(drawn, confidence, len(resample.labels))
    p_value = None if interval.low is None else two_sided(known)
    return Difference(value, interval, share, n, p_value=p_value)


def two_sided(draws: Floats) -> float:
    """Two-sided p of "the difference is 0": twice the smaller tail of its draws beyond 0.

    One is added to either count, so that no p is smaller than the draws can show:
    ``min(1, 2 (k + 1) / (draws + 1))``.

    Args:
        draws: shape (draws,), finite.
    """
    k = min(int((draws <= 0).sum()), int((draws >= 0).sum()))
    return min(1.0, 2.0 * (k + 1) / (len(draws) + 1))
