"""Imports point downwards only, and the picture in the design is the code's."""

from __future__ import annotations

import ast
import graphlib
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "workflow" / "subjectbench"

EVERYTHING = {
    p.stem for p in PACKAGE.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()
}
LIGHT = {"errors", "vocabulary", "config", "cards"}
MAY_IMPORT: dict[str, set[str]] = {
    "__init__": set(),
    "errors": set(),
    "hashing": set(),
    "units": {"config"},
    "batches": set(),
    "devices": {"errors"},
    "progress": set(),
    "vocabulary": set(),
    "records": {"errors", "vocabulary"},
    "config": {"errors"},
    "cards": {"config", "errors"},
    "checkpoint": {"cards", "errors", "hashing"},
    "images": {"records", "errors", "vocabulary", "hashing"},
    "unpacking": {"errors", "hashing", "images"},
    "fetch": {"cards", "config", "errors", "hashing", "images", "progress", "unpacking"},
    "miniworld": {"records", "errors", "vocabulary", "hashing", "images"},
    "store": {"errors", "hashing"},
    "benchmarks": LIGHT | {"records", "images", "miniworld", "units"},
    "environments": {"errors", "hashing"},
    "tuning": {"config", "cards", "errors", "checkpoint", "batches", "images"},
    "generators": LIGHT
    | {"asking", "hashing", "store", "records", "images", "miniworld", "checkpoint", "batches"}
    | {"devices", "environments", "progress", "tuning", "unpacking"},
    "encoders": LIGHT | {"records", "checkpoint", "batches"},
    "asking": LIGHT | {"hashing", "progress"},
    "judges": LIGHT
    | {"asking", "records", "hashing", "checkpoint", "batches", "encoders", "progress", "units"},
    "rubrics": LIGHT | {"asking", "records", "judges", "units", "benchmarks"},
    "decompositions": LIGHT | {"asking", "records", "judges", "units"},
    "raters": LIGHT | {"records", "benchmarks"},
    "metrics": LIGHT | {"records", "checkpoint", "encoders", "judges", "units"},
    "statistics": {"records", "errors", "vocabulary"},
    "cells": {"statistics", "records", "errors", "vocabulary"},
    "writing": {"statistics", "errors"},
    "tables": {"cells", "writing", "statistics", "records", "errors", "vocabulary"},
    "composition": {"cells", "records", "errors", "vocabulary"},
    "alignment": {"tables", "cells", "statistics", "records", "errors", "vocabulary"},
    "findings": {"tables", "cells", "statistics", "records", "errors", "vocabulary"},
    "figures": {"tables", "cells", "alignment", "composition", "records", "errors", "vocabulary"},
    "published": {"cards", "cells", "config", "statistics", "errors"},
    "plan": {"cards", "checkpoint", "config", "errors", "hashing", "published", "store"},
    "stages": EVERYTHING - {"plan", "doctor", "archive", "cli", "__main__"},
    "doctor": LIGHT | {"checkpoint", "generators", "plan"},
    "compare": {"store", "statistics", "records", "errors"},
    "archive": EVERYTHING - {"cli", "__main__"},
    "cli": EVERYTHING - {"__main__"},
    "__main__": {"cli"},
}


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(p): p for p in sorted(PACKAGE.rglob("*.py"))}


def imports(path: Path) -> set[str]:
    """Every module that a file imports, also inside functions."""
    out: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            out |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports are not seen by the identity"
            assert node.module
            inner = {f"{node.module}.{a.name}" for a in node.names}
            found = {m for m in inner if m in MODULES}
            out |= found if found else {node.module}
    return out


def room(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


@pytest.mark.parametrize("name", sorted(MODULES))
def test_imports_point_down(name: str) -> None:
    own = room(name)
    assert own in MAY_IMPORT, f"a new room, {own}: say here what it may import"
    found = imports(MODULES[name])
    assert not {m for m in found if m.split(".")[0] == "snakemake"}
    ours = {room(m) for m in found if m.split(".")[0] == "subjectbench"} - {own, "__init__"}
    assert ours <= MAY_IMPORT[own], f"{name} imports {sorted(ours - MAY_IMPORT[own])}"


def test_the_rules_above_are_themselves_without_a_cycle() -> None:
    below = {a: {b for b in MAY_IMPORT[a] if b in MAY_IMPORT and b != a} for a in MAY_IMPORT}
    assert set(graphlib.TopologicalSorter(below).static_order()) == set(MAY_IMPORT)


def test_no_module_imports_itself_by_way_of_others() -> None:
    graph = {m: {i for i in imports(p) if i in MODULES and i != m} for m, p in MODULES.items()}
    assert sum(map(len, graph.values())) > 100  # the graph is there
    order = list(graphlib.TopologicalSorter(graph).static_order())  # raises CycleError
    assert set(order) == set(MODULES)


@pytest.mark.parametrize("name", sorted(m for m, p in MODULES.items() if p.stem == "__init__"))
def test_packages_hold_no_code(name: str) -> None:
    """A key counts the modules imported, not the packages around them; ``store`` is neutral."""
    body = ast.parse(MODULES[name].read_text("utf-8")).body
    code = [s for s in body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    if name not in ("subjectbench", "subjectbench.store"):
        assert code == [], f"{name}/__init__.py"


def test_the_identity_leaves_out_only_rooms_that_change_no_result() -> None:
    from subjectbench.store import identity

    rooms = {m.removeprefix("subjectbench").removeprefix(".") for m in identity.NEUTRAL}
    assert rooms == {"", "errors", "config", "cards", "plan", "cli", "progress", "devices"}
