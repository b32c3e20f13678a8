"""Tables: shape, order, undefined cells, refusals, and the three formats."""

from __future__ import annotations

import io
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from subjectbench import cells, records, tables, writing
from subjectbench.errors import InputError
from subjectbench.statistics import bootstrap, leaderboard

DIMENSIONS = {"quality": "hps", "preservation": "dino", "following": "clip_t"}
FAST = {"draws": 100, "seed": 1}


def world(generators: tuple[str, ...] = ("a", "b"), subjects: int = 6) -> pd.DataFrame:
    """Scores as the pipeline joins them: SCORES plus the columns of the case."""
    rng = np.random.default_rng(7)
    cases = [
        {
            "sample_id": f"s{s}-{scenario}-0",
            "case_id": f"s{s}-{scenario}",
            "subject_id": f"s{s}",
            "difficulty": records.DIFFICULTIES[s % 3],
            "scenario": scenario,
            "category": f"c{s % 2}",
        }
        for s in range(subjects)
        for scenario in records.SCENARIOS[:3]
    ]
    rows = []
    for g, generator in enumerate(generators):
        for metric in DIMENSIONS.values():
            for case in cases:
                value = 0.3 + 0.1 * g + 0.05 * rng.random()
                row = {"generator": generator, "metric": metric, "key": f"{metric}-{generator}"}
                row |= {"status": "ok", "value": value, "image_sha256": None, "n_raw": 1}
                rows.append(case | row | {"details": "{}"})
    return pd.DataFrame(rows)


def fail(scores: pd.DataFrame, generator: str, metric: str, n: int, status: str = "failed") -> None:
    mine = (scores["generator"] == generator) & (scores["metric"] == metric)
    rows = scores.index[mine][:n]
    scores.loc[rows, "status"], scores.loc[rows, "value"] = status, np.nan


def rated(scores: pd.DataFrame, noise: float = 0.02) -> pd.DataFrame:
    rng = np.random.default_rng(11)
    frame = scores[scores["metric"] == "dino"][["generator", "sample_id", "value"]].copy()
    frame["value"] = (frame["value"].fillna(0.3) + noise * rng.normal(size=len(frame))).round(2)
    return frame.assign(dimension="preservation", source="raters (simulated)")


# --------------------------------------------------------------------------- leaderboard


def test_leaderboard_numbers() -> None:
    scores = world()
    board = tables.leaderboard(scores, DIMENSIONS, generators={"b": "Bee", "a": "Ay"}, **FAST)
    assert board["generator"].tolist() == ["b", "a"] and board["title"].tolist() == ["Bee", "Ay"]
    assert board["rank"].tolist() == [1, 2] and (board["note"] == "").all()
    mine = scores[scores["generator"] == "a"]
    means = {d: mine.loc[mine["metric"] == m, "value"].mean() for d, m in DIMENSIONS.items()}
    row = board.iloc[1]
    for d, mean in means.items():
        assert row[f"{d}_mean"] == pytest.approx(mean)
        assert (row[f"{d}_n"], row[f"{d}_coverage"]) == (18, 1.0)
        assert row[f"{d}_ci_low"] <= mean <= row[f"{d}_ci_high"]
    assert row["s_h"] == pytest.approx(leaderboard.s_h(**means).value)
    values = [mine.loc[mine["metric"] == DIMENSIONS[d], "value"] for d in records.DIMENSIONS]
    subjects = [mine.loc[mine["metric"] == "dino", "subject_id"].tolist()] * 3
    expected = bootstrap.s_h_interval(values, subjects, **FAST)
    assert row["s_h_ci_low"] == pytest.approx(expected.low)
    assert row["s_h_ci_high"] == pytest.approx(expected.high)
    order = [c for c in board.columns if c.endswith("_mean")]
    assert order == ["preservation_mean", "following_mean", "quality_mean"]


def test_leaderboard_without_coverage_or_dimension() -> None:
    scores = world()
    fail(scores, "b", "dino", 5)
    board = tables.leaderboard(scores, DIMENSIONS, **FAST).set_index("generator")
    row = board.loc["b"]
    assert math.isnan(row["preservation_mean"]) and math.isnan(row["s_h"])
    assert row["rank"] is pd.NA and board.loc["a", "rank"] == 1
    assert row["preservation_n"] == 13 and row["preservation_coverage"] == pytest.approx(13 / 18)
    assert "coverage 0.722 below 0.900 (13 of 18; 5 failed)" in row["note"]
    assert "no S_h: missing preservation" in row["note"]
    partial = tables.leaderboard(world(), {"following": "clip_t"}, **FAST)
    assert partial["s_h"].isna().all() and partial["rank"].isna().all()
    assert partial["note"].str.contains("no S_h: missing preservation").all()


def test_leaderboard_generator_without_scores_is_shown() -> None:
    board = tables.leaderboard(world(), DIMENSIONS, generators=["a", "b", "ghost"], **FAST)
    ghost = board.iloc[2]
    assert ghost["generator"] == "ghost" and ghost["preservation_n"] == 0
    assert "preservation: no scores" in ghost["note"] and math.isnan(ghost["s_h"])


def test_leaderboard_negative_mean_has_no_score() -> None:
    scores = world()
    scores.loc[scores["metric"] == "clip_t", "value"] -= 1
    board = tables.leaderboard(scores, DIMENSIONS, **FAST)
    assert (board["following_mean"] < 0).all() and board["s_h"].isna().all()
    assert board["note"].str.contains("not positive following").all()


def test_equal_scores_share_a_rank() -> None:
    scores = world(("a",))
    scores = pd.concat(
        [scores, scores.assign(generator="b"), world(("x", "c")).query("generator == 'c'")]
    )
    board = tables.leaderboard(scores, DIMENSIONS, **FAST).set_index("generator")
    assert board["rank"].to_dict() == {"a": 2, "b": 2, "c": 1}


def test_not_applicable_is_not_expected() -> None:
    scores = world()
    fail(scores, "a", "dino", 9, "not_applicable")
    row = tables.leaderboard(scores, DIMENSIONS, **FAST).iloc[0]
    assert (row["preservation_n"], row["preservation_coverage"]) == (9, 1.0)


def test_one_subject_gives_no_interval() -> None:
    board = tables.leaderboard(world(subjects=1), DIMENSIONS, **FAST)
    assert board["s_h"].notna().all() and board["s_h_ci_low"].isna().all()
    assert board["note"].str.contains("too_few_clusters").all()


def test_refusals() -> None:
    scores = world()
    mixed = scores.copy()
    mixed.loc[0, "key"] = "older"
    with pytest.raises(InputError, match="different keys"):
        tables.leaderboard(mixed, DIMENSIONS)
    with pytest.raises(InputError, match="repeated"):
        tables.leaderboard(pd.concat([scores, scores.iloc[:1]]), DIMENSIONS)
    zero = scores.copy()
    zero.loc[0, "status"] = "failed"
    with pytest.raises(InputError, match="'ok'"):
        tables.leaderboard(zero, DIMENSIONS)
    with pytest.raises(InputError, match="did you mean 'quality'"):
        tables.leaderboard(scores, {"qualty": "hps"})
    with pytest.raises(InputError, match="not among those to show"):
        tables.leaderboard(scores, DIMENSIONS, generators=["a"])
    with pytest.raises(InputError, match="min_coverage"):
        tables.leaderboard(scores, DIMENSIONS, min_coverage=90)
    numbers = scores.assign(sample_id=range(len(scores)))
    with pytest.raises(InputError, match="not text"):
        tables.leaderboard(numbers, DIMENSIONS)
    with pytest.raises(InputError, match="subject_id"):
        tables.leaderboard(scores.drop(columns="subject_id"), DIMENSIONS)


# --------------------------------------------------------------------------- breakdown


def test_breakdown_keeps_the_order_of_records() -> None:
    scores = world().sample(frac=1, random_state=0)
    frame = tables.breakdown(scores, "difficulty", DIMENSIONS, generators=["a", "b"], **FAST)
    assert list(dict.fromkeys(frame["level"])) == ["easy", "medium", "hard"]
    assert len(frame) == 2 * 3 * 3 and (frame["n"] == 6).all() and (frame["subjects"] == 2).all()
    cell = frame.query("generator == 'b' and dimension == 'following' and level == 'hard'").iloc[0]
    mine = scores.query("generator == 'b' and metric == 'clip_t' and difficulty == 'hard'")
    assert cell["mean"] == pytest.approx(mine["value"].mean())
    scenario = tables.breakdown(scores, "scenario", DIMENSIONS, **FAST)
    assert tuple(dict.fromkeys(scenario["level"])) == records.SCENARIOS[:3]


def test_breakdown_shows_unlabelled_and_low_coverage() -> None:
    scores = world()
    scores.loc[scores["subject_id"] == "s0", "category"] = None
    fail(scores, "a", "dino", 2)
    frame = tables.breakdown(scores, "category", DIMENSIONS, **FAST)
    assert list(dict.fromkeys(frame["level"])) == ["c0", "c1", cells.UNLABELLED]
    cell = frame.query("generator == 'a' and dimension == 'preservation'").iloc[2]
    assert math.isnan(cell["mean"]) and cell["n"] == 1 and "below" in cell["note"]


def test_breakdown_refusals() -> None:
    with pytest.raises(InputError, match="break down"):
        tables.breakdown(world(), "subject", DIMENSIONS)
    with pytest.raises(InputError, match="unknown difficulty"):
        tables.breakdown(world().assign(difficulty="heavy"), "difficulty", DIMENSIONS)


# --------------------------------------------------------------------------- UFO, Table 1


def edited(replicates: int = 2) -> pd.DataFrame:
    """Two models, 6 subjects, 3 paradigms; non_editing cases are three times as many."""
    rng = np.random.default_rng(17)
    rows = []
    for s in range(6):
        for p, paradigm in enumerate(["non_editing"] * 3 + ["local_editing", "complex_editing"]):
            for g, generator in enumerate(("a", "b")):
                for r in range(replicates):
                    row = {"generator": generator, "sample_id": f"s{s}-{p}-s{r}"}
                    row |= {"case_id": f"s{s}-{p}", "subject_id": f"s{s}", "paradigm": paradigm}
                    row |= {"metric": "ufo", "key": "k", "status": "ok"}
                    rows.append(row | {"value": 0.3 + 0.3 * g + 0.1 * rng.random()})
    return pd.DataFrame(rows)


def test_models_by_paradigm() -> None:
    scores = edited()
    board = tables.models_by_paradigm(scores, "ufo", **FAST)
    assert board["generator"].tolist() == ["a", "b"] and board["rank"].tolist() == [2, 1]
    assert board[["rank_low", "rank_high"]].to_numpy().tolist() == [[2, 2], [1, 1]]
    means = [c for c in board.columns if c.endswith("_mean")]
    assert means == [f"{p}_mean" for p in ("non_editing", "local_editing", "complex_editing")] + [
        "total_mean"
    ]
    row, mine = board.iloc[0], scores[scores["generator"] == "a"]
    per_case = mine.groupby(["paradigm", "case_id"])["value"].mean()
    assert row["total_mean"] == pytest.approx(per_case.mean())
    assert row["mean_of_paradigms"] == pytest.approx(per_case.groupby("paradigm").mean().mean())
    assert row["mean_of_paradigms_ci_low"] < row["mean_of_paradigms"]
    assert (row["non_editing_n"], row["total_n"], row["total_coverage"]) == (18, 30, 1.0)
    assert row["total_ci_low"] < row["total_mean"] < row["total_ci_high"] and row["note"] == ""
    again = tables.models_by_paradigm(scores.sample(frac=1, random_state=3), "ufo", **FAST)
    again = again.set_index("generator").loc[["a", "b"]].reset_index()
    pd.testing.assert_frame_equal(again, board)


def test_models_by_paradigm_case_score_is_the_mean_of_its_valid_samples() -> None:
    scores = edited()
    first = scores["sample_id"] == "s0-0-s0"
    scores.loc[first & (scores["generator"] == "a"), ["status", "value"]] = ["failed", np.nan]
    row = tables.models_by_paradigm(scores, "ufo", **FAST).iloc[0]
    ok = scores[(scores["generator"] == "a") & (scores["status"] == "ok")]
    assert row["total_mean"] == pytest.approx(ok.groupby("case_id")["value"].mean().mean())
    assert row["total_mean"] != pytest.approx(ok["value"].mean())
    assert row["total_n"] == 30 and row["total_coverage"] == pytest.approx(59 / 60)
    assert row["note"] == "cases differ between generators"


def test_models_by_paradigm_hides_thin_paradigms_and_totals() -> None:
    scores = edited()
    lost = (scores["paradigm"] == "complex_editing") & (scores["generator"] == "b")
    scores.loc[lost, ["status", "value"]] = ["refused", np.nan]
    board = tables.models_by_paradigm(scores, "ufo", **FAST).set_index("generator")
    row = board.loc["b"]
    assert math.isnan(row["complex_editing_mean"]) and row["complex_editing_n"] == 0
    assert math.isnan(row["mean_of_paradigms"]) and math.isnan(row["total_mean"])
    assert row["rank"] is pd.NA and row["rank_low"] is pd.NA and board.loc["a", "rank"] == 1
    assert "no valid score (12 refused)" in row["note"] and "coverage 0.800" in row["note"]
    partial = tables.models_by_paradigm(scores, "ufo", min_coverage=0.5, **FAST)
    assert partial["total_mean"].notna().all() and partial["rank"].tolist() == [2, 1]
    assert math.isnan(partial["mean_of_paradigms"][1])


def test_models_by_paradigm_close_models_share_ranks() -> None:
    scores = edited()
    twin = scores[scores["generator"] == "b"].assign(generator="twin")
    noisy = twin.assign(generator="noisy")
    noisy["value"] += np.random.default_rng(2).normal(scale=0.2, size=len(noisy))
    board = tables.models_by_paradigm(pd.concat([scores, twin, noisy]), "ufo", **FAST)
    board = board.set_index("generator")
    assert board.loc["b", "rank"] == board.loc["twin", "rank"]
    assert board.loc["b", "rank_low"] == 1 and board.loc["noisy", "rank_high"] == 3
    assert board.loc["a", ["rank_low", "rank_high"]].tolist() == [4, 4]
    unlabelled = scores.assign(paradigm=scores["paradigm"].replace("local_editing", None))
    assert "(none)_mean" in tables.models_by_paradigm(unlabelled, "ufo", **FAST).columns
    with pytest.raises(InputError, match="no scores of 'uf'"):
        tables.models_by_paradigm(scores, "uf")
    with pytest.raises(InputError, match="case_id"):
        tables.models_by_paradigm(scores.drop(columns="case_id"), "ufo")


# --------------------------------------------------------------------------- agreement


def test_agreement_against_scipy() -> None:
    scores = world()
    fail(scores, "a", "dino", 3, "refused")
    wanted = rated(scores)
    frame = tables.agreement(scores, wanted, pairs={"preservation": ["dino"]}, **FAST)
    assert frame["level"].tolist() == [
        "per model",
        "per model",
        "pooled",
        "mean over models (2 of 2 defined)",
    ]
    assert frame["generator"].tolist() == ["a", "b", "ALL", "MEAN"]
    assert frame["n"].tolist() == [15, 18, 33, 33]
    assert frame["coverage"].tolist() == pytest.approx([15 / 18, 1, 33 / 36, 33 / 36])
    assert (frame["source"] == "raters (simulated)").all()
    both = scores.query("metric == 'dino' and status == 'ok'").merge(
        wanted, on=["generator", "sample_id"], suffixes=("", "_t")
    )
    for name, part in [("a", both.query("generator == 'a'")), ("ALL", both)]:
        row = frame.set_index("generator").loc[name]
        x, y = part["value"].round(9), part["value_t"].round(9)
        assert row["kendall_tau_b"] == pytest.approx(stats.kendalltau(x, y).statistic, abs=1e-12)
        assert row["spearman"] == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-12)
        assert row["spearman_ci_low"] <= row["spearman"] <= row["spearman_ci_high"]
    mean = frame.iloc[3]
    assert mean["spearman"] == pytest.approx(frame["spearman"][:2].mean())
    expected = np.tanh(np.arctanh(frame["spearman"][:2]).mean())
    assert mean["spearman_fisher"] == pytest.approx(expected)
    assert mean["fisher_clip"] == tables.CLIP


def test_agreement_counts_constant_models() -> None:
    scores = world()
    scores.loc[(scores["generator"] == "a") & (scores["metric"] == "dino"), "value"] = 0.5
    frame = tables.agreement(scores, rated(world()), pairs={"preservation": ["dino"]}, **FAST)
    first = frame.iloc[0]
    assert math.isnan(first["spearman"]) and first["reason"] == "constant_input"
    assert frame["level"].iloc[-1] == "mean over models (1 of 2 defined)"
    assert frame["reason"].iloc[-1] == "1 constant_input"
    assert frame["spearman"].iloc[-1] == pytest.approx(frame["spearman"].iloc[1])


def test_agreement_samples_that_only_one_side_has() -> None:
    scores = world()
    wanted = rated(scores)
    extra = wanted.iloc[:1].assign(sample_id="never-generated")
    unknown = wanted.iloc[:3].assign(generator="not-scored")
    fewer = pd.concat([wanted.iloc[3:], extra, unknown])
    frame = tables.agreement(scores, fewer, pairs={"preservation": ["dino"]}, **FAST)
    assert frame["generator"].tolist() == ["a", "b", "ALL", "MEAN"]
    assert frame["n"].tolist() == [15, 18, 33, 33]
    assert frame["coverage"].tolist()[:3] == pytest.approx([15 / 16, 1.0, 33 / 34])


def test_agreement_stops_on_foreign_ids_and_bad_targets() -> None:
    scores = world()
    wanted = rated(scores)
    with pytest.raises(InputError, match="no rated sample has a score row"):
        tables.agreement(scores, wanted.assign(sample_id=wanted["sample_id"] + ".png"))
    with pytest.raises(InputError, match="repeated"):
        tables.agreement(scores, pd.concat([wanted, wanted.iloc[:1]]))
    with pytest.raises(InputError, match="missing or infinite"):
        tables.agreement(scores, wanted.assign(value=np.nan))
    with pytest.raises(InputError, match="no scores of 'dina'"):
        tables.agreement(scores, wanted, pairs={"preservation": ["dina"]})


def test_agreement_all_pairs_and_sources() -> None:
    scores = world()
    wanted = pd.concat([rated(scores), rated(scores).assign(source="truth")])
    frame = tables.agreement(scores, wanted, **FAST)
    assert len(frame) == 3 * 2 * 4
    assert set(frame["source"]) == {"raters (simulated)", "truth"}


def test_metric_differences_use_common_samples() -> None:
    scores = world()
    fail(scores, "a", "hps", 4)
    frame = tables.metric_differences(
        scores, rated(scores), "preservation", ["dino", "hps"], **FAST
    )
    row = frame.iloc[0]
    assert row["n"] == 32 and row["coverage"] == pytest.approx(32 / 36)
    assert row["difference"] == pytest.approx(row["first_value"] - row["second_value"])
    assert row["ci_low"] <= row["difference"] <= row["ci_high"]
    assert list(tables.metric_differences(scores, rated(scores), "following", ["dino"]).columns)


# --------------------------------------------------------------------------- raters, Pareto


def ratings() -> pd.DataFrame:
    rows = []
    for rater, values in {"r1": [1, 2, 3, 4], "r2": [2, 2, 4, 4], "r3": [1, 3, 3, None]}.items():
        for i, value in enumerate(values):
            row = {"generator": "a", "sample_id": f"{i}", "rater": rater, "dimension": "quality"}
            rows.append(row | {"status": "ok" if value else "missing", "value": value})
    return pd.DataFrame(rows)


def test_rater_agreement_and_targets() -> None:
    frame = tables.rater_agreement(ratings())
    row = frame.iloc[0]
    assert (row["dimension"], row["raters"], row["items"], row["reason"]) == ("quality", 3, 4, "")
    assert row["coverage"] == pytest.approx(11 / 12)
    assert 0 < row["alpha_ordinal"] < 1 and 0 < row["alpha_interval"] < 1
    means = tables.targets(ratings(), "raters")
    assert means["value"].tolist() == pytest.approx([4 / 3, 7 / 3, 10 / 3, 4.0], abs=1e-9)
    assert means["n_raters"].tolist() == [3, 3, 3, 2] and set(means["source"]) == {"raters"}
    assert len(tables.targets(ratings(), "raters", missing="complete")) == 3
    with pytest.raises(InputError, match="repeated"):
        tables.targets(pd.concat([ratings(), ratings()]), "raters")


def test_pareto() -> None:
    board = tables.leaderboard(world(("a", "b", "c")), DIMENSIONS, **FAST)
    board.loc[0, "preservation_mean"] = 0.9
    board.loc[1, "preservation_mean"] = np.nan
    frame = tables.pareto(board)
    assert frame["on_front"].tolist() == [True, pd.NA, True]
    assert frame["note"].tolist() == ["", "a mean is undefined", ""]
    with pytest.raises(InputError, match="no dimension 'beauty'"):
        tables.pareto(board, "beauty")


# --------------------------------------------------------------------------- writing


@pytest.fixture
def odd() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "title": ["λ-Eclipse | 50% & $x_1$", "<b>~^\\{#}"],
            "rank": pd.array([2, None], dtype="Int64"),
            "kendall_tau_b": [-0.123456789123, np.nan],
            "n": [5508, 0],
            "on_front": pd.array([True, None], dtype="boolean"),
            "small": [-0.00001, 0.1 + 0.2],
        }
    )


def test_csv_is_exact_and_portable(odd: pd.DataFrame, tmp_path: Path) -> None:
    paths = writing.write(odd, tmp_path / "new" / "clip-0.5", "Caption", "tab:x")
    assert [p.name for p in paths] == ["clip-0.5.csv", "clip-0.5.md", "clip-0.5.tex"]
    data = paths[0].read_bytes()
    assert b"\r" not in data and data.endswith(b"\n")
    back = pd.read_csv(io.BytesIO(data))
    assert back["kendall_tau_b"][0] == -0.123456789 and back["small"][1] == 0.3
    assert data.splitlines()[2].split(b",")[1:4] == [b"", b"", b"0"]  # 2 stays 2, missing is empty
    assert data.splitlines()[1].split(b",")[1] == b"2"
    assert data == writing.to_csv(odd).encode()


def test_markdown(odd: pd.DataFrame) -> None:
    text = writing.to_markdown(odd, "Simulated.")
    lines = text.splitlines()
    assert lines[0] == "Simulated." and lines[2].startswith("| title | rank | Kendall τ-b | n |")
    assert lines[3] == "| :--- | ---: | ---: | ---: | :--- | ---: |"
    assert lines[4] == "| λ-Eclipse \\| 50% & $x_1$ | 2 | -0.123 | 5508 | yes | 0.000 |"
    assert lines[5].endswith("| – | – | 0 | – | 0.300 |")


def test_latex(odd: pd.DataFrame) -> None:
    text = writing.to_latex(odd, "τ at 100%", "tab:agree")
    assert r"\caption{$\tau$ at 100\%}" in text and r"\label{tab:agree}" in text
    assert r"\begin{tabular}{lrrrlr}" in text
    for rule in ("toprule", "midrule", "bottomrule"):
        assert text.count(rf"\{rule}") == 1
    assert (
        r"$\lambda$-Eclipse \textbar{} 50\% \& \$x\_1\$ & 2 & $-$0.123 & 5508 & yes & 0.000" in text
    )
    assert (
        r"\textless{}b\textgreater{}\textasciitilde{}\textasciicircum{}\textbackslash{}\{\#\}"
        in text
    )
    assert r"& -- & -- & 0 & -- & 0.300 \\" in text
    assert r"Kendall $\tau$-b" in text
    with pytest.raises(InputError, match="label"):
        writing.to_latex(odd, "c", "tab: x")


def test_compact_keeps_n_and_coverage_in_the_cell() -> None:
    scores = world()
    fail(scores, "b", "dino", 1)
    board = tables.leaderboard(scores, DIMENSIONS, **FAST)
    folded = writing.compact(board)
    shown = ["rank", "rank_low", "rank_high", "place", "s_h", "behind", "s_h_harmonic"]
    shown += ["preservation", "following", "quality", "note"]
    assert list(folded.columns)[2:] == shown
    assert folded["s_h"][0].startswith(f"{board['s_h'][0]:.3f} [{board['s_h_ci_low'][0]:.3f}, ")
    assert folded["preservation"][1].endswith("(n = 17, 94 %)")
    assert folded["preservation"][0].startswith("0.3")
    assert "(n = 18, 100 %)" in writing.to_markdown(folded)


def test_unknown_format(odd: pd.DataFrame, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown format 'xlsx'"):
        writing.write(odd, tmp_path / "t", "c", "l", ["xlsx"])
    assert not list(tmp_path.iterdir())
