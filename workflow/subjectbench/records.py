"""The tidy tables that every stage reads and writes, and their schemas.

Rows, never bare numbers: a row has a ``status``, and only ``ok`` has a value. All ids are text.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pandera.pandas as pa
import pyarrow.parquet as pq

from subjectbench.errors import InputError
from subjectbench.vocabulary import DIFFICULTIES as DIFFICULTIES
from subjectbench.vocabulary import DIMENSIONS as DIMENSIONS
from subjectbench.vocabulary import LEVELS as LEVELS
from subjectbench.vocabulary import PARADIGMS as PARADIGMS
from subjectbench.vocabulary import RELEVANCES as RELEVANCES
from subjectbench.vocabulary import SCENARIOS as SCENARIOS
from subjectbench.vocabulary import Status as Status

_STATUSES = [s.value for s in Status]


def _text(nullable: bool = False, unique: bool = False, **kw: Any) -> pa.Column:
    return pa.Column("str", nullable=nullable, unique=unique, coerce=True, **kw)


def _status() -> pa.Column:
    return _text(checks=pa.Check.isin(_STATUSES))


_JSON = pa.Check(
    lambda cell: isinstance(json.loads(cell), dict), element_wise=True, error="not a JSON object"
)

CASES = pa.DataFrameSchema(
    {
        "case_id": _text(unique=True),
        "subject_id": _text(),
        "subject": _text(nullable=True),  # the class noun, e.g. "mug"
        "domain": _text(nullable=True),  # first tier: Photorealistic / Non-photorealistic
        "kind": _text(nullable=True),  # second tier: Object / Animal / Human
        "category": _text(nullable=True),  # third tier
        "difficulty": _text(nullable=True, checks=pa.Check.isin(DIFFICULTIES)),
        "scenario": _text(nullable=True, checks=pa.Check.isin(SCENARIOS)),
        "paradigm": _text(nullable=True, checks=pa.Check.isin(PARADIGMS)),
        "prompt": _text(nullable=True),
        "reference_id": _text(nullable=True),
        "details": _text(checks=_JSON),  # JSON object, e.g. the scene asked for
    },
    strict=True,
    ordered=True,
)
"""One row per case: one prompt for one subject."""

REFERENCES = pa.DataFrameSchema(
    {
        "reference_id": _text(unique=True),
        "status": _status(),
        "image_sha256": _text(nullable=True),  # of the PNG in references.zip
        "source_sha256": _text(nullable=True),  # of the file as supplied
        "details": _text(checks=_JSON),
    },
    strict=True,
    ordered=True,
)
"""One row per reference picture."""

SAMPLES = pa.DataFrameSchema(
    {
        "sample_id": _text(unique=True),
        "case_id": _text(),
        "replicate": pa.Column("int64", checks=pa.Check.ge(0)),
        "seed": pa.Column("int64", checks=pa.Check.ge(0)),
        "status": _status(),
        "image_sha256": _text(nullable=True),  # of the PNG in images.zip
        "details": _text(checks=_JSON),  # simulated generators put {"truth": {...}} here
    },
    strict=True,
    ordered=True,
)
"""One row per generated picture of one generator."""

SCORES = pa.DataFrameSchema(
    {
        "generator": _text(),
        "sample_id": _text(),
        "image_sha256": _text(nullable=True),
        "metric": _text(),
        "key": _text(),
        "status": _status(),
        "value": pa.Column("float64", nullable=True),
        "n_raw": pa.Column("int64", checks=pa.Check.ge(0)),
        "details": _text(checks=_JSON),
    },
    strict=True,
    ordered=True,
    unique=["generator", "sample_id", "metric", "key"],
)
"""One row per sample and metric. ``n_raw`` counts the raw values behind ``value``."""

RATINGS = pa.DataFrameSchema(
    {
        "generator": _text(),
        "sample_id": _text(),
        "rater": _text(),
        "dimension": _text(),
        "status": _status(),
        "value": pa.Column("float64", nullable=True),
    },
    strict=True,
    ordered=True,
    unique=["generator", "sample_id", "rater", "dimension"],
)
"""One row per sample, rater and dimension."""

UNITS = pa.DataFrameSchema(
    {
        "case_id": _text(),
        "unit_id": _text(),  # empty on the one row of a case whose decomposition failed
        "status": _status(),
        "level": _text(nullable=True, checks=pa.Check.isin(LEVELS)),
        "name": _text(nullable=True),
        "relevance": _text(nullable=True, checks=pa.Check.isin(RELEVANCES)),
        "weight": pa.Column("float64", nullable=True, checks=pa.Check.in_range(1, 5)),
        "question": _text(nullable=True),
        "tool": _text(nullable=True),
        "details": _text(checks=_JSON),  # {"about": ...}, or why there are no units
    },
    strict=True,
    ordered=True,
    unique=["case_id", "unit_id"],
)
"""One row per atomic unit of a case (UFO, section 3.1)."""

ANSWERS = pa.DataFrameSchema(
    {
        "sample_id": _text(),
        "ask": _text(),
        "status": _status(),
        "value": pa.Column("float64", nullable=True),  # on the question's own scale
        "details": _text(checks=_JSON),  # request key, reason of a fault, graded, words
    },
    strict=True,
    ordered=True,
    unique=["sample_id", "ask"],
)
"""One row per sample and question to a judge."""

TRAINED = pa.DataFrameSchema(
    {
        "subject_id": _text(unique=True),
        "subject": _text(nullable=True),  # the class noun that it was trained for
        "subject_key": _text(nullable=True),  # of all that its training depends on
        "status": _status(),
        "files": _text(checks=_JSON),  # name in weights.zip, below the subject's id, to sha256
        "details": _text(checks=_JSON),  # what was decided for it, or why there are no files
    },
    strict=True,
    ordered=True,
)
"""One row per subject that a method was to be trained for."""

LOSSES = pa.DataFrameSchema(
    {
        "subject_id": _text(),
        "step": pa.Column("int64", checks=pa.Check.ge(0)),
        "loss": pa.Column("float64"),
    },
    strict=True,
    ordered=True,
    unique=["subject_id", "step"],
)
"""One row per subject and optimiser step."""

SCHEMAS = {
    "cases": CASES,
    "references": REFERENCES,
    "samples": SAMPLES,
    "scores": SCORES,
    "ratings": RATINGS,
    "units": UNITS,
    "answers": ANSWERS,
    "trained": TRAINED,
    "losses": LOSSES,
}


_NUMBERS = ("int64", "float64")


def _numbers(column: pd.Series, dtype: str, name: str, where: object) -> pd.Series:
    """Cast a column of numbers; text, truth values and fractions of whole numbers are refused."""
    whole = dtype == "int64"
    for value in column:
        if pd.isna(value):
            bad = whole
        else:
            bad = isinstance(value, str | bool) or (whole and value != value // 1)
        if bad:
            raise InputError(where, f"{name}: {value!r} is not a number ({dtype})")
    return column.astype(dtype)


def table(
    name: str, rows: Sequence[Mapping[str, Any]] | pd.DataFrame, where: object
) -> pd.DataFrame:
    """Build and check one of the tables of ``SCHEMAS``.

    Args:
        name: key of ``SCHEMAS``.
        rows: mappings, or a frame. Column order and types are set here.
        where: what to name in an error.

    Raises:
        InputError: a column is missing or unknown, a value has the wrong type, an id repeats, or a
            row that is not ``ok`` carries a value.
    """
    schema = SCHEMAS[name]
    columns = list(schema.columns)
    frame = rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(list(rows), columns=columns)
    unknown, missing = set(frame.columns) - set(columns), set(columns) - set(frame.columns)
    if unknown or missing:
        raise InputError(
            where, f"{name}: missing columns {sorted(missing)}, unknown columns {sorted(unknown)}"
        )
    frame = frame[columns].copy()
    for column, spec in schema.columns.items():
        if str(spec.dtype) in _NUMBERS:
            frame[column] = _numbers(frame[column], str(spec.dtype), f"{name}.{column}", where)
        else:
            bad = [v for v in frame[column] if not (isinstance(v, str) or pd.isna(v))]
            if bad:
                raise InputError(
                    where, f"{name}.{column}: {bad[0]!r} is not text", "quote the value"
                )
            frame[column] = frame[column].astype("str")
    try:
        frame = schema.validate(frame, lazy=True)
    except pa.errors.SchemaErrors as error:
        first = error.failure_cases.iloc[0]
        raise InputError(
            where,
            f"{name}: column {first['column']}: {first['check']}: {first['failure_case']!r} "
            f"(row {first['index']}; {len(error.failure_cases)} faults in all)",
        ) from error
    if "value" in frame.columns:
        ok = frame["status"] == Status.OK
        if frame.loc[ok, "value"].isna().any() or frame.loc[~ok, "value"].notna().any():
            raise InputError(where, f"{name}: exactly the rows with status 'ok' must have a value")
    return frame.reset_index(drop=True)


MAX_CELLS, MAX_BYTES = 200_000_000, 8 << 30
"""Far more than the largest table of the full DSH-Bench has, some millions of cells."""


def read_table(name: str, path: Path) -> pd.DataFrame:
    """Read a Parquet table and check it against its schema.

    Raises:
        InputError: it is not as the schema says, or a small file that would fill the memory:
            a column of one repeated value takes no space in Parquet.
    """
    told = pq.read_metadata(path)
    size = sum(told.row_group(i).total_byte_size for i in range(told.num_row_groups))
    if told.num_rows * told.num_columns > MAX_CELLS or size > MAX_BYTES:
        raise InputError(
            path,
            f"unpacks to {told.num_rows} rows of {told.num_columns} columns, {size} bytes",
            "no table of a study is that large: do not trust where it comes from",
        )
    return table(name, pd.read_parquet(path), path)


def write_table(
    name: str, rows: Sequence[Mapping[str, Any]] | pd.DataFrame, path: Path
) -> pd.DataFrame:
    """Check a table and write it as Parquet with the same bytes for the same rows."""
    frame = table(name, rows, path)
    frame.to_parquet(path, index=False, compression="zstd")
    return frame


def unique_ids(ids: Sequence[str], where: object, what: str) -> None:
    """Refuse ids that are duplicates, also when case is ignored (they are file names).

    Raises:
        InputError: naming the first pair.
    """
    seen: dict[str, str] = {}
    for name in ids:
        folded = name.casefold()
        if folded in seen:
            other = seen[folded]
            fault = (
                f"duplicate {what} '{name}'"
                if other == name
                else (f"{what}s '{other}' and '{name}' differ only in case")
            )
            raise InputError(where, fault, "give each its own name")
        seen[folded] = name


def join_one_to_one(
    left: pd.DataFrame, right: pd.DataFrame, on: list[str], where: object
) -> pd.DataFrame:
    """Inner join that stops on missing or repeated keys instead of multiplying rows.

    Raises:
        InputError: a key is missing, repeated, or of another type on the other side.
    """
    for side, frame in (("left", left), ("right", right)):
        for column in on:
            if frame[column].isna().any():
                raise InputError(where, f"{side} table: {column} is missing in some rows")
            if not frame[column].map(lambda v: isinstance(v, str)).all():
                raise InputError(where, f"{side} table: {column} is not text everywhere")
        repeated = frame.loc[frame.duplicated(on), on]
        if len(repeated):
            raise InputError(where, f"{side} table: repeated {on}: {repeated.iloc[0].tolist()}")
    return left.merge(right, on=on, how="inner", validate="one_to_one")


def sample_seed(seed: int, case_id: str, replicate: int) -> int:
    """Seed of one picture: depends on the study's seed, the case and the replicate, nothing else.

    All generators of a study share it, so batch size, shard and order cannot change a picture.
    Range: 0 to 2**31 - 1.
    """
    text = f"{seed}/{case_id}/{replicate}".encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:4], "big") & 0x7FFFFFFF
