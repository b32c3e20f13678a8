"""What a benchmark is, and how text files that people write are read.

Modules in this room are imported by the planner: no pandas and no torch at module level.
"""

from __future__ import annotations

import csv
import io
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from subjectbench.config import Strict
from subjectbench.errors import InputError, suggest
from subjectbench.units import Unit

if TYPE_CHECKING:
    import pandas as pd

ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Ids are file names, ZIP members and wildcards: 1 to 64 plain characters."""

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""Unicode's categories Cc, Zl, Zp and Cs: control characters, line breaks, halves of characters."""


class Benchmark(ABC):
    """Subjects, prompts and reference pictures.

    A plug-in is one module with a subclass and ``PLUGIN = <the subclass>``.

    Args:
        params: checked parameters.
        root: the folder that relative paths in ``params`` start from.
    """

    Params: ClassVar[type[Strict]] = Strict
    """Parameters; each benchmark declares its own class of this name."""

    version: ClassVar[str] = "1"
    """Raised by hand when the same files begin to give other cases."""

    synthetic: ClassVar[bool] = False
    """True: the pictures are drawn, and every number must be labelled so where it is shown."""

    pictures: ClassVar[bool] = True
    """False: only ratings and scores of pictures kept elsewhere, so there is no gallery."""

    breakdowns: ClassVar[tuple[str, ...]] = ("difficulty", "scenario", "category")
    """Columns of the cases by which scores are broken down."""

    amounts: ClassVar[frozenset[str]] = frozenset()
    """Parameters that only say how much there is: what one subject is does not depend on them."""

    def __init__(self, params: Any, root: Path) -> None:
        self.params = params
        self.root = Path(root)

    @abstractmethod
    def sources(self) -> list[Path]:
        """Files whose content identifies the data, sorted. Light: lists, opens little."""

    @abstractmethod
    def check(self) -> None:
        """Look for every fault that can be found without decoding pictures, before any work.

        Raises:
            InputError: names file, row and mend.
        """

    @abstractmethod
    def cases(self) -> pd.DataFrame:
        """Return the table ``records.CASES``, in an order that depends on the data only.

        Raises:
            InputError: as :meth:`check`.
        """

    @abstractmethod
    def references(self) -> Iterator[tuple[str, bytes | None]]:
        """Yield ``(reference_id, file bytes as supplied)``; None where there is no file."""

    def reference_files(self) -> dict[str, Path] | None:
        """Return the file behind each reference that is there, by id.

        With these, the cases and :attr:`amounts`, a study in shards knows what each shard is made
        from. None, the default: it is not known, and each shard depends on all sources.
        """
        return None

    @property
    def has_units(self) -> bool:
        """Whether there are prepared atomic units (``units``)."""
        return False

    def unit_sources(self) -> list[Path]:
        """Files that only units come from, sorted; they are not among :meth:`sources`."""
        return []

    def units(self) -> dict[str, list[Unit]]:
        """Return prepared atomic units by case id; a case that is left out has none.

        Raises:
            InputError: as :meth:`check`.
        """
        raise NotImplementedError


# --- text at the border --------------------------------------------------------------------------


def read_text(path: Path) -> str:
    """Read a file as strict UTF-8 (a byte order mark is dropped), line ends untouched.

    Raises:
        InputError: the file is missing, or is not UTF-8 (with line and byte).
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise InputError(path, "no such file", near(path)) from None
    except OSError as error:
        raise InputError(path, f"cannot be read: {error.strerror}") from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # The decoder counts from after the mark.
        at = error.start + (3 if data.startswith(b"\xef\xbb\xbf") else 0)
        line = data.count(b"\n", 0, at) + 1
        raise InputError(
            f"{path}: line {line}",
            f"byte {at} (0x{data[at]:02x}) is not UTF-8",
            "save the file as UTF-8 (in a spreadsheet: 'CSV UTF-8')",
        ) from None


def near(path: Path) -> str:
    """Say what stands where a missing file was looked for, also under another case."""
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}"
    return suggest(path.name, [p.name for p in path.parent.iterdir()][:1000])


def _decoder(path: Path) -> json.JSONDecoder:
    """A reader of JSON in which NaN, Infinity and repeated keys are faults of ``path``."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) < len(pairs):
            keys = [k for k, _ in pairs]
            twice = next(k for i, k in enumerate(keys) if k in keys[:i])
            raise InputError(path, f"key {twice!r} appears twice", "keep one")
        return result

    def refuse(name: str) -> Any:
        raise InputError(path, f"{name} is not a JSON number", "write null, or leave the row out")

    return json.JSONDecoder(object_pairs_hook=unique, parse_constant=refuse)


@contextmanager
def _json_faults(path: Path) -> Iterator[None]:
    try:
        yield
    except json.JSONDecodeError as error:
        raise InputError(
            f"{path}: line {error.lineno}, column {error.colno}", f"not JSON: {error.msg}"
        ) from None
    except RecursionError:
        raise InputError(path, "not JSON: nested too deeply") from None


def read_json(path: Path) -> Any:
    """Read a JSON file; NaN, Infinity and repeated keys are refused.

    Raises:
        InputError: missing, not UTF-8 or not such JSON, with line and column.
    """
    text = read_text(path)
    with _json_faults(path):
        return _decoder(path).decode(text)


def read_json_values(path: Path) -> list[tuple[int, Any]]:
    """Read a file of JSON values one after the other: JSON lines, or blocks over several lines.

    Returns:
        ``(line number, value)`` of each; one value makes a list of one.

    Raises:
        InputError: as :func:`read_json`. No block is skipped.
    """
    text, found, at = read_text(path), [], 0
    decoder = _decoder(path)
    with _json_faults(path):
        while at < len(text):
            if text[at] in " \t\r\n":
                at += 1
                continue
            value, end = decoder.raw_decode(text, at)
            found.append((text.count("\n", 0, at) + 1, value))
            at = end
    return found


def read_rows(
    path: Path,
    delimiter: str = ",",
    required: Iterable[str] = (),
    optional: Iterable[str] | None = (),
) -> tuple[list[str], list[tuple[int, dict[str, str]]]]:
    """Read a CSV or TSV file with a header. Every cell stays text: 007 is 007.

    Args:
        path: the file. CRLF, LF, a byte order mark and a missing last newline are all fine.
        delimiter: one character.
        required: columns that must be there.
        optional: columns that may be there; None: any.

    Returns:
        The columns, and ``(line number, {column: cell})`` for every row that is not blank.

    Raises:
        InputError: names the file and line or column.
    """
    text = read_text(path)
    nul = text.find("\0")
    if nul >= 0:
        line = text.count("\n", 0, nul) + 1
        raise InputError(f"{path}: line {line}", "holds a NUL character", "save it as UTF-8 text")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    rows: list[tuple[int, list[str]]] = []
    line = 1
    try:
        for row in reader:
            if any(cell.strip() for cell in row):
                rows.append((line, row))
            line = reader.line_num + 1  # a quoted cell may span lines: name where a row begins
    except csv.Error as error:
        raise InputError(f"{path}: line {line}", f"not CSV: {error}", "check the quotes") from None
    required, known = list(required), None if optional is None else [*required, *optional]
    if not rows:
        raise InputError(path, "is empty", f"begin with a header: {', '.join(known or required)}")
    header = rows[0][1]
    for index, column in enumerate(header):
        if column in header[:index]:
            raise InputError(path, f"column '{column}' appears twice", "keep one")
        if known is not None and column not in known:
            raise InputError(path, f"unknown column '{column}'", suggest(column, known))
    for column in required:
        if column not in header:
            raise InputError(
                path, f"no column '{column}'", f"its header is: {delimiter.join(header)}"
            )
    for number, row in rows[1:]:
        if len(row) != len(header):
            raise InputError(
                f"{path}: line {number}",
                f"{len(row)} cells where the header has {len(header)}",
                "put cells that hold the delimiter between double quotes",
            )
    return header, [(number, dict(zip(header, row))) for number, row in rows[1:]]


def check_id(value: str, where: object, what: str) -> str:
    """Return ``value`` if it can be an id.

    Raises:
        InputError: empty, longer than 64, or with characters that a file name should not have.
    """
    if not ID.fullmatch(value):
        shown = value if len(value) <= 70 else f"{value[:67]}..."
        raise InputError(
            where,
            f"{what} {shown!r} ({len(value)} characters) cannot be a file name",
            "use 1 to 64 of A-Z a-z 0-9 . _ -, beginning with a letter or digit; "
            "names for people go into the column 'subject'",
        )
    return value


def check_prompt(value: str, where: object) -> str:
    """Return ``value`` if it can be a prompt.

    Raises:
        InputError: empty, or with a control character or line break (two prompts in one cell?).
    """
    if not value.strip():
        raise InputError(where, "the prompt is empty", "write one, or remove the row")
    bad = CONTROL.search(value)
    if bad:
        raise InputError(
            where, f"the prompt holds the control character {bad.group()!r}", "write it on one line"
        )
    return value
