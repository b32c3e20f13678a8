"""The papers' printed tables and claims, digit for digit."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from subjectbench.cards import ROOT, read_yaml
from subjectbench.config import Strict, validate
from subjectbench.errors import InputError, suggest
from subjectbench.published.rounded import Rounded

FOLDER = ROOT / "workflow" / "published"

VERSIONS = {"dsh": "arXiv 2603.08090, version 1", "ufo": "arXiv 2609.12397, version 1"}
"""Which version of a paper its tables were read from; papers as cards name them."""


class TableFacts(Strict):
    """What ``tables.yaml`` says of a table."""

    paper: str
    table: int
    title: str
    words: list[str] = []


class Claim(Strict):
    """A number or name that a paper prints outside its tables."""

    paper: str
    where: str
    printed: str
    of: str
    cell: list[str] | None = None

    @property
    def exact(self) -> float:
        """The number, where it is a count or a constant of a formula."""
        return float(self.printed)

    @property
    def rounded(self) -> Rounded:
        """The number, with what its digits leave open."""
        return Rounded.of(self.printed)


class ClaimsFile(Strict):
    """What ``claims.yaml`` holds."""

    claims: dict[str, Claim]
    base_models: dict[str, str]


@dataclass(frozen=True)
class Table:
    """One printed table.

    Attributes:
        name: of its CSV.
        facts: paper, number, title.
        columns: names, without the first, which names the rows.
        cells: row to column to digits as printed; empty where nothing is.
    """

    name: str
    facts: TableFacts
    columns: tuple[str, ...]
    cells: Mapping[str, Mapping[str, str]]

    @property
    def rows(self) -> list[str]:
        """Names of the rows, in print order."""
        return list(self.cells)

    @property
    def numeric(self) -> list[str]:
        """Columns of numbers."""
        return [c for c in self.columns if c not in self.facts.words]

    def __call__(self, row: str, column: str) -> Rounded:
        """One cell, with what rounding leaves open."""
        return Rounded.of(self.cells[row][column])

    def column(self, column: str) -> dict[str, Rounded]:
        """A column by row."""
        return {row: self(row, column) for row in self.cells}

    def changed(self, row: str, **digits: str) -> Table:
        """The same table with other digits in some cells of a row."""
        return replace(self, cells={**self.cells, row: {**self.cells[row], **digits}})


@dataclass(frozen=True)
class Printed:
    """All that the audit knows.

    Attributes:
        tables: by name.
        claims: by name.
        base_models: method to what its published checkpoint stands on.
    """

    tables: Mapping[str, Table]
    claims: Mapping[str, Claim]
    base_models: Mapping[str, str]

    def table(self, paper: str, number: int) -> Table:
        """A table by its number.

        Raises:
            InputError: there is none.
        """
        for table in self.tables.values():
            if (table.facts.paper, table.facts.table) == (paper, number):
                return table
        known = [f"{t.facts.paper} table {t.facts.table}" for t in self.tables.values()]
        raise InputError(
            "published", f"no {paper} table {number}", suggest(f"{paper} table {number}", known)
        )


def _read_table(name: str, facts: TableFacts) -> Table:
    path = FOLDER / f"{name}.csv"
    with path.open(encoding="utf-8", newline="") as file:
        (_, *columns), *rows = csv.reader(file)
    cells = {row[0]: dict(zip(columns, row[1:], strict=True)) for row in rows}
    if len(cells) != len(rows):
        raise InputError(path, "a row is there twice")
    table = Table(name, facts, tuple(columns), cells)
    for row in table.rows:
        for column in table.numeric:
            try:
                table(row, column)
            except ValueError as error:
                raise InputError(f"{path}: {row}, {column}", str(error), "write 0.123") from error
    return table


@cache
def read() -> Printed:
    """Read tables and claims.

    Raises:
        InputError: naming file, row and column of a fault.
    """
    index = FOLDER / "tables.yaml"
    tables = {
        name: _read_table(name, validate(TableFacts, facts, f"{index}: {name}"))
        for name, facts in read_yaml(index).items()
    }
    path = FOLDER / "claims.yaml"
    claims = validate(ClaimsFile, read_yaml(path), path)
    return Printed(tables, claims.claims, claims.base_models)


def printed(paper: str, table: int, row: str, column: str) -> float | None:
    """Look up one printed number, to stand beside a measured one.

    Args:
        paper: ``"DSH-Bench"`` or ``"UFO"``.
        table: its number in the paper.
        row: method as the table names it.
        column: of the CSV, e.g. ``"s_h"``.

    Returns:
        The number; None where the table has no such row.

    Raises:
        InputError: no such table or column.
    """
    found = read().table(paper, table)
    if column not in found.numeric:
        raise InputError(
            f"published {found.name}", f"no column '{column}'", suggest(column, found.numeric)
        )
    return float(found.cells[row][column]) if row in found.cells else None


def sources() -> list[Path]:
    """Files whose content decides what is found; their hashes are part of the identity."""
    return sorted(p for p in FOLDER.iterdir() if p.suffix in (".csv", ".yaml"))
