"""The audit of both papers: findings, and each printed table beside what was recomputed."""

from __future__ import annotations

from dataclasses import asdict, fields

import pandas as pd

from subjectbench.published import dsh, ufo
from subjectbench.published.data import Printed
from subjectbench.published.finding import Finding, Verdict


def findings(printed: Printed) -> list[Finding]:
    """Every check of both papers, in the order of papers and tables."""
    return [*dsh.audit(printed), *ufo.audit(printed)]


def tables(printed: Printed) -> dict[str, pd.DataFrame]:
    """What the study ``published`` shows.

    Returns:
        ``audit``: checks that fail or cannot be made; ``audit_agreements``: those that hold; and
        each printed table under its own name. Cells are text, so that digits stay as they are.
    """
    found = findings(printed)
    frames = {
        "audit": _frame([f for v in (Verdict.DISAGREES, Verdict.UNCHECKED) for f in _of(found, v)]),
        "audit_agreements": _frame(_of(found, Verdict.AGREES)),
    }
    for name, rows in {**dsh.beside(printed), **ufo.beside(printed)}.items():
        frames[name] = pd.DataFrame(rows, dtype=str)
    return frames


def _of(found: list[Finding], verdict: Verdict) -> list[Finding]:
    return [f for f in found if f.verdict is verdict]


def _frame(found: list[Finding]) -> pd.DataFrame:
    rows = [{**asdict(f), "verdict": str(f.verdict)} for f in found]
    columns = [f.name for f in fields(Finding) if f.name != "about"]
    return pd.DataFrame(rows, columns=columns, dtype=str)
