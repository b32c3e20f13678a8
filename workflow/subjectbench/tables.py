"""One function per table: tidy long frames in, a frame of raw numbers out, and three ways to write.

Every mean stands beside its n and coverage; an undefined number is missing and a note or reason
says why. Order comes from the arguments or from ``records``, never from the file.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from subjectbench.errors import InputError, suggest
from subjectbench.records import (
    DIFFICULTIES,
    DIMENSIONS,
    SCENARIOS,
    Status,
    join_one_to_one,
)
from subjectbench.statistics import agreement as raters
from subjectbench.statistics import bootstrap, correlation
from subjectbench.statistics import leaderboard as headline
from subjectbench.statistics.pareto import pareto_front

POOLED = "ALL"
"""``generator`` of a row over all generators together (DSH-Bench Table 1, last row)."""

MEAN = "MEAN"
"""``generator`` of a row that averages the rows per model."""

UNLABELLED = "(none)"
"""Level of cases without a difficulty, scenario or category; shown, not dropped."""

CLIP = 0.999999
"""Declared clip of the Fisher mean; shown in the table."""

FACE_POLICIES = ("detected", "with_zero")
"""Which of the two means of a face metric is the published one."""

Generators = Sequence[str] | Mapping[str, str] | None
"""Ids in the order to show, or id -> title; None takes the order of first appearance."""


# ------------------------------------------------------------------------------- checking


def _text_ids(frame: pd.DataFrame, columns: Iterable[str], where: str) -> None:
    for column in columns:
        if column not in frame.columns:
            raise InputError(where, f"column '{column}' is missing", suggest(column, frame.columns))
        bad = [v for v in frame[column] if not isinstance(v, str)]
        if bad:
            raise InputError(where, f"{column}: {bad[0]!r} is not text", "every row needs this id")


def _unique(frame: pd.DataFrame, columns: list[str], where: str) -> None:
    repeated = frame.loc[frame.duplicated(columns), columns]
    if len(repeated):
        raise InputError(where, f"{len(repeated)} repeated {columns}: {repeated.iloc[0].tolist()}")


def _checked_scores(scores: pd.DataFrame) -> pd.DataFrame:
    """Refuse scores that would be mixed, multiplied or counted although they failed."""
    where = "scores"
    _text_ids(scores, ["generator", "sample_id", "metric", "key", "status", "subject_id"], where)
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
    _unique(scores, ["generator", "sample_id", "metric"], where)
    return scores.assign(value=value)


def _order(present: Iterable[str], generators: Generators, where: str) -> dict[str, str]:
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


def _dimensions(dimensions: Mapping[str, str]) -> dict[str, str]:
    """Dimension -> metric in the paper's order."""
    for name in dimensions:
        if name not in DIMENSIONS:
            raise InputError("dimensions", f"unknown dimension '{name}'", suggest(name, DIMENSIONS))
    if not dimensions:
        raise InputError("dimensions", "none given", f"known: {', '.join(DIMENSIONS)}")
    return {d: dimensions[d] for d in DIMENSIONS if d in dimensions}


def _share(name: str, value: float) -> float:
    if not 0.0 <= value <= 1.0:
        raise InputError(name, f"{value} is outside 0 to 1")
    return float(value)


# ------------------------------------------------------------------------------- cells


class _Cell:
    """The mean of one metric over some rows, with all that must stand beside it."""

    def __init__(self, rows: pd.DataFrame, min_coverage: float, resample: Any, confidence: float):
        # A metric that does not apply (a face score of a mug) was never expected to succeed.
        expected = rows[rows["status"] != Status.NOT_APPLICABLE.value]
        ok = expected[expected["status"] == Status.OK.value]
        self.n, self.expected = len(ok), len(expected)
        self.coverage = self.n / self.expected if self.expected else 0.0
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
        elif not self.n:
            self.note = f"no valid score ({why})"
        elif self.coverage < min_coverage:
            self.note = (
                f"coverage {self.coverage:.3f} below {min_coverage:.3f} "
                f"({self.n} of {self.expected}; {why})"
            )
        else:
            self.mean = float(ok["value"].mean())
            self.draws = resample.means(ok["value"], ok["subject_id"].tolist())
            interval = bootstrap.percentile(self.draws, confidence, len(resample.labels))
            self.low, self.high = interval.low, interval.high
            if interval.reason:
                self.note = f"no interval: {interval.reason}"


def _resample(rows: pd.DataFrame, draws: int, seed: int) -> Any:
    # All subjects of the benchmark, also those whose samples failed: they were drawn too.
    return bootstrap.Resample.of(rows["subject_id"].tolist(), draws, seed) if len(rows) else None


def _case_column(scores: pd.DataFrame) -> str:
    return "case_id" if "case_id" in scores.columns else "sample_id"


def _unequal_cases(rows: pd.DataFrame, generators: Iterable[str]) -> bool:
    """Whether generators have valid scores for different cases, or differently often (CLIP-09)."""
    ok = rows[rows["status"] == Status.OK.value]
    counts = {
        g: Counter(ok.loc[ok["generator"] == g, _case_column(rows)])
        for g in generators
        if (ok["generator"] == g).any()
    }
    return len({tuple(sorted(c.items())) for c in counts.values()}) > 1


# ------------------------------------------------------------------------------- tables


def leaderboard(
    scores: pd.DataFrame,
    dimensions: Mapping[str, str],
    *,
    weights: Sequence[float] = headline.WEIGHTS,
    constant: float = headline.CONSTANT,
    min_coverage: float = 0.9,
    generators: Generators = None,
    draws: int = 1000,
    seed: int = 0,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """The leaderboard of DSH-Bench, Table 3: three dimension means and S_h per generator.

    Args:
        scores: ``records.SCORES`` with the columns of the case (``subject_id`` at least), one row
            per expected sample; rows with status ``not_applicable`` are not expected.
        dimensions: dimension -> metric. Without all three there is no S_h.
        weights: see ``statistics.leaderboard.s_h``.
        constant: see ``statistics.leaderboard.s_h``.
        min_coverage: share of expected samples below which no mean and no S_h is shown.
        generators: what to show, in order; all generators of ``scores`` must be among them.
        draws: bootstrap draws of subjects, shared by the three dimensions.
        seed: of the draws.
        confidence: of the percentile intervals.

    Returns:
        Per generator: ``generator, title, rank, s_h, s_h_ci_low, s_h_ci_high``; per dimension
        ``<d>_mean, <d>_ci_low, <d>_ci_high, <d>_n, <d>_coverage``; ``note``. ``rank`` is 1 for the
        highest S_h, the same for equal ones, and missing where S_h is.

    Raises:
        InputError: mixed keys, repeated samples, a failed row with a value, unknown names.
    """
    scores, named = _checked_scores(scores), _dimensions(dimensions)
    min_coverage = _share("min_coverage", min_coverage)
    headline.check_weights(weights, constant)
    order = _order(scores["generator"], generators, "leaderboard")
    used = scores[scores["metric"].isin(named.values())]
    unequal = [d for d, m in named.items() if _unequal_cases(used[used["metric"] == m], order)]
    rows = []
    for generator, title in order.items():
        mine = used[used["generator"] == generator]
        resample = _resample(mine, draws, seed)
        cells = {
            d: _Cell(mine[mine["metric"] == m], min_coverage, resample, confidence)
            for d, m in named.items()
        }
        notes = [f"{d}: {c.note}" for d, c in cells.items() if c.note]
        means = {d: cells[d].mean if d in cells else None for d in DIMENSIONS}
        total = headline.s_h(**means, weights=weights, constant=constant)
        if total.reason:
            notes.append(f"no S_h: {total.reason.replace('_', ' ')}")
        low = high = None
        known = [c.draws for c in cells.values() if c.draws is not None]
        if total.value is not None and len(known) == 3:
            drawn = headline.s_h_draws(np.column_stack(known), weights, constant)
            interval = bootstrap.percentile(drawn, confidence, len(resample.labels))
            low, high = interval.low, interval.high
            if interval.reason and not any(interval.reason in n for n in notes):
                notes.append(f"no interval of S_h: {interval.reason}")
        if unequal:
            notes.append(f"cases differ between generators ({', '.join(unequal)})")
        row: dict[str, Any] = {"generator": generator, "title": title, "rank": None}
        row |= {"s_h": total.value, "s_h_ci_low": low, "s_h_ci_high": high}
        for d, c in cells.items():
            row |= {f"{d}_mean": c.mean, f"{d}_ci_low": c.low, f"{d}_ci_high": c.high}
            row |= {f"{d}_n": c.n, f"{d}_coverage": c.coverage}
        rows.append(row | {"note": "; ".join(notes)})
    frame = _frame(rows, text=("generator", "title", "note"), whole=("rank",))
    ranks = frame["s_h"].round(correlation.DECIMALS).rank(method="min", ascending=False)
    return frame.assign(rank=ranks.astype("Int64"))


def breakdown(
    scores: pd.DataFrame,
    by: str,
    dimensions: Mapping[str, str],
    *,
    min_coverage: float = 0.9,
    generators: Generators = None,
    draws: int = 1000,
    seed: int = 0,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Means by subject difficulty, prompt scenario or category (DSH-Bench section 5, Fig. 7-8).

    Args:
        scores: as for ``leaderboard``, with the column ``by``.
        by: ``"difficulty"``, ``"scenario"`` or ``"category"``.
        dimensions: dimension -> metric.
        min_coverage: share of expected samples below which no mean is shown.
        generators: what to show, in order.
        draws: bootstrap draws of subjects.
        seed: of the draws.
        confidence: of the percentile intervals.

    Returns:
        Columns ``generator, title, dimension, metric, level, mean, ci_low, ci_high, n, coverage,
        subjects, note``; levels in the order of ``records`` (categories by name), only those that
        occur. Cases without a level are shown as ``UNLABELLED``.

    Raises:
        InputError: as ``leaderboard``; or an unknown ``by`` or level.
    """
    known = {"difficulty": DIFFICULTIES, "scenario": SCENARIOS, "category": None}
    if by not in known or by not in scores.columns:
        raise InputError("breakdown", f"cannot break down by '{by}'", suggest(by, known))
    scores, named = _checked_scores(scores), _dimensions(dimensions)
    min_coverage = _share("min_coverage", min_coverage)
    order = _order(scores["generator"], generators, "breakdown")
    level = scores[by].astype(object).where(scores[by].notna(), UNLABELLED)
    present, fixed = set(level), known[by]
    if fixed is not None and present - {*fixed, UNLABELLED}:
        odd = min(present - {*fixed, UNLABELLED}, key=str)
        raise InputError("breakdown", f"unknown {by} '{odd}'", suggest(str(odd), fixed))
    levels = [x for x in (fixed or sorted(present - {UNLABELLED})) if x in present]
    levels += [UNLABELLED] if UNLABELLED in present else []
    used = scores.assign(level=level)
    used = used[used["metric"].isin(named.values())]
    groups = {k: v for k, v in used.groupby(["generator", "metric", "level"], observed=True)}
    rows = []
    for generator, title in order.items():
        for dimension, metric in named.items():
            for name in levels:
                mine = groups.get((generator, metric, name), used.iloc[:0])
                cell = _Cell(mine, min_coverage, _resample(mine, draws, seed), confidence)
                row: dict[str, Any] = {"generator": generator, "title": title}
                row |= {"dimension": dimension, "metric": metric, "level": name}
                row |= {"mean": cell.mean, "ci_low": cell.low, "ci_high": cell.high, "n": cell.n}
                row |= {"coverage": cell.coverage, "subjects": mine["subject_id"].nunique()}
                rows.append(row | {"note": cell.note})
    text = ("generator", "title", "dimension", "metric", "level", "note")
    return _frame(rows, text=text)


def compare(
    scores: pd.DataFrame,
    dimensions: Mapping[str, str],
    *,
    generators: Generators = None,
    draws: int = 1000,
    seed: int = 0,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Differences between generators on the cases that both have, each case counting once.

    HPSv2 ranks pictures of one prompt only, so plain means over different prompts say nothing.

    Args:
        scores: as for ``leaderboard``; paired by ``case_id`` (by ``sample_id`` without it), after
            averaging the valid replicates of a case.
        dimensions: dimension -> metric.
        generators: what to show, in order.
        draws: bootstrap draws of subjects.
        seed: of the draws.
        confidence: of the percentile intervals.

    Returns:
        Columns ``dimension, metric, first, second, mean_first, mean_second, difference, ci_low,
        ci_high, n`` (common cases), ``n_first, n_second`` (cases each has), ``note``.

    Raises:
        InputError: as ``leaderboard``; or a case with more than one subject.
    """
    scores, named = _checked_scores(scores), _dimensions(dimensions)
    order = _order(scores["generator"], generators, "compare")
    case = _case_column(scores)
    ok = scores[(scores["status"] == Status.OK.value) & scores["metric"].isin(named.values())]
    _text_ids(ok, [case], "scores")
    subject = ok[[case, "subject_id"]].drop_duplicates()
    _unique(subject, [case], "scores: subjects of a case")
    subject_of = subject.set_index(case)["subject_id"]
    rows = []
    for dimension, metric in named.items():
        mine = ok[ok["metric"] == metric]
        means = mine.groupby(["generator", case], observed=True)["value"].mean()
        per = {g: means.loc[g] if g in means.index else pd.Series(dtype=float) for g in order}
        for a, b in combinations(order, 2):
            common = per[a].index.intersection(per[b].index).sort_values()
            row: dict[str, Any] = {"dimension": dimension, "metric": metric}
            row |= {"first": order[a], "second": order[b], "mean_first": None, "mean_second": None}
            row |= {"difference": None, "ci_low": None, "ci_high": None, "n": len(common)}
            row |= {"n_first": len(per[a]), "n_second": len(per[b]), "note": ""}
            if len(common):
                x, y = per[a].loc[common].to_numpy(), per[b].loc[common].to_numpy()
                clusters = subject_of.loc[common].tolist()
                interval = bootstrap.mean_interval(x - y, clusters, draws, seed, confidence)
                row |= {"mean_first": float(x.mean()), "mean_second": float(y.mean())}
                row |= {"difference": float((x - y).mean())}
                row |= {"ci_low": interval.low, "ci_high": interval.high}
                if interval.reason:
                    row["note"] = f"no interval: {interval.reason}"
            else:
                row["note"] = "no common cases"
            if len(common) and len(common) < max(len(per[a]), len(per[b])):
                row["note"] = "; ".join(filter(None, [row["note"], "only cases that both have"]))
            rows.append(row)
    columns = ["dimension", "metric", "first", "second", "mean_first", "mean_second", "difference"]
    columns += ["ci_low", "ci_high", "n", "n_first", "n_second", "note"]
    text = ("dimension", "metric", "first", "second", "note")
    return _frame(rows, text=text, columns=columns)


def faces(
    scores: pd.DataFrame,
    metric: str,
    *,
    policy: str,
    generators: Generators = None,
) -> pd.DataFrame:
    """A face metric's two means: over detected faces only, and with no detected face as 0.

    Args:
        scores: as for ``leaderboard``.
        metric: a metric that uses the status ``no_face``.
        policy: ``"detected"`` or ``"with_zero"``: the mean that is published, declared beforehand.
        generators: what to show, in order.

    Returns:
        Columns ``generator, title, published, mean_detected, mean_with_zero, n`` (detected),
        ``no_face, failed`` (other statuses, in neither mean), ``detection_rate, rank_detected,
        rank_with_zero, note``. The note says when the ranking depends on the policy.

    Raises:
        InputError: as ``leaderboard``; or an unknown policy or metric.
    """
    if policy not in FACE_POLICIES:
        raise InputError("faces", f"unknown policy '{policy}'", suggest(policy, FACE_POLICIES))
    scores = _checked_scores(scores)
    if metric not in set(scores["metric"]):
        raise InputError(
            "faces", f"no scores of '{metric}'", suggest(metric, set(scores["metric"]))
        )
    order = _order(scores["generator"], generators, "faces")
    rows = []
    for generator, title in order.items():
        mine = scores[(scores["generator"] == generator) & (scores["metric"] == metric)]
        mine = mine[mine["status"] != Status.NOT_APPLICABLE.value]
        values = mine.loc[mine["status"] == Status.OK.value, "value"]
        n, none = len(values), int((mine["status"] == Status.NO_FACE.value).sum())
        means = {
            "detected": float(values.mean()) if n else None,
            "with_zero": float(values.sum()) / (n + none) if n + none else None,
        }
        row: dict[str, Any] = {"generator": generator, "title": title, "published": means[policy]}
        row |= {"mean_detected": means["detected"], "mean_with_zero": means["with_zero"], "n": n}
        row |= {"no_face": none, "failed": len(mine) - n - none}
        row |= {"detection_rate": n / (n + none) if n + none else None}
        rows.append(row | {"rank_detected": None, "rank_with_zero": None, "note": ""})
    frame = _frame(
        rows, text=("generator", "title", "note"), whole=("rank_detected", "rank_with_zero")
    )
    for name in FACE_POLICIES:
        ranks = frame[f"mean_{name}"].rank(method="min", ascending=False)
        frame[f"rank_{name}"] = ranks.astype("Int64")
    both = frame.dropna(subset=["mean_detected", "mean_with_zero"])
    orders = {tuple(both[f"mean_{p}"].rank(method="min")) for p in FACE_POLICIES}
    note = f"published: {policy}"
    if len(orders) > 1:
        note += "; the ranking depends on the policy"
    return frame.assign(note=note)


def targets(ratings: pd.DataFrame, source: str, *, missing: str = "available") -> pd.DataFrame:
    """Average the raters of each sample, which is what metrics are compared with.

    Args:
        ratings: ``records.RATINGS``; only rows with status ``ok`` count.
        source: shown beside every number, e.g. ``"raters"`` or ``"raters (simulated)"``.
        missing: ``"available"`` or ``"complete"``, see ``statistics.agreement.mean_over_raters``.

    Returns:
        Columns ``generator, sample_id, dimension, value, source, n_raters``.

    Raises:
        InputError: repeated ratings or an unknown policy.
    """
    frames = []
    for dimension, table in _rating_tables(ratings).items():
        means, counts = raters.mean_over_raters(table.to_numpy().T, missing)
        index = table.index.to_frame(index=False)
        frame = index.assign(dimension=dimension, value=means, source=source, n_raters=counts)
        frames.append(frame[np.isfinite(means)])
    columns = ["generator", "sample_id", "dimension", "value", "source", "n_raters"]
    if not frames:
        return pd.DataFrame(columns=columns)
    return pd.concat(frames, ignore_index=True)[columns]


def _rating_tables(ratings: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Per dimension: samples x raters, NaN where there is no rating."""
    where, ids = "ratings", ["generator", "sample_id", "rater", "dimension"]
    _text_ids(ratings, [*ids, "status"], where)
    _unique(ratings, ids, where)
    known = [d for d in DIMENSIONS if d in set(ratings["dimension"])]
    known += sorted(set(ratings["dimension"]) - set(known))
    found = {}
    for dimension in known:
        mine = ratings[ratings["dimension"] == dimension]
        value = mine["value"].astype("float64").where(mine["status"] == Status.OK.value)
        wide = mine.assign(value=value).set_index(["generator", "sample_id", "rater"])["value"]
        found[dimension] = wide.unstack("rater").sort_index()
    return found


def rater_agreement(ratings: pd.DataFrame) -> pd.DataFrame:
    """Krippendorff's alpha among raters, per dimension, pooled over generators.

    Args:
        ratings: ``records.RATINGS``.

    Returns:
        Columns ``dimension, alpha_ordinal, alpha_interval, raters, items`` (rated at least twice),
        ``items_rated, coverage`` (ratings given of raters x items), ``reason``.

    Raises:
        InputError: repeated or infinite ratings, missing ids.
    """
    rows = []
    for dimension, table in _rating_tables(ratings).items():
        matrix = table.to_numpy().T
        ordinal = raters.krippendorff_alpha(matrix, "ordinal")
        interval = raters.krippendorff_alpha(matrix, "interval")
        given = ~np.isnan(matrix)
        row = {"dimension": dimension, "alpha_ordinal": ordinal.value}
        row |= {"alpha_interval": interval.value, "raters": ordinal.n_raters}
        row |= {"items": ordinal.n_items, "items_rated": int(given.any(axis=0).sum())}
        rows.append(row | {"coverage": float(given.mean()), "reason": ordinal.reason or ""})
    columns = ["dimension", "alpha_ordinal", "alpha_interval", "raters", "items", "items_rated"]
    return _frame(rows, text=("dimension", "reason"), columns=[*columns, "coverage", "reason"])


AGREEMENT_COLUMNS = [
    "dimension",
    "metric",
    "source",
    "level",
    "generator",
    "title",
    "kendall_tau_b",
    "spearman",
    "spearman_ci_low",
    "spearman_ci_high",
    "kendall_tau_b_fisher",
    "spearman_fisher",
    "fisher_clip",
    "n",
    "coverage",
    "subjects",
    "reason",
]


def _paired(
    scores: pd.DataFrame, wanted: pd.DataFrame, metric: str, generators: Iterable[str]
) -> tuple[pd.DataFrame, dict[str, int]]:
    """Join one metric with one target; also count the rated samples that could have a score."""
    mine = scores[scores["metric"] == metric]
    for generator in generators:
        rated = set(wanted.loc[wanted["generator"] == generator, "sample_id"])
        scored = set(mine.loc[mine["generator"] == generator, "sample_id"])
        if rated and scored and not rated & scored:
            raise InputError(
                "agreement",
                f"{metric} of {generator}: no rated sample has a score row "
                f"(rated e.g. '{min(rated)}', scored e.g. '{min(scored)}')",
                "use the same sample ids on both sides",
            )
    ids = ["generator", "sample_id"]
    left = mine[[*ids, "status", "value", "subject_id"]]
    right = wanted[[*ids, "value"]].rename(columns={"value": "target"})
    joined = join_one_to_one(left, right, ids, f"agreement: {metric}")
    skip = joined["status"] == Status.NOT_APPLICABLE.value
    rated_n = Counter(wanted["generator"])
    rated_n.subtract(Counter(joined.loc[skip, "generator"]))
    return joined[joined["status"] == Status.OK.value].sort_values(ids), dict(rated_n)


def agreement(
    scores: pd.DataFrame,
    targets: pd.DataFrame,
    *,
    pairs: Mapping[str, Sequence[str]] | None = None,
    generators: Generators = None,
    clip: float = CLIP,
    draws: int = 1000,
    seed: int = 0,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Agreement of metrics with people or with the truth (DSH-Bench Table 1, UFO Table 2).

    Args:
        scores: as for ``leaderboard``.
        targets: columns ``generator, sample_id, dimension, value, source``, one row per rated
            sample (see ``targets``). Rated generators that ``generators`` (default: those with
            scores) does not name are left out.
        pairs: dimension -> metrics to compare with it; None compares every metric with all.
        generators: what to show, in order.
        clip: declared clip of the Fisher mean.
        draws: bootstrap draws of subjects.
        seed: of the draws.
        confidence: of the percentile interval of Spearman's rho.

    Returns:
        ``AGREEMENT_COLUMNS``. ``level`` is ``per model``, ``pooled`` (all samples of all
        generators together, ``generator`` = ``POOLED``) or ``mean over models (k of K defined)``
        (``generator`` = ``MEAN``: plain means, and Fisher means with their clip). ``coverage`` is
        the share of rated samples that have a valid score. ``reason`` says why a correlation or
        its interval is undefined.

    Raises:
        InputError: as ``leaderboard``; repeated, missing or infinite targets; ids that match
            nowhere.
    """
    scores = _checked_scores(scores)
    ids = ["generator", "sample_id", "dimension", "source"]
    _text_ids(targets, ids, "targets")
    _unique(targets, ids, "targets")
    if not np.isfinite(targets["value"].astype("float64")).all():
        raise InputError(
            "targets", "some values are missing or infinite", "list rated samples only"
        )
    order = _order(scores["generator"], generators, "agreement")
    targets = targets[targets["generator"].isin(list(order))]
    rows: list[dict[str, Any]] = []
    metrics = list(dict.fromkeys(scores["metric"]))
    dimensions = [d for d in DIMENSIONS if d in set(targets["dimension"])]
    dimensions += sorted(set(targets["dimension"]) - set(dimensions))
    for dimension in dimensions:
        if pairs is not None and dimension not in pairs:
            continue
        chosen = metrics if pairs is None else list(pairs[dimension])
        mine = targets[targets["dimension"] == dimension]
        for metric in chosen:
            if metric not in metrics:
                raise InputError("agreement", f"no scores of '{metric}'", suggest(metric, metrics))
            for source in dict.fromkeys(mine["source"]):
                wanted = mine[mine["source"] == source]
                joined, rated = _paired(scores, wanted, metric, order)
                base = {"dimension": dimension, "metric": metric, "source": source}
                shown = [g for g in order if rated.get(g)]
                per = []
                for generator in shown:
                    part = joined[joined["generator"] == generator]
                    row = _correlations(part, rated[generator], draws, seed, confidence)
                    per.append(row)
                    label = {"generator": generator, "title": order[generator]}
                    rows.append(base | {"level": "per model"} | label | row)
                total = sum(rated[g] for g in shown)
                if not total:
                    continue
                row = _correlations(joined, total, draws, seed, confidence)
                label = {"generator": POOLED, "title": POOLED}
                rows.append(base | {"level": "pooled"} | label | row)
                rows.append(base | _mean_row(per, joined, total, clip))
    text = ("dimension", "metric", "source", "level", "generator", "title", "reason")
    return _frame(rows, text=text, columns=AGREEMENT_COLUMNS)


def _correlations(
    part: pd.DataFrame, rated: int, draws: int, seed: int, confidence: float
) -> dict[str, Any]:
    x, y = part["value"].to_numpy(), part["target"].to_numpy()
    clusters = part["subject_id"].tolist()
    tau, rho = correlation.kendall_tau_b(x, y), correlation.spearman(x, y)
    interval = bootstrap.correlation_interval(x, y, clusters, "spearman", draws, seed, confidence)
    reason = rho.reason or (f"no interval: {interval.reason}" if interval.reason else "")
    row: dict[str, Any] = {"kendall_tau_b": tau.value, "spearman": rho.value}
    row |= {"spearman_ci_low": interval.low, "spearman_ci_high": interval.high, "n": rho.n}
    row |= {"coverage": rho.n / rated, "subjects": len(set(clusters)), "reason": reason}
    return row


def _mean_row(
    per: list[dict[str, Any]], joined: pd.DataFrame, rated: int, clip: float
) -> dict[str, Any]:
    tau = correlation.fisher_mean([r["kendall_tau_b"] for r in per], clip)
    rho = correlation.fisher_mean([r["spearman"] for r in per], clip)
    why = Counter(r["reason"] for r in per if r["spearman"] is None)
    row: dict[str, Any] = {
        "level": f"mean over models ({rho.n} of {len(per)} defined)",
        "generator": MEAN,
        "title": MEAN,
    }
    row |= {"kendall_tau_b": tau.plain, "spearman": rho.plain, "fisher_clip": clip}
    row |= {"kendall_tau_b_fisher": tau.fisher, "spearman_fisher": rho.fisher}
    row |= {"n": len(joined), "coverage": len(joined) / rated}
    row |= {"subjects": joined["subject_id"].nunique()}
    return row | {"reason": ", ".join(f"{n} {reason}" for reason, n in sorted(why.items()))}


def metric_differences(
    scores: pd.DataFrame,
    targets: pd.DataFrame,
    dimension: str,
    metrics: Sequence[str],
    *,
    method: str = "spearman",
    draws: int = 1000,
    seed: int = 0,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """ "Metric A agrees better than metric B", pooled, on the samples that both scored.

    Args:
        scores: as for ``leaderboard``.
        targets: as for ``agreement``.
        dimension: of ``targets``.
        metrics: compared pair by pair.
        method: ``"spearman"`` or ``"kendall_tau_b"``.
        draws: bootstrap draws of subjects, shared by both metrics.
        seed: of the draws.
        confidence: of the percentile interval.

    Returns:
        Columns ``dimension, source, level, method, first, second, first_value, second_value,
        difference, ci_low, ci_high, share_positive, n, coverage, reason``.

    Raises:
        InputError: as ``agreement``.
    """
    scores = _checked_scores(scores)
    ids = ["generator", "sample_id", "dimension", "source"]
    _text_ids(targets, ids, "targets")
    _unique(targets, ids, "targets")
    correlate = correlation.method(method)
    order = list(dict.fromkeys(scores["generator"]))
    mine = targets[(targets["dimension"] == dimension) & targets["generator"].isin(order)]
    rows = []
    for source in dict.fromkeys(mine["source"]):
        wanted = mine[mine["source"] == source]
        for a, b in combinations(metrics, 2):
            left, _ = _paired(scores, wanted, a, order)
            right, _ = _paired(scores, wanted, b, order)
            both = join_one_to_one(
                left,
                right[["generator", "sample_id", "value"]].rename(columns={"value": "other"}),
                ["generator", "sample_id"],
                f"{a} against {b}",
            )
            x, z = both["value"].to_numpy(), both["other"].to_numpy()
            y, clusters = both["target"].to_numpy(), both["subject_id"].tolist()
            found = bootstrap.correlation_difference(
                x, z, y, clusters, method, draws, seed, confidence
            )
            row: dict[str, Any] = {"dimension": dimension, "source": source, "level": "pooled"}
            row |= {"method": method, "first": a, "second": b}
            row |= {"first_value": correlate(x, y).value, "second_value": correlate(z, y).value}
            row |= {"difference": found.value, "ci_low": found.interval.low}
            row |= {"ci_high": found.interval.high, "share_positive": found.share_positive}
            row |= {"n": found.n, "coverage": len(both) / len(wanted)}
            rows.append(row | {"reason": found.reason or found.interval.reason or ""})
    columns = ["dimension", "source", "level", "method", "first", "second", "first_value"]
    columns += ["second_value", "difference", "ci_low", "ci_high", "share_positive", "n"]
    text = ("dimension", "source", "level", "method", "first", "second", "reason")
    return _frame(rows, text=text, columns=[*columns, "coverage", "reason"])


def pareto(board: pd.DataFrame, x: str = "preservation", y: str = "following") -> pd.DataFrame:
    """Which generators no other beats in both dimensions (DSH-Bench supplement D.1).

    Args:
        board: from ``leaderboard``.
        x: dimension.
        y: dimension.

    Returns:
        Columns ``generator, title, <x>, <y>, <x>_n, <x>_coverage, <y>_n, <y>_coverage, on_front,
        note``; ``on_front`` is missing where a mean is.

    Raises:
        InputError: ``board`` lacks a dimension.
    """
    for d in (x, y):
        if f"{d}_mean" not in board.columns:
            raise InputError("pareto", f"the leaderboard has no dimension '{d}'")
    frame = board[["generator", "title"]].copy()
    for d in (x, y):
        frame[d] = board[f"{d}_mean"]
    for d in (x, y):
        frame[f"{d}_n"], frame[f"{d}_coverage"] = board[f"{d}_n"], board[f"{d}_coverage"]
    known = frame[[x, y]].notna().all(axis=1)
    front = pd.Series(pd.NA, index=frame.index, dtype="boolean")
    front[known] = pareto_front(frame.loc[known, [x, y]].to_numpy())
    frame["on_front"] = front
    frame["note"] = ["" if k else "a mean is undefined" for k in known]
    return frame.reset_index(drop=True)


def _frame(
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


# ------------------------------------------------------------------------------- writing

DASH = "–"
"""What a missing value looks like in Markdown and LaTeX."""

HEADERS = {
    "s_h": "S_h",
    "s_h_ci_low": "S_h CI low",
    "s_h_ci_high": "S_h CI high",
    "kendall_tau_b": "Kendall τ-b",
    "kendall_tau_b_fisher": "Kendall τ-b (Fisher mean)",
    "spearman": "Spearman ρ",
    "spearman_ci_low": "Spearman ρ CI low",
    "spearman_ci_high": "Spearman ρ CI high",
    "spearman_fisher": "Spearman ρ (Fisher mean)",
    "alpha_ordinal": "Krippendorff α (ordinal)",
    "alpha_interval": "Krippendorff α (interval)",
}
"""Column names that are not simply shown with spaces for underscores."""

_GREEK = {
    "α": "alpha",
    "β": "beta",
    "γ": "gamma",
    "δ": "delta",
    "ε": "epsilon",
    "ζ": "zeta",
    "η": "eta",
    "θ": "theta",
    "ι": "iota",
    "κ": "kappa",
    "λ": "lambda",
    "μ": "mu",
    "ν": "nu",
    "ξ": "xi",
    "π": "pi",
    "ρ": "rho",
    "σ": "sigma",
    "τ": "tau",
    "υ": "upsilon",
    "φ": "phi",
    "χ": "chi",
    "ψ": "psi",
    "ω": "omega",
    "Γ": "Gamma",
    "Δ": "Delta",
    "Θ": "Theta",
    "Λ": "Lambda",
    "Ξ": "Xi",
    "Π": "Pi",
    "Σ": "Sigma",
    "Φ": "Phi",
    "Ψ": "Psi",
    "Ω": "Omega",
}

_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "–": "--",
    "—": "---",
    "×": r"$\times$",
    "±": r"$\pm$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "\n": " ",
    "\r": " ",
    **{letter: rf"$\{name}$" for letter, name in _GREEK.items()},
}


def escape_latex(text: str) -> str:
    """Make text safe for LaTeX; Greek letters become mathematics."""
    return "".join(_LATEX.get(character, character) for character in text)


def _escape_markdown(text: str) -> str:
    plain = text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
    return " ".join(plain.split())


def _header(column: str) -> str:
    return HEADERS.get(column, column.replace("_", " "))


def _is_missing(value: Any) -> bool:
    return value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value))


def _shown(value: Any, decimals: int, column: str) -> str:
    """A cell as people read it."""
    if _is_missing(value):
        return DASH
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    if isinstance(value, (int, np.integer)):
        return str(int(value))
    if isinstance(value, (float, np.floating)):
        if column == "fisher_clip":  # three decimals would show a clip of 1.000
            return f"{float(value):.9g}"
        text = f"{float(value):.{decimals}f}"
        return text.lstrip("-") if not text.strip("-0.") else text  # no "-0.000"
    return str(value)


def _numeric(frame: pd.DataFrame) -> list[bool]:
    kinds = pd.api.types
    return [
        kinds.is_numeric_dtype(frame[c]) and not kinds.is_bool_dtype(frame[c])
        for c in frame.columns
    ]


def _cells(frame: pd.DataFrame, decimals: int, escape: Callable[[str], str]) -> list[list[str]]:
    # Column by column: a row of mixed types would turn its integers into floats.
    columns = [[escape(_shown(v, decimals, str(c))) for v in frame[c]] for c in frame.columns]
    return [list(row) for row in zip(*columns)]


def to_markdown(frame: pd.DataFrame, caption: str = "", decimals: int = 3) -> str:
    """A pipe table with the caption above it; missing values are an en dash."""
    right = _numeric(frame)
    lines = [f"{_escape_markdown(caption)}", ""] if caption else []
    lines.append("| " + " | ".join(_escape_markdown(_header(str(c))) for c in frame.columns) + " |")
    lines.append("|" + "|".join(" ---: " if r else " :--- " for r in right) + "|")
    lines += ["| " + " | ".join(row) + " |" for row in _cells(frame, decimals, _escape_markdown)]
    return "\n".join(lines) + "\n"


def to_latex(frame: pd.DataFrame, caption: str = "", label: str = "", decimals: int = 3) -> str:
    """A ``table`` float for the package booktabs; text is escaped, negative signs are minus signs.

    Raises:
        InputError: a label that LaTeX could not refer to.
    """
    if any(c in "\\{}%#~^&$ \n" for c in label):
        raise InputError("to_latex", f"label '{label}' has characters LaTeX cannot refer to")
    right = _numeric(frame)

    def row(cells: list[str]) -> str:
        signed = [
            f"$-${c[1:]}" if r and c.startswith("-") and not c.startswith("--") else c
            for c, r in zip(cells, right)
        ]
        return "    " + " & ".join(signed) + r" \\"

    lines = [r"\begin{table}", r"  \centering"]
    lines += [rf"  \caption{{{escape_latex(caption)}}}"] if caption else []
    lines += [rf"  \label{{{label}}}"] if label else []
    lines += [rf"  \begin{{tabular}}{{{''.join('r' if r else 'l' for r in right)}}}"]
    lines += [r"    \toprule", row([escape_latex(_header(str(c))) for c in frame.columns])]
    lines += [r"    \midrule", *(row(cells) for cells in _cells(frame, decimals, escape_latex))]
    lines += [r"    \bottomrule", r"  \end{tabular}", r"\end{table}"]
    return "\n".join(lines) + "\n"


def to_csv(frame: pd.DataFrame) -> str:
    r"""CSV with raw column names, floats rounded to 9 decimals, missing empty, ``\n`` line ends."""
    rounded = frame.copy()
    for column in rounded.columns:
        if pd.api.types.is_float_dtype(rounded[column]):
            rounded[column] = rounded[column].round(correlation.DECIMALS) + 0.0  # no -0.0
    text: str = rounded.to_csv(index=False, lineterminator="\n", na_rep="")
    return text


def compact(frame: pd.DataFrame) -> pd.DataFrame:
    """Fold each ``<x>_mean`` with its interval, n and coverage into one text column, for reading.

    ``0.409 [0.380, 0.431] (n = 118, 98 %)``. Other columns stay as they are.
    """
    folded: dict[str, Any] = {}
    parts = ("ci_low", "ci_high", "n", "coverage")
    stems = [str(c).removesuffix("_mean") for c in frame.columns if str(c).endswith("_mean")]
    stems = [s for s in stems if all(f"{s}_{p}" in frame.columns for p in parts)]
    skip = {f"{s}_{p}" for s in stems for p in parts}
    for column in map(str, frame.columns):
        stem = column.removesuffix("_mean")
        if column in skip:
            continue
        if column == f"{stem}_mean" and stem in stems:
            values = [list(frame[column]), *(list(frame[f"{stem}_{p}"]) for p in parts)]
            folded[stem] = [_folded(*cell) for cell in zip(*values)]
        else:
            folded[column] = frame[column]
    return pd.DataFrame(folded)


def _folded(mean: float, low: float, high: float, n: int, coverage: float) -> str:
    text = _shown(mean, 3, "")
    if not _is_missing(low) and not _is_missing(high):
        text += f" [{_shown(low, 3, '')}, {_shown(high, 3, '')}]"
    # Rounded down: 99.6 % is not 100 %.
    return f"{text} (n = {n}, {math.floor(coverage * 100 + 1e-9)} %)"


FORMATS = ("csv", "md", "tex")
"""What ``write`` can write."""


def write(
    frame: pd.DataFrame,
    stem: Path,
    caption: str,
    label: str,
    formats: Sequence[str] = FORMATS,
) -> list[Path]:
    """Write a table as ``<stem>.csv`` (raw), ``<stem>.md`` and ``<stem>.tex`` (to be read).

    Args:
        frame: from one of the functions above.
        stem: path without ending; its folder is made.
        caption: plain text; must say when numbers come from a miniworld.
        label: for LaTeX's ``\\ref``.
        formats: some of ``FORMATS``.

    Returns:
        The paths written, in the order of ``formats``. UTF-8, the same bytes on every system.

    Raises:
        InputError: unknown format.
    """
    for name in formats:
        if name not in FORMATS:
            raise InputError("tables.write", f"unknown format '{name}'", suggest(name, FORMATS))
    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = []
    for name in formats:
        path = stem.parent / f"{stem.name}.{name}"  # with_suffix would cut "clip-0.5"
        if name == "csv":
            text = to_csv(frame)
        elif name == "md":
            text = to_markdown(frame, caption)
        else:
            text = to_latex(frame, caption, label)
        path.write_text(text, encoding="utf-8", newline="\n")
        paths.append(path)
    return paths
