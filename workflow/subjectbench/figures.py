"""One function per figure: a table in, a matplotlib figure out.

Colours are seaborn's colour-blind palette and every model has its own marker too. Names come in
the order of the table, levels in the order of ``records``.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib

matplotlib.use("Agg")  # also where MPLBACKEND names a window system

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from subjectbench.records import DIMENSIONS
from subjectbench.tables import POOLED, pareto

if TYPE_CHECKING:
    from PIL import Image

MARKERS = "oDs^vPX*<>phd8"
WIDTH = 7.2
"""Inches: the text width of a two-column page."""

STYLE: Any = {
    "svg.hashsalt": "subjectbench",  # the same ids, so the same bytes
    "svg.fonttype": "none",
    "font.size": 8,
    "axes.titlesize": 9,
    "legend.fontsize": 7.5,
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


def save(figure: Figure, stem: Path) -> None:
    """Write SVG and PNG with the same bytes for the same figure.

    Raises:
        UserWarning: a glyph is missing, which would print a box in its place.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="Glyph .* missing")
        figure.savefig(f"{stem}.svg", metadata={"Date": None}, bbox_inches="tight")
        figure.savefig(f"{stem}.png", dpi=160, metadata={"Software": None}, bbox_inches="tight")
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
        axis.set_xticks(range(len(levels)), levels, rotation=0 if len(levels) < 5 else 40)
        metric = mine["metric_title"].iloc[0]
        axis.set_title(f"{dimension}\n{metric}")
        axis.set_xlabel(level_name)
    axes[0][0].set_ylabel("mean score")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
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
    figure, axis = plt.subplots(figsize=(WIDTH * 0.8, 3.8), layout="constrained")
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
    figure.legend(handles, labels, loc="outside lower center", ncols=len(sources), frameon=False)
    return figure


def gallery(
    columns: Sequence[tuple[str, str]], rows: Sequence[tuple[str, Sequence[Image.Image | None]]]
) -> Figure:
    """Pictures: a row per model (the reference first), a column per case.

    Args:
        columns: scenario and prompt of each case.
        rows: title and pictures; None where there is no picture.
    """
    figure, axes = plt.subplots(
        len(rows),
        len(columns),
        figsize=(WIDTH, 0.98 * len(rows)),
        squeeze=False,
        gridspec_kw={"wspace": 0.06, "hspace": 0.06},
    )
    for line, (title, pictures) in zip(axes, rows, strict=True):
        for axis, picture in zip(line, pictures, strict=True):
            axis.set_axis_off()
            if picture is None:
                axis.text(0.5, 0.5, "no picture", ha="center", va="center", fontsize=6)
            else:
                axis.imshow(picture, interpolation="nearest")
        line[0].text(
            -0.08, 0.5, title, transform=line[0].transAxes, ha="right", va="center", fontsize=7
        )
    for axis, (scenario, prompt) in zip(axes[0], columns, strict=True):
        words, text, length = prompt.split(), "", 0
        for word in words:  # about 16 characters a line
            text += ("\n" if length + len(word) > 16 else " ") + word
            length = len(word) if length + len(word) > 16 else length + len(word) + 1
        axis.set_title(f"{scenario}\n{text.strip()}", fontsize=6)
    return figure
