"""Configs and cards: what is refused, and whether the message says where, what and how to mend."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from subjectbench import cards, cli, config
from subjectbench.cards import ROOT
from subjectbench.config import Use, load_study
from subjectbench.errors import InputError
from subjectbench.plan import make_plan


def study(**changes: Any) -> dict[str, Any]:
    return {
        "study": "trial",
        "benchmark": "miniworld",
        "generators": ["noise", "copy_reference"],
        "metrics": ["mini_clip_i", "mini_clip_t"],
    } | changes


def refused(value: Any, *words: str, mend: bool = True) -> InputError:
    with pytest.raises(InputError) as caught:
        load_study(value, "my.yaml")
    error = caught.value
    assert error.where.startswith("my.yaml"), error.where
    assert error.fault
    assert bool(error.mend) or not mend, f"no mend: {error}"
    for word in words:
        assert word in str(error), f"{word!r} not in {error}"
    return error


def test_the_default_and_the_ready_studies_are_valid() -> None:
    files = [ROOT / "config.yaml", *sorted((ROOT / "workflow" / "studies").glob("*.yaml"))]
    assert len(files) >= 2
    for path in files:
        assert load_study(cards.read_yaml(path), path).study


@pytest.mark.parametrize(
    ("value", "field", "suggestion"),
    [
        (study(metrisc=[]), "metrisc", "did you mean 'metrics'?"),
        (study(run={"batchsize": 3}), "run.batchsize", "did you mean 'batch_size'?"),
        (study(leaderboard={"constnat": 3.0}), "leaderboard.constnat", "'constant'"),
        (study(generators=[{"card": "noise", "parms": {}}]), "generators.0.parms", "'params'"),
        (study(raters={"crad": "x"}), "raters", "'card'"),
        (study(zzz=1), "zzz", "known: alignment, benchmark"),
    ],
)
def test_unknown_key_with_suggestion(value: Any, field: str, suggestion: str) -> None:
    refused(value, f"my.yaml: {field}", "unknown key", suggestion)


# CFG-01: what YAML 1.1 makes of [1.5, 2.10, no, on, 1e-4, 1_000, 007, 12:30:45, 2024-01-01, ~]
TYPED = yaml.safe_load("[1.5, 2.10, no, on, 1_000, 007, 12:30:45, 2024-01-01, ~]")


@pytest.mark.parametrize("name", TYPED, ids=str)
@pytest.mark.parametrize(
    "place",
    [
        lambda v: study(study=v),
        lambda v: study(benchmark=v),
        lambda v: study(generators=["noise", v]),
        lambda v: study(metrics=[{"card": "mini_clip_i", "name": v}]),
        lambda v: study(dimensions={"preservation": v, "following": "a", "quality": "b"}),
    ],
    ids=["study", "benchmark", "generator", "metric name", "dimension"],
)
def test_a_name_is_text_or_refused(place: Callable[[Any], Any], name: Any) -> None:
    """CFG-01: 2.10, 007, no and the like in the place of a name."""
    assert not isinstance(name, str)
    refused(place(name), "is not text", "quotes")


def test_the_same_names_are_fine_in_quotes() -> None:
    for name in ("1.5", "2.10", "no", "on", "1e-4", "1_000", "007", "2024-01-01"):
        assert load_study(study(study=name)).study == name
        use = load_study(study(generators=[{"card": "noise", "name": name}])).generators[0]
        assert use.label == name


@pytest.mark.parametrize("text", ["1e-4", "0.95", "no", "1_0"])
def test_text_where_a_number_is_wanted(text: str) -> None:
    """CFG-01."""
    refused(study(statistics={"confidence": text}), "statistics.confidence", text)
    refused(study(seed=text), "my.yaml: seed", text)


def test_yaml_reads_1e_4_as_text_and_we_refuse_it(tmp_path: Path) -> None:
    """CFG-01: never text where a number is wanted."""
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(study()) + "leaderboard: {min_coverage: 1e-4}\n")
    with pytest.raises(InputError, match=r"leaderboard\.min_coverage.*'1e-4'"):
        load_study(cards.read_yaml(path), path)


@pytest.mark.parametrize("value", [True, 1.5, "1", None])
def test_a_whole_number_is_no_bool_float_or_text(value: Any) -> None:
    refused(study(shards=value), "my.yaml: shards", repr(value))


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_no_infinite_or_undefined_numbers(value: float) -> None:
    refused(study(leaderboard={"constant": value}), "leaderboard.constant")


DIMENSIONS = {"preservation": "mini_clip_i", "following": "mini_clip_t", "quality": "mini_clip_i"}


def test_benchmarks_beside() -> None:
    beside = {"benchmarks": ["miniworld_dreambench"]}
    refused(study(beside=beside), "beside", "needs dimensions")
    whole = study(dimensions=DIMENSIONS)
    known = load_study(whole | {"beside": beside}).beside
    assert known and known.benchmarks[0].label == "miniworld_dreambench"
    refused(whole | {"beside": beside | {"generators": ["noisse"]}}, "generators", "'noise'")
    refused(whole | {"beside": {"benchmarks": ["miniworld"]}}, "beside.benchmarks", "twice")
    refused(whole | {"beside": {"benchmarks": []}}, "beside.benchmarks")
    controls = load_study(whole | {"beside": beside})
    with pytest.raises(InputError, match="controls only"):
        make_plan(controls)
    alike = {"card": "miniworld", "name": "Miniworld, like DreamBench"}
    with pytest.raises(InputError, match="two are called 'Miniworld, like DreamBench'"):
        both = {"benchmarks": ["miniworld_dreambench", alike], "generators": ["noise"]}
        make_plan(load_study(whole | {"beside": both}))
    with pytest.raises(InputError, match=r"(?s)beside\.benchmarks.*miniworld_dreambench'"):
        misspelt = {"benchmarks": ["miniworld_dreambnch"], "generators": ["noise"]}
        make_plan(load_study(whole | {"beside": misspelt}))


def test_out_of_range_and_required() -> None:
    refused(study(shards=0), "my.yaml: shards")
    refused(study(study="../x"), "my.yaml: study")
    refused(study(study="x\n"), "my.yaml: study")
    value = study()
    del value["metrics"]
    refused(value, "my.yaml: metrics", "is required")
    refused([1], "expected keys and values")


@pytest.mark.parametrize("field", ["generators", "metrics"])
def test_duplicates_also_when_only_case_differs(field: str) -> None:
    card = {"generators": "noise", "metrics": "mini_clip_i"}[field]
    refused(study(**{field: [card, card]}), f"my.yaml: {field}", f"'{card}' is listed twice")
    other = {"card": card, "name": card.upper()}
    refused(study(**{field: [card, other]}), "listed twice")
    assert load_study(study(**{field: [card, {"card": card, "name": "other"}]}))


def test_a_dimension_names_a_metric_of_the_study() -> None:
    names = {"preservation": "mini_clip_i", "following": "mini_clip_x", "quality": "mini_clip_t"}
    refused(
        study(dimensions=names), "dimensions.following", "'mini_clip_x'", "did you mean 'mini_clip"
    )
    renamed = study(
        metrics=[{"card": "mini_clip_i", "name": "CLIP-I"}],
        dimensions=dict.fromkeys(names, "mini_clip_i"),
    )
    refused(renamed, "dimensions.preservation", "known: CLIP-I")


# --- cards ---------------------------------------------------------------------------------------


def test_unknown_card_with_suggestion() -> None:
    with pytest.raises(InputError, match="config: generators: no generator card named 'nois'") as e:
        make_plan(load_study(study(generators=["nois"])))
    assert e.value.mend == "did you mean 'noise'?"


def test_unknown_plugin_with_suggestion(own_cards: Callable[..., None]) -> None:
    own_cards("generator", "mine", {"title": "Mine", "plugin": "controll", "about": "x"})
    with pytest.raises(InputError, match=r"no module .*\.controll") as caught:
        make_plan(load_study(study(generators=["mine"])))
    assert caught.value.mend == "did you mean 'control'?"
    assert "plugin" in caught.value.where


def test_a_missing_library_is_not_taken_for_a_missing_plugin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "subjectbench.generators.control", raising=False)
    monkeypatch.setitem(sys.modules, "subjectbench.generators.base", None)
    with pytest.raises(ModuleNotFoundError, match=r"generators\.base"):
        cards.plugin("generator", cards.load("generator", "noise"), "here")


@pytest.mark.parametrize(
    ("card", "words"),
    [
        ({"title": "x", "plugin": "control", "about": "x", "titel": "y"}, ["did you mean 'title'"]),
        ({"title": 1.5, "plugin": "control", "about": "x"}, ["title", "1.5 is not text"]),
        ({"plugin": "control", "about": "x"}, ["title", "is required"]),
        ({"title": "x", "plugin": "a/b", "about": "x"}, ["plugin", "'a/b'"]),
        (
            {
                "title": "x",
                "plugin": "control",
                "about": "x",
                "weights": {"repository": "a/b", "revision": "main"},
            },
            ["weights.revision", "main"],
        ),
        (
            {"title": "x", "plugin": "control", "about": "x", "weights": {}},
            ["weights", "one of 'path', 'package' and 'repository'"],
        ),
        (
            {"title": "x", "plugin": "control", "about": "x", "weights": {"package": "a"}},
            ["weights", "needs 'sha256'"],
        ),
    ],
)
def test_faults_in_a_card_name_the_file(
    own_cards: Callable[..., None], card: dict[str, Any], words: list[str]
) -> None:
    own_cards("generator", "mine", card)
    with pytest.raises(InputError) as caught:
        cards.load("generator", "mine", "config: generators")
    assert "workflow/cards/generators/mine.yaml" in caught.value.where
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert caught.value.mend


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"mode": "nois"}, ["noise: params", "mode", "nois"]),
        ({"mdoe": "noise"}, ["mdoe", "did you mean 'mode'?"]),
        ({"mode": False}, ["mode"]),
    ],
)
def test_faults_in_params_name_the_use(params: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        cards.params("generator", Use(card="noise", params=params), "my.yaml: generators")
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert caught.value.where.startswith("my.yaml: generators: noise: params")
    assert caught.value.mend


def test_params_are_layered_study_over_card_over_default() -> None:
    use = Use(card="miniworld", params={"subjects": 5})
    layered = cards.params("benchmark", use, "x")
    assert (layered.subjects, layered.seed, layered.size) == (5, 0, 64)


@pytest.mark.parametrize("text", ["a: 1\nb: 2\na: 3\n", "x:\n  a: 1\n  a: 1\n", "{a: 1, a: 1}"])
def test_a_key_twice_is_refused_with_its_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "card.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=r"(?s)card\.yaml: .*key 'a' appears twice.*line \d"):
        cards.read_yaml(path)


def test_files_that_are_no_yaml(tmp_path: Path) -> None:
    path = tmp_path / "card.yaml"
    with pytest.raises(InputError, match="no such file"):
        cards.read_yaml(path)
    path.write_bytes("title: müsli".encode("latin-1"))
    with pytest.raises(InputError, match="not UTF-8 at byte 8"):
        cards.read_yaml(path)
    path.write_text("a: [1, 2\n")
    with pytest.raises(InputError, match="not valid YAML"):
        cards.read_yaml(path)


def test_the_command_line_prints_the_fault_and_no_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(study(shard=1)))
    assert cli.main(["check", "--config", str(path)]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"error: {path}: shard: unknown key 'shard'")
    assert "did you mean 'shards'?" in err
    assert "Traceback" not in err


# --- schema --------------------------------------------------------------------------------------


def test_the_checked_in_schema_is_the_models() -> None:
    path = ROOT / "workflow" / "config.schema.json"
    assert path.read_text("utf-8") == cli.schema_text(), "run: subjectbench schema --write"


def test_every_key_of_the_config_is_described_or_a_group() -> None:
    def keys(model: Any) -> list[tuple[str, Any]]:
        return list(model.model_fields.items())

    bare = [
        name
        for model in (config.Study, config.Run, config.Dimensions, config.Use)
        for name, field in keys(model)
        if not field.description and name not in ("leaderboard", "statistics", "run")
    ]
    assert bare == []
