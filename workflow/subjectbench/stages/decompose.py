"""Decomposition: the atomic units of every case, prepared or asked of a judge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from subjectbench import cards, records
from subjectbench.asking.base import Reply, Request
from subjectbench.asking.engine import Engine
from subjectbench.decompositions.base import Case, Decomposition
from subjectbench.judges import replies
from subjectbench.records import Status
from subjectbench.stages.base import Context, count
from subjectbench.stages.judge import open_engine, open_transcripts
from subjectbench.stages.prepare import Prepared
from subjectbench.stages.unit_table import Found, unit_rows
from subjectbench.store import Partial
from subjectbench.units import Unit


def run(context: Context) -> None:
    """Write units.parquet (a row per case and unit) and transcripts.parquet."""
    plugin, card, params = context.plugin("decomposition")
    decomposition: Decomposition = plugin(params, card, cards.ROOT)
    prepared = Prepared(context.upstream("benchmark"))

    def build(folder: Path, _: Partial) -> dict[str, int]:
        with open_transcripts(context.store.results) as store:
            if decomposition.asks_judge:
                engine = open_engine(context, store)
                found, keys = _asked(decomposition, prepared, engine)
            else:
                of, _, its = context.build("benchmark", context.artifact.job["benchmark"])
                given = of(its, cards.ROOT).units()
                found, keys = _prepared(decomposition, prepared, given), []
            store.export(keys, folder / "transcripts.parquet")
        rows = [row for case_id, item in found for row in unit_rows(case_id, item)]
        rows.sort(key=lambda row: (row["case_id"], row["unit_id"]))
        records.write_table("units", rows, folder / "units.parquet")
        return count(row["status"] for row in rows)

    context.store.make(context.artifact, build)


def _prepared(
    decomposition: Decomposition, prepared: Prepared, given: dict[str, list[Unit]]
) -> list[Found]:
    found: list[Found] = []
    for case_id in prepared.cases["case_id"]:
        units = decomposition.chosen(given.get(case_id, []))
        why = "no prepared units" if case_id not in given else "no unit of the chosen levels"
        found.append((case_id, units or (Status.MISSING, why)))
    return found


@dataclass(frozen=True)
class _Split:
    """Units read out of a reply, in the form that the engine wants of a reading."""

    status: Status
    fault: str = ""
    units: tuple[Unit, ...] = ()


def _reader(decomposition: Decomposition) -> Callable[[Request, Reply], _Split]:
    def read(request: Request, reply: Reply) -> _Split:
        said = replies.read(request, reply)  # asks nothing by name: is it an answer at all?
        if said.fault:
            return _Split(said.status, said.fault)
        try:
            units = decomposition.read(reply.text or "")
        except ValueError as error:
            return _Split(Status.UNPARSABLE, str(error))
        return _Split(Status.OK, units=tuple(units))

    return read


def _asked(
    decomposition: Decomposition, prepared: Prepared, engine: Engine
) -> tuple[list[Found], list[str]]:
    found: list[Found] = []
    cases: list[Case] = []
    for row in prepared.cases.itertuples():
        reference = prepared.picture(row.subject_id)
        if reference is None:
            found.append((row.case_id, (Status.BAD_REFERENCE, "no usable reference")))
        else:
            subject = "" if pd.isna(row.subject) else row.subject
            cases.append(Case(row.case_id, subject, row.prompt, reference))
    outcomes = engine.ask([decomposition.request(c) for c in cases], _reader(decomposition))
    for case, outcome in zip(cases, outcomes, strict=True):
        units = decomposition.chosen(list(outcome.reading.units)) if outcome.reading else []
        found.append((case.case_id, units or (outcome.status, outcome.fault)))
    return found, [key for outcome in outcomes for key in outcome.keys]
