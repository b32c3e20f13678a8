"""Judging: a judge's answers about the pictures of one model and shard. Every reply is kept.

A killed or failed job loses nothing: replies lie in the transcript store as they come, and the next
try asks only what is missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd

from subjectbench import cards, images, records
from subjectbench.asking.engine import Engine, Outcome
from subjectbench.asking.transcripts import Transcripts
from subjectbench.judges import replies
from subjectbench.judges.repair import follow_up
from subjectbench.records import Status
from subjectbench.rubrics.base import Judged, Rubric
from subjectbench.stages.base import Context, by_subject, count, to_json
from subjectbench.stages.prepare import Prepared, open_png
from subjectbench.stages.unit_table import read_units
from subjectbench.store import Partial
from subjectbench.units import Unit


def run(context: Context) -> None:
    """Write answers.parquet (a row per picture and question) and transcripts.parquet."""
    plugin, card, params = context.plugin("rubric")
    rubric: Rubric = plugin(params, card, cards.ROOT)
    samples = Samples(context, rubric)

    def build(folder: Path, _: Partial) -> dict[str, int]:
        with open_transcripts(context.store.results) as store:
            if rubric.imported:
                rows, keys = _imported(rubric, samples)
            else:
                rows, keys = _asked(rubric, samples, open_engine(context, store), context)
            store.export(keys, folder / "transcripts.parquet")
        rows.sort(key=lambda row: (row["sample_id"], row["ask"]))
        records.write_table("answers", rows, folder / "answers.parquet")
        return count(row["status"] for row in rows)

    context.store.make(context.artifact, build)


def open_transcripts(results: Path) -> Transcripts:
    """Open the transcript store of a results folder.

    A new one takes in the transcripts of every artifact that is there: after a fresh clone and
    restored artifacts, a changed parser must not buy the same replies again. It is there only once
    it has them all, whoever is killed or comes second meanwhile.
    """
    path = results / "transcripts.sqlite"
    if not path.is_file():
        kinds = (results / "store" / kind for kind in ("decompose", "judge"))
        archives = sorted(p for kind in kinds for p in kind.rglob("transcripts.parquet"))
        results.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=results, prefix=".transcripts-") as folder:
            new = Path(folder) / path.name
            with Transcripts(new) as store:
                for archive in archives:
                    store.load(archive)
            with suppress(FileExistsError):
                path.hardlink_to(new)
    return Transcripts(path)


def open_engine(context: Context, store: Transcripts) -> Engine:
    """Build the judge that the job names, behind an engine."""
    job = context.artifact.job["judge"]
    plugin, card, params = context.build("judge", job)
    encoder = None
    if job["encoder"]:
        encoder_plugin, encoder_card, encoder_params = context.build("encoder", job["encoder"])
        encoder = encoder_plugin(encoder_params, encoder_card, context.device)
    device = context.device if plugin.uses_torch else "cpu"
    return Engine(
        plugin(params, card, device, encoder),
        job["identity"],
        store,
        context.run.judging,
        card.price,
        context.run_name,
        context.artifact.name,
        then=follow_up,
    )


class Samples:
    """Pictures of one model and shard, as a rubric sees them."""

    def __init__(self, context: Context, rubric: Rubric) -> None:
        self.generator = context.artifact.job["generator"]
        self.prepared = Prepared(context.upstream("benchmark"))
        self.needs = rubric.needs
        frame = records.read_table("samples", context.upstream("samples") / "samples.parquet")
        usable = [Status.OK, Status.EXTERNAL] if rubric.imported else [Status.OK]
        cases = self.prepared.cases[["case_id", "subject_id", "subject", "prompt"]]
        self.frame = frame[frame["status"].isin(usable)].merge(
            cases, on="case_id", how="left", validate="many_to_one"
        )
        self.archive = context.upstream("samples") / "images.zip"
        self.units: dict[str, tuple[Unit, ...]] = {}
        if "units" in self.needs:
            self.units, _ = read_units(context.upstream("units"))

    def batches(self, size: int) -> Iterator[list[Judged]]:
        """Yield samples by whole subjects, about ``size`` at a time."""
        with images.ZipReader(self.archive) as pictures:
            for _, groups in by_subject(self.frame, size):
                yield [sample for group in groups for sample in self._group(group, pictures)]

    def _group(self, group: pd.DataFrame, pictures: images.ZipReader) -> Iterator[Judged]:
        reference = None
        if "reference" in self.needs:
            reference = self.prepared.picture(group["subject_id"].iloc[0])
        for row in group.itertuples():
            wanted = "image" in self.needs and row.status == Status.OK
            yield Judged(
                generator=self.generator,
                sample_id=row.sample_id,
                case_id=row.case_id,
                subject="" if pd.isna(row.subject) else row.subject,
                prompt="" if pd.isna(row.prompt) else row.prompt,
                image=open_png(pictures[f"{row.sample_id}.png"]) if wanted else None,
                reference=reference,
                units=self.units.get(row.case_id, ()),
            )


Rows = tuple[list[dict[str, Any]], list[str]]
"""Rows of answers, and the keys of the requests behind them, follow-ups included."""


def _imported(rubric: Rubric, samples: Samples) -> Rows:
    rows = []
    for batch in samples.batches(len(samples.frame) or 1):
        for sample in batch:
            for said in rubric.said(sample):
                status = Status.OK if said.value is not None else Status.UNPARSABLE
                facts = {"words": said.text} | ({"reason": said.fault} if said.fault else {})
                rows.append(_answer(sample.sample_id, said.ask, status, said.value, facts))
    return rows, []


def _asked(rubric: Rubric, samples: Samples, engine: Engine, context: Context) -> Rows:
    rows: list[dict[str, Any]] = []
    keys: list[str] = []
    for batch in samples.batches(context.run.batch_size):
        asked = [(sample, request) for sample in batch for request in rubric.requests(sample)]
        outcomes = engine.ask([request for _, request in asked], replies.read)
        for (sample, _), outcome in zip(asked, outcomes, strict=True):
            keys += outcome.keys
            rows += _answers(sample.sample_id, outcome)
    return rows, keys


def _answers(sample_id: str, outcome: Outcome[replies.Reading]) -> Iterator[dict[str, Any]]:
    reading = outcome.reading
    for number, ask in enumerate(outcome.request.asks):
        facts: dict[str, Any] = {"request": outcome.key}
        if reading is None:
            status, value = outcome.status, None
            facts["reason"] = outcome.fault
        else:
            answered = reading.answers[ask.name]
            status, value = answered.status, answered.value
            facts |= {"reason": answered.reason} if answered.reason else {}
            facts |= {"graded": True} if outcome.reply and outcome.reply.graded else {}
            # The judge's words and repairs are about the whole reply: said once.
            facts |= {"words": reading.words} if reading.words and not number else {}
            facts |= {"repairs": list(reading.repairs)} if reading.repairs and not number else {}
        yield _answer(sample_id, ask.name, status, value, facts)


def _answer(
    sample_id: str, ask: str, status: Status, value: float | None, facts: dict[str, Any]
) -> dict[str, Any]:
    return {
        "sample_id": sample_id,
        "ask": ask,
        "status": status.value,
        "value": value,
        "details": to_json(facts),
    }
