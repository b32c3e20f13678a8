"""UFO's tables: numbers by hand and by scipy, undefined and missing cases, paired differences."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from subjectbench import alignment, cells, records, tables, writing
from subjectbench.errors import InputError

MODELS = ("a", "b", "c", "d", "e", "f")
FAST: dict[str, Any] = {"draws": 200, "seed": 1}

Values = Sequence[float | None]


def study(
    cases: Sequence[tuple[str, Values, Mapping[str, Values]]], replicate: int = 0
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Scores and targets: per case its paradigm, target and metrics, a value for each model."""
    scores, targets = [], []
    for i, (paradigm, wanted, metrics) in enumerate(cases):
        place = {"sample_id": f"c{i:03}-s{replicate}", "case_id": f"c{i:03}"}
        place |= {"subject_id": f"s{i // 2}", "paradigm": paradigm}
        for g, target in enumerate(wanted):
            ids = {"generator": MODELS[g], "sample_id": place["sample_id"]}
            if target is not None:
                facts = {"dimension": "preference", "source": "raters", "value": float(target)}
                targets.append(ids | facts)
            for metric, values in metrics.items():
                value = values[g]
                row = place | ids | {"metric": metric, "key": metric, "n_raw": 1, "details": "{}"}
                status = "refused" if value is None else "ok"
                scores.append(row | {"status": status, "value": value, "image_sha256": None})
    return pd.DataFrame(scores).astype({"value": "float64"}), pd.DataFrame(targets)


def cell(table: pd.DataFrame, metric: str, paradigm: str = cells.TOTAL) -> dict[str, Any]:
    rows = table[(table["metric"] == metric) & (table["paradigm"] == paradigm)]
    assert len(rows) == 1
    return dict(rows.iloc[0])


def random_study(seed: int = 0, n: int = 24, noise: float = 1.0) -> Any:
    rng = np.random.default_rng(seed)
    cases = []
    for i in range(n):
        truth = rng.permutation(6).astype(float)
        near = truth + noise * rng.normal(size=6)
        far = truth + 4 * rng.normal(size=6)
        paradigm = records.PARADIGMS[i % 4]
        cases.append((paradigm, list(truth), {"near": list(near), "far": list(far)}))
    return study(cases)


# --------------------------------------------------------------------------- Table 2


def test_by_hand() -> None:
    """One adjacent swap of six is 1 - 6 * 2 / (6 * 35) = 0.942857; reversed is -1."""
    up = [1, 2, 3, 4, 5, 6]
    scores, targets = study(
        [
            ("non_editing", up, {"m": [2, 1, 3, 4, 5, 6]}),
            ("non_editing", up, {"m": up[::-1]}),
            ("local_editing", up, {"m": up}),
        ]
    )
    table = alignment.by_paradigm(scores, targets, ["m"], clip=0.999, **FAST)
    assert list(table.columns) == alignment.COLUMNS
    assert table["paradigm"].tolist() == ["non_editing", "local_editing", cells.TOTAL]
    swap = 0.942857142857
    assert cell(table, "m", "non_editing")["spearman"] == pytest.approx((swap - 1) / 2)
    total = cell(table, "m")
    assert total["spearman"] == pytest.approx(swap / 3)
    # Fisher by hand: +-1 are clipped and cancel out
    assert total["spearman_fisher"] == pytest.approx(math.tanh(math.atanh(swap) / 3))
    assert total["fisher_clip"] == 0.999
    # 15 pairs, one of them the other way round: 13/15
    assert total["kendall_tau_b"] == pytest.approx((13 / 15 - 1 + 1) / 3)
    counts = ("n", "undefined", "left_out", "cases", "subjects", "coverage", "reason")
    assert [total[c] for c in counts] == [3, 0, 0, 3, 2, 1.0, ""]


def test_fisher_mean_of_the_facts() -> None:
    """judge_metrics 5: tanh(mean(arctanh)), not tanh of the mean (.3557)."""
    rows = [[1, 2, 3, 4, 5, 6], [2, 1, 3, 4, 5, 6], [3, 1, 2, 6, 4, 5]]
    up = rows[0]
    scores, targets = study([("non_editing", up, {"m": r}) for r in rows[1:]])
    rho = [stats.spearmanr(up, r).statistic for r in rows[1:]]
    found = cell(alignment.by_paradigm(scores, targets, ["m"], **FAST), "m")
    assert found["spearman_fisher"] == pytest.approx(np.tanh(np.mean(np.arctanh(rho))))
    assert found["spearman"] == pytest.approx(np.mean(rho)) != found["spearman_fisher"]


def test_ties_take_average_ranks_after_rounding() -> None:
    near = [0.1 + 0.2, 0.3, 0.5, 0.6, 0.7, 0.8]  # 0.1 + 0.2 > 0.3 in the last bit
    target = [1, 2, 3, 3, 5, 6]
    scores, targets = study([("non_editing", target, {"m": near})])
    expected = stats.spearmanr([0.3, 0.3, *near[2:]], target).statistic
    assert cell(alignment.by_paradigm(scores, targets, ["m"], **FAST), "m")[
        "spearman"
    ] == pytest.approx(expected, abs=1e-9)


def test_against_scipy_case_by_case() -> None:
    scores, targets = random_study()
    table = alignment.by_paradigm(scores, targets, ["near", "far"], **FAST)
    both = scores.merge(targets, on=["generator", "sample_id"], suffixes=("", "_t"))
    for metric in ("near", "far"):
        mine = both[both["metric"] == metric]
        for paradigm in (*records.PARADIGMS, cells.TOTAL):
            part = mine if paradigm == cells.TOTAL else mine[mine["paradigm"] == paradigm]
            groups = [g for _, g in part.groupby("case_id")]
            rho = [stats.spearmanr(g["value"], g["value_t"]).statistic for g in groups]
            tau = [stats.kendalltau(g["value"], g["value_t"]).statistic for g in groups]
            found = cell(table, metric, paradigm)
            assert found["spearman"] == pytest.approx(np.mean(rho), abs=1e-9)
            assert found["kendall_tau_b"] == pytest.approx(np.mean(tau), abs=1e-9)
            assert found["n"] == len(groups)
            assert found["spearman_ci_low"] <= found["spearman"] <= found["spearman_ci_high"]


def test_undefined_cases_are_counted_and_never_averaged() -> None:
    up, flat = [1, 2, 3, 4, 5, 6], [2.0] * 6
    good = ("non_editing", up, {"m": up})
    scores, targets = study(
        [good, ("non_editing", up, {"m": flat}), ("non_editing", flat, {"m": up})]
    )
    found = cell(alignment.by_paradigm(scores, targets, ["m"], **FAST), "m")
    assert (found["spearman"], found["kendall_tau_b"]) == (1.0, 1.0)
    assert (found["n"], found["undefined"], found["left_out"], found["cases"]) == (1, 2, 0, 3)
    assert "1 constant metric" in found["reason"] and "1 constant target" in found["reason"]
    none = study([("non_editing", up, {"m": flat})])
    empty = cell(alignment.by_paradigm(*none, ["m"], **FAST), "m")
    assert math.isnan(empty["spearman"]) and math.isnan(empty["spearman_fisher"])
    assert (empty["n"], empty["undefined"]) == (0, 1)


def test_cases_with_fewer_than_three_models_are_left_out_and_said() -> None:
    up = [1, 2, 3, 4, 5, 6]
    lost = [1, 2, None, None, None, None]
    scores, targets = study(
        [
            ("non_editing", up, {"m": up}),
            ("local_editing", up, {"m": lost}),
            ("local_editing", up, {"m": [None] * 6}),
            ("local_editing", up, {"m": [3, None, 2, 1, None, None]}),
        ]
    )
    table = alignment.by_paradigm(scores, targets, ["m"], min_coverage=0.0, **FAST)
    found = cell(table, "m", "local_editing")
    assert (found["n"], found["left_out"], found["undefined"], found["cases"]) == (1, 2, 0, 3)
    assert found["spearman"] == pytest.approx(-1.0)
    assert "2 fewer than 3 models" in found["reason"]
    assert found["coverage"] == pytest.approx(5 / 18)
    strict = alignment.by_paradigm(scores, targets, ["m"], **FAST)
    hidden = cell(strict, "m", "local_editing")
    assert all(math.isnan(hidden[c]) for c in ("spearman", "kendall_tau_b", "spearman_fisher"))
    assert "coverage 0.278 below 0.900 (13 refused)" in hidden["reason"]
    assert cell(strict, "m", "non_editing")["spearman"] == 1.0
    assert math.isnan(cell(strict, "m")["spearman"])


def test_not_applicable_is_not_expected() -> None:
    up = [1, 2, 3, 4, 5, 6]
    scores, targets = study([("non_editing", up, {"m": up}), ("local_editing", up, {"m": up})])
    faceless = scores["paradigm"] == "local_editing"
    scores.loc[faceless, ["status", "value"]] = ["not_applicable", np.nan]
    table = alignment.by_paradigm(scores, targets, ["m"], **FAST)
    assert (cell(table, "m")["coverage"], cell(table, "m")["cases"]) == (1.0, 1)
    assert cell(table, "m", "local_editing")["cases"] == 0
    assert "nothing rated" in cell(table, "m", "local_editing")["reason"]


def test_replicates_are_averaged_over_samples_that_have_both() -> None:
    first = study([("non_editing", [1, 2, 3, None], {"m": [1.0, 2.0, 9.0, 5.0]})])
    second = study([("non_editing", [1, 2, 6, 4], {"m": [1.0, 8.0, None, 4.0]})], replicate=1)
    scores = pd.concat([first[0], second[0]], ignore_index=True)
    targets = pd.concat([first[1], second[1]], ignore_index=True)
    found = cell(alignment.by_paradigm(scores, targets, ["m"], min_coverage=0.5, **FAST), "m")
    # metric a 1, b 5, c 9 (first only), d 4 (second only); target a 1, b 2, c 3, d 4
    expected = stats.spearmanr([1, 5, 9, 4], [1, 2, 3, 4]).statistic
    assert found["spearman"] == pytest.approx(expected) and found["cases"] == 1
    assert found["coverage"] == pytest.approx(6 / 7)


def test_foreign_ratings_lower_the_coverage() -> None:
    scores, targets = random_study(n=4)
    extra = targets.iloc[:1].assign(sample_id="elsewhere-s0")
    found = cell(
        alignment.by_paradigm(scores, pd.concat([targets, extra]), ["near"], **FAST), "near"
    )
    assert found["coverage"] == pytest.approx(24 / 25)
    assert (found["left_out"], found["cases"]) == (1, 5)
    with pytest.raises(InputError, match="no rated sample has a score row"):
        alignment.by_paradigm(
            scores, targets.assign(sample_id=targets["sample_id"] + ".png"), ["near"]
        )


def test_refusals() -> None:
    scores, targets = random_study(n=2)
    with pytest.raises(InputError, match="did you mean 'near'"):
        alignment.by_paradigm(scores, targets, ["neer"])
    with pytest.raises(InputError, match="did you mean 'local_editing'"):
        alignment.by_paradigm(scores.assign(paradigm="local_edit"), targets, ["near"])
    with pytest.raises(InputError, match="missing or infinite"):
        alignment.by_paradigm(scores, targets.assign(value=np.nan), ["near"])
    with pytest.raises(InputError, match="cases of a sample"):
        mixed = scores.copy()
        mixed.loc[0, "case_id"] = "c999"
        alignment.by_paradigm(mixed, targets, ["near"])
    with pytest.raises(InputError, match="case_id"):
        alignment.by_paradigm(scores.drop(columns="case_id"), targets, ["near"])
    with pytest.raises(InputError, match="min_coverage"):
        alignment.by_paradigm(scores, targets, ["near"], min_coverage=2)


def test_without_ratings_the_table_is_empty_and_has_its_columns() -> None:
    scores, targets = random_study(n=2)
    table = alignment.by_paradigm(scores, targets, ["near"], dimension="quality", **FAST)
    assert len(table) == 0 and list(table.columns) == alignment.COLUMNS
    other = alignment.differences(scores, targets, "near", ["far"], dimension="quality", **FAST)
    assert len(other) == 0 and list(other.columns) == alignment.DIFFERENCE_COLUMNS


def test_study_without_draws_has_numbers_and_no_intervals() -> None:
    scores, targets = random_study(n=4)
    found = cell(alignment.by_paradigm(scores, targets, ["near"], draws=0), "near")
    assert found["spearman"] > 0 and math.isnan(found["spearman_ci_low"])
    assert found["reason"] == "no interval: no_draws"


def test_printed_form() -> None:
    scores, targets = random_study()
    table = alignment.by_paradigm(scores, targets, ["near", "far"], **FAST)
    wide = alignment.as_printed(table)
    assert wide["metric"].tolist() == ["near", "far"]
    assert wide["total_mean"][0] == cell(table, "near")["spearman"]
    folded = writing.compact(wide)
    assert list(folded.columns) == ["metric", "source", *records.PARADIGMS, cells.TOTAL]
    assert folded["total"][0].endswith("(n = 24, 100 %)")


values = st.lists(st.integers(0, 5), min_size=6, max_size=6)


@settings(max_examples=12, deadline=None)
@given(st.lists(st.tuples(values, values), min_size=1, max_size=4), st.randoms())
def test_order_transforms_and_names_do_not_matter(rows: Any, random: Any) -> None:
    scores, targets = study([("local_editing", y, {"m": x}) for x, y in rows])
    plain = cell(alignment.by_paradigm(scores, targets, ["m"], draws=20), "m")
    known = [
        stats.spearmanr(x, y).statistic for x, y in rows if len(set(x)) > 1 and len(set(y)) > 1
    ]
    assert plain["n"] == len(known) and plain["n"] + plain["undefined"] == len(rows)
    if known:
        assert plain["spearman"] == pytest.approx(np.mean(known), abs=1e-9)
    bent = scores.assign(value=np.exp(scores["value"]) - 3)
    order = random.sample(range(len(scores)), len(scores))
    names = dict(zip(MODELS, random.sample(MODELS, 6)))
    renamed = [f.assign(generator=f["generator"].map(names)) for f in (scores, targets)]
    for other in ((bent, targets), (scores.iloc[order], targets.iloc[::-1]), renamed):
        again = cell(alignment.by_paradigm(*other, ["m"], draws=20), "m")
        for column in ("spearman", "kendall_tau_b", "spearman_fisher", "spearman_ci_low"):
            assert again[column] == pytest.approx(plain[column], abs=1e-12, nan_ok=True)
        assert [again[c] for c in ("n", "undefined")] == [plain[c] for c in ("n", "undefined")]


# --------------------------------------------------------------------------- differences


def test_difference_is_paired_by_case_and_clustered() -> None:
    scores, targets = random_study(n=40)
    frame = alignment.differences(scores, targets, "near", ["far"], **FAST)
    assert list(frame.columns) == alignment.DIFFERENCE_COLUMNS
    assert frame["paradigm"].tolist() == [*records.PARADIGMS, cells.TOTAL]
    row = frame.iloc[-1]
    table = alignment.by_paradigm(scores, targets, ["near", "far"], **FAST)
    assert row["value"] == pytest.approx(cell(table, "near")["spearman"])
    assert row["baseline_value"] == pytest.approx(cell(table, "far")["spearman"])
    assert row["difference"] == pytest.approx(row["value"] - row["baseline_value"])
    assert row["relative_gain"] == pytest.approx(row["difference"] / row["baseline_value"])
    assert 0 < row["ci_low"] < row["difference"] < row["ci_high"]
    assert row["p_value"] == pytest.approx(2 / 201) and row["share_positive"] == 1.0
    turned = alignment.differences(scores, targets, "far", ["near"], **FAST).iloc[-1]
    assert turned["difference"] == pytest.approx(-row["difference"])
    assert turned["ci_low"] == pytest.approx(-row["ci_high"], abs=1e-12)
    assert turned["p_value"] == row["p_value"] and turned["share_positive"] == 0.0
    same = alignment.differences(scores, targets, "near", ["near"], **FAST).iloc[-1]
    assert same["difference"] == same["ci_low"] == same["ci_high"] == 0 and same["p_value"] == 1


def test_difference_is_on_common_samples_and_cases() -> None:
    up = [1, 2, 3, 4, 5, 6]
    scores, targets = study(
        [
            ("non_editing", up, {"x": up, "y": [2, 1, 3, 4, 5, 6]}),
            ("non_editing", up, {"x": [6, 2, 3, 4, 5, None], "y": [1, 3, 2, 4, 5, 6]}),
            ("non_editing", up, {"x": up, "y": [1.0] * 6}),
        ]
    )
    row = alignment.differences(scores, targets, "x", ["y"], min_coverage=0.5, **FAST).iloc[-1]
    first = stats.spearmanr([6, 2, 3, 4, 5], up[:5]).statistic
    second = stats.spearmanr([1, 3, 2, 4, 5], up[:5]).statistic
    assert row["n"] == 2 and row["coverage"] == pytest.approx(17 / 18)
    assert row["value"] == pytest.approx((1 + first) / 2)
    assert row["baseline_value"] == pytest.approx((0.942857142857 + second) / 2)
    hidden = alignment.differences(scores, targets, "x", ["y"], min_coverage=0.99, **FAST).iloc[-1]
    assert math.isnan(hidden["difference"]) and "below 0.990" in hidden["reason"]


def test_best_baseline_of_each_paradigm() -> None:
    up, down = [1, 2, 3, 4, 5, 6], [6, 5, 4, 3, 2, 1]
    swap = [2, 1, 3, 4, 5, 6]
    scores, targets = study(
        [
            ("non_editing", up, {"m": up, "x": swap, "y": down}),
            ("local_editing", up, {"m": up, "x": down, "y": swap}),
            ("local_editing", up, {"m": up, "x": down, "y": swap}),
        ]
    )
    frame = alignment.differences(scores, targets, "m", ["x", "y"], **FAST)
    best = frame[frame["best"]].set_index("paradigm")["baseline"].to_dict()
    assert best == {"non_editing": "x", "local_editing": "y", cells.TOTAL: "y"}
    assert frame["best"].dtype == bool
    negative = frame[(frame["paradigm"] == "local_editing") & (frame["baseline"] == "x")].iloc[0]
    assert negative["baseline_value"] == -1 and math.isnan(negative["relative_gain"])


# --------------------------------------------------------------------------- Table 3


def test_ablation() -> None:
    scores, targets = random_study(n=40)
    frame = alignment.ablation(scores, targets, "near", {"without units": "far"}, **FAST)
    assert frame["setting"].tolist() == ["without units", "full"]
    table = alignment.by_paradigm(scores, targets, ["near", "far"], **FAST)
    assert frame["spearman"].tolist() == [
        cell(table, "far")["spearman"],
        cell(table, "near")["spearman"],
    ]
    assert frame["difference"][0] == pytest.approx(frame["spearman"][0] - frame["spearman"][1])
    assert frame["difference_ci_low"][0] < frame["difference_ci_high"][0] < 0
    assert math.isnan(frame["difference"][1]) and frame["n_common"][0] == 40
    two = pd.concat([targets, targets.assign(source="truth")])
    frame = alignment.ablation(scores, two, "near", {"without units": "far"}, **FAST)
    assert frame["source"].tolist() == ["raters"] * 2 + ["truth"] * 2
    none = alignment.ablation(scores, targets, "near", {}, dimension="quality", **FAST)
    assert len(none) == 0 and "difference" in none.columns


# --------------------------------------------------------------------------- raters


def ratings(cases: Sequence[Sequence[Sequence[float | None]]]) -> pd.DataFrame:
    """Ratings of cases x raters x models."""
    rows = []
    for i, case in enumerate(cases):
        for r, values in enumerate(case):
            for g, value in enumerate(values):
                row = {"generator": MODELS[g], "sample_id": f"c{i}-s0", "case_id": f"c{i}"}
                row |= {"subject_id": f"s{i}", "paradigm": records.PARADIGMS[i % 2]}
                row |= {"rater": f"r{r}", "dimension": "preference", "value": value}
                rows.append(row | {"status": "missing" if value is None else "ok"})
    return pd.DataFrame(rows).astype({"value": "float64"})


def test_rank_agreement_by_hand() -> None:
    up, swap = [1, 2, 3, 4], [2, 1, 3, 4]
    frame = alignment.rank_agreement(ratings([[up, up, swap], [up, up, up]]), **FAST)
    assert frame["paradigm"].tolist() == ["non_editing", "local_editing", cells.TOTAL]
    first = frame.iloc[0]
    # Spearman of one adjacent swap of four is 0.8: pairs 1, 0.8, 0.8
    assert first["pairwise_spearman"] == pytest.approx(2.6 / 3)
    # r0 and r1 against the mean of a swap and the right order (1.5, 1.5, 3, 4), r2 against up
    tied = stats.spearmanr(up, [1.5, 1.5, 3, 4]).statistic
    assert first["ceiling"] == pytest.approx((2 * tied + 0.8) / 3)
    # rank sums 4, 5, 9, 12, mean 7.5: S = 12.25 + 6.25 + 2.25 + 20.25 = 41; W = 12 * 41 / (9 * 60)
    assert first["kendall_w"] == pytest.approx(12 * 41 / 540)
    assert frame.iloc[1][["pairwise_spearman", "ceiling", "kendall_w"]].tolist() == [1, 1, 1]
    total = frame.iloc[2]
    assert total["pairwise_spearman"] == pytest.approx((2.6 / 3 + 1) / 2)
    assert [total[c] for c in ("raters", "cases", "pairwise_n", "ceiling_n", "kendall_w_n")] == [
        3,
        2,
        2,
        2,
        2,
    ]
    assert total["coverage"] == 1.0 and total["reason"] == "" and 0 < total["alpha_ordinal"] < 1


def test_kendall_w_with_ties_is_friedmans_statistic() -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        matrix = rng.integers(0, 4, (5, 6)).astype(float)
        found = alignment.raters.kendall_w(matrix)
        friedman = stats.friedmanchisquare(*matrix.T).statistic
        assert found.value == pytest.approx(friedman / (5 * 5), abs=1e-12)
        assert 0 <= found.value <= 1 and (found.n_raters, found.n_items) == (5, 6)


def test_rank_agreement_with_missing_and_constant_rankings() -> None:
    up, flat = [1, 2, 3, 4], [2, 2, 2, 2]
    part = [1, None, 2, 3]
    frame = alignment.rank_agreement(
        ratings([[up, part, up], [up, flat, flat], [up, [None] * 4, [None] * 4]]), **FAST
    )
    total = frame.iloc[-1]
    # first case: pairs 1, 1 (on three models), 1; second and third: undefined
    assert (total["pairwise_spearman"], total["pairwise_n"], total["cases"]) == (1.0, 1, 3)
    assert "2 cases without a defined correlation" in total["reason"]
    assert total["kendall_w_n"] == 2  # whole rankings only; two constant ones are whole
    assert total["coverage"] == pytest.approx((11 + 12 + 4) / 36)
    w = alignment.raters.kendall_w([up, flat, flat])
    assert w.value == pytest.approx(1 / 3, abs=0.3) and w.reason is None
    assert alignment.raters.kendall_w([flat, flat]).reason == "constant_input"
    assert alignment.raters.kendall_w([up, part]).reason == "too_few"


def test_rank_agreement_ignores_the_direction_of_ranks() -> None:
    rng = np.random.default_rng(5)
    frame = ratings([[list(rng.permutation(5)) for _ in range(3)] for _ in range(6)])
    turned = frame.assign(value=10 - frame["value"])
    pd.testing.assert_frame_equal(
        alignment.rank_agreement(frame, **FAST), alignment.rank_agreement(turned, **FAST)
    )
    with pytest.raises(InputError, match="repeated"):
        alignment.rank_agreement(pd.concat([frame, frame]))


def test_targets_of_ranks_reach_the_table() -> None:
    frame = ratings([[[4, 3, 2, 1], [4, 3, 1, 2], [4, 2, 3, 1]]])
    scores, _ = study([("non_editing", [0] * 4, {"m": [4, 3, 2, 1]})])
    scores["sample_id"] = "c0-s0"
    targets = tables.targets(frame, "raters")
    found = cell(alignment.by_paradigm(scores, targets, ["m"], **FAST), "m")
    assert found["spearman"] == pytest.approx(1.0)


# --------------------------------------------------------------------------- Figure 6


def test_disagreements_are_chosen_by_the_metrics_alone() -> None:
    up, down, swap = [1, 2, 3, 4], [4, 3, 2, 1], [2, 1, 3, 4]
    scores, targets = study(
        [
            ("non_editing", up, {"x": up, "y": swap}),  # s0, 0.8
            ("non_editing", up, {"x": down, "y": up}),  # s0, -1
            ("local_editing", down, {"x": up, "y": down}),  # s1, -1
            ("local_editing", up, {"x": up, "y": [1, 1, 1, 1]}),  # s1, undefined
            ("local_editing", up, {"x": up, "y": up}),  # s2, 1
        ]
    )
    order = {"d": "Dee", "c": "Cee", "b": "Bee", "a": "Ay"}
    shuffled = scores.sample(frac=1, random_state=1), targets.sample(frac=1, random_state=2)
    for pair in ((scores, targets), shuffled):
        frame = alignment.disagreements(*pair, "x", "y", generators=order, count=2)
        assert list(dict.fromkeys(frame["case_id"])) == ["c001", "c002"]
        assert frame["title"].tolist() == ["Dee", "Cee", "Bee", "Ay"] * 2
        assert frame["rho"].tolist() == pytest.approx([-1.0] * 8)
        assert frame["rho_metric"].tolist() == pytest.approx([-1.0] * 8)
        assert frame["rho_baseline"].tolist() == pytest.approx([1.0] * 8)
        assert frame["rank"].tolist()[:4] == [4, 3, 2, 1]
        assert frame["baseline_rank"].tolist()[:4] == [1, 2, 3, 4]
    assert len(alignment.disagreements(scores, targets, "x", "y", count=9)) == 12
    with pytest.raises(InputError, match="no targets of 'people'"):
        alignment.disagreements(scores, targets, "x", "y", source="people")
    tied = study([("non_editing", up, {"x": [1] * 4, "y": up})])
    assert len(alignment.disagreements(*tied, "x", "y")) == 0


def test_deciding_units() -> None:
    scores, targets = study([("non_editing", [1, 2, 3], {"x": [1, 2, 3], "y": [3, 2, 1]})])
    unit = {"name": "colour", "level": "global_attribute", "relevance": "text_only", "weight": 5}
    unit |= {"unit": "global_attribute/colour", "source": "vqa", "status": "ok"}
    same = unit | {"unit": "part/handle", "name": "handle", "level": "part", "value": 1.0}
    failed = unit | {"unit": "part/lid", "name": "lid", "level": "part"}
    for i, value in enumerate([0.0, 1.0, 1.0]):
        lid = {"status": "refused", "value": None} if i == 2 else {"value": 1.0}
        details = {"units": [unit | {"value": value}, same, failed | lid], "policy": {}}
        mine = (scores["metric"] == "x") & (scores["generator"] == MODELS[i])
        scores.loc[mine, "details"] = json.dumps(details)
    chosen = alignment.disagreements(scores, targets, "x", "y")
    frame = alignment.deciding_units(scores, chosen)
    assert len(frame) == 9
    assert frame["unit"].tolist()[:3] == ["global_attribute/colour", "part/handle", "part/lid"]
    assert frame.groupby("name", sort=False)["decided"].all().to_dict() == {
        "colour": True,
        "handle": False,
        "lid": True,
    }
    bare = alignment.deciding_units(scores.assign(details="{}"), chosen)
    assert len(bare) == 0 and bare.columns[-1] == "decided"
