"""Continuing from an archive: its artifacts, put into the store of this checkout."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from subjectbench import progress
from subjectbench.archive import contents
from subjectbench.archive.bag import Bag
from subjectbench.errors import InputError
from subjectbench.store import Store
from subjectbench.store.artifact import is_pictures
from subjectbench.store.folder import MANIFEST


@dataclass(frozen=True)
class Placed:
    """What became of an archive's artifacts.

    Attributes:
        run: name of the run's folder.
        commit: whose source made it.
        artifacts: how many the archive holds.
        files: how many files were written; the others were there already.
        without_pictures: how many artifacts lack their pictures still.
    """

    run: str
    commit: str
    artifacts: int
    files: int
    without_pictures: int


def restore(path: Path, results: Path) -> Placed:
    """Put the artifacts of an archive where a run would have left them.

    Args:
        path: the archive.
        results: folder of results, made if it is not there.

    Raises:
        InputError: the file is no archive of a run, could do harm, or is damaged; or this store has
            another artifact under the same key. Nothing was written.
    """
    store = Store(results)
    with Bag(path) as bag:
        faults = bag.faults()
        found, more = contents.artifacts(bag)
        faults += more
        if faults:
            rest = f" (and {len(faults) - 1} more)" if faults[1:] else ""
            raise InputError(path, faults[0] + rest, "subjectbench verify FILE lists everything")
        run = contents.run_of(found)
        assert run is not None  # else a fault
        for packed in found.values():
            store.check_same(packed.artifact, packed.manifest)
        files = without = 0
        for packed in progress.bar(found.values(), len(found), "place"):
            files += store.adopt(
                packed.artifact,
                packed.manifest,
                bag.read(packed.member(MANIFEST)),
                {n: partial(bag.copy, packed.member(n)) for n in packed.files},
            )
            absent = [n for n in packed.artifact.files if n not in packed.files]
            there = store.path(packed.artifact)
            without += any(is_pictures(n) and not (there / n).is_file() for n in absent)
        return Placed(
            run.artifact.folder, bag.info[contents.COMMIT_LINE], len(found), files, without
        )
