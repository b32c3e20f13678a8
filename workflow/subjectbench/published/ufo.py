"""Audit of UFO's Tables 1 to 3 and of the numbers of its text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog, nnls

from subjectbench.published.data import Printed, Table
from subjectbench.published.finding import Finding, Verdict, interval, listed
from subjectbench.published.rounded import SLACK, Rounded

PAPER = "UFO"
COLUMNS = ("non_editing", "local", "global", "multi_dim")
OURS = "UFO"
JUDGED = ("VIEScore SC", "VIEScore O", "DreamBench++")
WEAK = "VIEScore PQ"

Floats = NDArray[np.float64]


def matrix(table: Table, rows: list[str] | None = None) -> tuple[Floats, Floats]:
    """Columns and totals of some rows: shapes (rows, 4) and (rows,)."""
    rows = table.rows if rows is None else rows
    cells = [[table(r, c).value for c in COLUMNS] for r in rows]
    return np.array(cells), np.array([table(r, "total").value for r in rows])


def tolerance(table: Table) -> float:
    """Largest error of a weighted mean of a row against its total that rounding can cause."""
    row = table.rows[0]
    cells = [table(row, c) for c in (*COLUMNS, "total")]
    half = [(c.high - c.low) / 2 for c in cells]
    return max(half[:-1]) + half[-1]


def _bounded(
    cells: Floats, totals: Floats, aim: list[float], within: float | None = None
) -> tuple[float, Floats] | None:
    """Minimise ``aim . (weights, error)`` over convex weights with no larger error in any row."""
    rows, columns = cells.shape
    error = -np.ones((rows, 1))
    found = linprog(
        aim,
        A_ub=np.vstack([np.hstack([cells, error]), np.hstack([-cells, error])]),
        b_ub=np.concatenate([totals, -totals]),
        A_eq=[[1.0] * columns + [0.0]],
        b_eq=[1.0],
        bounds=[(0, 1)] * columns + [(0, within)],
    )
    return (float(found.fun), np.asarray(found.x[:columns])) if found.success else None


def best_weights(cells: Floats, totals: Floats) -> tuple[float, Floats]:
    """Convex weights, common to all rows, with the smallest largest error.

    Args:
        cells: shape (rows, columns).
        totals: shape (rows,).

    Returns:
        That error, and the weights, shape (columns,), non-negative and of sum 1.
    """
    columns = cells.shape[1]
    found = _bounded(cells, totals, [0.0] * columns + [1.0])
    assert found, "some weights have some largest error"
    return found


@dataclass(frozen=True)
class Counts:
    """Cases per column, and the largest error of the case-weighted mean against the totals."""

    cases: tuple[int, ...]
    error: float


def implied_counts(cells: Floats, totals: Floats, whole: int, within: float) -> list[Counts]:
    """Every way to share ``whole`` cases among columns that gives all totals, best first.

    The smallest and largest possible share of each column (linear programmes) leave few candidates,
    so the search misses none.

    Args:
        cells: shape (rows, columns).
        totals: shape (rows,).
        whole: number of cases.
        within: largest error allowed.
    """
    columns = cells.shape[1]
    ranges = []
    for column in range(columns):
        ends = []
        for sign in (1.0, -1.0):
            aim = [0.0] * (columns + 1)
            aim[column] = sign
            found = _bounded(cells, totals, aim, within)
            if found is None:
                return []
            ends.append(sign * found[0] * whole)
        ranges.append(np.arange(int(np.ceil(ends[0] - SLACK * whole)), int(ends[1] + 1)))
    grid = np.stack([g.ravel() for g in np.meshgrid(*ranges[:-1], indexing="ij")], axis=1)
    counts = np.hstack([grid, whole - grid.sum(axis=1, keepdims=True)])
    counts = counts[counts[:, -1] >= 0]
    errors = np.abs(counts @ cells.T / whole - totals).max(axis=1)
    kept = np.argsort(errors, kind="stable")
    return [
        Counts(tuple(int(n) for n in counts[i]), float(errors[i]))
        for i in kept
        if errors[i] <= within + SLACK
    ]


def audit(printed: Printed) -> list[Finding]:
    """Every check of this paper."""
    return [
        *_totals(printed),
        *_conflicting(printed),
        *_best_models(printed),
        *_repeated(printed),
        *_products(printed),
        *_gains(printed),
        *_headline(printed),
        *_total_weights(printed),
        *_best_metrics(printed),
        *_judged(printed),
        *_ablation(printed),
        *_citation(printed),
    ]


def _weighted(table: Table, row: str, weights: list[float]) -> Rounded:
    total = Rounded.exactly(0.0)
    for column, weight in zip(COLUMNS, weights, strict=True):
        total = total + weight * table(row, column)
    return total


def _told(counts: Counts) -> str:
    return f"{'/'.join(map(str, counts.cases))} (error {counts.error:.1e})"


def model_counts(printed: Printed) -> list[Counts]:
    """Cases per paradigm that Table 1's totals imply, best first."""
    table = printed.table(PAPER, 1)
    whole = int(printed.claims["ufo_cases"].exact)
    return implied_counts(*matrix(table), whole, tolerance(table))


def _totals(printed: Printed) -> Iterator[Finding]:
    table = printed.table(PAPER, 1)
    whole = int(printed.claims["ufo_cases"].exact)
    found = model_counts(printed)
    cells, totals = matrix(table)
    error, weights = best_weights(cells, totals)
    cause = ""
    if not found:
        odd = [
            r
            for r in table.rows
            if implied_counts(
                *matrix(table, [o for o in table.rows if o != r]), whole, tolerance(table)
            )
        ]
        cause = f"Without one row the others agree: {listed(odd)}." if odd else ""
    macro_error = float(np.abs(cells.mean(axis=1) - totals).max())
    shares = ", ".join(f"{w:.3f}" for w in weights)
    yield Finding(
        "ufo-1-case-weights",
        PAPER,
        "Table 1",
        "Total",
        f"Totals are means over cases: some numbers of cases, of sum {whole}, give all of them",
        "Total",
        (f"{'; next '.join(map(_told, found[:2]))}" if found else "no numbers of cases fit")
        + f"; best weights {shares} (error {error:.1e})",
        f"errors up to {tolerance(table):.0e}",
        Verdict.of(bool(found)),
        cause
        or f"{len(found)} ways fit; Non-Editing, Local, Global, Multi-Dim. The paper does not "
        "say how totals are formed.",
    )
    yield Finding(
        "ufo-1-unweighted",
        PAPER,
        "Table 1",
        "Total",
        "Totals are plain means of the four columns",
        "Total",
        f"differ by up to {macro_error:.4f}",
        f"errors up to {tolerance(table):.0e}",
        Verdict.of(macro_error <= tolerance(table) + SLACK),
        "Totals weight cases alike, so paradigms by their number of cases."
        if macro_error > tolerance(table) and found
        else "",
    )
    shares_used = [n / whole for n in found[0].cases] if found else list(weights)
    for row in table.rows:
        computed = _weighted(table, row, shares_used)
        yield Finding(
            f"ufo-1-total:{row}",
            PAPER,
            "Table 1",
            f"{row}: Total",
            "Mean over cases" if found else "Mean with the weights that fit all rows best",
            table.cells[row]["total"],
            f"{computed.value:.5f}",
            interval(computed, 5),
            Verdict.of(computed.may_equal(table(row, "total"))),
            about=((1, row),),
        )


def _conflicting(printed: Printed) -> Iterator[Finding]:
    claim = printed.claims["ufo_conflicting"]
    whole = int(printed.claims["ufo_cases"].exact)
    fitting = [
        k for k in range(whole + 1) if Rounded.exactly(100 * k / whole).may_equal(claim.rounded)
    ]
    found = model_counts(printed)
    editing = sorted({whole - c.cases[0] for c in found})
    yield Finding(
        "ufo-conflicting",
        PAPER,
        claim.where,
        claim.of,
        "Every case but the Non-Editing ones, by the numbers of cases that Table 1 implies",
        claim.printed,
        f"{listed([str(k) for k in fitting])} of {whole}; Table 1 implies "
        f"{listed([str(k) for k in editing])}",
        "",
        Verdict.of(bool(set(fitting) & set(editing))),
        "That conflict means any editing is our reading.",
    )


def _order(table: Table, column: str, rows: list[str] | None = None) -> list[str]:
    return sorted(rows or table.rows, key=lambda r: -table(r, column).value)


def _best_models(printed: Printed) -> Iterator[Finding]:
    table = printed.table(PAPER, 1)
    for column in (*COLUMNS, "total"):
        first, second, *rest = _order(table, column)
        yield Finding(
            f"ufo-1-best:{column}",
            PAPER,
            "Table 1",
            f"{column}: best, second",
            "Largest and second largest of the column",
            "marked by colour or weight, which is not in the text",
            f"{first}, {second}",
            "",
            Verdict.UNCHECKED,
            f"Then {listed(rest)}.",
        )
    claim = printed.claims["ufo_best"]
    best = _order(table, "total")[0]
    yield Finding(
        "ufo-best",
        PAPER,
        claim.where,
        "Table 1, Total",
        claim.of,
        claim.printed,
        best,
        "",
        Verdict.of(best == claim.printed),
    )


def _repeated(printed: Printed) -> Iterator[Finding]:
    """Numbers of the text that repeat a cell."""
    for name, claim in printed.claims.items():
        if claim.paper == PAPER and claim.cell:
            table, row, column = claim.cell
            cell = printed.tables[table].cells[row][column]
            yield Finding(
                name.replace("_", "-"),
                PAPER,
                claim.where,
                f"Table {printed.tables[table].facts.table}, {row}: {column}",
                "The text repeats the table",
                claim.printed,
                cell,
                "",
                Verdict.of(claim.printed == cell),
            )


def _products(printed: Printed) -> Iterator[Finding]:
    c = printed.claims
    for name, factors in (
        ("ufo_pictures", ("ufo_cases", "ufo_samples")),
        ("ufo_ranked_pictures", ("ufo_ranked_cases", "ufo_models")),
    ):
        product = c[factors[0]].exact * c[factors[1]].exact
        yield Finding(
            name.replace("_", "-"),
            PAPER,
            c[name].where,
            c[name].of,
            f"{c[factors[0]].of} x {c[factors[1]].of}",
            c[name].printed,
            f"{product:g}",
            "",
            Verdict.of(product == c[name].exact),
        )
    rows = len(printed.table(PAPER, 1).rows)
    yield Finding(
        "ufo-models",
        PAPER,
        c["ufo_models"].where,
        "Table 1, rows",
        "Models of Table 1",
        c["ufo_models"].printed,
        str(rows),
        "",
        Verdict.of(rows == c["ufo_models"].exact),
    )


def gain(table: Table, column: str) -> tuple[Rounded, str]:
    """Gain of UFO over the best other metric of a column in percent, and that metric."""
    baseline = _order(table, column, [r for r in table.rows if r != OURS])[0]
    return 100 * (table(OURS, column) / table(baseline, column) - 1), baseline


def _gains(printed: Printed) -> Iterator[Finding]:
    table = printed.table(PAPER, 2)
    for column in (*COLUMNS, "total"):
        claim = printed.claims[f"ufo_gain_{column}"]
        computed, baseline = gain(table, column)
        yield Finding(
            f"ufo-2-gain:{column}",
            PAPER,
            "Table 2",
            f"UFO: {column}",
            "Gain over the best other metric of the column, %",
            claim.printed,
            f"{computed.value:.3f}",
            interval(computed, 3),
            Verdict.of(computed.may_equal(claim.rounded)),
            f"Over {baseline}.",
        )
    sign = printed.claims["ufo_gain_sign"]
    positive = all(gain(table, c)[0].value > 0 for c in (*COLUMNS, "total"))
    yield Finding(
        "ufo-2-sign",
        PAPER,
        sign.where,
        "UFO: percentages",
        sign.of,
        sign.printed,
        "+" if positive else "+ and -",
        "",
        Verdict.of(positive and sign.printed == "+"),
        "They are gains, not uncertainties; probably a sign that was set by mistake.",
    )


def _headline(printed: Printed) -> Iterator[Finding]:
    table = printed.table(PAPER, 2)
    claim, in_table = printed.claims["ufo_headline"], printed.claims["ufo_gain_total"]
    total, baseline = gain(table, "total")
    yield Finding(
        "ufo-headline",
        PAPER,
        claim.where,
        f"Table 2, UFO over {baseline}: total",
        "The headline is the gain of the Total column",
        f"{claim.printed} ({claim.where}), {in_table.printed} ({in_table.where})",
        f"{total.value:.3f}",
        interval(total, 3),
        Verdict.of(claim.printed == in_table.printed and total.may_equal(claim.rounded)),
        "Both are within rounding, but one quantity has two values; the text's may be cut off, or "
        "from numbers before rounding."
        if total.may_equal(claim.rounded)
        else "",
    )
    mean = sum((gain(table, c)[0] for c in COLUMNS), Rounded.exactly(0.0)) / len(COLUMNS)
    yield Finding(
        "ufo-headline-average",
        PAPER,
        claim.where,
        "Table 2, UFO: four columns",
        "The headline is an average: mean of the gains of the four columns",
        claim.printed,
        f"{mean.value:.2f}",
        interval(mean, 3),
        Verdict.of(mean.may_equal(claim.rounded)),
        "What is called an average is the gain of one number, the Total.",
    )


def _total_weights(printed: Printed) -> Iterator[Finding]:
    table = printed.table(PAPER, 2)
    cells, totals = matrix(table)
    error, weights = best_weights(cells, totals)
    free, _ = nnls(cells, totals)
    residual = float(np.abs(cells @ free - totals).max())
    fisher, _ = best_weights(np.arctanh(cells), np.arctanh(totals))
    allowed = tolerance(table)
    yield Finding(
        "ufo-2-total-weights",
        PAPER,
        "Table 2",
        "Total",
        "Totals are means over cases: some weights, the same for all metrics, give all of them",
        "Total",
        f"best error {error:.4f} with weights {', '.join(f'{w:.3f}' for w in weights)}; "
        f"{residual:.4f} with non-negative weights of any sum (least squares); {fisher:.4f} after "
        "Fisher's transformation",
        f"errors up to {allowed:.0e}",
        Verdict.of(error <= allowed + SLACK),
        "Perhaps cases without a defined correlation were left out metric by metric, or totals are "
        "of other cases or another mean than columns."
        if error > allowed
        else "",
        tuple((2, row) for row in table.rows),
    )
    found = model_counts(printed)
    if found:
        whole = sum(found[0].cases)
        computed = _weighted(table, OURS, [n / whole for n in found[0].cases])
        yield Finding(
            "ufo-2-total-as-table-1",
            PAPER,
            "Table 2",
            "UFO: Total",
            "UFO's total with the weights that Table 1 implies",
            table.cells[OURS]["total"],
            f"{computed.value:.4f}",
            interval(computed, 5),
            Verdict.of(computed.may_equal(table(OURS, "total"))),
            "People ranked 100 of the cases, which may share otherwise among paradigms; but see "
            "ufo-2-total-weights.",
        )


def _best_metrics(printed: Printed) -> Iterator[Finding]:
    table = printed.table(PAPER, 2)
    for column in (*COLUMNS, "total"):
        first, second, *_ = _order(table, column)
        yield Finding(
            f"ufo-2-best:{column}",
            PAPER,
            "Table 2",
            f"{column}: best, second",
            "UFO agrees best with people",
            "UFO",
            f"{first}, then {second}",
            "",
            Verdict.of(first == OURS),
        )


def _judged(printed: Printed) -> Iterator[Finding]:
    table = printed.table(PAPER, 2)
    floor, local = printed.claims["ufo_judged_floor"], printed.claims["ufo_judged_local"]
    totals = {r: table(r, "total") for r in (*JUDGED, WEAK)}
    below = [r for r, t in totals.items() if t.value <= floor.exact]
    yield Finding(
        "ufo-judged-floor",
        PAPER,
        floor.where,
        "Table 2, Total of VIEScore and DreamBench++",
        "Every metric by a multi-modal model lies above",
        floor.printed,
        "; ".join(f"{r} {t.value:.4f}" for r, t in totals.items()),
        "",
        Verdict.of(not below),
        f"Not {listed(below)}; the text means those that judge conditions, not picture quality."
        if below
        else "",
    )
    values = {r: table(r, "local") for r in JUDGED}
    near = all(abs(v.value - local.exact) <= 0.01 for v in values.values())
    yield Finding(
        "ufo-judged-local",
        PAPER,
        local.where,
        "Table 2, Local of VIEScore SC, O and DreamBench++",
        "Each lies within 0.01 of it",
        f"about {local.printed}",
        "; ".join(f"{r} {v.value:.4f}" for r, v in values.items()),
        "",
        Verdict.of(near),
    )


def _ablation(printed: Printed) -> Iterator[Finding]:
    second, third = printed.table(PAPER, 2), printed.table(PAPER, 3)
    full = third(OURS, "correlation")
    yield Finding(
        "ufo-3-full",
        PAPER,
        "Tables 2 and 3",
        "UFO: correlation",
        "The full setting has Table 2's Total",
        third.cells[OURS]["correlation"],
        second.cells[OURS]["total"],
        "",
        Verdict.of(third.cells[OURS]["correlation"] == second.cells[OURS]["total"]),
    )
    for row in third.rows:
        if row == OURS:
            continue
        change = 100 * (third(row, "correlation") / full - 1)
        same = [
            r
            for r in second.rows
            if r != OURS and second.cells[r]["total"] == third.cells[row]["correlation"]
        ]
        yield Finding(
            f"ufo-3-drop:{row}",
            PAPER,
            "Table 3",
            f"{row}: correlation",
            "The part helps: the correlation without it is lower",
            third.cells[row]["correlation"],
            f"{change.value:.1f} %",
            f"{interval(change, 2)} %",
            Verdict.of(full.surely_above(third(row, "correlation"))),
        )
        yield Finding(
            f"ufo-3-own-number:{row}",
            PAPER,
            "Tables 2 and 3",
            f"{row}: correlation",
            "The setting has a number of its own, not another metric's Total",
            third.cells[row]["correlation"],
            f"the same digits as {listed(same)}" if same else "no Total is the same",
            "",
            Verdict.of(not same),
            f"The ablation may simply be {listed(same)}; two runs that agree to four digits are "
            "unlikely."
            if same
            else "",
            ((3, row),),
        )


def _citation(printed: Printed) -> Iterator[Finding]:
    text, table = printed.claims["ufo_dino_text"], printed.claims["ufo_dino_table"]
    yield Finding(
        "ufo-dino-reference",
        PAPER,
        f"{text.where}, {table.where}",
        "DINO",
        "One metric is cited to one paper",
        f"[{text.printed}] ({text.where})",
        f"[{table.printed}] ({table.where})",
        "",
        Verdict.of(text.printed == table.printed),
        f"Reference [{text.printed}] is an object detector of the same name; the metric is of "
        f"[{table.printed}]."
        if text.printed != table.printed
        else "",
    )


def beside(printed: Printed) -> dict[str, list[dict[str, str]]]:
    """Rows of each printed table with what was recomputed beside it, all as text to be read."""
    return {
        printed.table(PAPER, 1).name: _beside_1(printed),
        printed.table(PAPER, 2).name: _beside_2(printed),
        printed.table(PAPER, 3).name: _beside_3(printed),
    }


def _as_printed(table: Table, row: str) -> dict[str, str]:
    return {"method": row} | {f"{c} (printed)": table.cells[row][c] for c in table.columns}


def _shares(printed: Printed) -> list[float]:
    """The weights that Table 1 implies, or those that come closest."""
    found = model_counts(printed)
    if found:
        return [n / sum(found[0].cases) for n in found[0].cases]
    return list(best_weights(*matrix(printed.table(PAPER, 1)))[1])


def _beside_1(printed: Printed) -> list[dict[str, str]]:
    table, shares = printed.table(PAPER, 1), _shares(printed)
    rows = []
    for row in table.rows:
        micro, macro = _weighted(table, row, shares), _weighted(table, row, [0.25] * 4)
        out = _as_printed(table, row)
        out["total over cases (recomputed)"] = f"{micro.value:.5f}"
        out["total over cases, interval (recomputed)"] = interval(micro, 5)
        out["mean of columns (recomputed)"] = f"{macro.value:.5f}"
        out["rank by total (recomputed)"] = str(_order(table, "total").index(row) + 1)
        rows.append(out)
    return rows


def _beside_2(printed: Printed) -> list[dict[str, str]]:
    table, shares = printed.table(PAPER, 2), _shares(printed)
    _, weights = best_weights(*matrix(table))
    rows = []
    for row in table.rows:
        out = _as_printed(table, row)
        closest = _weighted(table, row, list(weights))
        out["total with Table 1's weights (recomputed)"] = (
            f"{_weighted(table, row, shares).value:.4f}"
        )
        out["total with closest common weights (recomputed)"] = f"{closest.value:.4f}"
        for column in (*COLUMNS, "total"):
            ours = row == OURS
            out[f"gain {column}, % (printed)"] = (
                printed.claims[f"ufo_gain_{column}"].printed if ours else ""
            )
            out[f"gain {column}, % (recomputed)"] = (
                f"{gain(table, column)[0].value:.2f}" if ours else ""
            )
        rows.append(out)
    return rows


def _beside_3(printed: Printed) -> list[dict[str, str]]:
    table = printed.table(PAPER, 3)
    rows = []
    for row in table.rows:
        change = 100 * (table(row, "correlation") / table(OURS, "correlation") - 1)
        out = _as_printed(table, row)
        out["change, % (recomputed)"] = "" if row == OURS else f"{change.value:.1f}"
        rows.append(out)
    return rows
