"""What every plug-in promises, for every card: a new one is tested by being there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from tests.picture_server import PictureServer, desk, png

from subjectbench import cards
from subjectbench.config import Use, load_study
from subjectbench.encoders.base import Vector
from subjectbench.encoders.faces import FaceEncoder
from subjectbench.generators.base import Generator, Job, Outcome
from subjectbench.hashing import subject_shard
from subjectbench.plan import EMBEDDINGS, Asked, make_plan
from subjectbench.stages import generate, prepare, train
from subjectbench.stages.base import Context, of_shard
from subjectbench.stages.trained import Trained
from subjectbench.vocabulary import Status

ALL = [(kind, name) for kind in cards.KINDS for name in cards.names(kind)]
HEAVY = ("torch", "pandas", "pandera", "diffusers", "transformers", "scipy", "matplotlib")
IMPORTS = f"""
import importlib, json, sys
heavy, out = set({HEAVY}), {{}}
for name in sys.argv[1:]:
    importlib.import_module(name)
    out[name] = sorted(heavy & set(sys.modules))
    heavy -= set(sys.modules)
print(json.dumps(out))
"""


def needs_weights(kind: str, name: str) -> None:
    weights = cards.load(kind, name).weights
    if weights is None or weights.package:
        return
    if not (weights.path and (cards.ROOT / weights.path).is_dir()):
        pytest.skip(f"weights not here: {weights.path or weights.repository}")


def test_there_are_cards_of_every_kind() -> None:
    assert all(cards.names(kind) for kind in cards.KINDS)


@pytest.mark.parametrize(("kind", "name"), ALL)
def test_card_and_plugin_are_valid(kind: str, name: str) -> None:
    card = cards.load(kind, name)
    plugin = cards.plugin(kind, card, name)
    assert card.title and card.about
    assert isinstance(plugin.version, str) and plugin.version
    assert plugin.Params.model_config.get("extra") == "forbid"
    required = {n for n, f in plugin.Params.model_fields.items() if f.is_required()}
    if required <= set(card.params):
        assert cards.params(kind, Use(card=name), name).model_dump(mode="json") is not None
    if kind == "metric" and required <= set(card.params):
        needs = plugin(cards.params(kind, Use(card=name), name), card, cards.ROOT).needs
        assert bool(needs & EMBEDDINGS) == bool(card.encoder)
        assert needs <= EMBEDDINGS | {"answers", "units"}
        assert ("answers" in needs) == bool(card.rubric)
        if "units" in needs:
            rubric = cards.load("rubric", card.rubric)
            asked = cards.plugin("rubric", rubric, "")
            assert "units" in asked.needs and rubric.decomposition
        if card.encoder:
            encoder = cards.load("encoder", card.encoder)
            plugin = cards.plugin("encoder", encoder, "")
            assert "text" not in needs or plugin.embeds_text
            assert (needs & EMBEDDINGS == {"pair"}) == plugin.embeds_pairs


@pytest.mark.parametrize("name", cards.names("metric"))
def test_a_metrics_card_says_what_its_values_are(name: str) -> None:
    card = cards.load("metric", name)
    assert {"scale", "range", "direction", "license", "source"} <= card.model_fields_set
    assert card.scale and card.license and card.source and card.range[0] < card.range[1]


@pytest.mark.parametrize("name", cards.names("encoder"))
def test_an_encoders_card_names_one_model(name: str) -> None:
    card = cards.load("encoder", name)
    assert card.license and card.source and "reprocessing" in card.about
    if name == "thumbnail":  # the one that is no model
        assert card.weights is None
        return
    assert card.weights and (card.weights.revision or card.weights.sha256 or card.weights.path)


@pytest.mark.parametrize(("kind", "name"), ALL)
def test_the_identity_names_the_plugins_own_code(kind: str, name: str) -> None:
    needs_weights(kind, name)
    card = cards.load(kind, name)
    required = {
        n for n, f in cards.plugin(kind, card, name).Params.model_fields.items() if f.is_required()
    }
    if not required <= set(card.params):
        pytest.skip(f"the study must set {sorted(required - set(card.params))}")
    stage = {"benchmark": "prepare", "generator": "generate", "encoder": "embed"}
    stage |= {"metric": "score", "raters": "rate", "judge": "judge", "rubric": "judge"}
    stage |= {"decomposition": "decompose"}
    asked = Asked.of(kind, Use(card=name), name)
    code = asked.components(stage[kind])["code"]
    assert f"subjectbench.{cards.room(kind)}.{card.plugin}" in code


@cache
def heavy_imports() -> dict[str, list[str]]:
    modules = {f"subjectbench.{cards.room(k)}.{cards.load(k, n).plugin}" for k, n in ALL}
    out = subprocess.run(
        [sys.executable, "-c", IMPORTS, "subjectbench.plan", *sorted(modules)],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(cards.ROOT / "workflow")},
    ).stdout
    return dict(json.loads(out))


@pytest.mark.parametrize(("kind", "name"), ALL)
def test_planning_imports_nothing_heavy(kind: str, name: str) -> None:
    found = heavy_imports()
    assert found["subjectbench.plan"] == []
    assert found[f"subjectbench.{cards.room(kind)}.{cards.load(kind, name).plugin}"] == []


# --- generators ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> prepare.Prepared:
    """The miniworld with three subjects, made by the real stage."""
    folder = tmp_path_factory.mktemp("prepared")
    scores = folder / "scores"
    scores.mkdir()
    (scores / "noise.json").write_text('{"a.jpg": {"CLIP_I": 0.5}}')
    study = {
        "study": "contract",
        "benchmark": {"card": "miniworld", "params": {"subjects": 3}},
        "generators": ["noise"],
        "metrics": [{"card": "imagenhub_clip_i", "params": {"folder": str(scores)}}],
        "results": str(folder / "results"),
    }
    plan = make_plan(load_study(study))
    (artifact,) = plan.of_kind("benchmark")
    prepare.run(Context(plan, artifact))
    return prepare.Prepared(plan.folder(artifact.key))


@pytest.fixture(scope="module")
def group(prepared: prepare.Prepared) -> pd.DataFrame:
    """Two pictures asked for, of one subject, as the stage hands them over."""
    job = {"shard": 0, "shards": 1, "samples_per_case": 1, "seed": 0}
    wanted = generate._wanted(prepared, job)
    assert len(wanted) == 36 and wanted["seed"].is_unique
    return wanted[wanted["subject_id"] == prepared.subjects[0]].head(2)


@pytest.fixture(scope="module")
def pictures() -> Iterator[PictureServer]:
    """Stands for the servers of all models behind one: each request is a new picture."""
    server = PictureServer()
    yield server
    server.close()


def given(prepared: prepare.Prepared) -> Path:
    """A folder with a picture of every case, made elsewhere."""
    folder = prepared.folder / "given"
    folder.mkdir(exist_ok=True)
    for number, case in enumerate(prepared.cases["case_id"]):
        (folder / f"{case}-s0.png").write_bytes(png(number))
    return folder


def build(name: str, prepared: Any, server: PictureServer) -> Generator:
    card = cards.load("generator", name)
    use = Use(card=name)
    if cards.plugin("generator", card, name).given:
        use = Use(card=name, params={"path": str(given(prepared)), "pattern": "{sample_id}.png"})
    params = cards.params("generator", use, name)
    if cards.plugin("generator", card, name).remote:
        params = params.model_copy(update={"base_url": server.url, "key_env": None})
    if "steps" in type(params).model_fields:  # the contract does not depend on how good it looks
        params = params.model_copy(update={"steps": 2})
    generator: Generator = cards.plugin("generator", card, name)(params, card, prepared, "cpu")
    generator.desk = desk(prepared.folder / "asked")
    return generator


def trained(name: str, prepared: prepare.Prepared) -> Trained | None:
    """What the real stage trains for the benchmark's subjects in two steps; None: nothing."""
    if not cards.plugin("generator", cards.load("generator", name), name).tuning:
        return None
    study = {
        "study": "contract",
        "benchmark": {"card": "miniworld", "params": {"subjects": 3}},
        "generators": [{"card": name, "params": {"training_steps": 2}}],
        "metrics": ["mini_dino"],
        "results": str(prepared.folder.parents[3]),
    }
    plan = make_plan(load_study(study))
    (artifact,) = plan.of_kind("train")
    train.run(Context(plan, artifact))
    return Trained(plan.folder(artifact.key))


@pytest.mark.parametrize("name", cards.names("generator"))
def test_generator(
    name: str, prepared: prepare.Prepared, group: pd.DataFrame, pictures: PictureServer
) -> None:
    """GEN-04: a picture depends on its job, never on its neighbours."""
    needs_weights("generator", name)
    if cards.plugin("generator", cards.load("generator", name), name).external:
        rows, pictures = generate._group(None, prepared, group)
        assert pictures == {} and {r["status"] for r in rows} == {"external"}
        return
    generator = build(name, prepared, pictures)
    own = trained(name, prepared)
    rows, made = generate._group(generator, prepared, group, own)
    assert [r["sample_id"] for r in rows] == list(group["sample_id"])
    assert {r["status"] for r in rows} == {"ok"}, rows
    assert set(made) == {f"{r['sample_id']}.png" for r in rows}
    assert all(isinstance(json.loads(r["details"]), dict) for r in rows)
    assert generate._group(generator, prepared, group, own) == (rows, made)
    again = build(name, prepared, pictures)
    other_rows, other = generate._group(again, prepared, group.iloc[::-1], own)
    assert (other_rows[::-1], other) == (rows, made)
    alone = generate._group(again, prepared, group.tail(1), own)
    assert alone == (rows[-1:], {k: made[k] for k in alone[1]})
    changed = generate._group(again, prepared, group.assign(seed=group["seed"] + 1), own)[1]
    if name not in ("copy_reference", "shuffled_subject", "imported_pictures"):
        assert changed != made, "the seed has no effect"
    for one in (generator, again):
        one.close()


class Scripted(Generator):
    """Returns what it is told to."""

    outcomes: list[Outcome]

    def generate(self, jobs: list[Job]) -> list[Outcome]:
        return self.outcomes


def test_one_colour_is_no_picture(prepared: prepare.Prepared, group: pd.DataFrame) -> None:
    """GEN-02: the black picture that a NaN ends as is not scored."""
    generator = Scripted(None, cards.load("generator", "noise"), prepared, "cpu")
    good = Image.fromarray(np.arange(64 * 64 * 3, dtype=np.uint8).reshape(64, 64, 3))
    generator.outcomes = [Outcome(Image.new("RGB", (64, 64))), Outcome(good)]
    rows, pictures = generate._group(generator, prepared, group)
    assert [r["status"] for r in rows] == ["invalid_image", "ok"]
    assert [r["image_sha256"] is None for r in rows] == [True, False]
    assert list(pictures) == [f"{rows[1]['sample_id']}.png"]
    generator.outcomes = [Outcome(None, Status.REFUSED, {"reason": "x"}), Outcome(good)]
    rows, _ = generate._group(generator, prepared, group)
    assert rows[0]["status"] == "refused" and json.loads(rows[0]["details"]) == {"reason": "x"}
    generator.outcomes = [Outcome(good)]
    with pytest.raises(RuntimeError, match="1 outcomes for 2 jobs"):
        generate._group(generator, prepared, group)


def test_a_shard_may_have_no_subject(prepared: prepare.Prepared) -> None:
    assert list(of_shard(prepared.cases, 0, 1)["case_id"]) == list(prepared.cases["case_id"])
    sizes = [of_shard(prepared.cases, shard, 97) for shard in range(97)]
    assert min(map(len, sizes)) == 0 and sum(map(len, sizes)) == len(prepared.cases)
    assert all(list(part.columns) == list(prepared.cases.columns) for part in sizes)


def test_shards_part_the_subjects_and_change_no_picture(prepared: prepare.Prepared) -> None:
    def wanted(shard: int, shards: int) -> pd.DataFrame:
        job = {"shard": shard, "shards": shards, "samples_per_case": 2, "seed": 5}
        return generate._wanted(prepared, job)

    whole = wanted(0, 1)
    parts = pd.concat([wanted(s, 4) for s in range(4)])
    columns = ["sample_id", "seed"]
    assert sorted(map(tuple, parts[columns].values)) == sorted(map(tuple, whole[columns].values))
    assert whole["sample_id"].is_unique and len(whole) == 72
    assert subject_shard("subject", 1) == 0


# --- encoders ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", cards.names("encoder"))
def test_encoder(name: str, picture: Callable[..., Image.Image]) -> None:
    needs_weights("encoder", name)
    card = cards.load("encoder", name)
    plugin = cards.plugin("encoder", card, name)
    encoder = plugin(cards.params("encoder", Use(card=name), name), card, "cpu")
    photos = [picture(1), picture(2, (64, 64)), picture(3, (30, 200))]
    if isinstance(encoder, FaceEncoder):  # stripes show no face; tests/unit/test_faces.py has some
        assert encoder.vectors(photos) == [Vector(Status.NO_FACE)] * 3
        return
    if encoder.embeds_pairs:  # tests/unit/test_image_reward.py has a small one
        assert encoder.pairs(photos, ["a", "b", "c"]).shape[0] == 3
        return
    vectors = encoder.images(photos)
    assert vectors.dtype == np.float32 and vectors.shape[0] == 3 and vectors.ndim == 2
    assert np.isfinite(vectors).all() and np.abs(vectors).sum(1).min() > 0
    assert encoder.images(photos[1:2]).tobytes() == vectors[1:2].tobytes()
    assert len({row.tobytes() for row in vectors}) == 3
    if encoder.embeds_text:
        texts = encoder.texts(["a red mug on a table", "a red mug on a chair", "x " * 200])
        assert texts.dtype == np.float32 and texts.shape == vectors.shape
        assert np.isfinite(texts).all() and len({row.tobytes() for row in texts}) == 3
    else:
        with pytest.raises(NotImplementedError):
            encoder.texts(["a"])
