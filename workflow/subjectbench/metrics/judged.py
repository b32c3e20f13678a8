"""Scores from a judge's answers by a declared formula: VIEScore, DreamBench++, SICS, one question.

Answers are grouped. Each group becomes one number (``inner``), which is divided by the top of the
scale, and these become the score (``outer``):

- VIEScore: SC = min(following, preservation) / 10, PQ = min(naturalness, artifacts) / 10,
  O = sqrt(SC * PQ);
- DreamBench++: preservation / 4, following / 4, and their product;
- SICS: preservation / 5.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

from pydantic import Field, field_validator

from subjectbench.config import Strict
from subjectbench.metrics.base import Answer, Item, Metric, Result
from subjectbench.vocabulary import Status

Mean = Callable[[Sequence[float]], float]

FORMULAS: dict[str, Mean] = {
    "min": min,
    "mean": lambda values: math.fsum(values) / len(values),
    "product": math.prod,
    "geometric_mean": lambda values: math.prod(values) ** (1 / len(values)),
}
"""What several numbers become; one number stays itself under each of them."""

WORST = (Status.FAILED, Status.REFUSED, Status.UNPARSABLE)
"""Of several answers without value the first of these is the score's status."""


class Judged(Metric):
    """A number only if every answer it needs is there: nothing is filled in (VLM-08)."""

    needs = frozenset({"answers"})

    class Params(Strict):
        """The formula."""

        groups: list[list[str]] = Field(
            min_length=1, description="Names of questions, in groups; each group becomes a number"
        )
        inner: Literal["min", "mean"] = Field(
            default="min", description="What the answers of a group become"
        )
        outer: Literal["mean", "product", "geometric_mean"] = Field(
            default="mean", description="What the numbers of the groups become"
        )
        divide_by: float = Field(gt=0, description="Top of the questions' scale, which starts at 0")

        @field_validator("groups")
        @classmethod
        def _no_empty_group(cls, groups: list[list[str]]) -> list[list[str]]:
            if not all(groups):
                raise ValueError("a group names no question")
            return groups

    def score(self, items: list[Item]) -> list[Result]:
        """Return one result per item, 0 to 1; ``details`` hold the answers as given."""
        return [self._one(item) for item in items]

    def _one(self, item: Item) -> Result:
        names = dict.fromkeys(name for group in self.params.groups for name in group)
        found = {name: item.answers.get(name, Answer(Status.MISSING)) for name in names}
        values = {name: a.value for name, a in found.items() if a.value is not None}
        without = {name: a.status for name, a in found.items() if a.value is None}
        details = {"answers": values} | ({"without": without} if without else {})
        if without:
            statuses = list(without.values())
            status = next((s for s in WORST if s in statuses), statuses[0])
            return Result(status, n_raw=len(values), details=details)
        inner, outer = FORMULAS[self.params.inner], FORMULAS[self.params.outer]
        groups = [
            inner([values[name] for name in group]) / self.params.divide_by
            for group in self.params.groups
        ]
        return Result(Status.OK, outer(groups), len(values), details)


PLUGIN = Judged
