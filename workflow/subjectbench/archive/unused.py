"""What no study reaches any more: superseded artifacts, old runs, leftovers of killed jobs."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from subjectbench.archive.index import Index, size, some
from subjectbench.compare import Run
from subjectbench.config import Audit, Study
from subjectbench.errors import InputError
from subjectbench.plan import make_plan
from subjectbench.store.folder import folder_key

RECENT = 3600.0
"""Seconds for which plans and unfinished work are left alone: a run may be about to use them."""


@dataclass
class Unused:
    """What can go.

    Attributes:
        results: the folder looked at.
        artifacts: unreached artifacts and runs by kind, with their bytes.
        leftovers: unfinished work, saved plans and locks, with their bytes.
        published: keys of unreached artifacts that ``restore`` could bring back.
        kept: artifacts that are reached.
        unplanned: why a study could not be planned here; what its runs are made from is kept.
    """

    results: Path
    artifacts: dict[str, dict[Path, int]] = field(default_factory=lambda: defaultdict(dict))
    leftovers: dict[Path, int] = field(default_factory=dict)
    published: set[str] = field(default_factory=set)
    kept: int = 0
    unplanned: dict[str, str] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """Of everything that can go."""
        return sum(sum(of.values()) for of in (*self.artifacts.values(), self.leftovers))


def find(
    results: Path, studies: Iterable[Study | Audit], keep: Iterable[str], root: Path
) -> Unused:
    """Find what no study, no kept run and not ``results/latest`` is made from.

    Args:
        results: folder of the store and the runs.
        studies: whose artifacts are kept.
        keep: further runs, by name, beginning of name or key.
        root: the checkout.

    Raises:
        InputError: a run to keep is not there, or fits several.
    """
    out = Unused(results)
    reached: set[str] = set()
    runs = [Run.find(text, results) for text in keep]
    there = {p.parent.name: p.parent for p in results.glob("*/manifest.json")}
    for study in studies:
        if Path(study.results) != results:
            continue
        try:
            reached |= set(make_plan(study).artifacts)
        except InputError as error:  # such as data that is not on this machine
            out.unplanned[study.study] = f"{error.where}: {error.fault}"
            of = [n for n in there if n.rpartition("-")[0] == study.study]
            runs += [Run.find(str(there[name]), results) for name in of]
    if (results / "latest" / "manifest.json").is_file():
        runs.append(Run.find("latest", results))
    for run in runs:
        reached |= set(run.chain())
    index = Index(root)
    for kind, folder in _artifacts(results):
        key = folder_key(folder)
        if key in reached:
            out.kept += 1
            continue
        out.artifacts[kind][folder] = _bytes(folder)
        if key in index.entries:
            out.published.add(key)
    old = time.time() - RECENT
    for part in (".work", ".plans", ".locks"):
        for path in sorted((results / "store" / part).glob("*")):
            if path.lstat().st_mtime < old:
                out.leftovers[path] = _bytes(path)
    return out


def _artifacts(results: Path) -> Iterator[tuple[str, Path]]:
    """Kind and folder of every artifact and run, whole or not."""
    for folder, inner, files in os.walk(results / "store"):
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        path = Path(folder)
        if files or not (inner or path.name == "store"):
            inner.clear()
            yield path.relative_to(results / "store").parts[0], path
    for manifest in sorted(results.glob("*/manifest.json")):
        if not manifest.parent.is_symlink():
            yield "report", manifest.parent


def _bytes(path: Path) -> int:
    """Bytes that removing a file or folder frees here; files that are links free none."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(f.lstat().st_size for f in files if f.is_file() and not f.is_symlink())


def delete(found: Unused) -> None:
    """Remove it all; each artifact at once, so that a kill leaves none half removed.

    Raises:
        InputError: a job is making something.
    """
    store = found.results / "store"
    for lock in (store / ".locks").glob("*"):
        with lock.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InputError(
                    f"artifact {lock.name}", "is being made", "wait until the run has ended"
                ) from None
    gone = store / ".work" / "gone"
    gone.mkdir(parents=True, exist_ok=True)
    for folders in found.artifacts.values():
        for number, folder in enumerate(folders):
            folder.rename(gone / f"{number}")
            shutil.rmtree(gone / f"{number}")
            for parent in folder.parents:
                if parent in (store, found.results) or any(parent.iterdir()):
                    break
                parent.rmdir()
    for path in found.leftovers:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.rmtree(gone, ignore_errors=True)


def words(found: Unused, everything: bool = False) -> str:
    """Say it for people.

    Args:
        found: what can go.
        everything: name every folder rather than a few.
    """
    out = [f"kept: {found.kept} artifacts that a study or results/latest is made from"]
    for study, fault in found.unplanned.items():
        out.append(
            f"kept as well: all that runs of {study} are made from; it has no plan here: {fault}"
        )
    for kind, folders in found.artifacts.items():
        names = (str(f.relative_to(found.results)) for f in folders)
        restorable = sum(folder_key(f) in found.published for f in folders)
        out.append(
            f"unreached {kind}: {len(folders)}, {size(sum(folders.values()))}"
            + (f", {restorable} of them published" if restorable else "")
        )
        shown = list(names)
        out += [f"  {name}" for name in shown] if everything else [f"  {some(shown, 2)}"]
    if found.leftovers:
        count = len(found.leftovers)
        out.append(f"leftovers of past runs: {count}, {size(sum(found.leftovers.values()))}")
    return "\n".join(out) + "\n"
