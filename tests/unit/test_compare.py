"""Two runs side by side, on folders made by hand."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from subjectbench import records
from subjectbench.cli import main
from subjectbench.compare import Comparison, Run, compare, id_columns, interval_of, numbers, words
from subjectbench.errors import InputError
from subjectbench.store import Artifact, Store

SUBJECTS, PROMPTS = 12, 4
METRICS, GENERATORS = ("dino", "clip_t"), ("good", "bad")
BOARD = "generator,title,rank,preservation_mean,preservation_n,note"


def cases() -> list[dict[str, Any]]:
    return [
        {"case_id": f"s{s:02d}-p{p}", "subject_id": f"s{s:02d}", "details": "{}"}
        | {"difficulty": "easy" if s < 6 else "hard"}
        for s in range(SUBJECTS)
        for p in range(PROMPTS)
    ]


def rows(schema: str, values: list[dict[str, Any]]) -> pd.DataFrame:
    return pd.DataFrame(values, columns=list(records.SCHEMAS[schema].columns))


class Made:
    """A results folder in which runs are made."""

    def __init__(self, results: Path) -> None:
        self.store = Store(results)

    def artifact(
        self,
        kind: str,
        name: str,
        components: dict[str, Any],
        upstream: dict[str, str],
        **files: Any,
    ) -> str:
        """Make one artifact; files are frames (Parquet), CSV texts, or mappings of those."""
        named = {
            n.replace("__", "/") + (".csv" if isinstance(f, str) else ".parquet"): f
            for n, f in files.items()
        }
        artifact = Artifact(kind, name, components, upstream, tuple(named))

        def build(folder: Path, _: Any) -> dict[str, int]:
            for path, content in named.items():
                (folder / path).parent.mkdir(exist_ok=True)
                if isinstance(content, str):
                    (folder / path).write_text(content)
                else:
                    records.write_table(Path(path).stem, content, folder / path)
            return {}

        self.store.make(artifact, build)
        return artifact.key

    def run(
        self,
        scale: float = 1.0,
        noise: float = 0.0,
        seed: int = 0,
        shards: int = 2,
        board: str = "",
        generators: tuple[str, ...] = GENERATORS,
    ) -> Run:
        """Make a run in which dino's scores are ``scale`` times a base, plus noise per sample."""
        benchmark = self.artifact("benchmark", "b", {}, {}, cases=rows("cases", cases()))
        upstream, means = {"benchmark": benchmark}, {}
        for metric in METRICS:
            for number, generator in enumerate(generators):
                rng = np.random.default_rng(number)
                base = 0.3 + 0.2 * number + 0.1 * rng.random(SUBJECTS * PROMPTS)
                if metric == "dino":
                    base = scale * base + noise * np.random.default_rng(1).normal(size=len(base))
                means[metric, generator] = base.mean()
                samples = {
                    f"samples/{shard}": self.artifact(
                        "generate", f"b/{generator}/{shard}", {"seed": seed, "shard": shard}, {}
                    )
                    for shard in range(shards)
                }
                scores = [
                    {"generator": generator, "sample_id": f"{c['case_id']}-s0"}
                    | {"metric": metric, "key": "k", "status": "ok", "value": value}
                    | {"n_raw": 1, "details": "{}"}
                    for c, value in zip(cases(), base, strict=True)
                ]
                params = {"scale": scale, "noise": noise} if metric == "dino" else {}
                upstream[f"scores/{metric}/{generator}"] = self.artifact(
                    "score",
                    f"b/{metric}/{generator}",
                    {"params": params, "metric": metric, "generator": generator},
                    {"benchmark": benchmark, **samples},
                    scores=rows("scores", scores),
                )
        board = board or "\n".join(
            [BOARD, *(f"{g},{g.title()},1,{means['dino', g]:.9f},48," for g in generators)]
        )
        coverage = "\n".join(
            ["metric,generator,n,mean", *(f"{m},{g},48,{x:.9f}" for (m, g), x in means.items())]
        )
        study = {
            "metrics": [{"name": m} for m in METRICS],
            "generators": [{"name": g} for g in generators],
            "dimensions": {"preservation": "dino", "following": "clip_t"},
            "statistics": {"bootstrap": 500, "confidence": 0.95, "seed": 0},
        }
        tables = self.artifact(
            "tables", "x", study, upstream, leaderboard=board + "\n", coverage=coverage + "\n"
        )
        report = self.artifact(
            "report",
            "x",
            study,
            {"tables": tables},
            tables__leaderboard=board + "\n",
            tables__coverage=coverage + "\n",
        )
        return Run.find(report, self.store.results)


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path / "results")


def cell(found: Comparison, table: str, row: str, column: str) -> Any:
    cells = found.cells
    (out,) = cells[
        (cells["table"] == table) & (cells["row"] == row) & (cells["column"] == column)
    ].itertuples()
    return out


def test_a_run_and_itself(made: Made) -> None:
    run = made.run()
    found = compare(run, run)
    assert len(found.cells) == 8 + 10 and not found.cells["moved"].any()
    assert not found.rows and not found.tables and not found.causes and not found.environment
    assert "leaderboard: equal" in words(found) and "nothing differs" in words(found)


def test_a_parameter_moves_its_own_metric_and_is_named(made: Made) -> None:
    found = compare(made.run(), made.run(scale=1.5))
    moved = found.cells[found.cells["moved"]]
    assert set(zip(moved["table"], moved["row"], moved["column"], strict=True)) == {
        ("leaderboard", "good", "preservation_mean"),
        ("leaderboard", "bad", "preservation_mean"),
        ("coverage", "dino / good", "mean"),
        ("coverage", "dino / bad", "mean"),
    }
    good = cell(found, "leaderboard", "good", "preservation_mean")
    assert good.difference == pytest.approx(float(good.a) * 0.5, abs=1e-8)
    assert (good.noise, good.test, good.n) == ("beyond noise", "paired", 48)
    assert good.ci_low < good.difference < good.ci_high and good.p_value < 0.05
    assert good.why == "score b/dino/good: params.scale 1.0 -> 1.5"
    assert {str(c) for c in found.causes} == {
        "score b/dino/good: params.scale 1.0 -> 1.5",
        "score b/dino/bad: params.scale 1.0 -> 1.5",
    }
    assert "score b/dino/good, b/dino/bad: params.scale 1.0 -> 1.5" in words(found)


def test_noise_is_called_noise(made: Made) -> None:
    found = compare(made.run(), made.run(noise=0.02))
    good = cell(found, "leaderboard", "good", "preservation_mean")
    assert good.moved and good.noise == "within noise" and good.ci_low < 0 < good.ci_high


def test_the_paired_test_is_the_bootstrap_of_differences(made: Made) -> None:
    from subjectbench.statistics.bootstrap import Resample, mean_difference

    a, b = made.run(), made.run(scale=0.9, noise=0.02)
    got = cell(compare(a, b), "coverage", "dino / bad", "mean")
    both = a.scores("dino", "bad").merge(b.scores("dino", "bad"), on="sample_id")  # type: ignore[union-attr]
    subjects = both["sample_id"].str[:3].tolist()
    want = mean_difference(
        both["value_y"] - both["value_x"], subjects, Resample.of(subjects, 500, 0), 0.95
    )
    assert (got.ci_low, got.ci_high) == (want.interval.low, want.interval.high)
    assert got.difference == pytest.approx(want.value, abs=1e-8)


def test_what_lies_further_up_is_found(made: Made) -> None:
    found = compare(made.run(), made.run(seed=7, scale=1.5))
    texts = {str(c) for c in found.causes}
    assert "generate b/good: seed 0 -> 7" in texts
    # Nothing of clip_t moved, so its unchanged numbers need no reason.
    assert all("clip_t" not in t for t in texts)


def test_rows_columns_and_tables_of_one_run_only_are_listed(made: Made) -> None:
    a = made.run()
    b = made.run(generators=("good", "new"), scale=1.5)
    shutil.copyfile(b.folder / "tables/coverage.csv", b.folder / "tables/extra.csv")
    found = compare(a, Run.find(str(b.folder), Path("nowhere")))
    assert found.rows["leaderboard"] == [("A", "bad"), ("B", "new")]
    assert found.rows["coverage"][0] == ("A", "dino / bad")
    assert found.tables == [("B", "extra")]
    text = words(found)
    assert "  only in A: bad" in text and "  only in B: new" in text
    assert "only in B: extra" in text


def test_what_was_deleted_from_the_store_is_said(made: Made) -> None:
    a, b = made.run(), made.run(scale=1.5)
    for folder in a._folders.values():
        if folder.parts[-5:-3] == ("score", "b") or "dino" in folder.parts:
            shutil.rmtree(folder)
    found = compare(Run.find(a.name, made.store.results), b)
    good = cell(found, "leaderboard", "good", "preservation_mean")
    assert good.moved and good.test == "" and good.noise == ""
    assert "is no longer in the store: what differs cannot be said" in good.why
    shutil.rmtree(made.store.results / "store")
    found = compare(*(Run.find(r.name, made.store.results) for r in (a, b)))
    assert cell(found, "leaderboard", "good", "preservation_mean").moved
    assert "tables tables: " in words(found) and "no longer in the store" in words(found)


def test_an_edited_table_is_not_explained_away(made: Made) -> None:
    a = made.run()
    copy = a.folder.with_name("x-copy")
    shutil.copytree(a.folder, copy)
    path = copy / "tables" / "leaderboard.csv"
    path.write_text(path.read_text().replace("bad,Bad,1", "bad,Bad,2"))
    text = words(compare(a, Run.find(str(copy), Path())))
    assert "NOT EXPLAINED: 1 cells" in text and "leaderboard, bad, rank" in text


def test_intervals_decide_where_no_samples_do(made: Made) -> None:
    head = "generator,s_h,s_h_ci_low,s_h_ci_high\n"
    a = made.run(board=head + "good,0.30,0.20,0.40\nbad,0.30,0.25,0.35")
    b = made.run(board=head + "good,0.38,0.31,0.50\nbad,0.50,0.45,0.55", scale=1.5)
    found = compare(a, b)
    assert cell(found, "leaderboard", "good", "s_h").noise == "within noise"
    bad = cell(found, "leaderboard", "bad", "s_h")
    assert (bad.noise, bad.test) == ("beyond noise", "intervals")
    # Ends of intervals are counted, not listed.
    assert "s_h_ci_low" not in words(found, None)


def test_environments_are_compared(made: Made) -> None:
    a, b = made.run(), made.run(scale=1.5)
    path = b.folder / "record.json"
    record = json.loads(path.read_text())
    off = ["scipy 0.1 (lock: 1.0)"]
    path.write_text(json.dumps(record | {"python": "2.7.18", "other_than_locked": off}))
    lines = compare(a, b).environment
    assert any(x.startswith("python ") and "2.7.18" in x.partition("->")[2] for x in lines)
    assert "B with scipy 0.1 (lock: 1.0)" in lines
    # Said of both, even where they are alike.
    path = a.folder / "record.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"other_than_locked": off}))
    assert {f"{side} with {off[0]}" for side in "AB"} <= set(compare(a, b).environment)


@pytest.mark.parametrize(
    "text", ["x-{key}", "{key}", "{key:.5}", "x-{key:.5}", "{folder}", "latest"]
)
def test_ways_to_name_a_run(made: Made, text: str) -> None:
    run = made.run()
    (made.store.results / "latest").symlink_to(run.name)
    given = text.format(key=run.manifest["key"], folder=run.folder)
    assert Run.find(given, made.store.results).folder.name == run.name


def test_wrong_runs_are_named_with_the_mend(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = made.run(), made.run(scale=1.5)
    where = made.store.results
    with pytest.raises(InputError, match="fits 2 runs"):
        Run.find("x", where)
    with pytest.raises(InputError, match="no such run"):
        Run.find("y", where)
    with pytest.raises(InputError, match="is no run"):
        Run.find(str(a._folders[a.tables_key]), where)
    (b.folder / "manifest.json").write_text("{")
    with pytest.raises(InputError, match="damaged"):
        Run.find(b.name, where)
    assert main(["compare", a.name, "y", "--results", str(where)]) == 2
    assert "no such run" in capsys.readouterr().err


def test_the_verb(made: Made, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    a, b = made.run(), made.run(scale=1.5)
    csv = tmp_path / "cells.csv"
    where = ["--results", str(made.store.results), "--csv", str(csv)]
    assert main(["compare", a.name, b.name, *where]) == 0
    assert "params.scale 1.0 -> 1.5" in capsys.readouterr().out
    frame = pd.read_csv(csv)
    assert len(frame) == 18 and frame["moved"].sum() == 4


def frame(text: str) -> pd.DataFrame:
    head, *lines = [line.split(",") for line in text.split()]
    return pd.DataFrame(lines, columns=head, dtype=str)


def test_ids_are_the_text_before_the_first_number() -> None:
    table = frame("metric,metric_title,generator,n,status a,A,x,1,ok b,B,x,1,ok")
    assert id_columns(table, table) == ["metric", "generator"]
    # One generator only: it is an id all the same, or runs of different models would be mixed.
    assert id_columns(table[:1], table[:1]) == ["metric", "generator"]
    late = frame("rank,model,s 1,x,0.5 2,y,0.25")
    assert id_columns(late, late) == ["model"]
    counted = frame("category,units,cases a,1,5 a,2,5 b,1,3")
    assert id_columns(counted, counted) == ["category", "units"]


def test_rows_that_nothing_tells_apart_are_numbered(made: Made) -> None:
    board = "generator,value\ngood,0.5\ngood,0.5\n"
    other = "generator,value\ngood,0.5\ngood,0.75\n"
    found = compare(made.run(board=board), made.run(board=other, scale=1.5))
    assert not cell(found, "leaderboard", "good", "value").moved
    assert cell(found, "leaderboard", "good / #2", "value").difference == 0.25


def test_numbers_and_their_intervals() -> None:
    text, empty = pd.Series(["1", "x"]), pd.Series(["", ""])
    assert numbers(text) is None and numbers(empty) is None
    read = numbers(pd.Series(["1", ""]), pd.Series(["-2.5", "3"]))
    assert read is not None and read[1].tolist() == [-2.5, 3.0]
    row = pd.Series({"mean": "1", "ci_low": "0", "ci_high": "2", "n": "3", "s_h": "1"})
    assert interval_of(row, "mean") == (0.0, 2.0)
    assert interval_of(row, "s_h") is None and interval_of(row, "n") is None
    wide = pd.Series({"a_mean": "1", "a_ci_low": "0", "a_ci_high": "2", "b": "1"})
    wide["b_ci_low"], wide["b_ci_high"] = "0.5", ""
    assert interval_of(wide, "a_mean") == (0.0, 2.0)
    assert interval_of(wide, "b") is None  # half an interval is none
