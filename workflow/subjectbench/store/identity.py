"""What an artifact's key is made of. See ``docs/architecture.md``, "Identity".

``key = sha256(canonical JSON of the components)[:12]``; the keys of what it is made from are among
the components, so keys form a Merkle chain.
"""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from subjectbench.errors import InputError
from subjectbench.hashing import canonical as canonical
from subjectbench.hashing import digest as digest
from subjectbench.hashing import sha256
from subjectbench.store.hashes import remembered, sha256_once

SCHEME = 1
"""Version of this scheme; a change of it renews every key."""

PACKAGE = Path(__file__).resolve().parents[1]

NEUTRAL = frozenset(
    f"subjectbench{name}"
    for name in ("", ".errors", ".config", ".cards", ".plan", ".cli", ".progress", ".devices")
)
"""Modules that decide when and where work is done but not what comes out; ``store`` as well.

Their text is no part of a key, so that a better error message does not cost a GPU day.
"""


def hash_sources(paths: Iterable[Path] | Mapping[str, Path]) -> dict[str, str]:
    """sha256 of each file, by its given name, or else below the folder that holds them all.

    So the same files elsewhere are the same data. A file with a DVC pointer beside it
    (``<file>.dvc``) is identified by the pointer, so that a plan needs no data to be pulled.
    """
    if isinstance(paths, Mapping):
        return {name: _hash_source(path) for name, path in sorted(paths.items())}
    # Not resolve(): a link into a cache is data under the link's own name.
    files = sorted({Path(os.path.abspath(p)) for p in paths})  # noqa: PTH100
    if not files:
        return {}
    common = Path(os.path.commonpath([f.parent for f in files]))
    return {path.relative_to(common).as_posix(): _hash_source(path) for path in files}


def _hash_source(path: Path) -> str:
    pointer = path.with_name(path.name + ".dvc")
    return sha256_once(pointer if pointer.is_file() else path)


def _module_file(module: str) -> Path | None:
    parts = module.split(".")[1:]
    base = PACKAGE.joinpath(*parts)
    if (base / "__init__.py").is_file():
        return base / "__init__.py"
    return base.with_suffix(".py") if parts and base.with_suffix(".py").is_file() else None


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [
                s
                for s in node.body
                if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))
            ] or [ast.Pass()]
    return tree


@cache
def _parsed(path: Path) -> tuple[str, frozenset[str]]:
    """Hash of a module's normalised source, and the modules of ours that it imports.

    Looked up if the same source was parsed before, in any checkout, by the same Python and the
    same normalisation: all jobs of a study ask for the same modules.
    """
    source = path.read_bytes()
    rules = f"{sys.version} {sha256(Path(__file__).read_bytes())}"
    found = remembered(f"module {sha256(source)}", rules, lambda: _parse(source, path))
    normalised, *imported = found.split()
    return normalised, frozenset(m for m in imported if _module_file(m))


def _parse(source: bytes, path: Path) -> str:
    """Hash of the normalised source, then all that may be modules of ours, by spaces."""
    tree = ast.parse(source, str(path))
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    text = ast.dump(_without_docstrings(tree), include_attributes=False)
    ours = sorted(m for m in found if m.startswith("subjectbench"))
    return " ".join([sha256(text.encode())[:16], *ours])


def closure(*modules: str) -> dict[str, str]:
    """Normalised-source hash of each module of ours that these modules import, and of themselves.

    Comments, docstrings and formatting do not count; imports inside functions do.
    """
    todo, seen = list(modules), {}
    while todo:
        module = todo.pop()
        neutral = module in NEUTRAL or module.startswith("subjectbench.store")
        if module in seen or neutral:
            continue
        path = _module_file(module)
        if path is None:
            raise InputError(module, "is no module of this library")
        seen[module], imported = _parsed(path)
        todo.extend(imported)
    return dict(sorted(seen.items()))


@cache
def _version(package: str) -> str:
    return importlib.metadata.version(package).split("+")[0]


def packages(names: Iterable[str], where: object) -> dict[str, str]:
    """Installed version of each package, without the build tag (``+cpu``), which is recorded only.

    Raises:
        InputError: a package is not installed.
    """
    out = {}
    for name in sorted(names):
        try:
            out[name] = _version(name)
        except importlib.metadata.PackageNotFoundError as error:
            raise InputError(
                f"{where}: packages", f"'{name}' is not installed", "see README, Installation"
            ) from error
    return out


LOCK = PACKAGE.parents[1] / "envs" / "requirements.txt"
"""Versions that results are meant to be made with."""


@cache
def _locked() -> dict[str, str]:
    pins = (line.partition("==") for line in LOCK.read_text("utf-8").splitlines())
    return {_plain(name): version.split("+")[0] for name, _, version in pins if version}


def _plain(package: str) -> str:
    """Name of a package as all its spellings share it."""
    return re.sub(r"[-_.]+", "-", package).lower()


def off_lock(versions: Mapping[str, str]) -> dict[str, str]:
    """Those packages whose version is not the lock's, as ``2.9.0 (lock: 2.12.1)``.

    Args:
        versions: package to version, as installed.
    """
    pins = {name: _locked().get(_plain(name)) for name in versions}
    return {
        name: f"{version} (lock: {pins[name]})"
        for name, version in sorted(versions.items())
        if pins[name] not in (None, version)
    }


def installed() -> dict[str, str]:
    """Version of every package that Python finds, without build tags.

    From the names of their folders, since to read their metadata would take each job a second.
    """
    out: dict[str, str] = {}
    for place in sys.path:
        for folder in Path(place or ".").glob("*.dist-info"):
            name, _, version = folder.name.removesuffix(".dist-info").rpartition("-")
            out.setdefault(_plain(name), version.split("+")[0])
    return out


def changed(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Say in words how two sets of components differ: ``params.k 2 -> 3``."""
    old, new = _by_name(old), _by_name(new)
    out = []
    for name in sorted({*old, *new}):
        a, b = old.get(name), new.get(name)
        if a == b:
            continue
        if isinstance(a, dict) and isinstance(b, dict):
            out += changed(a, b, f"{prefix}{name}.")
        else:
            out.append(f"{prefix}{name} {_short(a)} -> {_short(b)}")
    return out


def _by_name(value: Any) -> Any:
    """Lists of named things as mappings, so that a difference is told of the thing itself."""
    if isinstance(value, Mapping):
        return {k: _by_name(v) for k, v in value.items()}
    if isinstance(value, list) and value and all(isinstance(v, dict) for v in value):
        names = [v.get("name") or v.get("card") for v in value]
        if all(names) and len(set(names)) == len(names):
            return {n: _by_name(v) for n, v in zip(names, value, strict=True)}
    return value


def _short(value: Any) -> str:
    """JSON that fits a line; a hash needs few digits to be told apart."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:16]}...{text[-8:]}"
