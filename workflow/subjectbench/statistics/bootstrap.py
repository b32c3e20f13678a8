"""Intervals by cluster bootstrap: subjects are drawn with replacement, with all their samples.

Samples of one subject resemble each other, so drawing samples would give intervals that are too
narrow. A draw is held as multiplicities of clusters, not as a longer array: every statistic here
is a function of multiplicities, which makes a thousand draws a few matrix operations and gives
exactly the value of the expanded sample.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from subjectbench.errors import InputError
from subjectbench.statistics import leaderboard
from subjectbench.statistics.correlation import MIN_N, TOO_FEW, finite, method, pairs

MAX_UNDEFINED = 0.05
"""Largest share of undefined draws (no variance, no samples) with which an interval is given."""

MAX_KENDALL = 4000
"""Most clusters for a bootstrap of Kendall's tau-b: a draw costs their square."""

_CHUNK = 2_000_000  # elements of a table of pairs; bounds memory
_CACHED = 100_000  # elements of a draws x samples block: a few of them fit a processor's cache

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


@lru_cache(maxsize=64)  # drawing takes longer than most of what is done with the draws
def _multiplicities(clusters: int, draws: int, seed: int) -> NDArray[np.unsignedinteger]:
    rng = np.random.default_rng(seed)
    drawn = rng.multinomial(clusters, np.full(clusters, 1.0 / clusters), size=draws)
    # As bytes: a table has draws for as many models as have different numbers of subjects.
    return drawn.astype(np.min_scalar_type(int(drawn.max(initial=0))))


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
        counts = _multiplicities(len(labels), int(draws), int(seed))
        return cls(labels, counts.astype(np.float64))

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


class _Side(NamedTuple):
    """One variable, sorted, with its ties."""

    order: NDArray[np.int64]  # (n,), positions of the samples from lowest to highest
    starts: NDArray[np.int64]  # (groups,), where in that order a new value begins
    group: NDArray[np.int64]  # (n,), group of each sample

    @classmethod
    def of(cls, values: Floats) -> _Side:
        order = np.argsort(values, kind="stable")
        new = np.concatenate([[True], np.diff(values[order]) != 0])
        group = np.empty(len(values), dtype=np.int64)
        group[order] = np.cumsum(new) - 1
        return cls(order, np.flatnonzero(new), group)

    def sizes(self, codes: NDArray[np.int64], weights: Floats) -> Floats:
        """How many copies a draw has of each value, shape (draws, groups)."""
        copies: Floats = weights[:, codes[self.order]]
        if len(self.starts) < len(self.order):
            copies = np.add.reduceat(copies, self.starts, axis=1)
        return copies


def _by_block(
    function: Callable[[Floats], Floats], weights: Floats, width: int, elements: int
) -> Floats:
    """Apply to a few draws at a time: a table of them with this width has this many elements."""
    step = max(1, elements // width)
    blocks = [function(weights[i : i + step]) for i in range(0, len(weights), step)]
    return np.concatenate(blocks) if blocks else np.empty(0)


def _ratio(top: Floats, left: Floats, right: Floats, total: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        r = np.clip(top / np.sqrt(left * right), -1, 1)
    known: Floats = np.where((left > 0) & (right > 0) & (total >= MIN_N), r, np.nan)
    return known


def _spearman_draws(x: Floats, y: Floats, codes: NDArray[np.int64], weights: Floats) -> Floats:
    """Pearson's r of the average ranks among copies.

    Less its mean, a value's rank is the number of copies below it plus half of its own, less half
    of all; the sum of squares of all ranks is (N^3 - sum of t^3) / 12, with t copies of a value.
    Every number here is a multiple of 1/4 and, up to 200,000 samples, an exact float.
    """
    a, b = _Side.of(x), _Side.of(y)
    samples = np.bincount(codes, minlength=weights.shape[1]).astype(np.float64)

    def ranks(sizes: Floats, total: Floats) -> tuple[Floats, Floats]:
        dev = np.cumsum(sizes, axis=1)
        dev -= sizes / 2.0
        dev -= total[:, None] / 2.0
        return dev, (total**3 - np.einsum("ij,ij,ij->i", sizes, sizes, sizes)) / 12.0

    def rho(block: Floats) -> Floats:
        total = block @ samples
        dx, vx = ranks(a.sizes(codes, block), total)
        dy, vy = ranks(b.sizes(codes, block), total)
        copies = block[:, codes[a.order]]
        if dx.shape != copies.shape:
            dx = dx[:, a.group[a.order]]
        cov = np.einsum("ij,ij,ij->i", copies, dx, dy[:, b.group[a.order]])
        return _ratio(cov, vx, vy, total)

    return _by_block(rho, weights, len(x), _CACHED)


def _concordance(a: _Side, b: _Side, codes: NDArray[np.int64]) -> Floats:
    """Concordant less discordant pairs between any two clusters, shape (k, k)."""
    by_cluster = np.argsort(codes, kind="stable")
    x, y = a.group[by_cluster], b.group[by_cluster]
    starts = np.flatnonzero(np.diff(codes[by_cluster], prepend=-1))
    table = np.zeros((len(starts), len(starts)))
    for row, (first, last) in enumerate(zip(starts, [*starts[1:], len(x)])):
        step = max(1, _CHUNK // len(x))
        for i in range(first, last, step):
            some = slice(i, min(i + step, last))
            signs = _signs(x[some], x)
            signs *= _signs(y[some], y)
            table[row] += np.add.reduceat(signs.sum(axis=0, dtype=np.int64), starts)
    return table


def _signs(some: NDArray[np.int64], of: NDArray[np.int64]) -> NDArray[np.int8]:
    signs = (some[:, None] > of).view(np.int8)
    signs -= (some[:, None] < of).view(np.int8)
    return signs


def _kendall_draws(x: Floats, y: Floats, codes: NDArray[np.int64], weights: Floats) -> Floats:
    """Tau-b as a quadratic form in the multiplicities of clusters.

    The signs of all pairs are added up once per pair of clusters; what a draw has of them is that
    table weighted by both multiplicities. Pairs that are not tied are all pairs less those within
    groups of copies of a value. All are whole numbers and exact floats.
    """
    a, b = _Side.of(x), _Side.of(y)
    present, codes = np.unique(codes, return_inverse=True)
    weights = weights[:, present]
    if len(present) > MAX_KENDALL:
        raise InputError(
            "bootstrap",
            f"{len(present)} clusters are too many for Kendall's tau-b (limit {MAX_KENDALL})",
            "use Spearman for the interval",
        )
    table = _concordance(a, b, codes)
    total = weights @ np.bincount(codes).astype(np.float64)

    def untied(side: _Side) -> Floats:
        def tied(block: Floats) -> Floats:
            sizes = side.sizes(codes, block)
            return np.einsum("ij,ij->i", sizes, sizes)

        return total**2 - _by_block(tied, weights, len(x), _CACHED)

    def net(block: Floats) -> Floats:
        return np.einsum("ij,ij->i", block @ table, block)

    top = _by_block(net, weights, len(present), _CHUNK)
    return _ratio(top, untied(a), untied(b), total)


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
        InputError: bad shapes or values, an unknown method, or, for Kendall's tau-b, more than
            ``MAX_KENDALL`` clusters.
    """
    a, b = pairs(x, y)
    codes = resample.codes(clusters)
    if len(codes) != len(a):
        raise InputError("bootstrap", f"{len(a)} pairs for {len(codes)} clusters", "join by id")
    method(name)
    if not len(a):
        return np.full(len(resample.weights), np.nan)
    drawn = _spearman_draws if name == "spearman" else _kendall_draws
    return drawn(a, b, codes, resample.weights)


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
