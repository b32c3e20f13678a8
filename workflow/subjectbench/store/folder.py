"""The store on disk: whole artifacts or none, and the rows done so far of those under way."""

from __future__ import annotations

import datetime
import fcntl
import json
import os
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from subjectbench.errors import InputError
from subjectbench.hashing import digest, sha256_file
from subjectbench.store.artifact import Artifact, Plan, is_pictures
from subjectbench.store.identity import installed, off_lock

MANIFEST = "manifest.json"
"""What an artifact is: the same bytes wherever and whenever it is made."""

RECORD = "record.json"
"""How it was made here: host, device, time. Neither keyed nor hashed."""


class Partial:
    """Batches of an unfinished artifact. They outlive a killed job, and only whole ones count."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def load(self, batch: str) -> bytes | None:
        """Return a saved batch, or None."""
        path = self.folder / batch
        return path.read_bytes() if path.is_file() else None

    def save(self, batch: str, data: bytes) -> None:
        """Keep a finished batch; atomic, so that a kill leaves all of it or nothing."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=self.folder, prefix=".", delete=False) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(file.name).replace(self.folder / batch)

    @contextmanager
    def keeping(self, batch: str) -> Iterator[Path]:
        """Give a fresh folder to write into, and keep it whole when that went well."""
        self.folder.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=self.folder, prefix="."))
        try:
            yield fresh
            for path in (p for p in fresh.rglob("*") if p.is_file()):
                with path.open("rb") as file:
                    os.fsync(file.fileno())
            shutil.rmtree(self.folder / batch, ignore_errors=True)
            fresh.rename(self.folder / batch)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)

    def clear(self) -> None:
        """Forget all batches."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _into(new: Path, place: Path) -> None:
    """Give a finished file its place. What a link there points to stays as it is."""
    with new.open("rb") as file:
        os.fsync(file.fileno())
    place.parent.mkdir(parents=True, exist_ok=True)
    new.replace(place)


def _files(folder: Path) -> dict[str, Any]:
    """Files of an artifact, as its manifest states them.

    Raises:
        OSError: there is no manifest.
        ValueError: it is damaged.
    """
    manifest = json.loads((folder / MANIFEST).read_text("utf-8"))
    if not isinstance(manifest, dict) or not manifest.get("files"):
        raise ValueError("names no files")
    return dict(manifest["files"])


def _environment() -> dict[str, Any]:
    """Recorded with an artifact, never part of its key."""
    git = subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=Path(__file__).parent
    )
    return {
        "host": platform.node(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "git_commit": git.stdout.strip() or None,
        "other_than_locked": [f"{n} {v}" for n, v in off_lock(installed()).items()],
        "finished": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def folder_key(folder: Path) -> str:
    """Key that the name of an artifact's folder ends in."""
    return folder.name.rpartition("-")[2]


class Store:
    """The results folder of one checkout.

    Args:
        results: folder that holds ``store/`` and the runs.

    Attributes:
        device: what computes here, for the record.
    """

    def __init__(self, results: Path) -> None:
        self.results = results
        self.device = "cpu"

    def path(self, artifact: Artifact) -> Path:
        """Folder of an artifact."""
        return self.results / artifact.folder

    def has(self, artifact: Artifact) -> bool:
        """Whether an artifact is there, whole: every file has the size its manifest states."""
        folder = self.path(artifact)
        try:
            files = _files(folder)
        except (OSError, ValueError):
            return False
        return set(files) == set(artifact.files) and all(
            (folder / name).is_file() and (folder / name).stat().st_size == facts["bytes"]
            for name, facts in files.items()
        )

    def inputs(self, plan: Plan, key: str) -> list[str]:
        """Files that the job of an artifact reads.

        Of one that is whole, only those that are there: Snakemake runs a job again, and deletes
        what it made, when an input that is missing is made for somebody else.
        """
        paths = plan.upstream_paths(key)
        if self.has(plan.artifacts[key]):
            return [path for path in paths if Path(path).is_file()]
        return paths

    def manifest(self, artifact: Artifact) -> dict[str, Any]:
        """Manifest of an artifact that is there."""
        return dict(json.loads((self.path(artifact) / MANIFEST).read_text("utf-8")))

    @contextmanager
    def _lock(self, artifact: Artifact) -> Iterator[None]:
        """One process per key. The system drops the lock of a killed one."""
        folder = self.results / "store" / ".locks"
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / artifact.key).open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def make(self, artifact: Artifact, build: Callable[[Path, Partial], dict[str, int]]) -> Path:
        """Make an artifact unless it is there.

        ``build`` writes its files into a temporary folder and returns its row counts by status.
        The folder is then renamed: a path that exists is complete.

        Raises:
            InputError: ``build`` did not write the files that were announced.
        """
        final = self.path(artifact)
        with self._lock(artifact):
            if self.has(artifact):  # made meanwhile, perhaps by the orphan of a killed run
                return final
            work = self.results / "store" / ".work"
            work.mkdir(parents=True, exist_ok=True)
            partial = Partial(work / artifact.key)
            for stale in work.glob(f"{artifact.key}-*"):
                shutil.rmtree(stale, ignore_errors=True)
            folder = Path(tempfile.mkdtemp(dir=work, prefix=f"{artifact.key}-"))
            started = time.monotonic()
            rows = build(folder, partial)
            written = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
            if written != set(artifact.files):
                raise InputError(
                    f"{artifact.kind} {artifact.name}",
                    f"wrote {sorted(written)}, announced {sorted(artifact.files)}",
                )
            manifest = {
                "key": artifact.key,
                **artifact.identity,
                "files": {
                    name: {
                        "bytes": (folder / name).stat().st_size,
                        "sha256": sha256_file(folder / name),
                    }
                    for name in sorted(written)
                },
                "rows": rows,
            }
            record = {
                **_environment(),
                "device": self.device,
                "seconds": round(time.monotonic() - started, 3),
            }
            for name, facts in ((MANIFEST, manifest), (RECORD, record)):
                (folder / name).write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n")
            for path in folder.rglob("*"):
                if path.is_file():
                    with path.open("rb") as file:
                        os.fsync(file.fileno())
            folder.chmod(0o755)
            if final.exists():  # an empty folder made for us, or a damaged artifact
                shutil.rmtree(final)
            final.parent.mkdir(parents=True, exist_ok=True)
            folder.rename(final)
            partial.clear()
        return final

    def check_same(self, artifact: Artifact, manifest: dict[str, Any]) -> None:
        """Refuse an artifact from elsewhere whose manifest is not that of the one here.

        Raises:
            InputError: naming the artifact.
        """
        path = self.path(artifact) / MANIFEST
        try:
            here = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError):
            return  # not there, or damaged: the other one mends it
        if here != manifest:
            raise InputError(
                path,
                "says otherwise than what you bring: two results under one key",
                "compare the two, and move one away; subjectbench verify hashes those here",
            )

    def adopt(
        self,
        artifact: Artifact,
        manifest: dict[str, Any],
        text: bytes,
        files: Mapping[str, Callable[[Path], None]],
    ) -> int:
        """Take in files of an artifact that was made elsewhere; those here that are right stay.

        Args:
            artifact: whose.
            manifest: its account of itself.
            text: the same as the bytes of its file.
            files: those that are brought, by name; each is called with the path to write.

        Returns:
            How many files were written.

        Raises:
            InputError: what is brought is not as the manifest says.
        """
        final, written = self.path(artifact), 0
        work = self.results / "store" / ".work"
        work.mkdir(parents=True, exist_ok=True)
        with self._lock(artifact), tempfile.TemporaryDirectory(dir=work) as temporary:
            for name, bring in files.items():
                facts, there = manifest["files"][name], final / name
                if there.is_file() and sha256_file(there) == facts["sha256"]:
                    continue
                new = Path(temporary) / "file"
                bring(new)
                if sha256_file(new) != facts["sha256"]:
                    raise InputError(there, "is not what its manifest says", "it was not taken in")
                _into(new, there)
                written += 1
            account = final / MANIFEST
            if not account.is_file() or account.read_bytes() != text:
                (Path(temporary) / "file").write_bytes(text)
                _into(Path(temporary) / "file", account)
                written += 1
        return written

    def verify(self, folder: Path, pictures: bool = True) -> list[str]:
        """Re-hash an artifact; return its faults in words, each beginning with the file's path.

        Args:
            folder: of the artifact.
            pictures: whether to hash its files of pictures too.
        """
        path = folder / MANIFEST
        try:
            files = _files(folder)
            manifest = json.loads(path.read_text("utf-8"))
        except OSError:
            return [f"{path}: missing"]
        except ValueError as error:
            return [f"{path}: damaged: {error}"]
        faults = []
        known = {k: v for k, v in manifest.items() if k not in ("key", "rows", "files")}
        if (
            not manifest.get("key")
            == folder_key(folder)
            == digest(known | {"files": sorted(files)})
        ):
            faults.append(f"{path}: is not the manifest of this key")
        for name, facts in files.items():
            path = folder / name
            if is_pictures(name) and not pictures:
                continue
            if not path.is_file():
                faults.append(f"{path}: missing")
            elif sha256_file(path) != facts["sha256"]:
                faults.append(f"{path}: bytes differ from the manifest")
        return faults
