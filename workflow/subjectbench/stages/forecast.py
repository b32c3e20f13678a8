"""What judging a study would take: requests, tokens and money, before any request is sent."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import pandas as pd
from PIL import Image

from subjectbench import cards
from subjectbench.asking.engine import Forecast, forecast
from subjectbench.decompositions.base import Case
from subjectbench.judges.repair import follow_up
from subjectbench.rubrics.base import Judged, Rubric
from subjectbench.stages.base import Context, of_shard
from subjectbench.stages.judge import Samples, open_transcripts
from subjectbench.stages.unit_table import read_units
from subjectbench.store import Plan
from subjectbench.units import Unit
from subjectbench.vocabulary import RELEVANCES

COUNTS = dict.fromkeys(
    ("requests", "answered", "to_send", "prompt_tokens", "completion_tokens", "cost"), "sum"
)
COLUMNS = ["judge", "asks", "server", "pictures", *COUNTS, "currency"]

ASSUMED_UNITS = 10
"""Units of a case that is not decomposed yet. UFO's Figure 4 shows 8 to 14 by category."""

BLANK = Image.new("RGB", (16, 16), "white")
"""Stands for pictures that are not there yet."""


def of_plan(plan: Plan) -> pd.DataFrame:
    """Say what each judge would be asked for what the store does not have yet.

    Returns:
        A row per judge and rubric (or decomposition): ``judge, asks, server, pictures`` (``known``:
        requests are exact; ``assumed``: pictures or units are not there yet), ``requests``,
        ``answered`` (kept from earlier, not asked again), ``to_send, prompt_tokens,
        completion_tokens`` (at most), ``cost, currency``.
    """
    found = []
    for artifact in [*plan.of_kind("decompose"), *plan.of_kind("judge")]:
        context = Context(plan, artifact)
        judge = artifact.job.get("judge")
        if not judge or context.store.has(artifact):
            continue
        part, exact = _decompose(context) if artifact.kind == "decompose" else _judge(context)
        found.append(
            {
                "judge": judge["use"]["name"] or judge["use"]["card"],
                "asks": artifact.job["use"]["name"] or artifact.job["use"]["card"],
                "server": judge["remote"],
                "currency": context.build("judge", judge)[1].price.currency,
                "exact": exact,
                **asdict(part),
                "to_send": part.to_send,
            }
        )
    if not found:
        return pd.DataFrame()
    names = ["judge", "asks", "server", "currency"]
    frame = pd.DataFrame(found).groupby(names, sort=False).agg({"exact": "all"} | COUNTS)
    frame["exact"] = frame["exact"].map({True: "known", False: "assumed"})
    return frame.reset_index().rename(columns={"exact": "pictures"})[COLUMNS]


def _cases(context: Context) -> pd.DataFrame:
    """Cases of the study, whether or not they are prepared already."""
    benchmark = context.plan.artifacts[context.artifact.upstream["benchmark"]]
    plugin, _, params = context.build("benchmark", benchmark.job)
    return plugin(params, cards.ROOT).cases().fillna({"subject": "", "prompt": ""})


def _decompose(context: Context) -> tuple[Forecast, bool]:
    plugin, card, params = context.plugin("decomposition")
    decomposition = plugin(params, card, cards.ROOT)
    price = context.build("judge", context.artifact.job["judge"])[1].price
    total = Forecast()
    for row in _cases(context).itertuples():
        case = Case(str(row.case_id), str(row.subject), str(row.prompt), BLANK)
        total += forecast([decomposition.request(case)], price)
    return total, False


def _judge(context: Context) -> tuple[Forecast, bool]:
    plugin, card, params = context.plugin("rubric")
    rubric: Rubric = plugin(params, card, cards.ROOT)
    ready = [context.plan.artifacts[key] for key in context.artifact.upstream.values()]
    if all(context.store.has(artifact) for artifact in ready):
        return _exact(context, rubric), True
    return _assumed(context, rubric), False


def _exact(context: Context, rubric: Rubric) -> Forecast:
    judge = context.artifact.job["judge"]
    price = context.build("judge", judge)[1].price
    total = Forecast()
    with open_transcripts(context.store.results) as store:
        for batch in Samples(context, rubric).batches(context.run.batch_size):
            requests = [request for sample in batch for request in rubric.requests(sample)]
            total += forecast(requests, price, judge["identity"], store, follow_up)
    return total


def _assumed(context: Context, rubric: Rubric) -> Forecast:
    price = context.build("judge", context.artifact.job["judge"])[1].price
    part = context.plan.artifacts[context.artifact.upstream["samples"]].job
    cases = _cases(context)
    cases = of_shard(cases, part["shard"], part["shards"])
    units = _units(context, cases["case_id"]) if "units" in rubric.needs else {}
    total = Forecast()
    for row in cases.itertuples():
        sample = Judged(
            generator=context.artifact.job["generator"],
            sample_id=str(row.case_id),
            case_id=str(row.case_id),
            subject=str(row.subject),
            prompt=str(row.prompt),
            image=BLANK,
            reference=BLANK,
            units=units.get(str(row.case_id), ()),
        )
        # One by one: blank pictures make different cases look alike, and those would count once.
        total += forecast(rubric.requests(sample), price)
    return total * part["samples_per_case"]


def _units(context: Context, case_ids: Iterable[str]) -> dict[str, tuple[Unit, ...]]:
    """Units of the cases: as made, as prepared by the benchmark, or a guess at their number."""
    artifact = context.plan.artifacts[context.artifact.upstream["units"]]
    if context.store.has(artifact):
        return read_units(Path(context.plan.folder(artifact.key)))[0]
    if "benchmark" in artifact.job:
        plugin, _, params = context.build("benchmark", artifact.job["benchmark"])
        given = plugin(params, cards.ROOT).units()
        kind, card, its = context.build("decomposition", artifact.job)
        decomposition = kind(its, card, cards.ROOT)
        return {case: tuple(decomposition.chosen(units)) for case, units in given.items()}
    guess = tuple(
        Unit(
            level="part",
            name=f"unit {number}",
            relevance=RELEVANCES[number % 3],  # type: ignore[arg-type]
            weight=3,
            question="Is this part of the picture as it was asked for?",
        )
        for number in range(ASSUMED_UNITS)
    )
    return {str(case): guess for case in case_ids}
