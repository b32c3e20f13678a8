"""What is published: one line per artifact in ``data/<kind>.csv``, beside DVC's pointers, in git.

So a plan knows without asking any server which artifacts a colleague can restore, how large they
are, and the hash of the manifest that names the hash of every file.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from subjectbench.errors import InputError
from subjectbench.hashing import sha256_file
from subjectbench.store import Artifact, Plan, Store

FOLDER = "data"
"""Folder of the checkout that holds all that publishing leaves for git."""

REMAKE = "SUBJECTBENCH_REMAKE"
"""Environment variable that lets a run make what is published."""

COLUMNS = ("name", "key", "bytes", "manifest_sha256")


@dataclass(frozen=True)
class Entry:
    """One published artifact.

    Attributes:
        bytes: of all its files but the manifest.
        manifest_sha256: of ``manifest.json``, which names the sha256 of every other file.
    """

    kind: str
    name: str
    key: str
    bytes: int
    manifest_sha256: str


class Index:
    """Entries by key.

    Args:
        root: the checkout.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.entries: dict[str, Entry] = {}
        for path in sorted((root / FOLDER).glob("*.csv")):
            self._read(path)

    def _read(self, path: Path) -> None:
        """Read the entries of one kind.

        Raises:
            InputError: a line cannot be read, or two lines say different things of one key.
        """
        mend = f"take the file of one side of the merge, then run: subjectbench publish ({path})"
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.reader(file)
            if tuple(next(rows, ())) != COLUMNS:
                raise InputError(f"{path}: line 1", f"is not {','.join(COLUMNS)}", mend)
            for row in rows:
                where = f"{path}: line {rows.line_num}"
                if len(row) != len(COLUMNS) or not row[2].isdecimal():
                    raise InputError(where, f"cannot be read: {','.join(row)}", mend)
                entry = Entry(path.stem, row[0], row[1], int(row[2]), row[3])
                if self.entries.setdefault(entry.key, entry) != entry:
                    raise InputError(where, f"key {entry.key} has another entry before", mend)

    def add(self, artifact: Artifact, store: Store) -> None:
        """Enter an artifact as it lies in the store."""
        manifest = store.manifest(artifact)
        self.entries[artifact.key] = Entry(
            artifact.kind,
            artifact.name,
            artifact.key,
            sum(facts["bytes"] for facts in manifest["files"].values()),
            sha256_file(store.path(artifact) / "manifest.json"),
        )

    def write(self) -> None:
        """Write every kind's file, sorted; the same bytes for the same entries."""
        (self.root / FOLDER).mkdir(exist_ok=True)
        for kind in sorted({e.kind for e in self.entries.values()}):
            text = io.StringIO()
            lines = csv.writer(text, lineterminator="\n")
            lines.writerow(COLUMNS)
            of_kind = [e for e in self.entries.values() if e.kind == kind]
            for e in sorted(of_kind, key=lambda e: (e.name, e.key)):
                lines.writerow((e.name, e.key, e.bytes, e.manifest_sha256))
            (self.root / FOLDER / f"{kind}.csv").write_text(text.getvalue(), "utf-8")

    def same(self, artifact: Artifact, store: Store) -> bool:
        """Whether the store holds an artifact with the manifest that is published."""
        path = store.path(artifact) / "manifest.json"
        entry = self.entries[artifact.key]
        return path.is_file() and sha256_file(path) == entry.manifest_sha256


def costly(artifact: Artifact) -> bool:
    """Whether making an artifact takes a generator, or asks a server that may want money."""
    judge = artifact.job.get("judge")
    return artifact.kind == "generate" or bool(judge and judge["remote"])


def refuse_remaking(plan: Plan, root: Path) -> None:
    """Refuse a run that would make pictures, or ask a server for answers, that are published.

    Raises:
        InputError: naming the artifacts; not if the environment's ``SUBJECTBENCH_REMAKE`` is 1.
    """
    if os.environ.get(REMAKE) == "1" or not (root / FOLDER).is_dir():
        return
    store, index = Store(Path(plan.results)), Index(root)
    again = [a for a in plan.to_make(store.has) if costly(a) and a.key in index.entries]
    if again:
        raise InputError(
            f"{len(again)} published artifacts are not here and would be made again",
            some(f"{a.kind} {a.name}" for a in again),
            f"fetch them: subjectbench restore; or make them again: {REMAKE}=1 snakemake ...",
        )


def some(names: Iterable[str], most: int = 3) -> str:
    """List a few names, and say how many more there are."""
    listed = list(names)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more


def size(count: float) -> str:
    """Bytes as people read them, e.g. ``12.3 MB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            break
        count /= 1000
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
