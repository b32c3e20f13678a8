"""What every table is made of: checked rows, and means with all that must stand beside them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from subjectbench.errors import InputError, suggest
from subjectbench.records import Status
from subjectbench.statistics import bootstrap

POOLED = "ALL"
"""``generator`` of a row over all generators together (DSH-Bench Table 1, last row)."""

MEAN = "MEAN"
"""``generator`` of a row that averages the rows per model."""

TOTAL = "total"
"""Level of a row or column over all paradigms or categories together."""

UNLABELLED = "(none)"
"""Level of cases without a difficulty, scenario, paradigm or category; shown, not dropped."""

Generators = Sequence[str] | Mapping[str, str] | None
"""Ids in the order to show, or id -> title; None takes the order of first appearance."""


# ------------------------------------------------------------------------------- checking


def text_ids(frame: pd.DataFrame, columns: Iterable[str], where: str) -> None:
    """Refuse a frame without these columns, or with anything but text in them."""
    for column in columns:
        if column not in frame.columns:
            raise InputError(where, f"column '{column}' is missing", suggest(column, frame.columns))
        values = frame[column]
        if isinstance(values.dtype, pd.StringDtype):  # then all but missing ones are text
            values = values[values.isna()]
        bad = [v for v in values if not isinstance(v, str)]
        if bad:
            raise InputError(where, f"{column}: {bad[0]!r} is not text", "every row needs this id")


def unique(frame: pd.DataFrame, columns: list[str], where: str) -> None:
    """Refuse repeated rows."""
    repeated = frame.loc[frame.duplicated(columns), columns]
    if len(repeated):
        raise InputError(where, f"{len(repeated)} repeated {columns}: {repeated.iloc[0].tolist()}")


def checked_scores(scores: pd.DataFrame) -> pd.DataFrame:
    """Refuse scores that would be mixed, multiplied or counted although they failed."""
    where = "scores"
    text_ids(scores, ["generator", "sample_id", "metric", "key", "status", "subject_id"], where)
    if "value" not in scores.columns:
        raise InputError(where, "column 'value' is missing")
    unknown = set(scores["status"]) - {s.value for s in Status}
    if unknown:
        raise InputError(where, f"unknown status '{min(unknown)}'")
    ok = scores["status"] == Status.OK.value
    value = scores["value"].astype("float64")
    if not np.isfinite(value[ok]).all() or value[~ok].notna().any():
        raise InputError(where, "exactly the rows with status 'ok' must have a finite value")
    keys = scores.groupby(["generator", "metric"], observed=True)["key"].nunique()
    if (keys > 1).any():
        generator, metric = keys[keys > 1].index[0]
        raise InputError(
            where,
            f"{metric} of {generator} has rows of {keys.max()} different keys",
            "scores of different identities are different metrics: select one key",
        )
    unique(scores, ["generator", "sample_id", "metric"], where)
    return scores.assign(value=value).reset_index(drop=True)


def order_of(present: Iterable[str], generators: Generators, where: str) -> dict[str, str]:
    """Id -> title, in the order to show."""
    found = list(dict.fromkeys(present))
    if generators is None:
        return {g: g for g in found}
    titles = dict(generators) if isinstance(generators, Mapping) else {g: g for g in generators}
    unknown = [g for g in found if g not in titles]
    if unknown:
        raise InputError(
            where,
            f"generator '{unknown[0]}' is not among those to show",
            suggest(unknown[0], titles),
        )
    return titles


def known_metric(scores: pd.DataFrame, metric: str, where: str) -> None:
    """Refuse a metric without scores."""
    known = set(scores["metric"].unique())
    if metric not in known:
        raise InputError(where, f"no scores of '{metric}'", suggest(metric, known))


def labelled(column: pd.Series, known: Sequence[str] | None) -> tuple[pd.Series, list[str]]:
    """Name rows without a level, and list the levels that occur.

    Args:
        column: levels, e.g. the paradigm of each row; its name is used in errors.
        known: the levels in order; None takes any, by name.

    Returns:
        The column with ``UNLABELLED`` for missing levels, and the levels in order, that one last.

    Raises:
        InputError: an unknown level.
    """
    filled = column.astype(object).where(column.notna(), UNLABELLED)
    present = set(filled)
    odd = sorted(present - {*(known or present), UNLABELLED}, key=str)
    if odd:
        raise InputError(
            "levels", f"unknown {column.name} '{odd[0]}'", suggest(str(odd[0]), known or [])
        )
    levels = [x for x in (known or sorted(present)) if x in present and x != UNLABELLED]
    return filled, levels + [UNLABELLED] * (UNLABELLED in present)


def share(name: str, value: float) -> float:
    """Refuse a share outside 0 to 1."""
    if not 0.0 <= value <= 1.0:
        raise InputError(name, f"{value} is outside 0 to 1")
    return float(value)


# ------------------------------------------------------------------------------- cells


class Cell:
    """The mean of one metric over some rows, with all that must stand beside it.

    Attributes:
        n: samples with a score; units of ``per`` with at least one.
        coverage: samples with a score of those expected.
        mean: None where there is none; ``note`` says why.
        low: lower end of the interval, or None.
        high: upper end, or None.
        draws: shape (draws,), the mean in every draw; None without a mean.

    Args:
        rows: checked scores of one metric and generator.
        min_coverage: below it there is no mean.
        resample: draws of subjects; None without rows.
        confidence: of the interval.
        per: column whose values count once each (``"case_id"``: the mean over cases of each case's
            mean); None: every sample counts once.
    """

    def __init__(
        self,
        rows: pd.DataFrame,
        min_coverage: float,
        resample: bootstrap.Resample | None,
        confidence: float,
        per: str | None = None,
    ):
        # A metric that does not apply (a face score of a mug) was never expected to succeed.
        expected = rows[rows["status"] != Status.NOT_APPLICABLE.value]
        ok = expected[expected["status"] == Status.OK.value]
        self.expected = len(expected)
        self.coverage = len(ok) / self.expected if self.expected else 0.0
        self.mean: float | None = None
        self.low: float | None = None
        self.high: float | None = None
        self.note = ""
        self.draws: NDArray[np.float64] | None = None
        failed = Counter(expected.loc[expected["status"] != Status.OK.value, "status"])
        why = ", ".join(f"{n} {status}" for status, n in sorted(failed.items()))
        if not len(rows):
            self.note = "no scores"
        elif not self.expected:
            self.note = "not applicable"
        elif not len(ok):
            self.note = f"no valid score ({why})"
        elif self.coverage < min_coverage:
            self.note = (
                f"coverage {self.coverage:.3f} below {min_coverage:.3f} "
                f"({len(ok)} of {self.expected}; {why})"
            )
        if per:
            ok = ok.groupby(per).agg(value=("value", "mean"), subject_id=("subject_id", "first"))
        self.n = len(ok)
        if not self.note:
            assert resample is not None
            self.mean = float(ok["value"].mean())
            self.draws = resample.means(ok["value"], ok["subject_id"].tolist())
            interval = bootstrap.percentile(self.draws, confidence, len(resample.labels))
            self.low, self.high = interval.low, interval.high
            if interval.reason:
                self.note = f"no interval: {interval.reason}"

    def columns(self, name: str) -> dict[str, Any]:
        """Return the five columns that ``writing.compact`` folds into one."""
        return {
            f"{name}_mean": self.mean,
            f"{name}_ci_low": self.low,
            f"{name}_ci_high": self.high,
            f"{name}_n": self.n,
            f"{name}_coverage": self.coverage,
        }


def resample_of(rows: pd.DataFrame, draws: int, seed: int) -> bootstrap.Resample | None:
    """Draw the subjects of these rows; None if there are none."""
    # All subjects of the benchmark, also those whose samples failed: they were drawn too.
    return bootstrap.Resample.of(rows["subject_id"].tolist(), draws, seed) if len(rows) else None


def case_column(scores: pd.DataFrame) -> str:
    """Return the column that names cases."""
    return "case_id" if "case_id" in scores.columns else "sample_id"


def unequal_cases(rows: pd.DataFrame, generators: Iterable[str]) -> bool:
    """Whether generators have valid scores of different cases, or differently often (CLIP-09)."""
    ok = rows[rows["status"] == Status.OK.value]
    counts = {
        g: Counter(ok.loc[ok["generator"] == g, case_column(rows)])
        for g in generators
        if (ok["generator"] == g).any()
    }
    return len({tuple(sorted(c.items())) for c in counts.values()}) > 1


def frame_of(
    rows: list[dict[str, Any]],
    *,
    text: Sequence[str],
    whole: Sequence[str] = (),
    columns: Sequence[str] | None = None,
) -> pd.DataFrame:
    """Build a frame whose types do not depend on whether numbers happen to be missing."""
    frame = pd.DataFrame(rows, columns=list(columns) if columns else None)
    for column in frame.columns:
        if column in text:
            frame[column] = frame[column].astype("str")
        elif column in whole:
            frame[column] = frame[column].astype("Int64")
        elif frame[column].dtype == object:  # all None, or numbers and None
            frame[column] = frame[column].astype("float64")
    return frame
