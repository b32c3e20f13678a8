"""Why something would run: for each job, which component of its identity changed.

The plan says what is missing; the manifests of finished artifacts of the same name say what the
nearest of them was made of.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from subjectbench.archive.index import Index, size, some
from subjectbench.compare import REPEATED
from subjectbench.errors import InputError
from subjectbench.store import Artifact, Plan, Store
from subjectbench.store.identity import changed

RETOLD = REPEATED | {"tables": "study"}
"""Upstream roles whose changes an artifact repeats in this component of its own; a report tells the
whole study."""

HERE_BUT = "is here but incomplete: its files are not as its manifest says"
PUBLISHED = "is published but not here: subjectbench restore"
NEW = "was never made"


@dataclass
class Job:
    """One artifact that a run would make.

    Attributes:
        artifact: to be made.
        causes: why, in words; empty where only what it is made from changed.
        behind: finished artifacts of its name that it supersedes, with their bytes.
    """

    artifact: Artifact
    causes: tuple[str, ...]
    behind: dict[Path, int] = field(default_factory=dict)


@dataclass
class Explanation:
    """What a run would do.

    Attributes:
        jobs: to be run, upstream first.
        reused: finished artifacts that the study keeps, with their bytes.
        total: artifacts of the study.
    """

    jobs: list[Job]
    reused: dict[str, int]
    total: int


def explain(plan: Plan, root: Path, target: str = "") -> Explanation:
    """Say what a run would make, and why.

    Args:
        plan: of the study.
        root: the checkout.
        target: key, kind, path, or part of the name of artifacts; none: the whole study.

    Raises:
        InputError: the study has no such artifact.
    """
    store, index = Store(Path(plan.results)), Index(root)
    there = {a.key for a in plan.artifacts.values() if store.has(a)}
    wanted = _wanted(plan, target)
    to_make = plan.to_make(lambda a: a.key in there)
    jobs: dict[str, Job] = {}
    for artifact in to_make:
        jobs[artifact.key] = _job(artifact, plan, store, index, jobs)
    shown = list(jobs.values())
    if target:
        above = _above(plan, wanted)
        shown = [job for job in shown if job.artifact.key in above]
    reused = {key: _bytes(store.manifest(plan.artifacts[key])) for key in sorted(there)}
    return Explanation(shown, reused, len(plan.artifacts))


def _wanted(plan: Plan, target: str) -> list[Artifact]:
    found = [
        a
        for a in plan.artifacts.values()
        if target in (a.key, a.kind) or target in f"{plan.folder(a.key)}/ {a.kind} {a.name}"
    ]
    if not found:
        kinds = sorted({a.kind for a in plan.artifacts.values()})
        raise InputError(
            target,
            "no artifact of this study",
            f"give a kind ({', '.join(kinds)}), or a part of a name, a key or a folder",
        )
    return found


def _above(plan: Plan, artifacts: Iterable[Artifact]) -> set[str]:
    """Keys of artifacts and of all that they are made from."""
    todo, seen = [a.key for a in artifacts], set[str]()
    while todo:
        key = todo.pop()
        if key not in seen:
            seen.add(key)
            todo += plan.artifacts[key].upstream.values()
    return seen


def _bytes(manifest: dict[str, Any]) -> int:
    return sum(facts["bytes"] for facts in manifest["files"].values())


def _siblings(artifact: Artifact, store: Store) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Finished artifacts of the same kind and name but another key."""
    folder = store.path(artifact)
    prefix = f"{artifact.name}-" if artifact.kind == "report" else ""
    for path in sorted(folder.parent.glob(f"{prefix}*/manifest.json")):
        if path.parent == folder or path.parent.is_symlink():
            continue
        try:
            manifest = json.loads(path.read_text("utf-8"))
            if (manifest["kind"], manifest["name"]) == (artifact.kind, artifact.name):
                yield path.parent, manifest
        except (ValueError, KeyError, TypeError):  # damaged: verify names it
            continue


def _job(artifact: Artifact, plan: Plan, store: Store, index: Index, jobs: dict[str, Job]) -> Job:
    siblings = list(_siblings(artifact, store))
    planned = {store.path(a) for a in plan.artifacts.values() if a.name == artifact.name}
    behind = {folder: _bytes(m) for folder, m in siblings if folder not in planned}
    if store.path(artifact).is_dir():
        return Job(artifact, (HERE_BUT,), behind)
    if artifact.key in index.entries:
        return Job(artifact, (PUBLISHED,), behind)
    if not siblings:
        follows = any(jobs[k].causes == (NEW,) for k in artifact.upstream.values() if k in jobs)
        return Job(artifact, () if follows else (NEW,))
    told = [tuple(_causes(artifact, manifest, jobs)) for _, manifest in siblings]
    return Job(artifact, min(told, key=len), behind)


def _causes(artifact: Artifact, old: dict[str, Any], jobs: dict[str, Job]) -> Iterator[str]:
    """How an artifact differs from an older one of its name, besides in what changed upstream."""
    repeated = {
        RETOLD[role.partition("/")[0]]
        for role, key in artifact.upstream.items()
        if role.partition("/")[0] in RETOLD and key in jobs and old["upstream"].get(role)
    }
    before, now = (
        {k: v for k, v in components.items() if k not in repeated}
        for components in (old["components"], artifact.components)
    )
    # What was said of an upstream artifact, such as a module that both use, is not said again.
    said = {c for key in artifact.upstream.values() if key in jobs for c in jobs[key].causes}
    yield from (line for line in map(_of_module, changed(before, now)) if line not in said)
    if old["scheme"] != artifact.identity["scheme"]:
        yield f"scheme of keys {old['scheme']} -> {artifact.identity['scheme']}"
    for what, roles in (
        ("new", set(artifact.upstream) - set(old["upstream"])),
        ("dropped", set(old["upstream"]) - set(artifact.upstream)),
    ):
        if roles:
            yield f"{what} upstream: {some(sorted(roles))}"


def _of_module(line: str) -> str:
    """A changed module by its name alone: the hashes of two texts tell people nothing."""
    return re.sub(r"code\.subjectbench\.([\w.]+) .*", r"code of \1", line)


def _modules_together(causes: Iterable[str]) -> list[str]:
    """Causes with all changed modules on one line."""
    out: dict[str, list[str]] = defaultdict(list)
    for cause in causes:
        head, code, module = cause.partition("code of ")
        out[head + code if code else cause] += [module] if code else []
    return [head + ", ".join(modules) for head, modules in out.items()]


def words(found: Explanation) -> str:
    """Say it for people: causes first, jobs that share one together, then what follows."""
    if not found.jobs:
        return "nothing would run: every artifact asked for is there\n"
    out = [f"would run: {len(found.jobs)} of {found.total} artifacts", ""]
    groups: dict[tuple[str, tuple[str, ...]], list[Job]] = defaultdict(list)
    for job in found.jobs:
        if job.causes:
            groups[job.artifact.kind, job.causes].append(job)
    for (kind, causes), jobs in groups.items():
        names = [job.artifact.name for job in jobs]
        out.append(f"{kind} {some(names)}" + (f" ({len(jobs)} jobs)" if len(jobs) > 1 else ""))
        out += [f"  {cause}" for cause in _modules_together(causes)]
        out += _left_behind(jobs)
    follow = [job for job in found.jobs if not job.causes]
    if follow:
        counts = Counter(job.artifact.kind for job in follow)
        out.append("follow from these: " + ", ".join(f"{n} {kind}" for kind, n in counts.items()))
        out += _left_behind(follow)
    out += ["", f"reused as they are: {len(found.reused)}, {size(sum(found.reused.values()))}"]
    return "\n".join(out) + "\n"


def _left_behind(jobs: Iterable[Job]) -> list[str]:
    behind = {folder: count for job in jobs for folder, count in job.behind.items()}
    if not behind:
        return []
    return [f"  leaves {len(behind)} finished results behind, {size(sum(behind.values()))}"]
