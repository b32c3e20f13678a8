"""Units as the benchmark supplies them (``Benchmark.units``)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from subjectbench.config import Strict
from subjectbench.decompositions.base import Decomposition
from subjectbench.units import Unit, merged


class Prepared(Decomposition):
    """Keeps the prepared units of some levels."""

    class Params(Strict):
        """Which units count."""

        levels: list[Literal["global_attribute", "part", "setting"]] = Field(
            default=["global_attribute", "part", "setting"],
            min_length=1,
            description="Levels that are kept; without setting as in the reference",
        )

    def chosen(self, units: list[Unit]) -> list[Unit]:
        """Return the units of the kept levels, merged."""
        return merged(unit for unit in units if unit.level in self.params.levels)


PLUGIN = Prepared
