"""ImagenHub's three human raters of subject-driven generation, as published with VIEScore.

Each cell is ``[semantic, quality]``, each 0, 0.5 or 1. The dimensions are ImagenHub's own:
``semantic`` (subject and prompt together, so neither preservation nor following alone),
``quality``, and ``overall`` = sqrt(semantic * quality), formed per rater and picture. People's
mean is the mean of raters' ``overall``, not the root of mean values (the two differ).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from subjectbench.benchmarks.imagenhub import RaterFile, read_rater_files
from subjectbench.config import LOCATION, Strict
from subjectbench.errors import InputError, suggest
from subjectbench.raters.base import Raters

if TYPE_CHECKING:
    import pandas as pd

_CELL = re.compile(r"\s*\[\s*(0|0\.5|1)(?:\.0)?\s*,\s*(0|0\.5|1)(?:\.0)?\s*\]\s*")


class ImagenHubRaters(Raters):
    """Ratings of published pictures, joined to samples by case id (``sample_0``)."""

    class Params(Strict):
        """Where the files lie, and which column belongs to which generator."""

        path: str = Field(json_schema_extra=LOCATION, description="Folder of the raters' TSV files")
        columns: dict[str, str] = Field(
            min_length=1,
            description="Generator name: column of the TSV files. Other columns are left out",
        )

    version: ClassVar[str] = "1"
    params: Params

    @property
    def _folder(self) -> Path:
        return self.root / self.params.path

    def sources(self) -> list[Path]:
        """Return the raters' files."""
        return sorted(self._folder.glob("*.tsv"))

    def check(self) -> None:
        """Check that raters' files agree, that mapped columns exist, and every mapped cell."""
        for file in self._files():
            for column in self.params.columns.values():
                for case in file.cells:
                    parse(file, case, column)

    def check_study(self, generators: list[str], cases: set[str]) -> None:
        """Refuse columns for generators, and rows for cases, that the study does not have."""
        for generator in self.params.columns:
            if generator not in generators:
                raise InputError(
                    f"{self._folder.name}: columns",
                    f"no generator '{generator}' in the study",
                    suggest(generator, generators),
                )
        for file in self._files():
            unknown = [case for case in file.cells if case not in cases]
            if unknown:
                raise InputError(
                    f"{file.path}: line {file.lines[unknown[0]]}",
                    f"rates '{unknown[0]}', which the benchmark does not have "
                    f"({len(unknown)} such rows)",
                    "give the benchmark and the raters the same files, or remove the rows",
                )

    def _files(self) -> list[RaterFile]:
        files = read_rater_files(self._folder)
        used: dict[str, str] = {}
        for generator, column in self.params.columns.items():
            where = f"{self._folder.name}: columns: {generator}"
            if column not in files[0].columns:
                known = files[0].columns
                raise InputError(where, f"no column '{column}'", suggest(column, known))
            if column in used:
                fault = f"column '{column}' is given to '{used[column]}' too"
                raise InputError(where, fault, "give each generator its own column")
            used[column] = generator
        return files

    def ratings(self, samples: dict[str, pd.DataFrame]) -> pd.DataFrame:
        """Rate each sample of each mapped generator, in three dimensions per rater.

        Generators that ``columns`` does not name (controls) get no rows. Ratings are of the
        published pictures: it is for the study to import those, not to generate others.

        Raises:
            InputError: ``columns`` names a generator that is not here, or a sample is of a case
                that nobody rated, or is a second picture of one.
        """
        from subjectbench.records import table

        files = self._files()
        rows: list[dict[str, Any]] = []
        for generator, column in sorted(self.params.columns.items()):
            if generator not in samples:
                raise InputError(
                    f"{self._folder.name}: columns",
                    f"no generator '{generator}' in the study",
                    suggest(generator, samples),
                )
            for sample, case in self._rated(generator, samples[generator], files[0]):
                for file in files:
                    values = parse(file, case, column)
                    rows += [
                        {
                            "generator": generator,
                            "sample_id": sample,
                            "rater": file.rater,
                            "dimension": dimension,
                            "status": "ok",
                            "value": value,
                        }
                        for dimension, value in values.items()
                    ]
        rows.sort(key=lambda r: (r["generator"], r["sample_id"], r["rater"], r["dimension"]))
        return table("ratings", rows, self._folder)

    @staticmethod
    def _rated(generator: str, frame: pd.DataFrame, first: RaterFile) -> Iterator[tuple[str, str]]:
        for sample, case, replicate in zip(
            frame["sample_id"], frame["case_id"], frame["replicate"]
        ):
            where = f"{first.path}: {generator}: sample '{sample}'"
            if case not in first.cells:
                raise InputError(
                    where, f"nobody rated case '{case}'", suggest(str(case), first.cells)
                )
            if replicate != 0:
                raise InputError(where, "one picture per case was rated", "set replicates to 1")
            yield sample, case


def parse(file: RaterFile, case: str, column: str) -> dict[str, float]:
    """Read one cell.

    Returns:
        ``semantic`` and ``quality`` in {0, 0.5, 1}, ``overall`` in [0, 1].

    Raises:
        InputError: names file, line and column.
    """
    cell = file.cells[case][column]
    match = _CELL.fullmatch(cell)
    if not match:
        raise InputError(
            f"{file.path}: line {file.lines[case]}, column {column}",
            f"{cell!r} is not [semantic, quality]",
            "write two of 0, 0.5 and 1, e.g. [0.5, 1]",
        )
    semantic, quality = float(match[1]), float(match[2])
    overall = math.sqrt(semantic * quality)
    return {"semantic": semantic, "quality": quality, "overall": overall}


PLUGIN = ImagenHubRaters
