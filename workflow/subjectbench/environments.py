"""Programs of others: their environments and their repositories, made once and whole.

Both lie in ``$SUBJECTBENCH_CACHE`` (default: ``~/.cache/subjectbench``), each in a folder whose
name ends in a hash of what it is made from: a changed requirements file makes another environment
and spoils none. One process makes a folder while others wait; one that was killed half-way is made
anew.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from subjectbench.errors import InputError
from subjectbench.hashing import digest, sha256_file

CONDA = ("micromamba", "mamba", "conda")
"""What can make an environment of a conda file, best first."""

WHOLE = ".subjectbench.json"
"""Written last into an environment: what it was made from, and what was installed."""

THEN = "# then: "
"""A line of a requirements file: arguments of a further ``pip install``, after all others.

For packages that need torch to be there when they are built, as flash-attn does.
"""

_PIN = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^]]*\])?==([^\s;#]+)\s*(?:#.*)?$")
_INSTALLED = """
import importlib.metadata as m, json, sys
def of(name):
    try:
        return m.version(name)
    except m.PackageNotFoundError:
        return None
names = sys.argv[1:] or [d.metadata["Name"] for d in m.distributions()]
print(json.dumps({name: of(name) for name in names if name}))
"""


def cache() -> Path:
    """Folder of all environments and repositories."""
    given = os.environ.get("SUBJECTBENCH_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(given) if given else Path(base) / "subjectbench"


def folder(file: Path, python: str) -> Path:
    """Where the environment of a requirements or conda file lies, or will lie.

    Args:
        file: requirements file (``.txt``), or conda file (``.yaml``, ``.yml``).
        python: version of Python, e.g. ``"3.10"``.
    """
    made_from = {"file": sha256_file(file), "python": python, "machine": _machine()}
    return cache() / "environments" / f"{file.stem}-{digest(made_from)}"


def is_there(file: Path, python: str) -> bool:
    """Whether an environment has been made."""
    return (folder(file, python) / WHOLE).is_file()


def interpreter(file: Path, python: str, report: Callable[[str], None] = print) -> Path:
    """Return the Python of an environment, which is made if it is not there.

    Args:
        file: requirements file for pip, or conda file.
        python: version of Python, e.g. ``"3.10"``; a conda file must name the same.
        report: told what takes long.

    Raises:
        InputError: no such Python or no conda here, or something could not be installed; with the
            last lines and the place of the log.
    """
    if not file.is_file():
        raise InputError(file, "no such environment file", "write it, pinned: name==version a line")
    target = folder(file, python)
    executable = target / "bin" / "python"
    with _locked(target, report):
        if is_there(file, python):
            return executable
        shutil.rmtree(target, ignore_errors=True)  # left by a process that was killed
        report(f"{file.name}: making the environment {target}; log: {_log(target)}")
        _log(target).unlink(missing_ok=True)
        try:
            _make(file, python, target)
            facts = {"file": str(file), "python": python, "installed": installed(executable)}
        except BaseException:
            shutil.rmtree(target, ignore_errors=True)
            raise
        (target / WHOLE).write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n")
    return executable


def find_python(version: str) -> Path:
    """Find an interpreter of a version, e.g. ``"3.10"``.

    Looks at the running one, ``python3.10`` on the path, pyenv's, and uv's.

    Raises:
        InputError: none is here.
    """
    candidates = [Path(sys.executable)]
    on_path = shutil.which(f"python{version}")
    candidates += [Path(on_path)] if on_path else []
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    candidates += sorted(pyenv.glob(f"versions/{version}*/bin/python"))
    if uv := shutil.which("uv"):
        done = subprocess.run([uv, "python", "find", version], capture_output=True, text=True)
        candidates += [Path(done.stdout.strip())] if done.returncode == 0 else []
    for candidate in candidates:
        if _version(candidate) == version:
            return candidate
    raise InputError(
        f"Python {version}",
        "is not on this machine",
        f"install it (uv python install {version}; or conda, pyenv), or name an interpreter that "
        "has the packages as parameter 'interpreter'",
    )


def maker(file: Path, python: str) -> Path:
    """What will make the environment of a file: an interpreter of its version, or a conda.

    Raises:
        InputError: none is here.
    """
    if file.suffix not in (".yaml", ".yml"):
        return find_python(python)
    tool = next(filter(None, map(shutil.which, CONDA)), None)
    if tool is None:
        raise InputError(
            file,
            "needs micromamba, mamba or conda, and none is on the path",
            "install micromamba, write a requirements file (.txt) instead, or name an "
            "'interpreter' that has the packages",
        )
    return Path(tool)


def installed(python: Path, *names: str) -> dict[str, str | None]:
    """Versions of packages that an interpreter sees, None where it sees none; of all by default.

    Raises:
        InputError: it does not run.
    """
    try:
        done = subprocess.run(
            [python, "-I", "-c", _INSTALLED, *names], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        last = getattr(error, "stderr", None) or str(error)
        raise InputError(python, f"does not run: {last.strip()[-300:]}") from error
    return dict(json.loads(done.stdout))


def check_interpreter(python: Path, file: Path, version: str) -> None:
    """Refuse an interpreter that has other versions than the environment file pins.

    Raises:
        InputError: naming the first package that differs.
    """
    found = _version(python)
    if found != version:
        raise InputError(python, f"is Python {found or '?'}, the card says {version}")
    pinned = pins(file)
    have = installed(python, *pinned) if pinned else {}
    for name, wanted in pinned.items():
        version_here = have[name] or "none"
        if version_here.split("+")[0] != wanted.split("+")[0]:
            raise InputError(
                python,
                f"has {name} {version_here}, {file.name} pins {wanted}",
                f"install what the file says, or name a file that says what is there: {python} -m "
                "pip freeze > envs/NAME.txt",
            )


def pins(file: Path) -> dict[str, str]:
    """Packages of a requirements file with exact versions, by name.

    A line with a marker (``; python_version < ...``) is left out: it may not apply. So is a conda
    file as a whole.
    """
    if file.suffix in (".yaml", ".yml"):
        return {}
    found = (_PIN.match(line.strip()) for line in file.read_text("utf-8").splitlines())
    return {m[1]: m[2] for m in found if m}


def repository(
    url: str, commit: str, given: Path | None, report: Callable[[str], None] = print
) -> Path:
    """Return the folder of a repository at a commit, cloned if need be.

    Args:
        url: of the repository, as ``git clone`` takes it.
        commit: 7 to 40 hex digits.
        given: a clone that the user has already; None: one in the cache.
        report: told what takes long.

    Raises:
        InputError: it cannot be cloned, is at another commit, or has local changes: nobody could
            say later what ran.
    """
    if given is not None:
        check_repository(given, commit)
        return given
    name = re.sub(r"\W+", "-", url.removesuffix(".git").rpartition("/")[2])
    target = cache() / "repositories" / f"{name}-{digest([url, commit])}"
    with _locked(target, report):
        if not target.is_dir():
            report(f"{url}: cloning commit {commit} into {target}")
            _log(target).unlink(missing_ok=True)
            temporary = target.with_name(f".{target.name}")
            shutil.rmtree(temporary, ignore_errors=True)
            mend = "check network and commit, or clone it yourself and say where: 'checkout'"
            quiet = ["git", "-c", "advice.detachedHead=false"]
            _logged([*quiet, "clone", "--no-checkout", url, str(temporary)], target, url, mend)
            inside = [*quiet, "-C", str(temporary)]
            _logged([*inside, "checkout", "--detach", commit], target, url, mend)
            update = [*inside, "submodule", "update", "--init", "--recursive"]
            _logged(update, target, url, mend)
            temporary.rename(target)
    check_repository(target, commit)
    return target


def check_repository(path: Path, commit: str) -> None:
    """Refuse a clone that is not exactly a commit. Files that git does not track do not matter.

    Raises:
        InputError: saying what differs.
    """
    head = _git(path, "rev-parse", "HEAD")
    if not head.startswith(commit):
        raise InputError(
            path,
            f"is at commit {head[:12]}, the card names {commit}",
            f"git -C {path} checkout {commit}, or name that commit in the card",
        )
    changed = _git(path, "status", "--porcelain", "--untracked-files=no")
    if changed:
        raise InputError(
            path,
            f"has local changes: {changed.splitlines()[0].split()[-1]}",
            "commit them to a fork and name its commit, or take them back: git stash",
        )


def _git(path: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", "-C", path, *arguments], capture_output=True, text=True)
    except FileNotFoundError as error:
        raise InputError("git", "is not installed", "install it") from error
    if done.returncode:
        raise InputError(path, f"is no clone: {done.stderr.strip()}", "name a folder with .git")
    return done.stdout.strip()


def _make(file: Path, python: str, target: Path) -> None:
    mend = "mend the file or the network; by hand it would be pip install -r, or conda env create"
    tool = maker(file, python)
    if tool.name in CONDA:
        create = ["create"] if tool.name == "micromamba" else ["env", "create"]
        command = [str(tool), *create, "--yes", "--prefix", str(target), "--file", str(file)]
        _logged(command, target, file, mend)
        return
    _logged([str(tool), "-m", "venv", str(target)], target, file, mend)
    pip = [str(target / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install"]
    _logged([*pip, "--no-input", "-r", str(file)], target, file, mend)
    for line in file.read_text("utf-8").splitlines():
        if line.startswith(THEN):
            further = line.removeprefix(THEN).split()
            _logged([*pip, "--no-input", *further], target, file, mend)


def _logged(command: list[str], target: Path, where: object, mend: str) -> None:
    """Run a command whose output goes to the log beside what it makes."""
    # Ours would be seen by another Python; and nobody is there to type a password.
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    clean = {n: v for n, v in os.environ.items() if n not in hidden} | {"GIT_TERMINAL_PROMPT": "0"}
    log = _log(target)
    with log.open("a") as out:
        out.write(f"$ {' '.join(command)}\n")
        out.flush()
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=clean
            )
        except FileNotFoundError as error:
            raise InputError(command[0], "is not installed", "install it") from error
    if done.returncode:
        last = "\n    ".join(log.read_text("utf-8", "replace").splitlines()[-8:])
        raise InputError(
            where,
            f"'{Path(command[0]).name} {' '.join(command[1:4])} ...' ended with status "
            f"{done.returncode}:\n    {last}",
            f"{mend}. The whole log: {log}",
        )


def _log(target: Path) -> Path:
    return target.with_name(f"{target.name}.log")


@contextmanager
def _locked(target: Path, report: Callable[[str], None]) -> Iterator[None]:
    """One process per folder. The system drops the lock of a killed one."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_name(f".{target.name}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(f"{target}: waiting for another job that makes it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _version(python: Path) -> str | None:
    """Minor version of an interpreter, or None: pyenv puts scripts there that only complain."""
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _machine() -> str:
    return f"{platform.system()}-{platform.machine()}".lower()
