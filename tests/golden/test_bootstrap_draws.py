"""Correlations in bootstrap draws against scipy on the samples that each draw consists of."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from subjectbench.errors import InputError
from subjectbench.statistics import bootstrap

SCIPY = {"kendall_tau_b": stats.kendalltau, "spearman": stats.spearmanr}

samples = st.lists(
    st.tuples(
        st.sampled_from("abcde"),
        st.integers(-2, 2) | st.floats(-1, 1).map(lambda v: round(v, 3)),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=20,
)


def direct(x: np.ndarray, y: np.ndarray, copies: np.ndarray, name: str) -> float:
    """Repeat every sample as often as it was drawn and ask scipy; NaN where undefined."""
    a, b = np.repeat(x, copies), np.repeat(y, copies)
    if len(a) < 3 or len(set(a)) < 2 or len(set(b)) < 2:
        return np.nan
    return float(SCIPY[name](a, b).statistic)


@pytest.mark.parametrize("name", sorted(SCIPY))
@settings(max_examples=60, deadline=None)
@given(samples, st.integers(0, 3))
def test_every_draw_is_scipys_value_of_the_drawn_samples(
    name: str, rows: list[tuple[str, float, int]], seed: int
) -> None:
    clusters = [c for c, _, _ in rows]
    x, y = (np.array([r[i] for r in rows], dtype=float) for i in (1, 2))
    # One subject more, all of whose samples failed.
    resample = bootstrap.Resample.of([*clusters, "without samples"], 12, seed)
    fast = bootstrap.correlation_draws(x, y, clusters, resample, name)
    copies = resample.weights[:, resample.codes(clusters)].astype(int)
    slow = [direct(x, y, row, name) for row in copies]
    np.testing.assert_allclose(fast, slow, rtol=0, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize("name", sorted(SCIPY))
def test_more_samples_than_fit_a_block(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    clusters = [f"s{i}" for i in rng.integers(0, 30, 400)]
    x, y = rng.normal(size=400), rng.integers(0, 6, 400).astype(float)
    resample = bootstrap.Resample.of(clusters, 50, 1)
    whole = bootstrap.correlation_draws(x, y, clusters, resample, name)
    for block in ("_CHUNK", "_CACHED"):
        monkeypatch.setattr(bootstrap, block, 1000)
    assert (bootstrap.correlation_draws(x, y, clusters, resample, name) == whole).all()
    copies = resample.weights[:, resample.codes(clusters)].astype(int)
    slow = [direct(x, y, row, name) for row in copies]
    np.testing.assert_allclose(whole, slow, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", sorted(SCIPY))
def test_order_of_rows_cannot_matter(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rng = np.random.default_rng(2)
        clusters = np.array([f"s{i}" for i in rng.integers(0, 9, 60)])
        x, y = rng.normal(size=60).round(1), rng.normal(size=60).round(1)
        resample = bootstrap.Resample.of(clusters.tolist(), 100, 3)
        shuffled = rng.permutation(60)
        first, second = (
            bootstrap.correlation_draws(x[o], y[o], clusters[o].tolist(), resample, name)
            for o in (np.arange(60), shuffled)
        )
        assert (first == second).all() and np.ptp(first) > 0


def test_too_many_clusters_for_kendall(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "MAX_KENDALL", 3)
    x, clusters = [1.0, 2.0, 3.0, 5.0], ["a", "b", "c", "d"]
    resample = bootstrap.Resample.of(clusters, 5, 0)
    with pytest.raises(InputError, match="4 clusters are too many"):
        bootstrap.correlation_draws(x, [2.0, 1.0, 3.0, 4.0], clusters, resample, "kendall_tau_b")
    bootstrap.correlation_draws(x, [2.0, 1.0, 3.0, 4.0], clusters, resample, "spearman")
