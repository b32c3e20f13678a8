"""One function per table: tidy long frames in, a frame of raw numbers out.

Every mean stands beside its n and coverage; an undefined number is missing and a note or reason
says why. Order comes from the arguments or from ``records``, never from the file.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from subjectbench.cells import (
    MEAN,
    POOLED,
    TOTAL,
    Cell,
    Generators,
    case_column,
    checked_scores,
    frame_of,
    known_metric,
    labelled,
    order_of,
    resample_of,
    share,
    text_ids,
    unequal_cases,
    unique,
)
from subjectbench.errors import InputError, suggest
from subjectbench.records import (
    DIFFICULTIES,
    DIMENSIONS,
    PARADIGMS,
    SCENARIOS,
    Status,
    join_one_to_one,
)
from subjectbench.statistics import agreement as raters
from subjectbench.statistics import bootstrap, correlation
from subjectbench.statistics import leaderboard as headline
from subjectbench.statistics.pareto import pareto_front

CLIP = 0.999999
"""Declared clip of the Fisher mean; shown in the table."""

FACE_POLICIES = ("detected", "with_zero")
"""Which of the two means of a face metric is the published one."""


def _dimensions(dimensions: Mapping[str, str]) -> dict[str, str]:
    """Dimension -> metric in the paper's order."""
    for name in dimensions:
        if name not in DIMENSIONS:
            raise InputError("dimensions", f"unknown dimension '{name}'", suggest(name, DIMENSIONS))
    if not dimensions:
        raise InputError("dimensions", "none given", f"known: {', '.join(DIMENSIONS)}")
    return {d: dimensions[d] for d in DIMENSIONS if d in dimensions}


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
        Per generator: ``generator, title, rank, rank_low, rank_high, place, s_h, s_h_ci_low,
        s_h_ci_high, behind, behind_ci_low, behind_ci_high, s_h_harmonic``; per dimension
        ``<d>_mean, <d>_ci_low, <d>_ci_high, <d>_n, <d>_coverage``; ``note``.

        ``rank`` is 1 for the highest S_h, the same for equal ones, and missing where S_h is; its
        interval is over the same draws. ``s_h_harmonic`` is S_h with the sum of the weights as its
        constant, so a mean of the three: the same order on another scale.

        ``place`` shows as ties what the data cannot separate. Down the ranks, a model shares the
        place of the first model of its group (``3=``) while the interval of the difference of
        their S_h, in shared draws, contains 0; the first that it does not contain begins the next
        group. ``behind`` is that difference: the S_h of the group's first model, for the first
        itself that of the group before, less the model's own. Intervals are one by one, not
        corrected for the number of models; without draws no place is given.

    Raises:
        InputError: mixed keys, repeated samples, a failed row with a value, unknown names.
    """
    scores, named = checked_scores(scores), _dimensions(dimensions)
    min_coverage = share("min_coverage", min_coverage)
    headline.check_weights(weights, constant)
    order = order_of(scores["generator"], generators, "leaderboard")
    used = scores[scores["metric"].isin(named.values())]
    unequal = [d for d, m in named.items() if unequal_cases(used[used["metric"] == m], order)]
    resample = resample_of(used, draws, seed)
    full = math.fsum(weights)
    rows = []
    totals: dict[str, NDArray[np.float64] | None] = {}
    for generator, title in order.items():
        mine = used[used["generator"] == generator]
        cells = {
            d: Cell(mine[mine["metric"] == m], min_coverage, resample, confidence)
            for d, m in named.items()
        }
        notes = [f"{d}: {c.note}" for d, c in cells.items() if c.note]
        means = {d: cells[d].mean if d in cells else None for d in DIMENSIONS}
        total = headline.s_h(**means, weights=weights, constant=constant)
        if total.reason:
            notes.append(f"no S_h: {total.reason.replace('_', ' ')}")
        low = high = None
        known = [c.draws for c in cells.values() if c.draws is not None]
        totals[generator] = None
        if total.value is not None and len(known) == 3 and resample:
            drawn = headline.s_h_draws(np.column_stack(known), weights, constant)
            totals[generator] = drawn
            interval = bootstrap.percentile(drawn, confidence, len(resample.labels))
            low, high = interval.low, interval.high
            if interval.reason and not any(interval.reason in n for n in notes):
                notes.append(f"no interval of S_h: {interval.reason}")
        if unequal:
            notes.append(f"cases differ between generators ({', '.join(unequal)})")
        row: dict[str, Any] = {"generator": generator, "title": title}
        row |= dict.fromkeys(["rank", "rank_low", "rank_high"]) | {"place": ""}
        row |= {"s_h": total.value, "s_h_ci_low": low, "s_h_ci_high": high}
        row |= dict.fromkeys(["behind", "behind_ci_low", "behind_ci_high"])
        row["s_h_harmonic"] = None if total.value is None else total.value * full / constant
        for d, c in cells.items():
            row |= c.columns(d)
        rows.append(row | {"note": "; ".join(notes)})
    text, whole = ("generator", "title", "place", "note"), ("rank", "rank_low", "rank_high")
    frame = frame_of(rows, text=text, whole=whole)
    ranks = frame["s_h"].round(correlation.DECIMALS).rank(method="min", ascending=False)
    frame["rank"] = ranks.astype("Int64")
    if resample and draws:
        _show_rank_intervals(frame, totals, resample, confidence)
        _show_ties(frame, "s_h", totals, resample, confidence)
    return frame


def _show_rank_intervals(
    frame: pd.DataFrame,
    totals: Mapping[str, NDArray[np.float64] | None],
    resample: bootstrap.Resample,
    confidence: float,
) -> None:
    """Fill ``rank_low`` and ``rank_high``, rounded outwards."""
    for generator, interval in _rank_intervals(totals, resample, confidence).items():
        if interval.low is not None and interval.high is not None:
            ends = [math.floor(interval.low), math.ceil(interval.high)]
            frame.loc[frame["generator"] == generator, ["rank_low", "rank_high"]] = ends


def _show_ties(
    frame: pd.DataFrame,
    value: str,
    totals: Mapping[str, NDArray[np.float64] | None],
    resample: bootstrap.Resample,
    confidence: float,
) -> None:
    """Fill ``place`` and ``behind`` (of ``value``) by the rule that ``leaderboard`` declares."""
    ranked = frame.dropna(subset=["rank"]).sort_values("rank", kind="stable").index
    groups: list[list[int]] = []
    for i in ranked:
        mine = totals[frame.at[i, "generator"]]
        tied = False
        if groups:
            first = groups[-1][0]
            best = totals[frame.at[first, "generator"]]
            found = bootstrap.Interval(None, None, confidence, 0)
            if best is not None and mine is not None:
                found = bootstrap.percentile(best - mine, confidence, len(resample.labels))
            ends = {"behind_ci_low": found.low, "behind_ci_high": found.high}
            behind = {"behind": frame.at[first, value] - frame.at[i, value]} | ends
            frame.loc[i, list(behind)] = list(behind.values())
            # Equal ones are tied whatever the draws say; what has no interval is not separated.
            equal = frame.at[i, "rank"] == frame.at[first, "rank"]
            tied = equal or found.low is None or found.low <= 0
        if tied:
            groups[-1].append(i)
        else:
            groups.append([i])
    for group in groups:
        place = str(frame.at[group[0], "rank"]) + ("=" if len(group) > 1 else "")
        frame.loc[group, "place"] = place


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
    scores, named = checked_scores(scores), _dimensions(dimensions)
    min_coverage = share("min_coverage", min_coverage)
    order = order_of(scores["generator"], generators, "breakdown")
    level, levels = labelled(scores[by], known[by])
    used = scores.assign(level=level)
    used = used[used["metric"].isin(named.values())]
    groups = {k: v for k, v in used.groupby(["generator", "metric", "level"], observed=True)}
    rows = []
    for generator, title in order.items():
        for dimension, metric in named.items():
            for name in levels:
                mine = groups.get((generator, metric, name), used.iloc[:0])
                cell = Cell(mine, min_coverage, resample_of(mine, draws, seed), confidence)
                row: dict[str, Any] = {"generator": generator, "title": title}
                row |= {"dimension": dimension, "metric": metric, "level": name}
                row |= {"mean": cell.mean, "ci_low": cell.low, "ci_high": cell.high, "n": cell.n}
                row |= {"coverage": cell.coverage, "subjects": mine["subject_id"].nunique()}
                rows.append(row | {"note": cell.note})
    text = ("generator", "title", "dimension", "metric", "level", "note")
    return frame_of(rows, text=text)


def benchmarks_side_by_side(
    scores: Mapping[str, pd.DataFrame],
    dimensions: Mapping[str, str],
    *,
    min_coverage: float = 0.9,
    generators: Generators = None,
    draws: int = 1000,
    seed: int = 0,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """The same models on several benchmarks (DSH-Bench, Table 2): where a low mean means harder.

    Args:
        scores: name of the benchmark -> scores as for ``leaderboard``, in the order to show.
        dimensions: dimension -> metric, the same for all benchmarks.
        min_coverage: share of expected samples below which no mean is shown.
        generators: what to show, in order; None: of the first benchmark, then further ones.
        draws: bootstrap draws of subjects, in each benchmark on its own.
        seed: of the draws; each benchmark's own derives from it.
        confidence: of the percentile intervals.

    Returns:
        Per generator ``generator, title``; per dimension and benchmark ``<d>_<b>_mean,
        <d>_<b>_ci_low, <d>_<b>_ci_high, <d>_<b>_n, <d>_<b>_coverage``; per dimension
        ``<d>_lowest``: the benchmark with the lowest mean, missing where one has none or two
        share it, and ``<d>_lowest_gap`` with ``_ci_low`` and ``_ci_high``: the second lowest mean
        less the lowest. An interval that holds 0 does not show which is harder. ``note``.

    Raises:
        InputError: as ``leaderboard``; or no benchmark.
    """
    named, min_coverage = _dimensions(dimensions), share("min_coverage", min_coverage)
    where = "benchmarks_side_by_side"
    if not scores:
        raise InputError(where, "no benchmark given")
    checked = {title: checked_scores(frame) for title, frame in scores.items()}
    order = order_of(pd.concat([f["generator"] for f in checked.values()]), generators, where)
    # Benchmarks have subjects of their own, so their draws must not be the same numbers.
    resamples = {
        title: resample_of(frame, draws, seed + i)
        for i, (title, frame) in enumerate(checked.items())
    }
    rows = []
    for generator, title in order.items():
        row: dict[str, Any] = {"generator": generator, "title": title}
        notes = []
        for dimension, metric in named.items():
            cells = {}
            for benchmark, frame in checked.items():
                mine = frame[(frame["generator"] == generator) & (frame["metric"] == metric)]
                cell = Cell(mine, min_coverage, resamples[benchmark], confidence)
                row |= cell.columns(f"{dimension}_{benchmark}")
                notes += [f"{dimension}, {benchmark}: {cell.note}"] if cell.note else []
                cells[benchmark] = cell
            row |= _lowest(cells, dimension, confidence)
        rows.append(row | {"note": "; ".join(notes)})
    text = ("generator", "title", *(f"{d}_lowest" for d in named), "note")
    return frame_of(rows, text=text)


def _lowest(cells: Mapping[str, Cell], dimension: str, confidence: float) -> dict[str, Any]:
    """The benchmark with the lowest mean, and how far below the next."""
    name = f"{dimension}_lowest"
    row: dict[str, Any] = {name: None}
    row |= dict.fromkeys([f"{name}_gap", f"{name}_gap_ci_low", f"{name}_gap_ci_high"])
    means = {b: c.mean for b, c in cells.items() if c.mean is not None}
    if len(means) < len(cells) or len(cells) < 2:
        return row
    low, second = sorted(means, key=lambda b: means[b])[:2]
    if round(means[second] - means[low], correlation.DECIMALS) == 0:
        return row  # equal, as a copy's similarity to itself is everywhere
    row |= {name: low, f"{name}_gap": means[second] - means[low]}
    a, b = cells[second].draws, cells[low].draws
    if a is not None and b is not None and cells[second].low is not None:
        interval = bootstrap.percentile(a - b, confidence, 2)
        row |= {f"{name}_gap_ci_low": interval.low, f"{name}_gap_ci_high": interval.high}
    return row


def models_by_paradigm(
    scores: pd.DataFrame,
    metric: str,
    *,
    min_coverage: float = 0.9,
    generators: Generators = None,
    draws: int = 1000,
    seed: int = 0,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Models by editing paradigm under one metric (UFO, Table 1).

    A case's score is the mean over its samples; every mean here is over cases. ``total`` weighs
    every case alike (the micro mean, which is how the paper's totals come out);
    ``mean_of_paradigms`` weighs every paradigm alike (the macro mean).

    Args:
        scores: as for ``leaderboard``, with ``case_id`` and ``paradigm``.
        metric: the one to show.
        min_coverage: share of expected samples below which no mean and no rank is shown.
        generators: what to show, in order.
        draws: bootstrap draws of subjects, shared by all models and paradigms.
        seed: of the draws.
        confidence: of the percentile intervals, of ranks too.

    Returns:
        Per generator: ``generator, title, metric, rank, rank_low, rank_high`` (by ``total``, 1 is
        the highest), ``place, behind, behind_ci_low, behind_ci_high`` (ties, as in
        ``leaderboard``, by ``total``); per paradigm and for ``total`` ``<p>_mean, <p>_ci_low,
        <p>_ci_high, <p>_n`` (cases) and ``<p>_coverage`` (of samples); ``mean_of_paradigms`` with
        ``_ci_low`` and ``_ci_high``, missing where a paradigm's mean is; ``note``.

    Raises:
        InputError: as ``leaderboard``; or an unknown metric or paradigm.
    """
    scores, where = checked_scores(scores), "models_by_paradigm"
    text_ids(scores, ["case_id"], "scores")
    known_metric(scores, metric, where)
    min_coverage = share("min_coverage", min_coverage)
    order = order_of(scores["generator"], generators, where)
    used = scores[scores["metric"] == metric]
    level, levels = labelled(used["paradigm"], PARADIGMS)
    used = used.assign(paradigm=level)
    resample = resample_of(used, draws, seed)
    unequal = "cases differ between generators" if unequal_cases(used, order) else ""
    rows = []
    totals: dict[str, NDArray[np.float64] | None] = {}
    for generator, title in order.items():
        mine = used[used["generator"] == generator]
        parts = {p: mine[mine["paradigm"] == p] for p in levels} | {TOTAL: mine}
        cells = {
            name: Cell(part, min_coverage, resample, confidence, per="case_id")
            for name, part in parts.items()
        }
        row: dict[str, Any] = {"generator": generator, "title": title, "metric": metric}
        row |= {"rank": None, "rank_low": None, "rank_high": None, "place": ""}
        row |= dict.fromkeys(["behind", "behind_ci_low", "behind_ci_high"])
        for name, cell in cells.items():
            row |= cell.columns(name)
        notes = [f"{name}: {c.note}" for name, c in cells.items() if c.note]
        totals[generator] = cells.pop(TOTAL).draws
        macro = [c.draws for c in cells.values() if c.draws is not None]
        row |= dict.fromkeys([_MACRO, f"{_MACRO}_ci_low", f"{_MACRO}_ci_high"])
        if resample and len(macro) == len(levels):
            drawn = np.mean(macro, axis=0)
            interval = bootstrap.percentile(drawn, confidence, len(resample.labels))
            row[_MACRO] = float(np.mean([c.mean for c in cells.values()]))
            row |= {f"{_MACRO}_ci_low": interval.low, f"{_MACRO}_ci_high": interval.high}
        rows.append(row | {"note": "; ".join(filter(None, [*notes, unequal]))})
    frame = frame_of(
        rows,
        text=("generator", "title", "metric", "place", "note"),
        whole=("rank", "rank_low", "rank_high"),
    )
    means = frame[f"{TOTAL}_mean"].round(correlation.DECIMALS)
    frame["rank"] = means.rank(method="min", ascending=False).astype("Int64")
    if resample and draws:
        _show_rank_intervals(frame, totals, resample, confidence)
        _show_ties(frame, f"{TOTAL}_mean", totals, resample, confidence)
    return frame


_MACRO = "mean_of_paradigms"


def _rank_intervals(
    totals: Mapping[str, NDArray[np.float64] | None],
    resample: bootstrap.Resample,
    confidence: float,
) -> dict[str, bootstrap.Interval]:
    """Interval of each model's rank, from draws that all models share."""
    drawn = {g: np.round(d, correlation.DECIMALS) for g, d in totals.items() if d is not None}
    if not drawn:
        return {}
    table = np.column_stack(list(drawn.values()))
    whole = np.isfinite(table).all(axis=1)
    return {
        generator: bootstrap.percentile(
            np.where(whole, 1.0 + (table > mine[:, None]).sum(axis=1), np.nan),
            confidence,
            len(resample.labels),
        )
        for generator, mine in drawn.items()
    }


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
    scores, named = checked_scores(scores), _dimensions(dimensions)
    order = order_of(scores["generator"], generators, "compare")
    case = case_column(scores)
    ok = scores[(scores["status"] == Status.OK.value) & scores["metric"].isin(named.values())]
    text_ids(ok, [case], "scores")
    subject = ok[[case, "subject_id"]].drop_duplicates()
    unique(subject, [case], "scores: subjects of a case")
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
    return frame_of(rows, text=text, columns=columns)


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
    scores = checked_scores(scores)
    known_metric(scores, metric, "faces")
    order = order_of(scores["generator"], generators, "faces")
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
    frame = frame_of(
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
    text_ids(ratings, [*ids, "status"], where)
    unique(ratings, ids, where)
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
    return frame_of(rows, text=("dimension", "reason"), columns=[*columns, "coverage", "reason"])


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


def checked_targets(targets: pd.DataFrame) -> None:
    """Refuse targets that are repeated or are not numbers.

    Raises:
        InputError: naming the column.
    """
    ids = ["generator", "sample_id", "dimension", "source"]
    text_ids(targets, ids, "targets")
    unique(targets, ids, "targets")
    if not np.isfinite(targets["value"].astype("float64")).all():
        raise InputError(
            "targets", "some values are missing or infinite", "list rated samples only"
        )


def rated(scores: pd.DataFrame, wanted: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Put one metric's rows beside one target: a row for each rated sample it applies to.

    Args:
        scores: checked.
        wanted: targets of one dimension and source.
        metric: of ``scores``.

    Returns:
        Columns ``generator, sample_id, target, status, value, subject_id``, sorted by ids; status
        ``missing`` and no subject where there is no score row.

    Raises:
        InputError: of a generator, no rated sample has a score row: the ids do not fit.
    """
    ids = ["generator", "sample_id"]
    mine = scores[scores["metric"] == metric]
    for generator in dict.fromkeys(wanted["generator"]):
        asked = set(wanted.loc[wanted["generator"] == generator, "sample_id"])
        scored = set(mine.loc[mine["generator"] == generator, "sample_id"])
        if scored and not asked & scored:
            raise InputError(
                "agreement",
                f"{metric} of {generator}: no rated sample has a score row "
                f"(rated e.g. '{min(asked)}', scored e.g. '{min(scored)}')",
                "use the same sample ids on both sides",
            )
    left = wanted[[*ids, "value"]].rename(columns={"value": "target"})
    right = mine[[*ids, "status", "value", "subject_id"]]
    both = left.merge(right, on=ids, how="left", validate="one_to_one")
    both["status"] = both["status"].fillna(Status.MISSING.value)
    applies = both["status"] != Status.NOT_APPLICABLE.value
    return both[applies].sort_values(ids, ignore_index=True)


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
    """Agreement of metrics with people or with the truth, sample by sample (DSH-Bench Table 1).

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
    scores = checked_scores(scores)
    checked_targets(targets)
    order = order_of(scores["generator"], generators, "agreement")
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
                asked = rated(scores, wanted, metric)
                joined, counts = asked[asked["status"] == Status.OK], Counter(asked["generator"])
                base = {"dimension": dimension, "metric": metric, "source": source}
                per = []
                for generator in (g for g in order if counts[g]):
                    part = joined[joined["generator"] == generator]
                    row = _correlations(part, counts[generator], draws, seed, confidence)
                    per.append(row)
                    label = {"generator": generator, "title": order[generator]}
                    rows.append(base | {"level": "per model"} | label | row)
                if not per:
                    continue
                row = _correlations(joined, len(asked), draws, seed, confidence)
                label = {"generator": POOLED, "title": POOLED}
                rows.append(base | {"level": "pooled"} | label | row)
                rows.append(base | _mean_row(per, joined, len(asked), clip))
    text = ("dimension", "metric", "source", "level", "generator", "title", "reason")
    return frame_of(rows, text=text, columns=AGREEMENT_COLUMNS)


def common(scores: pd.DataFrame, wanted: pd.DataFrame, first: str, second: str) -> pd.DataFrame:
    """Rated samples that two metrics have scored.

    Returns:
        The columns of ``rated``, and ``other``: the second metric's value.

    Raises:
        InputError: as ``rated``.
    """
    ids = ["generator", "sample_id"]
    left, right = (rated(scores, wanted, metric) for metric in (first, second))
    left, right = (side[side["status"] == Status.OK] for side in (left, right))
    right = right[[*ids, "value"]].rename(columns={"value": "other"})
    return join_one_to_one(left, right, ids, f"{first} against {second}")


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


def human_alignment(
    scores: pd.DataFrame,
    targets: pd.DataFrame,
    agreed: pd.DataFrame,
    *,
    dimension: str = "preservation",
    metrics: Sequence[str] = (),
    draws: int = 1000,
    seed: int = 0,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Metrics against raters in one dimension, model by model and over all (DSH-Bench, Table 1).

    The paper prints the best of a row in bold and no interval. Here the best is tested against
    the second: both are correlated anew on the samples that both have scored, in shared draws of
    subjects. The two are picked on these same data, which favours the best.

    Args:
        scores: as for ``leaderboard``.
        targets: as for ``agreement``.
        agreed: from ``agreement``, of these scores and targets: values and intervals of Spearman's
            rho are taken from it.
        dimension: of the raters.
        metrics: in the order to show; none: all of ``agreed``.
        draws: bootstrap draws of subjects.
        seed: of the draws.
        confidence: of the percentile intervals.

    Returns:
        A row per method (``kendall_tau_b``, ``spearman``), source of the targets and generator,
        and one over all samples together (``generator`` = ``POOLED``): ``method, source,
        generator, title, n`` (most rated samples that a metric scored); per metric ``<m>,
        <m>_ci_low, <m>_ci_high``; ``best, second, difference, difference_ci_low,
        difference_ci_high, p_value`` (of best less second, two-sided), ``common`` (samples that
        both scored), ``note``. No rows where nobody rated the dimension.

    Raises:
        InputError: as ``agreement``; or a metric that ``agreed`` lacks.
    """
    rows_of = agreed[(agreed["dimension"] == dimension) & (agreed["generator"] != MEAN)]
    shown = list(metrics or dict.fromkeys(rows_of["metric"]))
    unknown = [m for m in shown if len(rows_of) and m not in set(rows_of["metric"])]
    if unknown:
        known = set(rows_of["metric"])
        raise InputError(
            "human_alignment", f"no agreement of '{unknown[0]}'", suggest(unknown[0], known)
        )
    tested = ["best", "second", "difference", "difference_ci_low", "difference_ci_high"]
    tested += ["p_value", "common"]
    scores, rows = checked_scores(scores), []
    options = (draws, seed, confidence)
    for source, of_source in rows_of.groupby("source", sort=False):
        wanted = targets[(targets["dimension"] == dimension) & (targets["source"] == source)]
        wanted = wanted[wanted["generator"].isin(scores["generator"].unique())]
        both = {metric: rated(scores, wanted, metric) for metric in shown}
        both = {
            metric: frame[frame["status"] == Status.OK].set_index(["generator", "sample_id"])
            for metric, frame in both.items()
        }
        for generator, mine in of_source.groupby("generator", sort=False):
            found = mine.set_index("metric").reindex(shown)
            part = both
            if generator != POOLED:
                part = {m: f[f.index.get_level_values(0) == generator] for m, f in both.items()}
            for method in correlation.METHODS:
                row: dict[str, Any] = {"method": method, "source": source, "generator": generator}
                row |= {"title": mine["title"].iloc[0], "n": int(found["n"].max())}
                for metric in shown:
                    row[metric] = found.at[metric, method]
                    low, high = (found.at[metric, f"spearman_ci_{end}"] for end in ("low", "high"))
                    if method == "kendall_tau_b":
                        low, high = _kendall_interval(part[metric], *options)
                    row |= {f"{metric}_ci_low": low, f"{metric}_ci_high": high}
                row |= dict.fromkeys(tested) | {"note": ""}
                values = found[method].round(correlation.DECIMALS).dropna()
                best_first = values.sort_values(ascending=False, kind="stable").index
                if len(best_first) > 1:
                    best, second = best_first[:2]
                    row |= {"best": best, "second": second}
                    row |= _beaten(part[best], part[second], method, *options)
                else:
                    row["note"] = ", ".join(sorted(set(found["reason"].dropna()) - {""}))
                rows.append(row)
    rows.sort(key=lambda row: list(correlation.METHODS).index(row["method"]))  # stable
    columns = ["method", "source", "generator", "title", "n"]
    columns += [f"{m}{part}" for m in shown for part in ("", "_ci_low", "_ci_high")]
    text = ("method", "source", "generator", "title", "best", "second", "note")
    return frame_of(rows, text=text, whole=("n", "common"), columns=[*columns, *tested, "note"])


def _kendall_interval(
    both: pd.DataFrame, draws: int, seed: int, confidence: float
) -> tuple[float | None, float | None]:
    x, y, clusters = both["value"].to_numpy(), both["target"].to_numpy(), list(both["subject_id"])
    if len(set(clusters)) > bootstrap.MAX_KENDALL:
        return None, None
    found = bootstrap.correlation_interval(x, y, clusters, "kendall_tau_b", draws, seed, confidence)
    return found.low, found.high


def _beaten(
    best: pd.DataFrame,
    second: pd.DataFrame,
    method: str,
    draws: int,
    seed: int,
    confidence: float,
) -> dict[str, Any]:
    """Test the best metric of a row against the second, on the samples that both have scored."""
    both = best.join(second["value"].rename("other"), how="inner", validate="one_to_one")
    if method == "kendall_tau_b" and both["subject_id"].nunique() > bootstrap.MAX_KENDALL:
        return {"common": len(both), "note": "too many subjects for Kendall's interval"}
    x, z, y = (both[c].to_numpy() for c in ("value", "other", "target"))
    found = bootstrap.correlation_difference(
        x, z, y, list(both["subject_id"]), method, draws, seed, confidence
    )
    row = {"difference": found.value, "p_value": found.p_value, "common": found.n}
    low, high = found.interval.low, found.interval.high
    row |= {"difference_ci_low": low, "difference_ci_high": high}
    return row | {"note": found.reason or found.interval.reason or ""}


def pictures(
    scores: pd.DataFrame, near_copy: str = "", *, generators: Generators = None
) -> pd.DataFrame:
    """What each model made, before any metric: pictures, those alike, those that are copies.

    Args:
        scores: as for ``leaderboard``, with ``case_id`` and ``image_sha256``.
        near_copy: metric that is 1 for a near copy of the reference; none: not known.
        generators: what to show, in order.

    Returns:
        Columns ``generator, title, expected, pictures, without, identical, near_copies,
        near_copy_share``. ``without`` counts reasons; ``identical`` counts pictures whose bytes
        another case of their subject has too. The share is of the pictures that were compared.
    """
    scores = checked_scores(scores)
    out = []
    for generator, title in order_of(scores["generator"], generators, "pictures").items():
        mine = scores[scores["generator"] == generator]
        copied = mine[(mine["metric"] == near_copy) & (mine["status"] == Status.OK.value)]
        each = mine.drop_duplicates("sample_id")
        made = each[each["image_sha256"].notna()]
        cases = made.groupby(["subject_id", "image_sha256"])["case_id"].transform("nunique")
        reasons = Counter(each.loc[each["image_sha256"].isna(), "status"])
        out.append(
            {
                "generator": generator,
                "title": title,
                "expected": len(each),
                "pictures": len(made),
                "without": ", ".join(f"{n} {status}" for status, n in sorted(reasons.items())),
                "identical": int((cases > 1).sum()),
                "near_copies": copied["value"].sum() if near_copy else math.nan,
                "near_copy_share": copied["value"].mean() if len(copied) else math.nan,
            }
        )
    return frame_of(out, text=("generator", "title", "without"))


def disputed(
    scores: pd.DataFrame,
    metric: str,
    deciding: Sequence[str],
    *,
    generators: Generators = None,
    count: int = 8,
) -> pd.DataFrame:
    """Samples that models differ on most under one metric, for a grid of pictures.

    Args:
        scores: as for ``leaderboard``, with ``case_id``.
        metric: the one that decides.
        deciding: generators whose scores decide: models, not controls. Those without any valid
            score are left out; only samples that all others have a valid score of are taken.
        generators: what to show, in order.
        count: samples at most, one per subject.

    Returns:
        Columns ``sample_id, case_id, subject_id, metric, generator, title, value, decides,
        spread``: samples with the largest ``spread`` (standard deviation over those that decide)
        first, ties by id; a row per generator of each.

    Raises:
        InputError: as ``leaderboard``; or an unknown metric.
    """
    scores = checked_scores(scores)
    known_metric(scores, metric, "disputed")
    order = order_of(scores["generator"], generators, "disputed")
    mine = scores[(scores["metric"] == metric) & (scores["status"] == Status.OK.value)]
    ids = ["subject_id", "case_id", "sample_id"]
    wide = mine.pivot(index=ids, columns="generator", values="value")
    deciding = [g for g in deciding if g in wide.columns]
    spread = wide[deciding].dropna().std(axis=1, ddof=0).round(correlation.DECIMALS)
    ranked = spread[spread > 0].sort_index().sort_values(ascending=False, kind="stable")
    ranked = ranked[~ranked.index.get_level_values("subject_id").duplicated()].head(count)
    wide = wide.reindex(columns=list(order))
    rows = []
    for (subject, case, sample), width in ranked.items():
        where = {"sample_id": sample, "case_id": case, "subject_id": subject, "metric": metric}
        for generator, title in order.items():
            row = where | {"generator": generator, "title": title}
            row["value"] = wide.at[(subject, case, sample), generator]
            rows.append(row | {"decides": generator in deciding, "spread": width})
    text = ["sample_id", "case_id", "subject_id", "metric", "generator", "title"]
    return frame_of(rows, text=text, columns=[*text, "value", "decides", "spread"])


def viescore_agreement(
    scores: pd.DataFrame,
    ratings: pd.DataFrame,
    pairs: Mapping[str, Sequence[str]],
    *,
    generators: Generators = None,
    clip: float = CLIP,
) -> pd.DataFrame:
    """Spearman's rho per model and its means, of metrics and of each rater (VIEScore's analysis).

    A metric is compared with the mean of all raters, a rater with the mean of the others: no
    metric can be expected to agree better with people than they do with each other.

    Args:
        scores: as for ``leaderboard``.
        ratings: ``records.RATINGS``.
        pairs: dimension of the raters -> metrics to compare with it; both in the order to show.
        generators: what to show, in order.
        clip: declared clip of the Fisher mean.

    Returns:
        Per dimension a row per metric and then per rater: ``dimension, scored_by, against``; rho
        within each generator, in a column of its name; ``spearman_mean`` (plain),
        ``spearman_fisher`` (tanh of the mean of arctanh) with ``fisher_clip``;
        ``spearman_as_in_reference``, the tanh of the plain mean, which VIEScore's code calls
        Fisher's and which is too low, because arctanh was forgotten; ``n, coverage, reason`` as in
        ``agreement``.

    Raises:
        InputError: as ``agreement``; or a dimension that nobody rated.
    """
    order = order_of(scores["generator"], generators, "viescore_agreement")
    ratings = ratings[ratings["generator"].isin(list(order))]
    subjects = scores[["generator", "sample_id", "subject_id"]].drop_duplicates()
    rows = []
    for dimension, metrics in pairs.items():
        given = ratings[ratings["dimension"] == dimension]
        if not len(given):
            known = set(ratings["dimension"])
            raise InputError(
                "viescore_agreement", f"nobody rated '{dimension}'", suggest(dimension, known)
            )
        compared = [(scores, metric, given, "mean of raters") for metric in metrics]
        for rater in sorted(set(given["rater"])):
            own = given["rater"] == rater
            as_scores = given[own].merge(subjects, on=["generator", "sample_id"])
            as_scores = as_scores.assign(metric=rater, key="ratings")
            compared.append((as_scores, rater, given[~own], "mean of the other raters"))
        for values, name, people, against in compared:
            frame = agreement(
                values,
                targets(people, "raters"),
                pairs={dimension: [name]},
                generators=order,
                clip=clip,
                draws=0,
            ).set_index("generator")
            if not len(frame):  # a rater alone has no others
                continue
            rho, mean = frame["spearman"].drop([POOLED, MEAN]), frame.loc[MEAN]
            row: dict[str, Any] = {"dimension": dimension, "scored_by": name, "against": against}
            row |= {generator: rho.get(generator) for generator in order}
            row |= {"spearman_mean": mean["spearman"], "spearman_fisher": mean["spearman_fisher"]}
            row |= {"fisher_clip": clip, "spearman_as_in_reference": math.tanh(mean["spearman"])}
            rows.append(row | mean[["n", "coverage", "reason"]].to_dict())
    columns = ["dimension", "scored_by", "against", *order, "spearman_mean", "spearman_fisher"]
    columns += ["fisher_clip", "spearman_as_in_reference", "n", "coverage", "reason"]
    return frame_of(rows, text=("dimension", "scored_by", "against", "reason"), columns=columns)


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
    scores = checked_scores(scores)
    checked_targets(targets)
    correlate = correlation.method(method)
    order = list(dict.fromkeys(scores["generator"]))
    mine = targets[(targets["dimension"] == dimension) & targets["generator"].isin(order)]
    rows = []
    for source in dict.fromkeys(mine["source"]):
        wanted = mine[mine["source"] == source]
        for a, b in combinations(metrics, 2):
            both = common(scores, wanted, a, b)
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
    return frame_of(rows, text=text, columns=[*columns, "coverage", "reason"])


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
