"""Figures: what they show can be read in the SVG; nothing undefined is drawn as a number."""

from __future__ import annotations

import io
import itertools
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from subjectbench import cards, cells, composition, figures, records, writing
from subjectbench.config import load_study
from subjectbench.plan import make_plan

PARADIGMS = [*records.PARADIGMS, cells.TOTAL]


@pytest.fixture
def drawn(tmp_path: Path) -> Callable[[Callable[[], Figure]], list[str]]:
    """Draw twice: the same bytes each time, no warning, readable at the width of a page.

    Returns the words in the picture.
    """

    def draw(make: Callable[[], Figure]) -> list[str]:
        files = []
        for name in ("a", "b"):
            with matplotlib.rc_context(figures.STYLE), warnings.catch_warnings():
                warnings.simplefilter("error")
                figure = make()
                sizes = {t.get_fontsize() for t in figure.findobj(Text) if t.get_text().strip()}
                figures.save(figure, tmp_path / name)
            files.append((tmp_path / f"{name}.svg").read_text("utf-8"))
        assert files[0] == files[1]
        assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
        with Image.open(tmp_path / "a.png") as picture:
            inches = picture.width / 160
        assert inches < figures.WIDTH + 0.05, inches
        assert min(sizes) * min(1, figures.WIDTH / inches) > figures.SMALLEST - 0.05, min(sizes)
        return re.findall(r"<text[^>]*>([^<]+)</text>", files[0])

    return draw


def from_file(frame: pd.DataFrame) -> pd.DataFrame:
    """As the report reads its tables."""
    return writing.read(io.StringIO(writing.to_csv(frame)))  # type: ignore[arg-type]


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


def counted_units(all_cases: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    rows = []
    for case in range(8):  # the last four cases of twelve have no units
        for name in ["colour", "shape", "style"][: 1 + case % 3]:
            row = {"case_id": f"c{case}", "unit_id": f"part/{name}", "status": "ok", "name": name}
            row |= {"level": "part", "relevance": "image_only", "weight": 2.0, "question": "?"}
            rows.append(row | {"tool": "vqa", "details": "{}"})
    units = records.table("units", rows, "test")
    table = from_file(composition.units_by_category(units, all_cases))
    return table, from_file(composition.unit_counts(units, all_cases))


def test_units_by_category(drawn: Any) -> None:
    table, counts = counted_units(cases([*records.PARADIGMS] * 3))
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


# --------------------------------------------------------------------------- DSH-Bench


def broken_down(levels: list[str], models: list[str]) -> pd.DataFrame:
    rows = []
    for i, title in enumerate(models):
        for dimension in records.DIMENSIONS:
            for k, level in enumerate(levels):
                row = {"generator": title, "title": title, "dimension": dimension, "level": level}
                row |= {"metric_title": "M", "mean": 0.5 + 0.1 * i - 0.05 * k}
                rows.append(row | {"ci_low": row["mean"] - 0.1, "ci_high": row["mean"] + 0.1})
    return pd.DataFrame(rows)


def test_fig01_tab04_levels_and_names_keep_the_order_of_the_table() -> None:
    """Neither sorted as text (10, 2, easy, hard) nor as they come first out of a file."""
    table = from_file(broken_down(["easy", "medium", "hard"], ["2.10", "10", "2"]))
    figure = figures.breakdown(table, "difficulty")
    for axis in figure.axes:
        assert [t.get_text() for t in axis.get_xticklabels()] == ["easy", "medium", "hard"]
        assert list(axis.get_xticks()) == [0, 1, 2]
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["2.10", "10", "2"]
    plt.close(figure)


def test_radar(drawn: Any) -> None:
    table = broken_down([f"kind {i}" for i in range(5)], ["A", "B"])
    table.loc[1, ["mean", "ci_low", "ci_high"]] = None  # a gap in A's line
    assert {"A", "B", "kind 4", "quality", "M"} <= set(drawn(lambda: figures.radar(table)))
    many = broken_down([f"kind {i}" for i in range(29)], ["A"])
    many = many[many["dimension"] == "quality"]
    assert "kind 28" in drawn(lambda: figures.radar(many))
    figure = figures.radar(table)
    line = figure.axes[0].get_lines()[0]
    assert pd.isna(line.get_ydata()[1]) and line.get_ydata()[0] == line.get_ydata()[-1] == 0.5
    plt.close(figure)


def labelled_cases(n: int, domains: int = 2) -> pd.DataFrame:
    frame = cases([None] * n)
    number = frame.index.to_series() // 4
    return frame.assign(
        domain=(number % domains).map("domain {}".format),
        kind=(number % 3).map("class {}".format),
        category=(number % 7).map("Category {}".format),
        difficulty=(number % 3).map(dict(enumerate(records.DIFFICULTIES))),
        scenario=(frame.index.to_series() % 6).map(dict(enumerate(records.SCENARIOS))),
    )


def test_distributions(drawn: Any) -> None:
    both = {"Ours": labelled_cases(48), "Theirs": cases([None] * 8)}
    words = drawn(lambda: figures.distributions(from_file(composition.distributions(both))))
    assert {"Ours", "Theirs", "hard", "background", "(none)", "Category 6", "kind 0"} <= set(words)
    one = {"Ours": labelled_cases(48)}
    words = drawn(lambda: figures.distributions(composition.distributions(one)))
    assert "Ours" not in words and "(none)" not in words


def test_hierarchy(drawn: Any) -> None:
    table = from_file(composition.hierarchy(labelled_cases(400)))
    words = drawn(lambda: figures.hierarchy(table))
    for _, row in table.iterrows():
        assert f"{row['category']} {row['subjects']}" in words
    assert {"100", "subjects", "domain 0 50"} <= set(words)


@pytest.mark.parametrize("many", [3, 40])
def test_labels_around_a_ring_move_apart_and_no_further(many: int) -> None:
    given = sorted([0.5] * many + [2.0, 2.1, 4.0])
    placed = figures._apart(given, 0.05)
    assert all(b - a > 0.05 - 1e-9 for a, b in itertools.pairwise(placed))
    assert placed[-3:] == [pytest.approx(x) for x in given[-3:]]
    assert sum(placed) == pytest.approx(sum(given))


def test_reference_map(drawn: Any) -> None:
    table = composition.reference_map(
        {"Ours": labelled_cases(24)}, {"Ours": {f"r{i}": [1.0, i, i * i] for i in range(6)}}
    )
    words = drawn(lambda: figures.reference_map(from_file(table), "CLIP"))
    assert {"class 0", "class 2", "t-SNE of 6 references, CLIP, perplexity 2"} <= set(words)
    none = composition.reference_map({"Ours": labelled_cases(24)}, {})
    words = drawn(lambda: figures.reference_map(from_file(none), "CLIP"))
    assert words == ["Too few references for a map."]


# --------------------------------------------------------------------------- glyphs and backends


def gallery(prompt: str) -> Figure:
    square = Image.new("RGB", (8, 8), "red")
    return figures.gallery([("style", prompt)], [("参照", [square])], {(0, 0): "0.50"})


def test_fig03_greek_and_cjk_are_drawn(drawn: Any, capsys: Any) -> None:
    """Every glyph exists in the font it is drawn in; mathematics is not read into prompts."""
    words = " ".join(drawn(lambda: gallery("λ 猫が草原 고양이 $x_ ^$ and $5")))
    assert {"λ", "$x_", "^$", "0.50", "参照"} <= set(words.split())
    assert "猫が草原" in words and figures.NO_GLYPH not in words
    assert not capsys.readouterr().err


def test_fig03_what_no_font_has_is_marked_and_said(
    drawn: Any, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert f"a {figures.NO_GLYPH} cat" in drawn(lambda: gallery("a \U0001f984 cat"))
    assert "figure a: no font has U+1F984;" in capsys.readouterr().err
    figures._fonts.cache_clear()
    monkeypatch.setattr(figures, "FALLBACK_FONT", "not_installed")
    try:
        words = drawn(lambda: gallery("猫 λ"))
        assert f"{figures.NO_GLYPH} λ" in words and figures.NO_GLYPH * 2 in words
        assert "no font has U+53C2, U+7167, U+732B;" in capsys.readouterr().err
    finally:
        figures._fonts.cache_clear()


NAMES = ["λ-ECLIPSE", "参照モデル", "고양이", "Zoë"]


def board(names: list[str]) -> pd.DataFrame:
    rows = []
    for i, title in enumerate(names):
        row: dict[str, Any] = {"generator": f"m{i}", "title": title, "note": ""}
        for dimension, mean in (("preservation", 0.2 + 0.1 * i), ("following", 0.9 - 0.2 * i)):
            row |= {f"{dimension}_mean": mean, f"{dimension}_n": 9, f"{dimension}_coverage": 1.0}
            row |= {f"{dimension}_ci_low": mean - 0.1, f"{dimension}_ci_high": mean + 0.1}
        rows.append(row)
    return pd.DataFrame(rows)


def named(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    """The frame with its values of a column replaced by NAMES, in order."""
    known = dict(zip(dict.fromkeys(frame[column]), itertools.cycle(NAMES), strict=False))
    return frame.assign(**{column: frame[column].map(known)})


def any_script() -> dict[str, Callable[[], Figure]]:
    levels, square = broken_down(NAMES, NAMES), Image.new("RGB", (8, 8), "red")
    labelled = named(labelled_cases(48).assign(paradigm="local_editing"), "category")
    both = {NAMES[0]: labelled, NAMES[1]: labelled}
    rows = ["reference", *NAMES]
    table, units = chosen(["a", "b", "c", "d"])
    table = named(table, "title")
    ablated = agreed().rename(columns={"metric_title": "setting"})
    ablated = ablated[ablated["paradigm"] == cells.TOTAL]
    ablated = ablated.assign(**{f"difference{e}": 0.1 for e in ("", "_ci_low", "_ci_high")})
    titles = dict(zip(("preservation", "following"), NAMES, strict=False))
    return {
        "breakdown": lambda: figures.breakdown(levels, NAMES[0]),
        "radar": lambda: figures.radar(levels),
        "preservation_following": lambda: figures.preservation_following(
            board(NAMES), titles, NAMES
        ),
        "distributions": lambda: figures.distributions(composition.distributions(both)),
        "hierarchy": lambda: figures.hierarchy(composition.hierarchy(labelled)),
        "composition": lambda: figures.composition(composition.by_category(labelled)),
        "alignment": lambda: figures.alignment(named(agreed(), "metric_title")),
        "ablation": lambda: figures.ablation(named(ablated, "setting")),
        "units_by_category": lambda: figures.units_by_category(*counted_units(labelled)),
        "gallery": lambda: figures.gallery(
            [("style", name) for name in NAMES], [(name, [square] * 4) for name in rows]
        ),
        "disagreements": lambda: figures.disagreements(
            table, units, {}, {}, dict.fromkeys(("c1", "c2"), " ".join(NAMES)),
            {"ufo": "λ", "clip_i": "参照"},
        ),
    }  # fmt: skip


@pytest.mark.parametrize("name", list(any_script()))
def test_fig03_names_in_any_script(name: str, tmp_path: Path, capsys: Any) -> None:
    """No box, no warning, nothing lost: Latin, Greek, Chinese, Japanese and Korean."""
    with matplotlib.rc_context(figures.STYLE), warnings.catch_warnings():
        warnings.simplefilter("error")
        figures.save(any_script()[name](), tmp_path / name)
    text = "".join(re.findall(r"<text[^>]*>([^<]+)</text>", (tmp_path / f"{name}.svg").read_text()))
    wanted = NAMES[:2] if name in ("alignment", "ablation") else NAMES
    assert all(one in text for one in wanted) and figures.NO_GLYPH not in text
    assert not capsys.readouterr().err


SEEN_BY = {
    "everybody": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
"""Linear RGB as it is seen; Machado, Oliveira and Fernandes 2009, severity 1.0."""


def lab(linear: np.ndarray) -> np.ndarray:
    """CIE L*a*b* of linear sRGB under D65."""
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    x = linear @ np.array(to_xyz).T / [0.9505, 1.0, 1.089]
    f = np.where(x > 0.008856, np.cbrt(x), 7.787 * x + 16 / 116)
    return np.stack(
        [116 * f[:, 1] - 16, *(k * (f[:, i] - f[:, i + 1]) for i, k in ((0, 500), (1, 200)))], 1
    )


@pytest.mark.parametrize("who", list(SEEN_BY))
def test_colours_differ_for_everybody(who: str) -> None:
    """Ten colours at least 10 apart (2.3 is just noticeable); every model has its marker too."""
    looks = figures.style([f"{i}" for i in range(30)])
    assert len({(tuple(look["color"]), look["marker"]) for look in looks.values()}) == 30
    colours = np.array([look["color"] for look in looks.values()][:10])
    linear = np.where(colours <= 0.04045, colours / 12.92, ((colours + 0.055) / 1.055) ** 2.4)
    seen = lab(np.clip(linear @ np.array(SEEN_BY[who]).T, 0, 1))
    apart = np.linalg.norm(seen[:, None] - seen[None], axis=-1)
    assert apart[np.triu_indices(10, 1)].min() > 10


@pytest.mark.parametrize("study", ["config.yaml", "workflow/studies/miniworld_ufo.yaml"])
def test_every_figure_has_its_values_beside_it(study: str) -> None:
    (report,) = make_plan(load_study(cards.read_yaml(cards.ROOT / study))).of_kind("report")
    assert len(report.job["figures"]) > 5
    for name in report.job["figures"]:
        assert {f"tables/{name}.csv", f"figures/{name}.csv"} & set(report.files), name


def test_fig04_no_display_is_needed(tmp_path: Path) -> None:
    code = "from subjectbench import figures; from pathlib import Path; import sys; "
    code += "figures.save(figures.remark('x'), Path(sys.argv[1]))"
    env = {k: v for k, v in os.environ.items() if k != "DISPLAY"} | {"MPLBACKEND": "TkAgg"}
    command = [sys.executable, "-c", code, str(tmp_path / "figure")]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "figure.png").stat().st_size > 0
