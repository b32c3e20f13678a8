"""Pictures that were made elsewhere: a folder or an archive, matched by a manifest or a pattern.

A picture belongs to a sample because a manifest or its own name says so, never because of its place
in some order. What is asked for and not there has the status ``missing``; what is there and not
asked for is counted.
"""

from __future__ import annotations

import csv
import io
import json
import re
import tempfile
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from string import Formatter
from typing import Any, NamedTuple

from pydantic import Field, model_validator

from subjectbench import images, unpacking
from subjectbench.cards import GeneratorCard
from subjectbench.config import LOCATION, Strict
from subjectbench.errors import InputError, suggest
from subjectbench.generators.base import Check, Generator, Job, Outcome
from subjectbench.vocabulary import Status

FIELDS = ("sample_id", "case_id", "replicate", "subject_id", "subject", "prompt", "slug", "ext")
"""What a pattern may name. ``slug``: the prompt with ``_`` for all that is no letter or digit.
``ext``: the ending of any picture format that is read."""

ENDINGS = ("png", "jpg", "jpeg", "webp", "avif", "bmp", "gif", "tif", "tiff")
_NO_PICTURES = re.compile(r"(^|/)(\.DS_Store|Thumbs\.db|desktop\.ini|\._[^/]*)$|^__MACOSX/")


class Wanted(NamedTuple):
    """A picture that is asked for."""

    sample_id: str
    subject_id: str
    subject: str
    prompt: str

    @property
    def case_id(self) -> str:
        """The sample's case."""
        return self.sample_id.rpartition("-s")[0]

    @property
    def replicate(self) -> int:
        """Number of the case's picture, from 0."""
        return int(self.sample_id.rpartition("-s")[2])

    def name(self, pattern: str, ext: str) -> str:
        """The name that a pattern gives it."""
        return pattern.format(
            **self._asdict(),
            case_id=self.case_id,
            replicate=self.replicate,
            slug="_".join(re.findall(r"[^\W_]+", self.prompt)),
            ext=ext,
        )


@dataclass
class Match:
    """Which file is which sample's.

    Args:
        found: sample to file name.
        missing: sample to what was looked for.
        left: files that no sample has.
        unknown: rows of the manifest about samples that are not asked for, in words.
    """

    found: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    def words(self, most: int | None = 3) -> list[str]:
        """What became of it in lines; of each kind of trouble at most some."""
        out = [f"{len(self.found)} of {len(self.found) + len(self.missing)} pictures are there"]
        troubles = (
            ("missing", [f"{sample}: {why}" for sample, why in sorted(self.missing.items())]),
            ("files that are no sample's", self.left),
            ("rows about no sample that is asked for", self.unknown),
        )
        for what, lines in troubles:
            if lines:
                out.append(f"  {what}: {len(lines)}")
                out += [f"    {line}" for line in lines[:most]]
                out += (
                    [f"    ... and {len(lines) - most} more"] if most and len(lines) > most else []
                )
        return out


def _known_fields(pattern: str) -> str:
    named = {name for _, name, *_ in Formatter().parse(pattern) if name is not None}
    if odd := named - set(FIELDS):
        raise ValueError(f"unknown {{{min(odd)}}}; known: {', '.join(FIELDS)}")
    if not named & {"sample_id", "case_id", "prompt", "slug"}:
        raise ValueError("must name {sample_id}, {case_id}, {prompt} or {slug}")
    Wanted("a-s0", "", "", "").name(pattern, "")  # a format that these cannot have
    return pattern


class Imported(Generator):
    """Gives each job the file that is its own."""

    given = True

    class Params(Strict):
        """Parameters of a card of given pictures: one of ``manifest`` and ``pattern``."""

        path: str = Field(
            min_length=1,
            description="Folder, or ZIP, tar or compressed tar, of the pictures",
            json_schema_extra=LOCATION,
        )
        manifest: str | None = Field(
            default=None,
            description="CSV or JSONL with 'file' and sample_id, or case_id, or subject_id and "
            "prompt; 'replicate' where there are several",
            json_schema_extra=LOCATION,
        )
        pattern: str | None = Field(
            default=None,
            description="Name of a file, e.g. {subject_id}/{case_id}_{replicate}.png; known: "
            + ", ".join(FIELDS),
        )

        @model_validator(mode="after")
        def _one_way(self) -> Imported.Params:
            if (self.manifest is None) == (self.pattern is None):
                raise ValueError("give one of 'manifest' and 'pattern'")
            if self.pattern is not None:
                _known_fields(self.pattern)
            return self

    def __init__(self, params: Any, card: GeneratorCard, references: Any, device: str) -> None:
        super().__init__(params, card, references, device)
        self._files: _Files | None = None
        self._manifest: _Manifest | None = None

    # --- before any work -------------------------------------------------------------------------

    @classmethod
    def sources(cls, params: Any, root: Path) -> dict[str, Path]:
        """The archive, or every file of the folder, and the manifest."""
        cls.check(params, None, root)
        out = {}
        path = root / params.path
        if path.is_dir() and not Path(f"{path}.dvc").is_file():
            out = {f"pictures/{name}": path / name for name in _listed(path)}
        else:
            out["pictures"] = path  # of a folder under DVC, its pointer
        if params.manifest is not None:
            out["manifest"] = root / params.manifest
        return out

    @classmethod
    def check(cls, params: Any, card: GeneratorCard | None, root: Path) -> None:
        """Whether the pictures and the manifest are there.

        Raises:
            InputError: naming the parameter.
        """
        for name in ("path", "manifest"):
            given = getattr(params, name)
            if given is not None and not (root / given).exists():
                pointer = Path(f"{root / given}.dvc")
                mend = f"dvc pull {pointer.name}" if pointer.is_file() else "correct it"
                raise InputError(
                    f"generators: params.{name}", f"no such file or folder: {given}", mend
                )

    @classmethod
    def checks(cls, params: Any, card: GeneratorCard, root: Path) -> list[Check]:
        """Whether the archive is sound and its names can be told apart."""
        try:
            cls.check(params, card, root)
            with closing(_Files(root / params.path)) as files:
                count = len(files.names)
            if params.manifest is not None:
                _Manifest(root / params.manifest)
        except InputError as error:
            return [Check("files", False, f"{error.where}: {error.fault}", error.mend or "")]
        verb = "see which pictures match: subjectbench import-check"
        return [Check("files", bool(count), f"{params.path}: {count} files; {verb}", "fill it")]

    @classmethod
    def match(cls, params: Any, root: Path, wanted: Iterable[tuple[str, ...]]) -> Match:
        """Say which file is which sample's.

        Args:
            wanted: sample, subject, its name and prompt of all pictures that are asked for.

        Raises:
            InputError: a file could be two samples', or a sample has two files.
        """
        manifest = _Manifest(root / params.manifest) if params.manifest else None
        samples = [Wanted(*one) for one in wanted]
        with closing(_Files(root / params.path)) as files:
            out = _matched(params, files, manifest, samples)
            used = set(out.found.values())
            if manifest is not None:
                own = manifest.path.resolve()
                used |= {name for name in files.names if (files.path / name).resolve() == own}
                about = {row for one in samples for row in manifest.of(one)}
                out.unknown = [f"{r.where}: {r.file}" for r in manifest.rows if r not in about]
            out.left = [name for name in files.names if name not in used]
            return out

    # --- pictures --------------------------------------------------------------------------------

    def generate(self, jobs: list[Job]) -> list[Outcome]:
        """Return the file of each job.

        Raises:
            InputError: as :meth:`match`.
        """
        from subjectbench.cards import ROOT

        params = self.params
        if self._files is None:
            self._files = _Files(ROOT / params.path)
            self._manifest = _Manifest(ROOT / params.manifest) if params.manifest else None
        wanted = (Wanted(j.sample_id, j.subject_id, j.subject, j.prompt) for j in jobs)
        match = _matched(params, self._files, self._manifest, wanted)
        return [self._outcome(job.sample_id, match) for job in jobs]

    def _outcome(self, sample_id: str, match: Match) -> Outcome:
        name = match.found.get(sample_id)
        if name is None:
            return Outcome(None, Status.MISSING, {"reason": match.missing[sample_id]})
        assert self._files is not None
        picture = images.read_picture(self._files.read(name), name=name)
        return Outcome(picture.image, picture.status, {"file": name, **picture.details})

    def close(self) -> None:
        """Give up the archive."""
        if self._files is not None:
            self._files.close()
            self._files = None


# --- files ---------------------------------------------------------------------------------------


def _listed(folder: Path) -> list[str]:
    names = (p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
    return sorted(name for name in names if not _NO_PICTURES.search(name))


class _Files:
    """The files of a folder or an archive by name, of which nothing is written under its own name.

    Raises:
        InputError: an archive that is unsafe or unsound, or names that are one on some systems.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._zip: images.ZipReader | None = None
        self._copies: tempfile.TemporaryDirectory[str] | None = None
        self._number: dict[str, int] = {}
        if path.is_dir():
            self.names = _listed(path)
            images.check_names(self.names, path)
        else:
            with unpacking.members(path) as found:  # looks through the whole of it first
                self.names = sorted(n for n, _ in found if not _NO_PICTURES.search(n))
            with path.open("rb") as opened:
                if images.sniff(opened.read(512)) == "ZIP archive":
                    self._zip = images.ZipReader(path)
        self._of = {_folded(name): name for name in self.names}

    def find(self, name: str) -> str | None:
        """The file of this name, however its accents are spelt."""
        return self._of.get(_folded(name))

    def read(self, name: str) -> bytes:
        """Bytes of a file."""
        if self.path.is_dir():
            return (self.path / name).read_bytes()
        if self._zip is not None:
            return self._zip[name]
        if self._copies is None:
            self._copy()
        assert self._copies is not None
        return Path(self._copies.name, str(self._number[name])).read_bytes()

    def _copy(self) -> None:
        """Copy a tar's files out in its own order, under numbers: it can only be read forwards."""
        self._copies = tempfile.TemporaryDirectory(prefix="subjectbench-")
        with unpacking.members(self.path) as found:
            for number, (name, data) in enumerate(found):
                self._number[name] = number
                with Path(self._copies.name, str(number)).open("wb") as out:
                    out.writelines(data)

    def close(self) -> None:
        """Close the archive, and remove what was copied."""
        if self._zip is not None:
            self._zip.close()
        if self._copies is not None:
            self._copies.cleanup()


def _folded(name: str) -> str:
    # One program writes an accent as a letter of its own, another as a part of the letter.
    return unicodedata.normalize("NFC", name)


# --- matching ------------------------------------------------------------------------------------


class _Row(NamedTuple):
    """A line of a manifest."""

    where: str
    file: str


_KEYS = (("sample_id",), ("case_id",), ("subject_id", "prompt"))
"""What can say whose picture a row is about; the last two with the replicate, 0 if not named."""


class _Manifest:
    """A manifest: every cell is text, so that no id becomes a number.

    Raises:
        InputError: naming the line.
    """

    def __init__(self, path: Path) -> None:
        try:
            text = path.read_text("utf-8-sig")
        except UnicodeDecodeError as error:
            fault = f"not UTF-8 at byte {error.start}"
            raise InputError(path, fault, "save it as UTF-8") from error
        self.path, self.rows = path, []
        self._of: dict[tuple[str, ...], list[_Row]] = {}
        lines = _json_lines(path, text) if path.suffix == ".jsonl" else _csv_lines(path, text)
        for where, values in lines:
            if not values.get("file"):
                raise InputError(where, "names no 'file'", "give it a column, or key, 'file'")
            replicate = values.get("replicate") or "0"
            if not (replicate.isascii() and replicate.isdigit()):
                raise InputError(where, f"replicate '{replicate}' is no whole number")
            keys = next((k for k in _KEYS if all(values.get(n) for n in k)), None)
            if keys is None:
                raise InputError(
                    where,
                    "does not say whose picture it is",
                    "give sample_id, or case_id, or subject_id and prompt",
                )
            row = _Row(where, values["file"])
            self.rows.append(row)
            self._of.setdefault(_key(keys, values, int(replicate)), []).append(row)
        if not self.rows:
            raise InputError(path, "has no rows", "one row per picture")

    def names(self, files: _Files, one: Wanted) -> tuple[str, list[str], str]:
        """Where it says so, the sample's file, and what was looked for."""
        rows = self.of(one)
        if len(rows) > 1:
            raise InputError(
                rows[1].where,
                f"gives sample {one.sample_id} a second file; the first: {rows[0].where}",
                "leave one of them; several pictures of a case have their own 'replicate'",
            )
        if not rows:
            return str(self.path), [], "not in the manifest"
        found = files.find(rows[0].file)
        return rows[0].where, [found] if found else [], f"no file '{rows[0].file[:200]}'"

    def of(self, one: Wanted) -> list[_Row]:
        """Rows about a sample."""
        values = {name: str(getattr(one, name)) for keys in _KEYS for name in keys}
        found = (self._of.get(_key(keys, values, one.replicate), []) for keys in _KEYS)
        return [row for rows in found for row in rows]


def _key(keys: tuple[str, ...], values: Mapping[str, str], replicate: int) -> tuple[str, ...]:
    number = () if keys == ("sample_id",) else (str(replicate),)
    return (*keys, *(_folded(values[name]) for name in keys), *number)


_TEXTS = frozenset(("file", *(name for keys in _KEYS for name in keys)))


def _json_lines(path: Path, text: str) -> Iterator[tuple[str, dict[str, str]]]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError as error:
            raise InputError(f"{path}: line {number}", f"no JSON: {error}") from error
        if not isinstance(value, dict):
            raise InputError(f"{path}: line {number}", "is no object", 'write {"file": ...}')
        for name, given in value.items():
            if name in _TEXTS and not isinstance(given, str):
                raise InputError(
                    f"{path}: line {number}: {name}", "is no text", "put quotes around it"
                )
        yield f"{path}: line {number}", {name: str(given) for name, given in value.items()}


def _csv_lines(path: Path, text: str) -> Iterator[tuple[str, dict[str, str]]]:
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        names = reader.fieldnames or []
        if "file" not in names:
            raise InputError(path, "has no column 'file'", suggest("file", names))
        for row in reader:
            where = f"{path}: line {reader.line_num}"
            if None in row or None in row.values():
                raise InputError(where, f"has not {len(names)} cells", "quote cells with commas")
            yield where, row
    except csv.Error as error:
        raise InputError(f"{path}: line {reader.line_num}", str(error)) from error


def _matched(
    params: Any, files: _Files, manifest: _Manifest | None, wanted: Iterable[Wanted]
) -> Match:
    out = Match()
    owner: dict[str, str] = {}
    for one in wanted:
        if manifest is None:
            where, names, looked = _by_pattern(params.pattern, files, one)
        else:
            where, names, looked = manifest.names(files, one)
        if not names:
            out.missing[one.sample_id] = looked
            continue
        other = owner.setdefault(names[0], one.sample_id)
        if other != one.sample_id:
            raise InputError(
                where,
                f"'{names[0]}' would be the picture of {other} and of {one.sample_id}",
                "each sample needs a file of its own: tell them apart by case_id and replicate",
            )
        out.found[one.sample_id] = names[0]
    return out


def _by_pattern(pattern: str, files: _Files, one: Wanted) -> tuple[str, list[str], str]:
    """Where it says so, the files that have the sample's name, and what was looked for."""
    endings = ENDINGS if "{ext}" in pattern else ("",)
    names = sorted({n for e in endings if (n := files.find(one.name(pattern, e)))})
    if len(names) > 1:
        raise InputError(
            files.path,
            f"sample {one.sample_id} could be {' or '.join(names)}",
            "leave one of them, or write the ending into the pattern",
        )
    return "generators: params.pattern", names, f"no file '{one.name(pattern, '*')[:200]}'"


PLUGIN = Imported
