"""The table of units, written and read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from subjectbench import records
from subjectbench.records import Status
from subjectbench.stages.base import details, to_json
from subjectbench.units import Unit

Found = tuple[str, list[Unit] | tuple[Status, str]]
"""Case id with its units, or with the status and the reason why it has none."""


def read_units(folder: Path) -> tuple[dict[str, tuple[Unit, ...]], dict[str, Status]]:
    """Read a table of units.

    Returns:
        Units by case id, and the status of each case that has none.
    """
    units: dict[str, list[Unit]] = {}
    without: dict[str, Status] = {}
    for row in records.read_table("units", folder / "units.parquet").itertuples():
        if row.status != Status.OK:
            without[row.case_id] = Status(row.status)
            continue
        units.setdefault(row.case_id, []).append(
            Unit(
                level=row.level,
                name=row.name,
                relevance=row.relevance,
                weight=int(row.weight),
                question=row.question,
                tool=row.tool,
                about=details(row.details)["about"],
            )
        )
    return {case: tuple(found) for case, found in units.items()}, without


def unit_rows(case_id: str, found: list[Unit] | tuple[Status, str]) -> list[dict[str, Any]]:
    """Return the rows of one case; one row with a status if it has no units."""
    empty = dict.fromkeys(("level", "name", "relevance", "weight", "question", "tool"))
    if isinstance(found, tuple):
        status, reason = found
        row = {"case_id": case_id, "unit_id": "", "status": status.value, **empty}
        return [row | {"details": to_json({"reason": reason})}]
    return [
        {
            "case_id": case_id,
            "unit_id": unit.unit_id,
            "status": Status.OK.value,
            **unit.model_dump(include=set(empty)),
            "details": to_json({"about": unit.about}),
        }
        for unit in found
    ]
