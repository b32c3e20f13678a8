"""The contract of a metric: samples in, one score row each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel

from subjectbench.cards import MetricCard
from subjectbench.encoders.base import Vector as Vector
from subjectbench.units import Unit
from subjectbench.vocabulary import Status


@dataclass(frozen=True)
class Answer:
    """A judge's answer to one question, on the question's own scale, or why there is none.

    ``details``: ``graded`` (a probability of yes), ``reason`` (of a fault), ``request`` (its key).
    """

    status: Status
    value: float | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Item:
    """One sample and what the metric declared to need of it. Missing parts are None."""

    generator: str
    sample_id: str
    case_id: str
    image: Vector | None = None
    pair: Vector | None = None
    text: Vector | None = None
    references: tuple[Vector, ...] = ()
    answers: Mapping[str, Answer] = field(default_factory=dict)
    units: tuple[Unit, ...] = ()


@dataclass(frozen=True)
class Result:
    """A value, or the reason why there is none. ``n_raw`` counts the raw values behind it."""

    status: Status
    value: float | None = None
    n_raw: int = 0
    details: Mapping[str, Any] = field(default_factory=dict)


class Metric(ABC):
    """Scores samples one by one; averaging is no metric's business."""

    version: ClassVar[str] = "1"
    needs: frozenset[str] = frozenset()
    """Subset of ``{"image", "text", "reference"}`` or ``{"pair"}`` (embeddings by the card's
    encoder; ``pair`` is of picture and prompt together) and ``{"answers", "units"}`` (a judge's
    answers by the card's rubric, and the units asked about)."""

    class Params(BaseModel):
        """Parameters of the card; subclasses extend it with ``extra='forbid'``."""

    def __init__(self, params: Any, card: MetricCard, root: Path) -> None:
        self.params, self.card, self.root = params, card, root

    def sources(self) -> list[Path]:
        """Files that the scores come from, besides samples and embeddings."""
        return []

    def check(self, generators: list[str]) -> None:
        """Find faults in the sources before any work starts.

        Raises:
            InputError: naming file, field and mend.
        """
        return None

    @abstractmethod
    def score(self, items: list[Item]) -> list[Result]:
        """Return one result per item, in order. Only samples that have a picture come here."""
