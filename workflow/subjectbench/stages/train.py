"""Training: one artifact per model and shard, with the files of each of its subjects.

A subject is known by what its training depends on, so one that an earlier artifact holds is copied
from there: a new subject in the benchmark, or another number of shards, repeats no other. Within a
job finished subjects are kept, and the one under way goes on from its last checkpoint.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from subjectbench import checkpoint, images, progress, records
from subjectbench.hashing import sha256_file, subject_shard
from subjectbench.records import Status
from subjectbench.stages.base import Context, count, to_json
from subjectbench.stages.prepare import Prepared, open_png
from subjectbench.stages.trained import Trained
from subjectbench.store import Artifact, Partial, identity
from subjectbench.tuning.base import Diverged, PriorTuning, Subject, Tuning, files
from subjectbench.tuning.prior import ClassPictures, NoPicture

OUTCOME = "outcome.json"
"""Kept beside a finished subject's files until the artifact is whole."""


def run(context: Context) -> None:
    """Write subjects.parquet, losses.parquet and weights.zip: one row per subject of the shard."""
    prepared = Prepared(context.upstream("benchmark"))
    job = context.artifact.job
    subjects = [s for s in prepared.subjects if subject_shard(s, job["shards"]) == job["shard"]]

    def build(folder: Path, partial: Partial) -> dict[str, int]:
        training = Training(context, partial)
        rows: list[dict[str, Any]] = []
        losses: list[tuple[str, int, float]] = []
        members: dict[str, Path] = {}
        for subject_id in progress.bar(subjects, len(subjects), context.artifact.name):
            noun = prepared.noun(subject_id)
            found = training.one(subject_id, noun, prepared.picture(subject_id))
            members |= {f"{subject_id}/{name}": path for name, path in found.files.items()}
            losses += [(subject_id, step, loss) for step, loss in enumerate(found.losses)]
            rows.append(
                {
                    "subject_id": subject_id,
                    "subject": noun,
                    "subject_key": found.key,
                    "status": found.status.value,
                    "files": to_json({n: sha256_file(p) for n, p in found.files.items()}),
                    "details": to_json(found.details),
                }
            )
        records.write_table("trained", rows, folder / "subjects.parquet")
        frame = pd.DataFrame(losses, columns=["subject_id", "step", "loss"])
        records.write_table("losses", frame, folder / "losses.parquet")
        images.write_zip(folder / "weights.zip", members)
        return count(r["status"] for r in rows)

    context.store.make(context.artifact, build)


@dataclass
class Found:
    """What became of one subject."""

    status: Status
    details: dict[str, Any]
    key: str | None = None
    losses: list[float] = field(default_factory=list)
    files: Mapping[str, Path] = field(default_factory=dict)


class Training:
    """Trains subjects, unless they were trained before. Loads models only if it has to."""

    def __init__(self, context: Context, partial: Partial) -> None:
        plugin, self.card, self.params = context.plugin("generator")
        self.context, self.partial = context, partial
        self.method: type[Tuning] = plugin.tuning

    @cached_property
    def tuning(self) -> Tuning:
        """The method, with the base model."""
        return self.method(self.params, self._weights, self.context.device)

    @cached_property
    def _weights(self) -> Path:
        return checkpoint.folder(self.card.weights)

    def one(self, subject_id: str, noun: str | None, reference: Any) -> Found:
        """Train for one subject, or say why not."""
        if reference is None:
            return Found(Status.BAD_REFERENCE, {"reason": "the reference has no usable pixels"})
        if not noun:
            return Found(Status.NOT_APPLICABLE, {"reason": "the benchmark names no class"})
        try:
            others = self._class_pictures(noun)
        except NoPicture as error:
            return Found(Status.FAILED, {"reason": str(error)})
        seed = f"{self.params.training_seed}/{subject_id}"
        subject = Subject(
            noun,
            reference,
            int.from_bytes(hashlib.sha256(seed.encode()).digest()[:4], "big") & 0x7FFFFFFF,
            [open_png(png) for png in others],
        )
        key = self._key(subject, others)
        kept = self.partial.folder / key
        if not (kept / OUTCOME).is_file() and not self._copied(key, kept):
            self._train(subject, key)
        outcome = json.loads((kept / OUTCOME).read_text("utf-8"))
        given = {name: path for name, path in files(kept) if name != OUTCOME}
        return Found(Status(outcome["status"]), outcome["details"], key, outcome["losses"], given)

    def _train(self, subject: Subject, key: str) -> None:
        saved = self.partial.folder / f"{key}.checkpoint"
        with self.partial.keeping(key) as folder:
            try:
                losses = self.tuning.tune(subject, saved, folder)
                status, told = Status.OK, self.tuning.facts()
            except Diverged as error:
                losses, status, told = [], Status.FAILED, {"reason": str(error)}
            outcome = {"status": status.value, "details": told, "losses": losses}
            (folder / OUTCOME).write_text(json.dumps(outcome), "utf-8")
        saved.unlink(missing_ok=True)

    def _key(self, subject: Subject, others: list[bytes]) -> str:
        """Identity of a trained subject: all that its bytes depend on, but not where it is kept."""
        method = self.method.__module__
        parts = self.context.artifact.components
        return identity.digest(
            {
                "method": method,
                "version": self.method.version,
                "code": identity.closure(method),
                "params": parts["params"],
                "packages": parts["packages"],
                "weights": parts["weights"],
                "noun": subject.noun,
                "seed": subject.seed,
                "reference": images.sha256(images.encode_png(subject.reference)),
                "class_pictures": [images.sha256(png) for png in others],
            }
        )

    @cached_property
    def _earlier(self) -> dict[str, tuple[Path, str]]:
        """Trained subjects of all artifacts of the store: key to the artifact and its subject."""
        out: dict[str, tuple[Path, str]] = {}
        root = self.context.store.results / "store" / "train"
        for path in sorted(root.rglob("subjects.parquet")):
            frame = pd.read_parquet(path, columns=["subject_key", "subject_id", "status"])
            for row in frame[frame["status"] == Status.OK.value].itertuples():
                out[row.subject_key] = (path.parent, row.subject_id)
        return out

    def _copied(self, key: str, kept: Path) -> bool:
        """Take a subject over from an earlier artifact, if one has it whole."""
        if key not in self._earlier:
            return False
        artifact, subject_id = self._earlier[key]
        trained = Trained(artifact)
        losses = pd.read_parquet(artifact / "losses.parquet")
        losses = losses[losses["subject_id"] == subject_id].sort_values("step")
        with self.partial.keeping(key) as folder:
            trained.unpack(subject_id, folder)
            wanted = trained.files(subject_id)
            if {name: sha256_file(path) for name, path in files(folder)} != wanted:
                return False  # damaged
            outcome = {
                "status": Status.OK.value,
                "details": trained.details(subject_id),
                "losses": losses["loss"].tolist(),
            }
            (folder / OUTCOME).write_text(json.dumps(outcome), "utf-8")
        return (kept / OUTCOME).is_file()

    # --- pictures of the class -------------------------------------------------------------------

    @cached_property
    def _maker(self) -> ClassPictures:
        return ClassPictures(self._weights, self.context.device)

    def _class_pictures(self, noun: str) -> list[bytes]:
        """Pictures of a noun's class: an artifact of its own, which methods and shards share."""
        if not isinstance(self.params, PriorTuning.Params) or not self.params.class_pictures:
            return []
        text = self.params.class_template.format(noun=noun)
        spec = {
            "seed": self.params.training_seed,
            "steps": self.params.class_steps,
            "guidance": self.params.class_guidance,
        }
        total = self.params.class_pictures
        parts = self.context.artifact.components
        where = self.card.weights.path or self.card.weights.repository
        artifact = Artifact(
            "prior",
            f"{re.sub(r'[^A-Za-z0-9.]+', '-', Path(where).name)}/{_slug(noun)}",
            {
                "text": text,
                "count": total,
                **spec,
                "version": ClassPictures.version,
                "code": identity.closure(ClassPictures.__module__),
                "packages": parts["packages"],
                "weights": parts["weights"],
            },
            files=("images.zip",),
        )

        def build(folder: Path, partial: Partial) -> dict[str, int]:
            made: dict[str, bytes] = {}
            for first in range(0, total, 20):
                batch = partial.folder / f"{first:04d}"
                if not batch.is_dir():
                    pictures = self._maker.make(text, first, min(20, total - first), spec)
                    with partial.keeping(batch.name) as fresh:
                        for name, png in pictures.items():
                            (fresh / name).write_bytes(png)
                made |= {name: path.read_bytes() for name, path in files(batch)}
            images.write_zip(folder / "images.zip", made)
            return {Status.OK.value: len(made)}

        folder = self.context.store.make(artifact, build)
        with images.ZipReader(folder / "images.zip") as archive:
            return [archive.read(name) for name in archive]


def _slug(noun: str) -> str:
    """Short plain name of a noun for a path; the key tells equal ones apart."""
    return re.sub(r"[^a-z0-9]+", "-", noun.lower()).strip("-")[:40] or "class"
