"""Printed numbers beside measured ones: only where both are of the same thing, and marked."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from PIL import Image

from subjectbench import alignment, cards, tables, writing
from subjectbench.config import load_study
from subjectbench.plan import make_plan
from subjectbench.published import data, measured
from subjectbench.stages import report, tabulate
from tests.unit.test_tables import DIMENSIONS, FAST, boards, rated, world

ROOT = Path(__file__).resolve().parents[2]


def cell(table: str, row: str, column: str) -> float:
    """A printed number, read without the library."""
    with (ROOT / "workflow" / "published" / f"{table}.csv").open(encoding="utf-8") as file:
        rows = {r["method"]: r for r in csv.DictReader(file)}
    return float(rows[row][column])


def job(paper: str = "dsh", **changes: Any) -> dict[str, Any]:
    """A job of tables: a and b are models of the papers, c is not."""
    names = {
        "dsh": {
            "benchmarks": {"own": "dsh_bench", "small": "dreambench"},
            "generators": {"a": "IP-Adapter", "b": "UNO"},
            "metrics": {"dino": "sics", "clip_t": "clip_t", "hps": "hpsv2"},
        },
        "ufo": {
            "benchmarks": {"own": "ufo_bench"},
            "generators": {"a": "OmniGen2", "b": "UNO"},
            "metrics": {"dino": "UFO", "clip_t": "CLIP-T", "holistic": "without decomposition"},
        },
    }
    return {
        "benchmarks": [{"name": "own", "title": "Own"}, {"name": "small", "title": "Small"}],
        "generators": [{"name": g, "title": g.upper()} for g in "abc"],
        "metrics": [{"name": m, "title": m.upper()} for m in DIMENSIONS.values()],
        "dimensions": DIMENSIONS,
        "leaderboard": {
            "preservation_weight": 1.5,
            "following_weight": 1.5,
            "quality_weight": 1.0,
            "constant": 3.0,
        },
        "human_alignment": {"dimension": "preservation"},
        "raters_simulated": False,
        "synthetic": False,
        "printed": {paper: names[paper]},
    } | changes


def board() -> pd.DataFrame:
    return tables.leaderboard(boards({"a": 0.0, "b": 0.1, "c": 0.2}), DIMENSIONS, **FAST)


def test_table_3_shows_both_and_what_is_wrong_with_the_printed_one() -> None:
    plain = board()
    shown = measured.beside("leaderboard", plain, job())
    pd.testing.assert_frame_equal(shown[plain.columns], plain)  # nothing measured has moved
    rows = shown.set_index("generator")
    table = "dsh_table3_leaderboard"
    for generator, row in (("a", "IP-Adapter"), ("b", "UNO")):
        assert rows.loc[generator, "s_h_printed"] == cell(table, row, "s_h")
        for dimension, (column, _) in measured.DIMENSIONS.items():
            assert rows.loc[generator, f"{dimension}_printed"] == cell(table, row, column)
    printed = [c for c in shown.columns if c.endswith("_printed")]
    assert len(printed) == 4 and rows.loc["c", printed].isna().all()
    notes = rows["printed_note"]
    assert "dsh-3-swap" in notes["a"] and "dsh-3-s_h:IP-Adapter" in notes["a"]
    assert notes["b"] == "" and notes["c"] == ""  # UNO's row agrees with itself
    columns = list(shown.columns)
    assert columns[columns.index("preservation_coverage") + 1] == "preservation_printed"
    assert columns[columns.index("s_h_ci_high") + 1] == "s_h_printed"


@pytest.mark.parametrize(
    ("changes", "left"),
    [
        ({"dimensions": DIMENSIONS | {"preservation": "clip_i"}}, {"following", "quality"}),
        ({"leaderboard": job()["leaderboard"] | {"quality_weight": 2.0}}, {*DIMENSIONS}),
        ({"benchmarks": [{"name": "small", "title": "Small"}]}, set()),
        ({"printed": {}}, set()),
        ({"printed": job("ufo")["printed"]}, set()),
    ],
    ids=["another metric", "other weights", "another benchmark", "a made-up study", "other paper"],
)
def test_nothing_is_shown_beside_what_the_paper_did_not_measure(
    changes: dict[str, Any], left: set[str]
) -> None:
    shown = measured.beside("leaderboard", board(), job(**changes))
    printed = {c.removesuffix("_printed") for c in shown.columns if c.endswith("_printed")}
    assert printed == left
    assert (measured.NOTE in shown.columns) == bool(left)


def test_models_that_no_paper_has_leave_a_table_as_it_was() -> None:
    only = board()[lambda f: f["generator"] == "c"]
    pd.testing.assert_frame_equal(measured.beside("leaderboard", only, job()), only)


def test_table_2_shows_each_benchmark_that_is_printed() -> None:
    scores = boards({"a": 0.0, "c": 0.1})
    names = {"own": scores, "small": scores, "mine": scores}
    frame = tables.benchmarks_side_by_side(names, DIMENSIONS, **FAST)
    shown = measured.beside("benchmarks", frame, job()).set_index("generator")
    table = "dsh_table2_benchmarks"
    for benchmark, printed in (("own", "dsh_bench"), ("small", "dreambench")):
        found = shown.loc["a", f"quality_{benchmark}_printed"]
        assert found == cell(table, "IP-Adapter", f"image_quality_{printed}")
    assert "quality_mine_printed" not in shown.columns
    assert "dsh-2-3:IP-Adapter" in shown.loc["a", "printed_note"]


def test_table_1_shows_people_only() -> None:
    scores = world()
    targets = rated(scores).assign(source="raters")
    agreed = tables.agreement(scores, targets, draws=0)
    frame = tables.human_alignment(scores, targets, agreed, draws=0)
    shown = measured.beside("human_alignment", frame, job())
    rows = shown.set_index(["method", "generator"])
    table = "dsh_table1_human_alignment"
    assert rows.loc[("spearman", "a"), "dino_printed"] == cell(table, "IP-Adapter", "spearman_sics")
    assert rows.loc[("kendall_tau_b", "ALL"), "dino_printed"] == cell(table, "ALL", "kendall_sics")
    assert "clip_t_printed" not in shown.columns  # Table 1 has no CLIP-T
    simulated = measured.beside("human_alignment", frame, job(raters_simulated=True))
    pd.testing.assert_frame_equal(simulated, frame)


def test_ufos_tables() -> None:
    scores = world().assign(paradigm="local_editing")
    frame = tables.models_by_paradigm(scores, "dino", **FAST)
    shown = measured.beside("models_by_paradigm", frame, job("ufo")).set_index("generator")
    assert shown.loc["a", "local_editing_printed"] == cell("ufo_table1_models", "OmniGen2", "local")
    assert shown.loc["b", "total_printed"] == cell("ufo_table1_models", "UNO", "total")
    other = tables.models_by_paradigm(scores, "hps", **FAST)
    pd.testing.assert_frame_equal(measured.beside("models_by_paradigm", other, job("ufo")), other)

    parts = {"spearman": 0.5, "spearman_ci_low": 0.4, "spearman_ci_high": 0.6, "n": 9}
    parts |= {"coverage": 1.0, "source": "raters"}
    places = [(m, p) for m in ("dino", "hps") for p in ("complex_editing", "total")]
    frame = pd.DataFrame([{"metric": m, "paradigm": p} | parts for m, p in places])
    shown = measured.beside("alignment", frame, job("ufo"))
    table = "ufo_table2_human_alignment"
    expected = [cell(table, "UFO", c) for c in ("multi_dim", "total")]
    assert shown["spearman_printed"].tolist()[:2] == expected
    assert shown["spearman_printed"][2:].isna().all()
    assert "ufo-2-total-weights" in shown["printed_note"][0]
    folded = alignment.as_printed(shown).set_index("metric")
    assert folded.loc["dino", "complex_editing_printed"] == expected[0]
    assert folded.loc["dino", "printed_note"].count("ufo-2-total-weights") == 1

    settings = [("decomposition", "holistic"), ("full", "dino")]
    frame = pd.DataFrame([{"setting": s, "metric": m} | parts for s, m in settings])
    shown = measured.beside("ablation", frame, job("ufo"))
    expected = [
        cell("ufo_table3_ablation", row, "correlation") for row in ("without decomposition", "UFO")
    ]
    assert shown["spearman_printed"].tolist() == expected
    assert "ufo-3-own-number:without decomposition" in shown["printed_note"][0]


def test_readers_see_which_is_which(tmp_path: Path) -> None:
    asked = job()
    shown = measured.beside("leaderboard", board(), asked)
    told = tabulate.caption("leaderboard", asked, shown)
    assert "DSH-Bench, Table 3 (arXiv 2603.08090, version 1), not measured here" in told
    assert "printed" not in tabulate.caption("leaderboard", asked, board())
    writing.write(shown, tmp_path / "leaderboard", told, "tab:x")
    head = (tmp_path / "leaderboard.md").read_text().splitlines()[2]
    assert "| preservation (printed) |" in head and "| S_h (printed) |" in head
    assert "S\\_h (printed) &" in (tmp_path / "leaderboard.tex").read_text()
    again = writing.read(tmp_path / "leaderboard.csv")
    page = report._table(writing.compact(report._readable("leaderboard", again, asked)))
    assert ">preservation (printed)</th>" in page and ">0.256</td>" in page
    scores = boards({"a": 0.0})
    frame = tables.benchmarks_side_by_side({"own": scores, "small": scores}, DIMENSIONS, **FAST)
    shown = measured.beside("benchmarks", frame, asked)
    page = report._table(writing.compact(report._readable("benchmarks", shown, asked)))
    assert ">preservation, Own</th>" in page and ">preservation, Small (printed)</th>" in page


# --- plans


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A benchmark of one's own."""
    path = tmp_path / "mine" / "mug"
    path.mkdir(parents=True)
    Image.linear_gradient("L").resize((64, 64)).convert("RGB").save(path / "0.png")
    (path.parent / "prompts.txt").write_text("a {} on a table\n")
    return path.parent


def test_a_plan_knows_what_is_printed_and_its_bytes(
    own_cards: Callable[[str, str, dict[str, Any]], None], folder: Path
) -> None:
    def card(kind: str, name: str, new: str, **changes: Any) -> None:
        own_cards(kind, new, cards.read_yaml(cards.cards_folder(kind) / f"{name}.yaml") | changes)

    card("benchmark", "folder", "real", published={"dsh": "dsh_bench"})
    card("benchmark", "miniworld", "made_up", published={"dsh": "dsh_bench"})
    card("generator", "copy_reference", "model", published={"dsh": "UNO"})
    card("metric", "mini_clip_t", "following", published={"dsh": "clip_t"})
    value = {
        "study": "trial",
        "benchmark": {"card": "real", "params": {"path": str(folder)}},
        "generators": ["model", "noise"],
        "metrics": ["following", "mini_clip_i"],
    }

    def planned(**changes: Any) -> Any:
        (artifact,) = make_plan(load_study(value | changes)).of_kind("tables")
        return artifact

    both = planned()
    assert both.job["printed"] == {
        "dsh": {
            "benchmarks": {"real": "dsh_bench"},
            "generators": {"model": "UNO"},
            "metrics": {"following": "clip_t"},
        }
    }
    assert set(both.components["data"]) == {p.name for p in data.sources()}
    scaled = {"card": "following", "params": {"scale": 100.0}}
    for changes in (
        {"benchmark": {"card": "folder", "params": {"path": str(folder)}}},
        {"benchmark": {"card": "made_up", "params": {"subjects": 2}}},
        {"metrics": [scaled, "mini_clip_i"]},
    ):
        none = planned(**changes)
        assert none.job["printed"] == {} and "data" not in none.components


@pytest.mark.parametrize("kind", ["benchmark", "generator", "metric"])
def test_cards_name_what_the_papers_print(kind: str) -> None:
    names = {
        ("benchmark", "dsh"): {"dsh_bench", "dreambench", "dreambench_plus"},
        ("benchmark", "ufo"): {"ufo_bench"},
        ("metric", "dsh"): {m for _, m in measured.DIMENSIONS.values()}
        | {c.partition("_")[2] for c in data.read().table("DSH-Bench", 1).columns},
        ("metric", "ufo"): {r for n in (2, 3) for r in data.read().table("UFO", n).rows},
        ("generator", "dsh"): set(data.read().table("DSH-Bench", 3).rows),
        ("generator", "ufo"): set(data.read().table("UFO", 1).rows),
    }
    said = []
    for name in cards.names(kind):
        card = cards.load(kind, name)
        for paper, printed in card.published.items():
            assert printed in names[kind, paper], name
            assert not getattr(cards.plugin(kind, card, name), "synthetic", False), name
            said.append((paper, printed))
    if kind != "generator":
        assert len(said) > 3
    assert kind != "metric" or len(said) == len(set(said)), "two cards claim to be one metric"


def test_the_shipped_studies_run_the_papers_models() -> None:
    def rows(uses: list[str], paper: str) -> set[str]:
        return {cards.load("generator", use).published.get(paper, "") for use in uses} - {""}

    for name, paper, table in (("dsh_bench", "dsh", 3), ("ufo_bench", "ufo", 1)):
        study = load_study(cards.read_yaml(ROOT / "workflow" / "studies" / f"{name}.yaml"))
        printed = data.read().table(measured.PAPERS[paper], table).rows
        shown = rows([use.card for use in study.generators], paper)
        missing = set(printed) - shown
        there = rows(cards.names("generator"), paper)
        closed = {"Nano-Banana", "Doubao"}  # paid for, so commented out
        assert missing & there <= closed, f"{name} lists not all models that have cards"
        assert {m.card for m in study.metrics} >= {
            m for m in cards.names("metric") if paper in cards.load("metric", m).published
        }, f"{name} lists not all metrics that the paper prints"
    study = load_study(cards.read_yaml(ROOT / "workflow" / "studies" / "dsh_bench.yaml"))
    assert study.beside
    of = {use.label: use.card for use in study.generators}
    beside = rows([of[g] for g in study.beside.generators], "dsh")
    assert beside == set(data.read().table("DSH-Bench", 2).rows)
