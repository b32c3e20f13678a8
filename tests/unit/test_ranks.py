"""Raters who rank: files by people with every usual fault, and simulated ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import rankdata, spearmanr

from subjectbench.errors import InputError
from subjectbench.raters.ranks import PLUGIN as RankRaters
from subjectbench.raters.ranks import preferences
from subjectbench.raters.simulated_ranks import PLUGIN as SimulatedRankRaters
from subjectbench.records import table

MODELS = ("A", "B", "C", "D")


def samples(cases: list[str], replicates: int = 1, **changes: Any) -> pd.DataFrame:
    rows = [
        {
            "sample_id": f"{case}-s{replicate}",
            "case_id": case,
            "replicate": replicate,
            "seed": 1,
            "status": "ok",
            "image_sha256": None,
            "details": "{}",
            **changes,
        }
        for case in cases
        for replicate in range(replicates)
    ]
    return table("samples", rows, "test")


def text(*rows: tuple[Any, ...], header: str = "case_id,generator,rater,rank") -> str:
    return "\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n"


def ranked(ranks: dict[str, Any], case: str = "c0", rater: str = "anna") -> list[tuple[Any, ...]]:
    return [(case, model, rater, rank) for model, rank in ranks.items()]


FOUR = ranked(dict(zip(MODELS, (1, 2, 3, 4))))


def people(folder: Path, content: str, name: str = "ranks.csv", **params: Any) -> RankRaters:
    (folder / name).write_bytes(content.encode())
    return RankRaters(RankRaters.Params(path=name, **params), folder)


def values(raters: Any, *generators: str, cases: tuple[str, ...] = ("c0",)) -> dict[str, Any]:
    """Value by generator for one rater and case; None where it is missing."""
    frame = raters.ratings({g: samples(list(cases)) for g in generators or MODELS})
    assert set(frame["dimension"]) == {"preference"}
    assert ((frame["status"] == "ok") == frame["value"].notna()).all()
    return {
        r.generator: None if pd.isna(r.value) else r.value for r in frame.itertuples(index=False)
    }


# --- order to values -----------------------------------------------------------------------------


def test_the_best_has_the_highest_value(tmp_path: Path) -> None:
    assert values(people(tmp_path, text(*FOUR))) == {"A": 3, "B": 2, "C": 1, "D": 0}


@pytest.mark.parametrize("ranks", [(1, 2, 2, 4), (1, 2, 2, 3), (1, 2.5, 2.5, 4), (1, 3, 3.0, 4)])
def test_ties_are_averages_whatever_the_gaps(ranks: tuple[float, ...], tmp_path: Path) -> None:
    raters = people(tmp_path, text(*ranked(dict(zip(MODELS, ranks)))))
    assert values(raters) == {"A": 3, "B": 1.5, "C": 1.5, "D": 0}


@given(st.dictionaries(st.text(max_size=3), st.integers(1, 9), max_size=9))
def test_values_are_average_ranks_turned_round(ranks: dict[str, float]) -> None:
    got = preferences(ranks)
    expected = len(ranks) - rankdata(list(ranks.values())) if ranks else []
    assert list(got.values()) == list(expected)
    assert sum(got.values()) == len(ranks) * (len(ranks) - 1) / 2
    stretched = preferences({m: 10 * r + 3 for m, r in ranks.items()})  # only order counts
    assert stretched == got


def test_csv_and_tsv_generator_and_model(tmp_path: Path) -> None:
    expected = values(people(tmp_path, text(*FOUR)))
    by_model = text(*FOUR, header="case_id,model,rater,rank")
    assert values(people(tmp_path, by_model)) == expected
    tabs = by_model.replace(",", "\t").replace("\n", "\r\n")
    assert values(people(tmp_path, "\ufeff" + tabs, "ranks.tsv")) == expected


def test_models_may_have_other_names(tmp_path: Path) -> None:
    raters = people(tmp_path, text(*FOUR), models={"mine": "A", "yours": "B"}, leave_out=["D"])
    assert values(raters, "mine", "yours", "C", "control") == {"mine": 2, "yours": 1, "C": 0}
    raters.check_study(["mine", "yours", "C"], {"c0"})


# --- what is missing -----------------------------------------------------------------------------


def test_a_rater_who_left_a_model_out_ranked_nothing_in_that_case(tmp_path: Path) -> None:
    """Else a model that nobody prefers can win: B, beaten by A for both, keeps its 2 of 3."""
    agree = dict(zip(MODELS, (1, 2, 3, 4)))
    rows = [*ranked(agree), *ranked({**agree, "B": ""}, rater="ben"), *ranked(agree, "c1", "ben")]
    raters = people(tmp_path, text(*rows))
    frame = raters.ratings({g: samples(["c0", "c1"]) for g in MODELS})
    ben = frame[frame["rater"] == "ben"].groupby("sample_id")["status"].unique().map(list)
    assert ben.to_dict() == {"c0-s0": ["missing"], "c1-s0": ["ok"]}
    means = frame[frame["sample_id"] == "c0-s0"].groupby("generator")["value"].mean()
    assert means.to_dict() == {"A": 3, "B": 2, "C": 1, "D": 0}


def test_too_few_ranked_models_rank_nothing(tmp_path: Path) -> None:
    rows = ranked({"A": 1, "B": 2}, rater="ben")
    models = {g: samples(["c0"]) for g in MODELS}
    frame = people(tmp_path, text(*rows)).ratings(models)
    assert frame["status"].unique().tolist() == ["missing"]
    lenient = people(tmp_path, text(*rows), min_models=2)
    assert lenient.ratings(models)["value"].dropna().tolist() == [1, 0]


def test_raters_who_saw_other_cases_are_missing_there(tmp_path: Path) -> None:
    rows = [*FOUR, *ranked(dict(zip(MODELS, (4, 3, 2, 1))), "c1", "ben")]
    frame = people(tmp_path, text(*rows)).ratings({g: samples(["c0", "c1"]) for g in MODELS})
    assert len(frame) == 2 * 2 * 4 and (frame["status"] == "missing").sum() == 8
    ordered = frame.sort_values(["generator", "sample_id", "rater"], ignore_index=True)
    assert frame.equals(ordered)


def test_the_ranked_replicate_is_declared(tmp_path: Path) -> None:
    raters = people(tmp_path, text(*FOUR), replicate=2)
    frame = raters.ratings({g: samples(["c0"], replicates=4) for g in MODELS})
    assert set(frame["sample_id"]) == {"c0-s2"}
    with pytest.raises(InputError, match="line 2: 'A' has no picture 2 of 'c0'"):
        raters.ratings({g: samples(["c0"]) for g in MODELS})


# --- faults --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (text(*FOUR, FOUR[1]), "line 6: 'anna' ranks 'B' of 'c0' here and on line 3"),
        (text(*FOUR[:3], ("c0", "D", "anna", "best")), "line 5: rank 'best' is not a number"),
        (text(*FOUR[:3], ("c0", "D", "anna", "0")), "line 5: rank '0' is not"),
        (text(*FOUR[:3], ("c0", "D", "anna", "-1")), "line 5: rank '-1'"),
        (text(*FOUR[:3], ("c0", "D", "anna", "nan")), "line 5: rank 'nan'"),
        (text(*FOUR[:3], ("c0", "D", "anna", "1e1")), "line 5: rank '1e1'"),
        (text(*FOUR[:3], ("c0", "D", "anna", "٣")), "line 5: rank"),
        (text(*FOUR[:3], ("c0", "D", "anna", "87")), "line 5: rank 87 among 4 models"),
        (text(*FOUR[:3], ("", "D", "anna", "1")), "line 5: case_id or generator is empty"),
        (text(*FOUR[:3], ("c0", "", "anna", "1")), "line 5: case_id or generator is empty"),
        (text(*FOUR[:3], ("c0", "D", "anna b", "1")), "line 5: rater 'anna b'"),
        (text(*FOUR[:3], ("c0", "D", "Anna", "1")), "'anna' and 'Anna' differ only in case"),
        (text(*FOUR[:3], ("c0", "D", "anna")), "line 5: 3 cells"),
        (text(*FOUR, header="case_id,generator,rater,score"), "unknown column 'score'"),
        (text(*FOUR, header="case_id,who,rater,rank"), "unknown column 'who'"),
        (text(header="case_id,rater,rank"), "one column 'generator' or 'model'"),
        (text(header="case_id,generator,rater,rank"), "a header and no rows"),
        ("", "is empty"),
    ],
)
def test_faults_name_the_line(content: str, fault: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=fault) as caught:
        people(tmp_path, content).check()
    assert "ranks.csv" in str(caught.value)


def test_files_and_names_must_fit_the_study(tmp_path: Path) -> None:
    raters = people(tmp_path, text(*FOUR, *ranked({"A": 1}, "c9")))
    raters.check()
    raters.check_study(list(MODELS), {"c0", "c9"})
    with pytest.raises(InputError, match=r"ranks\.csv: line 6: no case 'c9' in the study"):
        raters.check_study(list(MODELS), {"c0"})
    with pytest.raises(InputError, match=r"line 5: no generator 'D' in the study\n.*leave_out"):
        raters.check_study(["A", "B", "C"], {"c0", "c9"})
    with pytest.raises(InputError, match="no generator 'D'"):
        raters.ratings({g: samples(["c0", "c9"]) for g in "ABC"})
    for params, fault in [
        ({"models": {"x": "Aa"}}, "models: no model 'Aa'"),
        ({"models": {"x": "A", "y": "A"}}, "given to 'x' too"),
        ({"models": {"B": "A"}}, "'B' is itself a model"),
        ({"models": {"x": "A"}, "leave_out": ["A"]}, "is in 'leave_out' too"),
        ({"leave_out": ["a"]}, "leave_out: no model 'a'"),
    ]:
        with pytest.raises(InputError, match=fault):
            people(tmp_path, text(*FOUR), **params).check()
    with pytest.raises(InputError, match=r"neither \.csv nor \.tsv"):
        people(tmp_path, text(*FOUR), "ranks.txt").check()
    with pytest.raises(InputError, match="no such file"):
        RankRaters(RankRaters.Params(path="gone.csv"), tmp_path).check()


@settings(max_examples=60, deadline=None)
@given(cell=st.text(st.characters(codec="utf-8", exclude_characters=',\r\n\0"'), max_size=6))
def test_any_cell_is_a_rank_nothing_or_an_input_error(
    cell: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    raters = people(tmp_path_factory.mktemp("cell"), text(*FOUR[:3], ("c0", "D", "anna", cell)))
    try:
        got = values(raters)["D"]
    except InputError:
        return
    assert (got is None) == (not cell.strip())
    assert got is None or 1 <= float(cell) <= 4


def test_order_of_rows_does_not_matter(tmp_path: Path) -> None:
    rows = [*FOUR, *ranked(dict(zip(MODELS, (2, 2, 1, 4))), "c1", "ben")]
    given = {g: samples(["c0", "c1"]) for g in MODELS}
    one = people(tmp_path, text(*rows)).ratings(given)
    backwards = {g: given[g].iloc[::-1] for g in reversed(MODELS)}
    assert people(tmp_path, text(*rows[::-1])).ratings(backwards).equals(one)


# --- simulated -----------------------------------------------------------------------------------


def world(count: int, status: str = "ok", **truths: tuple[float, float, float]) -> Any:
    out = {}
    for generator, truth in truths.items():
        frame = samples([f"c{i}" for i in range(count)], replicates=2, status=status)
        named = dict(zip(("preservation", "following", "quality"), truth))
        frame["details"] = json.dumps({"truth": named})
        out[generator] = frame
    return out


THREE = {"best": (0.9, 0.9, 0.9), "fair": (0.6, 0.5, 0.7), "poor": (0.1, 0.2, 0.5)}


def simulated(**params: Any) -> SimulatedRankRaters:
    return SimulatedRankRaters(SimulatedRankRaters.Params(**params), Path())


def test_without_error_ranks_are_the_truths() -> None:
    raters = simulated(taste=0.0, noise=0.0, resolution=0.001)
    assert raters.simulated
    got = raters.ratings(world(3, **THREE))
    assert len(got) == 3 * 3 * 5 and set(got["sample_id"]) == {f"c{i}-s0" for i in range(3)}
    assert got.groupby("generator")["value"].unique().map(list).to_dict() == {
        "best": [2],
        "fair": [1],
        "poor": [0],
    }


def test_near_pictures_tie() -> None:
    near = {"a": (0.5, 0.5, 0.5), "b": (0.51, 0.5, 0.5), "c": (0.9, 0.9, 0.9)}
    got = simulated(taste=0.0, noise=0.0, resolution=0.2).ratings(world(1, **near))
    assert got.groupby("generator")["value"].first().to_dict() == {"a": 0.5, "b": 0.5, "c": 2}


def test_weights_decide_between_models() -> None:
    two = {"keeps": (1.0, 0.0, 0.5), "follows": (0.0, 1.0, 0.5)}
    for heavy, winner in (("preservation", "keeps"), ("following", "follows")):
        raters = simulated(taste=0.0, noise=0.0, min_models=2, **{heavy: 3.0})
        got = raters.ratings(world(1, **two))
        assert got.groupby("generator")["value"].first()[winner] == 1


def test_pictures_without_truth_are_missing() -> None:
    given = world(2, **THREE)
    given["best"].loc[0, "status"] = "invalid_image"  # c0-s0
    got = simulated(raters=2).ratings(given)
    missing = got[got["status"] == "missing"]
    assert set(missing["sample_id"]) == {"c0-s0"} and len(missing) == 6  # two models are too few
    got = simulated(raters=2, min_models=2).ratings(given)
    missing = got[got["status"] == "missing"]
    assert list(missing["generator"]) == ["best"] * 2
    given["fair"]["details"] = json.dumps({"truth": {"quality": 0.5}})
    got = simulated(raters=1, min_models=2).ratings(given)
    assert set(got[got["generator"] == "fair"]["status"]) == {"missing"}
    assert simulated().ratings({}).empty


def test_draws_depend_on_their_ids_alone() -> None:
    given = world(8, **THREE)
    noisy = {"noise": 0.5, "taste": 0.5}
    got = simulated(**noisy).ratings(given)
    assert got["value"].nunique() > 2
    backwards = {g: given[g].iloc[::-1] for g in reversed(given)}
    assert simulated(**noisy).ratings(backwards).equals(got)
    fewer = simulated(raters=2, **noisy).ratings(given)
    kept = got[got["rater"].isin(["rater1", "rater2"])].reset_index(drop=True)
    assert fewer.equals(kept)
    assert not simulated(seed=1, **noisy).ratings(given).equals(got)


def test_noise_lowers_agreement_with_the_truth() -> None:
    truths = {f"m{i}": (i / 5, i / 5, i / 5) for i in range(6)}
    agreement = []
    for noise in (0.0, 0.1, 1.0):
        got = simulated(raters=1, noise=noise).ratings(world(60, **truths))
        wide = got.pivot(index="sample_id", columns="generator", values="value")
        rhos = [spearmanr(row, range(6)).statistic for row in wide.to_numpy()]
        agreement.append(sum(rhos) / len(rhos))
    assert agreement[0] == pytest.approx(1) and agreement[0] > agreement[1] > agreement[2] + 0.2
    assert agreement[2] < 0.6


@settings(max_examples=20, deadline=None)
@given(st.floats(0, 3), st.floats(0, 10), st.integers(0, 2**63))
def test_values_of_a_case_always_sum_alike(taste: float, noise: float, seed: int) -> None:
    got = simulated(raters=2, taste=taste, noise=noise, seed=seed).ratings(world(1, **THREE))
    assert got.groupby("rater")["value"].sum().tolist() == [3, 3]


@pytest.mark.parametrize("bad", [1.5, float("nan"), "0.5", True])
def test_bad_truth_is_refused(bad: Any) -> None:
    with pytest.raises(InputError, match=r"best: sample 'c0-s0': details\.truth\.following"):
        simulated().ratings(world(1, best=(0.5, bad, 0.5)))
