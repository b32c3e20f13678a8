"""Statistics against scipy, the printed S_h and the recipes of STAT-*, VLM-01, TAB-01, CLIP-09."""

from __future__ import annotations

import math
import time

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from subjectbench import tables, writing
from subjectbench.errors import InputError
from subjectbench.records import join_one_to_one
from subjectbench.statistics import agreement, bootstrap, correlation, leaderboard
from subjectbench.statistics.bootstrap import Resample
from subjectbench.statistics.correlation import fisher_mean, kendall_tau_b, spearman
from subjectbench.statistics.pareto import pareto_front

HUMAN = [1, 1, 2, 2, 3, 3, 4, 4]
METRIC = [0.2, 0.3, 0.3, 0.5, 0.4, 0.9, 0.9, 0.8]


# --------------------------------------------------------------------------- correlation


def test_stat03_variants() -> None:
    assert kendall_tau_b(HUMAN, METRIC).value == pytest.approx(0.7205766921, abs=1e-10)
    assert spearman(HUMAN, METRIC).value == pytest.approx(0.8395701571, abs=1e-10)
    assert spearman(HUMAN, METRIC).n == 8


def test_matches_scipy_with_ties() -> None:
    rng = np.random.default_rng(0)
    for n in (3, 4, 10, 157):
        x, y = rng.integers(0, 6, n).astype(float), rng.normal(size=n).round(1)
        if len(set(x)) == 1 or len(set(y)) == 1:
            continue
        assert kendall_tau_b(x, y).value == pytest.approx(
            stats.kendalltau(x, y).statistic, abs=1e-12
        )
        assert spearman(x, y).value == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-12)


def test_stat05_constant_is_none_with_a_reason() -> None:
    for correlate in (kendall_tau_b, spearman):
        found = correlate([3, 3, 3, 3], [1, 2, 3, 4])
        assert found == correlation.Correlation(None, 4, "constant_input")
        assert correlate([1, 2], [2, 1]) == correlation.Correlation(None, 2, "too_few")
        assert correlate([], []) == correlation.Correlation(None, 0, "too_few")


def test_stat05_one_constant_column_spoils_only_its_own_pairs() -> None:
    up = np.arange(10.0)
    table = correlation.pairwise(np.column_stack([np.zeros(10), np.zeros(10), up, -up]))
    assert table[2][3].value == pytest.approx(-1.0)
    assert table[0][2].reason == table[0][0].reason == "constant_input"


def test_nan_is_refused() -> None:
    for bad in (math.nan, math.inf):
        with pytest.raises(InputError, match="NaN or infinite"):
            spearman([1, 2, bad], [1, 2, 3])
        with pytest.raises(InputError, match="NaN or infinite"):
            kendall_tau_b([1, 2, 3], [1, bad, 3])
    with pytest.raises(InputError, match="3 values and y has 2"):
        spearman([1, 2, 3], [1, 2])


def test_near_ties_are_ties() -> None:
    """judge_metrics 2f-14: the order of raters changes the last bit of their mean."""
    x = [(0.1 + 0.2 + 0.3) / 3, (0.3 + 0.2 + 0.1) / 3, 0.5, 0.7]
    assert x[0] != x[1]
    assert spearman(x, [1, 2, 3, 4]) == spearman([0.2, 0.2, 0.5, 0.7], [1, 2, 3, 4])


def test_stat07_raters_are_averaged_first() -> None:
    ratings = [[1, 2, 3, 4], [2, 2, 4, 4], [1, 3, 3, 5]]
    means, counts = agreement.mean_over_raters(ratings)
    assert counts.tolist() == [3] * 4
    assert spearman([0.1, 0.2, 0.3, 0.4], means).value == pytest.approx(1.0)


def test_stat08_fisher_names_both_means_and_never_explodes() -> None:
    found = fisher_mean([0.9, 0.5, 0.1], clip=0.999999)
    assert found.plain == pytest.approx(0.5)
    assert found.fisher == pytest.approx(0.6090, abs=5e-5)
    assert fisher_mean([1.0, -1.0], clip=0.999).fisher == pytest.approx(0.0)
    top = fisher_mean([1.0000000000000002, 0.5, None], clip=0.999)
    expected = math.tanh((math.atanh(0.999) + math.atanh(0.5)) / 2)
    assert top.fisher == pytest.approx(expected) and top.undefined == 1 and top.n == 2
    assert fisher_mean([None], clip=0.9) == correlation.FisherMean(None, None, 0, 1, 0.9)
    for clip in (0.0, 1.0, 2.0):
        with pytest.raises(InputError, match="clip"):
            fisher_mean([0.5], clip=clip)
    with pytest.raises(InputError, match="outside"):
        fisher_mean([1.1], clip=0.9)
    # judge_metrics 5: tanh of the plain mean is not the Fisher mean
    assert fisher_mean([0.3538, 0.2145, 0.5476], clip=0.999).fisher == pytest.approx(
        0.3807, abs=1e-4
    )


def test_stat08_no_interval_for_a_perfect_correlation() -> None:
    x, subjects = [1.0, 2.0, 3.0, 4.0], ["a", "b", "c", "d"]
    assert bootstrap.correlation_interval(x, x, subjects).reason == "perfect_correlation"


def test_groups_count_the_undefined() -> None:
    x, y = [1, 2, 3, 5, 5, 5, 1, 2], [1, 2, 3, 1, 2, 3, 1, 2]
    groups = ["a"] * 3 + ["b"] * 3 + ["c"] * 2
    found = correlation.group_correlations(x, y, groups, clip=0.999)
    assert (found.defined, found.groups, str(found)) == (1, 3, "1 of 3 defined")
    assert found.reasons == {"constant_input": 1, "too_few": 1}
    assert found.mean.plain == pytest.approx(1.0) and found.mean.fisher == pytest.approx(0.999)


def test_six_items_one_swap() -> None:
    assert spearman([1, 2, 3, 4, 5, 6], [2, 1, 3, 4, 5, 6]).value == pytest.approx(
        0.942857, abs=1e-6
    )


maybe = st.one_of(st.just(math.nan), st.integers(-3, 3).map(float))
rows_of_pairs = st.lists(
    st.lists(st.tuples(maybe, maybe), min_size=6, max_size=6), min_size=1, max_size=6
)


@given(rows_of_pairs)
def test_by_row_equals_row_by_row(rows: list[list[tuple[float, float]]]) -> None:
    x, y = np.moveaxis(np.array(rows), 2, 0)
    found = correlation.by_row(x, y)
    for i, (a, b) in enumerate(zip(x, y)):
        both = ~(np.isnan(a) | np.isnan(b))
        for correlate in (spearman, kendall_tau_b):
            expected = correlate(a[both], b[both])
            value = getattr(found, correlate.__name__)[i]
            assert (expected.value is None) == np.isnan(value) and found.n[i] == expected.n
            if expected.value is not None:
                assert value == pytest.approx(expected.value, abs=1e-12)
            if expected.reason == "constant_input":
                assert found.constant_x[i] or found.constant_y[i]


def test_by_row_refuses_what_it_cannot_pair() -> None:
    for x, y in (([[1, 2]], [[1, 2, 3]]), ([1, 2, 3], [1, 2, 3]), ([[1, math.inf]], [[1, 2]])):
        with pytest.raises(InputError, match="shapes"):
            correlation.by_row(x, y)
    ones = correlation.by_row([[1, 2, 3], [3, 2, 1]], [[1, 2, 3], [1, 2, 3]])
    assert ones.spearman.tolist() == ones.kendall_tau_b.tolist() == [1.0, -1.0]


small = st.integers(-4, 4)
tables_of_pairs = st.lists(st.tuples(small, small), min_size=3, max_size=25)


@given(tables_of_pairs, st.randoms())
def test_correlations_ignore_order_and_stay_in_range(rows: list[tuple[int, int]], random) -> None:
    shuffled = rows[:]
    random.shuffle(shuffled)
    for correlate in (kendall_tau_b, spearman):
        a, b = correlate(*zip(*rows)), correlate(*zip(*shuffled))
        assert a.reason == b.reason
        if a.value is None:
            assert a.reason == "constant_input"
        else:
            assert a.value == pytest.approx(b.value, abs=1e-12) and -1 <= a.value <= 1


@given(tables_of_pairs)
def test_correlations_ignore_monotone_transforms(rows: list[tuple[int, int]]) -> None:
    x, y = map(np.array, zip(*rows))
    for correlate in (kendall_tau_b, spearman):
        plain, bent, turned = correlate(x, y), correlate(x**3 + 7 * x, y), correlate(-x, y)
        assert plain == bent
        if plain.value is not None:
            assert turned.value == pytest.approx(-plain.value, abs=1e-12)


# --------------------------------------------------------------------------- bootstrap


def expand(x: np.ndarray, codes: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return np.repeat(x, weights[codes].astype(int))


@pytest.mark.parametrize("name", ["spearman", "kendall_tau_b"])
def test_draws_equal_the_expanded_sample(name: str) -> None:
    rng = np.random.default_rng(3)
    clusters = [f"s{i % 7}" for i in range(40)]
    x, y = rng.integers(0, 5, 40).astype(float), rng.normal(size=40).round(1)
    resample = Resample.of(clusters, 50, 1)
    drawn = bootstrap.correlation_draws(x, y, clusters, resample, name)
    codes, oracle = resample.codes(clusters), correlation.METHODS[name]
    for value, weights in zip(drawn, resample.weights):
        expected = oracle(expand(x, codes, weights), expand(y, codes, weights)).value
        assert value == pytest.approx(expected, abs=1e-12)
    means = resample.means(y, clusters)
    assert means[0] == pytest.approx(expand(y, codes, resample.weights[0]).mean())


def test_undefined_draws_are_nan_and_counted() -> None:
    # one of four subjects carries all the variance: a third of the draws lacks it
    clusters = ["a", "a", "b", "c", "d"]
    found = bootstrap.correlation_interval([1, 2, 2, 2, 2], [1, 1, 2, 2, 2], clusters, draws=400)
    assert found.reason == "undefined_draws" and found.low is None and found.undefined > 20


def test_mean_interval_is_seeded_ordered_and_clustered() -> None:
    rng = np.random.default_rng(5)
    subjects = np.repeat([f"s{i}" for i in range(20)], 10)
    values = np.repeat(rng.normal(size=20), 10) + rng.normal(scale=0.1, size=200)
    found = bootstrap.mean_interval(values, subjects, draws=2000, seed=1)
    order = rng.permutation(200)
    again = bootstrap.mean_interval(values[order], subjects[order], draws=2000, seed=1)
    assert found.low == pytest.approx(again.low) and found.high == pytest.approx(again.high)
    assert found != bootstrap.mean_interval(values, subjects, draws=2000, seed=2)
    assert found.low < values.mean() < found.high
    # theory: the spread of subject means, not of samples
    theory = 2 * 1.96 * values.reshape(20, 10).mean(axis=1).std() / math.sqrt(20)
    assert found.high - found.low == pytest.approx(theory, rel=0.12)
    naive = bootstrap.mean_interval(values, [str(i) for i in range(200)], draws=2000, seed=1)
    assert naive.high - naive.low < 0.5 * (found.high - found.low)


def test_interval_edges() -> None:
    one = bootstrap.mean_interval([1.0, 2.0], ["a", "a"])
    assert one.reason == "too_few_clusters" and one.low is None
    flat = bootstrap.mean_interval([0.1] * 3, ["a", "b", "c"])
    assert flat.low == flat.high == pytest.approx(0.1)
    with pytest.raises(InputError, match="confidence"):
        bootstrap.mean_interval([1.0, 2.0], ["a", "b"], confidence=95)
    with pytest.raises(InputError, match="2 values for 1 clusters"):
        bootstrap.mean_interval([1.0, 2.0], ["a"])
    with pytest.raises(InputError, match="-1 draws"):
        bootstrap.mean_interval([1.0, 2.0], ["a", "b"], draws=-1)
    # a study may do without intervals; its numbers stay
    assert bootstrap.mean_interval([1.0, 2.0], ["a", "b"], draws=0).reason == "no_draws"
    none = bootstrap.correlation_difference(
        [1, 2, 4], [1, 3, 2], [1, 2, 3], ["a", "b", "c"], draws=0
    )
    assert none.value is not None and none.interval.reason == "no_draws" and none.p_value is None
    with pytest.raises(InputError, match="not among"):
        Resample.of(["a", "b"], 5, 0).means([1.0], ["z"])


def test_s_h_interval_recomputes_the_score_in_every_draw() -> None:
    rng = np.random.default_rng(2)
    subjects = [f"s{i % 12}" for i in range(60)]
    values = [rng.uniform(0.1, 0.6, 60) for _ in range(3)]
    found = bootstrap.s_h_interval(values, [subjects] * 3, draws=300, seed=4)
    resample = Resample.of(subjects, 300, 4)
    means = np.column_stack([resample.means(v, subjects) for v in values])
    slow = [leaderboard.s_h(*row).value for row in means]
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(slow, [0.025, 0.975])))
    point = leaderboard.s_h(*(v.mean() for v in values)).value
    assert found.low < point < found.high


def test_paired_difference_shares_the_draws() -> None:
    rng = np.random.default_rng(8)
    truth = rng.normal(size=300)
    good, bad = truth + rng.normal(size=300), truth + 3 * rng.normal(size=300)
    subjects = [f"s{i % 30}" for i in range(300)]
    found = bootstrap.correlation_difference(good, bad, truth, subjects)
    expected = stats.spearmanr(good, truth).statistic - stats.spearmanr(bad, truth).statistic
    assert found.value == pytest.approx(expected) and found.interval.low > 0
    assert found.share_positive > 0.99 and found.n == 300
    same = bootstrap.correlation_difference(good, good, truth, subjects)
    assert same.value == same.interval.low == same.interval.high == 0.0
    none = bootstrap.correlation_difference(np.ones(300), bad, truth, subjects)
    assert none.value is None and none.reason == "constant_input"


def test_mean_difference_and_its_p() -> None:
    assert bootstrap.two_sided(np.array([-1.0, 1, 1, 1])) == pytest.approx(2 * 2 / 5)
    assert bootstrap.two_sided(np.array([1.0] * 99)) == pytest.approx(2 / 100)
    assert bootstrap.two_sided(np.zeros(9)) == 1.0
    rng = np.random.default_rng(4)
    subjects = np.repeat([f"s{i}" for i in range(30)], 4)
    values = np.repeat(rng.normal(0.3, 1, 30), 4)
    resample = Resample.of(subjects, 4000, 0)
    found = bootstrap.mean_difference(values, subjects, resample)
    # Whole subjects are drawn: the p is that of 30 subjects, not of 120 values.
    t = stats.ttest_1samp(values[::4], 0).pvalue
    assert found.p_value == pytest.approx(t, abs=0.04) and found.n == 120
    assert found.p_value > 2 * stats.ttest_1samp(values, 0).pvalue
    assert found.value == pytest.approx(values.mean())
    assert bootstrap.mean_difference([], [], resample).reason == "too_few"


def test_bootstrap_is_fast() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=1200), rng.integers(0, 5, 1200)
    subjects = [f"s{i // 12}" for i in range(1200)]
    start = time.perf_counter()
    for _ in range(4):
        bootstrap.correlation_interval(x, y, subjects, draws=1000)
    assert time.perf_counter() - start < 10  # about 0.5 s here; a loop takes minutes


@settings(max_examples=40, deadline=None)
@given(tables_of_pairs, st.integers(0, 3))
def test_correlation_draws_stay_in_range(rows: list[tuple[int, int]], seed: int) -> None:
    x, y = map(np.array, zip(*rows))
    clusters = [f"c{i % 3}" for i in range(len(rows))]
    for name in correlation.METHODS:
        drawn = bootstrap.correlation_draws(x, y, clusters, Resample.of(clusters, 20, seed), name)
        assert drawn.shape == (20,) and (np.isnan(drawn) | (np.abs(drawn) <= 1)).all()


# --------------------------------------------------------------------------- raters


def test_krippendorff_known_value() -> None:
    """Krippendorff (2011), "Computing Krippendorff's Alpha-Reliability", example D."""
    n = math.nan
    ratings = [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, n, n, n],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, n, 3],
        [n, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, n],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, n],
    ]
    assert agreement.krippendorff_alpha(ratings, "ordinal").value == pytest.approx(0.815, abs=5e-4)
    interval = agreement.krippendorff_alpha(ratings, "interval")
    assert interval.value == pytest.approx(0.849, abs=5e-4)
    assert (interval.n_raters, interval.n_items) == (4, 11)


def test_krippendorff_undefined() -> None:
    assert agreement.krippendorff_alpha([[1, 1], [1, 1]]).reason == "constant_input"
    assert agreement.krippendorff_alpha([[1, 2]]).reason == "too_few"
    assert agreement.krippendorff_alpha([[1, math.nan], [math.nan, 2]]).reason == "too_few"
    # a lone odd rating says nothing about agreement
    lone = agreement.krippendorff_alpha([[1, 1, 5], [1, 1, math.nan]])
    assert lone.reason == "constant_input" and lone.n_items == 2
    assert agreement.krippendorff_alpha([[1, 2, 3], [1, 2, 3]]).value == pytest.approx(1.0)
    with pytest.raises(InputError, match="level"):
        agreement.krippendorff_alpha([[1, 2], [1, 2]], "ratio")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="axes"):
        agreement.krippendorff_alpha([1, 2])


def test_missing_policy_of_raters() -> None:
    ratings = [[1.0, 2.0, math.nan], [3.0, math.nan, math.nan]]
    means, counts = agreement.mean_over_raters(ratings, "available")
    assert means[:2].tolist() == [2.0, 2.0] and math.isnan(means[2])
    assert counts.tolist() == [2, 1, 0]
    means, _ = agreement.mean_over_raters(ratings, "complete")
    assert means[0] == 2.0 and np.isnan(means[1:]).all()
    with pytest.raises(InputError, match="policy"):
        agreement.mean_over_raters(ratings, "zero")


# --------------------------------------------------------------------------- S_h and Pareto

# DSH-Bench Table 3, as printed: SP, PF, IQ, S_h; rows where equation (1) reproduces the print.
TABLE_3 = {
    "FLUX.1 Kontext [dev]": (0.424, 0.319, 0.288, 0.256),
    "UNO": (0.409, 0.323, 0.278, 0.252),
    "MS-Diffusion": (0.352, 0.338, 0.294, 0.248),
    "Emu2": (0.341, 0.304, 0.260, 0.228),
    "OminiControl": (0.258, 0.334, 0.290, 0.218),
    "ACE++": (0.292, 0.304, 0.252, 0.214),
    "NeTI": (0.192, 0.301, 0.234, 0.176),
    "BLIP-Diffusion": (0.204, 0.277, 0.223, 0.174),
    "HiPer": (0.135, 0.318, 0.247, 0.151),
    "Textual Inversion": (0.109, 0.299, 0.225, 0.129),
    "Custom Diffusion": (0.062, 0.323, 0.240, 0.091),
}


@pytest.mark.parametrize("model", TABLE_3)
def test_s_h_of_the_printed_table(model: str) -> None:
    sp, pf, iq, printed = TABLE_3[model]
    assert leaderboard.s_h(sp, pf, iq).value == pytest.approx(printed, abs=5.5e-4)


def test_s_h_is_not_a_weighted_harmonic_mean() -> None:
    assert leaderboard.s_h(0.4, 0.4, 0.4).value == pytest.approx(0.3)
    assert leaderboard.s_h(0.4, 0.4, 0.4, constant=4.0).value == pytest.approx(0.4)


def test_s_h_undefined() -> None:
    assert leaderboard.s_h(None, 0.3, 0.3) == leaderboard.Headline(None, "missing preservation")
    assert leaderboard.s_h(0.3, 0.0, 0.3).reason == "not_positive following"
    assert leaderboard.s_h(0.3, 0.3, -0.1).reason == "not_positive quality"
    assert leaderboard.s_h(0.3, math.nan, 0.3).reason == "missing following"
    drawn = leaderboard.s_h_draws(np.array([[0.4, 0.4, 0.4], [0, 1, 1], [np.nan, 1, 1.0]]))
    assert drawn[0] == pytest.approx(0.3) and np.isnan(drawn[1:]).all()
    for weights, constant in (((1, 1), 3), ((0, 1, 1), 3), ((1, 1, 1), 0)):
        with pytest.raises(InputError, match="S_h"):
            leaderboard.s_h(0.3, 0.3, 0.3, weights, constant)


positive = st.floats(0.01, 1.0)


@given(positive, positive, positive, st.floats(0.001, 0.5))
def test_s_h_grows_with_each_dimension_and_scales(a: float, b: float, c: float, d: float) -> None:
    base = leaderboard.s_h(a, b, c).value
    assert leaderboard.s_h(a + d, b, c).value > base
    assert leaderboard.s_h(a, b + d, c).value > base
    assert leaderboard.s_h(a, b, c + d).value > base
    assert leaderboard.s_h(2 * a, 2 * b, 2 * c).value == pytest.approx(2 * base)
    assert 0.75 * min(a, b, c) <= base * (1 + 1e-12) and base <= 0.75 * max(a, b, c) * (1 + 1e-12)


def test_pareto_keeps_ties() -> None:
    points = [[1, 3], [2, 2], [2, 2], [3, 1], [2, 1], [1, 1]]
    assert pareto_front(points).tolist() == [True, True, True, True, False, False]
    assert pareto_front([]).tolist() == []
    with pytest.raises(InputError, match="coordinates"):
        pareto_front([[1, 2, 3]])
    with pytest.raises(InputError, match="NaN"):
        pareto_front([[1, math.nan]])


@given(st.lists(st.tuples(small, small), min_size=1, max_size=20), st.randoms())
def test_pareto_front_is_the_undominated_set(points: list[tuple[int, int]], random) -> None:
    front = dict(zip(points, pareto_front(points)))
    assert any(front.values())
    for p, on in front.items():
        beaten = any(q[0] >= p[0] and q[1] >= p[1] and q != p for q in points)
        assert on == (not beaten)
    shuffled = points[:]
    random.shuffle(shuffled)
    assert dict(zip(shuffled, pareto_front(shuffled))) == front


# --------------------------------------------------------------------------- tables' recipes


def scored(rows: list[tuple[str, str, float | None, str]], metric: str = "m") -> pd.DataFrame:
    """Rows of (generator, case, value, status)."""
    frame = pd.DataFrame(rows, columns=["generator", "case_id", "value", "status"])
    frame["sample_id"] = frame["subject_id"] = frame["case_id"]
    return frame.assign(metric=metric, key="k", value=frame["value"].astype(float))


def test_vlm01_a_failure_is_never_a_zero() -> None:
    replies = [("A", str(i), 4.0, "ok") for i in range(4)]
    replies += [("B", "0", 5.0, "ok"), ("B", "1", 5.0, "ok")]
    replies += [("B", "2", None, "unparsable"), ("B", "3", None, "refused")]
    scores = scored(replies)
    board = tables.leaderboard(scores, {"preservation": "m"}, min_coverage=0.0)
    a, b = board.to_dict("records")
    assert (a["preservation_mean"], a["preservation_n"], a["preservation_coverage"]) == (
        4.0,
        4,
        1.0,
    )
    assert (b["preservation_mean"], b["preservation_n"], b["preservation_coverage"]) == (
        5.0,
        2,
        0.5,
    )
    strict = tables.leaderboard(scores, {"preservation": "m"}, min_coverage=0.9)
    b = strict.to_dict("records")[1]
    assert math.isnan(b["preservation_mean"]) and b["preservation_n"] == 2
    assert "coverage 0.500 below 0.900 (2 of 4; 1 refused, 1 unparsable)" in b["note"]
    paired = tables.compare(scores, {"preservation": "m"}).iloc[0]
    assert (paired["mean_first"], paired["mean_second"], paired["n"]) == (4.0, 5.0, 2)
    text = writing.to_markdown(strict)
    assert "| – |" in text and "0.500" in text


def test_clip09_unequal_prompts_are_paired() -> None:
    """B is worse on every prompt, but lacks the hard one, so its plain mean is higher."""
    values = {"easy": 0.30, "mid": 0.28, "hard": 0.10}
    rows = [("A", c, v, "ok") for c, v in values.items()]
    rows += [("B", c, v - 0.02, "ok") for c, v in values.items() if c != "hard"]
    scores = scored(rows)
    board = tables.leaderboard(scores, {"quality": "m"}, min_coverage=0.0)
    assert board["quality_mean"][1] > board["quality_mean"][0]  # the trap
    assert board["note"].str.contains("cases differ between generators").all()
    paired = tables.compare(scores, {"quality": "m"}).iloc[0]
    assert paired["difference"] == pytest.approx(0.02) and paired["n"] == 2
    assert (paired["n_first"], paired["n_second"]) == (3, 2)
    assert paired["note"] == "only cases that both have"


def test_clip09_equal_counts_per_prompt() -> None:
    rows = [("A", "x", 0.3, "ok"), ("A", "y", 0.1, "ok"), ("B", "x", 0.3, "ok")]
    scores = pd.concat(
        [scored([*rows, ("B", "y", 0.1, "ok")]), scored(rows[:1]).assign(sample_id="x-1")]
    )
    board = tables.leaderboard(scores, {"quality": "m"})
    assert board["note"].str.contains("cases differ").all()
    assert tables.compare(scores, {"quality": "m"})["difference"][0] == pytest.approx(0.0)


def test_face01_both_means_and_the_declared_one() -> None:
    rows = [("P", str(i), 0.9, "ok") for i in range(2)]
    rows += [("P", str(i), None, "no_face") for i in (2, 3)]
    rows += [("Q", str(i), 0.7, "ok") for i in range(4)]
    frame = tables.faces(scored(rows), "m", policy="with_zero")
    p, q = frame.to_dict("records")
    assert (p["mean_detected"], p["n"], p["no_face"]) == (pytest.approx(0.9), 2, 2)
    assert p["mean_with_zero"] == p["published"] == pytest.approx(0.45)
    assert q["mean_detected"] == q["mean_with_zero"] == pytest.approx(0.7)
    assert (p["detection_rate"], q["detection_rate"]) == (0.5, 1.0)
    assert (p["rank_detected"], p["rank_with_zero"]) == (1, 2)
    assert "the ranking depends on the policy" in p["note"]
    with pytest.raises(InputError, match="policy"):
        tables.faces(scored(rows), "m", policy="best")


@pytest.mark.parametrize("ids", [["a", None, None], ["a", "b", "b"]])
def test_tab01_joins_stop(ids: list[str | None]) -> None:
    left = pd.DataFrame({"id": ids, "x": 1.0})
    assert len(left.merge(left, on="id")) == 5  # the trap
    with pytest.raises(InputError, match=r"missing|repeated"):
        join_one_to_one(left, left, ["id"], "test")
    scores = scored([("A", "a", 1.0, "ok")])
    bad = pd.DataFrame({"generator": "A", "sample_id": ids, "value": 1.0})
    bad = bad.assign(dimension="preservation", source="raters")
    with pytest.raises(InputError, match=r"not text|repeated"):
        tables.agreement(scores, bad)


@given(st.permutations(list(range(12))))
@settings(max_examples=15, deadline=None)
def test_stat01_row_order_changes_nothing(order: list[int]) -> None:
    assume(order != sorted(order))
    rows = [("A", f"{i}", float(i % 5), "ok") for i in range(12)]
    wanted = pd.DataFrame({"generator": "A", "sample_id": [f"{i}" for i in range(12)]})
    wanted = wanted.assign(value=[float(i % 5) for i in range(12)])
    wanted = wanted.assign(dimension="preservation", source="truth")
    plain = tables.agreement(scored(rows), wanted, draws=20)
    assert plain["spearman"][0] == pytest.approx(1.0)
    mixed = tables.agreement(scored(rows), wanted.iloc[order], draws=20)
    pd.testing.assert_frame_equal(plain, mixed)
