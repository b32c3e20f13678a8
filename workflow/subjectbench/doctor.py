"""What every model of a study needs, whether this machine has it, how to mend it, what it costs.

Looks only: nothing is loaded, fetched, installed or bought. Every model is looked at by itself, so
one that cannot run hides nothing about the others.
"""

from __future__ import annotations

import fnmatch
import importlib.metadata
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from subjectbench import cards, checkpoint
from subjectbench.cards import ROOT, Weights
from subjectbench.config import MetricUse, Study, Use
from subjectbench.errors import InputError
from subjectbench.generators.base import Check
from subjectbench.plan import Asked, Judge

GB = 10**9
PICTURE_MB = 1.5
"""A 1024 x 1024 photograph as PNG, where the card says nothing."""

TIMEOUT = 10.0
"""Seconds that the hub gets for an answer."""


@dataclass
class Machine:
    """What this machine offers."""

    results: Path

    @cached_property
    def gpu_gb(self) -> list[float]:
        """Memory of each visible GPU, 10**9 bytes."""
        import torch

        if not torch.cuda.is_available():
            return []
        count = torch.cuda.device_count()
        return [torch.cuda.get_device_properties(i).total_memory / GB for i in range(count)]

    @cached_property
    def free_gb(self) -> float:
        """Free space where results go."""
        return _free(self.results)

    @cached_property
    def hub_gb(self) -> float:
        """Free space where the hub's cache is."""
        from huggingface_hub.constants import HF_HUB_CACHE

        return _free(Path(HF_HUB_CACHE))


def _free(folder: Path) -> float:
    whole = folder.absolute()
    return shutil.disk_usage(next(p for p in (whole, *whole.parents) if p.exists())).free / GB


@dataclass
class Costs:
    """What one model still has to do, and what that takes; None: nobody says."""

    pictures: int
    gpu_hours: float | None
    disk_gb: float
    price: float
    currency: str


@dataclass
class Diagnosis:
    """One model of a study: its checks and what it costs."""

    kind: str
    name: str
    title: str
    checks: list[Check] = field(default_factory=list)
    costs: Costs | None = None

    @property
    def ok(self) -> bool:
        """Whether it can run here."""
        return all(check.ok for check in self.checks)


def examine(study: Study, amounts: Mapping[str, tuple[int, int]]) -> Iterator[Diagnosis]:
    """Look at every generator, encoder and judge of a study.

    Args:
        study: as checked.
        amounts: cases and subjects that each generator is asked for, on all benchmarks together;
            the costs of one that is not in it are not told.
    """
    machine = Machine(Path(study.results))
    for use in study.generators:
        found = _diagnosis("generator", use, machine)
        if use.label in amounts:
            cases, subjects = amounts[use.label]
            found.costs = _costs(use, cases * study.samples_per_case, subjects)
        yield found
    for kind, use in _behind_metrics(study):
        yield _diagnosis(kind, use, machine)


def _behind_metrics(study: Study) -> list[tuple[str, Use]]:
    """Encoders and judges that the study's metrics need, each once."""
    found: dict[tuple[str, str], Use] = {}

    def add(kind: str, use: Use) -> None:
        found.setdefault((kind, use.model_dump_json()), use)

    for use in study.metrics:
        assert isinstance(use, MetricUse)
        metric = Asked.of("metric", use, "config: metrics")
        if use.encoder or metric.card.encoder:
            add("encoder", use.encoder or Use(card=metric.card.encoder))
        if use.rubric or metric.card.rubric:
            rubric = metric.named("rubric", use.rubric)
            if not rubric.plugin.imported:
                judge = Judge.of(rubric, use.judge, study.judge)
                add("judge", judge.asked.use)
                if judge.encoder:
                    add("encoder", judge.encoder.use)
    return [(kind, use) for (kind, _), use in sorted(found.items(), key=lambda item: item[0])]


def _diagnosis(kind: str, use: Use, machine: Machine) -> Diagnosis:
    try:
        asked = Asked.of(kind, use, f"config: {use.label}")
    except InputError as error:
        return Diagnosis(kind, use.label, use.label, [_refused("card", error)])
    card = asked.card
    out = Diagnosis(kind, use.label, card.title)
    out.checks += _packages(card.packages)
    named = ([("weights", card.weights)] if card.weights else []) + [
        (role, weights) for role, weights in getattr(card, "parts", {}).items()
    ]
    for role, weights in named:
        out.checks.append(_weights(role, weights, getattr(card, "gate", ""), use.card, machine))
    if kind == "generator":
        out.checks += _room(asked, machine)
        out.checks += _own(asked)
    elif kind == "judge" and not card.encoder:
        out.checks += _tried("keys", lambda: asked.plugin(asked.params, card).check())
    return out


def _tried(about: str, look: Any) -> list[Check]:
    """Turn what a plug-in refuses while planning into a check."""
    try:
        look()
    except InputError as error:
        return [_refused(about, error)]
    return []


def _refused(about: str, error: InputError) -> Check:
    return Check(about, False, f"{error.where}: {error.fault}", error.mend or "")


def _own(asked: Asked) -> list[Check]:
    """What the plug-in itself knows."""
    own = list(asked.plugin.checks(asked.params, asked.card, ROOT))
    refused = _tried("files", lambda: asked.plugin.check(asked.params, asked.card, ROOT))
    # A plug-in may say the same in both; what checks() says is more.
    return own if refused and any(not check.ok for check in own) else own + refused


def _packages(names: list[str]) -> list[Check]:
    versions, missing = [], []
    for name in names:
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        mend = f"pip install {' '.join(missing)}, or install envs/requirements.txt anew"
        return [Check("packages", False, f"not installed: {', '.join(missing)}", mend)]
    return [Check("packages", True, ", ".join(versions))] if versions else []


def _weights(role: str, weights: Weights, gate: str, card: str, machine: Machine) -> Check:
    about = "weights" if role == "weights" else f"weights ({role})"
    if not weights.repository:
        found = _tried(about, lambda: checkpoint.folder(weights))
        where = weights.path or f"package {weights.package}"
        return found[0] if found else Check(about, True, f"{where}: there, as the card names it")
    if not weights.revision:
        found = _tried(about, lambda: checkpoint.check_pinned(weights, f"{card}: {role}"))
        return found[0]
    return _hub(about, weights, gate, machine)


def _hub(about: str, weights: Weights, gate: str, machine: Machine) -> Check:
    """Whether a commit is in the hub's cache, or can be fetched."""
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    name = f"{weights.repository} @ {str(weights.revision)[:8]}"
    patterns = weights.files or checkpoint.PATTERNS
    try:
        snapshot_download(
            str(weights.repository),
            revision=weights.revision,
            allow_patterns=patterns,
            local_files_only=True,
        )
        return Check(about, True, f"{name}: in the hub's cache")
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError):
        pass
    accept = gate or f"accept the licence on the page of {weights.repository}"
    api = HfApi()
    try:
        info = api.model_info(
            str(weights.repository),
            revision=weights.revision,
            files_metadata=True,
            timeout=TIMEOUT,
        )
        api.auth_check(str(weights.repository))
    except GatedRepoError:
        mend = f"{accept}, then set HF_TOKEN to a token of that account"
        return Check(about, False, f"{name}: gated, and this account may not read it", mend)
    except (RepositoryNotFoundError, RevisionNotFoundError) as error:
        what = "commit" if isinstance(error, RevisionNotFoundError) else "repository"
        mend = "correct the card; private repositories need HF_TOKEN"
        return Check(about, False, f"{name}: the hub knows no such {what}", mend)
    except Exception as error:
        if not _unreachable(error) and not isinstance(error, HfHubHTTPError):
            raise
        mend = f"connect, or copy the hub's cache from a machine that has it ({_download(weights)})"
        return Check(about, False, f"{name}: not in the hub's cache, hub out of reach", mend)
    size = sum(
        (file.size or 0) / GB
        for file in info.siblings or []
        if any(fnmatch.fnmatch(file.rfilename, pattern) for pattern in patterns)
    )
    if size > machine.hub_gb:
        mend = "free space, or set HF_HOME to a larger disk"
        return Check(
            about, False, f"{name}: {size:.1f} GB to fetch, {machine.hub_gb:.0f} GB free", mend
        )
    return Check(about, True, f"{name}: will be fetched when first used, {size:.1f} GB")


def _download(weights: Weights) -> str:
    wanted = "".join(f" --include '{p}'" for p in weights.files)
    return f"hf download {weights.repository} --revision {weights.revision}{wanted}"


def _room(asked: Asked, machine: Machine) -> Iterator[Check]:
    """Memory and disk."""
    expected = asked.card.expected
    if expected.memory_gb:
        largest = max(machine.gpu_gb, default=0.0)
        wants = f"about {expected.memory_gb:g} GB of GPU memory"
        if not largest:
            mend = "run it on a machine with such a GPU; results move with subjectbench publish"
            yield Check("memory", False, f"needs {wants}; no GPU here", mend)
        elif largest < expected.memory_gb:
            mend = "a larger GPU; or a card of your own with offloading or fewer bits"
            yield Check("memory", False, f"needs {wants}; the largest has {largest:.0f}", mend)
        else:
            yield Check("memory", True, f"{wants}; the largest has {largest:.0f}")
    if expected.disk_gb > machine.free_gb:
        yield Check(
            "disk",
            False,
            f"needs about {expected.disk_gb:g} GB, {machine.free_gb:.0f} free",
            "free space, or set results: to a folder on a larger disk",
        )


def _costs(use: Use, pictures: int, subjects: int) -> Costs | None:
    """Return the costs of a model; of controls and of cards that cannot be read, None."""
    try:
        card = cards.load("generator", use.card)
    except InputError:
        return None
    if card.role != "model":
        return None
    expected = card.expected
    seconds = expected.seconds * pictures + expected.subject_seconds * subjects
    return Costs(
        pictures,
        seconds / 3600 if expected.seconds or expected.subject_seconds else None,
        expected.disk_gb + pictures * (expected.picture_mb or PICTURE_MB) / 1000,
        expected.price * pictures,
        expected.currency,
    )


def words(found: list[Diagnosis], every: bool = False) -> str:
    """Say it in lines: what is amiss first within each model; all checks if ``every``."""
    lines = []
    for one in found:
        state = "can run here" if one.ok else "cannot run here"
        lines.append(f"{one.kind} {one.name}: {state}" + (f"  ({one.title})" if one.title else ""))
        for check in sorted(one.checks, key=lambda c: c.ok):
            if check.ok and not every:
                continue
            lines.append(f"  {'ok' if check.ok else '!!'} {check.about}: {check.found}")
            if check.mend and not check.ok:
                lines.append(f"     mend: {check.mend}")
    lines += _bill([one for one in found if one.costs])
    well = sum(one.ok for one in found)
    lines.append(
        f"{well} of {len(found)} can run here" + ("" if every else " (--all shows every check)")
    )
    return "\n".join(lines) + "\n"


def _bill(found: list[Diagnosis]) -> list[str]:
    if not found:
        return []
    lines = [
        "",
        f"{'what a whole run takes':32} {'pictures':>9} {'GPU hours':>10} {'disk GB':>8}  money",
    ]
    hours, disk, unknown = 0.0, 0.0, 0
    money: dict[str, float] = {}
    for one in found:
        costs = one.costs
        assert costs
        told = "not stated" if costs.gpu_hours is None else f"{costs.gpu_hours:.1f}"
        price = f"{costs.price:.2f} {costs.currency}" if costs.price else ""
        lines.append(
            f"{one.name:32} {costs.pictures:9} {told:>10} {costs.disk_gb:8.1f}  {price}".rstrip()
        )
        hours += costs.gpu_hours or 0.0
        unknown += costs.gpu_hours is None and not costs.price
        disk += costs.disk_gb
        if costs.price:
            money[costs.currency] = money.get(costs.currency, 0.0) + costs.price
    total = ", ".join(f"{price:.2f} {name}" for name, price in sorted(money.items()))
    pictures = sum(one.costs.pictures for one in found if one.costs)
    lines.append(f"{'sum':32} {pictures:9} {hours:10.1f} {disk:8.1f}  {total}".rstrip())
    if unknown:
        lines.append(f"GPU hours leave out {unknown} models whose cards state no time per picture")
    lines += ["Judges: see subjectbench judging", ""]
    return lines


def pin(card: Path, again: bool = False) -> list[str]:
    """Write today's commit of every hub repository that a card names into the card's text.

    Args:
        card: the YAML file; comments and order stay.
        again: also replace commits that are there.

    Returns:
        A line per commit written: repository and commit.

    Raises:
        InputError: the hub knows no such repository or cannot be reached; nothing is written.
    """
    lines = card.read_text("utf-8").splitlines()
    dropped: set[int] = set()
    added: dict[int, str] = {}
    written = []
    for number, line in enumerate(lines):
        found = re.match(r"(\s*)repository:\s*['\"]?([^'\"#\s]+)", line)
        if not found:
            continue
        indent, repository = found.groups()
        here = _siblings(lines, number, indent)
        old = [n for n in here if lines[n].strip().startswith("revision:")]
        if old and not again:
            continue
        commit = _newest(repository)
        dropped |= set(old)
        added[number] = f"{indent}revision: {commit}"
        written.append(f"{repository} {commit}")
    if written:
        out = []
        for number, line in enumerate(lines):
            out += [] if number in dropped else [line]
            out += [added[number]] if number in added else []
        temporary = card.with_name(f".{card.name}-{os.getpid()}")
        temporary.write_text("\n".join(out) + "\n", "utf-8")
        temporary.replace(card)
        cards.load.cache_clear()
    return written


def _newest(repository: str) -> str:
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    try:
        return str(HfApi().model_info(repository, timeout=TIMEOUT).sha)
    except HfHubHTTPError as error:
        raise InputError(repository, f"cannot be looked up: {error}", "correct the card") from error
    except Exception as error:
        if not _unreachable(error):
            raise
        raise InputError(repository, f"the hub is out of reach: {error}", "connect") from error


def _unreachable(error: Exception) -> bool:
    # Offline, proxies, time-outs: the hub's client passes on what its HTTP library raises.
    return isinstance(error, OSError) or type(error).__module__.split(".")[0].startswith("http")


def _siblings(lines: list[str], number: int, indent: str) -> list[int]:
    """Lines of the same mapping as a line."""
    out: list[int] = []
    for step in (-1, 1):
        n = number + step
        while 0 <= n < len(lines) and (not lines[n].strip() or lines[n].startswith(indent)):
            if lines[n].startswith(indent) and not lines[n][len(indent) :].startswith(" "):
                out.append(n)
            n += step
    return out
