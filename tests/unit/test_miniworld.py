import hashlib
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from subjectbench import cards
from subjectbench.benchmarks.miniworld import PLUGIN as Miniworld
from subjectbench.config import Use
from subjectbench.miniworld import defects
from subjectbench.miniworld.draw import draw
from subjectbench.miniworld.scenes import (
    PARTS,
    VOCABULARY,
    Scene,
    caption,
    make_prompts,
    prompt_for,
    random_scene,
    reference_scene,
    requested,
)
from subjectbench.miniworld.subjects import NOUNS, Subject, looks, make_subjects, random_subject
from subjectbench.records import DIFFICULTIES, SCENARIOS

SEEDS = st.integers(0, 2**31 - 1)
STRENGTHS = st.floats(0, 1)
FAST = settings(max_examples=30, deadline=None)


def _digest() -> str:
    sha = hashlib.sha256()
    for subject in make_subjects(5, 3):
        for _, prompt, scene in make_prompts(subject, 5):
            sha.update(draw(subject, scene).tobytes() + prompt.encode())
            sha.update(caption(subject, scene).encode())
    return sha.hexdigest()


def test_same_bytes_in_another_process():
    code = "import test_miniworld as t; print(t._digest())"
    here = Path(__file__).parent
    path = os.pathsep.join([str(here), str(here.parents[1] / "workflow")])
    env = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "7"}
    other = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )
    assert other.stdout.strip() == _digest()


def test_subjects_are_balanced_and_unlike():
    subjects = make_subjects(0, 24)
    assert Counter(s.difficulty for s in subjects) == dict.fromkeys(DIFFICULTIES, 8)
    assert Counter(s.domain for s in subjects) == {"Photorealistic": 12, "Non-photorealistic": 12}
    assert Counter(s.kind for s in subjects) == {"Object": 12, "Animal": 8, "Human": 4}
    assert len({s.subject_id for s in subjects}) == len({looks(s) for s in subjects}) == 24
    assert {s.noun for s in subjects} == set(NOUNS)
    assert make_subjects(0, 7) == subjects[:7]
    assert make_subjects(1, 24) != subjects


@pytest.mark.parametrize("difficulty", DIFFICULTIES)
def test_difficulty_is_surface_complexity(difficulty):
    for s in (s for s in make_subjects(2, 30) if s.difficulty == difficulty):
        detail = (s.texture != "plain") + (s.marking != "none")
        assert detail == DIFFICULTIES.index(difficulty)


def test_two_prompts_for_each_scenario():
    known = set(VOCABULARY)
    for subject in make_subjects(0, 24):
        cases = make_prompts(subject, 0)
        assert [c[0] for c in cases] == [s for s in SCENARIOS for _ in range(2)]
        assert cases == make_prompts(subject, 0)
        for scenario, prompt, scene in cases:
            words = prompt.split()
            assert subject.noun in words and len(words) <= 20 and set(words) <= known
            assert requested(scene)
            assert ("new_colour" in requested(scene)) == (scenario == "attribute")
            assert set(caption(subject, scene).split()) <= known


@FAST
@given(SEEDS)
def test_round_trip_and_prompt_words(seed):
    rng = np.random.default_rng(seed)
    subject, scene = random_subject(rng), random_scene(rng, parts=3)
    assert Subject.from_dict(subject.to_dict()) == subject
    assert Scene.from_dict(scene.to_dict()) == scene
    assert {*prompt_for(subject.noun, scene, seed).split()} <= {*VOCABULARY}


@FAST
@given(SEEDS, STRENGTHS, STRENGTHS)
def test_identity_drift_is_nested(seed, one, two):
    def drift(strength):
        return defects.drift_identity(subject, strength, np.random.default_rng(seed))

    subject = random_subject(np.random.default_rng(seed))
    low, high = sorted((one, two))
    assert 0 <= drift(high)[1] <= drift(low)[1] <= 1
    assert drift(0.0) == (subject, 1.0)
    if subject.marking != "none":
        assert drift(1.0)[1] == 0
    assert drift(1.0)[1] <= 0.1


def test_drift_is_about_one_minus_strength():
    for strength in (0.25, 0.5, 0.75):
        kept = []
        for seed in range(200):
            rng = np.random.default_rng(seed)
            kept.append(defects.drift_identity(random_subject(rng), strength, rng)[1])
        assert abs(np.mean(kept) - (1 - strength)) < 0.1


def test_what_the_prompt_changes_is_not_counted():
    subject = make_subjects(0, 1)[0]
    other = Subject.from_dict({**subject.to_dict(), "colour": "cyan", "second_colour": "cyan"})
    assert defects.preservation(subject, other, reference_scene()) == pytest.approx(0.75)
    assert defects.preservation(subject, other, Scene(new_colour="cyan")) == pytest.approx(1)


@FAST
@given(SEEDS, STRENGTHS, STRENGTHS)
def test_ignoring_is_nested(seed, one, two):
    def ignore(strength):
        return defects.ignore_prompt(scene, strength, np.random.default_rng(seed))

    scene = random_scene(np.random.default_rng(seed), parts=3)
    low, high = sorted((one, two))
    assert 0 <= ignore(high)[1] <= ignore(low)[1] <= 1
    assert ignore(0.0) == (scene, 1.0)
    gone, truth = ignore(1.0)
    assert not requested(gone) and truth == (0.0 if requested(scene) else 1.0)
    assert gone.scale == scene.scale


@FAST
@given(SEEDS, STRENGTHS, st.sampled_from(defects.ARTEFACTS))
def test_damage_limits(seed, strength, kind):
    image = draw(make_subjects(0, 3)[2], Scene(background="forest"))
    hurt, quality = defects.damage(image, strength, np.random.default_rng(seed), kind)
    again, _ = defects.damage(image, strength, np.random.default_rng(seed), kind)
    assert quality == 1 - strength and hurt.size == image.size and hurt.mode == "RGB"
    assert hurt.tobytes() == again.tobytes()
    if strength == 0:
        assert hurt.tobytes() == image.tobytes()


@pytest.mark.parametrize("kind", defects.ARTEFACTS)
def test_more_damage_is_farther_from_the_clean_picture(kind):
    image = draw(make_subjects(0, 3)[2], Scene(background="forest"))
    far = []
    for strength in (0.1, 0.4, 1.0):
        gaps = []
        for seed in range(4):
            hurt, _ = defects.damage(image, strength, np.random.default_rng(seed), kind)
            gap = np.asarray(hurt, float) - np.asarray(image, float)
            gaps.append(np.abs(gap).mean())
        far.append(np.mean(gaps))
    assert 0 < far[0] < far[1] < far[2]


@pytest.mark.parametrize("part", PARTS)
def test_every_part_shows(part):
    value = {
        "background": "beach", "view": "tilted", "companion": "tree", "occluder": "fence",
        "new_colour": "green", "new_texture": "dotted", "style": "sketch", "imagination": "crown",
    }[part]  # fmt: skip
    subject = make_subjects(0, 1)[0]
    scene = Scene(**{part: value})
    assert draw(subject, scene).tobytes() != draw(subject, reference_scene()).tobytes()
    assert draw(subject, scene, 32).size == (32, 32)
    assert caption(subject, scene) and prompt_for(subject.noun, scene)


@pytest.mark.parametrize("noun", NOUNS)
def test_every_attribute_shows(noun):
    rng = np.random.default_rng(1)
    subject = random_subject(rng, noun=noun, difficulty="hard")
    plain = draw(subject, reference_scene()).tobytes()
    drifted, _ = defects.drift_identity(subject, 1.0, rng)
    for name in defects.WEIGHTS:
        changed = Subject.from_dict({**subject.to_dict(), name: getattr(drifted, name)})
        assert draw(changed, reference_scene()).tobytes() != plain, name


def test_unknown_artefact_is_named():
    with pytest.raises(ValueError, match="blurr"):
        defects.damage(
            draw(make_subjects(0, 1)[0], Scene()), 0.5, np.random.default_rng(0), "blurr"
        )


def miniworld(**params):
    return Miniworld(Miniworld.Params(**params), Path())


def test_a_choice_of_difficulties_and_scenarios_is_part_of_the_same_world():
    whole = miniworld(subjects=24).cases().set_index("case_id")
    assert len(whole) == 24 * 12
    part = miniworld(subjects=8, difficulties=["hard"], scenarios=["style", "background"]).cases()
    assert part["subject_id"].nunique() == 8 and len(part) == 8 * 4
    assert set(part["difficulty"]) == {"hard"} and set(part["scenario"]) == {"style", "background"}
    part = part.set_index("case_id")
    pd.testing.assert_frame_equal(part, whole.loc[part.index])
    assert set(part["subject_id"]) == set(whole.loc[whole["difficulty"] == "hard", "subject_id"])


def test_miniworlds_of_table_2_differ_as_its_benchmarks_do():
    worlds = {}
    for name in ("miniworld_dreambench", "miniworld_dreambench_plus", "miniworld"):
        params = cards.params("benchmark", Use(card=name), name)
        worlds[name] = Miniworld(params, Path()).cases()
    subjects = [cases["subject_id"].nunique() for cases in worlds.values()]
    assert subjects == sorted(subjects) and len(set(subjects)) == 3
    hard = [(cases["difficulty"] != "easy").mean() for cases in worlds.values()]
    assert hard[0] == 0 < hard[1] < hard[2]
    covered = [set(cases["scenario"]) for cases in worlds.values()]
    assert covered[0] < covered[2] and covered[1] < covered[2] and covered[0] != covered[1]
    looked = [set(c["details"]) for c in worlds.values()]
    assert not looked[0] & looked[1] and not looked[0] & looked[2]


@pytest.mark.parametrize(
    "params", [{"difficulties": []}, {"difficulties": ["mid"]}, {"scenarios": ["styles"]}]
)
def test_unknown_choices_are_refused(params):
    with pytest.raises(ValidationError):
        miniworld(**params)
