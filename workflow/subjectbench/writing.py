"""Three ways to write a table: CSV with raw numbers, Markdown and LaTeX for reading."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from subjectbench.errors import InputError, suggest
from subjectbench.statistics.correlation import DECIMALS

DASH = "–"
"""What a missing value looks like in Markdown and LaTeX."""

HEADERS = {
    "s_h": "S_h",
    "s_h_harmonic": "harmonic mean",
    "s_h_ci_low": "S_h CI low",
    "s_h_ci_high": "S_h CI high",
    "kendall_tau_b": "Kendall τ-b",
    "kendall_tau_b_fisher": "Kendall τ-b (Fisher mean)",
    "spearman": "Spearman ρ",
    "spearman_ci_low": "Spearman ρ CI low",
    "spearman_ci_high": "Spearman ρ CI high",
    "spearman_fisher": "Spearman ρ (Fisher mean)",
    "pairwise_spearman": "pairwise Spearman ρ",
    "pairwise_spearman_ci_low": "pairwise Spearman ρ CI low",
    "pairwise_spearman_ci_high": "pairwise Spearman ρ CI high",
    "kendall_w": "Kendall W",
    "kendall_w_n": "Kendall W n",
    "p_value": "p",
    "rho": "ρ",
    "rho_metric": "ρ of metric",
    "rho_baseline": "ρ of baseline",
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


def header(column: str) -> str:
    """A column's name as people read it; of a number that was not measured, it says so."""
    stem = column.removesuffix("_printed")
    text = HEADERS.get(stem, stem.replace("_", " "))
    return text if stem == column else f"{text} (printed)"


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


def off_lock(versions: Mapping[str, str]) -> str:
    """Say below a table which packages that its numbers depend on were not those of the lock.

    Args:
        versions: from ``store.identity.off_lock``; empty where all were, which needs no word.
    """
    if not versions:
        return ""
    told = ", ".join(f"{name} {text}" for name, text in sorted(versions.items()))
    return f"Made with other versions than envs/requirements.txt pins: {told}."


def to_markdown(frame: pd.DataFrame, caption: str = "", decimals: int = 3, footer: str = "") -> str:
    """A pipe table, caption above and footer below; missing values are an en dash."""
    right = _numeric(frame)
    lines = [f"{_escape_markdown(caption)}", ""] if caption else []
    lines.append("| " + " | ".join(_escape_markdown(header(str(c))) for c in frame.columns) + " |")
    lines.append("|" + "|".join(" ---: " if r else " :--- " for r in right) + "|")
    lines += ["| " + " | ".join(row) + " |" for row in _cells(frame, decimals, _escape_markdown)]
    lines += ["", _escape_markdown(footer)] if footer else []
    return "\n".join(lines) + "\n"


def to_latex(
    frame: pd.DataFrame, caption: str = "", label: str = "", decimals: int = 3, footer: str = ""
) -> str:
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
    lines += [r"    \toprule", row([escape_latex(header(str(c))) for c in frame.columns])]
    lines += [r"    \midrule", *(row(cells) for cells in _cells(frame, decimals, escape_latex))]
    lines += [r"    \bottomrule", r"  \end{tabular}"]
    lines += [rf"  \par\smallskip{{\footnotesize {escape_latex(footer)}}}"] if footer else []
    lines += [r"\end{table}"]
    return "\n".join(lines) + "\n"


def to_csv(frame: pd.DataFrame) -> str:
    r"""CSV with raw column names, floats rounded to 9 decimals, missing empty, ``\n`` line ends."""
    rounded = frame.copy()
    for column in rounded.columns:
        if pd.api.types.is_float_dtype(rounded[column]):
            rounded[column] = rounded[column].round(DECIMALS) + 0.0  # no -0.0
    text: str = rounded.to_csv(index=False, lineterminator="\n", na_rep="")
    return text


TEXT = (
    *("generator", "title", "metric", "metric_title", "baseline", "baseline_title"),
    *("sample_id", "case_id", "subject_id", "reference_id", "subject", "unit", "name"),
    *("domain", "kind", "category", "level", "paradigm", "benchmark", "dimension", "source"),
    *("best", "second", "place", "note", "printed_note", "reason", "others"),
)
"""Columns that are ids or names: 007, 1e3 and 2.10 are no numbers there."""


def read(path: Path, *, as_printed: bool = False) -> pd.DataFrame:
    """Read a CSV that ``write`` wrote: order as written, ids and names as text, empty is missing.

    Args:
        path: ends in ``.csv``.
        as_printed: everything as text, so that printed numbers keep their digits.
    """
    # A whole number with gaps would come back as 288.0.
    dtype: Any = "str" if as_printed else dict.fromkeys(TEXT, "str") | {"common": "Int64"}
    return pd.read_csv(path, dtype=dtype, keep_default_na=False, na_values=[""])


def compact(frame: pd.DataFrame) -> pd.DataFrame:
    """Fold each ``<x>_mean`` with its interval, n and coverage into one text column, for reading.

    ``0.409 [0.380, 0.431] (n = 118, 98 %)``; a ``<x>`` that has only ``<x>_ci_low`` and
    ``<x>_ci_high`` becomes ``0.409 [0.380, 0.431]``. Other columns stay as they are.
    """
    folded: dict[str, Any] = {}
    parts = ("ci_low", "ci_high", "n", "coverage")
    stems = [str(c).removesuffix("_mean") for c in frame.columns if str(c).endswith("_mean")]
    stems = [s for s in stems if all(f"{s}_{p}" in frame.columns for p in parts)]
    skip = {f"{s}_{p}" for s in stems for p in parts}
    ends = {c: [f"{c}_ci_low", f"{c}_ci_high"] for c in map(str, frame.columns)}
    ends = {c: pair for c, pair in ends.items() if all(e in frame.columns for e in pair)}
    skip |= {end for pair in ends.values() for end in pair}
    for column in map(str, frame.columns):
        stem = column.removesuffix("_mean")
        if column in skip:
            continue
        if column == f"{stem}_mean" and stem in stems:
            values = [list(frame[column]), *(list(frame[f"{stem}_{p}"]) for p in parts)]
            folded[stem] = [
                f"{_with_interval(*cell[:3])} {_counted(*cell[3:])}" for cell in zip(*values)
            ]
        elif column in ends:
            values = [list(frame[c]) for c in (column, *ends[column])]
            folded[column] = [_with_interval(*cell) for cell in zip(*values)]
        else:
            folded[column] = frame[column]
    return pd.DataFrame(folded)


def _with_interval(value: float, low: float, high: float) -> str:
    text = _shown(value, 3, "")
    if not _is_missing(low) and not _is_missing(high):
        text += f" [{_shown(low, 3, '')}, {_shown(high, 3, '')}]"
    return text


def _counted(n: int, coverage: float) -> str:
    # Rounded down: 99.6 % is not 100 %.
    return f"(n = {n}, {math.floor(coverage * 100 + 1e-9)} %)"


FORMATS = ("csv", "md", "tex")
"""What ``write`` can write."""


def write(
    frame: pd.DataFrame,
    stem: Path,
    caption: str,
    label: str,
    formats: Sequence[str] = FORMATS,
    footer: str = "",
) -> list[Path]:
    """Write a table as ``<stem>.csv`` (raw), ``<stem>.md`` and ``<stem>.tex`` (to be read).

    Args:
        frame: from a function of ``tables``, ``alignment`` or ``composition``.
        stem: path without ending; its folder is made.
        caption: plain text; must say when numbers come from a miniworld.
        label: for LaTeX's ``\\ref``.
        formats: some of ``FORMATS``.
        footer: below the table where it is written for reading; plain text.

    Returns:
        The paths written, in the order of ``formats``. UTF-8, the same bytes on every system.

    Raises:
        InputError: unknown format.
    """
    for name in formats:
        if name not in FORMATS:
            raise InputError("writing.write", f"unknown format '{name}'", suggest(name, FORMATS))
    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = []
    for name in formats:
        path = stem.parent / f"{stem.name}.{name}"  # with_suffix would cut "clip-0.5"
        if name == "csv":
            text = to_csv(frame)
        elif name == "md":
            text = to_markdown(frame, caption, footer=footer)
        else:
            text = to_latex(frame, caption, label, footer=footer)
        path.write_text(text, encoding="utf-8", newline="\n")
        paths.append(path)
    return paths
