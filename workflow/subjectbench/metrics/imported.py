"""Scores made elsewhere: one JSON file per model, sample id to named values (ImagenHub's form)."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from pydantic import Field

from subjectbench.config import LOCATION, Strict
from subjectbench.errors import InputError, suggest
from subjectbench.metrics.base import Item, Metric, Result
from subjectbench.vocabulary import Status


class Imported(Metric):
    """Reads ``<folder>/<generator>.json``: ``{"sample_0.jpg": {"CLIP_I": 0.8, ...}, ...}``."""

    class Params(Strict):
        """Parameters of a card for imported scores."""

        folder: str = Field(
            json_schema_extra=LOCATION,
            description="Folder of the JSON files, relative to the checkout",
        )
        field: str = Field(description="Name of the value in each entry")
        suffix: str = Field(default=".jpg", description="What the file's ids end with, beyond ours")

    def _file(self, generator: str) -> Path:
        return self.root / self.params.folder / f"{generator}.json"

    def sources(self) -> list[Path]:
        """Return every JSON file of the folder."""
        folder = self.root / self.params.folder
        if not folder.is_dir():
            raise InputError(
                f"{folder}", "no such folder", "set params.folder of the metric in the config"
            )
        return sorted(folder.glob("*.json"))

    def _read(self, path: Path) -> dict[str, Any]:
        try:
            data = json.loads(path.read_text("utf-8"))
        except FileNotFoundError as error:
            known = [p.stem for p in self.sources()]
            raise InputError(path, "no such file", suggest(path.stem, known)) from error
        except ValueError as error:
            raise InputError(path, f"not UTF-8 JSON: {error}") from error
        if not isinstance(data, dict):
            raise InputError(path, "expected an object of sample ids")
        return data

    def check(self, generators: list[str]) -> None:
        """Every generator has its file, and some entry has the field.

        Raises:
            InputError: otherwise.
        """
        for generator in generators:
            path = self._file(generator)
            entries = list(self._read(path).values())
            fields = {name for entry in entries if isinstance(entry, dict) for name in entry}
            if self.params.field not in fields:
                raise InputError(
                    f"{path}",
                    f"no entry has '{self.params.field}'",
                    suggest(self.params.field, fields),
                )

    def score(self, items: list[Item]) -> list[Result]:
        """Look each sample up by its id; a sample without entry is ``missing``, never zero."""
        files = {g: self._read(self._file(g)) for g in {i.generator for i in items}}
        return [self._one(files[i.generator], i) for i in items]

    def _one(self, entries: dict[str, Any], item: Item) -> Result:
        entry = entries.get(item.case_id + self.params.suffix)
        # An entry that is no object is no value either, and ends as such.
        value = entry.get(self.params.field) if isinstance(entry, dict) else entry
        if value is None:
            return Result(Status.MISSING)
        if (
            not isinstance(entry, dict)
            or isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
        ):
            return Result(Status.UNPARSABLE, details={"found": str(value)})
        return Result(Status.OK, float(value), 1)


PLUGIN = Imported
