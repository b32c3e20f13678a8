"""docs/trouble_reports.md is true, and the recipe that crosses all rooms: STAT-01."""

from __future__ import annotations

import ast
import os
import random
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image, ImageColor

from subjectbench import records
from subjectbench.config import load_study
from subjectbench.plan import make_plan
from subjectbench.stages import embed, generate, prepare, score
from subjectbench.stages.base import Context
from tests.conftest import ROOT

DOC = ROOT / "docs" / "trouble_reports.md"
ID = re.compile(r"(?<![A-Za-z])([A-Z]{3,4})[-_]?(\d\d)(?!\d)")
FAMILIES = {"CLIP", "STAT", "TAB", "FIG", "IMG", "CFG", "VLM", "FACE", "SMK", "DVC"}
"""Families that are complete here: what a test says of them must have its row."""


def ids(text: str, families: set[str]) -> set[str]:
    found = {f"{m[1]}-{m[2]}" for m in ID.finditer(text.upper())}
    return {i for i in found if i.partition("-")[0] in families}


def rows() -> list[list[str]]:
    """Cells of every row of every table, headings left out."""
    lines = [line for line in DOC.read_text("utf-8").splitlines() if line.startswith("|")]
    found = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [cells for cells in found if ID.fullmatch(cells[0])]


@cache
def told(path: Path) -> dict[str, str]:
    """Name and docstring of each test of a file."""
    tree = ast.parse(path.read_text("utf-8"))
    tests = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
    return {
        n.name: f"{n.name} {ast.get_docstring(n) or ''}" for n in tests if n.name[:5] == "test_"
    }


def test_rows_are_whole_sorted_and_unlike() -> None:
    table = rows()
    assert len(table) > 30 and {len(cells) for cells in table} == {4}
    assert all(all(cells) for cells in table)
    names = [cells[0] for cells in table]
    assert max(Counter(names).values()) == 1
    for family in {name.partition("-")[0] for name in names}:
        mine = [name for name in names if name.startswith(family)]
        assert mine == sorted(mine)


@pytest.mark.parametrize("cells", rows(), ids=lambda cells: cells[0])
def test_the_tests_of_a_row_exist_and_name_it(cells: list[str]) -> None:
    tests = re.findall(r"`([^`]+)`", cells[3])
    assert tests
    for test in tests:
        file, _, name = test.partition("::")
        known = told(ROOT / "tests" / file)
        assert name in known, f"no test {name} in tests/{file}"
        families = {cells[0].partition("-")[0]}
        assert cells[0] in ids(known[name], families), f"{test} does not say {cells[0]}"


def test_what_the_tests_name_has_its_row() -> None:
    listed = {cells[0]: cells[3] for cells in rows()}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        file = path.relative_to(ROOT / "tests").as_posix()
        for name, text in told(path).items():
            for found in ids(text, FAMILIES):
                assert f"`{file}::{name}`" in listed.get(found, ""), (
                    f"add `{file}::{name}` to the row of {found} in {DOC.name}"
                )


# --- STAT-01 -------------------------------------------------------------------------------------

COLOURS = (
    "red", "lime", "blue", "yellow", "cyan", "magenta", "black", "white", "orange", "purple",
    "brown", "grey",
)  # fmt: skip


@pytest.fixture
def tiles(tmp_path: Path) -> Path:
    """Twelve subjects, 0 to 11, each a tile of one colour on a speckled ground."""
    folder = tmp_path / "tiles"
    folder.mkdir()
    ground = np.random.default_rng(0).integers(0, 256, (48, 48, 3), np.uint8)
    for number, colour in enumerate(COLOURS):
        pixels = ground.copy()
        pixels[4:44, 4:44] = ImageColor.getrgb(colour)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    lines = [f"{i},tile,{i}.png" for i in range(12)]
    (folder / "subjects.csv").write_text("\n".join(["subject_id,subject,image", *lines]))
    lines = [f"{i},a {colour} tile" for i, colour in enumerate(COLOURS)]
    (folder / "prompts.csv").write_text("\n".join(["subject_id,prompt", *lines]))
    return folder


class Shuffled:
    """What os.scandir returns, in another order each time."""

    def __init__(self, found: Any) -> None:
        with found:
            self.entries = list(found)
        random.shuffle(self.entries)

    def __enter__(self) -> Iterator[Any]:
        return iter(self.entries)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.entries)

    def __exit__(self, *_: object) -> None:
        return None


def through_all_stages(tiles: Path, results: Path) -> tuple[bytes, pd.DataFrame]:
    study = {
        "study": "tiles",
        "benchmark": {"card": "folder", "params": {"path": str(tiles)}},
        "generators": ["copy_reference"],
        "metrics": ["mini_clip_i"],
        "results": str(results),
    }
    plan = make_plan(load_study(study))
    runs = {"benchmark": prepare.run, "generate": generate.run, "embed_cases": embed.run_cases}
    for kind, run in (runs | {"embed_images": embed.run_images, "score": score.run}).items():
        for artifact in plan.of_kind(kind):
            run(Context(plan, artifact))
    (benchmark,), (samples,), (scored,) = map(plan.of_kind, ("benchmark", "generate", "score"))
    prompts = prepare.Prepared(plan.folder(benchmark.key)).cases.set_index("case_id")["prompt"]
    for sample, data in prepare.images.read_zip(plan.folder(samples.key) / "images.zip").items():
        colour = prompts[sample.rpartition("-")[0]].split()[1]
        assert prepare.open_png(data).getpixel((24, 24)) == ImageColor.getrgb(colour)
    path = plan.folder(scored.key) / "scores.parquet"
    return path.read_bytes(), records.read_table("scores", path)


def test_stat01_twelve_pictures_keep_their_prompt_and_reference(
    tiles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Joined by position, ten or more would not: as text, 10 comes before 2."""
    plain, scores = through_all_stages(tiles, tmp_path / "one")
    assert len(scores) == 12 and scores["value"].mean() == pytest.approx(1.0, abs=1e-6)
    listdir, scandir = os.listdir, os.scandir
    monkeypatch.setattr(os, "listdir", lambda *a: random.sample(f := listdir(*a), len(f)))
    monkeypatch.setattr(os, "scandir", lambda *a: Shuffled(scandir(*a)))
    assert through_all_stages(tiles, tmp_path / "two")[0] == plain
