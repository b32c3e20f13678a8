"""Generation: one artifact per model and shard, resumable by batch."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from subjectbench import images, progress, records
from subjectbench.generators.base import Desk, Generator, Job, Outcome
from subjectbench.records import Status
from subjectbench.stages.base import (
    Context,
    by_subject,
    count,
    details,
    of_shard,
    to_json,
)
from subjectbench.stages.prepare import Prepared
from subjectbench.stages.trained import Trained
from subjectbench.store import Partial


def run(context: Context) -> None:
    """Write samples.parquet and images.zip: one row per case and replicate, whatever happened."""
    plugin, card, params = context.plugin("generator")
    prepared = Prepared(context.upstream("benchmark"))
    trained = Trained(context.upstream("trained")) if plugin.tuning else None
    job = context.artifact.job
    wanted = _wanted(prepared, job)

    def build(folder: Path, partial: Partial) -> dict[str, int]:
        generator: Generator | None = None
        rows: list[dict[str, Any]] = []
        pictures = _Saved(partial)
        kept = Partial(partial.folder / "kept")
        batches = list(by_subject(wanted, context.run.batch_size))
        for name, groups in progress.bar(batches, len(batches), context.artifact.name):
            saved = partial.load(name)
            if saved is None:
                if generator is None and not plugin.external:
                    generator = plugin(params, card, prepared, _device(plugin, context))
                    generator.kept = kept
                    generator.desk = _desk(context)
                    closing.callback(generator.close)
                done = [_group(generator, prepared, group, trained) for group in groups]
                partial.save(name, pickle.dumps(done))
                kept.clear()
            else:
                done = pickle.loads(saved)
            for group_rows, group_pictures in done:
                rows += group_rows
                pictures.batch_of |= dict.fromkeys(group_pictures, name)
        rows.sort(key=lambda r: r["sample_id"])
        records.write_table("samples", rows, folder / "samples.parquet")
        images.write_zip(folder / "images.zip", pictures)
        return count(r["status"] for r in rows)

    with ExitStack() as closing:
        context.store.make(context.artifact, build)


class _Saved(Mapping[str, bytes]):
    """Pictures of all batches by member name, of which one batch at a time is in memory.

    A shard's pictures can be many gigabytes: 5508 of 1024 x 1024 pixels are about 8.
    """

    def __init__(self, partial: Partial) -> None:
        self.batch_of: dict[str, str] = {}
        self._partial = partial
        self._held: tuple[str, dict[str, bytes]] = ("", {})

    def __getitem__(self, name: str) -> bytes:
        batch = self.batch_of[name]
        if batch != self._held[0]:
            saved = self._partial.load(batch)
            assert saved is not None, f"batch {batch} was saved before"
            self._held = ("", {})
            groups = [pictures for _, pictures in pickle.loads(saved)]
            self._held = (batch, {n: png for group in groups for n, png in group.items()})
        return self._held[1][name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.batch_of)

    def __len__(self) -> int:
        return len(self.batch_of)


def _device(plugin: type[Generator], context: Context) -> str:
    return context.device if plugin.uses_torch else "cpu"


def _desk(context: Context) -> Desk:
    limits = context.run.generating
    return Desk(context.store.results, limits, context.run_name, context.artifact.name)


def _wanted(prepared: Prepared, job: dict[str, Any]) -> pd.DataFrame:
    """One row per picture asked for, of this shard."""
    cases = of_shard(prepared.cases, job["shard"], job["shards"])
    frames = []
    for replicate in range(job["samples_per_case"]):
        frame = cases.assign(replicate=replicate)
        frame["sample_id"] = frame["case_id"] + f"-s{replicate}"
        frame["seed"] = [
            records.sample_seed(job["seed"], case, replicate) for case in frame["case_id"]
        ]
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def _group(
    generator: Generator | None,
    prepared: Prepared,
    group: pd.DataFrame,
    trained: Trained | None = None,
) -> tuple[list[dict[str, Any]], dict[str, bytes]]:
    """All pictures of one subject."""
    subject_id = group["subject_id"].iloc[0]
    if generator is None:
        outcomes = [Outcome(None, Status.EXTERNAL)] * len(group)
    elif (reference := prepared.picture(subject_id)) is None:
        outcomes = [Outcome(None, Status.BAD_REFERENCE)] * len(group)
    elif trained and (status := trained.status(subject_id)) is not Status.OK:
        reason = {"training": trained.details(subject_id).get("reason", "")}
        outcomes = [Outcome(None, status, dict(reason)) for _ in range(len(group))]
    else:
        jobs = [
            Job(
                sample_id=row.sample_id,
                subject_id=subject_id,
                subject=row.subject,
                prompt=row.prompt,
                reference=reference,
                seed=row.seed,
                details=details(row.details),
            )
            for row in group.itertuples()
        ]
        with _taken_up(generator, trained, subject_id):
            outcomes = generator.generate(jobs)
        if len(outcomes) != len(jobs):
            raise RuntimeError(f"{len(outcomes)} outcomes for {len(jobs)} jobs of {subject_id}")
    rows, pictures = [], {}
    for row, outcome in zip(group.itertuples(), outcomes, strict=True):
        outcome = _checked(outcome)
        png = images.encode_png(outcome.image) if outcome.image is not None else None
        if png:
            pictures[f"{row.sample_id}.png"] = png
        rows.append(
            {
                "sample_id": row.sample_id,
                "case_id": row.case_id,
                "replicate": row.replicate,
                "seed": row.seed,
                "status": outcome.status.value,
                "image_sha256": images.sha256(png) if png else None,
                "details": to_json(outcome.details),
            }
        )
    return rows, pictures


@contextmanager
def _taken_up(generator: Generator, trained: Trained | None, subject_id: str) -> Iterator[None]:
    """Let the generator load what was trained for a subject."""
    if trained is None:
        yield
        return
    with tempfile.TemporaryDirectory() as folder:
        trained.unpack(subject_id, Path(folder))
        generator.take_up(Path(folder))
        yield


def _checked(outcome: Outcome) -> Outcome:
    """Turn a picture of one single colour, a broken model's usual output, into a status."""
    if outcome.image is None:
        return outcome
    if images.is_blank(outcome.image):
        return Outcome(None, Status.INVALID_IMAGE, {**outcome.details, "reason": "one colour"})
    return outcome
