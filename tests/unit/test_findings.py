"""The paper's claims on made data in which each is true, false or undecided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from subjectbench import findings, records
from subjectbench.cells import POOLED
from subjectbench.errors import InputError
from subjectbench.findings import CONTRARY, HOLDS, NOT_COMPUTABLE, UNDECIDED

DIMENSIONS = {"preservation": "sics", "following": "clip_t", "quality": "hps"}
FAST = {"draws": 200, "seed": 1}
MODELS = ("a", "b", "c", "d", "e")
CATEGORIES = ("Book", "Toy", "Plant", "Bird", "Fish")


def world(
    *,
    difficulty: Sequence[float] = (0.0, 0.0, 0.0),
    scenario: Sequence[float] = (0.0,) * 6,
    preservation: Sequence[float] = (0.0,) * 5,
    following: Sequence[float] = (0.0,) * 5,
    own_category: float = 0.0,
    book: float = 0.0,
    cases: float = 0.0,
    attribute: float = 0.0,
    noise: float = 0.02,
    paired: bool = True,
) -> pd.DataFrame:
    """Scores of 5 models, 30 subjects and 6 scenarios, 6 subjects in each of 5 categories.

    If ``paired``, what differs between the subjects of a level is the same in every level, and
    in every scenario: without an effect the means of two levels are equal. Otherwise subjects are
    all different.
    """
    rng = np.random.default_rng(5)
    per_subject = noise * rng.normal(size=(30, 5))
    per_case = noise * rng.normal(size=(30, 5))
    if paired:
        per_subject, per_case = (np.repeat(e[:10], 3, axis=0) for e in (per_subject, per_case))
    rows = []
    for s in range(30):
        for i, name in enumerate(records.SCENARIOS):
            case = {"sample_id": f"s{s:02}-{i}-s0", "case_id": f"s{s:02}-{i}"}
            case |= {"subject_id": f"s{s:02}", "difficulty": records.DIFFICULTIES[s % 3]}
            case |= {"scenario": name, "category": CATEGORIES[s // 3 % 5]}
            for m, model in enumerate(MODELS):
                e, f = per_subject[s, m], per_case[s, m]
                shift = scenario[i] + difficulty[s % 3]
                kept = 0.5 + preservation[m] + shift + e
                kept += own_category * (s // 3 % 5 == m) + book * (s // 3 % 5 == 0)
                asked = 0.4 + following[m] + scenario[i] + cases * e + f
                asked += attribute * (name == "attribute")
                values = {"sics": kept, "clip_t": asked, "hps": 0.3 + scenario[i] + f}
                for metric, value in values.items():
                    row = {"generator": model, "metric": metric, "key": f"{metric}-{model}"}
                    row |= {"status": "ok", "value": value, "image_sha256": None, "n_raw": 1}
                    rows.append(case | row | {"details": "{}"})
    return pd.DataFrame(rows)


def all_models(scores: pd.DataFrame, **options: object) -> Mapping[str, str]:
    """Verdict over all models by claim (and dimension, where a claim has several)."""
    frame = findings.findings(scores, DIMENSIONS, **FAST, **options)
    frame = frame[frame["generator"] == POOLED]
    names = frame["claim"] + "/" + frame["dimension"]
    return dict(zip(names, frame["verdict"]))


TRUE = {
    "difficulty": (0.1, 0.0, -0.1),
    "scenario": (0.1, 0.0, -0.1, -0.3, -0.3, -0.3),
    "preservation": (0.2, 0.1, 0.0, -0.1, -0.2),
    "following": (-0.2, -0.1, 0.0, 0.1, 0.2),
    "attribute": -0.2,
}
FALSE = {
    "difficulty": (-0.1, 0.0, 0.1),
    "scenario": (-0.1, 0.0, 0.1, 0.3, 0.3, 0.3),
    "preservation": (0.4, 0.1, 0.0, -0.1, -0.2),
    "following": (0.4, 0.1, 0.0, -0.1, -0.2),
    "attribute": 0.2,
}
CATEGORIES_OF_ALL = "no_model_best_in_all_categories/preservation"
LEADER = {"preservation": FALSE["preservation"]}
ALONE = {
    "trade_off_over_cases/preservation": {HOLDS: {"cases": -2.0}, CONTRARY: {"cases": 2.0}},
    "book_lower/preservation": {HOLDS: {"book": -0.5}, CONTRARY: {"book": 0.5}},
    CATEGORIES_OF_ALL: {HOLDS: {"own_category": 1.0}, CONTRARY: LEADER},
}
"""What would blur other claims, or be blurred by them."""
DECIDED = (
    "hard_below_easy/preservation",
    "hard_below_easy_for_every_model/preservation",
    "difficulty_trend/preservation",
    "medium_below_easy/preservation",
    "hard_below_medium/preservation",
    *(
        f"{low}_below_{high}/{d}"
        for d in records.DIMENSIONS
        for low, high in (
            ("viewpoint", "background"),
            ("interaction", "viewpoint"),
            ("interaction", "background"),
        )
    ),
    "changed_subject_lower/preservation",
    "attribute_harder_to_follow/following",
    "book_lower/preservation",
    "trade_off_over_models/preservation",
    "trade_off_over_cases/preservation",
    "no_model_best_in_both/preservation",
    CATEGORIES_OF_ALL,
)


@pytest.mark.parametrize(
    ("effects", "verdict"), [(TRUE, HOLDS), (FALSE, CONTRARY)], ids=["true", "false"]
)
def test_what_is_plain_is_decided(effects: dict, verdict: str) -> None:
    found = dict(all_models(world(**effects)))
    for name, alone in ALONE.items():
        found[name] = all_models(world(**alone[verdict]))[name]
    assert {name: found[name] for name in DECIDED} == dict.fromkeys(DECIDED, verdict)


def test_what_is_equal_is_not_separable() -> None:
    found = dict(all_models(world()))
    different = all_models(world(paired=False))
    for name in ALONE:
        found[name] = different[name]
    assert {name: found[name] for name in DECIDED} == dict.fromkeys(DECIDED, UNDECIDED)


def equal_levels(shift: float, subjects: int, scale: float = 1.0) -> pd.DataFrame:
    """Following of easy and hard subjects, half of them a unit above their level, half below."""
    rows = []
    for s in range(subjects):
        value = scale * ((1 if s // 2 % 2 else -1) + shift * (s % 2))
        row = {"generator": "a", "metric": "clip_t", "key": "k", "status": "ok", "value": value}
        row |= {"sample_id": f"s{s}-s0", "case_id": f"s{s}", "subject_id": f"s{s}"}
        rows.append(row | {"difficulty": ("easy", "hard")[s % 2]})
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("shift", "subjects", "verdict"),
    [(0.0, 2000, HOLDS), (0.0, 40, UNDECIDED), (1.0, 400, CONTRARY), (-1.0, 400, CONTRARY)],
)
@pytest.mark.parametrize("scale", [1.0, 0.01])
def test_following_hardly_moves(shift: float, subjects: int, verdict: str, scale: float) -> None:
    scores = equal_levels(shift, subjects, scale)
    frame = findings.findings(scores, {"following": "clip_t"}, **FAST).set_index("claim")
    mine = frame.loc["difficulty_hardly_moves_following"]
    assert set(mine["verdict"]) == {verdict}
    spread = np.sqrt(subjects / (subjects - 2))
    assert mine["effect"].iloc[-1] == pytest.approx(shift / spread)


def with_ratings(scores: pd.DataFrame, kept: float, other: float) -> tuple[pd.DataFrame, ...]:
    rng = np.random.default_rng(3)
    base = scores[scores["metric"] == "sics"].reset_index(drop=True)
    truth = rng.normal(size=len(base))
    error = rng.normal(size=len(base))
    sics = base.assign(value=truth + kept * error)
    dino = base.assign(value=truth + other * error[::-1] if kept != other else sics["value"])
    dino = dino.assign(metric="dino", key="dino-" + dino["generator"])
    rest = scores[scores["metric"] != "sics"]
    targets = base[["generator", "sample_id"]].assign(
        dimension="preservation", value=truth.round(1), source="raters"
    )
    return pd.concat([rest, sics, dino], ignore_index=True), targets


@pytest.mark.parametrize(
    ("kept", "other", "verdict"),
    [(0.2, 2.0, HOLDS), (2.0, 0.2, CONTRARY), (1.0, 1.0, UNDECIDED)],
)
def test_agreement(kept: float, other: float, verdict: str) -> None:
    scores, targets = with_ratings(world(), kept, other)
    frame = findings.findings(scores, DIMENSIONS, targets=targets, **FAST)
    mine = frame[frame["claim"] == "preservation_metric_agrees_best"]
    assert mine["generator"].tolist() == [*MODELS, POOLED] * 2
    assert set(mine["verdict"]) == {verdict}
    sides = [s.set_index(["generator", "sample_id"])["value"] for s in (
        scores[scores["metric"] == "sics"], scores[scores["metric"] == "dino"], targets,
    )]  # fmt: skip
    for row, method in zip(mine[mine["generator"] == POOLED].itertuples(), ("kendall", "spearman")):
        sics, dino, people = (s.sort_index() for s in sides)
        first, second = (x.corr(people, method=method) for x in (sics, dino))
        assert row.effect == pytest.approx(first - second) and row.n == len(people)


def test_agreement_is_not_computable_without_ratings_or_rivals() -> None:
    scores, targets = with_ratings(world(), 0.2, 2.0)
    name = "preservation_metric_agrees_best/preservation"
    assert all_models(scores)[name] == NOT_COMPUTABLE
    assert all_models(scores, targets=targets, rivals=[])[name] == NOT_COMPUTABLE
    assert all_models(scores, targets=targets, rivals=["dino"])[name] == HOLDS


# --------------------------------------------------------------------------- numbers


def test_numbers_against_numpy_and_scipy() -> None:
    scores = world(**TRUE)
    frame = findings.findings(scores, DIMENSIONS, **FAST)
    sics = scores[scores["metric"] == "sics"]
    means = sics.groupby(["generator", "difficulty"])["value"].mean().unstack()
    gap = means["hard"] - means["easy"]
    mine = frame[frame["claim"] == "hard_below_easy"].set_index("generator")
    for model in MODELS:
        assert mine.loc[model, "effect"] == pytest.approx(gap[model])
        assert mine.loc[model, "ci_low"] < gap[model] < mine.loc[model, "ci_high"]
        assert (mine.loc[model, "n"], mine.loc[model, "subjects"]) == (120, 20)
    assert mine.loc[POOLED, "effect"] == pytest.approx(gap.mean())

    per = scores.groupby(["metric", "generator"])["value"].mean()
    rho = stats.spearmanr(per["sics"], per["clip_t"]).statistic
    row = frame[frame["claim"] == "trade_off_over_models"].iloc[0]
    assert row["effect"] == pytest.approx(rho)

    subject = (
        sics[sics["generator"] == "a"]
        .groupby("subject_id")
        .agg(value=("value", "mean"), level=("difficulty", "first"))
    )
    rank = subject["level"].map(records.DIFFICULTIES.index)
    trend = frame[frame["claim"] == "difficulty_trend"].set_index("generator")
    assert trend.loc["a", "effect"] == pytest.approx(
        stats.spearmanr(rank, subject["value"]).statistic
    )


def test_interval_is_the_bootstrap_of_the_drawn_subjects() -> None:
    scores = world(difficulty=(0.1, 0.0, -0.1)).query("generator == 'b'")
    frame = findings.findings(scores, DIMENSIONS, draws=40, seed=7).set_index("claim")
    row = frame.loc["hard_below_easy"].query("generator == 'b'").iloc[0]
    sics = scores[scores["metric"] == "sics"]
    subjects = sorted(set(sics["subject_id"]))
    rng = np.random.default_rng(7)
    drawn = []
    for counts in rng.multinomial(len(subjects), [1 / len(subjects)] * len(subjects), size=40):
        copies = sics["subject_id"].map(dict(zip(subjects, counts)))
        sample = sics.loc[sics.index.repeat(copies)]
        by = sample.groupby("difficulty")["value"].mean()
        drawn.append(by["hard"] - by["easy"])
    assert [row["ci_low"], row["ci_high"]] == pytest.approx(np.quantile(drawn, [0.025, 0.975]))


def test_paired_p_against_scipy() -> None:
    part = np.random.default_rng(0).normal(size=(7, 4))
    p = findings._better(part)
    for i in range(4):
        for j in range(4):
            if i != j:
                expected = stats.ttest_rel(part[:, i], part[:, j], alternative="greater").pvalue
                assert p[i, j] == pytest.approx(expected)
    assert (findings._better(part[:2]) == 1).all()


def test_categories_are_counted() -> None:
    frame = findings.findings(world(own_category=1.0), DIMENSIONS, **FAST)
    mine = frame[frame["claim"] == "no_model_best_in_all_categories"]
    mine = mine[mine["dimension"] == "preservation"].set_index("generator")
    assert mine["effect"].tolist() == [1.0] * 6
    assert set(mine["unit"]) == {"categories of 5 with the highest mean"}
    assert mine["note"].iloc[0] == "1 of them separable from every other model"
    assert "5 of 5 categories have a separable best" in mine.loc[POOLED, "note"]


def test_a_domain_makes_other_categories() -> None:
    scores = world()
    number = scores["subject_id"].str[1:].astype(int)
    domain = np.where(number % 2 == 0, "Photorealistic", "Non-photorealistic")
    frame = findings.findings(scores.assign(domain=domain), DIMENSIONS, **FAST)
    assert "categories of 10 with the highest mean" in set(frame["unit"])


# --------------------------------------------------------------------------- robustness


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 1000), st.permutations(MODELS), st.booleans())
def test_row_order_and_names_of_models_cannot_matter(
    seed: int, names: list[str], clear: bool
) -> None:
    scores = world(**TRUE) if clear else world(noise=0.1, paired=False)
    order = np.random.default_rng(seed).permutation(len(scores))
    renamed = dict(zip(MODELS, names))
    other = scores.loc[order].assign(generator=scores["generator"].map(renamed))
    fast = {"draws": 60, "seed": 2}
    first = findings.findings(scores, DIMENSIONS, generators=list(MODELS), **fast)
    second = findings.findings(other, DIMENSIONS, generators=names, **fast)
    assert first["verdict"].tolist() == second["verdict"].tolist()
    np.testing.assert_allclose(first["effect"], second["effect"], atol=1e-9)
    np.testing.assert_allclose(first["ci_low"], second["ci_low"], atol=1e-9)


def test_names_of_subjects_cannot_turn_a_plain_verdict() -> None:
    scores = world(**TRUE)
    turned = scores["subject_id"].map(lambda s: f"x{(int(s[1:]) * 7) % 30:02}")
    assert all_models(scores) == all_models(scores.assign(subject_id=turned))


def test_missing_labels_dimensions_and_coverage_are_said() -> None:
    scores = world(**TRUE).assign(category="Toy", difficulty=None)
    frame = findings.findings(scores, {"preservation": "sics"}, **FAST).set_index("claim")
    for claim, words in {
        "hard_below_easy": "no cases with difficulty hard",
        "hard_below_easy_for_every_model": "not computable for any model",
        "difficulty_trend": "no preservation scores of two levels",
        "book_lower": "no cases with category Book",
        "attribute_harder_to_follow": "no metric stands for following",
        "trade_off_over_models": "needs preservation and following",
        "no_model_best_in_all_categories": "1 categories that the models share",
        "preservation_metric_agrees_best": "needs ratings",
    }.items():
        row = frame.loc[[claim]]
        assert row["verdict"].tolist() == [NOT_COMPUTABLE] and words in row["note"].iloc[0], claim
        assert row["effect"].isna().all() and row["generator"].tolist() == [POOLED]


def test_a_model_below_coverage_is_left_out_and_said() -> None:
    scores = world(**TRUE)
    mine = scores.index[(scores["generator"] == "c") & (scores["metric"] == "sics")][:60]
    scores.loc[mine, ["status", "value"]] = ["failed", np.nan]
    frame = findings.findings(scores, DIMENSIONS, **FAST)
    row = frame[frame["claim"] == "hard_below_easy"].set_index("generator")
    assert row.loc["c", "verdict"] == NOT_COMPUTABLE
    assert row.loc["c", "note"] == "coverage 0.667 below 0.900"
    assert row.loc[POOLED, "verdict"] == HOLDS and row.loc[POOLED, "note"] == "4 of 5 models"
    every = frame[frame["claim"] == "hard_below_easy_for_every_model"].iloc[0]
    assert (every["verdict"], every["note"]) == (NOT_COMPUTABLE, "not computable for c")


def test_few_subjects_or_draws_decide_nothing() -> None:
    scores = world(**TRUE)
    few = scores[scores["subject_id"].isin(["s00", "s01", "s02", "s04", "s05"])]
    found = findings.findings(few, DIMENSIONS, **FAST).set_index("claim")
    assert set(found.loc["hard_below_easy", "verdict"]) == {NOT_COMPUTABLE}
    assert "1 subjects on one side" in found.loc["hard_below_easy", "note"].iloc[0]
    frame = findings.findings(scores, DIMENSIONS, draws=0)
    by_draws = frame[~frame["claim"].str.contains("categories")]
    assert set(by_draws["verdict"]) == {NOT_COMPUTABLE}


def test_nothing_scored_is_no_crash() -> None:
    scores = world().assign(status="failed", value=np.nan)
    for frame in (scores, scores.iloc[:0]):
        found = findings.findings(frame, DIMENSIONS, **FAST)
        assert set(found["verdict"]) == {NOT_COMPUTABLE} and found["effect"].isna().all()
        assert (found["note"] != "").all()


def test_unknown_dimension() -> None:
    with pytest.raises(InputError, match="preservaton"):
        findings.findings(world(), {"preservaton": "sics"})


def test_every_row_is_explained() -> None:
    frame = findings.findings(world(**TRUE), DIMENSIONS, **FAST)
    assert list(frame.columns) == findings.COLUMNS
    assert set(frame["verdict"]) <= set(findings.VERDICTS)
    decided = frame[frame["verdict"] != NOT_COMPUTABLE]
    assert (decided[["rule", "unit", "source", "statement"]] != "").all().all()
    assert decided["effect"].notna().all() and (decided["n"] > 0).all()
    assert not frame.duplicated(["claim", "dimension", "generator", "unit"]).any()
