"""What raters are: judgements per sample, by people or by a declared simulation.

Modules in this room are imported by the planner: no pandas and no torch at module level.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from subjectbench.config import Strict

if TYPE_CHECKING:
    import pandas as pd


class Raters(ABC):
    """A source of ratings.

    A plug-in is one module with a subclass and ``PLUGIN = <the subclass>``.

    Args:
        params: checked parameters.
        root: the folder that relative paths in ``params`` start from.
    """

    Params: ClassVar[type[Strict]] = Strict
    """Parameters; each plug-in declares its own class of this name."""

    version: ClassVar[str] = "1"
    """Raised by hand when the same inputs begin to give other ratings."""

    simulated: ClassVar[bool] = False
    """True: no person rated anything, and every number must be labelled so where it is shown."""

    def __init__(self, params: Any, root: Path) -> None:
        self.params = params
        self.root = Path(root)

    @abstractmethod
    def sources(self) -> list[Path]:
        """Files whose content identifies the ratings, sorted."""

    @abstractmethod
    def check(self) -> None:
        """Look for every fault that can be found without samples, before any work.

        Raises:
            InputError: names file, row and mend.
        """

    def check_study(self, generators: list[str], cases: set[str]) -> None:
        """Compare with what the study has, before any work. Called for people's ratings only.

        Args:
            generators: names in the study.
            cases: ids in the benchmark.

        Raises:
            InputError: ratings of unknown generators or cases.
        """
        return None

    @abstractmethod
    def ratings(self, samples: dict[str, pd.DataFrame]) -> pd.DataFrame:
        """Return the table ``records.RATINGS``, sorted by its ids.

        Args:
            samples: table ``records.SAMPLES`` per generator name.

        Raises:
            InputError: ratings and samples do not fit together.
        """
