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
    # Only a is told apart: of the others the data do not say which is best.
    assert board.loc[["b", "twin", "noisy", "a"], "place"].tolist() == ["1=", "1=", "1=", "4"]
    first = board["total_mean"].max()
    assert board.loc["a", "behind"] == pytest.approx(first - board.loc["a", "total_mean"])
    assert board.loc["a", "behind_ci_low"] > 0
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


def test_footers_stand_below_and_only_where_there_is_something_to_say(odd: pd.DataFrame) -> None:
    assert writing.off_lock({}) == ""
    footer = writing.off_lock({"numpy": "2.0 (lock: 2.1)", "a_b": "1 (lock: 2)"})
    assert footer.endswith("pins: a_b 1 (lock: 2), numpy 2.0 (lock: 2.1).")
    for to in (writing.to_markdown, writing.to_latex):
        plain, told = to(odd), to(odd, footer=footer)
        assert to(odd, footer="") == plain and "numpy" not in plain
        assert told.index("numpy 2.0") > told.index("1 (lock") > len(plain) * 0.8
    assert r"a\_b 1" in writing.to_latex(odd, footer=footer)


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


# --------------------------------------------------------------------------- DSH-Bench's tables


def boards(shift: dict[str, float], subjects: int = 24, noise: float = 0.03) -> pd.DataFrame:
    """Scores of models that differ by a known amount and by noise per subject."""
    rng = np.random.default_rng(3)
    rows = []
    for generator, offset in shift.items():
        for metric in DIMENSIONS.values():
            for s in range(subjects):
                row = {"generator": generator, "metric": metric, "key": "k", "status": "ok"}
                row |= {"sample_id": f"s{s}-0", "case_id": f"s{s}", "subject_id": f"s{s}"}
                rows.append(row | {"value": 0.5 + offset + noise * rng.normal()})
    return pd.DataFrame(rows)


def test_what_the_data_cannot_separate_is_a_tie() -> None:
    scores = boards({"low": -0.2, "a": 0.0, "b": 0.001, "lone": -0.1})
    board = tables.leaderboard(scores, DIMENSIONS, draws=400, seed=1).set_index("generator")
    assert board.loc[["a", "b"], "place"].tolist() == ["1=", "1="]
    assert board.loc[["lone", "low"], "place"].tolist() == ["3", "4"]
    assert sorted(board.loc[["a", "b"], "rank"]) == [1, 2]
    assert board.loc[["a", "b"], "rank_low"].eq(1).all()
    assert board.loc[["a", "b"], "rank_high"].eq(2).all()
    assert board.loc["low", ["rank_low", "rank_high"]].tolist() == [4, 4]
    best = board["s_h"].idxmax()
    assert pd.isna(board.loc[best, "behind"])
    assert board.loc["lone", "behind"] == pytest.approx(
        board["s_h"].max() - board.loc["lone", "s_h"]
    )
    assert board.loc["low", "behind"] == pytest.approx(
        board.loc["lone", "s_h"] - board.loc["low", "s_h"]
    )
    assert board.loc["low", "behind_ci_low"] > 0 > board.loc[["a", "b"], "behind_ci_low"].min()


def test_ties_do_not_chain() -> None:
    """Small steps, each within noise: the group ends where its own first model is separated."""
    steps = {f"m{i}": -0.004 * i for i in range(12)}
    board = tables.leaderboard(boards(steps, noise=0.01), DIMENSIONS, draws=400, seed=1)
    groups = board.sort_values("rank").groupby("place", sort=False)
    assert 1 < len(groups) < 12
    for _, group in groups:
        inside = group.iloc[1:]
        assert (inside["behind_ci_low"] <= 0).all()  # not separated from the group's first
        assert inside["behind"].tolist() == pytest.approx(
            (group["s_h"].iloc[0] - inside["s_h"]).tolist()
        )


def test_ties_without_draws_and_with_one_subject() -> None:
    board = tables.leaderboard(boards({"a": 0.0, "b": 0.1}), DIMENSIONS, draws=0)
    assert (board["place"] == "").all() and board["rank"].tolist() == [2, 1]
    one = tables.leaderboard(boards({"a": 0.0, "b": 0.1}, subjects=1), DIMENSIONS, **FAST)
    assert (one["place"] == "1=").all()  # nothing separates them


def test_true_harmonic_mean_beside_the_printed_constant() -> None:
    scores, weights = boards({"a": 0.0, "b": 0.1}), (2.0, 1.0, 0.5)
    board = tables.leaderboard(scores, DIMENSIONS, weights=weights, constant=3.0, **FAST)
    means = board[[f"{d}_mean" for d in records.DIMENSIONS]].to_numpy()
    expected = [stats.hmean(row, weights=weights) for row in means]
    assert board["s_h_harmonic"].tolist() == pytest.approx(expected)
    assert board["s_h"].tolist() == pytest.approx([3.0 / 3.5 * h for h in expected])


def test_human_alignment_against_expanded_samples() -> None:
    """Values, intervals and the test of Table 1, from samples that are drawn and copied by hand."""
    scores = world(("a", "b"), subjects=8)
    scores.loc[scores["metric"] == "clip_t", "value"] += 0.5 * scores["value"]
    fail(scores, "a", "hps", 3)
    wanted = rated(scores, noise=0.03)
    agreed = tables.agreement(scores, wanted, draws=60, seed=1)
    table = tables.human_alignment(scores, wanted, agreed, draws=60, seed=1)
    assert table["generator"].tolist() == ["a", "b", cells.POOLED] * 2
    assert table["method"].tolist() == ["kendall_tau_b"] * 3 + ["spearman"] * 3
    correlate = {
        "kendall_tau_b": lambda x, y: stats.kendalltau(x, y).statistic,
        "spearman": lambda x, y: stats.spearmanr(x, y).statistic,
    }
    for row in table.to_dict("records"):
        part = (
            scores
            if row["generator"] == cells.POOLED
            else scores[scores["generator"] == row["generator"]]
        )
        wide = part.pivot(
            index=["generator", "sample_id", "subject_id"], columns="metric", values="value"
        ).reset_index()
        wide = wide.merge(
            wanted[["generator", "sample_id", "value"]], on=["generator", "sample_id"]
        )

        def drawn(metrics: list[str], data: pd.DataFrame, method: str) -> np.ndarray:
            data = data.dropna(subset=metrics)
            resample = bootstrap.Resample.of(data["subject_id"].tolist(), 60, 1)
            codes = resample.codes(data["subject_id"].tolist())
            out = []
            for weights in resample.weights:
                copies = np.repeat(np.arange(len(data)), weights[codes].astype(int))
                some = data.iloc[copies]
                out.append([correlate[method](some[m], some["value"]) for m in metrics])
            return np.array(out)

        method = row["method"]
        found = {}
        for metric in DIMENSIONS.values():
            data = wide.dropna(subset=[metric])
            found[metric] = correlate[method](data[metric], data["value"])
            assert row[metric] == pytest.approx(found[metric])
            low, high = np.quantile(drawn([metric], wide, method)[:, 0], [0.025, 0.975])
            assert row[f"{metric}_ci_low"] == pytest.approx(low)
            assert row[f"{metric}_ci_high"] == pytest.approx(high)
        best, second = sorted(found, key=lambda m: -found[m])[:2]
        assert (row["best"], row["second"]) == (best, second)
        data = wide.dropna(subset=[best, second])
        assert row["common"] == len(data)
        gap = drawn([best, second], wide, method)
        difference = gap[:, 0] - gap[:, 1]
        assert row["difference_ci_low"] == pytest.approx(np.quantile(difference, 0.025))
        assert row["p_value"] == pytest.approx(bootstrap.two_sided(difference))


def test_human_alignment_edges() -> None:
    scores = world()
    wanted = rated(scores)
    agreed = tables.agreement(scores, wanted, draws=0)
    table = tables.human_alignment(scores, wanted, agreed, metrics=["hps"], draws=0)
    assert table["difference"].isna().all() and "clip_t" not in table.columns
    assert len(tables.human_alignment(scores, wanted, agreed, dimension="quality")) == 0
    with pytest.raises(InputError, match="no agreement of 'hpz'"):
        tables.human_alignment(scores, wanted, agreed, metrics=["hpz"])
    constant = wanted.assign(value=1.0)
    flat = tables.human_alignment(scores, constant, tables.agreement(scores, constant, draws=0))
    assert flat["dino"].isna().all() and (flat["note"] == "constant_input").all()


def test_benchmarks_side_by_side() -> None:
    scores = {
        "Easy": boards({"a": 0.3, "b": 0.2}),
        "Hard": boards({"a": 0.0, "b": 0.1}),
        "Alike": boards({"a": 0.0005, "b": 0.0995}, subjects=20),
    }
    fail(scores["Easy"], "b", "hps", 20)
    table = tables.benchmarks_side_by_side(scores, DIMENSIONS, **FAST).set_index("generator")
    for name, frame in scores.items():
        mine = frame[(frame["generator"] == "a") & (frame["metric"] == "dino")]["value"]
        assert table.loc["a", f"preservation_{name}_mean"] == pytest.approx(mine.mean())
        assert table.loc["a", f"preservation_{name}_n"] == len(mine)
        low, high = (table.loc["a", f"preservation_{name}_ci_{end}"] for end in ("low", "high"))
        assert low < mine.mean() < high
    means = [table.loc["a", f"preservation_{name}_mean"] for name in scores]
    assert table.loc["a", "preservation_lowest"] == list(scores)[int(np.argmin(means))]
    gap = sorted(means)[1] - min(means)
    assert table.loc["a", "preservation_lowest_gap"] == pytest.approx(gap)
    low, high = (table.loc["a", f"preservation_lowest_gap_ci_{end}"] for end in ("low", "high"))
    assert low < 0 < high  # which of the two alike is harder, nobody knows
    two = {name: scores[name] for name in ("Easy", "Hard")}
    equal = tables.benchmarks_side_by_side({"A": two["Easy"], "B": two["Easy"]}, DIMENSIONS, **FAST)
    assert (
        equal["preservation_lowest"].isna().all() and equal["preservation_lowest_gap"].isna().all()
    )
    clear = tables.benchmarks_side_by_side(two, DIMENSIONS, **FAST).set_index("generator")
    assert clear.loc["a", "preservation_lowest"] == "Hard"
    assert clear.loc["a", "preservation_lowest_gap_ci_low"] > 0
    assert pd.isna(table.loc["b", "quality_lowest"]) and "coverage" in table.loc["b", "note"]
    folded = writing.compact(clear.reset_index())
    assert folded["preservation_Easy"][0].endswith("(n = 24, 100 %)")
    with pytest.raises(InputError, match="no benchmark"):
        tables.benchmarks_side_by_side({}, DIMENSIONS)


def test_disputed_samples() -> None:
    scores = world(("a", "b", "copy"), subjects=4)
    mine = scores["metric"] == "dino"
    scores.loc[mine, "value"] = 0.5
    for sample, value in (
        ("s2-viewpoint-0", 0.1),
        ("s2-background-0", 0.2),
        ("s0-background-0", 0.3),
    ):
        scores.loc[
            mine & (scores["generator"] == "a") & (scores["sample_id"] == sample), "value"
        ] = value
    scores.loc[mine & (scores["generator"] == "copy"), "value"] = np.linspace(0, 9, 12)
    generators = {"copy": "Copy", "a": "A", "b": "B"}
    table = tables.disputed(scores, "dino", ["a", "b"], generators=generators)
    assert table["sample_id"].tolist() == ["s2-viewpoint-0"] * 3 + ["s0-background-0"] * 3
    assert table["title"].tolist() == ["Copy", "A", "B"] * 2
    assert table["spread"].iloc[0] == pytest.approx(0.2)
    assert table["decides"].tolist() == [False, True, True] * 2
    shuffled = scores.sample(frac=1, random_state=1)
    pd.testing.assert_frame_equal(
        table, tables.disputed(shuffled, "dino", ["a", "b"], generators=generators)
    )
    scores.loc[mine & (scores["generator"] == "a"), ["status", "value"]] = ["failed", np.nan]
    assert len(tables.disputed(scores, "dino", ["a", "b"])) == 0  # b alone does not differ


def test_tab03_ids_and_names_in_files_stay_text(tmp_path: Path) -> None:
    rows = {"generator": ["007", "1e3"], "title": ["2.10", "no"], "level": ["2024", "nan"]}
    frame = pd.DataFrame(rows | {"mean": [0.5, None], "n": [1, 2], "common": [288, None]})
    writing.write(frame, tmp_path / "t", "c", "t")
    again = writing.read(tmp_path / "t.csv")
    for column, values in rows.items():
        assert again[column].tolist() == values
    assert again["mean"].tolist()[0] == 0.5 and again["n"].tolist() == [1, 2]
    assert str(again["common"][0]) == "288" and pd.isna(again["common"][1])
    assert writing.read(tmp_path / "t.csv", as_printed=True)["mean"].tolist()[0] == "0.5"


def test_tab03_seeds_are_whole_numbers_or_refused() -> None:
    """A column of integers with a gap becomes floats, and 9007199254740993 becomes ...992."""
    row = {"sample_id": "007-s0", "case_id": "007", "replicate": 0, "seed": 9007199254740993}
    row |= {"status": "ok", "image_sha256": "0" * 64, "details": "{}"}
    assert records.table("samples", [row], "test")["seed"].tolist() == [9007199254740993]
    for seed in (None, 42.5, "42", math.nan):
        with pytest.raises(InputError, match="seed"):
            records.table("samples", [row, row | {"sample_id": "08-s0", "seed": seed}], "test")


def test_tab04_levels_come_back_in_order(tmp_path: Path) -> None:
    table = tables.breakdown(world(), "difficulty", DIMENSIONS, **FAST)
    writing.write(table, tmp_path / "t", "c", "t")
    levels = writing.read(tmp_path / "t.csv")["level"]
    assert list(dict.fromkeys(levels)) == ["easy", "medium", "hard"]
