"""What a benchmark is made of, and what judging it takes (UFO, Figures 2 and 4).

These are counts of the benchmark itself and no estimates, so they have no intervals.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from subjectbench.cells import TOTAL, UNLABELLED, frame_of, labelled
from subjectbench.errors import InputError
from subjectbench.records import LEVELS, PARADIGMS, RELEVANCES, Status
from subjectbench.vocabulary import TIERS


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
