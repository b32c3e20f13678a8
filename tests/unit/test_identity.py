"""What decides a key, and what must not."""

from __future__ import annotations

import importlib.metadata
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from subjectbench import cards
from subjectbench.cards import ROOT
from subjectbench.config import Use, load_study
from subjectbench.errors import InputError
from subjectbench.hashing import subject_shard
from subjectbench.plan import make_plan, plan_again
from subjectbench.store import Artifact, Plan, identity

WORKFLOW = Path(__file__).resolve().parents[2] / "workflow"

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
finite = scalars.filter(lambda v: not isinstance(v, float) or abs(v) < float("inf"))
trees = st.recursive(
    finite,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def shuffled(value: Any, rng: random.Random) -> Any:
    if isinstance(value, dict):
        items = list(value.items())
        rng.shuffle(items)
        return {k: shuffled(v, rng) for k, v in items}
    return [shuffled(v, rng) for v in value] if isinstance(value, list) else value


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.text(), trees, max_size=5), st.randoms(use_true_random=False))
def test_a_key_ignores_the_order_of_names(value: dict[str, Any], rng: random.Random) -> None:
    assert identity.digest(shuffled(value, rng)) == identity.digest(value)
    assert json.loads(identity.canonical(value)) == value


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.text(), finite, min_size=1, max_size=5), st.data())
def test_a_key_knows_names_and_values(value: dict[str, Any], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(value)))
    renamed = {(k + "x" if k == name else k): v for k, v in value.items()}
    if len(renamed) == len(value):
        assert identity.digest(renamed) != identity.digest(value)
    assert identity.digest(value | {name: [value[name]]}) != identity.digest(value)


def test_types_and_order_of_lists_count() -> None:
    values = [1, 1.0, "1", True, None, "", [], {}, [1, 2], [2, 1], {"a": 1}, {"b": 1}]
    assert len({identity.digest(v) for v in values}) == len(values)
    assert identity.digest({"a": 1}) == "015abd7f5cc5"  # a change of this renews every key
    assert identity.digest({"ü": [1.5, None]}) == "9935b6797c7f"


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        {1, 2},
        Path("x"),
        b"x",
        {"a": [float("nan")]},
        {1: "a"},
        {None: 1},
    ],
    ids=repr,
)
def test_what_is_no_json_is_refused(value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        identity.digest(value)


def artifact(**changes: Any) -> Artifact:
    return Artifact(
        **{
            "kind": "score",
            "name": "a/b",
            "components": {"params": {"k": 1}},
            "upstream": {"samples": "0" * 12},
            "files": ("x.parquet",),
            "job": {"use": {"card": "c"}},
        }
        | changes
    )


def test_what_an_artifacts_key_depends_on() -> None:
    base = artifact().key
    for change in (
        {"kind": "rate"},
        {"name": "a/c"},
        {"components": {"params": {"k": 2}}},
        {"components": {"params": {"j": 1}}},
        {"upstream": {"samples": "1" * 12}},
        {"upstream": {"references": "0" * 12}},
        {"files": ("y.parquet",)},
    ):
        assert artifact(**change).key != base, change
    assert artifact(job={"other": 1}).key == base
    assert len(base) == 12 and set(base) <= set("0123456789abcdef")


# --- code ----------------------------------------------------------------------------------------


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the library whose sources a test can edit."""
    copy = tmp_path / "subjectbench"
    shutil.copytree(WORKFLOW / "subjectbench", copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(identity, "PACKAGE", copy)
    return copy


def code(module: str = "subjectbench.metrics.cosine_text") -> dict[str, str]:
    identity._parsed.cache_clear()
    return identity.closure(module)


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), "utf-8")


def test_the_closure_follows_imports_but_not_the_neutral_rooms(package: Path) -> None:
    found = set(code())
    assert {
        "subjectbench.metrics.cosine_text",
        "subjectbench.metrics.cosine",
        "subjectbench.metrics.base",
        "subjectbench.vocabulary",
    } <= found
    assert not found & {"subjectbench.errors", "subjectbench.config", "subjectbench.cards"}
    assert not any(m.startswith("subjectbench.store") for m in found)


def test_imports_inside_functions_count(package: Path) -> None:
    found = code("subjectbench.benchmarks.miniworld")
    assert "subjectbench.miniworld.scenes" in found and "subjectbench.images" in found


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("needs = ", "# a comment\n    needs = "),
        ('"""Cosine between picture and prompt."""', '"""Another docstring."""'),
        ('"""Cosine between picture and prompt."""\n', "\n\n\n"),
        ('frozenset({"image", "text"})', "frozenset(\n        {'image',   'text'}\n    )"),
        ("    def other(", "\n\n\n    def other("),
    ],
    ids=["comment", "docstring", "no docstring", "format", "blank lines"],
)
def test_how_code_is_written_does_not_count(package: Path, old: str, new: str) -> None:
    before = code()
    edit(package / "metrics" / "cosine_text.py", old, new)
    assert code() == before


def test_a_body_of_only_a_docstring_may_lose_it(package: Path) -> None:
    before = code("subjectbench.generators.external")
    edit(package / "generators" / "external.py", '"""No parameters."""', "pass")
    assert code("subjectbench.generators.external") == before


def test_what_code_does_counts(package: Path) -> None:
    before = code()
    edit(package / "metrics" / "cosine_text.py", '"text"})', '"text", "reference"})')
    after = code()
    assert [m for m in after if after[m] != before[m]] == ["subjectbench.metrics.cosine_text"]


def test_an_edit_of_an_imported_module_counts(package: Path) -> None:
    """SMK-01: Snakemake alone would say 'Nothing to be done'."""
    before = code()
    edit(package / "metrics" / "cosine.py", "-1.0, 1.0", "0.0, 1.0")
    after = code()
    assert [m for m in after if after[m] != before[m]] == ["subjectbench.metrics.cosine"]
    edit(package / "metrics" / "cosine.py", "0.0, 1.0", "-1.0, 1.0")
    assert code() == before  # reverting is a hit


def test_an_edit_of_a_neutral_or_unrelated_module_does_not_count(package: Path) -> None:
    before = code()
    edit(package / "errors.py", "did you mean", "do you mean")
    edit(package / "store" / "folder.py", ".work", ".elsewhere")
    edit(package / "encoders" / "vit.py", "class token", "CLS token")
    assert code() == before


def test_an_unknown_module_stops(package: Path) -> None:
    with pytest.raises(InputError, match=r"subjectbench\.metrics\.nothing"):
        code("subjectbench.metrics.nothing")


# --- whole plans ---------------------------------------------------------------------------------


@pytest.fixture
def scores(tmp_path: Path) -> Path:
    folder = tmp_path / "scores"
    folder.mkdir()
    for name in ("noise", "copy_reference"):
        (folder / f"{name}.json").write_text('{"a.jpg": {"CLIP_I": 0.5}}')
    return folder


def study(scores: Path, **changes: Any) -> dict[str, Any]:
    return {
        "study": "trial",
        "benchmark": {"card": "miniworld", "params": {"subjects": 2}},
        "generators": ["noise", "copy_reference"],
        "metrics": [{"card": "imagenhub_clip_i", "params": {"folder": str(scores)}}],
    } | changes


def with_encoder(
    scores: Path, add: Callable[..., None], checkpoint: Path, **changes: Any
) -> dict[str, Any]:
    add(
        "encoder",
        "tiny",
        {
            "title": "Tiny",
            "plugin": "clip",
            "about": "random",
            "params": {"hidden_act": "quick_gelu"},
            "packages": ["torch", "transformers"],
            "weights": {"path": str(checkpoint)},
        },
    )
    metric = {"title": "T", "plugin": "cosine_text", "about": "x", "scale": "cosine"}
    add("metric", "tiny_t", {**metric, "encoder": "tiny", "range": [-1, 1]})
    return study(scores, metrics=["tiny_t"], raters=None, **changes)


def plan(value: dict[str, Any]) -> Plan:
    return make_plan(load_study(value))


def test_run_options_enter_no_key(
    scores: Path, own_cards: Callable[..., None], clip_checkpoint: Path
) -> None:
    value = with_encoder(scores, own_cards, clip_checkpoint)
    base = plan(value)
    assert {a.kind for a in base.artifacts.values()} >= {"embed_cases", "embed_images", "score"}
    for run in ({"device": "cpu"}, {"batch_size": 7}, {"threads": 2}):
        other = plan(value | {"run": run})
        assert (set(other.artifacts), other.final) == (set(base.artifacts), base.final), run
    elsewhere = plan(value | {"results": "elsewhere"})
    assert set(elsewhere.artifacts) == set(base.artifacts)


def changed_kinds(old: Plan, new: Plan) -> set[str]:
    return {a.kind for k, a in new.artifacts.items() if k not in old.artifacts}


@pytest.mark.parametrize("part", ["weights", "parts.lora"])
def test_weights_without_a_commit_stop_the_plan(
    scores: Path, own_cards: Callable[..., None], part: str
) -> None:
    weights = {"repository": "a/b"}
    (scores / "mine.json").write_text('{"a.jpg": {"CLIP_I": 0.5}}')
    card = {"title": "x", "plugin": "control", "about": "x", "params": {"mode": "noise"}}
    own_cards("generator", "mine", card | _nested(part, weights))
    with pytest.raises(InputError, match=rf"(?s)generators/mine.yaml: {part}\.revision.*pin CARD"):
        plan(study(scores, generators=["mine"]))
    own_cards("generator", "mine", card | _nested(part, weights | {"revision": "0" * 40}))
    pinned = plan(study(scores, generators=["mine"]))
    own_cards("generator", "mine", card | _nested(part, weights | {"revision": "1" * 40}))
    other = plan(study(scores, generators=["mine"]))
    assert changed_kinds(pinned, other) == {"generate", "score", "tables", "report"}


def _nested(path: str, value: Any) -> dict[str, Any]:
    head, _, rest = path.partition(".")
    return {head: _nested(rest, value) if rest else value}


def test_only_what_depends_on_a_change_runs_again(
    scores: Path, own_cards: Callable[..., None], clip_checkpoint: Path, tmp_path: Path
) -> None:
    value = with_encoder(scores, own_cards, clip_checkpoint)
    base = plan(value)
    ends = {"tables", "report"}
    scaled = value | {"metrics": [{"card": "tiny_t", "params": {"scale": 2.5}}]}
    assert changed_kinds(base, plan(scaled)) == {"score"} | ends
    assert changed_kinds(base, plan(value | {"statistics": {"bootstrap": 10}})) == ends
    assert changed_kinds(base, plan(value | {"title": "Another"})) == {"report"}
    more = plan(value | {"generators": [*value["generators"], "prompt_only"]})
    assert all(
        "prompt_only" in a.name or a.kind in ends
        for k, a in more.artifacts.items()
        if k not in base.artifacts
    )
    seeded = changed_kinds(base, plan(value | {"seed": 1}))
    assert "generate" in seeded and not seeded & {"benchmark", "embed_cases"}
    copy = tmp_path / "weights"
    shutil.copytree(clip_checkpoint, copy)
    config = copy / "config.json"
    config.write_text(config.read_text() + " ")
    heavier = plan(with_encoder(scores, own_cards, copy))
    assert changed_kinds(base, heavier) == {"embed_cases", "embed_images", "score"} | ends
    (copy / "config.json").write_text((clip_checkpoint / "config.json").read_text())
    (copy / "training.json").write_text("{}")  # how weights came about, not what they are
    assert changed_kinds(base, plan(with_encoder(scores, own_cards, copy))) == set()


def test_data_is_part_of_the_key(scores: Path) -> None:
    base = plan(study(scores))
    (scores / "noise.json").write_text('{"a.jpg": {"CLIP_I": 0.6}}')
    assert changed_kinds(base, plan(study(scores))) == {"score", "tables", "report"}


def test_keys_are_the_same_in_every_process(scores: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(study(scores)))
    script = (
        "import sys, json, pathlib\n"
        "from subjectbench import cards, config, plan\n"
        "p = plan.make_plan(config.load_study(cards.read_yaml(pathlib.Path(sys.argv[1]))))\n"
        "print(json.dumps([p.final, list(p.artifacts)]))\n"
    )
    command = [sys.executable, "-c", script, str(config)]
    outputs = [
        subprocess.run(
            command,
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(WORKFLOW)},
            cwd=folder,
        ).stdout
        for seed, folder in (("0", WORKFLOW), ("4711", tmp_path))
    ]
    here = plan(study(scores))
    assert outputs[0] == outputs[1]
    assert json.loads(outputs[0]) == [here.final, list(here.artifacts)]


def test_a_saved_plan_is_read_back_whole(scores: Path, tmp_path: Path) -> None:
    made = plan(study(scores, results=str(tmp_path / "results")))
    path = made.save()
    again = Plan.read(path)
    assert again == made
    assert [a.key for a in again.artifacts.values()] == list(again.artifacts)
    assert made.save() == path and len(list(path.parent.iterdir())) == 1


def test_a_job_plans_its_own_artifact_again_and_little_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    value = {
        "study": "many",
        "benchmark": {"card": "miniworld", "params": {"subjects": 2}},
        "generators": ["noise", {"card": "noise", "name": "a/noise"}, "sim_identity_drift"],
        "judge": "mini_zero_shot",
        "metrics": [
            "sics",
            "mini_clip_i",
            {"card": "mini_clip_i", "name": "b", "encoder": {"card": "mini_dino"}},
        ],
        "raters": "miniworld_raters",
        "shards": 3,
    }
    checked = load_study(value)
    made = make_plan(checked)
    for artifact in made.artifacts.values():
        assert plan_again(checked, artifact) == artifact, artifact.name
    (score, *_) = made.of_kind("score")
    other = load_study(value | {"seed": 1})
    again = plan_again(other, score)
    assert again and (again.kind, again.name) == (score.kind, score.name)
    assert again.key in make_plan(other).artifacts and again.key != score.key
    assert plan_again(load_study(value | {"metrics": ["mini_clip_t"]}), score) is None
    monkeypatch.setattr("subjectbench.plan.make_plan", lambda _: pytest.fail("planned everything"))
    assert plan_again(checked, score) == score


def changed_by_shard(old: Plan, new: Plan) -> dict[str, set[Any]]:
    """Shards of the artifacts that only the new plan has, by kind; None: of all shards."""
    out: dict[str, set[Any]] = {}
    for key in new.artifacts.keys() - old.artifacts.keys():
        artifact = new.artifacts[key]
        shard = artifact.name.rpartition("/")[2]
        out.setdefault(artifact.kind, set()).add(int(shard) if shard.isdecimal() else None)
    return out


SHARDED = {
    "study": "sharded",
    "generators": ["noise", "mini_textual_inversion"],
    "judge": "mini_zero_shot",
    "metrics": ["sics", "mini_clip_i"],
    "shards": 3,
}
OF_ALL: dict[str, set[Any]] = {
    "embed_cases": {None},
    "score": {None},
    "tables": {None},
    "report": {None},
}


def of_shard(shard: int) -> dict[str, set[Any]]:
    """What a change to one subject's shard asks for."""
    sharded = ("train", "generate", "embed_images", "judge")
    return {"benchmark": {None, shard}} | {kind: {shard} for kind in sharded} | OF_ALL


def test_a_subject_more_is_work_for_its_shard_only() -> None:
    def drawn(subjects: int, **params: Any) -> Plan:
        use = {"card": "miniworld", "params": {"subjects": subjects, **params}}
        return make_plan(load_study(SHARDED | {"benchmark": use}))

    few, more = drawn(5), drawn(6)
    new = set(_subjects(6)) - set(_subjects(5))
    assert len(new) == 1
    shard = subject_shard(new.pop(), 3)
    assert changed_by_shard(few, more) == of_shard(shard)
    everything = changed_by_shard(few, drawn(5, size=48))
    assert everything == changed_by_shard(few, drawn(5, seed=1))
    assert everything["generate"] == {0, 1, 2}
    assert everything["benchmark"] == {None, 0, 1, 2}


def _subjects(count: int) -> list[str]:
    card = cards.load("benchmark", "miniworld", "a test")
    params = cards.params("benchmark", Use(card="miniworld", params={"subjects": count}), "a test")
    return list(cards.plugin("benchmark", card, "a test")(params, ROOT).cases()["subject_id"])


def test_a_changed_picture_or_prompt_is_work_for_its_shard_only(tmp_path: Path) -> None:
    prompts = {name: f"a {name} on a table" for name in ("mug", "dog", "car", "hat", "fox")}

    def planned(**changes: str) -> Plan:
        rows = [f"{name},{text}" for name, text in (prompts | changes).items()]
        (tmp_path / "prompts.csv").write_text("\n".join(["subject_id,prompt", *rows]) + "\n")
        listed = [f"{name},{name},{name}.png" for name in prompts | changes]
        text = "\n".join(["subject_id,subject,image", *listed]) + "\n"
        (tmp_path / "subjects.csv").write_text(text)
        use = {"card": "folder", "params": {"path": str(tmp_path)}}
        return make_plan(load_study(SHARDED | {"benchmark": use}))

    for number, name in enumerate([*prompts, "owl"]):
        Image.new("RGB", (40, 30), (number, 0, 0)).save(tmp_path / f"{name}.png")
    first = planned()
    assert changed_by_shard(first, planned()) == {}
    assert changed_by_shard(first, planned(hat="a hat on a chair")) == of_shard(
        subject_shard("hat", 3)
    )
    assert changed_by_shard(first, planned(owl="an owl")) == of_shard(subject_shard("owl", 3))
    Image.new("RGB", (40, 30), (200, 0, 0)).save(tmp_path / "fox.png")
    assert changed_by_shard(first, planned()) == of_shard(subject_shard("fox", 3))


def test_benchmarks_beside_are_planned_as_if_they_were_the_studys_own() -> None:
    beside = {"card": "miniworld", "name": "other", "params": {"seed": 5, "subjects": 2}}
    value = {
        "study": "several",
        "benchmark": {"card": "miniworld", "params": {"subjects": 2}},
        "generators": ["noise", "sim_identity_drift", "copy_reference"],
        "metrics": ["mini_dino", "mini_clip_i", "mini_clip_t", "mini_hps"],
        "dimensions": {
            "preservation": "mini_dino",
            "following": "mini_clip_t",
            "quality": "mini_hps",
        },
        "shards": 2,
    }
    alone = make_plan(load_study(value | {"benchmark": beside}))
    checked = load_study(value | {"beside": {"benchmarks": [beside]}})
    made = make_plan(checked)
    of_other = {k: a for k, a in made.artifacts.items() if a.job.get("on") == "other"}
    # Pictures, embeddings and scores are shared with a study of that benchmark.
    assert of_other.items() <= alone.artifacts.items()
    scores = {a.name for a in of_other.values() if a.kind == "score"}
    metrics = value["dimensions"].values()
    assert scores == {f"other/{m}/sim_identity_drift" for m in metrics}, "controls, or all metrics"
    (tables,) = made.of_kind("tables")
    mine = [role for role in tables.upstream if role.startswith("beside/other/")]
    assert len(mine) == 5  # the benchmark, three scores, references for the map
    own = {k: a for k, a in made.artifacts.items() if a.job.get("on") == "miniworld"}
    assert own.items() <= make_plan(load_study(value)).artifacts.items()
    for artifact in made.artifacts.values():
        assert plan_again(checked, artifact) == artifact, artifact.name
    named = {"benchmarks": [beside], "generators": ["copy_reference", "noise"]}
    (tables,) = make_plan(load_study(value | {"beside": named})).of_kind("tables")
    assert tables.job["beside_generators"] == ["noise", "copy_reference"]  # as in the study
    one = next(a for a in of_other.values() if a.kind == "embed_images")
    assert plan_again(load_study(value), one) is None


def test_differences_are_said_in_words() -> None:
    old, new = {"params": {"k": 2, "a": 1}, "code": "x"}, {"params": {"k": 3, "a": 1}, "code": "x"}
    assert identity.changed(old, new) == ["params.k 2 -> 3"]
    assert identity.changed({}, {"a": 1}) == ["a null -> 1"]
    assert identity.changed(new, new) == []


def test_a_dvc_pointer_stands_for_its_file(tmp_path: Path) -> None:
    data, pointer = tmp_path / "d.bin", tmp_path / "d.bin.dvc"
    data.write_bytes(b"1")
    pointer.write_text("outs: [{md5: aa}]")
    with_file = identity.hash_sources([data])
    data.unlink()
    assert identity.hash_sources([data]) == with_file
    pointer.write_text("outs: [{md5: bb}]")
    assert identity.hash_sources([data]) != with_file


def test_versions_leave_the_build_tag_out() -> None:
    import torch

    assert identity.packages(["torch"], "x") == {"torch": torch.__version__.split("+")[0]}
    with pytest.raises(InputError, match="'no-such-package' is not installed"):
        identity.packages(["no-such-package"], "x")


def test_named_sources_keep_their_names_wherever_they_lie(tmp_path: Path) -> None:
    hashes = []
    for place in ("here/a", "there/b/c"):
        file = tmp_path / place / "any.py"
        file.parent.mkdir(parents=True)
        file.write_text("1")
        hashes.append(
            identity.hash_sources({"wrapper": file, "other": WORKFLOW / "config.schema.json"})
        )
    assert hashes[0] == hashes[1] and list(hashes[0]) == ["other", "wrapper"]


def pin(folder: Path, monkeypatch: pytest.MonkeyPatch, **versions: str) -> None:
    """Let the lock name other versions."""
    lines = identity.LOCK.read_text().splitlines()
    changed = [f"{n}=={versions.get(n.replace('-', '_'), v)}" for n, _, v in
               (line.partition("==") for line in lines) if v]  # fmt: skip
    folder.mkdir(exist_ok=True)
    (folder / "requirements.txt").write_text("# a remark\n" + "\n".join(changed) + "\n")
    monkeypatch.setattr(identity, "LOCK", folder / "requirements.txt")
    identity._locked.cache_clear()


def test_tables_tell_which_versions_are_not_the_locks(
    scores: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    equal = plan(study(scores))
    (tables,) = equal.of_kind("tables")
    assert tables.job["off_lock"] == {}
    here = identity.packages(["scipy"], "x")["scipy"]
    with monkeypatch.context() as patch:
        pin(tmp_path / "other", patch, scipy="0.1", tqdm="0.1")
        other = plan(study(scores))
        (tables,) = other.of_kind("tables")
        # tqdm decides no number, so no card names it and no table tells of it.
        assert tables.job["off_lock"] == {"scipy": f"{here} (lock: 0.1)"}
        assert changed_kinds(equal, other) == {"tables", "report"}
        told = identity.off_lock(identity.installed())
        assert told.keys() == {"scipy", "tqdm"}
    identity._locked.cache_clear()
    assert set(plan(study(scores)).artifacts) == set(equal.artifacts)


def test_installed_versions_are_those_that_python_would_tell() -> None:
    found = identity.installed()
    for name in ("numpy", "scikit-learn", "torch", "ruamel.yaml", "typing_extensions"):
        expected = importlib.metadata.version(name).split("+")[0]
        assert found[identity._plain(name)] == expected


def test_a_hash_is_remembered_only_while_the_file_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from subjectbench.hashing import sha256_file
    from subjectbench.store import hashes

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(hashes, "SETTLED", -1.0)
    read: list[Path] = []
    monkeypatch.setattr(hashes, "sha256_file", lambda p: read.append(p) or sha256_file(p))
    path = tmp_path / "large.bin"
    path.write_bytes(b"a" * 100_000)
    first = hashes.sha256_once(path)
    assert hashes.sha256_once(path) == first == sha256_file(path) and read == [path]
    times = path.stat()
    time.sleep(0.05)  # clocks tick
    path.write_bytes(b"b" * 100_000)  # of the same size and, as rsync and tar do, the same time
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert hashes.sha256_once(path) == sha256_file(path) != first and len(read) == 2
    monkeypatch.setattr(hashes, "SETTLED", 2.0)
    hashes.sha256_once(path)
    assert len(read) == 3, "a file that changed just now may change again"
    monkeypatch.setattr(hashes, "SETTLED", -1.0)
    (tmp_path / "cache" / "subjectbench" / "hashes.sqlite").write_bytes(b"no database" * 100)
    assert hashes.sha256_once(path) == sha256_file(path)


def test_a_module_is_parsed_once_while_its_text_is_the_same(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(package.parent / "cache"))
    parsed: list[Path] = []
    parse = identity._parse
    monkeypatch.setattr(identity, "_parse", lambda s, p: parsed.append(p) or parse(s, p))
    first = code()
    assert len(parsed) == len(first)
    assert code() == first and len(parsed) == len(first), "looked up by a later process"
    path = package / "metrics" / "cosine_text.py"
    times = path.stat()
    edit(path, "import", "import  ")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert code() == first and parsed[len(first) :] == [path], "another text, the same code"
    monkeypatch.setattr(identity.sys, "version", "another Python")
    assert code() == first and len(parsed) == 2 * len(first) + 1
