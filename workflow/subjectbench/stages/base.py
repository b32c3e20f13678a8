"""What every stage shares: its artifact, the folders of its upstream, and the device."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from subjectbench import cards, devices
from subjectbench.config import Run, Use, validate
from subjectbench.errors import InputError
from subjectbench.hashing import subject_shard
from subjectbench.store import Artifact, Plan, Store
from subjectbench.store.artifact import ROWS_ONLY
from subjectbench.store.identity import changed

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")

RUN_VARIABLE = "SUBJECTBENCH_RUN"
"""Environment variable that names a run, over all of whose jobs a budget is counted."""


@dataclass(frozen=True)
class Context:
    """One job: the artifact to make and the plan that it belongs to."""

    plan: Plan
    artifact: Artifact

    @cached_property
    def store(self) -> Store:
        """The store of the plan."""
        return Store(Path(self.plan.results))

    @cached_property
    def run(self) -> Run:
        """How to work; never what."""
        return validate(Run, self.plan.study["run"], "plan: run")

    @cached_property
    def device(self) -> str:
        """Torch device: a GPU that no other job has, or the CPU.

        Sets the thread count too, on which last digits depend.
        """
        import torch

        torch.set_num_threads(self.run.threads)
        # As use_deterministic_algorithms(True, warn_only=True), which also imports torch's compiler
        # to tell it: seconds for each job, and nothing here is compiled.
        torch.set_deterministic_debug_mode("warn")
        if self.run.device == "cuda" and not torch.cuda.is_available():
            raise InputError("config: run.device", "no CUDA device here", "use auto or cpu")
        wanted = self.run.device != "cpu" and torch.cuda.is_available()
        if not wanted:
            return "cpu"
        device = devices.pick()
        self.store.device = devices.told(device)
        return device

    @property
    def run_name(self) -> str:
        """Name of the run whose budget counts; of a job by itself, its key."""
        return os.environ.get(RUN_VARIABLE, self.artifact.key)

    def upstream(self, role: str) -> Path:
        """Folder of the upstream artifact in a role."""
        return self.plan.folder(self.artifact.upstream[role])

    def roles(self, prefix: str) -> dict[str, Path]:
        """Folders of all upstream artifacts whose role starts with ``prefix/``."""
        return {
            role.removeprefix(f"{prefix}/"): self.upstream(role)
            for role in self.artifact.upstream
            if role.startswith(f"{prefix}/")
        }

    def plugin(self, kind: str) -> tuple[Any, Any, Any]:
        """Class, card and checked parameters of the plug-in that the artifact's job names."""
        return self.build(kind, self.artifact.job)

    def build(self, kind: str, job: Any) -> tuple[Any, Any, Any]:
        """Class, card and checked parameters of another plug-in that the job names."""
        use = Use.model_validate(job["use"])
        card = cards.load(kind, use.card)
        return cards.plugin(kind, card, use.label), card, cards.params(kind, use, use.label)

    def check_upstream(self) -> None:
        """Hash what the artifact is made from, so that damaged bytes are never used silently.

        Raises:
            InputError: naming the damaged file.
        """
        for role in self.artifact.upstream:
            pictures = self.artifact.kind not in ROWS_ONLY
            faults = self.store.verify(self.upstream(role), pictures=pictures)
            if faults:
                raise InputError(
                    faults[0],
                    "what was made is no longer there",
                    "subjectbench restore, if it is published; or delete its folder and run "
                    "snakemake again",
                )

    def check_identity(self, now: Artifact | None) -> None:
        """Refuse to file work under a key whose code, card or data changed since it was planned.

        Args:
            now: the artifact of this kind and name as it would be planned now; None: none is.

        Raises:
            InputError: naming what changed.
        """
        if now is None:
            raise InputError(
                self.artifact.name, "is no longer part of the study", "run snakemake again"
            )
        if now.key != self.artifact.key:
            what = "; ".join(changed(self.artifact.identity, now.identity)[:3])
            raise InputError(
                f"{self.artifact.kind} {self.artifact.name}",
                f"changed since the run was planned: {what}",
                "run snakemake again; it will plan with the change",
            )


def of_shard(cases: pd.DataFrame, shard: int, shards: int) -> pd.DataFrame:
    """Cases of the subjects of one shard; it may have none."""
    mine = [subject_shard(subject, shards) == shard for subject in cases["subject_id"]]
    # By position: a mask of no rows would be taken for a list of columns.
    return cases.iloc[[row for row, wanted in enumerate(mine) if wanted]]


def by_subject(frame: pd.DataFrame, batch_size: int) -> Iterator[tuple[str, list[pd.DataFrame]]]:
    """Group samples by subject, and subjects into batches of about ``batch_size`` rows.

    The subject's group is what a plug-in sees in one call: always the same rows, whatever batch
    size, shard or order. A batch is only what is saved at once; its name is its first subject's
    and its last subject's number in the whole, so another batch size never mixes with it.
    """
    groups = [group for _, group in frame.sort_values("sample_id").groupby("subject_id", sort=True)]
    batch: list[pd.DataFrame] = []
    start = rows = 0
    for number, group in enumerate(groups):
        batch.append(group)
        rows += len(group)
        if rows >= batch_size or number == len(groups) - 1:
            yield f"{start:06d}-{number:06d}", batch
            batch, rows, start = [], 0, number + 1


def details(value: str) -> dict[str, Any]:
    """Read a details cell."""
    return dict(json.loads(value))


def count(statuses: Iterable[str]) -> dict[str, int]:
    """Rows by status, sorted."""
    out: dict[str, int] = {}
    for status in statuses:
        out[str(status)] = out.get(str(status), 0) + 1
    return dict(sorted(out.items()))


def to_json(value: Any) -> str:
    """Write a details cell: the same text for the same content."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
