"""What the DSH-Bench paper claims, as statements on the data at hand.

Each claim is computed for every model and for all together, with its effect, the interval that
decides it, and a verdict by a declared rule. Nothing is taken from the paper but the claim. Table 2
(DSH-Bench is harder than other benchmarks) needs other benchmarks' scores and is not among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from subjectbench import tables
from subjectbench.cells import (
    POOLED,
    UNLABELLED,
    Generators,
    case_column,
    checked_scores,
    frame_of,
    order_of,
    resample_of,
    share,
    text_ids,
)
from subjectbench.errors import InputError, suggest
from subjectbench.records import DIFFICULTIES, DIMENSIONS, SCENARIOS, Status
from subjectbench.statistics import bootstrap, correlation
from subjectbench.statistics.correlation import DECIMALS

HOLDS = "holds"
CONTRARY = "does not hold"
UNDECIDED = "not separable"
NOT_COMPUTABLE = "not computable"

VERDICTS = (HOLDS, CONTRARY, UNDECIDED, NOT_COMPUTABLE)
"""All verdicts. ``CONTRARY`` is said only where the data speak for the contrary."""

MIN_SUBJECTS = 3
"""Fewest subjects on a side of a difference: the spread of fewer says nothing of further ones."""

MIN_MODELS = 3
"""Fewest models for a correlation over models."""

MARGIN = 0.2
"""Largest difference called minimal, in standard deviations of subjects: Cohen's "small"."""

COLUMNS = [
    "claim",
    "dimension",
    "metric",
    "statement",
    "source",
    "generator",
    "title",
    "verdict",
    "effect",
    "ci_low",
    "ci_high",
    "unit",
    "n",
    "subjects",
    "rule",
    "note",
]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Claim:
    """A statement of the paper.

    Attributes:
        name: id of the claim.
        statement: in plain words.
        source: where the paper says so.
        dimension: of DSH-Bench, section 3.2.
    """

    name: str
    statement: str
    source: str
    dimension: str


@dataclass(frozen=True)
class Contrast(Claim):
    """The claim that scores are lower on some cases than on others.

    Attributes:
        column: what tells the cases apart.
        lower: its values where scores are said to be lower.
        higher: its values where they are said to be higher; None: all others.
    """

    column: str
    lower: tuple[str, ...]
    higher: tuple[str, ...] | None


_FIG_8A = "DSH-Bench, section 5, Fig. 8a"
_FIG_8B = "DSH-Bench, section 5, Fig. 8b"
_FIG_8C = "DSH-Bench, section 5, Fig. 8c"
_EASY, _MEDIUM, _HARD = DIFFICULTIES
_BC, _VS, _IE, _AC, _SC, _IM = SCENARIOS

HARD_BELOW_EASY = Contrast(
    "hard_below_easy",
    "Hard subjects are preserved less well than easy ones",
    _FIG_8A,
    "preservation",
    "difficulty",
    (_HARD,),
    (_EASY,),
)


def _step(name: str, low: str, high: str, dimension: str, words: str) -> Contrast:
    column, source = ("difficulty", _FIG_8A) if low in DIFFICULTIES else ("scenario", _FIG_8B)
    return Contrast(name, words, source, dimension, column, (low,), (high,))


CONTRASTS = (
    HARD_BELOW_EASY,
    _step(
        "medium_below_easy",
        _MEDIUM,
        _EASY,
        "preservation",
        "Medium subjects are preserved less well than easy ones",
    ),
    _step(
        "hard_below_medium",
        _HARD,
        _MEDIUM,
        "preservation",
        "Hard subjects are preserved less well than medium ones",
    ),
    *(
        _step(
            f"{low}_below_{high}",
            low,
            high,
            dimension,
            f"Prompts on {low} score lower in {dimension} than prompts on {high}",
        )
        for dimension in DIMENSIONS
        for low, high in ((_VS, _BC), (_IE, _VS), (_IE, _BC))
    ),
    Contrast(
        "changed_subject_lower",
        "Prompts that change the subject (attribute, style, imagination) score lower in "
        "preservation than those that do not",
        _FIG_8B,
        "preservation",
        "scenario",
        (_AC, _SC, _IM),
        (_BC, _VS, _IE),
    ),
    Contrast(
        "attribute_harder_to_follow",
        "Prompts that change an attribute are followed less well than the others",
        "DSH-Bench, section 4.2 and Fig. 8b",
        "following",
        "scenario",
        (_AC,),
        None,
    ),
    Contrast(
        "book_lower",
        "Books are preserved less well than other subjects",
        _FIG_8C,
        "preservation",
        "category",
        ("Book",),
        None,
    ),
)
"""Claims that are a difference of two means, lower less higher, and so said to be negative."""

TREND = Claim(
    "difficulty_trend",
    "The harder a subject, the less well it is preserved",
    _FIG_8A,
    "preservation",
)
EVERY_MODEL = Claim(
    "hard_below_easy_for_every_model",
    "Every model preserves hard subjects less well than easy ones",
    "DSH-Bench, section 1, takeaways",
    "preservation",
)
FOLLOWING_UNMOVED = Claim(
    "difficulty_hardly_moves_following",
    "How well prompts are followed hardly depends on the subject's difficulty",
    _FIG_8A,
    "following",
)
TRADE_OFF = Claim(
    "trade_off_over_models",
    "Models that preserve subjects better follow prompts less well",
    "DSH-Bench, section 4.2, Tab. 3",
    "preservation",
)
TRADE_OFF_CASES = Claim(
    "trade_off_over_cases",
    "Where a model preserves the subject better, it follows the prompt less well",
    "DSH-Bench, section 4.2, Tab. 3 (there over models)",
    "preservation",
)
NO_BEST_IN_BOTH = Claim(
    "no_model_best_in_both",
    "No model is best in both preservation and following",
    "DSH-Bench, section 4.2, Tab. 3, Pareto frontier",
    "preservation",
)
AGREES_BEST = Claim(
    "preservation_metric_agrees_best",
    "The metric of preservation orders samples as raters do better than every other metric",
    "DSH-Bench, section 4.2, Tab. 1",
    "preservation",
)
NOT_BEST_EVERYWHERE = (
    "no_model_best_in_all_categories",
    "No model is best in {} in all categories",
    "DSH-Bench, section 1, takeaways; section 5, Fig. 8c",
)


@dataclass(frozen=True)
class _Estimate:
    """An effect and its draws, or why there is none."""

    value: float | None = None
    draws: Floats | None = None
    n: int = 0
    subjects: frozenset[str] = field(default_factory=frozenset)
    note: str = ""


class _Study:
    """Valid rows by model and dimension, and draws of subjects that all claims share."""

    def __init__(
        self,
        scores: pd.DataFrame,
        dimensions: Mapping[str, str],
        order: Mapping[str, str],
        min_coverage: float,
        draws: int,
        seed: int,
        confidence: float,
    ):
        used = scores[scores["metric"].isin(dimensions.values())]
        used = used.sort_values(["generator", "metric", "sample_id"], kind="stable")
        self.case = case_column(used)
        self.order, self.metrics, self.confidence = order, dimensions, confidence
        self.resample = resample_of(used, draws, seed)
        self.used = used
        self._rows: dict[tuple[str, str], tuple[pd.DataFrame, str]] = {}
        groups = {key: part for key, part in used.groupby(["generator", "metric"])}
        for generator in order:
            for dimension, metric in dimensions.items():
                mine = groups.get((generator, metric), used.iloc[:0])
                expected = mine[mine["status"] != Status.NOT_APPLICABLE.value]
                ok = expected[expected["status"] == Status.OK.value]
                note = ""
                if not len(ok):
                    note = "no valid score"
                elif len(ok) < min_coverage * len(expected):
                    note = f"coverage {len(ok) / len(expected):.3f} below {min_coverage:.3f}"
                self._rows[generator, dimension] = (ok, note)

    def rows(self, generator: str, dimension: str) -> tuple[pd.DataFrame, str]:
        """Valid rows, and why they do not count."""
        return self._rows.get((generator, dimension), (self.used.iloc[:0], "no such dimension"))

    def mean(self, rows: pd.DataFrame) -> tuple[float, Floats]:
        """The mean over samples, and in every draw."""
        assert self.resample is not None
        return float(rows["value"].mean()), self.resample.means(
            rows["value"], rows["subject_id"].tolist()
        )

    def labels(self, column: str) -> set[str]:
        """Which labels occur."""
        return set(self.used[column].dropna()) if column in self.used.columns else set()

    def interval(self, drawn: Floats) -> bootstrap.Interval:
        """Percentile interval over the shared draws."""
        assert self.resample is not None
        return bootstrap.percentile(drawn, self.confidence, len(self.resample.labels))

    @property
    def percent(self) -> str:
        """The confidence, for reading."""
        return f"{100 * self.confidence:g} %"

    @property
    def tail(self) -> float:
        """Probability left on one side of an interval."""
        return (1.0 - self.confidence) / 2.0


def findings(
    scores: pd.DataFrame,
    dimensions: Mapping[str, str],
    *,
    targets: pd.DataFrame | None = None,
    rivals: Sequence[str] | None = None,
    min_coverage: float = 0.9,
    generators: Generators = None,
    draws: int = 1000,
    seed: int = 0,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Compute the paper's claims on these scores.

    Intervals are percentiles over draws of subjects, which all claims and models share; models are
    taken as given. Every verdict stands alone: none is corrected for the number of claims and
    models, so with intervals of 95 % about one in twenty differences that do not exist is decided,
    either way. Only claims on *all* categories are corrected, as their rule says. A claim that
    several differences must bear out together (``rule``: "every") needs no correction.

    Args:
        scores: as for ``tables.leaderboard``. What is missing of ``difficulty``, ``scenario``,
            ``category``, ``domain`` makes claims on it not computable; with ``domain``, a category
            of each domain counts on its own, as in Fig. 8c.
        dimensions: dimension -> metric.
        targets: as for ``tables.agreement``; None: nobody rated.
        rivals: metrics that the metric of preservation is compared with in agreement; None: all
            that stand for no dimension.
        min_coverage: share of expected samples below which a model's claims are not computed.
        generators: what to show, in order.
        draws: bootstrap draws of subjects.
        seed: of the draws.
        confidence: of the intervals.

    Returns:
        ``COLUMNS``: a row per claim and model, then one over all models with ``generator`` =
        ``POOLED``. ``n`` counts samples. ``verdict`` is one of ``VERDICTS``, by ``rule``; ``note``
        says why a claim is not computable, and what else is to be known.

    Raises:
        InputError: as ``tables.leaderboard`` and, with targets, ``tables.metric_differences``.
    """
    scores, min_coverage = checked_scores(scores), share("min_coverage", min_coverage)
    for name in dimensions:
        if name not in DIMENSIONS:
            raise InputError("findings", f"unknown dimension '{name}'", suggest(name, DIMENSIONS))
    order = order_of(scores["generator"], generators, "findings")
    study = _Study(scores, dimensions, order, min_coverage, draws, seed, confidence)
    text_ids(study.used, [study.case], "scores")
    rows: list[dict[str, Any]] = []
    for contrast in CONTRASTS:
        rows += _contrasts(study, contrast)
        if contrast is HARD_BELOW_EASY:
            rows.append(_every_model(study, rows))
            rows += _trend(study)
    rows += _following_unmoved(study)
    rows += _trade_off(study)
    for dimension in (d for d in DIMENSIONS if d in dimensions):
        rows += _categories(study, dimension)
    if rivals is None:
        known = dict.fromkeys(scores["metric"])
        rivals = [m for m in known if m not in dimensions.values()]
    rows += _agreement(study, scores, targets, list(rivals), draws, seed)
    whole, numbers = ("n", "subjects"), ("effect", "ci_low", "ci_high")
    text = [c for c in COLUMNS if c not in (*whole, *numbers)]
    return frame_of(rows, text=text, whole=whole, columns=COLUMNS)


# ------------------------------------------------------------------------------- rows


def _row(study: _Study, claim: Claim, generator: str, **found: Any) -> dict[str, Any]:
    """One row, not computable until something is found."""
    row: dict[str, Any] = dict.fromkeys(COLUMNS)
    row |= {"claim": claim.name, "dimension": claim.dimension, "statement": claim.statement}
    row |= {"metric": study.metrics.get(claim.dimension, ""), "source": claim.source}
    row |= {"generator": generator, "title": study.order.get(generator, generator)}
    row |= {"verdict": NOT_COMPUTABLE, "unit": "", "rule": "", "note": ""}
    return row | {"n": 0, "subjects": 0} | found


def _negative(low: float, high: float) -> str:
    return HOLDS if high < 0 else CONTRARY if low > 0 else UNDECIDED


def _minimal(low: float, high: float) -> str:
    if max(-low, high) < MARGIN:
        return HOLDS
    return CONTRARY if max(low, -high) > MARGIN else UNDECIDED


def _below_zero(study: _Study) -> str:
    return (
        f"{HOLDS}: the {study.percent} interval lies below 0; {CONTRARY}: above 0; "
        f"{UNDECIDED}: it contains 0"
    )


def _judged(
    study: _Study,
    claim: Claim,
    generator: str,
    found: _Estimate,
    unit: str,
    rule: str,
    judge: Callable[[float, float], str] = _negative,
) -> dict[str, Any]:
    """Let the interval of an estimate decide."""
    row = _row(study, claim, generator, unit=unit, rule=rule, note=found.note)
    row |= {"effect": found.value, "n": found.n, "subjects": len(found.subjects)}
    if found.value is None or found.draws is None:
        return row
    interval = study.interval(found.draws)
    if interval.low is None or interval.high is None:
        note = "; ".join(filter(None, [found.note, f"no interval: {interval.reason}"]))
        return row | {"note": note}
    verdict = judge(round(interval.low, DECIMALS), round(interval.high, DECIMALS))
    return row | {"ci_low": interval.low, "ci_high": interval.high, "verdict": verdict}


def _mean_of(found: Sequence[_Estimate]) -> _Estimate:
    """Average estimates over models, each counting once."""
    known = [e for e in found if e.value is not None]
    if not known:
        return _Estimate(note=next((e.note for e in found if e.note), "no models"))
    return _Estimate(
        float(np.mean([e.value for e in known])),
        np.mean(np.array([e.draws for e in known]), axis=0),
        sum(e.n for e in known),
        frozenset().union(*(e.subjects for e in known)),
        "" if len(known) == len(found) else f"{len(known)} of {len(found)} models",
    )


def _per_model(
    study: _Study,
    claim: Claim,
    estimate: Callable[[str], _Estimate],
    unit: str,
    rule: str,
    judge: Callable[[float, float], str] = _negative,
) -> Iterator[dict[str, Any]]:
    """A row per model, and one of their average."""
    found = {generator: estimate(generator) for generator in study.order}
    for generator, single in (found | {POOLED: _mean_of(list(found.values()))}).items():
        yield _judged(study, claim, generator, single, unit, rule, judge)


def _missing(study: _Study, claim: Claim, note: str) -> list[dict[str, Any]]:
    return [_row(study, claim, POOLED, note=note)]


# ------------------------------------------------------------------------------- differences


def _sides(rows: pd.DataFrame, claim: Contrast) -> tuple[pd.DataFrame, pd.DataFrame]:
    label = rows[claim.column]
    low = label.isin(claim.lower)
    high = label.notna() & ~low if claim.higher is None else label.isin(claim.higher)
    return rows[low], rows[high]


def _difference(study: _Study, generator: str, claim: Contrast) -> _Estimate:
    rows, note = study.rows(generator, claim.dimension)
    if note:
        return _Estimate(note=note)
    sides = _sides(rows, claim)
    fewest = min(side["subject_id"].nunique() for side in sides)
    if fewest < MIN_SUBJECTS:
        return _Estimate(note=f"{fewest} subjects on one side, fewer than {MIN_SUBJECTS}")
    (low, low_draws), (high, high_draws) = (study.mean(side) for side in sides)
    subjects = frozenset(pd.concat(sides)["subject_id"])
    return _Estimate(low - high, low_draws - high_draws, sum(map(len, sides)), subjects)


def _contrasts(study: _Study, claim: Contrast) -> list[dict[str, Any]]:
    labels = study.labels(claim.column)
    lower = labels & set(claim.lower)
    higher = labels - lower if claim.higher is None else labels & set(claim.higher)
    if claim.dimension not in study.metrics:
        return _missing(study, claim, f"no metric stands for {claim.dimension}")
    if not lower or not higher:
        wanted = claim.lower if not lower else claim.higher or ("another",)
        return _missing(study, claim, f"no cases with {claim.column} {', '.join(wanted)}")
    high = ", ".join(claim.higher) if claim.higher else "others"
    unit = f"difference of means, {', '.join(claim.lower)} less {high}"
    return list(
        _per_model(study, claim, lambda g: _difference(study, g, claim), unit, _below_zero(study))
    )


def _every_model(study: _Study, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Whether the claim on hard subjects holds for every single model."""
    mine = [r for r in rows if r["claim"] == HARD_BELOW_EASY.name and r["generator"] != POOLED]
    verdicts = [r["verdict"] for r in mine]
    if not mine or (NOT_COMPUTABLE in verdicts and CONTRARY not in verdicts):
        note = "not computable for " + (", ".join(
            r["title"] for r in mine if r["verdict"] == NOT_COMPUTABLE
        ) or "any model")  # fmt: skip
        return _row(study, EVERY_MODEL, POOLED, note=note)
    lower = sum(r["effect"] is not None and r["effect"] < 0 for r in mine)
    verdict = CONTRARY if CONTRARY in verdicts else UNDECIDED if UNDECIDED in verdicts else HOLDS
    return _row(
        study,
        EVERY_MODEL,
        POOLED,
        effect=float(lower),
        unit=f"models of {len(mine)} with a lower mean",
        n=sum(r["n"] for r in mine),
        subjects=max(r["subjects"] for r in mine),
        verdict=verdict,
        rule=f"{HOLDS}: every model's {study.percent} interval lies below 0; {CONTRARY}: a model's "
        f"lies above 0; {UNDECIDED}: otherwise",
        note=f"{verdicts.count(HOLDS)} of {len(mine)} below 0 with their interval",
    )


def _by_subject(study: _Study, generator: str, dimension: str) -> tuple[pd.DataFrame, str]:
    """Mean score and difficulty (0, 1, 2) of each subject that has one."""
    rows, note = study.rows(generator, dimension)
    if note:
        return rows, note
    level = rows["difficulty"].map({name: i for i, name in enumerate(DIFFICULTIES)})
    by = rows.assign(level=level.astype("float64")).dropna(subset=["level"])
    table = by.groupby("subject_id").agg(
        value=("value", "mean"), level=("level", "first"), n=("value", "size")
    )
    if len(table) < MIN_SUBJECTS:
        note = f"{len(table)} subjects, fewer than {MIN_SUBJECTS}"
    return table, note


def _correlated(
    study: _Study, x: pd.Series, y: pd.Series, subjects: Sequence[str], n: int
) -> _Estimate:
    """Spearman's rho and its draws."""
    assert study.resample is not None
    found = correlation.spearman(x, y)
    if found.value is None:
        return _Estimate(note=str(found.reason), n=n)
    drawn = bootstrap.correlation_draws(x, y, subjects, study.resample)
    return _Estimate(found.value, drawn, n, frozenset(subjects))


def _trend(study: _Study) -> list[dict[str, Any]]:
    if "preservation" not in study.metrics or len(study.labels("difficulty")) < 2:
        return _missing(study, TREND, "no preservation scores of two levels of difficulty")

    def estimate(generator: str) -> _Estimate:
        table, note = _by_subject(study, generator, "preservation")
        if note:
            return _Estimate(note=note)
        return _correlated(
            study, table["level"], table["value"], table.index.tolist(), int(table["n"].sum())
        )

    unit = "Spearman's ρ of difficulty and a subject's mean"
    return list(_per_model(study, TREND, estimate, unit, _below_zero(study)))


def _following_unmoved(study: _Study) -> list[dict[str, Any]]:
    claim, extremes = FOLLOWING_UNMOVED, {_EASY, _HARD}
    if "following" not in study.metrics or not extremes <= study.labels("difficulty"):
        return _missing(study, claim, "no following scores of easy and hard subjects")
    contrast = Contrast("", "", "", "following", "difficulty", (_HARD,), (_EASY,))

    def estimate(generator: str) -> _Estimate:
        found = _difference(study, generator, contrast)
        if found.value is None or found.draws is None:
            return found
        table, _ = _by_subject(study, generator, "following")
        ends = table[table["level"] != 1.0]
        within = ends["value"] - ends.groupby("level")["value"].transform("mean")
        spread = float(np.sqrt((within**2).sum() / (len(ends) - 2)))
        if round(spread, DECIMALS) == 0:
            return _Estimate(note="subjects of a level do not differ")
        return _Estimate(found.value / spread, found.draws / spread, found.n, found.subjects)

    rule = (
        f"{HOLDS}: the {study.percent} interval lies within ±{MARGIN}; {CONTRARY}: wholly outside; "
        f"{UNDECIDED}: otherwise"
    )
    unit = "hard less easy, in standard deviations of subjects within a level"
    return list(_per_model(study, claim, estimate, unit, rule, _minimal))


# ------------------------------------------------------------------------------- trade-off


def _trade_off(study: _Study) -> list[dict[str, Any]]:
    claims = (TRADE_OFF, NO_BEST_IN_BOTH, TRADE_OFF_CASES)
    both = ("preservation", "following")
    if not set(both) <= set(study.metrics):
        return [r for c in claims for r in _missing(study, c, "needs preservation and following")]
    valid = [g for g in study.order if not any(study.rows(g, d)[1] for d in both)]
    note = "" if len(valid) == len(study.order) else f"{len(valid)} of {len(study.order)} models"
    rows = []
    if len(valid) < MIN_MODELS:
        why = f"{len(valid)} models, fewer than {MIN_MODELS}"
        rows += [r for c in claims[:2] for r in _missing(study, c, why)]
    else:
        rows += _over_models(study, valid, note)

    def estimate(generator: str) -> _Estimate:
        frames = [study.rows(generator, d) for d in both]
        if any(note for _, note in frames):
            return _Estimate(note=next(note for _, note in frames if note))
        means = [
            f.groupby(study.case).agg(value=("value", "mean"), subject=("subject_id", "first"))
            for f, _ in frames
        ]
        joined = means[0].join(means[1]["value"].rename("other"), how="inner")
        n = sum(int(f[study.case].isin(joined.index).sum()) for f, _ in frames)
        return _correlated(study, joined["value"], joined["other"], joined["subject"].tolist(), n)

    unit = "Spearman's ρ of both dimensions over a model's cases"
    return rows + list(_per_model(study, TRADE_OFF_CASES, estimate, unit, _below_zero(study)))


def _over_models(study: _Study, valid: Sequence[str], note: str) -> list[dict[str, Any]]:
    frames = {d: [study.rows(g, d)[0] for g in valid] for d in ("preservation", "following")}
    means = {d: [study.mean(f) for f in per] for d, per in frames.items()}
    points = [np.array([value for value, _ in per]) for per in means.values()]
    drawn = [np.column_stack([draws for _, draws in per]) for per in means.values()]
    everything = pd.concat([f for per in frames.values() for f in per])
    n, subjects = len(everything), frozenset(everything["subject_id"])

    found = correlation.spearman(*points)
    if found.value is None:
        estimate = _Estimate(note=str(found.reason), n=n, subjects=subjects)
    else:
        draws = correlation.by_row(*drawn).spearman
        estimate = _Estimate(found.value, draws, n, subjects, note)
    unit = f"Spearman's ρ of both means over {len(valid)} models"
    rows = [_judged(study, TRADE_OFF, POOLED, estimate, unit, _below_zero(study))]

    whole = np.isfinite(drawn[0]).all(axis=1) & np.isfinite(drawn[1]).all(axis=1)
    best = [
        np.isclose(d, d.max(axis=1, keepdims=True), rtol=0, atol=10.0**-DECIMALS)
        for d in (table[whole] for table in drawn)
    ]
    rule = (
        f"{HOLDS}: no model is best in both in at least {study.percent} of the draws; "
        f"{CONTRARY}: a model is in as many; {UNDECIDED}: otherwise"
    )
    row = _row(study, NO_BEST_IN_BOTH, POOLED, unit="share of draws", rule=rule, note=note)
    if len(study.labels("subject_id")) < 2 or not whole.any():
        return [*rows, row | {"note": "no draws, or one subject"}]
    alone = 1.0 - float((best[0] & best[1]).any(axis=1).mean())
    leaders = [
        study.order[valid[int(np.argmax(p))]] for p in (np.round(p, DECIMALS) for p in points)
    ]
    verdict = UNDECIDED
    if alone >= study.confidence:
        verdict = HOLDS
    elif 1.0 - alone >= study.confidence:
        verdict = CONTRARY
    row |= {"effect": alone, "n": n, "subjects": len(subjects), "verdict": verdict}
    said = f"best in preservation: {leaders[0]}; in following: {leaders[1]}"
    return [*rows, row | {"note": "; ".join(filter(None, [said, note]))}]


# ------------------------------------------------------------------------------- categories


def _categories(study: _Study, dimension: str) -> list[dict[str, Any]]:
    """Who has the highest mean in which category, and whether anybody can be told to be best."""
    name, statement, source = NOT_BEST_EVERYWHERE
    claim = Claim(name, statement.format(dimension), source, dimension)
    valid = [g for g in study.order if not study.rows(g, dimension)[1]]
    frames = [study.rows(g, dimension)[0].assign(model=g) for g in valid]
    if len(valid) < 2 or "category" not in study.used.columns:
        return _missing(study, claim, "needs two models, and categories")
    rows = pd.concat(frames).dropna(subset=["category"])
    keys = [k for k in ("domain", "category") if k in rows.columns]
    rows = rows.assign(**{k: rows[k].astype(object).fillna(UNLABELLED) for k in keys})
    table = rows.pivot_table(
        index=[*keys, "subject_id"], columns="model", values="value", aggfunc="mean"
    )[valid]
    parts = [part.dropna().to_numpy() for _, part in table.groupby(level=keys)]
    parts = [np.round(part, DECIMALS) for part in parts if len(part)]
    if len(parts) < 2:
        return _missing(study, claim, f"{len(parts)} categories that the models share")

    means = np.array([part.mean(axis=0) for part in parts]).round(DECIMALS)
    wins = (means == means.max(axis=1, keepdims=True)).sum(axis=0)
    better = np.array([_better(part) for part in parts])  # category, model, model: p
    others = ~np.eye(len(valid), dtype=bool)
    surely = (better <= study.tail) | ~others
    best: NDArray[np.bool_] = np.all(surely, axis=2)  # better than every other
    compared = len(parts) * (len(valid) - 1)
    worse = np.where(others, better, 1.0) * compared <= study.tail
    beaten: NDArray[np.bool_] = np.any(worse, axis=(0, 1))
    everywhere: NDArray[np.bool_] = np.all(best, axis=0)
    verdicts = [
        HOLDS if lost else CONTRARY if first else UNDECIDED
        for lost, first in zip(beaten, everywhere)
    ]

    size = f"categories of {len(parts)} with the highest mean"
    single = (
        f"paired t tests over subjects, {study.tail:g} one-sided. {HOLDS}: in some category some "
        f"model is better, corrected for {compared} comparisons (Bonferroni); {CONTRARY}: it is "
        f"better than every other in every category; {UNDECIDED}: otherwise"
    )
    out = []
    for generator in study.order:
        if generator not in valid:
            note = study.rows(generator, dimension)[1]
            out.append(_row(study, claim, generator, unit=size, rule=single, note=note))
            continue
        i = valid.index(generator)
        mine = frames[i]
        separable = int(best[:, i].sum())
        out.append(
            _row(
                study, claim, generator, effect=float(wins[i]), unit=size, rule=single,
                n=len(mine), subjects=mine["subject_id"].nunique(), verdict=verdicts[i],
                note=f"{separable} of them separable from every other model",
            )
        )  # fmt: skip
    verdict = UNDECIDED
    if CONTRARY in verdicts:
        verdict = CONTRARY
    elif set(verdicts) == {HOLDS}:
        verdict = HOLDS
    most = [study.order[g] for g, w in zip(valid, wins) if w == wins.max()]
    out.append(
        _row(
            study, claim, POOLED, effect=float(wins.max()), unit=size, verdict=verdict,
            rule=f"{HOLDS}: every model's holds; {CONTRARY}: one's does not; "
            f"{UNDECIDED}: otherwise",
            n=len(rows), subjects=rows["subject_id"].nunique(),
            note=f"most: {', '.join(most)}; {int(np.any(best, axis=1).sum())} of {len(parts)} "
            "categories have a separable best",
        )
    )  # fmt: skip
    return out


def _better(part: Floats) -> Floats:
    """One-sided p of "model i is not better than model j", paired by subject.

    Args:
        part: shape (subjects, models).

    Returns:
        Shape (models, models); 1 with fewer than ``MIN_SUBJECTS`` subjects.
    """
    n, models = part.shape
    if n < MIN_SUBJECTS:
        return np.ones((models, models))
    difference = np.round(part[:, :, None] - part[:, None, :], DECIMALS)
    mean, error = difference.mean(axis=0), difference.std(axis=0, ddof=1) / np.sqrt(n)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(mean == 0, 0.0, mean / error)
    p: Floats = stats.t.sf(t, n - 1)
    return p


# ------------------------------------------------------------------------------- agreement


def _agreement(
    study: _Study,
    scores: pd.DataFrame,
    targets: pd.DataFrame | None,
    rivals: Sequence[str],
    draws: int,
    seed: int,
) -> list[dict[str, Any]]:
    metric = study.metrics.get("preservation")
    rated = targets if targets is None else targets[targets["dimension"] == "preservation"]
    if metric is None or rated is None or not len(rated) or not rivals:
        return _missing(study, AGREES_BEST, "needs ratings of preservation and other metrics")
    rated = rated[rated["generator"].isin(list(study.order))]
    rule = (
        f"{HOLDS}: the {study.percent} intervals of the differences to every other metric lie "
        f"above 0; {CONTRARY}: one lies below 0; {UNDECIDED}: otherwise"
    )
    rows = []
    names = {"kendall_tau_b": "Kendall's τ-b", "spearman": "Spearman's ρ"}
    for source in dict.fromkeys(rated["source"]):
        wanted = rated[rated["source"] == source]
        for method, words in names.items():
            unit = f"{words} with {source}, less the best other metric's"
            for generator in [*study.order, POOLED]:
                mine = scores if generator == POOLED else scores[scores["generator"] == generator]
                frames = [
                    tables.metric_differences(
                        mine, wanted, "preservation", [metric, rival], method=method,
                        draws=draws, seed=seed, confidence=study.confidence,
                    )
                    for rival in rivals
                ]  # fmt: skip
                found = pd.concat(frames, ignore_index=True)
                row = _row(study, AGREES_BEST, generator, unit=unit, rule=rule)
                rows.append(row | _against_rivals(found, mine))
    return rows


def _against_rivals(found: pd.DataFrame, scores: pd.DataFrame) -> dict[str, Any]:
    known = found.dropna(subset=["difference"])
    if not len(known):
        why = ", ".join(dict.fromkeys(found["reason"])) if len(found) else "nothing rated"
        return {"note": why or "undefined"}
    worst = known.loc[known["difference"].idxmin()]
    low, high = found["ci_low"].round(DECIMALS), found["ci_high"].round(DECIMALS)
    verdict = UNDECIDED
    if (high < 0).any():
        verdict = CONTRARY
    elif found["ci_low"].isna().any():
        verdict = NOT_COMPUTABLE
    elif (low > 0).all():
        verdict = HOLDS
    note = f"best other metric: {worst['second']}; better than {int((low > 0).sum())} "
    note += f"of {len(found)} with their interval"
    undefined = [f"{r.second}: {r.reason}" for r in found.itertuples() if r.reason]
    return {
        "effect": worst["difference"],
        "ci_low": worst["ci_low"],
        "ci_high": worst["ci_high"],
        "n": int(worst["n"]),
        "subjects": scores["subject_id"].nunique(),
        "verdict": verdict,
        "note": "; ".join([note, *undefined]),
    }
