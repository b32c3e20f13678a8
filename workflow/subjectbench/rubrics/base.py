"""The contract of a rubric: a sample in, requests to a judge out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from subjectbench.asking.base import Request
from subjectbench.cards import RubricCard
from subjectbench.config import Strict
from subjectbench.units import Unit

if TYPE_CHECKING:
    from PIL import Image


@dataclass(frozen=True)
class Judged:
    """One sample as a rubric sees it. Parts that the rubric does not need are None or empty."""

    generator: str
    sample_id: str
    case_id: str
    subject: str
    prompt: str
    image: Image.Image | None = None
    reference: Image.Image | None = None
    units: tuple[Unit, ...] = ()


@dataclass(frozen=True)
class Said:
    """An answer that was given elsewhere, for rubrics that import."""

    ask: str
    value: float | None
    fault: str = ""  # why there is no value
    text: str = ""


class Rubric:
    """What a judge is asked about one sample. Prompts are in the card, so they are data.

    A plug-in is one module with a subclass and ``PLUGIN = <the subclass>``.

    Args:
        params: checked parameters.
        card: the rubric's card.
        root: the folder that relative paths in ``params`` start from.
    """

    Params: ClassVar[type[Strict]] = Strict
    version: ClassVar[str] = "1"
    needs: frozenset[str] = frozenset({"image", "reference"})
    """Subset of ``{"image", "reference", "units"}``."""
    imported: ClassVar[bool] = False
    """True: answers come from files (``said``), and no judge is asked."""

    def __init__(self, params: Any, card: RubricCard, root: Path) -> None:
        self.params, self.card, self.root = params, card, root

    def requests(self, sample: Judged) -> list[Request]:
        """Return what to ask about a sample; names of asks are unique among them all."""
        raise NotImplementedError

    def sources(self) -> list[Path]:
        """Files that imported answers come from."""
        return []

    def check(self, generators: list[str]) -> None:
        """Find faults in the sources before any work starts.

        Raises:
            InputError: naming file, field and mend.
        """
        return None

    def said(self, sample: Judged) -> list[Said]:
        """Return imported answers about a sample."""
        raise NotImplementedError
