"""Agreement with rankings, case by case (UFO, Tables 2 and 3, Figure 6).

Within one case the models are ranked by a metric and by raters; a correlation is formed per case
and averaged over cases. Scores of different cases are never compared with one another.

Targets are higher for the better picture, whatever the raters wrote down. Where a case has several
rated samples per model, metric and target are averaged over those that have both, before ranking.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from subjectbench.cells import (
    TOTAL,
    UNLABELLED,
    Generators,
    checked_scores,
    frame_of,
    known_metric,
    labelled,
    order_of,
    share,
    text_ids,
    unique,
)
from subjectbench.errors import InputError
from subjectbench.records import PARADIGMS, Status
from subjectbench.statistics import agreement as raters
from subjectbench.statistics import bootstrap, correlation
from subjectbench.statistics.correlation import DECIMALS, MIN_N
from subjectbench.tables import CLIP, checked_targets, common, rated

CONSTANT_METRIC = "constant metric"
CONSTANT_TARGET = "constant target"
FEW = f"fewer than {MIN_N} models"
"""Why a case has no correlation; only the last leaves it out, see ``by_paradigm``."""

COLUMNS = [
    "dimension",
    "metric",
    "source",
    "paradigm",
    "spearman",
    "spearman_ci_low",
    "spearman_ci_high",
    "spearman_fisher",
    "fisher_clip",
    "kendall_tau_b",
    "n",
    "undefined",
    "left_out",
    "cases",
    "coverage",
    "subjects",
    "reason",
]
"""Columns of ``by_paradigm``."""

DIFFERENCE_COLUMNS = [
    "dimension",
    "source",
    "paradigm",
    "metric",
    "baseline",
    "best",
    "value",
    "baseline_value",
    "difference",
    "ci_low",
    "ci_high",
    "p_value",
    "share_positive",
    "relative_gain",
    "n",
    "coverage",
    "reason",
]
"""Columns of ``differences``."""


# ------------------------------------------------------------------------------- cases


class _Study:
    """Checked scores and targets of one dimension, and where each sample belongs."""

    def __init__(
        self, scores: pd.DataFrame, targets: pd.DataFrame, dimension: str, generators: Generators
    ):
        self.scores = checked_scores(scores)
        checked_targets(targets)
        self.order = order_of(self.scores["generator"], generators, "alignment")
        mine = targets[targets["dimension"] == dimension]
        self.targets = mine[mine["generator"].isin(list(self.order))]
        places = ["sample_id", "case_id", "subject_id", "paradigm"]
        text_ids(self.scores, ["case_id"], "scores")
        self.places = self.scores[places].drop_duplicates()
        unique(self.places, ["sample_id"], "scores: cases of a sample")
        # Also checks the paradigms.
        self.places["paradigm"], self.levels = labelled(self.places["paradigm"], PARADIGMS)

    def sources(self) -> Iterator[tuple[str, pd.DataFrame]]:
        for source in dict.fromkeys(self.targets["source"]):
            yield source, self.targets[self.targets["source"] == source]

    def placed(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Add case, subject and paradigm; a rated sample that no metric knows is its own case."""
        joined = rows.drop(columns="subject_id").merge(
            self.places, on="sample_id", how="left", validate="many_to_one"
        )
        for column in ("case_id", "subject_id"):
            joined[column] = joined[column].fillna(joined["sample_id"])
        return joined.assign(paradigm=joined["paradigm"].fillna(UNLABELLED))

    def parts(self, frame: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
        """Cut rows or cases by paradigm, in order, and all of them last."""
        for level in [*self.levels, TOTAL]:
            part = frame if level == TOTAL else frame[frame["paradigm"] == level]
            yield level, part


def _by_case(rows: pd.DataFrame, column: str = "value") -> pd.DataFrame:
    """Correlate within each case, over its models.

    Args:
        rows: placed rows; those without a value only say which cases there are.
        column: the metric's values, to be held against ``target``.

    Returns:
        Per case, sorted: ``subject_id, paradigm, spearman, kendall_tau_b`` (NaN where undefined)
        and ``reason``.
    """
    places = rows.groupby("case_id")[["subject_id", "paradigm"]].first()
    known = rows[rows["status"] == Status.OK]
    means = known.groupby(["case_id", "generator"])[[column, "target"]].mean()
    x, y = (means[side].unstack("generator").reindex(places.index) for side in (column, "target"))
    found = correlation.by_row(x, y)
    # Where the target ties all models, no metric could have ordered them.
    reason = np.select(
        [found.n < MIN_N, found.constant_y, found.constant_x],
        [FEW, CONSTANT_TARGET, CONSTANT_METRIC],
        "",
    )
    return places.assign(spearman=found.spearman, kendall_tau_b=found.kendall_tau_b, reason=reason)


def _coverage(rows: pd.DataFrame) -> float:
    return float((rows["status"] == Status.OK).mean()) if len(rows) else 0.0


def _too_thin(rows: pd.DataFrame, min_coverage: float) -> str:
    coverage = _coverage(rows)
    if coverage >= min_coverage and len(rows):
        return ""
    failed = Counter(rows.loc[rows["status"] != Status.OK, "status"])
    why = ", ".join(f"{n} {status}" for status, n in sorted(failed.items()))
    return f"coverage {coverage:.3f} below {min_coverage:.3f} ({why or 'nothing rated'})"


# ------------------------------------------------------------------------------- Table 2


def by_paradigm(
    scores: pd.DataFrame,
    targets: pd.DataFrame,
    metrics: Sequence[str],
    *,
    dimension: str = "preference",
    generators: Generators = None,
    min_coverage: float = 0.9,
    clip: float = CLIP,
    draws: int = 1000,
    seed: int = 0,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """How well each metric ranks the models of a case as raters do (UFO, Table 2).

    Args:
        scores: ``records.SCORES`` with ``case_id``, ``subject_id`` and ``paradigm``, one row per
            expected sample; rows with status ``not_applicable`` are not expected.
        targets: columns ``generator, sample_id, dimension, value, source``, one row per rated
            sample, higher is better (see ``tables.targets``).
        metrics: in the order to show.
        dimension: of ``targets``.
        generators: which to rank; all generators of ``scores`` must be among them.
        min_coverage: share of rated samples with a score below which no correlation is shown.
        clip: declared clip of the Fisher mean.
        draws: bootstrap draws of subjects, shared by all metrics.
        seed: of the draws.
        confidence: of the percentile interval of the plain mean.

    Returns:
        ``COLUMNS``, per metric and source a row per paradigm and one for ``TOTAL``. ``spearman``
        (plain mean, in [-1, 1]), ``spearman_fisher`` (with ``fisher_clip``) and ``kendall_tau_b``
        (plain mean) are over the ``n`` cases where they are defined. ``undefined`` counts cases
        whose models all tie on one side, ``left_out`` those with fewer than three models that have
        both; ``n + undefined + left_out = cases``, the rated cases. ``coverage`` is the share of
        rated samples that have a score. ``reason`` has what is behind missing numbers and cases.

    Raises:
        InputError: as ``tables.agreement``; or an unknown metric or paradigm.
    """
    study = _Study(scores, targets, dimension, generators)
    min_coverage = share("min_coverage", min_coverage)
    for metric in metrics:
        known_metric(study.scores, metric, "alignment")
    rows: list[dict[str, Any]] = []
    for metric in metrics:
        for source, wanted in study.sources():
            asked = study.placed(rated(study.scores, wanted, metric))
            cases = _by_case(asked)
            levels = dict(study.parts(asked))
            resample = _resample(cases, draws, seed)
            for level, part in study.parts(cases):
                row: dict[str, Any] = {"dimension": dimension, "metric": metric}
                row |= {"source": source, "paradigm": level}
                row |= _mean(part, clip, resample, confidence)
                row["coverage"] = _coverage(levels[level])
                thin = _too_thin(levels[level], min_coverage)
                if thin:
                    row |= dict.fromkeys(c for c in COLUMNS if c.startswith(("spearman", "kend")))
                row["reason"] = "; ".join(filter(None, [thin, row["reason"]]))
                rows.append(row)
    text = ("dimension", "metric", "source", "paradigm", "reason")
    return frame_of(rows, text=text, columns=COLUMNS)


def _resample(cases: pd.DataFrame, draws: int, seed: int) -> bootstrap.Resample | None:
    return bootstrap.Resample.of(cases["subject_id"].tolist(), draws, seed) if len(cases) else None


def _mean(
    cases: pd.DataFrame, clip: float, resample: bootstrap.Resample | None, confidence: float
) -> dict[str, Any]:
    """Average the defined cases, count the others."""
    known = cases[cases["spearman"].notna()]
    rho = correlation.fisher_mean(known["spearman"].tolist(), clip)
    tau = correlation.fisher_mean(known["kendall_tau_b"].tolist(), clip)
    why = Counter(cases.loc[cases["reason"] != "", "reason"])
    notes = [", ".join(f"{n} {reason}" for reason, n in sorted(why.items()))]
    low = high = None
    if resample and len(known):
        drawn = resample.means(known["spearman"], known["subject_id"].tolist())
        interval = bootstrap.percentile(drawn, confidence, len(resample.labels))
        low, high = interval.low, interval.high
        notes.append(f"no interval: {interval.reason}" if interval.reason else "")
    row: dict[str, Any] = {"spearman": rho.plain, "spearman_ci_low": low, "spearman_ci_high": high}
    row |= {"spearman_fisher": rho.fisher, "fisher_clip": clip, "kendall_tau_b": tau.plain}
    row |= {"n": len(known), "undefined": len(cases) - len(known) - why[FEW]}
    row |= {"left_out": why[FEW], "cases": len(cases), "subjects": cases["subject_id"].nunique()}
    return row | {"reason": "; ".join(filter(None, notes))}


def as_printed(table: pd.DataFrame) -> pd.DataFrame:
    """Table 2 as the paper prints it: a row per metric, a column per paradigm.

    Args:
        table: from ``by_paradigm``.

    Returns:
        Columns ``metric, source`` (and ``metric_title``, if there is one); per paradigm
        ``<p>_mean, <p>_ci_low, <p>_ci_high, <p>_n, <p>_coverage`` (of Spearman's rho), which
        ``writing.compact`` folds; ``<p>_printed`` and ``printed_note`` where the table has them.
    """
    parts = {"mean": "spearman", "ci_low": "spearman_ci_low", "ci_high": "spearman_ci_high"}
    parts |= {"n": "n", "coverage": "coverage"}
    parts |= {"printed": "spearman_printed"} if "spearman_printed" in table.columns else {}
    rows = []
    names = [c for c in ("metric", "metric_title", "source") if c in table.columns]
    for ids, mine in table.groupby(names, sort=False):
        row: dict[str, Any] = dict(zip(names, ids, strict=True))
        for level in mine.to_dict("records"):
            row |= {f"{level['paradigm']}_{name}": level[c] for name, c in parts.items()}
        if "printed_note" in table.columns:
            row["printed_note"] = "; ".join(dict.fromkeys(mine["printed_note"].dropna()))
        rows.append(row)
    return frame_of(rows, text=[*names, "printed_note"])


def differences(
    scores: pd.DataFrame,
    targets: pd.DataFrame,
    metric: str,
    baselines: Sequence[str],
    *,
    dimension: str = "preference",
    generators: Generators = None,
    min_coverage: float = 0.9,
    draws: int = 1000,
    seed: int = 0,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Does a metric agree better with raters than each baseline, and than the best of them?

    Both metrics are correlated anew on the samples that both have scored; the difference is over
    cases where both correlations are defined. UFO prints gains without any test.

    Args:
        scores: as for ``by_paradigm``.
        targets: as for ``by_paradigm``.
        metric: the one that is held to be better.
        baselines: compared with it one by one.
        dimension: of ``targets``.
        generators: which to rank.
        min_coverage: share of rated samples that both have scored below which nothing is shown.
        draws: bootstrap draws of subjects.
        seed: of the draws.
        confidence: of the percentile interval.

    Returns:
        ``DIFFERENCE_COLUMNS``, per source, paradigm (and ``TOTAL``) and baseline. ``value`` and
        ``baseline_value`` are mean Spearman's rho on the same ``n`` cases; ``best`` marks the
        baseline with the highest ``baseline_value`` of a paradigm (picked on the same data, which
        favours the baseline); ``p_value`` is two-sided, see ``bootstrap.two_sided``;
        ``relative_gain`` is the difference over ``baseline_value``, where that is positive.

    Raises:
        InputError: as ``by_paradigm``.
    """
    study = _Study(scores, targets, dimension, generators)
    min_coverage = share("min_coverage", min_coverage)
    for name in (metric, *baselines):
        known_metric(study.scores, name, "alignment")
    rows: list[dict[str, Any]] = []
    for source, wanted in study.sources():
        names = {"dimension": dimension, "source": source, "metric": metric}
        found = [
            [
                names | {"baseline": baseline} | row
                for row in _difference_rows(
                    study, wanted, metric, baseline, min_coverage, draws, seed, confidence
                )
            ]
            for baseline in baselines
        ]
        for level in zip(*found, strict=True):
            known = [row["baseline_value"] for row in level if "baseline_value" in row]
            best = max(known, default=None)
            rows += [row | {"best": row.get("baseline_value", np.nan) == best} for row in level]
    text = ("dimension", "source", "paradigm", "metric", "baseline", "reason")
    frame = frame_of(rows, text=text, columns=DIFFERENCE_COLUMNS)
    return frame.astype({"best": "bool"})


def _difference_rows(
    study: _Study,
    wanted: pd.DataFrame,
    metric: str,
    baseline: str,
    min_coverage: float,
    draws: int,
    seed: int,
    confidence: float,
) -> Iterator[dict[str, Any]]:
    both = study.placed(common(study.scores, wanted, metric, baseline))
    ours, theirs = _by_case(both), _by_case(both, "other")
    cases = ours.assign(other=theirs["spearman"]).dropna(subset=["spearman", "other"])
    asked = study.placed(rated(study.scores, wanted, metric))
    resample = _resample(asked, draws, seed)
    levels = dict(study.parts(both))
    for (level, part), (_, all_rows) in zip(study.parts(cases), study.parts(asked), strict=True):
        coverage = len(levels[level]) / len(all_rows) if len(all_rows) else 0.0
        row: dict[str, Any] = {"paradigm": level, "n": len(part), "coverage": coverage}
        if coverage < min_coverage or not resample:
            yield row | {"reason": f"coverage {coverage:.3f} below {min_coverage:.3f}"}
            continue
        first, second = part["spearman"], part["other"]
        found = bootstrap.mean_difference(
            first - second, part["subject_id"].tolist(), resample, confidence
        )
        row |= {"difference": found.value, "p_value": found.p_value}
        row |= {"ci_low": found.interval.low, "ci_high": found.interval.high}
        row |= {"share_positive": found.share_positive}
        if found.value is not None:
            row |= {"value": first.mean(), "baseline_value": second.mean()}
            if row["baseline_value"] > 0:
                row["relative_gain"] = found.value / row["baseline_value"]
        reason = "no case where both are defined" if not len(part) else found.interval.reason or ""
        yield row | {"reason": reason}


# ------------------------------------------------------------------------------- Table 3


def ablation(
    scores: pd.DataFrame,
    targets: pd.DataFrame,
    full: str,
    settings: Mapping[str, str],
    *,
    dimension: str = "preference",
    generators: Generators = None,
    min_coverage: float = 0.9,
    clip: float = CLIP,
    draws: int = 1000,
    seed: int = 0,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """What a metric loses without one of its parts (UFO, Table 3), over all paradigms.

    Args:
        scores: as for ``by_paradigm``.
        targets: as for ``by_paradigm``.
        full: the whole metric; shown last, as in the paper.
        settings: what is left out -> the metric without it.
        dimension: of ``targets``.
        generators: which to rank.
        min_coverage: as for ``by_paradigm``.
        clip: declared clip of the Fisher mean.
        draws: bootstrap draws of subjects.
        seed: of the draws.
        confidence: of the percentile intervals.

    Returns:
        Columns ``source, setting, metric, spearman, spearman_ci_low, spearman_ci_high,
        spearman_fisher, fisher_clip, kendall_tau_b, n, undefined, left_out, coverage, difference,
        difference_ci_low, difference_ci_high, p_value, n_common, reason``. ``difference`` is the
        setting minus the full metric on the cases where both are defined: below 0, the part helps.

    Raises:
        InputError: as ``by_paradigm``.
    """
    common_arguments: dict[str, Any] = {"dimension": dimension, "generators": generators}
    common_arguments |= {"min_coverage": min_coverage, "draws": draws, "seed": seed}
    common_arguments |= {"confidence": confidence}
    labels = {**settings, "full": full}
    table = by_paradigm(
        scores, targets, list(dict.fromkeys(labels.values())), clip=clip, **common_arguments
    )
    table = table[table["paradigm"] == TOTAL].set_index(["source", "metric"])
    lost: dict[tuple[str, str], dict[str, Any]] = {}
    for metric in dict.fromkeys(settings.values()):
        found = differences(scores, targets, metric, [full], **common_arguments)
        for change in found[found["paradigm"] == TOTAL].to_dict("records"):
            lost[change["source"], metric] = change
    kept = ["spearman", "spearman_ci_low", "spearman_ci_high", "spearman_fisher", "fisher_clip"]
    kept += ["kendall_tau_b", "n", "undefined", "left_out", "coverage", "reason"]
    rows = []
    for source in dict.fromkeys(source for source, _ in table.index):
        for setting, metric in labels.items():
            row: dict[str, Any] = {"source": source, "setting": setting, "metric": metric}
            row |= table.loc[(source, metric), kept].to_dict()
            if setting != "full":
                change = lost[source, metric]
                row |= {"difference": change["difference"], "p_value": change["p_value"]}
                row |= {f"difference_ci_{end}": change[f"ci_{end}"] for end in ("low", "high")}
                row["n_common"] = change["n"]
                own, other = row["reason"], change["reason"]
                row["reason"] = "; ".join(filter(None, [own, other if other != own else ""]))
            rows.append(row)
    columns = ["source", "setting", "metric", *kept[:-1], "difference", "difference_ci_low"]
    columns += ["difference_ci_high", "p_value", "n_common", "reason"]
    text = ("source", "setting", "metric", "reason")
    whole = ("n", "undefined", "left_out", "n_common")
    return frame_of(rows, text=text, whole=whole, columns=columns)


# ------------------------------------------------------------------------------- raters


def rank_agreement(
    ratings: pd.DataFrame,
    *,
    dimension: str = "preference",
    draws: int = 1000,
    seed: int = 0,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Agreement among raters on how to rank the models of a case: the ceiling for metrics.

    Args:
        ratings: ``records.RATINGS`` with ``case_id``, ``subject_id`` and ``paradigm``; only rows
            with status ``ok`` count. Several samples of a model in a case are averaged per rater.
        dimension: of ``ratings``.
        draws: bootstrap draws of subjects.
        seed: of the draws.
        confidence: of the percentile intervals.

    Returns:
        A row per paradigm and one for ``TOTAL``: ``dimension, paradigm, pairwise_spearman,
        pairwise_spearman_ci_low, pairwise_spearman_ci_high, pairwise_n`` (mean over cases of the
        mean over pairs of raters), ``ceiling, ceiling_ci_low, ceiling_ci_high, ceiling_n`` (each
        rater against the mean of the others, averaged alike), ``kendall_w, kendall_w_n`` (mean
        over cases, corrected for ties), ``alpha_ordinal`` (Krippendorff, over all samples),
        ``raters, cases, coverage`` (ratings given of raters x samples), ``reason``. Each ``_n``
        counts the cases where the number is defined; the others are in no mean.

    Raises:
        InputError: missing columns, repeated ratings, an unknown paradigm.
    """
    ids = ["generator", "sample_id", "rater", "dimension"]
    text_ids(ratings, [*ids, "status", "case_id", "subject_id"], "ratings")
    unique(ratings, ids, "ratings")
    mine = ratings[ratings["dimension"] == dimension]
    level, levels = labelled(mine["paradigm"], PARADIGMS)
    values = mine["value"].astype("float64").where(mine["status"] == Status.OK)
    mine = mine.assign(paradigm=level, value=values)
    rows = [
        {"dimension": dimension, "paradigm": name}
        | _rank_agreement(
            mine if name == TOTAL else mine[mine["paradigm"] == name], draws, seed, confidence
        )
        for name in ([*levels, TOTAL] if len(mine) else [])
    ]
    columns = ["dimension", "paradigm"]
    for name in ("pairwise_spearman", "ceiling"):
        columns += [name, f"{name}_ci_low", f"{name}_ci_high", f"{name.split('_')[0]}_n"]
    columns += ["kendall_w", "kendall_w_n", "alpha_ordinal", "raters", "cases", "coverage"]
    return frame_of(rows, text=("dimension", "paradigm", "reason"), columns=[*columns, "reason"])


def _rank_agreement(
    ratings: pd.DataFrame, draws: int, seed: int, confidence: float
) -> dict[str, Any]:
    """The numbers of one row."""
    wide = ratings.pivot_table(
        index=["subject_id", "case_id", "generator"], columns="rater", values="value", dropna=False
    ).dropna(how="all")
    found: dict[str, list[tuple[str, float]]] = {"pairwise": [], "ceiling": [], "w": []}
    for (subject, _), case in wide.groupby(level=["subject_id", "case_id"]):
        matrix = case.to_numpy().T
        numbers = {
            "pairwise": raters.mean_defined(raters.between_raters(matrix)),
            "ceiling": raters.mean_defined(raters.against_others(matrix)),
            "w": raters.kendall_w(matrix).value,
        }
        for name, value in numbers.items():
            if value is not None:
                found[name].append((subject, value))
    subjects = ratings["subject_id"].unique().tolist()
    resample = bootstrap.Resample.of(subjects, draws, seed)
    out: dict[str, Any] = {}
    notes = []
    for name, column in (("pairwise", "pairwise_spearman"), ("ceiling", "ceiling")):
        clusters, values = [s for s, _ in found[name]], [v for _, v in found[name]]
        out |= {column: float(np.mean(values)) if values else None, f"{name}_n": len(values)}
        if values:
            drawn = resample.means(values, clusters)
            interval = bootstrap.percentile(drawn, confidence, len(subjects))
            out |= {f"{column}_ci_low": interval.low, f"{column}_ci_high": interval.high}
            notes.append(f"no interval: {interval.reason}" if interval.reason else "")
    concordance = [v for _, v in found["w"]]
    alpha = raters.krippendorff_alpha(wide.to_numpy().T, "ordinal")
    cases = ratings["case_id"].nunique()
    out |= {"kendall_w": float(np.mean(concordance)) if concordance else None}
    out |= {"kendall_w_n": len(concordance), "alpha_ordinal": alpha.value}
    out |= {"raters": ratings["rater"].nunique(), "cases": cases}
    given = ratings.dropna(subset="value").groupby(["generator", "sample_id"])["rater"].nunique()
    samples = len(ratings[["generator", "sample_id"]].drop_duplicates())
    out["coverage"] = float(given.sum()) / (samples * out["raters"])
    if out["pairwise_n"] < cases:
        notes.append(f"{cases - out['pairwise_n']} cases without a defined correlation")
    return out | {"reason": "; ".join(dict.fromkeys(filter(None, notes)))}


# ------------------------------------------------------------------------------- Figure 6


def disagreements(
    scores: pd.DataFrame,
    targets: pd.DataFrame,
    metric: str,
    baseline: str,
    *,
    dimension: str = "preference",
    source: str | None = None,
    generators: Generators = None,
    count: int = 3,
) -> pd.DataFrame:
    """The cases in which two metrics rank the models most differently (UFO, Figure 6).

    Chosen by the metrics alone, whoever is right: the samples (same case and replicate of all
    models) with the lowest Spearman's rho between metric and baseline, ties by ``sample_id``, at
    most one per subject.

    Args:
        scores: as for ``by_paradigm``.
        targets: as for ``by_paradigm``.
        metric: the one whose units are shown.
        baseline: the other.
        dimension: of ``targets``.
        source: of ``targets``; None: the first one.
        generators: which to show, in order.
        count: cases at most.

    Returns:
        A row per chosen case and model: ``case_id, sample_id, subject_id, paradigm, source,
        metric, baseline, rho`` (between the two), ``rho_metric, rho_baseline`` (with the target;
        missing where undefined), ``generator, title, value, rank, baseline_value, baseline_rank,
        target, target_rank``. Rank 1 is the best, ties share the mean rank.

    Raises:
        InputError: as ``by_paradigm``; or an unknown source.
    """
    study = _Study(scores, targets, dimension, generators)
    for name in (metric, baseline):
        known_metric(study.scores, name, "alignment")
    wanted = dict(study.sources())
    if source is None:
        source = next(iter(wanted), "")
    if source not in wanted:
        raise InputError("disagreements", f"no targets of '{source}'", f"known: {list(wanted)}")
    both = study.placed(common(study.scores, wanted[source], metric, baseline))
    between = {}
    for sample, part in both.groupby("sample_id"):
        rho = correlation.spearman(part["value"], part["other"]).value
        if rho is not None:
            between[str(sample)] = round(rho, DECIMALS)
    names = {"value": "rank", "other": "baseline_rank", "target": "target_rank"}
    place = {g: i for i, g in enumerate(study.order)}
    chosen: dict[str, pd.DataFrame] = {}
    for sample in sorted(between, key=lambda s: (between[s], s)):
        part = both[both["sample_id"] == sample]
        part = part.sort_values("generator", key=lambda g: g.map(place))
        subject = part["subject_id"].iloc[0]
        if subject in chosen or len(chosen) == count:
            continue
        ranks = {
            rank: part[column].round(DECIMALS).rank(ascending=False)
            for column, rank in names.items()
        }
        chosen[subject] = part.assign(
            **ranks,
            title=part["generator"].map(study.order),
            source=source,
            metric=metric,
            baseline=baseline,
            rho=between[sample],
            rho_metric=correlation.spearman(part["value"], part["target"]).value,
            rho_baseline=correlation.spearman(part["other"], part["target"]).value,
        )
    columns = ["case_id", "sample_id", "subject_id", "paradigm", "source", "metric", "baseline"]
    columns += ["rho", "rho_metric", "rho_baseline", "generator", "title", "value", "rank"]
    columns += ["baseline_value", "baseline_rank", "target", "target_rank"]
    if not chosen:
        return pd.DataFrame(columns=columns)
    table = pd.concat(list(chosen.values()), ignore_index=True).rename(
        columns={"other": "baseline_value"}
    )
    numbers = {c: "float64" for c in ("rho_metric", "rho_baseline")}
    return table[columns].astype(numbers)


def deciding_units(scores: pd.DataFrame, chosen: pd.DataFrame) -> pd.DataFrame:
    """What each unit said about the pictures of the chosen cases.

    Args:
        scores: ``records.SCORES``; the ``details`` of the metric's rows have ``units``, see
            ``metrics.ufo``.
        chosen: from ``disagreements``.

    Returns:
        A row per picture and unit, in the order of the metric: ``case_id, sample_id, generator,
        title, unit, name, level, relevance, weight, value, source, status, decided``. ``decided``:
        the unit has not the same outcome for all models of its case, so it can change their order.
    """
    columns = ["case_id", "sample_id", "generator", "title", "unit", "name", "level", "relevance"]
    columns += ["weight", "value", "source", "status"]
    wanted = chosen[["case_id", "sample_id", "generator", "title", "metric"]]
    rows = scores[["sample_id", "generator", "metric", "details"]]
    both = wanted.merge(rows, on=["sample_id", "generator", "metric"], validate="one_to_one")
    found = [
        {c: getattr(row, c) for c in columns[:4]} | {c: unit.get(c) for c in columns[4:]}
        for row in both.itertuples()
        for unit in json.loads(str(row.details)).get("units", [])
    ]
    text = ("case_id", "sample_id", "generator", "title", "unit", "name", "level", "relevance")
    frame = frame_of(found, text=(*text, "source", "status"), columns=columns)
    outcomes = frame.assign(value=frame["value"].round(DECIMALS)).groupby(["sample_id", "unit"])
    kinds = outcomes[["value", "status"]].transform("nunique", dropna=False)
    return frame.assign(decided=(kinds > 1).any(axis=1))
