"""What an artifact's key is made of. See ``docs/architecture.md``, "Identity".

``key = sha256(canonical JSON of the components)[:12]``; the keys of what it is made from are among
the components, so keys form a Merkle chain.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import importlib.util
import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from subjectbench.errors import InputError
from subjectbench.hashing import sha256_file

SCHEME = 1
"""Version of this scheme; a change of it renews every key."""

PACKAGE = Path(__file__).resolve().parents[1]

NEUTRAL = frozenset(
    f"subjectbench{name}"
    for name in ("", ".errors", ".config", ".cards", ".plan", ".cli", ".progress")
)
"""Modules that decide when and where work is done but not what comes out; ``store`` as well.

Their text is no part of a key, so that a better error message does not cost a GPU day.
"""


def canonical(value: Any) -> str:
    """JSON with sorted keys and no spaces.

    Raises:
        TypeError: something in it is no JSON type (a set, a path, NaN): its text could change.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(value: Any, length: int = 12) -> str:
    """First hex digits of the sha256 of the canonical JSON."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:length]


def hash_sources(paths: Iterable[Path], root: Path) -> dict[str, str]:
    """sha256 of each file, by its name relative to ``root`` (its bare name if outside).

    A file with a DVC pointer beside it (``<file>.dvc``) is identified by the pointer's hash, so
    that a plan can be made before the data is pulled.
    """
    out: dict[str, str] = {}
    for path in paths:
        name = path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name
        pointer = path.with_name(path.name + ".dvc")
        out[name] = sha256_file(pointer) if pointer.is_file() else sha256_file(path)
    return dict(sorted(out.items()))


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
    """Hash of a module's normalised source, and the modules of ours that it imports."""
    tree = ast.parse(path.read_text("utf-8"), str(path))
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    ours = frozenset(m for m in found if m.startswith("subjectbench") and _module_file(m))
    text = ast.dump(_without_docstrings(tree), include_attributes=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16], ours


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


def packages(names: Iterable[str], where: object) -> dict[str, str]:
    """Installed version of each package, without the build tag (``+cpu``), which is recorded only.

    Raises:
        InputError: a package is not installed.
    """
    out = {}
    for name in sorted(names):
        try:
            out[name] = importlib.metadata.version(name).split("+")[0]
        except importlib.metadata.PackageNotFoundError as error:
            raise InputError(
                f"{where}: packages", f"'{name}' is not installed", "see README, Installation"
            ) from error
    return out


def changed(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Say in words how two sets of components differ: ``params.k 2 -> 3``."""
    out = []
    for name in sorted({*old, *new}):
        a, b = old.get(name), new.get(name)
        if a == b:
            continue
        if isinstance(a, dict) and isinstance(b, dict):
            out += changed(a, b, f"{prefix}{name}.")
        else:
            out.append(f"{prefix}{name} {json.dumps(a)} -> {json.dumps(b)}")
    return out
