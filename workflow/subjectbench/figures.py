"""One function per figure: a table in, a matplotlib figure out.

Colours are seaborn's colour-blind palette and every model has its own marker too. Names come in
the order of the table, levels in the order of ``records``.
"""

from __future__ import annotations

import importlib.util
import math
import sys
import textwrap
import unicodedata
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import matplotlib

matplotlib.use("Agg")  # also where MPLBACKEND names a window system

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib import font_manager, patheffects
from matplotlib.figure import Figure
from matplotlib.text import Text

from subjectbench.cells import POOLED, TOTAL, UNLABELLED
from subjectbench.composition import HIERARCHY
from subjectbench.records import DIMENSIONS, LEVELS, PARADIGMS, RELEVANCES, Status
from subjectbench.tables import pareto
from subjectbench.vocabulary import TIERS

if TYPE_CHECKING:
    from PIL import Image

MARKERS = "oDs^vPX*<>phd8"
WIDTH = 6.5
"""Inches: the text width of a page."""

SMALLEST = 6.0
"""Points: no text is smaller, where a figure is printed as wide as the page."""

STYLE: Any = {
    "svg.hashsalt": "subjectbench",  # the same ids, so the same bytes
    "svg.fonttype": "none",
    "font.size": 7.5,
    "axes.titlesize": 8.5,
    "legend.fontsize": 7,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.parse_math": False,  # a prompt may hold two dollar signs
}


def style(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Colour and marker of each name, the same in every figure of a report."""
    palette = sns.color_palette("colorblind", 10)
    return {
        name: {"color": palette[i % 10], "marker": MARKERS[i % len(MARKERS)]}
        for i, name in enumerate(names)
    }


def _legend(
    figure: Figure, handles: Sequence[Any], labels: Sequence[str], place: str = "lower"
) -> None:
    """Put a legend below (or above) the panels, in as many columns as the page has room for."""
    longest = max(sum(1 + (unicodedata.east_asian_width(c) in "WF") for c in t) for t in labels)
    columns = int(WIDTH / (0.5 + 0.058 * longest))  # a sample and its gap, and letters of 7 points
    columns = min(max(1, columns), len(labels))
    lines = -(-len(labels) // columns)
    figure.set_figheight(figure.get_figheight() + 0.14 * max(0, lines - 3))  # panels keep theirs
    where: Any = f"outside {place} center"
    figure.legend(handles, labels, loc=where, ncols=columns, frameon=False)


FALLBACK_FONT = "cvttf_NotoSansCJK_Regular"
"""Package with Noto Sans CJK, for what DejaVu Sans (Latin, Greek, Cyrillic, ...) lacks."""

NO_GLYPH = "\ufffd"
"""Stands for a character that no font has."""


@cache
def _fonts() -> dict[str, frozenset[int]]:
    """Family -> characters it has: matplotlib's own font, then the fallback where installed."""
    own = font_manager.findfont("DejaVu Sans")
    fonts = {"DejaVu Sans": frozenset(font_manager.get_font(own).get_charmap())}
    spec = importlib.util.find_spec(FALLBACK_FONT)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for path in sorted(Path(folder).glob("*.otf")):
            font_manager.fontManager.addfont(path)
            font = font_manager.get_font(path)
            fonts[font.family_name] = frozenset(font.get_charmap())
    return fonts


def _make_legible(figure: Figure, name: str) -> None:
    """Give text with unusual characters a font that has them; mark what no font has.

    A prompt in another script must not stop a report, and must not become a row of boxes unsaid.
    """
    lost: set[str] = set()
    for item in figure.findobj(Text):
        assert isinstance(item, Text)
        words = {c for c in item.get_text() if not c.isspace()}
        own, *others = _fonts().values()
        unusual = {c for c in words if ord(c) not in own}
        if unusual:
            item.set_fontfamily(list(_fonts()))
            missing = {c for c in unusual if not any(ord(c) in font for font in others)}
            lost |= missing
            item.set_text("".join(NO_GLYPH if c in missing else c for c in item.get_text()))
    if lost:
        codes = ", ".join(f"U+{ord(c):04X}" for c in sorted(lost)[:10])
        more = f" and {len(lost) - 10} more" if len(lost) > 10 else ""
        print(
            f"warning: figure {name}: no font has {codes}{more}; '{NO_GLYPH}' stands for them",
            file=sys.stderr,
        )


def save(figure: Figure, stem: Path) -> None:
    """Write SVG and PNG with the same bytes for the same figure.

    Characters that matplotlib's own font lacks, Chinese, Japanese and Korean ones among them, are
    drawn in ``FALLBACK_FONT``; where that lacks them too, or is not installed, ``NO_GLYPH`` is
    drawn and a warning names them.
    """
    _make_legible(figure, stem.name)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="Glyph .* missing")
        tight: Any = {"bbox_inches": "tight", "pad_inches": 0.02}
        figure.savefig(f"{stem}.svg", metadata={"Date": None}, **tight)
        figure.savefig(f"{stem}.png", dpi=160, metadata={"Software": None}, **tight)
    plt.close(figure)


def breakdown(table: pd.DataFrame, level_name: str) -> Figure:
    """Mean of each dimension by level, a line per model, bars for the intervals.

    Args:
        table: from ``tables.breakdown``.
        level_name: axis label.
    """
    names = list(dict.fromkeys(table["title"]))
    looks = style(names)
    dimensions = [d for d in DIMENSIONS if d in set(table["dimension"])]
    levels = list(dict.fromkeys(table["level"]))
    figure, axes = plt.subplots(
        1, len(dimensions), figsize=(WIDTH, 2.9), squeeze=False, layout="constrained"
    )
    for axis, dimension in zip(axes[0], dimensions, strict=True):
        mine = table[table["dimension"] == dimension]
        for i, name in enumerate(names):
            rows = mine[mine["title"] == name].set_index("level").reindex(levels)
            # Side by side, so that intervals of different models do not hide each other.
            x = [p + (i - (len(names) - 1) / 2) * 0.5 / len(names) for p in range(len(levels))]
            error = [rows["mean"] - rows["ci_low"], rows["ci_high"] - rows["mean"]]
            axis.errorbar(
                x, rows["mean"], yerr=error, label=name, linewidth=1, markersize=4, **looks[name]
            )
        axis.set_xticks(range(len(levels)), [_words(level) for level in levels])
        if len(levels) > 4:
            for label in axis.get_xticklabels():
                label.set(rotation=40, ha="right", rotation_mode="anchor")
        metric = mine["metric_title"].iloc[0]
        axis.set_title(f"{dimension}\n{metric}")
        axis.set_xlabel(level_name)
    axes[0][0].set_ylabel("mean score")
    handles, labels = axes[0][0].get_legend_handles_labels()
    _legend(figure, handles, labels)
    return figure


def preservation_following(
    board: pd.DataFrame, titles: dict[str, str], names: Sequence[str]
) -> Figure:
    """Preservation against following with intervals, and the front that no other model beats.

    Args:
        board: from ``tables.leaderboard``.
        titles: dimension to title of its metric.
        names: all models in the order of the config, so that colours agree between figures.
    """
    looks = style(names)
    front = pareto(board)
    figure, axis = plt.subplots(figsize=(WIDTH * 0.9, 3.6), layout="constrained")
    for row in board.to_dict("records"):
        x, y = row["following_mean"], row["preservation_mean"]
        if pd.isna(x) or pd.isna(y):
            continue
        axis.errorbar(
            x,
            y,
            xerr=[[x - row["following_ci_low"]], [row["following_ci_high"] - x]],
            yerr=[[y - row["preservation_ci_low"]], [row["preservation_ci_high"] - y]],
            label=row["title"],
            linestyle="none",
            markersize=6,
            elinewidth=0.8,
            **looks[row["title"]],
        )
    best = front[front["on_front"].fillna(False)].sort_values("following")
    axis.plot(
        best["following"],
        best["preservation"],
        color="0.4",
        linestyle="--",
        linewidth=1,
        zorder=0,
        label="Pareto front",
    )
    axis.set_xlabel(f"following: {titles['following']}")
    axis.set_ylabel(f"preservation: {titles['preservation']}")
    figure.legend(loc="outside right upper", frameon=False)
    return figure


def benchmarks(
    table: pd.DataFrame, titles: Mapping[str, str], metrics: Mapping[str, str]
) -> Figure:
    """Models on several benchmarks with intervals, a panel per dimension (DSH-Bench, Table 2).

    Args:
        table: from ``tables.benchmarks_side_by_side``.
        titles: name of a benchmark to its title, in order.
        metrics: dimension to title of its metric.
    """
    models = list(table["title"])[::-1]
    looks = style(list(titles))
    figure, axes = plt.subplots(
        1,
        len(metrics),
        figsize=(WIDTH, 1.3 + (0.2 + 0.1 * len(titles)) * len(models)),
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    rows = table.set_index("title").reindex(models)
    for axis, (dimension, metric) in zip(axes[0], metrics.items(), strict=True):
        for i, name in enumerate(titles):
            mean, low, high = (
                rows[f"{dimension}_{name}_{part}"] for part in ("mean", "ci_low", "ci_high")
            )
            offset = (i - (len(titles) - 1) / 2) * -0.5 / len(titles)
            axis.errorbar(
                mean,
                [p + offset for p in range(len(models))],
                xerr=[mean - low, high - mean],
                linestyle="none",
                markersize=4.5,
                elinewidth=0.9,
                label=titles[name],
                **looks[name],
            )
        axis.set_yticks(range(len(models)), models)
        axis.set_ylim(-0.6, len(models) - 0.4)
        axis.set_title(f"{dimension}\n{metric}")
        axis.set_xlabel("mean score")
    handles, labels = axes[0][0].get_legend_handles_labels()
    _legend(figure, handles, labels)
    return figure


def agreement(table: pd.DataFrame) -> Figure:
    """Spearman of each metric with each dimension, pooled over models, with intervals.

    Args:
        table: from ``tables.agreement``.
    """
    pooled = table[table["generator"] == POOLED]
    dimensions = list(dict.fromkeys(pooled["dimension"]))
    metrics = list(dict.fromkeys(pooled["metric_title"]))[::-1]
    sources = list(dict.fromkeys(pooled["source"]))
    looks = style(sources)
    figure, axes = plt.subplots(
        1,
        len(dimensions),
        figsize=(WIDTH, 1.3 + 0.34 * len(metrics)),
        sharex=True,
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for axis, dimension in zip(axes[0], dimensions, strict=True):
        for i, source in enumerate(sources):
            mine = pooled[(pooled["dimension"] == dimension) & (pooled["source"] == source)]
            rows = mine.set_index("metric_title").reindex(metrics)
            offset = (i - (len(sources) - 1) / 2) * 0.22
            axis.errorbar(
                rows["spearman"],
                [p + offset for p in range(len(metrics))],
                xerr=[
                    rows["spearman"] - rows["spearman_ci_low"],
                    rows["spearman_ci_high"] - rows["spearman"],
                ],
                linestyle="none",
                markersize=5,
                label=source,
                **looks[source],
            )
        axis.axvline(0, color="0.5", linewidth=0.8)
        axis.set_yticks(range(len(metrics)), metrics)
        axis.set_title(dimension)
        axis.set_xlabel("Spearman ρ, pooled")
    handles, labels = axes[0][0].get_legend_handles_labels()
    _legend(figure, handles, labels)
    return figure


def radar(table: pd.DataFrame) -> Figure:
    """Mean of each dimension by level, a spoke per level and a line per model (DSH-Bench, Fig. 8).

    The centre is not 0, or lines could not be told apart. Intervals would cover each other: the
    table has them.

    Args:
        table: from ``tables.breakdown``, with ``metric_title``.
    """
    names = list(dict.fromkeys(table["title"]))
    looks = style(names)
    dimensions = [d for d in DIMENSIONS if d in set(table["dimension"])]
    levels = list(dict.fromkeys(table["level"]))
    beside = len(levels) <= 14  # beyond that, names need a panel as wide as the page
    columns = 2 if beside else 1
    lines = -(-len(dimensions) // columns)
    figure = plt.figure(figsize=(WIDTH, (2.8 if beside else 5.0) * lines), layout="constrained")
    angles = [2 * math.pi * i / len(levels) for i in range(len(levels))]
    for number, dimension in enumerate(dimensions, start=1):
        axis: Any = figure.add_subplot(lines, columns, number, projection="polar")
        mine = table[table["dimension"] == dimension]
        for name in names:
            means = mine[mine["title"] == name].set_index("level")["mean"].reindex(levels)
            around = [*means, means.iloc[0]]
            axis.plot(
                [*angles, angles[0]],
                around,
                label=name,
                linewidth=0.9,
                markersize=3,
                alpha=0.85,
                **looks[name],
            )
        low, high = mine["mean"].min(), mine["mean"].max()
        if pd.notna(low):
            room = 0.15 * (high - low) or 0.1 * abs(high) or 1.0
            axis.set_ylim(low - 2 * room, high + room)
        axis.set_theta_zero_location("N")
        axis.set_theta_direction(-1)
        labels = [_in_lines(_words(level), 22) for level in levels]
        axis.set_xticks(angles, labels, fontsize=6.5)
        for label, angle in zip(axis.get_xticklabels(), angles, strict=True):
            side = math.sin(angle)
            label.set_horizontalalignment(
                "center" if abs(side) < 0.05 else "left" if side > 0 else "right"
            )
        axis.tick_params(axis="x", pad=-2)
        _write_radii(axis, math.pi / len(levels))
        axis.set_title(f"{dimension}\n{mine['metric_title'].iloc[0]}")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    if beside and len(dimensions) % 2:  # where the next panel would be
        rest = figure.add_subplot(lines, columns, len(dimensions) + 1)
        rest.set_axis_off()
        rest.legend(handles, labels, loc="center", frameon=False)
    else:
        _legend(figure, handles, labels)
    return figure


def _write_radii(axis: Any, angle: float) -> None:
    """Label the circles of a polar panel above its lines, which would cover them."""
    low, high = axis.get_ylim()
    found = matplotlib.ticker.MaxNLocator(3).tick_values(low, high)
    ticks = [tick for tick in found if low < tick < high]
    axis.set_yticks(ticks, [""] * len(ticks))
    halo = [patheffects.withStroke(linewidth=1.5, foreground="white")]
    for tick in ticks:
        look = {"ha": "center", "va": "center", "color": "0.2", "path_effects": halo, "zorder": 9}
        axis.text(angle, tick, f"{tick:g}", fontsize=SMALLEST, **look)


def distributions(table: pd.DataFrame) -> Figure:
    """Subjects by difficulty and category, prompts by scenario, beside each other (Fig. 2, 3a).

    Args:
        table: from ``composition.distributions``.
    """
    benchmarks = list(dict.fromkeys(table["benchmark"]))
    looks = style(benchmarks)
    by = {facet: rows for facet, rows in table.groupby("facet", sort=False)}
    categories = list(dict.fromkeys(by["category"]["level"]))
    several = len(benchmarks) > 1  # then points of one category lie below each other
    tall = 0.5 + (0.08 + 0.07 * len(benchmarks) if several else 0.14) * len(categories)
    figure = plt.figure(figsize=(WIDTH, 2.6 + tall), layout="constrained")
    grid = figure.add_gridspec(2, 2, height_ratios=[2.1, tall], width_ratios=[1, 2])
    for place, facet, unit in ((0, "difficulty", "subjects"), (1, "scenario", "cases")):
        axis = figure.add_subplot(grid[0, place])
        levels = list(dict.fromkeys(by[facet]["level"]))
        width = 0.8 / len(benchmarks)
        for i, name in enumerate(benchmarks):
            mine = by[facet][by[facet]["benchmark"] == name].set_index("level").reindex(levels)
            x = [p + (i - (len(benchmarks) - 1) / 2) * width for p in range(len(levels))]
            bars = axis.bar(x, mine[unit], width * 0.94, label=name, color=looks[name]["color"])
            axis.bar_label(bars, fontsize=6, padding=1)
        axis.set_xticks(range(len(levels)), [_in_lines(_words(x), 11) for x in levels], fontsize=7)
        axis.set_title(f"{unit if unit == 'subjects' else 'prompts'} by {facet}")
        axis.grid(visible=False, axis="x")
        axis.set_axisbelow(True)
        axis.margins(y=0.12)
    axis = figure.add_subplot(grid[1, :])
    rows = by["category"]
    for i, name in enumerate(benchmarks):
        mine = rows[rows["benchmark"] == name].set_index("level").reindex(categories)
        y = [p + (i - (len(benchmarks) - 1) / 2) * 0.75 / len(benchmarks) for p in range(len(mine))]
        size = 3.5 if several else 4.5
        axis.plot(mine["subjects"], y, linestyle="none", markersize=size, label=name, **looks[name])
    axis.set_yticks(range(len(categories)), categories, fontsize=6.5)
    axis.set_ylim(len(categories) - 0.5, -0.5)
    axis.set_xlim(left=-0.02 * rows["subjects"].max())
    axis.locator_params(axis="x", integer=True)
    axis.set_title("subjects by category")
    axis.set_xlabel("subjects")
    if several:
        handles, labels = axis.get_legend_handles_labels()
        _legend(figure, handles, labels)
    return figure


RINGS = ((0.27, 0.22), (0.49, 0.17), (0.66, 0.17))
"""Inner radius and width of the rings of domain, kind and category."""


def hierarchy(table: pd.DataFrame) -> Figure:
    """Rings of domain, kind and category, as wide as they have subjects (DSH-Bench, Figure 6).

    Args:
        table: from ``composition.hierarchy``.
    """
    palette = {k: look["color"] for k, look in style(list(dict.fromkeys(table["kind"]))).items()}
    domains = list(dict.fromkeys(table["domain"]))
    figure = plt.figure(figsize=(WIDTH, WIDTH))
    axis: Any = figure.add_subplot(projection="polar")
    axis.set_theta_zero_location("N")
    axis.set_theta_direction(-1)
    total = table["subjects"].sum()
    outside: list[tuple[str, float]] = []
    for depth, (inner, width) in enumerate(RINGS):
        sizes = table.groupby(list(HIERARCHY[: depth + 1]), sort=False)["subjects"].sum()
        start = 0.0
        for number, (names, size) in enumerate(sizes.items()):
            path = names if isinstance(names, tuple) else (names,)
            colour: Any = str(0.72 + 0.16 * (domains.index(path[0]) % 2))
            if depth:
                lift = 0.15 if depth == 1 else 0.45 + 0.2 * (number % 2)
                colour = [c + (1 - c) * lift for c in palette[path[1]]]
            share = size / total
            middle, turn = 2 * math.pi * (start + share / 2), 2 * math.pi * share
            look = {"color": colour, "edgecolor": "white", "linewidth": 0.8}
            axis.bar(middle, width, turn, inner, **look)
            if depth == 2:
                outside.append((f"{path[-1]} {size}", middle))
            elif share > 0.025:  # narrower than a line of text: the table has it
                _write_on_ring(axis, f"{path[-1]} {size}", middle, inner + width / 2, share > 0.1)
            start += share
    _write_around(axis, outside)
    axis.text(0, 0, f"{total}\nsubjects", ha="center", va="center", fontsize=9)
    axis.set_ylim(0, 1.12)
    axis.set_axis_off()
    return figure


def _write_on_ring(axis: Any, text: str, angle: float, radius: float, along: bool) -> None:
    """Write into a part of a ring, along it where there is room, else outwards."""
    degrees = math.degrees(angle)
    turn = -degrees if along else 90 - degrees
    upside_down = 90 < degrees < 270 if along else degrees > 180
    axis.text(
        angle,
        radius,
        _in_lines(text, 16 if along else 9),
        rotation=turn + 180 * upside_down,
        ha="center",
        va="center",
        fontsize=6.5 if along else SMALLEST,
    )


def _write_around(axis: Any, labels: Sequence[tuple[str, float]]) -> None:
    """Write outwards beyond the last ring; labels of narrow neighbours move apart."""
    edge = RINGS[-1][0] + RINGS[-1][1]
    apart = math.radians(2.1)  # a line of text at this radius and size
    places = _apart([angle for _, angle in labels], apart)
    for (text, angle), place in zip(labels, places, strict=True):
        left = math.degrees(place) % 360 > 180
        axis.plot([angle, place], [edge, edge + 0.025], color="0.6", linewidth=0.5)
        axis.text(
            place,
            edge + 0.035,
            text,
            rotation=90 - math.degrees(place) + 180 * left,
            rotation_mode="anchor",
            ha="right" if left else "left",
            va="center",
            fontsize=6.5,
        )


def _apart(angles: Sequence[float], gap: float) -> list[float]:
    """Move rising numbers as little as needed for neighbours to be ``gap`` apart."""
    groups: list[list[float]] = []  # of numbers that touch, each less its place in their row
    for i, angle in enumerate(angles):
        groups.append([angle - gap * i])
        while len(groups) > 1 and fmean(groups[-2]) > fmean(groups[-1]):
            last = groups.pop()
            groups[-1] += last
    means = [fmean(group) for group in groups for _ in group]
    return [mean + gap * i for i, mean in enumerate(means)]


def reference_map(table: pd.DataFrame, encoder: str) -> Figure:
    """References as points, similar ones close (DSH-Bench, Figure 3b).

    Args:
        table: from ``composition.reference_map``.
        encoder: title of the encoder behind it.
    """
    known = table.dropna(subset=["x", "y"])
    if known.empty:
        return remark("Too few references for a map.")
    compared = known["benchmark"].nunique() > 1
    group = known["benchmark"] if compared else known["kind"].fillna(UNLABELLED)
    names = list(dict.fromkeys(group))
    looks = style(names)
    figure, axis = plt.subplots(figsize=(WIDTH * 0.9, 4.0), layout="constrained")
    size = 6 if len(known) < 200 else 3.5
    for name in names:
        mine = known[group == name]
        axis.plot(
            mine["x"],
            mine["y"],
            linestyle="none",
            markersize=size,
            alpha=0.75,
            label=name,
            **looks[name],
        )
    if len(known) <= 60:
        for row in known.to_dict("records"):
            if pd.notna(row["subject"]):
                axis.annotate(
                    row["subject"],
                    (row["x"], row["y"]),
                    (4, 2),
                    textcoords="offset points",
                    fontsize=SMALLEST,
                )
    axis.set_xticks([])
    axis.set_yticks([])
    perplexity = known["perplexity"].iloc[0]
    axis.set_title(f"t-SNE of {len(known)} references, {encoder}, perplexity {perplexity:.3g}")
    figure.legend(loc="outside right upper", frameon=False)
    return figure


def _in_lines(text: str, length: int) -> str:
    """Break into lines of about ``length`` narrow characters, at spaces if the script has any."""
    wide = any(unicodedata.east_asian_width(c) in "WF" for c in text)
    lines = textwrap.wrap(text, length // 2 if wide else length, break_long_words=wide)
    return "\n".join(lines)


def gallery(
    columns: Sequence[tuple[str, str]],
    rows: Sequence[tuple[str, Sequence[Image.Image | None]]],
    notes: Mapping[tuple[int, int], str] | None = None,
) -> Figure:
    """Pictures: a row per model (the reference first), a column per case.

    Args:
        columns: scenario and prompt of each case.
        rows: title and pictures; None where there is no picture.
        notes: (row, column) -> a few characters to write into the corner of a picture.
    """
    left = 1.2 / WIDTH  # room for titles
    side = (1 - left) * WIDTH / len(columns)
    figure, axes = plt.subplots(
        len(rows),
        len(columns),
        figsize=(WIDTH, side * len(rows)),
        squeeze=False,
        gridspec_kw={
            "wspace": 0.06,
            "hspace": 0.06,
            "left": left,
            "right": 1,
            "bottom": 0,
            "top": 1,
        },
    )
    for y, (line, (title, pictures)) in enumerate(zip(axes, rows, strict=True)):
        for x, (axis, picture) in enumerate(zip(line, pictures, strict=True)):
            axis.set_axis_off()
            if notes and (y, x) in notes:
                corner = {"ha": "left", "va": "bottom", "transform": axis.transAxes}
                back = {"facecolor": "white", "alpha": 0.8, "pad": 0.6, "linewidth": 0}
                axis.text(0.03, 0.03, notes[y, x], fontsize=6, bbox=back, **corner)
            if picture is None:
                axis.text(0.5, 0.5, "no picture", ha="center", va="center", fontsize=6)
            else:
                axis.imshow(picture, interpolation="nearest")
        at = {"transform": line[0].transAxes, "ha": "right", "va": "center"}
        line[0].text(-0.08, 0.5, _in_lines(title, 20), fontsize=6.5, **at)
    for axis, (scenario, prompt) in zip(axes[0], columns, strict=True):
        words = _in_lines(prompt, max(9, int(side / 0.052)))
        axis.set_title(f"{_words(scenario)}\n{words}", fontsize=SMALLEST)
    return figure


# ------------------------------------------------------------------------------- UFO


def _words(name: str) -> str:
    return name.replace("_", " ")


def remark(text: str) -> Figure:
    """A sentence in the place of a figure that has nothing to show."""
    figure = plt.figure(figsize=(WIDTH, 0.6))
    figure.text(0.5, 0.5, text, ha="center", va="center")
    return figure


def composition(table: pd.DataFrame) -> Figure:
    """Cases by category and editing paradigm, with the share that conflicts (UFO, Figure 2).

    Args:
        table: from ``composition.by_category``.
    """
    rows = table.iloc[::-1].reset_index(drop=True)
    rows = rows[rows["category"] != TOTAL].reset_index(drop=True)
    total = table[table["category"] == TOTAL].iloc[0]
    kinds = [p for p in (*PARADIGMS, UNLABELLED) if p in table.columns and total[p]]
    looks = style(kinds)
    figure, axis = plt.subplots(figsize=(WIDTH, 1.3 + 0.3 * len(rows)), layout="constrained")
    left = pd.Series(0, index=rows.index)
    for kind in kinds:
        tier = f" (tier {TIERS[kind]})" if kind in TIERS else ""
        axis.barh(
            rows.index,
            rows[kind],
            left=left,
            color=looks[kind]["color"],
            alpha=0.65,  # so that the numbers can be read
            edgecolor="white",
            label=_words(kind) + tier,
        )
        for y, (start, n) in enumerate(zip(left, rows[kind], strict=True)):
            if n > 0.04 * rows["cases"].max():  # a number that fits into its bar
                axis.text(start + n / 2, y, f"{n}", ha="center", va="center", fontsize=6.5)
        left = left + rows[kind]
    for y, (n, share) in enumerate(zip(rows["cases"], rows["conflicting"], strict=True)):
        if not pd.isna(share):
            axis.text(n, y, f" {share:.0%} conflicting", va="center", fontsize=6.5)
    axis.set_yticks(rows.index, rows["category"])
    axis.margins(x=0.16)
    axis.grid(visible=False)
    axis.locator_params(axis="x", integer=True)
    axis.set_xlabel("cases")
    share = total["conflicting"]
    title = f"{total['cases']} cases of {total['references']} references"
    axis.set_title(title if pd.isna(share) else f"{title}, {share:.2%} conflicting")
    _legend(figure, *axis.get_legend_handles_labels())
    return figure


def units_by_category(table: pd.DataFrame, counts: pd.DataFrame) -> Figure:
    """Atomic units per case: by modality class, by level, and how they spread (UFO, Figure 4).

    Args:
        table: from ``composition.units_by_category``.
        counts: from ``composition.unit_counts``.
    """
    rows = table[table["category"] != TOTAL].iloc[::-1].reset_index(drop=True)
    figure, axes = plt.subplots(
        1, 3, figsize=(WIDTH, 1.6 + 0.3 * len(rows)), layout="constrained", width_ratios=[1, 1, 1.3]
    )
    for axis, kinds, name in (
        (axes[0], RELEVANCES, "modality class"),
        (axes[1], LEVELS, "level"),
    ):
        looks, left = style(kinds), pd.Series(0.0, index=rows.index)
        for kind in kinds:
            axis.barh(
                rows.index,
                rows[kind],
                left=left,
                color=looks[kind]["color"],
                edgecolor="white",
                label=_words(kind),
            )
            left = left + rows[kind].fillna(0)
        axis.set_yticks(rows.index, rows["category"] if axis is axes[0] else [""] * len(rows))
        axis.set_ylim(-0.6, len(rows) - 0.4)
        axis.set_title(f"by {name}")
        axis.set_xlabel("mean units per case")
        axis.grid(visible=False)
        axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.25), frameon=False)
    categories = list(dict.fromkeys(counts["category"]))
    looks = style(categories)
    for name in categories:
        mine = counts[counts["category"] == name].sort_values("units")
        axes[2].plot(
            mine["units"], mine["cases"], linewidth=1, markersize=4, label=name, **looks[name]
        )
    axes[2].set_title("spread")
    axes[2].set_xlabel("units of a case")
    axes[2].set_ylabel("cases")
    axes[2].set_ylim(bottom=0)
    axes[2].locator_params(axis="x", integer=True)
    axes[2].legend(loc="upper center", bbox_to_anchor=(0.5, -0.25), frameon=False, ncols=2)
    return figure


def alignment(table: pd.DataFrame, ceiling: pd.DataFrame | None = None) -> Figure:
    """Per-case Spearman of each metric, a panel per paradigm, with intervals (UFO, Table 2).

    Args:
        table: from ``alignment.by_paradigm``, with ``metric_title``.
        ceiling: from ``alignment.rank_agreement``: each rater against the others, a dashed line.
    """
    levels = list(dict.fromkeys(table["paradigm"]))
    metrics = list(dict.fromkeys(table["metric_title"]))[::-1]
    sources = list(dict.fromkeys(table["source"]))
    looks = style(sources)
    figure, axes = plt.subplots(
        1,
        len(levels),
        figsize=(WIDTH, 1.3 + 0.3 * len(metrics)),
        sharex=True,
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for axis, level in zip(axes[0], levels, strict=True):
        mine = table[table["paradigm"] == level]
        for i, source in enumerate(sources):
            rows = mine[mine["source"] == source].set_index("metric_title").reindex(metrics)
            offset = (i - (len(sources) - 1) / 2) * 0.22
            _dots(axis, rows, "spearman", offset, label=source, **looks[source])
        if ceiling is not None:
            best = ceiling.loc[ceiling["paradigm"] == level, "ceiling"]
            if best.notna().any():
                axis.axvline(
                    best.iloc[0],
                    color="0.3",
                    linestyle="--",
                    linewidth=1,
                    label="a rater with the others",
                )
        axis.axvline(0, color="0.5", linewidth=0.8)
        axis.set_yticks(range(len(metrics)), metrics)
        axis.set_ylim(-0.6, len(metrics) - 0.4)
        axis.set_title(_words(level))
    figure.supxlabel("Spearman ρ per case, mean over cases", fontsize=8)
    handles, labels = axes[0][-1].get_legend_handles_labels()
    _legend(figure, handles, labels, "upper")
    return figure


def _dots(axis: Any, rows: pd.DataFrame, column: str, offset: float = 0.0, **look: Any) -> None:
    """One dot per row with its interval, if it has one, from bottom to top."""
    ends = [rows[column] - rows[f"{column}_ci_low"], rows[f"{column}_ci_high"] - rows[column]]
    axis.errorbar(
        rows[column],
        [y + offset for y in range(len(rows))],
        xerr=[end.clip(lower=0) for end in ends],  # a mean may lie a rounding outside its draws
        linestyle="none",
        markersize=4.5,
        elinewidth=0.9,
        **look,
    )


def ablation(table: pd.DataFrame) -> Figure:
    """A metric without each of its parts, and the paired difference to the whole (UFO, Table 3).

    Args:
        table: from ``alignment.ablation``.
    """
    settings = list(dict.fromkeys(table["setting"]))[::-1]
    sources = list(dict.fromkeys(table["source"]))
    looks = style(sources)
    figure, axes = plt.subplots(
        1, 2, figsize=(WIDTH, 1.3 + 0.3 * len(settings)), sharey=True, layout="constrained"
    )
    panels = {"spearman": "Spearman ρ per case", "difference": "difference to the full metric"}
    for axis, (column, name) in zip(axes, panels.items(), strict=True):
        for i, source in enumerate(sources):
            rows = table[table["source"] == source].set_index("setting").reindex(settings)
            offset = (i - (len(sources) - 1) / 2) * 0.22
            _dots(axis, rows, column, offset, label=source, **looks[source])
        axis.axvline(0, color="0.5", linewidth=0.8)
        axis.set_xlabel(name)
    axes[0].set_yticks(range(len(settings)), settings)
    handles, labels = axes[0].get_legend_handles_labels()
    _legend(figure, handles, labels)
    return figure


UNITS_SHOWN = 8
"""Units per case in the figure of disagreements; the table has all."""

MODELS_SHOWN = 8
"""Models per case in it: those that the two metrics rank most differently."""

_RELEVANCE = {"image_only": "image", "text_only": "text", "text_and_image": "both"}
_YES, _NO = "#0173b2", "#d55e00"  # blue and vermilion of the colour-blind palette


def disagreements(
    chosen: pd.DataFrame,
    units: pd.DataFrame,
    pictures: Mapping[tuple[str, str], Image.Image],
    references: Mapping[str, Image.Image],
    prompts: Mapping[str, str],
    titles: Mapping[str, str],
) -> Figure:
    """Cases where two metrics disagree, picture by picture, with what decided (UFO, Figure 6).

    Args:
        chosen: from ``alignment.disagreements``; at least one case.
        units: from ``alignment.deciding_units``.
        pictures: by ``(sample_id, generator)``; where one is missing, its place says so.
        references: by ``case_id``.
        prompts: by ``case_id``.
        titles: of metrics.
    """
    blocks = [
        _Block(rows, units[units["sample_id"] == sample], prompts, titles)
        for sample, rows in chosen.groupby("sample_id", sort=False)
    ]
    side = (WIDTH - _Block.LEFT) / max(len(block.rows) for block in blocks)
    side = min(side, 1.1)
    height = sum(block.height(side) for block in blocks)
    figure = plt.figure(figsize=(WIDTH, height))
    top = height
    for block in blocks:
        block.draw(figure, top, height, side, pictures, references)
        top -= block.height(side)
    return figure


class _Block:
    """One case of the figure: its prompt, a row of pictures, and lines of text below each."""

    LEFT = 1.9
    """Inches for the reference and the names of lines."""
    LINE = 0.14
    """Inches of a line of text."""

    def __init__(
        self,
        rows: pd.DataFrame,
        units: pd.DataFrame,
        prompts: Mapping[str, str],
        titles: Mapping[str, str],
    ) -> None:
        apart = (rows["rank"] - rows["baseline_rank"]).abs()
        shown = apart.sort_values(ascending=False, kind="stable").index[:MODELS_SHOWN]
        left_out = len(rows) - len(shown)
        self.rows = rows = rows.loc[sorted(shown)]
        first = rows.iloc[0]
        ours, theirs = titles[first["metric"]], titles[first["baseline"]]
        source = first["source"]
        self.head = textwrap.wrap(f"“{prompts[first['case_id']]}”", 118)
        agreed = {ours: first["rho_metric"], theirs: first["rho_baseline"]}
        said = ", ".join(f"{m} {_number(rho, 2)}" for m, rho in agreed.items())
        self.head.append(
            f"{_words(first['paradigm'])}; ρ of {ours} and {theirs} {_number(first['rho'], 2)}; "
            f"with {source}: {said}"
        )
        self.lines: list[tuple[str, list[tuple[str, str]]]] = []
        for name, value, rank in (
            (ours, "value", "rank"),
            (theirs, "baseline_value", "baseline_rank"),
            (source, "target", "target_rank"),
        ):
            both = zip(rows[value], rows[rank], strict=True)
            cells = [(f"{_number(v, 2)} ({r:g})", "black") for v, r in both]
            self.lines.append((f"{name} (rank)", cells))
        self._add_units(units, left_out)

    def _add_units(self, units: pd.DataFrame, left_out: int) -> None:
        names = units.drop_duplicates("unit")
        decided = names[names["decided"]].sort_values("weight", ascending=False, kind="stable")
        for unit in decided.head(UNITS_SHOWN).itertuples():
            mine = units[units["unit"] == unit.unit].set_index("generator")
            cells = [
                _mark(mine.loc[g]) if g in mine.index else ("–", "0.4")
                for g in self.rows["generator"]
            ]
            kind = _RELEVANCE.get(str(unit.relevance), "")
            self.lines.append((f"{unit.name} ({kind}, {unit.weight:g})", cells))
        more, same = max(0, len(decided) - UNITS_SHOWN), len(names) - len(decided)
        notes = [f"differ too: {more} more"] if more else []
        notes += [f"same for all: {same} more"] if same else []
        notes += [f"{left_out} more models"] if left_out else []
        self.foot = "; ".join(notes)

    def height(self, side: float) -> float:
        """Inches of the whole block."""
        lines = len(self.head) + 2 + len(self.lines) + bool(self.foot)
        return side + self.LINE * (lines + 1.5)

    def draw(
        self,
        figure: Figure,
        top: float,
        height: float,
        side: float,
        pictures: Mapping[tuple[str, str], Image.Image],
        references: Mapping[str, Image.Image],
    ) -> None:
        """Draw from ``top`` inches downwards on a figure of ``height`` inches."""

        def text(x: float, y: float, words: str, **look: Any) -> None:
            figure.text(x / WIDTH, y / height, words, **{"fontsize": 6.5, "va": "center", **look})

        def picture(x: float, y: float, image: Image.Image | None) -> None:
            axis = figure.add_axes(
                (x / WIDTH, y / height, 0.96 * side / WIDTH, 0.96 * side / height)
            )
            axis.set_axis_off()
            if image is None:
                axis.text(0.5, 0.5, "no picture", ha="center", va="center", fontsize=6)
            else:
                axis.imshow(image, interpolation="nearest")

        y = top - self.LINE
        for line in self.head:
            text(0, y, line, fontsize=7)
            y -= self.LINE
        middle = [self.LEFT + side * (i + 0.48) for i in range(len(self.rows))]
        small = {"ha": "center", "fontsize": SMALLEST}
        y -= self.LINE
        text(self.LEFT - 0.58 * side, y, "reference", **small)
        for x, title in zip(middle, self.rows["title"], strict=True):
            lines = textwrap.wrap(title, max(12, int(side * 20)), max_lines=2, placeholder="…")
            text(x, y - self.LINE / 3, "\n".join(lines), **small | {"va": "bottom"})
        y -= self.LINE / 2 + side
        picture(self.LEFT - 1.06 * side, y, references.get(self.rows["case_id"].iloc[0]))
        for x, row in zip(middle, self.rows.itertuples(), strict=True):
            picture(x - 0.48 * side, y, pictures.get((str(row.sample_id), str(row.generator))))
        y -= self.LINE * 0.7
        for i, (name, cells) in enumerate(self.lines):
            if i == 3:  # a rule between what the metrics and raters say, and the units
                ends = [(self.LEFT - 1.06 * side) / WIDTH, (self.LEFT + side * len(middle)) / WIDTH]
                at = [(y + self.LINE / 2) / height] * 2
                figure.add_artist(plt.Line2D(ends, at, color="0.7", linewidth=0.6))
            text(self.LEFT - 0.1, y, textwrap.shorten(name, 36, placeholder="…"), ha="right")
            for x, (words, colour) in zip(middle, cells, strict=True):
                text(x, y, words, color=colour, **small)
            y -= self.LINE
        if self.foot:
            text(self.LEFT - 0.1, y, self.foot, ha="right", color="0.4")


def _number(value: float, decimals: int) -> str:
    return "–" if pd.isna(value) else f"{value:.{decimals}f}"


def _mark(unit: pd.Series) -> tuple[str, str]:
    """What one unit said about one picture: yes, no, a number, or why nothing."""
    if pd.isna(unit["value"]):
        return _words(str(unit["status"])), "0.4"
    value = float(unit["value"])
    failed = "" if unit["status"] == Status.OK else f" {_words(str(unit['status']))}"
    if value in (0.0, 1.0):
        return ("✓" if value else "✗") + failed, _YES if value else _NO
    return f"{value:.2f}{failed}", _YES if value >= 0.5 else _NO
