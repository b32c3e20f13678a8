"""The real Snakefile, run in copies of this checkout whose paths hold spaces and quotes."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import tutorials

ROOT = Path(__file__).parents[2]
COPIED = ("Snakefile", "config.yaml", "pyproject.toml", "envs", "profiles", "workflow")

TINY: dict[str, Any] = {
    "study": "tiny",
    "benchmark": {"card": "miniworld", "params": {"subjects": 3}},
    "generators": [
        {"card": "mini_diffusion", "params": {"steps": 3}},
        "sim_identity_drift",
        "copy_reference",
    ],
    "metrics": ["mini_clip_i", "mini_clip_t", "mini_dino", "mini_hps"],
    "raters": "miniworld_raters",
    "dimensions": {
        "preservation": "mini_dino",
        "following": "mini_clip_t",
        "quality": "mini_hps",
    },
    "statistics": {"bootstrap": 50},
    "run": {"device": "cpu", "batch_size": 12},
}


def _environment(folder: Path) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": str(folder / "workflow"),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


class Checkout:
    """A copy of the repository with one study of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copyfile(source, folder / name)
        self.env = _environment(folder)
        self.configure(TINY)

    @classmethod
    def at(cls, folder: Path) -> Checkout:
        """One that is there already."""
        out = cls.__new__(cls)
        out.folder, out.env = folder, _environment(folder)
        return out

    def configure(self, study: dict[str, Any]) -> None:
        (self.folder / "config.yaml").write_text(yaml.safe_dump(study, sort_keys=False))

    def command(self, *args: str) -> list[str]:
        return [sys.executable, "-m", "snakemake", *args]

    def snakemake(self, *args: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self.command(*args), cwd=self.folder, env=self.env, capture_output=True, text=True
        )
        done.stdout += done.stderr
        return done

    def run(self, *args: str) -> str:
        done = self.snakemake("--cores", "2", *args)
        logs = "".join(p.read_text() for p in self.folder.glob("logs/**/*.log"))
        assert done.returncode == 0, done.stdout[-4000:] + logs[-4000:]
        return done.stdout

    def planned(self, *args: str) -> dict[str, int]:
        """Jobs by rule that a dry run plans, without the target rule."""
        done = self.snakemake("--dry-run", *args)
        assert done.returncode == 0, done.stdout[-4000:]
        if "Nothing to be done" in done.stdout:
            return {}
        stats = done.stdout.split("Job stats:")[1].split("total")[0]
        found = {rule: int(n) for rule, n in re.findall(r"^(\w+) +(\d+)$", stats, re.M)}
        found.pop("all", None)
        return found

    def hashes(self, part: str = "results") -> dict[str, str]:
        """sha256 of every file that must be the same wherever it is made."""
        root = self.folder / part
        skipped = (".plans", ".locks", ".work")
        return {
            path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(root.rglob("*"))
            if path.is_file()
            and not path.is_symlink()
            and path.name != "record.json"
            and not any(s in path.parts for s in skipped)
            and (root / "latest") not in path.parents
        }


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout whose study has run once, with two cores, in a folder with an odd name.

    Read only: one run serves all workers.
    """
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder, done = shared / "finished" / "a b'c", shared / "finished.done"
    with (shared / "finished.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if done.exists():
            return Checkout.at(folder)
        checkout = Checkout(folder)
        checkout.run()
        done.touch()
        return checkout


@pytest.fixture
def ran(finished: Checkout, tmp_path: Path) -> Checkout:
    """A copy of the finished checkout that a test may change."""
    shutil.copytree(finished.folder, tmp_path / "a b'c", symlinks=True)
    return Checkout.at(tmp_path / "a b'c")


SMALL = "workflow/studies/small.yaml"


class Clone(Checkout):
    """A git repository with this checkout in it, for the study ``small``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = tutorials.environment(folder)

    @property
    def root(self) -> Path:
        return self.folder.resolve()

    def snakemake(self, *args: str) -> subprocess.CompletedProcess[str]:
        return super().snakemake("--configfile", SMALL, *args)

    def call(self, *command: str, status: int = 0) -> str:
        """Run a command; everything that it prints."""
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert done.returncode == status, done.stdout[-4000:]
        return done.stdout

    def subjectbench(self, verb: str, *args: str, status: int = 0) -> str:
        return self.call("subjectbench", verb, *args, "--config", SMALL, status=status)

    def commit(self) -> None:
        self.call("git", "add", "--all")
        self.call("git", "commit", "--quiet", "-m", "A step")

    def clone(self, folder: Path, links: str = "copy") -> Clone:
        self.call("git", "clone", "--quiet", ".", str(folder))
        out = Clone(folder)
        out.call("dvc", "config", "--local", "cache.type", links)
        return out

    def copy(self, folder: Path) -> Clone:
        shutil.copytree(self.folder, folder, symlinks=True)
        return Clone(folder)


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """A git repository in which the study ``small`` has run once."""
    clone = Clone(tutorials.clone(tmp_path_factory.mktemp("small") / "a b'c"))
    clone.run()
    return clone


@pytest.fixture(scope="session")
def published(small: Clone, tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """A copy whose results were published to a folder, with its pointers committed."""
    folder = tmp_path_factory.mktemp("published")
    clone = small.copy(folder / "a b'c")
    clone.call("dvc", "remote", "add", "--quiet", "--default", "team", str(folder / "re mote"))
    said = clone.subjectbench("publish")
    assert "10 artifacts published to team" in said and "hashed" in said
    clone.commit()
    return clone
