"""What one check of the audit says."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from subjectbench.published.rounded import Rounded


class Verdict(StrEnum):
    """Whether what is printed follows from what it is said to be made from."""

    DISAGREES = "disagrees"
    UNCHECKED = "cannot be checked"
    AGREES = "agrees"

    @classmethod
    def of(cls, holds: bool) -> Verdict:
        """The verdict of a check that was made."""
        return cls.AGREES if holds else cls.DISAGREES


@dataclass(frozen=True)
class Finding:
    """One check.

    Attributes:
        id: stable name, ``<paper>-<place>-<what>``.
        paper: which paper.
        place: table, section or equation.
        cells: rows and columns in question.
        check: what was compared, and how it was computed.
        printed: as printed.
        computed: from the other printed numbers.
        tolerance: the computed number's interval, from the rounding of what it was computed from;
            empty where nothing was rounded.
        verdict: agrees when rounding can explain any difference.
        cause: likely cause of a disagreement, or a remark, in our words.
        about: table and row of each printed number that it casts doubt on; not shown.
    """

    id: str
    paper: str
    place: str
    cells: str
    check: str
    printed: str
    computed: str
    tolerance: str
    verdict: Verdict
    cause: str = ""
    about: tuple[tuple[int, str], ...] = ()


def interval(number: Rounded, digits: int) -> str:
    """Bounds to be read; empty if the number is exact."""
    if number.low == number.high:
        return ""
    return f"{number.low:.{digits}f} to {number.high:.{digits}f}"


def listed(names: list[str] | tuple[str, ...]) -> str:
    """Names in a sentence."""
    return ", ".join(names) if names else "none"
