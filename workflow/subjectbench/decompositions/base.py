"""The contract of a decomposition: a case in, its atomic units out (UFO, section 3.1)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from subjectbench.asking.base import Request
from subjectbench.cards import DecompositionCard
from subjectbench.config import Strict
from subjectbench.units import Unit

if TYPE_CHECKING:
    from PIL import Image


@dataclass(frozen=True)
class Case:
    """One case as a decomposition sees it."""

    case_id: str
    subject: str
    prompt: str
    reference: Image.Image | None


class Decomposition:
    """Splits cases into units, from prepared files or by asking a judge.

    A plug-in is one module with a subclass and ``PLUGIN = <the subclass>``.
    """

    Params: ClassVar[type[Strict]] = Strict
    version: ClassVar[str] = "1"
    asks_judge: ClassVar[bool] = False
    """False: the benchmark has prepared units (``Benchmark.units``)."""

    def __init__(self, params: Any, card: DecompositionCard, root: Path) -> None:
        self.params, self.card, self.root = params, card, root

    def request(self, case: Case) -> Request:
        """Return the one request about a case."""
        raise NotImplementedError

    def read(self, text: str) -> list[Unit]:
        """Read the units out of a reply, merged.

        Raises:
            ValueError: the reply has no valid units; says what is wrong, for a repair question.
        """
        raise NotImplementedError

    def chosen(self, units: list[Unit]) -> list[Unit]:
        """Return the units that are kept, merged; parameters may leave some out."""
        raise NotImplementedError
