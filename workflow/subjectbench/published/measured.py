"""Printed numbers in columns of their own beside measured ones, never in their place.

Cards say under which name a paper prints a benchmark, a model or a metric. A printed number stands
beside a measured one only where all of these are the paper's, and nothing is made up: a study of
the miniworld shows none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import pandas as pd

from subjectbench.cells import POOLED, TOTAL
from subjectbench.published import audit, data, dsh
from subjectbench.published.finding import Finding, Verdict

DSH, UFO = "dsh", "ufo"
"""Papers, as cards name them."""

PAPERS = {DSH: "DSH-Bench", UFO: "UFO"}

DIMENSIONS = {
    "preservation": ("subject_preservation", "sics"),
    "following": ("prompt_following", "clip_t"),
    "quality": ("image_quality", "hpsv2"),
}
"""Dimension -> its column in DSH-Bench's Tables 2 and 3, and the metric behind it there."""

PARADIGMS = {
    "non_editing": "non_editing",
    "local_editing": "local",
    "global_editing": "global",
    "complex_editing": "multi_dim",
    TOTAL: "total",
}
"""Paradigm -> its column in UFO's Tables 1 and 2."""

METHODS = {"kendall_tau_b": "kendall", "spearman": "spearman"}
"""Method -> the beginning of its columns in DSH-Bench's Table 1."""

NOTE = "printed_note"
"""Column that says what the audit found wrong with a row's printed numbers."""


@dataclass(frozen=True)
class _Names:
    """What a study's benchmarks, generators and metrics are called in one paper.

    Attributes:
        benchmarks: name -> name in the paper; those that the paper does not know are missing.
        generators: likewise.
        metrics: likewise.
        own: the study's own benchmark in the paper, or None.
        dimensions: dimension -> metric.
        formula: whether S_h is formed as in the paper.
        people: whether people rated.
    """

    benchmarks: Mapping[str, str]
    generators: Mapping[str, str]
    metrics: Mapping[str, str]
    own: str | None
    dimensions: Mapping[str, str]
    formula: bool
    people: bool

    @classmethod
    def of(cls, job: Mapping[str, Any], paper: str) -> _Names:
        parts: dict[str, dict[str, str]] = job["printed"].get(paper, {})
        names = {kind: parts.get(kind, {}) for kind in ("benchmarks", "generators", "metrics")}
        board = job["leaderboard"]
        formula = dsh.Formula.of(data.read())
        same = (board["constant"], *(board[f"{d}_weight"] for d in DIMENSIONS)) == (
            formula.constant,
            *formula.weights,
        )
        own = names["benchmarks"].get(job["benchmarks"][0]["name"])
        people = not job["raters_simulated"]
        return cls(
            **names, own=own, dimensions=job["dimensions"] or {}, formula=same, people=people
        )

    def shown(self) -> dict[str, str]:
        """Dimension -> its column, where the study's metric for it is the paper's."""
        found = {d: self.metrics.get(m) for d, m in self.dimensions.items()}
        return {d: c for d, (c, metric) in DIMENSIONS.items() if found.get(d) == metric}


Lookup = Callable[[str, str], float | None]
"""Row and column of a printed table to its number."""


def _leaderboard(frame: pd.DataFrame, names: _Names, look: Lookup) -> pd.DataFrame:
    shown = names.shown() if names.own == "dsh_bench" else {}
    columns = {f"{d}_coverage": (f"{d}_printed", c) for d, c in shown.items()}
    if names.formula and len(shown) == len(DIMENSIONS):
        columns["s_h_ci_high"] = ("s_h_printed", "s_h")
    rows = frame["generator"].map(names.generators)
    for after, (name, column) in columns.items():
        frame = _inserted(frame, after, name, [_found(look, row, column) for row in rows])
    return frame


def _benchmarks(frame: pd.DataFrame, names: _Names, look: Lookup) -> pd.DataFrame:
    rows = frame["generator"].map(names.generators)
    for d, column in names.shown().items():
        for benchmark, printed in names.benchmarks.items():
            cells = [_found(look, row, f"{column}_{printed}") for row in rows]
            stem = f"{d}_{benchmark}"
            frame = _inserted(frame, f"{stem}_coverage", f"{stem}_printed", cells)
    return frame


def _human_alignment(frame: pd.DataFrame, names: _Names, look: Lookup) -> pd.DataFrame:
    if not names.people or names.own != "dsh_bench":
        return frame
    rows = frame["generator"].map({**names.generators, POOLED: "ALL"})
    kinds = frame["method"].map(METHODS)
    known = data.read().table(PAPERS[DSH], 1).columns
    for metric, printed in names.metrics.items():
        if metric in frame.columns and f"spearman_{printed}" in known:
            pairs = zip(rows, kinds, strict=True)
            cells = [_found(look, row, f"{kind}_{printed}") for row, kind in pairs]
            frame = _inserted(frame, f"{metric}_ci_high", f"{metric}_printed", cells)
    return frame


def _models_by_paradigm(frame: pd.DataFrame, names: _Names, look: Lookup) -> pd.DataFrame:
    if names.own != "ufo_bench" or set(frame["metric"].map(names.metrics)) != {"UFO"}:
        return frame
    rows = frame["generator"].map(names.generators)
    for paradigm, column in PARADIGMS.items():
        if f"{paradigm}_coverage" in frame.columns:
            cells = [_found(look, row, column) for row in rows]
            frame = _inserted(frame, f"{paradigm}_coverage", f"{paradigm}_printed", cells)
    return frame


def _alignment(frame: pd.DataFrame, names: _Names, look: Lookup) -> pd.DataFrame:
    if names.own != "ufo_bench" or not names.people:
        return frame
    rows = zip(frame["metric"].map(names.metrics), frame["paradigm"].map(PARADIGMS), strict=True)
    cells = [_found(look, row, column) for row, column in rows]
    return _inserted(frame, "spearman_ci_high", "spearman_printed", cells)


def _ablation(frame: pd.DataFrame, names: _Names, look: Lookup) -> pd.DataFrame:
    if names.own != "ufo_bench" or not names.people:
        return frame
    cells = [_found(look, row, "correlation") for row in frame["metric"].map(names.metrics)]
    return _inserted(frame, "spearman_ci_high", "spearman_printed", cells)


TABLES: dict[str, tuple[str, int, str, Callable[[pd.DataFrame, _Names, Lookup], pd.DataFrame]]] = {
    "human_alignment": (DSH, 1, "generators", _human_alignment),
    "benchmarks": (DSH, 2, "generators", _benchmarks),
    "leaderboard": (DSH, 3, "generators", _leaderboard),
    "models_by_paradigm": (UFO, 1, "generators", _models_by_paradigm),
    "alignment": (UFO, 2, "metrics", _alignment),
    "ablation": (UFO, 3, "metrics", _ablation),
}
"""Table -> paper, its number there, what its rows are, and how printed columns are added."""


def beside(name: str, frame: pd.DataFrame, job: Mapping[str, Any]) -> pd.DataFrame:
    """Add to a table what a paper prints in the same place.

    Args:
        name: of the table.
        frame: as measured.
        job: of the tables; ``job["printed"]`` is, per paper, kind (``benchmarks``, ``generators``,
            ``metrics``) and name, the name in the paper.

    Returns:
        The table with columns ``<x>_printed`` right behind ``<x>`` and what belongs to it, missing
        where the paper has no such cell; and ``printed_note``, with the audit's disagreements about
        the row's printed numbers. The table as it was where nothing printed stands beside anything.
    """
    if name not in TABLES or not job["printed"]:
        return frame
    paper, number, kind, add = TABLES[name]
    names = _Names.of(job, paper)

    def look(row: str, column: str) -> float | None:
        return data.printed(PAPERS[paper], number, row, column)

    table = add(frame, names, look)
    added = [c for c in table.columns if str(c).endswith("_printed")]
    if table[added].isna().all(axis=None):
        return frame
    known: Mapping[str, str] = getattr(names, kind)
    rows = table[kind.removesuffix("s")].map({**known, POOLED: "ALL"})
    has = table[added].notna().any(axis=1)
    notes = [
        "; ".join(f"{f.id}: {f.cause or f.check}" for f in doubts(PAPERS[paper], number, row))
        if printed
        else ""
        for row, printed in zip(rows, has, strict=True)
    ]
    return table.assign(**{NOTE: pd.Series(notes, index=table.index, dtype="str")})


def source(name: str) -> str:
    """Say in a caption where a table's printed columns come from."""
    paper, number, *_ = TABLES[name]
    where = f"{PAPERS[paper]}, Table {number} ({data.VERSIONS[paper]})"
    return f"columns (printed): as printed in {where}, not measured here"


def _found(look: Lookup, row: Any, column: Any) -> float | None:
    return look(row, column) if isinstance(row, str) and isinstance(column, str) else None


def _inserted(
    frame: pd.DataFrame, after: str, name: str, cells: list[float | None]
) -> pd.DataFrame:
    frame = frame.copy()
    frame.insert(list(frame.columns).index(after) + 1, name, pd.Series(cells, frame.index, float))
    return frame


@cache
def _findings() -> list[Finding]:
    return audit.findings(data.read())


def doubts(paper: str, table: int, row: str) -> list[Finding]:
    """What the audit says against the printed numbers of one row.

    Args:
        paper: as the audit names it, ``"DSH-Bench"`` or ``"UFO"``.
        table: its number.
        row: as printed.
    """
    return [
        f
        for f in _findings()
        if f.verdict is Verdict.DISAGREES and f.paper == paper and (table, row) in f.about
    ]
