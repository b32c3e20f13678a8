"""DVC as a mover of bytes, through its own command line: remotes, cache and links are its own.

Nothing else of this library knows DVC. It is called once per batch, from one process, never in
jobs. It calls a push complete though objects are missing, and puts damaged objects of its cache
into place without a word (``docs/footguns.md``), so whoever calls this checks the bytes.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from subjectbench.archive.index import FOLDER
from subjectbench.errors import InputError
from subjectbench.store import Artifact

POINTER = "outs:\n- path: {path}\n  hash: md5\nwdir: {wdir}\n"
"""A pointer to nothing yet, which DVC then fills. It lies outside the folder it points to, so that
deleting all results deletes no pointer."""


class Dvc:
    """The DVC repository of a checkout.

    Args:
        root: the checkout.

    Raises:
        InputError: DVC is not installed, or the checkout is no DVC repository.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        if importlib.util.find_spec("dvc") is None:
            raise InputError("DVC", "is not installed", "pip install dvc (see envs/)")
        if not (root / ".dvc").is_dir():
            raise InputError(root, "is no DVC repository", "run there: dvc init")

    def _run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "dvc", *arguments],
            cwd=self.root,
            # Who sits at a terminal sees DVC's progress and messages as they come.
            stderr=None if sys.stderr.isatty() else subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "DVC_NO_ANALYTICS": "1", **environment},
        )

    def _must(self, *arguments: str, **environment: str) -> str:
        """Run DVC.

        Raises:
            InputError: it failed, or warned.
        """
        done = self._run(*arguments, **environment)
        said = (done.stderr or "").strip()
        if done.returncode or "WARNING" in said:
            raise InputError(
                f"dvc {arguments[0]}",
                _told(said) or f"ended with status {done.returncode}",
                "mend what DVC says and run this again",
            )
        return done.stdout

    def remote(self) -> str:
        """Name and place of the default remote.

        Raises:
            InputError: none is set.
        """
        # Not "remote list", which wraps long paths.
        settings = dict(x.split("=", 1) for x in self._must("config", "--list").splitlines())
        if name := settings.get("core.remote"):
            return f"{name} ({settings.get(f'remote.{name}.url', '?')})"
        raise InputError(
            "DVC",
            "has no default remote",
            "dvc remote add --default NAME PLACE, where PLACE is a folder, s3://... or ssh://...",
        )

    def _pointer(self, held: Path) -> Path:
        """Pointer to ``results/store/<kind>``, or to a run ``results/<study>-<key>``."""
        kind = held.parent.name == "store"
        return self.root / FOLDER / ("" if kind else "runs") / f"{held.name}.dvc"

    def _pointers(self) -> list[Path]:
        return sorted((self.root / FOLDER).rglob("*.dvc"))

    def track(self, results: Path, artifacts: Iterable[Artifact]) -> None:
        """Add artifacts to the pointers of their kinds; what is not here stays known.

        Args:
            results: folder of the store and the runs, relative to the checkout.
            artifacts: in the store.

        Raises:
            InputError: DVC cannot add one, or a pointer is of another results folder.
        """
        folders, begun = [], []
        for artifact in artifacts:
            folder = results / artifact.folder
            held = folder if artifact.kind == "report" else results / "store" / artifact.kind
            pointer = self._pointer(held)
            if not pointer.is_file():
                pointer.parent.mkdir(parents=True, exist_ok=True)
                back = os.path.relpath(self.root, pointer.parent)
                pointer.write_text(POINTER.format(path=held.as_posix(), wdir=back))
                begun.append(pointer)
            elif f"path: {held.as_posix()}\n" not in pointer.read_text("utf-8"):
                raise InputError(
                    pointer, f"points elsewhere than {held}", "publish from one results folder only"
                )
            folders.append(str(folder))
        try:
            if folders:
                self._must("add", "--quiet", *folders)
        except BaseException:  # a pointer to nothing would stop all further work with DVC
            for pointer in begun:
                if "md5:" not in pointer.read_text("utf-8"):
                    pointer.unlink()
            raise

    def push(self) -> None:
        """Upload what all pointers of published artifacts point to.

        Raises:
            InputError: it failed, or something was neither here nor there.
        """
        # DVC remembers what it believes a remote to hold, and then does not look. A folder of its
        # own for that memory makes it look (DVC-03), if only for each pointer's list of objects.
        with tempfile.TemporaryDirectory() as forgetful:
            names = [str(p.relative_to(self.root)) for p in self._pointers()]
            self._must("push", *names, DVC_SITE_CACHE_DIR=forgetful)

    def pull(self, folders: Iterable[Path]) -> str:
        """Download and place folders, in one call.

        Returns:
            What went wrong, in DVC's words; empty if it says that nothing did.
        """
        done = self._run("pull", "--force", *map(str, folders))
        return (_told(done.stderr or "") or "it failed") if done.returncode else ""

    def objects(self, results: Path) -> dict[Path, str]:
        """md5 of every tracked file below the results folder, here or not; what DVC calls it by."""
        if not self._pointers():
            return {}
        listed = json.loads(
            self._must("ls", ".", str(results), "-R", "--dvc-only", "--json", "--show-hash")
        )
        return {results / item["path"]: item["md5"] for item in listed if item["md5"]}

    @cached_property
    def _cache(self) -> Path:
        return Path(self._must("cache", "dir").strip())

    def cached(self, md5: str) -> Path:
        """Where an object is in the cache, if it is there."""
        return self._cache / "files" / "md5" / md5[:2] / md5[2:]

    def forget_damaged(self, objects: Mapping[Path, str]) -> list[Path]:
        """Remove objects from the cache whose bytes are not what their name says (DVC-01).

        Args:
            objects: md5 of each file.

        Returns:
            The files whose objects were removed.
        """
        out = []
        for name, md5 in objects.items():
            path = self.cached(md5)
            if path.is_file():
                with path.open("rb") as file:
                    found = hashlib.file_digest(file, "md5").hexdigest()
                if found != md5:
                    path.unlink()
                    out.append(name)
        return out

    @contextmanager
    def empty_clone(self) -> Iterator[Dvc]:
        """A folder with the same pointers and remotes, and nothing else: no cache, no results."""
        with tempfile.TemporaryDirectory(prefix="subjectbench-proof-") as name:
            folder = Path(name)
            (folder / ".dvc").mkdir()
            clone = Dvc(folder)
            for config in ("config", "config.local"):
                source = self.root / ".dvc" / config
                if source.is_file():
                    text = _absolute(source.read_text("utf-8"), source.parent)
                    (folder / ".dvc" / config).write_text(text)
            clone._must("config", "core.no_scm", "true")
            clone._must("config", "--local", "cache.dir", str(folder / ".dvc" / "cache"))
            for pointer in self._pointers():
                copy = folder / pointer.relative_to(self.root)
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(pointer.read_bytes())
            yield clone


def _told(text: str) -> str:
    """What DVC complains about, without its advice."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [re.sub(r"^(ERROR|WARNING): ", "", x) for x in lines if x.startswith(("ERROR", "WARN"))]
    return "; ".join(dict.fromkeys(told or lines))[:1000]


def _absolute(config: str, folder: Path) -> str:
    """Full paths for remotes in relative folders, which DVC counts from its config's folder."""

    def place(found: re.Match[str]) -> str:
        url = found[2].strip()
        return found[1] + (url if "://" in url else os.path.normpath(folder / url))

    return re.sub(r"^(\s*url\s*=\s*)(.+)$", place, config, flags=re.M)
