"""What changed between two tagged archives of a study, as an entry for a change log."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import pandas as pd

from subjectbench import compare, writing
from subjectbench.archive import contents
from subjectbench.archive.bag import Bag
from subjectbench.archive.place import restore
from subjectbench.compare import Run
from subjectbench.errors import InputError

TAG = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.+-]{0,39}$")
MOST = 20
"""Cells shown of one table; the rest are counted."""


def file_name(run: Run, tag: str) -> str:
    """Name of an archive: study and tag, or the run's own name.

    Raises:
        InputError: the tag is none.
    """
    if not tag:
        return f"{run.name}.zip"
    if not TAG.match(tag):
        raise InputError(f"--tag {tag}", "is no plain name", "say v1, v1.2 or camera-ready")
    return f"{run.manifest['name']}-{tag}.zip"


def previous(folder: Path, run: Run, tag: str) -> tuple[str, Path] | None:
    """Archive of the same study with the tag before this one; None: this is the first.

    Tags are in the order of the numbers in them: v2 is before v10.
    """
    found = []
    for path in folder.glob(f"{run.manifest['name']}-*.zip"):
        try:
            with Bag(path) as bag:
                other = bag.info.get(contents.TAG_LINE)
                study = bag.info.get(contents.RUN_LINE, "").rpartition("-")[0]
        except InputError:
            continue
        if other and study == run.manifest["name"] and _order(other) < _order(tag):
            found.append((_order(other), other, path))
    return max(found)[1:] if found else None


def _order(tag: str) -> list[tuple[int, str]]:
    parts = re.findall(r"\d+|\D+", tag)
    return [(int(p), "") if p.isdecimal() else (-1, p) for p in parts]


def entry(run: Run, tag: str, commit: str, before: tuple[str, Path] | None) -> str:
    """Write the entry of a change log for a tagged run, as Markdown.

    Args:
        run: the run that is tagged.
        tag: its tag.
        commit: of its source.
        before: tag and archive of the version before; None: there is none.
    """
    head = f"## {tag}\n\nRun `{run.name}`, source `{commit[:12]}`.\n"
    if before is None:
        return f"{head}\nThe first tagged version.\n"
    with tempfile.TemporaryDirectory() as temporary:
        placed = restore(before[1], Path(temporary))
        old = Run.find(str(Path(temporary) / placed.run), Path(temporary))
        found = compare.compare(old, run)
        lines = [head, f"Since {before[0]} (run `{old.name}`, source `{placed.commit[:12]}`):", ""]
        lines += [f"- {reason}" for reason in compare.reasons(found)]
        moved = found.cells[found.cells["moved"].astype(bool)]
        for name, cells in found.cells.groupby("table", sort=False):
            lines += _table(str(name), len(cells), moved[moved["table"] == name], before[0], tag)
        for name, rows in found.rows.items():
            lines += ["", *(f"- {name}: only in {_side(s, before[0], tag)}: {r}" for s, r in rows)]
        lines += ["", *(f"- only in {_side(s, before[0], tag)}: {n}" for s, n in found.tables)]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def _side(side: str, old: str, new: str) -> str:
    return {"A": old, "B": new}[side]


def _table(name: str, cells: int, moved: pd.DataFrame, old: str, new: str) -> list[str]:
    shown = moved[~moved["column"].map(compare.describes_or_bounds)]
    if not len(moved):
        return []
    out = ["", f"### {name}: {len(moved)} of {cells} cells moved", ""]
    if len(shown):
        columns = {"row": "row", "column": "column", "a": old, "b": new, "noise": "difference is"}
        table = shown[list(columns)].head(MOST).rename(columns=columns)
        out += [writing.to_markdown(table)]
    more = len(moved) - min(len(shown), MOST)
    return [*out, f"And {more} more, ends of intervals among them."] if more else out
