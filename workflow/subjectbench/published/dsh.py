"""Audit of DSH-Bench's Tables 1 to 3, equation (1) and the numbers of its text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np
from scipy.stats import spearmanr

from subjectbench.errors import InputError
from subjectbench.published.data import Printed, Table
from subjectbench.published.finding import Finding, Verdict, interval, listed
from subjectbench.published.rounded import Rounded
from subjectbench.statistics import leaderboard
from subjectbench.statistics.pareto import pareto_front

PAPER = "DSH-Bench"
DIMENSIONS = ("subject_preservation", "prompt_following", "image_quality")
METRICS = ("clip_b", "clip_l", "dino", "dinov2", "gpt4o", "sics")
OTHERS = {"dreambench": "DreamBench", "dreambench_plus": "DreamBench++"}
SHORT = {"subject_preservation": "SP", "prompt_following": "PF", "image_quality": "IQ"}


@dataclass(frozen=True)
class Swap:
    """Two rows whose numbers in these columns stand in each other's place."""

    rows: tuple[str, str]
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Formula:
    """Equation (1) with the paper's constant and weights."""

    constant: float
    weights: tuple[float, float, float]

    @classmethod
    def of(cls, printed: Printed) -> Formula:
        """As the paper states it."""
        preservation, following, quality = (
            printed.claims[f"dsh_weight_{n}"].exact
            for n in ("preservation", "following", "quality")
        )
        constant = printed.claims["dsh_constant"].exact
        return cls(constant, (preservation, following, quality))

    def exact(self, values: Sequence[float]) -> float:
        """S_h of three numbers as they stand.

        Raises:
            InputError: one is not positive.
        """
        sp, pf, iq = values
        found = leaderboard.s_h(sp, pf, iq, self.weights, self.constant)
        if found.value is None:
            raise InputError("published", f"S_h of {sp}, {pf}, {iq} is undefined: {found.reason}")
        return found.value

    def __call__(self, cells: Sequence[Rounded]) -> Rounded:
        """S_h of one row; it grows with each dimension, so bounds give bounds."""
        value, low, high = ([getattr(c, end) for c in cells] for end in ("value", "low", "high"))
        return Rounded(self.exact(value), self.exact(low), self.exact(high))

    def row(self, table: Table, row: str) -> Rounded:
        """S_h of a row of Table 3."""
        return self([table(row, d) for d in DIMENSIONS])


def agrees(table: Table, row: str, formula: Formula) -> bool:
    """Whether rounding can explain a row's S_h in Table 3."""
    return formula.row(table, row).may_equal(table(row, "s_h"))


def wrong_rows(table: Table, formula: Formula) -> list[str]:
    """Rows of Table 3 whose S_h no rounding makes of their other cells."""
    return [row for row in table.rows if not agrees(table, row, formula)]


def exchanged(table: Table, swap: Swap) -> Table:
    """The table with a swap undone."""
    a, b = swap.rows
    of_a, of_b = ({c: table.cells[r][c] for c in swap.columns} for r in (a, b))
    return table.changed(a, **of_b).changed(b, **of_a)


def find_swaps(table: Table, formula: Formula) -> list[Swap]:
    """Pairs of wrong rows that both come right when some columns are exchanged between them."""
    wrong, found = wrong_rows(table, formula), []
    for rows in combinations(wrong, 2):
        for size in range(1, len(DIMENSIONS) + 1):
            for columns in combinations(DIMENSIONS, size):
                swap = Swap(rows, columns)
                right = exchanged(table, swap)
                if all(agrees(right, row, formula) for row in rows):
                    found.append(swap)
    return found


def mended(table: Table, swaps: list[Swap]) -> Table:
    """Table 3 with each row's first swap undone."""
    done: set[str] = set()
    for swap in swaps:
        if not done & set(swap.rows):
            table = exchanged(table, swap)
            done |= set(swap.rows)
    return table


def audit(printed: Printed) -> list[Finding]:
    """Every check of this paper."""
    formula = Formula.of(printed)
    table = printed.table(PAPER, 3)
    swaps = find_swaps(table, formula)
    right = mended(table, swaps)
    return [
        *_scores(table, swaps, formula),
        *_swaps(printed, table, swaps, formula),
        *_order(right, formula),
        *_constant(right, formula),
        *_front(table, right),
        *_best(printed, table),
        *_base_models(printed, table, swaps),
        *_against_table_2(printed, table, right, formula),
        *_lowest(printed),
        *_gains(printed),
        *_first_and_second(printed),
        *_spearman_below_kendall(printed),
        *_methods(printed),
        *_counts(printed),
    ]


def _scores(table: Table, swaps: list[Swap], formula: Formula) -> Iterator[Finding]:
    partner = {r: s for s in swaps for r in s.rows}
    for row in table.rows:
        said, computed = table(row, "s_h"), formula.row(table, row)
        holds = said.may_equal(computed)
        cause = ""
        if holds and f"{computed.value:.3f}" != table.cells[row]["s_h"]:
            cause = (
                f"Its cells as they stand give {computed.value:.3f}; what they were rounded from "
                "can give what is printed."
            )
        elif not holds and row in partner:
            other = next(r for r in partner[row].rows if r != row)
            names = " and ".join(SHORT[c] for c in partner[row].columns)
            cause = f"{names} stand in each other's row with {other}: see dsh-3-swap."
        elif not holds:
            cause = "No rounding explains it. " + _would_need(table, row, formula)
        yield Finding(
            f"dsh-3-s_h:{row}",
            PAPER,
            "Table 3",
            f"{row}: S_h",
            "S_h by equation (1) from the row's SP, PF and IQ",
            table.cells[row]["s_h"],
            f"{computed.value:.5f}",
            interval(computed, 5),
            Verdict.of(holds),
            cause,
            ((3, row),),
        )


def _would_need(table: Table, row: str, formula: Formula) -> str:
    """Which single cell would have to be what, the others being as printed."""
    options = []
    for column in DIMENSIONS:
        cells = {d: table(row, d).value for d in DIMENSIONS}
        fitting = []
        for thousandths in range(1, 1000):
            cells[column] = thousandths / 1000
            if f"{formula.exact(list(cells.values())):.3f}" == table.cells[row]["s_h"]:
                fitting.append(cells[column])
        if fitting:
            options.append(f"{SHORT[column]} {fitting[0]:.3f} to {fitting[-1]:.3f}")
    if not options:
        return "No other value of one of its cells gives it either."
    return (
        f"One cell would have to be another: {' or '.join(options)}. Perhaps S_h is of another "
        "run than the cells."
    )


def _swaps(
    printed: Printed, table: Table, swaps: list[Swap], formula: Formula
) -> Iterator[Finding]:
    second = printed.table(PAPER, 2)
    for swap in swaps:
        right = exchanged(table, swap)
        a, b = swap.rows
        cells, seen = [], []
        for row in swap.rows:
            values = " / ".join(right.cells[row][c] for c in swap.columns)
            cells.append(f"{row} {values}, S_h {formula.row(right, row).value:.5f}")
            if row in second.rows:
                same = all(
                    second.cells[row][f"{c}_dsh_bench"] == right.cells[row][c] for c in swap.columns
                )
                seen.append(f"{row}: Table 2 has {'the same' if same else 'other'} values")
        yield Finding(
            f"dsh-3-swap:{a}:{b}",
            PAPER,
            "Table 3",
            f"{a}, {b}: {', '.join(SHORT[c] for c in swap.columns)}",
            "Exchanging columns between two rows that disagree makes both agree",
            "; ".join(f"{r} {' / '.join(table.cells[r][c] for c in swap.columns)}" for r in (a, b)),
            "; ".join(cells),
            "",
            Verdict.DISAGREES,
            "The two rows' numbers were probably exchanged when the table was set. "
            + (". ".join(seen) + "." if seen else "Neither is in Table 2."),
            ((3, a), (3, b)),
        )


def _order(right: Table, formula: Formula) -> Iterator[Finding]:
    said = right.column("s_h")
    rows = right.rows
    falls = all(said[a].value >= said[b].value for a, b in pairwise(rows))
    yield Finding(
        "dsh-3-sorted",
        PAPER,
        "Table 3",
        "S_h",
        "Rows are in the order of the printed S_h",
        "ranked by S_h",
        "never rises" if falls else "rises",
        "",
        Verdict.of(falls),
    )
    score = {row: formula.row(right, row) for row in rows}
    wrong = [
        f"{b} ({score[b].value:.5f}) above {a} ({score[a].value:.5f})"
        for a, b in combinations(rows, 2)
        if score[b].surely_above(score[a])
    ]
    ties = all(
        said[a].value == said[b].value
        for a, b in combinations(rows, 2)
        if score[b].surely_above(score[a])
    )
    yield Finding(
        "dsh-3-order",
        PAPER,
        "Table 3",
        "order of rows",
        "Rows are in the order of S_h as recomputed, swaps undone, beyond rounding",
        "ranked by S_h",
        listed(wrong) if wrong else "same order",
        "",
        Verdict.of(not wrong),
        "The printed scores tie and were left in another order." if wrong and ties else "",
    )


def _constant(right: Table, formula: Formula) -> Iterator[Finding]:
    total = sum(formula.weights)
    unit = Formula(1.0, formula.weights)
    rows = [row for row in right.rows if agrees(right, row, formula)]
    implied = [right(row, "s_h") / unit.row(right, row) for row in rows]
    yield Finding(
        "dsh-eq1-constant",
        PAPER,
        "equation (1)",
        "constant and weights",
        "The constant of a weighted harmonic mean is the sum of its weights",
        f"{formula.constant:g}",
        f"{total:g}; with {formula.constant:g}, three dimensions of 1 give "
        f"{formula.exact([1.0] * 3):g}",
        f"Table 3 follows a constant of {max(i.low for i in implied):.4f} to "
        f"{min(i.high for i in implied):.4f}",
        Verdict.of(math.isclose(total, formula.constant)),
        "The 3 of an unweighted mean of three was probably kept when weights were added. Ranks are "
        f"the same; the true mean is {total / formula.constant:.4g} times what is printed.",
    )


def _front(table: Table, right: Table) -> Iterator[Finding]:
    def points(source: Table) -> list[list[float]]:
        return [[source(r, d).value for d in DIMENSIONS[:2]] for r in source.rows]

    def front(source: Table) -> list[str]:
        return [
            r for r, on in zip(source.rows, pareto_front(points(source)), strict=True) if bool(on)
        ]

    yield Finding(
        "dsh-3-front",
        PAPER,
        "Table 3",
        "SP, PF",
        "Pareto front of preservation and following",
        "in the supplement, which is not at hand",
        f"{listed(front(right))} (swaps undone); {listed(front(table))} (as printed)",
        "",
        Verdict.UNCHECKED,
    )
    rho = float(spearmanr(np.array(points(right))).statistic)
    yield Finding(
        "dsh-3-trade-off",
        PAPER,
        "Table 3",
        "SP, PF",
        "Methods that preserve better follow prompts worse: Spearman's rho below 0, swaps undone",
        "a trade-off",
        f"rho {rho:.3f} over {len(right.rows)} methods",
        "",
        Verdict.of(rho < 0),
        ""
        if rho < 0
        else "Over methods the two rise together. A trade-off within a method, or between the few "
        "methods of the front, would not show in this number.",
    )


def _best(printed: Printed, table: Table) -> Iterator[Finding]:
    said = table.column("s_h")
    best = max(said, key=lambda r: said[r].value)
    closed = printed.claims["dsh_best"].printed
    best_open = max((r for r in said if r != closed), key=lambda r: said[r].value)
    for claim_id, found in (("dsh_best", best), ("dsh_best_open", best_open)):
        claim = printed.claims[claim_id]
        yield Finding(
            claim_id.replace("_", "-"),
            PAPER,
            claim.where,
            "Table 3, S_h",
            claim.of,
            claim.printed,
            found,
            "",
            Verdict.of(found == claim.printed),
        )


def _base_models(printed: Printed, table: Table, swaps: list[Swap]) -> Iterator[Finding]:
    partner = {r: next(o for o in s.rows if o != r) for s in swaps for r in s.rows}
    for row, known in printed.base_models.items():
        said = table.cells[row]["base_model"]
        cause = ""
        if said != known and row in partner:
            cause = f"Its SP and PF were exchanged with {partner[row]}'s. "
            if table.cells[partner[row]]["base_model"] == known:
                cause += "The column of base models fits exchanged rows too. "
        yield Finding(
            f"dsh-3-base:{row}",
            PAPER,
            "Table 3",
            f"{row}: T2I model",
            "What the published checkpoint stands on",
            said,
            known,
            "",
            Verdict.of(said == known),
            cause + "The authors may have used another checkpoint than the published one."
            if said != known
            else "",
        )


def _against_table_2(
    printed: Printed, table: Table, right: Table, formula: Formula
) -> Iterator[Finding]:
    second = printed.table(PAPER, 2)
    for row in second.rows:
        if row not in table.rows:
            continue
        cells = {d: second.cells[row][f"{d}_dsh_bench"] for d in DIMENSIONS}
        differing = [d for d in DIMENSIONS if cells[d] != table.cells[row][d]]
        causes = []
        for d in differing:
            if right.cells[row][d] == cells[d]:
                causes.append(f"{SHORT[d]}: Table 3's stands in another row, see dsh-3-swap")
                continue
            with_it = formula.row(right.changed(row, **{d: cells[d]}), row)
            fits = with_it.may_equal(right(row, "s_h"))
            causes.append(
                f"{SHORT[d]}: Table 2's gives S_h {with_it.value:.5f}, which "
                f"{'also fits' if fits else 'does not fit'} the printed {right.cells[row]['s_h']}"
            )
            place = right.rows.index(row)
            near = [r for r in right.rows[max(0, place - 1) : place + 2] if r != row]
            same = [r for r in near if right.cells[r][d] == table.cells[row][d]]
            causes += [f"Table 3's is that of the row beside, {same[0]}"] if same else []
        yield Finding(
            f"dsh-2-3:{row}",
            PAPER,
            "Tables 2 and 3",
            f"{row}: {', '.join(SHORT[d] for d in differing) or 'SP, PF, IQ'}",
            "Table 2's columns of DSH-Bench are Table 3's",
            " / ".join(cells[d] for d in differing or DIMENSIONS) + " (Table 2)",
            " / ".join(table.cells[row][d] for d in differing or DIMENSIONS) + " (Table 3)",
            "",
            Verdict.of(not differing),
            "; ".join(causes),
            ((2, row), (3, row)),
        )


def _lowest(printed: Printed) -> Iterator[Finding]:
    second = printed.table(PAPER, 2)
    certain = printed.claims["dsh_lower_on_dreambench"]
    for d in DIMENSIONS:
        own = second.column(f"{d}_dsh_bench")
        others = {o: second.column(f"{d}_{o}") for o in OTHERS}
        lowest = [
            r for r in second.rows if all(own[r].value <= c[r].value for c in others.values())
        ]
        alone = [r for r in lowest if all(own[r].value < c[r].value for c in others.values())]
        ties = [
            f"{r} with {OTHERS[o]}"
            for r in lowest
            for o, c in others.items()
            if own[r].value == c[r].value
        ]
        rest = [r for r in second.rows if r not in lowest]
        yield Finding(
            f"dsh-2-lowest:{SHORT[d]}",
            PAPER,
            "Table 2",
            f"{SHORT[d]}: minimum of each row",
            "DSH-Bench is harder: it has the row's minimum for most methods",
            "DSH-Bench is more difficult (caption; which cells are bold is not in the text)",
            f"minimum in {len(lowest)} of {len(own)} rows, alone in {len(alone)}",
            "",
            Verdict.of(2 * len(lowest) > len(own)),
            (f"Ties: {listed(ties)}. " if ties else "") + f"Not the minimum: {listed(rest)}.",
        )
        if d == "prompt_following":
            lower = [r for r in second.rows if own[r].value > others["dreambench"][r].value]
            most = max((own[r].value - others["dreambench"][r].value for r in lower), default=0.0)
            few = 2 * len(lower) < len(own)
            yield Finding(
                "dsh-2-lower-on-dreambench",
                PAPER,
                certain.where,
                "Table 2, PF",
                certain.of,
                certain.printed,
                f"{len(lower)} of {len(own)}, by at most {most:.3f}: {listed(lower)}",
                "",
                Verdict.of(few),
                "" if few else "It is most methods: by prompt following DreamBench is the harder.",
            )


def _gains(printed: Printed) -> Iterator[Finding]:
    table = printed.table(PAPER, 1)
    for claim_id, kinds in (
        ("dsh_gain_kendall", ["kendall"]),
        ("dsh_gain_spearman", ["spearman"]),
        ("dsh_gain_abstract", ["kendall"]),
    ):
        claim = printed.claims[claim_id]
        for kind in kinds:
            gain = 100 * (table("ALL", f"{kind}_sics") / table("ALL", f"{kind}_gpt4o") - 1)
            yield Finding(
                claim_id.replace("_", "-"),
                PAPER,
                claim.where,
                f"Table 1, ALL: H-S over H-G, {kind.title()}",
                claim.of,
                claim.printed,
                f"{gain.value:.3f}",
                interval(gain, 3),
                Verdict.of(gain.may_equal(claim.rounded)),
                "A relative gain, not one in points of correlation.",
            )


def _ranked(table: Table, row: str, kind: str) -> list[str]:
    """Metrics of a row, best first."""
    return sorted(METRICS, key=lambda m: -table(row, f"{kind}_{m}").value)


def _first_and_second(printed: Printed) -> Iterator[Finding]:
    table = printed.table(PAPER, 1)
    claim = printed.claims["dsh_second"]
    for kind in ("kendall", "spearman"):
        order = {row: _ranked(table, row, kind) for row in table.rows}
        second = [row for row in table.rows if order[row].index("sics") == 1]
        lower = [row for row in table.rows if order[row].index("sics") > 1]
        others = [f"{order[row][0]} in {row}" for row in second]
        yield Finding(
            f"dsh-1-second:{kind}",
            PAPER,
            claim.where,
            f"Table 1, {kind.title()}",
            "Rows in which SICS is second, not first",
            claim.printed,
            listed(second) + (f" (first: {listed(others)})" if others else ""),
            "",
            Verdict.of(set(second) == set(claim.printed.split(", ")) and not lower),
            f"First in the other {len(table.rows) - len(second) - len(lower)} rows, lower in "
            f"{len(lower)}. The text makes no difference between the two coefficients.",
        )


def _spearman_below_kendall(printed: Printed) -> Iterator[Finding]:
    table = printed.table(PAPER, 1)

    def pair(row: str, metric: str) -> tuple[Rounded, Rounded]:
        return table(row, f"kendall_{metric}"), table(row, f"spearman_{metric}")

    below = [
        (row, metric)
        for row in table.rows
        for metric in METRICS
        if pair(row, metric)[0].surely_above(pair(row, metric)[1])
    ]
    rows = list(dict.fromkeys(row for row, _ in below))
    ratios = [
        rho.value / tau.value
        for row in table.rows
        if row not in rows
        for tau, rho in (pair(row, m) for m in METRICS)
    ]
    shown = [
        f"{row} {metric} {pair(row, metric)[1].value:.3f} < {pair(row, metric)[0].value:.3f}"
        for row, metric in below
    ]
    yield Finding(
        "dsh-1-spearman-below-kendall",
        PAPER,
        "Table 1",
        listed([f"{row}: {metric}" for row, metric in below]),
        "Spearman's rho is not below Kendall's tau, as for usual ratings and in the other rows",
        f"{len(below)} of {len(table.rows) * len(METRICS)} cells below: {'; '.join(shown)}"
        if below
        else "no cell below",
        f"rho / tau is {min(ratios):.2f} to {max(ratios):.2f} in all other rows",
        "",
        Verdict.of(not below),
        "Not impossible, but hard to make of real ratings. These rows are of methods that Figure 7 "
        "lacks: perhaps added later, from other samples, or mistyped."
        if below
        else "",
        tuple((1, row) for row in rows),
    )


def _methods(printed: Printed) -> Iterator[Finding]:
    first, second, third = (printed.table(PAPER, n) for n in (1, 2, 3))
    claims = printed.claims
    rated = [r for r in first.rows if r != "ALL"]
    total = claims["dsh_methods"]

    def finding(id_: str, place: str, cells: str, check: str, said: str, n: int, cause: str):
        return Finding(
            id_, PAPER, place, cells, check, said, str(n), "", Verdict.of(float(said) == n), cause
        )

    yield finding(
        "dsh-methods", total.where, "Table 3", "Rows of Table 3", total.printed, len(third.rows), ""
    )
    takeaways = claims["dsh_methods_takeaways"]
    yield finding(
        "dsh-methods-takeaways",
        takeaways.where,
        "Table 3",
        "Rows of Table 3",
        takeaways.printed,
        len(third.rows),
        f"Figure 7 shows {claims['dsh_methods_figure_7'].printed} as well: the text is probably of "
        "before the last methods were added.",
    )
    yield finding(
        "dsh-1-methods",
        "Table 1",
        "rows",
        "Methods of Table 1 are those of section 4.1",
        total.printed,
        len(rated),
        f"Not rated by people: {listed([r for r in third.rows if r not in rated])}. The text does "
        "not say why.",
    )
    closed = claims["dsh_best"].printed
    missing = [r for r in third.rows if r not in second.rows and r != closed]
    yield finding(
        "dsh-2-methods",
        "Table 2",
        "rows",
        "Methods of Table 2 are the open ones of Table 3",
        str(len(third.rows) - 1),
        len(second.rows),
        f"Not compared across benchmarks: {listed(missing)}. The text does not say why.",
    )


def _counts(printed: Printed) -> Iterator[Finding]:
    c = printed.claims

    def finding(claim_id: str, check: str, computed: Rounded, digits: int, cause: str = ""):
        claim = c[claim_id]
        return Finding(
            claim_id.replace("_", "-"),
            PAPER,
            claim.where,
            claim.of,
            check,
            claim.printed,
            f"{computed.value:.{digits}f}",
            "",
            Verdict.of(computed.may_equal(claim.rounded)),
            cause,
        )

    exact = Rounded.exactly
    subjects, categories = c["dsh_subjects"].exact, c["dsh_categories"].exact
    per_subject = c["dsh_scenarios"].exact * c["dsh_prompts_per_scenario"].exact
    yield finding(
        "dsh_prompts",
        "subjects x scenarios x prompts per scenario",
        exact(subjects * per_subject),
        0,
    )
    grown = subjects / c["dreambench_subjects"].exact
    yield finding("dsh_times_subjects", "subjects over those of DreamBench", exact(grown), 2)
    times = categories / c["dreambench_categories"].exact
    yield finding(
        "dsh_times_categories",
        "categories over those of DreamBench",
        exact(times),
        2,
        f"As what was added, {times - 1:.2f}, it would be 8 cut off instead of rounded; but then "
        f"subjects, in the same sentence, would be {grown - 1:.1f}.",
    )
    share = 100 * c["dsh_prompts_per_scenario"].exact / per_subject
    yield finding("dsh_attribute_share", "one scenario's share of prompts", exact(share), 2)
    for claim_id, whole, unit in (
        ("dreambench_attribute_share", _dreambench_prompts(printed), "prompts"),
        ("dsh_absent_share", categories, "categories"),
    ):
        claim = c[claim_id]
        fitting = [
            k for k in range(int(whole) + 1) if exact(100 * k / whole).may_equal(claim.rounded)
        ]
        yield Finding(
            claim_id.replace("_", "-"),
            PAPER,
            claim.where,
            claim.of,
            f"A share that some number of {whole:g} {unit} can have",
            claim.printed,
            f"{listed([str(k) for k in fitting])} of {whole:g}",
            "",
            Verdict.UNCHECKED if fitting else Verdict.DISAGREES,
            "Which ones is not printed.",
        )
    price = c["dsh_cost"].exact / c["dsh_calls"].exact
    yield Finding(
        "dsh-cost",
        PAPER,
        c["dsh_cost"].where,
        c["dsh_cost"].of,
        "Cost over calls",
        f"more than {c['dsh_cost'].printed}, about {c['dsh_calls'].printed} calls",
        f"{price:.3g} per call",
        "",
        Verdict.UNCHECKED,
        "Prices and tokens are not printed.",
    )


def _dreambench_prompts(printed: Printed) -> float:
    c = printed.claims
    return c["dreambench_subjects"].exact * c["dreambench_prompts_per_subject"].exact


def beside(printed: Printed) -> dict[str, list[dict[str, str]]]:
    """Rows of each printed table with what was recomputed beside it, all as text to be read."""
    return {
        printed.table(PAPER, 1).name: _beside_1(printed),
        printed.table(PAPER, 2).name: _beside_2(printed),
        printed.table(PAPER, 3).name: _beside_3(printed),
    }


def _beside_1(printed: Printed) -> list[dict[str, str]]:
    table = printed.table(PAPER, 1)
    rows = []
    for row in table.rows:
        out = {"method": row, **{f"{c} (printed)": table.cells[row][c] for c in table.columns}}
        for kind in ("kendall", "spearman"):
            first, second, *_ = _ranked(table, row, kind)
            out[f"{kind}: first, second (recomputed)"] = f"{first}, {second}"
            gain = 100 * (table(row, f"{kind}_sics") / table(row, f"{kind}_gpt4o") - 1)
            out[f"{kind}: SICS over GPT-4o, % (recomputed)"] = f"{gain.value:.2f}"
        rows.append(out)
    return rows


def _beside_2(printed: Printed) -> list[dict[str, str]]:
    table, third = printed.table(PAPER, 2), printed.table(PAPER, 3)
    rows = []
    for row in table.rows:
        out = {"method": row}
        for d in DIMENSIONS:
            names = {**OTHERS, "dsh_bench": "DSH-Bench"}
            cells = {o: table(row, f"{d}_{o}") for o in names}
            out |= {
                f"{SHORT[d]}, {names[o]} (printed)": table.cells[row][f"{d}_{o}"] for o in cells
            }
            low = min(c.value for c in cells.values())
            lowest = [names[o] for o, c in cells.items() if c.value == low]
            out[f"{SHORT[d]}: minimum (recomputed)"] = ", ".join(lowest)
            out[f"{SHORT[d]} of Table 3 (printed)"] = (
                third.cells[row][d] if row in third.rows else ""
            )
        rows.append(out)
    return rows


def _beside_3(printed: Printed) -> list[dict[str, str]]:
    table, formula = printed.table(PAPER, 3), Formula.of(printed)
    right = mended(table, find_swaps(table, formula))
    true = Formula(sum(formula.weights), formula.weights)
    scores = {row: formula.row(right, row) for row in right.rows}
    order = sorted(right.rows, key=lambda r: -scores[r].value)
    rows = []
    for row in table.rows:
        as_it_stands = formula.row(table, row)
        out = {"method": row}
        out |= {f"{SHORT.get(c, c)} (printed)": table.cells[row][c] for c in table.columns}
        out["s_h (recomputed)"] = f"{as_it_stands.value:.5f}"
        out["s_h interval (recomputed)"] = interval(as_it_stands, 5)
        out |= {
            f"{SHORT[d]}, swap undone": right.cells[row][d]
            if right.cells[row] != table.cells[row]
            else ""
            for d in DIMENSIONS[:2]
        }
        out["s_h, swaps undone (recomputed)"] = f"{scores[row].value:.5f}"
        out["rank, swaps undone (recomputed)"] = str(order.index(row) + 1)
        out["weighted harmonic mean (recomputed)"] = f"{true.row(right, row).value:.5f}"
        rows.append(out)
    return rows
