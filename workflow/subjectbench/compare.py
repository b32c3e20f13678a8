"""Two runs side by side: what moved, whether by more than noise, and which component explains it.

A run is a folder ``results/<study>-<key>``. Its tables say what moved; the scores behind them,
where the store still has them, say whether that is noise; the manifests of all artifacts that the
two runs are made from say why.
"""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from subjectbench import records
from subjectbench.errors import InputError, suggest
from subjectbench.records import DIMENSIONS, Status
from subjectbench.statistics import bootstrap
from subjectbench.store.identity import changed

DESCRIBING = ("title", "note", "reason", "others", "verdict")
"""Text columns that describe a row, by name or by ending; all other text can identify it."""

PER_SHARD = ("train", "generate", "embed_images", "judge")
"""Kinds whose names end in a shard, which explains nothing."""

REPEATED = {
    "embeddings": "encoder",
    "case_embeddings": "encoder",
    "answers": "judging",
    "units": "units",
}
"""Upstream roles, without their shard, whose own components a score repeats under this name."""

ENVIRONMENT = ("host", "machine", "device", "python", "git_commit", "other_than_locked")
"""What ``record.json`` says of where an artifact was made."""

YES, NO, UNKNOWN = "beyond noise", "within noise", ""
"""Whether a difference is more than noise; unknown where nothing here can tell."""

CELLS = [
    "table",
    "row",
    "column",
    "a",
    "b",
    "difference",
    "moved",
    "noise",
    "test",
    "ci_low",
    "ci_high",
    "p_value",
    "n",
    "why",
]
"""Columns of ``Comparison.cells``."""


# ------------------------------------------------------------------------------- runs


@dataclass(frozen=True)
class Run:
    """One run and what is left of all that it is made from.

    Attributes:
        folder: its folder, beside the ``store`` of the same results.
        manifest: what it is made from.
    """

    folder: Path
    manifest: dict[str, Any]

    @classmethod
    def find(cls, text: str, results: Path) -> Run:
        """Find a run by its folder, by its name, or by the beginning of its name or key.

        Raises:
            InputError: there is none, or more than one.
        """
        given = Path(text)
        if (given / "manifest.json").is_file():
            return cls._read(given.resolve())
        there = {
            p.parent.name: p.parent
            for p in sorted(results.glob("*/manifest.json"))
            if not p.parent.is_symlink()
        }
        if (results / text).is_symlink():  # latest
            text = (results / text).readlink().name
        found = [n for n in there if n == text] or [
            n for n in there if n.startswith(text) or n.rpartition("-")[2].startswith(text)
        ]
        if not found:
            raise InputError(
                text,
                f"no such run in {results}",
                suggest(text, there) if there else "make one: snakemake --cores all",
            )
        if len(found) > 1:
            raise InputError(
                text, f"fits {len(found)} runs: {', '.join(found)}", "give more of the key"
            )
        return cls._read(there[found[0]])

    @classmethod
    def _read(cls, folder: Path) -> Run:
        path = folder / "manifest.json"
        try:
            manifest = json.loads(path.read_text("utf-8"))
        except ValueError as error:
            raise InputError(path, f"is damaged: {error}") from None
        if not isinstance(manifest, dict) or manifest.get("kind") != "report":
            raise InputError(
                folder, "is no run", "give a folder results/<study>-<key> that a run left"
            )
        return cls(folder, manifest)

    @property
    def name(self) -> str:
        """Study and key."""
        return self.folder.name

    @cached_property
    def _folders(self) -> dict[str, Path]:
        """Folder of every artifact in the store, by key."""
        found = {}
        for folder, inner, files in os.walk(self.folder.parent / "store"):
            inner[:] = [name for name in inner if not name.startswith(".")]
            if "manifest.json" in files:
                inner.clear()
                found[Path(folder).name] = Path(folder)
        return found

    @cached_property
    def _manifests(self) -> dict[str, dict[str, Any] | None]:
        return {self.manifest["key"]: self.manifest}

    def folder_of(self, key: str) -> Path | None:
        """Folder of an artifact; None: it is no longer in the store."""
        return self.folder if key == self.manifest["key"] else self._folders.get(key)

    def artifact(self, key: str) -> dict[str, Any] | None:
        """Manifest of an artifact; None: it is no longer in the store."""
        if key not in self._manifests:
            folder = self._folders.get(key)
            try:
                text = (folder / "manifest.json").read_text("utf-8") if folder else "null"
                self._manifests[key] = json.loads(text)
            except (OSError, ValueError):
                self._manifests[key] = None
        return self._manifests[key]

    @property
    def tables_key(self) -> str:
        """Key of what holds the tables; the run itself if no such artifact is behind it."""
        return str(self.manifest["upstream"].get("tables", self.manifest["key"]))

    @cached_property
    def tables(self) -> dict[str, pd.DataFrame]:
        """Every table, its cells as text; a missing cell is empty."""
        return {
            path.stem: pd.read_csv(path, dtype=str, keep_default_na=False)
            for path in sorted((self.folder / "tables").glob("*.csv"))
        }

    @cached_property
    def roles(self) -> dict[str, str]:
        """Role to key of what the tables are made from; empty if that is not known any more."""
        tables = self.artifact(self.tables_key)
        return dict(tables["upstream"]) if tables else {}

    @cached_property
    def families(self) -> dict[tuple[str, str], str]:
        """Key of the scores of each (metric, generator)."""
        parts = self.manifest["components"]
        metrics, generators = (
            [x["name"] for x in parts.get(name) or []] for name in ("metrics", "generators")
        )
        roles = {(m, g): f"scores/{m}/{g}" for m in metrics for g in generators}
        return {family: self.roles[r] for family, r in roles.items() if r in self.roles}

    @cached_property
    def _cases(self) -> pd.DataFrame | None:
        return self._table("cases", self.roles.get("benchmark", ""))

    def _table(self, name: str, key: str) -> pd.DataFrame | None:
        path = self._folders.get(key, Path(os.devnull)) / f"{name}.parquet"
        return records.read_table(name, path) if path.is_file() else None

    def scores(self, metric: str, generator: str) -> pd.DataFrame | None:
        """Valid scores of one family with their cases; None: they are no longer in the store."""
        rows = self._table("scores", self.families.get((metric, generator), ""))
        if rows is None or self._cases is None:
            return None
        rows = rows.loc[rows["status"] == Status.OK, ["sample_id", "value"]]
        # "<case>-s<replicate>" is how generation names samples.
        rows = rows.assign(case_id=rows["sample_id"].str.rsplit("-", n=1).str[0])
        return rows.merge(self._cases, on="case_id", validate="many_to_one")

    def chain(self) -> Iterator[str]:
        """Keys of all artifacts that the run is made from, itself first."""
        todo, seen = [self.manifest["key"]], set()
        while todo:
            key = todo.pop()
            if key not in seen:
                seen.add(key)
                yield key
                found = self.artifact(key)
                todo += list(found["upstream"].values()) if found else []

    def environment(self) -> dict[str, set[str]]:
        """Where and with what its artifacts were made, by field of ``record.json``."""
        out: dict[str, set[str]] = {name: set() for name in ENVIRONMENT}
        for key in self.chain():
            folder = self.folder_of(key)
            try:
                record = json.loads((folder / "record.json").read_text()) if folder else {}
            except (OSError, ValueError):
                continue
            for name in ENVIRONMENT:
                found = record.get(name) or []
                out[name] |= {str(v) for v in (found if isinstance(found, list) else [found])}
        return out


# ------------------------------------------------------------------------------- why


@dataclass(frozen=True)
class Cause:
    """One component that differs between two artifacts.

    Attributes:
        kind: of the artifact.
        name: of the artifact, without its shard.
        text: the difference in words, e.g. ``params.scale 1.0 -> 100.0``.
        known: False where the store no longer tells.
    """

    kind: str
    name: str
    text: str
    known: bool = True

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {self.text}"


class Explainer:
    """Walks the upstream chains of two runs side by side."""

    def __init__(self, a: Run, b: Run) -> None:
        self.a, self.b = a, b
        self._known: dict[tuple[str, str, bool], tuple[Cause, ...]] = {}

    def artifacts(self, a: str, b: str, role: str, deep: bool = True) -> tuple[Cause, ...]:
        """Every component that differs between two artifacts, or between what they are made from.

        Args:
            a: key in the first run.
            b: key in the second.
            role: what they are to those made from them; names them if the store does not.
            deep: whether to look at what they are made from.
        """
        if (a, b, deep) not in self._known:
            self._known[a, b, deep] = () if a == b else tuple(self._compare(a, b, role, deep))
        return self._known[a, b, deep]

    def _compare(self, key_a: str, key_b: str, role: str, deep: bool) -> Iterator[Cause]:
        a, b = self.a.artifact(key_a), self.b.artifact(key_b)
        for side, key, found in (("A", key_a, a), ("B", key_b, b)):
            if found is None:
                text = f"{key} of {side} is no longer in the store: what differs cannot be said"
                yield Cause(role.split("/")[0], role.partition("/")[2] or role, text, known=False)
        if a is None or b is None:
            return
        kind, name = b["kind"], without_shard(b)
        below: list[Cause] = []
        for up in sorted({*a["upstream"], *b["upstream"]} if deep else ()):
            if up in a["upstream"] and up in b["upstream"]:
                causes = self.artifacts(a["upstream"][up], b["upstream"][up], up)
                below += causes
                repeated = REPEATED.get(up.partition("/")[0])
                if causes and all(cause.known for cause in causes) and repeated:
                    a, b = _without(a, repeated), _without(b, repeated)
        told = changed(a["components"], b["components"])
        if a.get("scheme") != b.get("scheme"):
            told.append(f"scheme of keys {a.get('scheme')} -> {b.get('scheme')}")
        if without_shard(a) != name:
            told.append(f"is {name} instead of {without_shard(a)}")
        yield from dict.fromkeys([*below, *(Cause(kind, name, text) for text in told)])

    def family(self, metric: str, generator: str) -> tuple[Cause, ...]:
        """Causes behind the scores of one metric and generator."""
        a, b = (run.families.get((metric, generator)) for run in (self.a, self.b))
        # What only one run has is listed as a row of it.
        return self.artifacts(a, b, f"scores/{metric}/{generator}") if a and b else ()

    @cached_property
    def tables(self) -> tuple[Cause, ...]:
        """Causes in how tables are made, and in all that reaches them but scores."""
        a, b = (run.tables_key for run in (self.a, self.b))
        out = list(self.artifacts(a, b, "tables", deep=False))
        for role in sorted({*self.a.roles} & {*self.b.roles}):
            if not role.startswith("scores/"):
                out += self.artifacts(self.a.roles[role], self.b.roles[role], role)
        return tuple(dict.fromkeys(out))

    @cached_property
    def report(self) -> tuple[Cause, ...]:
        """Causes in the page itself, which move no number."""
        own = self.artifacts(self.a.manifest["key"], self.b.manifest["key"], "report", deep=False)
        told = {c.text for c in self.tables}
        return tuple(c for c in own if c.text not in told)


def _without(manifest: dict[str, Any], name: str) -> dict[str, Any]:
    components = {k: v for k, v in manifest["components"].items() if k != name}
    return {**manifest, "components": components}


def without_shard(manifest: Mapping[str, Any]) -> str:
    """Name of an artifact without its shard, which explains nothing."""
    name = str(manifest["name"])
    head, _, last = name.rpartition("/")
    return head if manifest["kind"] in PER_SHARD and last.isdecimal() else name


# ------------------------------------------------------------------------------- tables


def numbers(*columns: pd.Series) -> list[pd.Series] | None:
    """Read columns of text cells as numbers; None if any cell is something else.

    Args:
        columns: the column of one name in each run; empty cells are missing numbers.
    """
    out = [pd.to_numeric(c.where(c != ""), errors="coerce") for c in columns]
    bad = any((o.isna() & (c != "")).any() for o, c in zip(out, columns, strict=True))
    return None if bad or all(o.isna().all() for o in out) else out


def id_columns(a: pd.DataFrame, b: pd.DataFrame) -> list[str]:
    """Columns that identify a row of two versions of one table.

    Those are the text columns before the first number, which do not merely describe. Where they
    leave rows alike, further text columns, then columns of whole numbers, until they do not.

    Args:
        a: cells as text.
        b: cells as text.
    """
    shared = [c for c in a.columns if c in b.columns and not _describes(c)]
    read = {c: numbers(a[c], b[c]) for c in shared}
    first = next((i for i, c in enumerate(shared) if read[c] is not None), len(shared))
    text = [c for c in shared if read[c] is None]
    whole = [c for c in shared if all((v % 1 == 0).all() for v in read[c] or [pd.Series([0.5])])]
    out = [c for c in shared[:first] if (a[c] != "").any()]
    for column in [*text, *whole]:
        if not any(f.duplicated(out).any() if out else len(f) > 1 for f in (a, b)):
            break
        if column not in out:
            out.append(column)
    return out


def _describes(column: str) -> bool:
    return column in DESCRIBING or column.endswith(tuple(f"_{d}" for d in DESCRIBING))


def rows_by_id(frame: pd.DataFrame, ids: Sequence[str]) -> dict[tuple[str, ...], pd.Series]:
    """Rows by their ids; rows that remain alike are numbered in order."""
    out: dict[tuple[str, ...], pd.Series] = {}
    seen: Counter[tuple[str, ...]] = Counter()
    for _, row in frame.iterrows():
        name = tuple(str(row[c]) for c in ids)
        seen[name] += 1
        out[(*name, f"#{seen[name]}") if seen[name] > 1 else name] = row
    return out


def interval_of(row: pd.Series, column: str) -> tuple[float, float] | None:
    """Interval that stands beside a number: ``x_mean`` or ``x`` has ``x_ci_low``, ``x_ci_high``."""
    stem = column.removesuffix("mean").removesuffix("_")
    for prefix in (f"{stem}_" if stem else "", f"{column}_"):
        ends = [row.get(f"{prefix}ci_{end}", "") for end in ("low", "high")]
        if all(ends):
            return float(ends[0]), float(ends[1])
    return None


# ------------------------------------------------------------------------------- comparing


@dataclass(frozen=True)
class Comparison:
    """What two runs have in common, and what they have not.

    Attributes:
        a: first run.
        b: second run.
        cells: one row per cell that both have; columns ``CELLS``. ``a`` and ``b`` are as printed;
            ``difference`` is b minus a, or missing for text.
        rows: table to the rows that only one run has, as ``(side, row)``.
        tables: tables and columns that only one run has, as ``(side, name)``.
        causes: distinct causes of all that moved.
        environment: fields of ``record.json`` that differ, in words.
    """

    a: Run
    b: Run
    cells: pd.DataFrame
    rows: dict[str, list[tuple[str, str]]]
    tables: list[tuple[str, str]]
    causes: list[Cause]
    environment: list[str]


class _Comparer:
    def __init__(self, a: Run, b: Run) -> None:
        self.a, self.b = a, b
        self.explain = Explainer(a, b)
        tables = [r.artifact(r.tables_key) for r in (a, b)]
        settings: dict[str, Any] = next((t["components"]["statistics"] for t in tables if t), {})
        self.draws = int(settings.get("bootstrap", 1000))
        self.confidence = float(settings.get("confidence", 0.95))
        self.seed = int(settings.get("seed", 0))
        dimensions = [r.manifest["components"].get("dimensions") or {} for r in (a, b)]
        self.dimensions = {k: v for k, v in dimensions[0].items() if dimensions[1].get(k) == v}
        self._scores: dict[tuple[str, str], pd.DataFrame | None] = {}
        self.causes: dict[Cause, None] = {}

    def table(self, name: str) -> tuple[list[dict[str, Any]], list[tuple[str, str]]]:
        a, b = self.a.tables[name], self.b.tables[name]
        ids = id_columns(a, b)
        left, right = rows_by_id(a, ids), rows_by_id(b, ids)
        only = [("A", label(n)) for n in left if n not in right]
        only += [("B", label(n)) for n in right if n not in left]
        columns = [c for c in a.columns if c in b.columns and c not in ids]
        numeric = {c for c in columns if numbers(a[c], b[c]) is not None}
        out = [
            self._cell(name, row, column, left[row], right[row], column in numeric)
            for row in left
            if row in right
            for column in columns
        ]
        return out, only

    def _cell(
        self,
        table: str,
        row: tuple[str, ...],
        column: str,
        a: pd.Series,
        b: pd.Series,
        number: bool,
    ) -> dict[str, Any]:
        moved = a[column] != b[column]
        out: dict[str, Any] = dict.fromkeys(CELLS)
        out |= {"table": table, "row": label(row), "column": column, "noise": "", "test": ""}
        out |= {"a": a[column], "b": b[column], "moved": moved, "why": ""}
        if number and a[column] and b[column]:
            out["difference"] = float(b[column]) - float(a[column])
        if moved:
            if out["difference"] is not None:
                out |= self._noise(table, column, a, b)
            causes = self._why(column, a)
            self.causes |= dict.fromkeys(causes)
            out["why"] = "; ".join(dict.fromkeys(map(str, causes)))
        return out

    def _noise(self, table: str, column: str, a: pd.Series, b: pd.Series) -> dict[str, Any]:
        """Whether a difference of two numbers is more than noise, by the best test there is."""
        metric = self.dimensions.get(column.removesuffix("_mean"), a.get("metric"))
        if column == "mean" or column.removesuffix("_mean") in DIMENSIONS:
            level = (table.removeprefix("by_"), a["level"]) if table.startswith("by_") else None
            paired = self._paired(str(metric), str(a.get("generator")), level)
            if paired and paired.interval.low is not None and paired.interval.high is not None:
                beyond = paired.interval.low > 0 or paired.interval.high < 0
                return {
                    "noise": YES if beyond else NO,
                    "test": "paired",
                    "ci_low": paired.interval.low,
                    "ci_high": paired.interval.high,
                    "p_value": paired.p_value,
                    "n": paired.n,
                }
        left, right = interval_of(a, column), interval_of(b, column)
        if left and right:
            apart = left[1] < right[0] or right[1] < left[0]
            return {"noise": YES if apart else NO, "test": "intervals"}
        return {}

    def _paired(
        self, metric: str, generator: str, level: tuple[str, str] | None
    ) -> bootstrap.Difference | None:
        """Paired comparison of the samples that both runs have scored; None without scores."""
        if (metric, generator) not in self._scores:
            a, b = (run.scores(metric, generator) for run in (self.a, self.b))
            both = None
            if a is not None and b is not None:
                both = a.merge(
                    b[["sample_id", "value"]],
                    on="sample_id",
                    suffixes=("_a", "_b"),
                    validate="one_to_one",
                )
            self._scores[metric, generator] = both
        both = self._scores[metric, generator]
        if both is None:
            return None
        if level:
            if level[0] not in both.columns:
                return None
            both = both[both[level[0]] == level[1]]
        if not len(both):
            return None
        subjects = both["subject_id"].tolist()
        resample = bootstrap.Resample.of(subjects, self.draws, self.seed)
        moved = (both["value_b"] - both["value_a"]).to_numpy()
        return bootstrap.mean_difference(moved, subjects, resample, self.confidence)

    def _why(self, column: str, row: pd.Series) -> list[Cause]:
        """Causes of all scores that a cell can be made of, and of how its table is made."""
        families = {**self.a.families, **self.b.families}
        out = list(self.explain.tables)
        for family in behind(column, row, self.dimensions, families):
            out += self.explain.family(*family)
        return list(dict.fromkeys(out))


def behind(
    column: str,
    row: Mapping[str, Any],
    dimensions: Mapping[str, str],
    families: Collection[tuple[str, str]],
) -> list[tuple[str, str]]:
    """Every (metric, generator) whose scores a cell can be made of.

    Args:
        column: of the cell.
        row: cells of its row, by column.
        dimensions: metric of each dimension of the leaderboard.
        families: all that there are.
    """
    stem = next((d for d in dimensions if column.startswith(f"{d}_")), None)
    metric = dimensions[stem] if stem else row.get("metric")
    known = {generator for _, generator in families}
    shown = row.get("generator")
    # ALL, MEAN: every generator
    of = known if shown not in known else {shown}
    return [f for f in families if metric in (None, "", f[0]) and f[1] in of]


def label(row: Iterable[str]) -> str:
    """Name of a row: its ids."""
    return " / ".join(part for part in row if part)


def compare(a: Run, b: Run) -> Comparison:
    """Compare two runs.

    Args:
        a: what to compare with.
        b: what is compared; differences are b minus a.
    """
    comparer = _Comparer(a, b)
    cells: list[dict[str, Any]] = []
    rows: dict[str, list[tuple[str, str]]] = {}
    tables = [("A", n) for n in a.tables if n not in b.tables]
    tables += [("B", n) for n in b.tables if n not in a.tables]
    for name in a.tables:
        if name in b.tables:
            found, only = comparer.table(name)
            cells += found
            if only:
                rows[name] = only
            for side, mine, other in (("A", a, b), ("B", b, a)):
                columns = set(mine.tables[name].columns) - set(other.tables[name].columns)
                tables += [(side, f"{name}: column {c}") for c in sorted(columns)]
    here, there = a.environment(), b.environment()
    environment = [
        f"{name} {_some(here[name])} -> {_some(there[name])}"
        for name in ENVIRONMENT
        if here[name] != there[name] and name != "other_than_locked"
    ]
    environment += [
        f"{side} with {package}"
        for side, mine in (("A", here), ("B", there))
        for package in sorted(mine["other_than_locked"])
    ]
    return Comparison(
        a,
        b,
        pd.DataFrame(cells, columns=CELLS),
        rows,
        tables,
        [*comparer.causes, *(c for c in comparer.explain.report if c not in comparer.causes)],
        environment,
    )


def _some(values: set[str]) -> str:
    shown = [v[:12] for v in sorted(values)]
    more = f" and {len(shown) - 3} more" if len(shown) > 3 else ""
    return (", ".join(shown[:3]) or "unknown") + more


# ------------------------------------------------------------------------------- words


def _number(text: str) -> str:
    try:
        return f"{float(text):.4g}" if text else "-"
    except ValueError:
        return text if len(text) <= 28 else f"{text[:25]}..."


def _verdict(cell: Any) -> str:
    if cell.test == "paired":
        interval = f"[{cell.ci_low:+.4g}, {cell.ci_high:+.4g}]"
        return f"{cell.noise} {interval}, paired, n {cell.n:.0f}"
    return f"{cell.noise} ({cell.test})" if cell.noise else ""


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    """Columns of equal width; numbers to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  "
        + "  ".join(
            cell.rjust(width) if 2 <= i <= 4 else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def describes_or_bounds(column: str) -> bool:
    """Whether a column only describes its row, or holds an end of an interval."""
    return column.endswith(("ci_low", "ci_high")) or _describes(column)


def words(found: Comparison, limit: int | None = 12) -> str:
    """Say what differs, for people.

    Args:
        found: the comparison.
        limit: most cells to show of one table, those beyond noise first; None: all. Ends of
            intervals, titles and notes are only counted.
    """
    out = [f"A  {found.a.name}", f"B  {found.b.name}", ""]
    for name, cells in found.cells.groupby("table", sort=False):
        out += _words_of_table(str(name), cells, found.rows.get(str(name), []), limit)
    for name in found.rows.keys() - set(found.cells["table"]):
        out += _words_of_table(name, found.cells.iloc[:0], found.rows[name], limit)
    out += [f"only in {side}: {name}" for side, name in found.tables]
    out += ["", "Why", *(f"  {line}" for line in reasons(found))]
    if found.environment:
        out += ["", "Made elsewhere or otherwise (no part of any identity)"]
        out += [f"  {line}" for line in found.environment]
    out += [
        "",
        "beyond noise, paired: the 0 lies outside the interval of the mean difference over the "
        "samples that",
        "both runs have scored, from a bootstrap of subjects. intervals: the two numbers' own "
        "intervals do not",
        "overlap, which is stricter. Without either, nothing is said. B is compared with A: "
        "differences are B - A.",
    ]
    return "\n".join(out) + "\n"


def _words_of_table(
    name: str, cells: pd.DataFrame, only: list[tuple[str, str]], limit: int | None
) -> list[str]:
    moved = cells[cells["moved"].astype(bool)]
    if not len(moved) and not only:
        return [f"{name}: equal"]
    counts = Counter(moved["noise"])
    head = f"{name}: {len(moved)} of {len(cells)} cells moved"
    head += f", {counts[YES]} beyond noise, {counts[NO]} within noise" if len(moved) else ""
    shown = moved[~moved["column"].map(describes_or_bounds)]
    order = shown["noise"].map({YES: 0, NO: 1, UNKNOWN: 2})
    cut = shown.loc[order.sort_values(kind="stable").index][:limit].sort_index()
    out = [head]
    if len(cut):
        rows: list[tuple[str, ...]] = [("row", "column", "A", "B", "B - A", "")]
        rows += [
            (
                cell.row,
                cell.column,
                _number(cell.a),
                _number(cell.b),
                "" if pd.isna(cell.difference) else f"{cell.difference:+.4g}",
                _verdict(cell),
            )
            for cell in cut.itertuples()
        ]
        out += _table(rows)
    if len(shown) > len(cut):
        out.append(f"  ... and {len(shown) - len(cut)} more (--all shows them)")
    out += [f"  only in {side}: {row}" for side, row in only]
    return out


def reasons(found: Comparison) -> Iterator[str]:
    """Causes, those alike together: the same parameter of one metric for all its models."""
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for cause in found.causes:
        groups[cause.kind, cause.text].append(cause.name)
    for (kind, text), names in groups.items():
        more = f" and {len(names) - 2} more" if len(names) > 2 else ""
        yield f"{kind} {', '.join(names[:2])}{more}: {text}"
    moved = found.cells[found.cells["moved"].astype(bool)]
    unexplained = moved[moved["why"] == ""]
    if len(unexplained):
        first = unexplained.iloc[0]
        yield (
            f"NOT EXPLAINED: {len(unexplained)} cells moved although no identity behind them "
            f"differs, e.g. {first['table']}, {first['row']}, {first['column']}: something was "
            "not reproduced, or a file was edited (subjectbench verify)"
        )
    if not found.causes and not len(unexplained):
        yield "nothing differs" if not len(moved) else "no component differs"
