"""UFO's figures: what they show can be read in the SVG; nothing undefined is drawn as a number."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd
import pytest
from matplotlib.figure import Figure
from PIL import Image

from subjectbench import cells, composition, figures, records, writing

PARADIGMS = [*records.PARADIGMS, cells.TOTAL]


@pytest.fixture
def drawn(tmp_path: Path) -> Callable[[Callable[[], Figure]], list[str]]:
    """Draw twice: the same bytes each time; returns the words in the picture."""

    def draw(make: Callable[[], Figure]) -> list[str]:
        files = []
        for name in ("a", "b"):
            with matplotlib.rc_context(figures.STYLE):
                figures.save(make(), tmp_path / name)
            files.append((tmp_path / f"{name}.svg").read_text("utf-8"))
        assert files[0] == files[1]
        assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
        with Image.open(tmp_path / "a.png") as picture:
            assert picture.width < 1300  # as wide as a page at 160 dots per inch
        return re.findall(r"<text[^>]*>([^<]+)</text>", files[0])

    return draw


def from_file(frame: pd.DataFrame) -> pd.DataFrame:
    """As the report reads its tables."""
    text = io.StringIO(writing.to_csv(frame))
    return pd.read_csv(text, keep_default_na=False, na_values=[""])


def agreed() -> pd.DataFrame:
    rows = []
    for metric in ("UFO", "CLIP-I"):
        for source in ("raters", "truth"):
            for i, paradigm in enumerate(PARADIGMS):
                row = {"metric_title": metric, "source": source, "paradigm": paradigm}
                row |= {"spearman": 0.1 * i, "spearman_ci_low": 0.1 * i - 0.2}
                rows.append(row | {"spearman_ci_high": 0.1 * i + 0.1})
    return pd.DataFrame(rows)


def test_alignment(drawn: Any) -> None:
    table = agreed()
    table.loc[3, ["spearman", "spearman_ci_low", "spearman_ci_high"]] = None
    table.loc[4, ["spearman_ci_low", "spearman_ci_high"]] = None
    ceiling = pd.DataFrame({"paradigm": PARADIGMS, "ceiling": [0.7, None, 0.6, 0.5, 0.6]})
    words = drawn(lambda: figures.alignment(from_file(table), from_file(ceiling)))
    wanted = {"UFO", "CLIP-I", "raters", "truth", "local editing", "a rater with the others"}
    assert wanted <= set(words)
    assert "a rater with the others" not in drawn(lambda: figures.alignment(table))


def test_ablation(drawn: Any) -> None:
    rows = []
    for setting, difference in (("without weights", -0.1), ("full", None)):
        row: dict[str, Any] = {"setting": setting, "source": "raters", "spearman": 0.5}
        row |= {"spearman_ci_low": 0.4, "spearman_ci_high": 0.6, "difference": difference}
        row |= {"difference_ci_low": None, "difference_ci_high": None}
        rows.append(row)
    words = drawn(lambda: figures.ablation(from_file(pd.DataFrame(rows))))
    assert {"without weights", "full", "difference to the full metric"} <= set(words)


def cases(paradigms: list[str | None]) -> pd.DataFrame:
    rows = []
    for i, paradigm in enumerate(paradigms):
        row = dict.fromkeys(records.CASES.columns) | {
            "case_id": f"c{i}",
            "subject_id": f"s{i // 4}",
        }
        row |= {"category": f"kind {i // 4 % 3}", "reference_id": f"r{i // 4}"}
        rows.append(row | {"paradigm": paradigm, "details": "{}"})
    return records.table("cases", rows, "test")


def test_composition(drawn: Any) -> None:
    table = composition.by_category(cases([*records.PARADIGMS] * 6))
    words = drawn(lambda: figures.composition(from_file(table)))
    assert "24 cases of 6 references, 75.00% conflicting" in words
    assert {"kind 0", "kind 2", "complex editing (tier 3)"} <= set(words)
    assert [w.strip() for w in words].count("75% conflicting") == 3
    assert cells.TOTAL not in words
    none = composition.by_category(cases([None] * 8))
    assert "8 cases of 2 references" in drawn(lambda: figures.composition(from_file(none)))


def test_units_by_category(drawn: Any) -> None:
    rows = []
    for case in range(8):  # the last four cases of twelve have no units
        for name in ["colour", "shape", "style"][: 1 + case % 3]:
            row = {"case_id": f"c{case}", "unit_id": f"part/{name}", "status": "ok", "name": name}
            row |= {"level": "part", "relevance": "image_only", "weight": 2.0, "question": "?"}
            rows.append(row | {"tool": "vqa", "details": "{}"})
    units, all_cases = records.table("units", rows, "test"), cases([*records.PARADIGMS] * 3)
    table = from_file(composition.units_by_category(units, all_cases))
    counts = from_file(composition.unit_counts(units, all_cases))
    words = drawn(lambda: figures.units_by_category(table, counts))
    assert {"kind 0", "kind 2", "text and image", "setting", "units of a case"} <= set(words)


def chosen(generators: list[str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    rows, units = [], []
    for case in ("c1", "c2"):
        for i, generator in enumerate(generators):
            ids = {"case_id": case, "sample_id": f"{case}-s0", "generator": generator}
            ids |= {"title": f"Model {generator}"}
            row = ids | {"paradigm": "local_editing", "source": "raters", "metric": "ufo"}
            row |= {"baseline": "clip_i", "rho": -1.0, "rho_metric": 0.5, "rho_baseline": None}
            row |= {"value": i / 2, "rank": 3 - i, "baseline_value": -i / 2}
            rows.append(row | {"baseline_rank": i + 1, "target": i, "target_rank": 1.5})
            for k in range(12):
                kinds = [(1.0, "ok"), (0.0, "ok"), (None, "refused")]
                value, status = (0.25, "ok") if k == 1 else kinds[i % 3] if k < 10 else (1.0, "ok")
                unit = ids | {"unit": f"part/u{k}", "name": f"unit {k}", "relevance": "text_only"}
                unit |= {"weight": float(k % 5 + 1), "value": value, "status": status}
                units.append(unit | {"decided": k < 10 and k != 1})
    return pd.DataFrame(rows), pd.DataFrame(units)


def test_disagreements(drawn: Any) -> None:
    table, units = chosen(["a", "b", "c"])
    square = Image.new("RGB", (16, 16), "red")
    pictures = {(row.sample_id, row.generator): square for row in table.itertuples()}
    del pictures["c2-s0", "b"]
    prompts = {"c1": "a mug for $5 or $6 " + "on a very long shelf " * 20, "c2": "a mug"}
    titles = {"ufo": "UFO", "clip_i": "CLIP-I"}
    words = drawn(
        lambda: figures.disagreements(
            from_file(table), from_file(units), pictures, {"c1": square}, prompts, titles
        )
    )
    text = "\n".join(words)
    assert words.count("✓") == words.count("✗") == words.count("refused") == 2 * 8
    assert words.count("no picture") == 2  # a model's, and a reference
    assert words.count("differ too: 1 more; same for all: 3 more") == 2
    assert "$5 or $6" in text and "“a mug”" in text
    assert "local editing; ρ of UFO and CLIP-I -1.00; with raters: UFO 0.50, CLIP-I –" in words
    assert {"UFO (rank)", "CLIP-I (rank)", "raters (rank)", "-0.50 (2)", "2.00 (1.5)"} <= set(words)
    assert "unit 9 (text, 5)" in words and "unit 1 (text, 2)" not in words


def test_disagreements_with_many_models(drawn: Any) -> None:
    table, units = chosen([f"{i}" for i in range(11)])
    words = drawn(
        lambda: figures.disagreements(
            table, units.iloc[:0], {}, {}, {"c1": "x", "c2": "y"}, {"ufo": "U", "clip_i": "C"}
        )
    )
    assert words.count("reference") == 2 and "5.00 (-7)" in words
