"""One cell of a table, down to the samples, the weights and the code that it comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from subjectbench.archive.index import some
from subjectbench.compare import REPEATED, Run, behind, id_columns, label, rows_by_id
from subjectbench.errors import InputError, suggest
from subjectbench.hashing import canonical, digest

SHOWN = 3
"""Rows at either end that are shown of the samples behind a cell."""


def describe(run: Run, table: str, row: str, column: str) -> str:
    """Say what a cell is made from.

    Args:
        run: that the table belongs to.
        table: name, e.g. ``leaderboard``.
        row: its ids, or a part of them that only one row has.
        column: name.

    Raises:
        InputError: there is no such cell, or more than one.
    """
    if table not in run.tables:
        raise InputError(f"{run.name}: {table}", "no such table", suggest(table, run.tables))
    frame = run.tables[table]
    if column not in frame.columns:
        raise InputError(f"{table}: {column}", "no such column", suggest(column, frame.columns))
    name, cells = _find(frame, table, row)
    dimensions = run.manifest["components"].get("dimensions") or {}
    families = behind(column, cells, dimensions, run.families)
    out = [f"{table} / {name} / {column} = {cells[column] or '(empty)'}", f"run {run.name}", ""]
    level = table.removeprefix("by_") if table.startswith("by_") and "level" in cells else ""
    for family in families:
        out += _samples(run, family, (level, str(cells["level"])) if level else None, column, cells)
    if not families:
        out += ["no scores are behind it", ""]
    out.append("made from")
    seen: set[str] = set()
    for key in [run.families[f] for f in families] or [run.tables_key]:
        out += _chain(run, key, seen)
    if families:
        out += [*_artifact(run, run.tables_key, deep=False), *_artifact(run, run.manifest["key"])]
    return "\n".join(out) + "\n"


def _find(frame: pd.DataFrame, table: str, row: str) -> tuple[str, pd.Series]:
    rows = {label(ids): cells for ids, cells in rows_by_id(frame, id_columns(frame, frame)).items()}
    found = (
        [n for n in rows if n == row]
        or [n for n in rows if row in n.split(" / ")]
        or [n for n in rows if row in n]
    )
    if len(found) != 1:
        fault = f"fits {len(found)} rows: {some(found)}" if found else "no such row"
        mend = "give all ids of the row, as 'a / b'" if found else suggest(row, rows)
        raise InputError(f"{table}: {row}", fault, mend)
    return found[0], rows[found[0]]


def _samples(
    run: Run,
    family: tuple[str, str],
    level: tuple[str, str] | None,
    column: str,
    cells: Mapping[str, Any],
) -> Iterator[str]:
    """Rows behind a cell: how many, their mean, the worst and the best."""
    metric, generator = family
    yield f"{metric} of {generator}"
    scores = run.scores(metric, generator)
    if scores is None:
        yield from ("  its rows are no longer in the store: subjectbench restore", "")
        return
    if level and level[0] in scores.columns:
        scores = scores[scores[level[0]] == level[1]]
        yield f"  samples whose {level[0]} is {level[1]}"
    rows = run.artifact(run.families[family])
    statuses = rows["rows"] if rows else {}
    told = ", ".join(f"{n} {status}" for status, n in statuses.items())
    yield f"  {len(scores)} valid rows{f' (all levels: {told})' if level else f' of: {told}'}"
    if not len(scores):
        yield ""
        return
    mean = scores["value"].mean()
    yield f"  mean {mean:.6g}{_beside(mean, column, str(cells[column]))}"
    cards = {m["name"]: m for m in run.manifest["components"].get("metrics", [])}
    lower = cards.get(metric, {}).get("direction") == "lower"
    ordered = scores.sort_values(["value", "sample_id"], ascending=[not lower, True])
    ends = (("worst", ordered.head(SHOWN)), ("best", ordered.tail(SHOWN)[::-1]))
    for end, part in ends if len(ordered) > 1 else (("only", ordered),):
        for sample in part.itertuples():
            told = f" {sample.prompt}" if sample.prompt else ""
            yield f"  {end:5} {sample.value:10.6g}  {sample.sample_id}{told}"
    yield ""


def _beside(mean: float, column: str, printed: str) -> str:
    """Whether a cell that is a mean is the mean of these rows."""
    if not printed or not (column == "mean" or column.endswith("_mean")):
        return ""
    # Tables round to 9 decimals.
    return ", as the cell says" if abs(float(printed) - mean) < 1e-8 else f"; the cell: {printed}"


def _chain(run: Run, key: str, seen: set[str]) -> Iterator[str]:
    """An artifact and all that it is made from, upstream first, each once."""
    if key in seen:
        return
    seen.add(key)
    manifest = run.artifact(key)
    for upstream in sorted(manifest["upstream"].values()) if manifest else ():
        yield from _chain(run, upstream, seen)
    yield from _artifact(run, key)


def _artifact(run: Run, key: str, deep: bool = True) -> Iterator[str]:
    manifest = run.artifact(key)
    if manifest is None:
        yield f"{key}: no longer in the store"
        return
    statuses = ", ".join(f"{n} {status}" for status, n in manifest["rows"].items())
    rows = f"  rows: {statuses}" if statuses else ""
    yield f"{manifest['kind']} {manifest['name']}  {key}{rows}"
    repeated = {REPEATED.get(role.partition("/")[0]) for role in manifest["upstream"]}
    components = {k: v for k, v in manifest["components"].items() if k not in repeated}
    if deep and manifest["kind"] not in ("tables", "report"):
        yield from _components(components, "  ")
    else:
        yield f"  code {digest(components.get('code', {}))}, {_packages(components)}"


def _components(components: Mapping[str, Any], indent: str) -> Iterator[str]:
    """Plug-ins that an artifact was made by, each with what decides its output."""
    if "plugin" in components:
        plugin = f"{components['plugin']} {components['version']}"
        yield f"{indent}plug-in {plugin}, {_packages(components)}"
        if components["params"]:
            yield f"{indent}params {canonical(components['params'])}"
    if "code" in components:
        code = components["code"]
        yield f"{indent}code {digest(code)}: {len(code)} modules, {some(_own_first(code))}"
    weights = dict(components.get("weights", {}))
    files = weights.pop("files", {}) | weights.pop("sha256", {})
    if weights:
        yield f"{indent}weights " + ", ".join(f"{k} {v}" for k, v in weights.items())
    for file, sha256 in files.items():
        yield f"{indent}weights {file} sha256 {sha256}"
    for file, sha256 in (components.get("data") or {}).items():
        yield f"{indent}data {file} sha256 {sha256}"
    for name, value in components.items():
        if isinstance(value, dict) and name not in ("code", "weights", "data", "params"):
            inner = list(_components(value, f"{indent}  "))
            if inner:
                yield f"{indent}{name}:"
                yield from inner


def _packages(components: Mapping[str, Any]) -> str:
    packages = components.get("packages") or {}
    return "packages " + (", ".join(f"{k} {v}" for k, v in packages.items()) or "none")


def _own_first(code: Mapping[str, str]) -> list[str]:
    """Modules of plug-ins and stages before those that all share."""
    names = [name.removeprefix("subjectbench.") for name in code]
    return sorted(names, key=lambda n: ("." not in n or n.endswith("base"), n))
