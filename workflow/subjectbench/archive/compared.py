"""Small files of a study for git, so that DVC can compare revisions: metrics, params and plots.

``results/`` is not in git, so without these ``dvc metrics diff`` would have nothing to compare
with. ``dvc.yaml`` names the folders.
"""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd

from subjectbench.archive.index import FOLDER
from subjectbench.compare import REPEATED, Run, id_columns, interval_of, label, numbers, rows_by_id
from subjectbench.hashing import digest
from subjectbench.store import Artifact, Plan

OF_ONE_THING = frozenset({"sample_id", "case_id", "subject_id", "reference_id", "unit_id"})
"""Columns of tables that list single samples or cases: too long to compare line by line."""


def write(plan: Plan, root: Path) -> list[Path]:
    """Write ``data/{metrics,params,plots}`` for the study's run.

    Args:
        plan: whose final artifact is there.
        root: the checkout.

    Returns:
        The files and the folder of plots.
    """
    study = plan.study["study"]
    run = Run.find(str(plan.folder(plan.final)), Path(plan.results))
    frames = {
        name: frame for name, frame in run.tables.items() if not OF_ONE_THING & set(frame.columns)
    }
    written = []
    for folder, value in (("metrics", _metrics(frames)), ("params", _params(plan))):
        path = root / FOLDER / folder / f"{study}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
        written.append(path)
    plots = root / FOLDER / "plots" / study
    shutil.rmtree(plots, ignore_errors=True)
    plots.mkdir(parents=True)
    for name, text in _plots(frames).items():
        (plots / f"{name}.csv").write_text(text, "utf-8")
    return [*written, plots]


def _metrics(frames: dict[str, pd.DataFrame]) -> dict[str, Any]:
    """Numbers by table, row and column."""
    out: dict[str, Any] = {}
    for table, frame in frames.items():
        ids = id_columns(frame, frame)
        numeric = [c for c in frame.columns if c not in ids and numbers(frame[c])]
        out[table] = {
            label(name): {c: float(row[c]) for c in numeric if row[c]}
            for name, row in rows_by_id(frame, ids).items()
        }
    return out


def _plots(frames: dict[str, pd.DataFrame]) -> dict[str, str]:
    """One file of rows and values per column of means, or of numbers with an interval."""
    out = {}
    for table, frame in frames.items():
        ids = id_columns(frame, frame)
        rows = rows_by_id(frame, ids)
        for column in frame.columns:
            mean = column == "mean" or column.endswith("_mean")
            whole = mean or any(interval_of(row, column) for row in rows.values())
            if column in ids or not whole or not numbers(frame[column]):
                continue
            text = io.StringIO()
            lines = csv.writer(text, lineterminator="\n")
            lines.writerow(("row", "value"))
            lines.writerows((label(name), row[column]) for name, row in rows.items() if row[column])
            out[f"{table}-{column}"] = text.getvalue()
    return out


def _params(plan: Plan) -> dict[str, Any]:
    """The study as resolved, and what each plug-in really uses: cards and defaults included."""
    study = {k: v for k, v in plan.study.items() if k not in ("run", "results")}
    used: dict[str, dict[str, Any]] = {}
    for artifact in plan.artifacts.values():
        used.setdefault(artifact.kind, {}).setdefault(_part(artifact), _used(artifact))
    return {"study": study, "used": used}


def _part(artifact: Artifact) -> str:
    """The part of a name that says which plug-in made it, without model and shard."""
    names = artifact.name.split("/")
    match artifact.kind:
        case "score":
            return str(artifact.components["metric"])
        case "generate" | "embed_cases" | "decompose" | "rate":
            return names[1]
        case "embed_images":
            return names[0]
        case "judge":
            return "/".join(names[:2])
    return artifact.name


def _used(artifact: Artifact) -> dict[str, Any]:
    repeated = {REPEATED.get(role.partition("/")[0]) for role in artifact.upstream}
    plain = artifact.kind in ("tables", "report", "audit")  # the rest of these is the study
    return _short(
        {
            name: value
            for name, value in artifact.components.items()
            if name not in repeated and (name in ("code", "packages") or not plain)
        }
    )


def _short(value: Any) -> Any:
    """Components with one hash in place of many, which a diff would list one by one."""
    if not isinstance(value, dict):
        return value
    hashed = ("code", "data", "files")
    return {k: digest(v) if k in hashed else _short(v) for k, v in value.items()}
