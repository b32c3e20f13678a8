"""The miniworld's UFO side: categories, paradigms in conflict, units, and models that run on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from subjectbench import records
from subjectbench.benchmarks.miniworld_ufo import NOUNS as BY_CATEGORY
from subjectbench.benchmarks.miniworld_ufo import PLUGIN as MiniworldUfo
from subjectbench.benchmarks.miniworld_ufo import RECOLOURED, counts, make_cases, make_units
from subjectbench.benchmarks.ufo_bench import BY_PARADIGM, CATEGORIES
from subjectbench.config import load_study
from subjectbench.hashing import sha256
from subjectbench.miniworld.scenes import VOCABULARY, Scene, requested
from subjectbench.miniworld.subjects import COLOURS, MARKINGS, NOUNS, TEXTURES, Subject
from subjectbench.plan import make_plan
from subjectbench.stages import generate, prepare, rate
from subjectbench.stages.base import Context
from subjectbench.vocabulary import PARADIGMS

LOCAL = {"imagination", "companion", "occluder"}
GLOBAL = {"style", "new_colour", "new_texture"}
FREE = {"background", "view"}


def world(**params: Any) -> MiniworldUfo:
    return MiniworldUfo(MiniworldUfo.Params(**params), Path())


def parsed(benchmark: MiniworldUfo) -> list[tuple[Any, Subject, Scene]]:
    out = []
    for row in benchmark.cases().itertuples():
        details = json.loads(row.details)
        assert set(details) == {"scene", "subject"}
        subject = Subject.from_dict(details["subject"])
        out.append((row, subject, Scene.from_dict(details["scene"])))
    return out


BIG = parsed(world(subjects=5, cases=24))


def test_seven_categories_four_paradigms() -> None:
    assert tuple(BY_CATEGORY) == CATEGORIES and MiniworldUfo.synthetic
    nouns = [n for names in BY_CATEGORY.values() for n in names]
    assert sorted(nouns) == sorted(NOUNS)  # none twice, none left out
    cases = world().cases()
    assert len(cases) == 7 * 2 * 6 and cases["subject_id"].nunique() == 14
    assert cases["category"].value_counts().to_dict() == dict.fromkeys(CATEGORIES, 12)
    assert cases["paradigm"].value_counts().to_dict() == {
        "non_editing": 14,
        "local_editing": 28,
        "global_editing": 28,
        "complex_editing": 14,
    }
    assert len({(r.subject_id, r.prompt) for r in cases.itertuples()}) == len(cases)


@given(st.integers(4, 24))
def test_shares_of_paradigms_are_the_papers(cases: int) -> None:
    split = counts(cases)
    assert sum(split.values()) == cases and tuple(split) == PARADIGMS
    for paradigm, count in split.items():
        assert count >= 1 and abs(count - cases * BY_PARADIGM[paradigm] / 660) < 1


def test_each_paradigm_asks_for_its_own_kind_of_edit() -> None:
    for row, subject, scene in BIG:
        asked = set(requested(scene)) - FREE
        assert requested(scene), row.prompt
        if row.paradigm == "non_editing":
            assert not asked
        elif row.paradigm == "local_editing":
            assert asked and asked <= LOCAL
        elif row.paradigm == "global_editing":
            assert asked and asked <= GLOBAL
        else:
            assert asked & LOCAL and asked & GLOBAL
        # In conflict: what the text asks for is never what the reference shows already.
        own = {subject.colour, subject.second_colour, subject.marking_colour}
        assert scene.new_colour not in own and scene.new_texture != subject.texture


def test_prompts_use_the_models_words() -> None:
    for row, subject, _ in BIG:
        words = row.prompt.split()
        assert set(words) <= set(VOCABULARY) and len(words) <= 20 and subject.noun in words
        assert row.subject == subject.noun and subject.noun in BY_CATEGORY[row.category]


def test_stand_ins_are_what_they_stand_for() -> None:
    flat = {(r.category, s.domain) for r, s, _ in BIG}
    assert {d for c, d in flat if c in ("Logo", "Character-Full body")} == {"Non-photorealistic"}
    assert {s.marking for r, s, _ in BIG if r.category == "Logo"} & {"none"} == set()
    looks = {s.subject_id: {**s.to_dict(), "subject_id": ""} for _, s, _ in BIG}
    assert len({json.dumps(v, sort_keys=True) for v in looks.values()}) == len(looks) == 35


def test_more_of_it_changes_nothing_of_the_rest() -> None:
    few, many = world(subjects=2).cases(), world(subjects=4).cases()
    assert many[many["subject_id"].isin(few["subject_id"])].reset_index(drop=True).equals(few)
    assert not world(seed=1).cases()["prompt"].equals(few["prompt"])


def digest() -> str:
    benchmark = world(subjects=1)
    text = benchmark.cases().to_json()
    units = {c: [u.model_dump() for u in us] for c, us in benchmark.units().items()}
    pictures = b"".join(data or b"" for _, data in benchmark.references())
    return sha256(text.encode() + json.dumps(units).encode() + pictures)


def test_same_bytes_in_another_process() -> None:
    here = Path(__file__).parent
    path = os.pathsep.join([str(here), str(here.parents[1] / "workflow")])
    out = subprocess.run(
        [sys.executable, "-c", "import test_miniworld_ufo as t; print(t.digest())"],
        env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert out.strip() == digest()


# --- units ---------------------------------------------------------------------------------------


def test_units_cover_what_is_asked_and_what_is_shown() -> None:
    asks = {"new_colour": "colour", "new_texture": "texture"}
    for row, subject, scene in BIG:
        units = {u.name: u for u in make_units(row.category, subject, scene)}
        assert len({u.unit_id for u in units.values()}) == len(units)
        for part in requested(scene):
            unit = units[asks.get(part, part)]
            assert unit.relevance == ("text_and_image" if part in asks else "text_only")
        shown = {"texture", "shape"}
        shown |= {"colour"} if scene.style not in RECOLOURED else set()
        shown |= {"marking"} if subject.marking != "none" else set()
        shown |= {"face"} if row.category == "Human" else set()
        kept = {n for n, u in units.items() if u.relevance == "image_only"}
        assert kept | {asks[p] for p in requested(scene) if p in asks} == shown
        assert ("colour" in units) == (scene.style not in RECOLOURED)
        assert {u.level for n, u in units.items() if n in FREE} <= {"setting"}
        assert [n for n, u in units.items() if u.tool == "face"] == (
            ["face"] if row.category == "Human" else []
        )
        assert max(u.weight for u in units.values()) >= 4 and not any(
            u.about for u in units.values()
        )


def test_questions_never_tell_the_answer_or_the_other_condition() -> None:
    values = {*COLOURS, *TEXTURES, *MARKINGS[1:], *NOUNS} - {"face", "plain", "letter", "ring"}
    seen = Counter()
    for row, subject, scene in BIG:
        for unit in make_units(row.category, subject, scene):
            words = set(unit.question.lower().strip("?").split())
            assert not words & values, unit.question
            assert ("prompt" in words) == (unit.relevance != "image_only")
            assert ("reference" in words) == (unit.relevance != "text_only")
            seen[unit.relevance] += 1
    assert len(seen) == 3


def test_logos_are_their_marking_and_edits_weigh_most() -> None:
    for row, subject, scene in BIG:
        units = {u.name: u for u in make_units(row.category, subject, scene)}
        if row.category == "Logo":
            assert units["marking"].weight == 5
        for name in ("style", "imagination", "companion"):
            assert name not in units or units[name].weight == 5
        if "background" in units:
            assert units["background"].weight == (4 if row.paradigm == "non_editing" else 2)


def test_units_of_the_benchmark_are_those_of_its_cases() -> None:
    benchmark = world(subjects=1, cases=4)
    units = benchmark.units()
    assert benchmark.has_units and list(units) == list(benchmark.cases()["case_id"])
    assert {len(u) for u in units.values()} <= set(range(3, 10))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from(range(0, len(BIG), 24)), st.integers(4, 24))
def test_cases_of_any_seed_are_cases(seed: int, index: int, count: int) -> None:
    subject = BIG[index][1]
    cases = make_cases(subject, seed, count)
    assert len({c[0] for c in cases}) == len({c[2] for c in cases}) == count
    assert make_cases(subject, seed, count) == cases


# --- models --------------------------------------------------------------------------------------


def test_simulated_models_controls_and_raters_run_on_it(tmp_path: Path) -> None:
    simulated = ["sim_copy_paste", "sim_ignored_prompt", "sim_identity_drift"]
    study = {
        "study": "contract",
        "benchmark": {"card": "miniworld_ufo", "params": {"subjects": 1, "cases": 4}},
        "generators": [*simulated, "shuffled_subject"],
        "metrics": ["mini_clip_t"],
        "raters": "miniworld_ranks",
        "results": str(tmp_path),
    }
    plan = make_plan(load_study(study))
    (artifact,) = plan.of_kind("benchmark")
    prepare.run(Context(plan, artifact))
    references = records.read_table("references", plan.folder(artifact.key) / "references.parquet")
    assert len(references) == 7 and set(references["status"]) == {"ok"}
    for made in plan.of_kind("generate"):
        generate.run(Context(plan, made))
        samples = records.read_table("samples", plan.folder(made.key) / "samples.parquet")
        assert len(samples) == 28 and set(samples["status"]) == {"ok"}
        truths = [json.loads(d).get("truth") for d in samples["details"]]
        if made.job["use"]["card"] in simulated:
            assert all(set(t) == {"preservation", "following", "quality"} for t in truths)
    (rated,) = plan.of_kind("rate")
    rate.run(Context(plan, rated))
    ratings = records.read_table("ratings", plan.folder(rated.key) / "ratings.parquet")
    assert len(ratings) == 28 * 3 * 5 and set(ratings["generator"]) == set(simulated)
    assert set(ratings["status"]) == {"ok"} and ratings["value"].between(0, 2).all()
