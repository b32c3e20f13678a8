"""Publishing the artifacts of a study, restoring them elsewhere, and checking every byte.

DVC moves and keeps the bytes (:mod:`subjectbench.archive.dvc`); whether they are the right ones is
checked here, against manifests whose hashes are in git (:mod:`subjectbench.archive.index`).
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from subjectbench.archive.dvc import Dvc
from subjectbench.archive.index import FOLDER, Index, costly, some
from subjectbench.errors import InputError
from subjectbench.progress import bar
from subjectbench.store import Artifact, Plan, Store
from subjectbench.store.folder import MANIFEST


def verify(artifacts: Collection[Artifact], store: Store, index: Index) -> dict[str, list[str]]:
    """Re-hash artifacts that are there.

    Args:
        artifacts: to hash; those of which nothing is there are passed over.
        store: where they lie.
        index: manifests of those that are published must be the published ones.

    Returns:
        Faults in words by key of the artifact; whole ones have none.
    """
    out = {}
    for artifact in bar(artifacts, len(artifacts), "verify"):
        folder = store.path(artifact)
        if not folder.is_dir():
            continue
        faults = store.verify(folder)
        if not faults and artifact.key in index.entries and not index.same(artifact, store):
            faults = [f"{folder / MANIFEST}: differs from what is published"]
        if faults:
            out[artifact.key] = faults
    return out


def _inside(results: str, root: Path) -> Path:
    """Results folder relative to the checkout.

    Raises:
        InputError: it lies elsewhere, where DVC tracks nothing.
    """
    path = Path(results)
    if path.is_absolute() or ".." in path.parts or (root / path).is_symlink():
        raise InputError(
            "config: results", f"'{results}' lies outside the checkout", "DVC needs it inside"
        )
    return path


@dataclass
class Published:
    """What publishing did.

    Attributes:
        new: artifacts entered.
        known: artifacts that were published before.
        absent: artifacts of the plan that are not here.
        bytes: of the new ones.
        remote: name and place of DVC's remote.
    """

    new: list[Artifact]
    known: int
    absent: int
    bytes: int
    remote: str


def publish(plan: Plan, root: Path, prove: bool = True) -> Published:
    """Check the artifacts of a study that are here, give them to DVC, and upload them.

    Leaves pointers and the index in ``data/``, for git.

    Args:
        plan: of the study.
        root: the checkout.
        prove: download what is new into an empty folder afterwards, and hash it there: the only
            proof that a remote holds what was sent.

    Raises:
        InputError: an artifact is damaged or differs from what is published under its key, DVC
            fails, or the remote does not give back what was sent.
    """
    results, store, index = _inside(plan.results, root), Store(Path(plan.results)), Index(root)
    dvc = Dvc(root)
    remote = dvc.remote()
    here = [a for a in plan.artifacts.values() if store.path(a).is_dir()]
    faults = [f for told in verify(here, store, index).values() for f in told]
    if faults:
        raise InputError(
            f"{len(faults)} files", some(faults), "mend them first: subjectbench restore"
        )
    tracked = _files_of(here, results, dvc)
    # Not only what is new: where pointers were merged by hand, one side may have been lost.
    new = [a for a in here if a.key not in index.entries or not tracked[a.key]]
    dvc.track(results, new)
    # Every pointer: an earlier push may have been cut off.
    dvc.push()
    for artifact in new:
        index.add(artifact, store)
    if prove and new:
        _prove(dvc, results, new, index)
    index.write()
    if store.has(plan.artifacts[plan.final]):
        from subjectbench.archive import compared  # pandas takes its time

        compared.write(plan, root)
    return Published(
        new,
        len(here) - len(new),
        len(plan.artifacts) - len(here),
        sum(index.entries[a.key].bytes for a in new),
        remote,
    )


def _prove(dvc: Dvc, results: Path, artifacts: list[Artifact], index: Index) -> None:
    """Download artifacts into an empty folder and hash them there.

    Raises:
        InputError: naming what the remote does not give back.
    """
    with dvc.empty_clone() as clone:
        said = clone.pull(results / a.folder for a in artifacts)
        store = Store(clone.root / results)
        faults = [f for told in verify(artifacts, store, index).values() for f in told]
        faults += [f"{results / a.folder}: missing" for a in artifacts if not store.has(a)]
        if said or faults:
            raise InputError(
                "the remote",
                f"does not give back what was sent: {some([*faults, said])}",
                "look at the remote's disk and rights, then publish again",
            )


@dataclass
class Restored:
    """What restoring did.

    Attributes:
        fetched: artifacts that were fetched, whole.
        replaced: keys of those that were here but damaged, with their faults.
        kept: artifacts that were here and whole.
        lost: published artifacts that could not be fetched, with faults in words.
        damaged: artifacts here that are damaged and not published, with their faults.
        to_make: what the next run makes.
        bytes: of what was fetched.
    """

    fetched: list[Artifact] = field(default_factory=list)
    replaced: dict[str, list[str]] = field(default_factory=dict)
    kept: int = 0
    lost: dict[str, list[str]] = field(default_factory=dict)
    damaged: dict[str, list[str]] = field(default_factory=dict)
    to_make: list[Artifact] = field(default_factory=list)
    bytes: int = 0

    @property
    def faults(self) -> list[str]:
        """Everything that is not as it should be."""
        return [f for told in (*self.lost.values(), *self.damaged.values()) for f in told]

    @property
    def remade(self) -> list[Artifact]:
        """Pictures and paid answers that are published, but that the next run would make again."""
        return [a for a in self.to_make if a.key in self.lost and costly(a)]


def restore(plan: Plan, root: Path, kinds: Iterable[str] = (), needed: bool = False) -> Restored:
    """Bring the published artifacts of a study, checked byte for byte.

    What is here and whole stays. What is damaged, or differs from what is published, is replaced.
    What cannot be had whole is left out and named.

    Args:
        plan: of the study.
        root: the checkout.
        kinds: of artifacts, e.g. ``score``; none: all.
        needed: only what the next run reads, not everything that led to it.

    Raises:
        InputError: DVC cannot be used, or nothing is published here.
    """
    results, store, index = _inside(plan.results, root), Store(Path(plan.results)), Index(root)
    dvc, out = Dvc(root), Restored()
    if not index.entries:
        raise InputError(
            root / "data", "lists nothing published", "git pull, or publish: subjectbench publish"
        )
    faults = verify(list(plan.artifacts.values()), store, index)
    out.damaged = {key: told for key, told in faults.items() if key not in index.entries}
    wanted = [
        a
        for a in (_read_next(plan, store, index) if needed else plan.artifacts.values())
        if a.key in index.entries and (not kinds or a.kind in kinds)
    ]
    missing = [a for a in wanted if a.key in faults or not store.has(a)]
    out.replaced = {a.key: faults[a.key] for a in missing if a.key in faults}
    out.kept = len(wanted) - len(missing)
    if missing:
        dvc.remote()
        _fetch(dvc, results, missing, store, index, out)
    out.fetched = [a for a in missing if a.key not in out.lost]
    out.bytes = sum(index.entries[a.key].bytes for a in out.fetched)
    out.to_make = plan.to_make(lambda a: store.has(a) and a.key not in out.damaged)
    return out


def _read_next(plan: Plan, store: Store, index: Index) -> list[Artifact]:
    """Artifacts that the next run reads, or that spare it work."""
    there = [a.key for a in plan.artifacts.values() if a.key in index.entries or store.has(a)]
    made = plan.to_make(lambda a: a.key in there)
    keys = {plan.final, *(k for a in made for k in a.upstream.values())}
    return [plan.artifacts[key] for key in keys]


def _fetch(
    dvc: Dvc, results: Path, missing: list[Artifact], store: Store, index: Index, out: Restored
) -> None:
    """Fetch artifacts with one call of DVC; with more only if some came damaged or not at all.

    DVC places nothing if one object cannot be had, and places damaged objects of its cache without
    a word. So what came is hashed, damaged objects are forgotten and asked for again, and the rest
    is asked for without what cannot be had.
    """
    with _set_aside(missing, store):
        todo, asked_again = missing, set[str]()
        while todo:
            said = dvc.pull(results / a.folder for a in todo)
            faults = {a.key: [f"{store.path(a)}: did not come"] for a in todo if not store.has(a)}
            faults |= verify(todo, store, index)
            todo = [a for a in todo if a.key in faults]
            again, moved = [], False
            files = _files_of(todo, results, dvc) if todo else {}
            for artifact in todo:
                key = artifact.key
                shutil.rmtree(store.path(artifact), ignore_errors=True)
                told = [
                    f"{file}: the remote has no object {md5}"
                    for file, md5 in files[key].items()
                    if not dvc.cached(md5).is_file()
                ]
                damaged = dvc.forget_damaged(files[key])
                if damaged and key in asked_again:
                    told += [f"{file}: object {files[key][file]} is damaged" for file in damaged]
                if not files[key]:
                    told = [f"{store.path(artifact)}: no pointer in {FOLDER}/ knows it"]
                if told:
                    out.lost[key] = told
                else:
                    again.append(artifact)
                moved |= bool(told) or bool(damaged)
                asked_again |= {key} if damaged else set()
            if not moved:  # neither lost nor damaged, so DVC's own words are all there is
                out.lost |= {a.key: [*faults[a.key], said] if said else faults[a.key] for a in todo}
                again = []
            todo = again


def _files_of(artifacts: list[Artifact], results: Path, dvc: Dvc) -> dict[str, dict[Path, str]]:
    """Files of each artifact that the pointers know, with DVC's name of their bytes."""
    out: dict[str, dict[Path, str]] = {a.key: {} for a in artifacts}
    keys = {results / a.folder: a.key for a in artifacts}
    for file, md5 in dvc.objects(results).items():
        for parent in file.parents:
            if parent in keys:
                out[keys[parent]][file] = md5
    return out


@contextmanager
def _set_aside(artifacts: list[Artifact], store: Store) -> Iterator[None]:
    """Put folders of damaged artifacts aside; back if nothing took their place."""
    moved = {}
    for artifact in artifacts:
        folder = store.path(artifact)
        if folder.exists():
            moved[folder] = store.results / "store" / ".work" / f"{artifact.key}-aside"
            moved[folder].parent.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(moved[folder], ignore_errors=True)
            folder.rename(moved[folder])
    try:
        yield
    finally:
        for folder, aside in moved.items():
            if folder.exists():
                shutil.rmtree(aside)
            else:
                folder.parent.mkdir(parents=True, exist_ok=True)
                aside.rename(folder)
