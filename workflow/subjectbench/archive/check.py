"""Checking an archive offline: every hash, every identity, the source, and every table anew.

Tables are made again by the stage that made them, from the rows in the archive. What no one can
see from an archive alone is whether the rows themselves are true: for that the run must be
repeated, which `subjectbench restore --from` and the source in the archive allow.
"""

from __future__ import annotations

import io
import math
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from subjectbench import compare, writing
from subjectbench.archive import contents, source
from subjectbench.archive.bag import Bag
from subjectbench.archive.contents import Packed
from subjectbench.cards import ROOT
from subjectbench.errors import InputError
from subjectbench.hashing import sha256_file
from subjectbench.published import data
from subjectbench.stages import audit, report, tabulate
from subjectbench.stages.base import Context
from subjectbench.store import Artifact, Plan, identity
from subjectbench.store.artifact import is_pictures
from subjectbench.store.folder import MANIFEST

TOLERANCE = 1e-6
"""Difference of two numbers, relative to the larger of 1 and the first, that other versions of
libraries or another processor explain."""

PRINTED = 10.0**-3
"""Last digit of numbers in Markdown, LaTeX and on the page."""

MAKERS = {"tables": tabulate, "audit": audit}


@dataclass
class Verdict:
    """What checking an archive found.

    Attributes:
        told: what was looked at and found right, in sentences.
        faults: what is wrong; empty: nothing.
    """

    told: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def verify(path: Path, root: Path, tolerance: float = TOLERANCE) -> Verdict:
    """Check an archive.

    Args:
        path: the archive.
        root: this checkout; asked only whether its repository has the archive's commit.
        tolerance: of numbers in tables that are not the same bytes; 0: none.

    Raises:
        InputError: the file is no archive of a run, or could do harm; nothing was written.
    """
    out = Verdict()
    with Bag(path) as bag:
        size = sum(bag.size(name) for name in bag)
        out.told.append(f"{bag.name}: {path.stat().st_size} bytes, sha256 {sha256_file(path)}")
        if faults := bag.faults():
            out.faults += [*faults, "the rest was not looked at: the archive is damaged"]
            return out
        out.told.append(
            f"{len(list(bag))} files, {size} bytes: each as the archive's manifest says"
        )
        found, faults = contents.artifacts(bag)
        out.faults += faults
        if faults:
            out.faults.append("tables were not made again: the artifacts are not in order")
        else:
            out.told.append(f"{len(found)} artifacts: identities, chain and files in order")
        out.faults += contents.pages(bag, found)
        _source(bag, root, out)
        if not faults:
            _tables(bag, found, tolerance, out)
        out.told += _left_out(found)
    return out


def _source(bag: Bag, root: Path, out: Verdict) -> None:
    commit = bag.info.get(contents.COMMIT_LINE, "")
    faults = source.prove(commit, bag, bag.read)
    out.faults += faults
    if faults:
        return
    known = "this repository has it" if source.knows(root, commit) else "not in this repository"
    out.told.append(f"source: that of commit {commit}, file by file ({known})")
    dirty = source.DIFF in bag
    if dirty != (bag.info.get(contents.DIRTY_LINE, "nothing") != "nothing"):
        out.faults.append(f"bag-info.txt: does not say the truth about {source.DIFF}")
    if dirty:
        out.told.append(
            f"NOT COMMITTED when it was made: {bag.info[contents.DIRTY_LINE]}; identities are of "
            "the changed files"
        )


def _left_out(found: dict[str, Packed]) -> Iterator[str]:
    absent = [
        facts["bytes"]
        for packed in found.values()
        for name, facts in packed.manifest["files"].items()
        if is_pictures(name) and name not in packed.files
    ]
    if absent:
        yield (
            f"not in it: pictures, {len(absent)} files of {sum(absent)} bytes; "
            f"{contents.PICTURES} lists place and sha256 of each"
        )


# --- tables --------------------------------------------------------------------------------------


def _tables(bag: Bag, found: dict[str, Packed], tolerance: float, out: Verdict) -> None:
    run = contents.run_of(found)
    assert run is not None  # else the artifacts are not in order
    tables = found.get(run.artifact.upstream.get("tables", ""), run)
    if tables.artifact.kind not in MAKERS:
        out.faults.append(f"{tables.artifact.folder}: the run's tables are none")
        return
    elsewhere = _differences(tables) + _differences(run)
    if elsewhere:
        out.told.append(f"made otherwise than this checkout would: {'; '.join(elsewhere)}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for up in tables.artifact.upstream.values():
            for file in (MANIFEST, *found[up].files):
                if not is_pictures(file):
                    member = found[up].member(file)
                    bag.copy(member, folder / member)
        before = len(out.faults)
        try:
            out.told += _recompute(bag, found, run, folder, tolerance, bool(elsewhere), out.faults)
        except Exception as error:  # rows of another form, or made up ones, can raise anything
            out.faults.append(
                f"tables cannot be made again from the rows: {type(error).__name__}: {error}"
            )
        if len(out.faults) > before and elsewhere:
            commit = bag.info[contents.COMMIT_LINE]
            out.faults.append(
                "before you conclude anything: check with the archive's own source and versions "
                f"(git checkout {commit[:12]}, or its folder source/; envs/requirements.txt there)"
            )


def _recompute(
    bag: Bag,
    found: dict[str, Packed],
    run: Packed,
    folder: Path,
    tolerance: float,
    otherwise: bool,
    faults: list[str],
) -> Iterator[str]:
    """Make tables and page again from rows in a folder; add faults, and tell what was right."""
    tables = found[run.artifact.upstream["tables"]]
    made = _make(tables, found, folder)
    same = close = 0
    for name in tables.artifact.files:
        old, new = bag.read(tables.member(name)), (made / name).read_bytes()
        if old == new:
            same += 1
        else:
            differing = list(_compare(name, old, new, tolerance))
            faults += differing
            close += not differing
        if bag.hash(run.member(f"tables/{name}")) != bag.hash(tables.member(name)):
            faults.append(f"{run.member(f'tables/{name}')}: is not the table of its run")
    more = f", {close} more within {tolerance:g}" if close else ""
    total = len(tables.artifact.files)
    yield f"tables made again from the rows: {same} of {total} files the same bytes{more}"
    yield from _page(bag, run, tables, made, otherwise, faults)


def _make(tables: Packed, found: dict[str, Packed], folder: Path) -> Path:
    """Make the tables from rows that lie in a folder; return where they are."""
    artifact = _with_job(tables.artifact)
    upstream = {key: found[key].artifact for key in tables.artifact.upstream.values()}
    plan = Plan({"run": {}}, str(folder / "results"), {**upstream, artifact.key: artifact}, "")
    context = Context(plan, artifact)
    MAKERS[artifact.kind].run(context)
    return context.store.path(artifact)


def _with_job(artifact: Artifact) -> Artifact:
    """An artifact of tables or a run with its job, all of which is among its components."""
    own = {"code", "packages", "captions", "data"} if artifact.kind != "audit" else set()
    job = {n: v for n, v in artifact.components.items() if n not in own}
    return Artifact(
        artifact.kind, artifact.name, artifact.components, artifact.upstream, artifact.files, job
    )


def _differences(packed: Packed) -> list[str]:
    """How this checkout would make an artifact otherwise: its code and packages."""
    kind, parts = packed.artifact.kind, packed.artifact.components
    stage = {"tables": "tabulate"}.get(kind, kind)
    here: dict[str, Any] = {"code": identity.closure(f"subjectbench.stages.{stage}")}
    if kind == "audit":
        here["data"] = identity.hash_sources(data.sources())
    if kind == "report":
        captions = {n: ROOT / "workflow" / "report" / n for n in parts.get("captions", {})}
        here["captions"] = {n: sha256_file(p) for n, p in captions.items() if p.is_file()}
    here["packages"] = {}
    for name, known in parts.get("packages", {}).items():
        try:
            here["packages"] |= identity.packages([name], kind)
        except InputError:
            here["packages"][name] = f"none (was {known})"
    told = identity.changed({n: parts.get(n) for n in here}, here)
    codes = [line for line in told if line.startswith("code")]
    if len(codes) > 2:
        told = [line for line in told if line not in codes]
        told.append(f"code of {len(codes)} modules")
    return [f"{kind} {line}" for line in told]


def _compare(name: str, old: bytes, new: bytes, tolerance: float) -> Iterator[str]:
    """Say where two versions of a table differ by more than a tolerance: every cell of a CSV."""
    if not name.endswith(".csv"):
        if not _alike(old.decode(errors="replace"), new.decode(), tolerance):
            yield f"tables/{name}: is not what its rows make"
        return
    try:
        a = pd.read_csv(io.BytesIO(old), dtype=str, keep_default_na=False)
    except ValueError as error:
        yield f"tables/{name}: cannot be read: {error}"
        return
    b = pd.read_csv(io.BytesIO(new), dtype=str, keep_default_na=False)
    if list(a.columns) != list(b.columns) or len(a) != len(b):
        yield (
            f"tables/{name}: has {len(a)} rows of {len(a.columns)} columns; its rows make "
            f"{len(b)} of {len(b.columns)}, or columns of other names"
        )
        return
    ids = compare.id_columns(a, b)
    for column in a.columns:
        for place, (x, y) in enumerate(zip(a[column], b[column], strict=True)):
            if x != y and not _close(x, y, tolerance):
                row = " / ".join(v for v in a[ids].iloc[place] if v)
                cell = f"row {place + 1} ({row}), {column}"
                yield f"tables/{name}: {cell}: {x!r}, its rows make {y!r}"


def _close(a: str, b: str, tolerance: float) -> bool:
    try:
        x, y = float(a), float(b)
    except ValueError:
        return False
    return math.isclose(x, y, rel_tol=0, abs_tol=tolerance * max(1.0, abs(x)))


_NUMBER = re.compile(r"\d+\.\d+|\d+")


def _alike(a: str, b: str, tolerance: float) -> bool:
    """Whether two texts are equal but for the last printed digit of their numbers."""
    if not tolerance or _NUMBER.split(a) != _NUMBER.split(b):
        return a == b
    pairs = zip(_NUMBER.findall(a), _NUMBER.findall(b), strict=True)
    return all(x == y or abs(float(x) - float(y)) < 1.5 * PRINTED for x, y in pairs)


def _page(
    bag: Bag, run: Packed, tables: Packed, made: Path, otherwise: bool, faults: list[str]
) -> Iterator[str]:
    """Hold the page and the config of a run against its tables and its identity."""
    artifact = _with_job(run.artifact)
    if tables.artifact.kind == "audit":  # a run's captions are hashes of files
        artifact.job["captions"] = tables.artifact.components["captions"]
    printed = bool(artifact.job.get("printed_only"))
    frames = {
        name: writing.read(made / f"{name}.csv", as_printed=printed)
        for name in artifact.job["tables"]
    }
    config = yaml.safe_dump(artifact.job["study"], sort_keys=False, allow_unicode=True)
    stated = yaml.safe_load(bag.read(run.member("config.yaml")))
    if stated != yaml.safe_load(config):
        faults.append(f"{run.member('config.yaml')}: is not the study of this run")
    plan = Plan({"run": {}}, "", {artifact.key: artifact}, artifact.key)
    page = report.page(Context(plan, artifact), frames).encode()
    if page == bag.read(run.member("index.html")):
        yield "page and config: as tables and identity make them; figures: hashed only"
    elif otherwise:
        yield "page: not held against the tables, since it would be made otherwise here"
    else:
        faults.append(f"{run.member('index.html')}: is not the page that its tables make")
