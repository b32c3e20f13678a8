"""What a benchmark is made of, and what judging it takes (DSH-Bench, Figures 2, 3, 6; UFO, 2, 4).

These are counts of the benchmark itself and no estimates, so they have no intervals.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from subjectbench.cells import TOTAL, UNLABELLED, frame_of, labelled
from subjectbench.errors import InputError
from subjectbench.records import (
    DIFFICULTIES,
    LEVELS,
    PARADIGMS,
    RELEVANCES,
    SCENARIOS,
    Status,
)
from subjectbench.vocabulary import TIERS

FACETS = {"difficulty": DIFFICULTIES, "scenario": SCENARIOS, "category": None}
"""By what benchmarks are compared, with the order of levels; categories by name."""


def distributions(benchmarks: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """How subjects and prompts spread over difficulty, scenario, category (DSH-Bench, Fig. 2, 3a).

    Args:
        benchmarks: title -> ``records.CASES``, in the order to show.

    Returns:
        Columns ``facet`` (``difficulty``, ``scenario``, ``category``), ``level, benchmark,
        subjects, cases, share_of_subjects, share_of_cases``: a row per level that any benchmark
        has, for each benchmark, zeros included. Cases without a level are ``UNLABELLED``.

    Raises:
        InputError: an unknown level, or a subject with two difficulties or categories.
    """
    rows = []
    for facet, known in FACETS.items():
        found = {title: labelled(cases[facet], known) for title, cases in benchmarks.items()}
        present = {level for _, levels in found.values() for level in levels}
        order = [x for x in (known or sorted(present - {UNLABELLED})) if x in present]
        order += [UNLABELLED] * (UNLABELLED in present)
        for level in order:
            for title, (column, _) in found.items():
                mine, cases = benchmarks[title][column == level], benchmarks[title]
                row: dict[str, Any] = {"facet": facet, "level": level, "benchmark": title}
                row |= {"subjects": mine["subject_id"].nunique(), "cases": len(mine)}
                row["share_of_subjects"] = row["subjects"] / max(1, cases["subject_id"].nunique())
                rows.append(row | {"share_of_cases": len(mine) / max(1, len(cases))})
    return frame_of(rows, text=("facet", "level", "benchmark"))


HIERARCHY = ("domain", "kind", "category")
"""The tiers of subjects, outermost last (DSH-Bench, section 3.1)."""


def hierarchy(cases: pd.DataFrame) -> pd.DataFrame:
    """Subjects by domain, kind and category (DSH-Bench, Figure 6).

    Args:
        cases: ``records.CASES``.

    Returns:
        Columns ``domain, kind, category, subjects, cases``, a row per category of a kind and
        domain; the largest domains and kinds first, categories by name. What has no name on a tier
        is ``UNLABELLED``.
    """
    named = cases.assign(**{tier: labelled(cases[tier], None)[0] for tier in HIERARCHY})
    columns = [*HIERARCHY, "subjects", "cases"]
    found = named.groupby(list(HIERARCHY), sort=True)["subject_id"].agg(["nunique", "size"])
    table = found.reset_index().set_axis(columns, axis=1)
    for tier in ("kind", "domain"):  # stable: the last one sorted by is the outermost
        table["_size"] = table.groupby(list(HIERARCHY[: HIERARCHY.index(tier) + 1]))[
            "subjects"
        ].transform("sum")
        table = table.sort_values(["_size", tier], ascending=[False, True], kind="stable")
    return table[columns].reset_index(drop=True)


MIN_MAPPED = 5
"""Fewest references for a map: fewer points have no neighbourhoods."""

PERPLEXITY = 30.0
"""Of the map where there are references enough; otherwise a third of their number."""


def reference_map(
    benchmarks: Mapping[str, pd.DataFrame],
    vectors: Mapping[str, Mapping[str, NDArray[np.float32]]],
    *,
    seed: int = 0,
) -> pd.DataFrame:
    """Place references on a plane, similar ones close: t-SNE of embeddings (DSH-Bench, Figure 3b).

    Only neighbourhoods mean something: axes, distances between groups and their sizes do not.

    Args:
        benchmarks: title -> ``records.CASES``, in the order to show.
        vectors: title -> reference_id -> embedding (d,) of any length but 0, of one encoder;
            references without one are left out.
        seed: of the map; it starts from principal components, which takes most of the chance out.

    Returns:
        Columns ``benchmark, reference_id, subject, domain, kind, category, x, y, perplexity``;
        coordinates and perplexity are missing below ``MIN_MAPPED`` references.

    Raises:
        InputError: embeddings of different encoders.
    """
    columns = ["benchmark", "reference_id", "subject", *HIERARCHY]
    rows, points = [], []
    for title, cases in benchmarks.items():
        mine = cases.dropna(subset=["reference_id"]).drop_duplicates("reference_id")
        for row in mine.sort_values("reference_id").to_dict("records"):
            vector = vectors.get(title, {}).get(row["reference_id"])
            if vector is not None:
                points.append(np.asarray(vector, np.float64) / np.linalg.norm(vector))
                rows.append({"benchmark": title} | {c: row[c] for c in columns[1:]})
    if len({len(p) for p in points}) > 1:
        raise InputError("reference_map", "embeddings differ in length", "use one encoder for all")
    table = frame_of(rows, text=columns, columns=columns)
    placed, perplexity = np.full((len(points), 2), np.nan), np.nan
    if len(points) >= MIN_MAPPED:
        perplexity = min(PERPLEXITY, len(points) / 3)
        placed = _t_sne(np.stack(points), perplexity, seed)
    return table.assign(x=placed[:, 0], y=placed[:, 1], perplexity=perplexity)


def _t_sne(points: NDArray[np.float64], perplexity: float, seed: int) -> NDArray[np.float64]:
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    # Sums of several threads round differently from run to run, and t-SNE amplifies that.
    with threadpool_limits(1):
        map_ = TSNE(perplexity=perplexity, init="pca", random_state=seed, n_jobs=1)
        return np.asarray(map_.fit_transform(points), np.float64)


def by_category(cases: pd.DataFrame) -> pd.DataFrame:
    """Cases by category, editing paradigm and tier (UFO, Figure 2).

    Args:
        cases: ``records.CASES``.

    Returns:
        A row per category, by name, and one for ``TOTAL``: ``category, subjects, references,
        cases``; cases per paradigm (``non_editing`` ...; ``UNLABELLED`` if some have none) and
        tier (``tier_1`` to ``tier_3``); ``conflicting``: the share of cases with a paradigm other
        than ``non_editing``, whose prompt contradicts the reference somewhere.

    Raises:
        InputError: an unknown paradigm.
    """
    category, names = labelled(cases["category"], None)
    paradigm, paradigms = labelled(cases["paradigm"], PARADIGMS)
    tiers = paradigm.map(TIERS)
    rows = []
    for name in [*names, TOTAL]:
        mine = pd.Series(True, index=cases.index) if name == TOTAL else category == name
        row: dict[str, Any] = {"category": name}
        row |= {"subjects": cases.loc[mine, "subject_id"].nunique()}
        row |= {"references": cases.loc[mine, "reference_id"].nunique(), "cases": int(mine.sum())}
        row |= {p: int((mine & (paradigm == p)).sum()) for p in (*PARADIGMS, *paradigms)}
        row |= {f"tier_{t}": int((mine & (tiers == t)).sum()) for t in sorted({*TIERS.values()})}
        known = row["cases"] - row.get(UNLABELLED, 0)
        row["conflicting"] = (known - row["non_editing"]) / known if known else None
        rows.append(row)
    return frame_of(rows, text=("category",))


def _decomposed(units: pd.DataFrame, cases: pd.DataFrame) -> pd.DataFrame:
    """Valid units with the category of their case."""
    unknown = set(units["case_id"]) - set(cases["case_id"])
    if unknown:
        raise InputError("units", f"of unknown case '{min(unknown)}'", "use the benchmark's ids")
    category, _ = labelled(cases["category"], None)
    of = pd.Series(category.to_numpy(), index=cases["case_id"])
    ok = units[units["status"] == Status.OK]
    return ok.assign(category=ok["case_id"].map(of))


def units_by_category(units: pd.DataFrame, cases: pd.DataFrame) -> pd.DataFrame:
    """How many atomic units a case has, and of which kind (UFO, Figure 4).

    Args:
        units: ``records.UNITS``.
        cases: ``records.CASES``; those without any unit are counted and are in no mean.

    Returns:
        A row per category, by name, and one for ``TOTAL``: ``category, cases, n`` (cases with
        units), ``coverage``; means per case of those ``n``: ``units``, then units of each level
        (``global_attribute, part, setting``), of each modality class (``image_only, text_only,
        text_and_image``) and of those with the tool ``face``; ``weight``: mean over units.

    Raises:
        InputError: units of unknown cases.
    """
    ok = _decomposed(units, cases)
    category, names = labelled(cases["category"], None)
    rows = []
    for name in [*names, TOTAL]:
        mine = ok if name == TOTAL else ok[ok["category"] == name]
        size = len(cases) if name == TOTAL else int((category == name).sum())
        n = mine["case_id"].nunique()
        row: dict[str, Any] = {"category": name, "cases": size, "n": n, "coverage": n / size}
        kinds = [("level", k) for k in LEVELS] + [("relevance", k) for k in RELEVANCES]
        row["units"] = len(mine) / n if n else None
        for column, kind in [*kinds, ("tool", "face")]:
            row[kind] = float((mine[column] == kind).sum()) / n if n else None
        rows.append(row | {"weight": mine["weight"].mean() if n else None})
    return frame_of(rows, text=("category",))


def unit_counts(units: pd.DataFrame, cases: pd.DataFrame) -> pd.DataFrame:
    """How many cases of each category have how many units: the curves of UFO's Figure 4.

    Args:
        units: ``records.UNITS``.
        cases: ``records.CASES``.

    Returns:
        Columns ``category, units, cases, share`` (of the category's cases); 0 units are cases
        whose decomposition failed.

    Raises:
        InputError: units of unknown cases.
    """
    counts = _decomposed(units, cases).groupby("case_id").size()
    category, names = labelled(cases["category"], None)
    number = cases["case_id"].map(counts).fillna(0).astype("int64")
    rows = [
        {"category": name, "units": int(k), "cases": int(n), "share": n / (category == name).sum()}
        for name in names
        for k, n in number[category == name].value_counts().sort_index().items()
    ]
    return frame_of(rows, text=("category",), columns=["category", "units", "cases", "share"])


def requests(
    units: pd.DataFrame,
    *,
    generators: int,
    replicates: int,
    calls_per_image: float,
    calls_per_case: float,
    noes: int | None = None,
) -> pd.DataFrame:
    """Requests to a judge for UFO's score, here and by the reference implementation.

    The reference asks once to decompose a case, once per unit to write its question, once per unit
    and picture to verify it, and once more per "no" to explain it, which changes no score. Faces it
    compares without asking; so their units count neither as verified nor as explained.

    Args:
        units: ``records.UNITS``; only cases with units count.
        generators: models.
        replicates: pictures per case and model.
        calls_per_image: requests made here about one picture, mean over pictures.
        calls_per_case: requests made here to decompose one case; 0 for prepared units.
        noes: how many units the judge answered with no, faces apart; None where not counted.

    Returns:
        Columns ``step, here, reference, here_per_case, reference_per_case, here_per_image,
        reference_per_image, note``; steps ``decomposition, questions, verification, explanation,
        total``. Without ``noes`` the reference's total is a lower bound, and the note says so.
        Without any case that has units there are no requests, per case and image as well.

    Raises:
        InputError: fewer than one picture per case.
    """
    ok = units[units["status"] == Status.OK]
    cases = ok["case_id"].nunique()
    images = cases * generators * replicates
    if generators * replicates < 1:
        raise InputError("requests", f"{generators} models, {replicates} replicates")
    asked = int((ok["tool"] != "face").sum())
    steps: list[tuple[str, float, float | None]] = [
        ("decomposition", calls_per_case * cases, cases),
        ("questions", 0, len(ok)),
        ("verification", calls_per_image * images, asked * generators * replicates),
        ("explanation", 0, noes),
    ]
    here, there = sum(s[1] for s in steps), sum(s[2] or 0 for s in steps)
    rows = []
    for step, ours, theirs in [*steps, ("total", here, there)]:
        row: dict[str, Any] = {"step": step, "here": round(ours), "reference": theirs}
        for name, per in (("case", cases), ("image", images)):
            row[f"here_per_{name}"] = ours / per if per else None
            row[f"reference_per_{name}"] = theirs / per if per and theirs is not None else None
        uncounted = noes is None and step in ("explanation", "total")
        row["note"] = "the reference's explanations are not counted" if uncounted else ""
        rows.append(row)
    return frame_of(rows, text=("step", "note"), whole=("here", "reference"))
