"""Tables of a study, from the rows of all its metrics, models and shards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq

from subjectbench import alignment, composition, findings, records, tables, writing
from subjectbench.cells import TOTAL
from subjectbench.published import measured
from subjectbench.records import DIMENSIONS, Status
from subjectbench.stages import embed
from subjectbench.stages.base import Context, count, details
from subjectbench.store import Partial

CASE_COLUMNS = [
    "case_id",
    "subject_id",
    "domain",
    "difficulty",
    "scenario",
    "paradigm",
    "category",
]

AGAINST_RATERS = (
    "human_alignment",
    "findings",
    "agreement",
    "rater_agreement",
    "rank_agreement",
    "alignment",
    "alignment_differences",
    "ablation",
    "disagreements",
    "beside_raters",
)
"""Tables whose numbers are of raters, and so simulated where those are."""


def run(context: Context) -> None:
    """Write each table of the job as CSV, Markdown and LaTeX."""
    job = context.artifact.job

    def build(folder: Path, _: Partial) -> dict[str, int]:
        scores = read_scores(context)
        others = {b["name"]: read_scores(context, f"beside/{b['name']}/") for b in beside(job)}
        made = make(context, scores, others)
        titles = titles_of(job["metrics"])
        for name in job["tables"]:
            frame = measured.beside(name, made[name], job)
            for column in ("metric", "baseline"):
                if column in frame.columns:
                    place = list(frame.columns).index(column) + 1
                    frame.insert(place, f"{column}_title", frame[column].map(titles))
            writing.write(
                frame,
                folder / name,
                caption(name, job, frame),
                f"tab:{name.replace('_', '-')}",
                footer=writing.off_lock(job["off_lock"]),
            )
        return count(status for frame in (scores, *others.values()) for status in frame["status"])

    context.store.make(context.artifact, build)


def beside(job: dict[str, Any]) -> list[dict[str, str]]:
    """Name and title of the benchmarks beside the study's own."""
    return list(job["benchmarks"][1:])


def titles_of(listed: list[dict[str, Any]]) -> dict[str, str]:
    """Name to title, in the order of the config."""
    return {facts["name"]: facts["title"] for facts in listed}


def caption(name: str, job: dict[str, Any], frame: pd.DataFrame) -> str:
    """Say what a table shows, with which metrics, and what is synthetic or only printed."""
    titles = titles_of(job["metrics"])
    texts = {
        "leaderboard": "Leaderboard by S_h",
        "findings": "The DSH-Bench paper's claims, on these data",
        "benchmarks": "Models on several benchmarks (DSH-Bench, Table 2)",
        "by_difficulty": "Scores by subject difficulty",
        "by_scenario": "Scores by prompt scenario",
        "by_category": "Scores by category",
        "agreement": "Agreement of metrics with raters",
        "human_alignment": "Metrics against raters, model by model (DSH-Bench, Table 1): "
        + job["human_alignment"]["dimension"],
        "disputed": "Samples that the models differ on most",
        "distributions": "Subjects and prompts by difficulty, scenario and category "
        "(DSH-Bench, Figures 2 and 3a)",
        "hierarchy": "Subjects by domain, kind and category (DSH-Bench, Figure 6)",
        "reference_map": "Map of the references (DSH-Bench, Figure 3b)",
        "rater_agreement": "Agreement among raters",
        "coverage": "Samples by metric, model and status",
        "pictures": "Pictures by model: made, alike, copied from the reference",
        "models_by_paradigm": "Models by editing paradigm (UFO, Table 1)",
        "alignment": "Agreement of metrics with raters' rankings, case by case (UFO, Table 2)",
        "alignment_differences": "Differences between metrics in agreement with raters' rankings",
        "ablation": "Agreement with raters' rankings without one part (UFO, Table 3)",
        "rank_agreement": "Agreement among raters on rankings",
        "disagreements": "Cases that two metrics rank most differently (UFO, Figure 6)",
        "disagreement_units": "What the units said of those cases",
        "composition": "Cases by category and paradigm (UFO, Figure 2)",
        "units_by_category": "Atomic units per case by category (UFO, Figure 4)",
        "unit_counts": "Cases by number of units (UFO, Figure 4)",
        "requests": "Requests to the judge, here and by UFO's own code",
        "beside_raters": "Metrics beside single raters: Spearman's rho per model and its means. "
        "'As in reference' is the tanh of the plain mean, which forgets the arctanh and is too low",
    }
    text = texts[name]
    if job["dimensions"] and (name in ("leaderboard", "benchmarks") or name.startswith("by_")):
        text += ": " + ", ".join(f"{d} = {titles[job['dimensions'][d]]}" for d in DIMENSIONS)
    notes = [measured.source(name)] if measured.NOTE in frame.columns else []
    if job["synthetic"]:
        notes.append("synthetic pictures")
    if job["raters_simulated"] and name in AGAINST_RATERS:
        notes.append("simulated raters")
    return text + (f" ({', '.join(notes)})" if notes else "")


def read_cases(context: Context, at: str = "") -> pd.DataFrame:
    """Cases of the study's benchmark, or of one beside it, whose roles start with ``at``."""
    return records.read_table("cases", context.upstream(f"{at}benchmark") / "cases.parquet")


def read_scores(context: Context, at: str = "") -> pd.DataFrame:
    """All score rows of a benchmark with their case, one row per expected sample and metric."""
    cases = read_cases(context, at)
    frames = [
        records.read_table("scores", folder / "scores.parquet")
        for folder in context.roles(f"{at}scores").values()
    ]
    scores = pd.concat(frames, ignore_index=True)
    order = list(titles_of(context.artifact.job["metrics"]))
    scores = scores.sort_values("metric", key=lambda m: m.map(order.index), kind="stable")
    return placed(scores, cases)


def placed(rows: pd.DataFrame, cases: pd.DataFrame) -> pd.DataFrame:
    """Add to rows of samples what is known of their cases."""
    rows = rows.assign(case_id=_cases_of(rows))
    unknown = set(rows["case_id"]) - set(cases["case_id"])
    if unknown:
        raise RuntimeError(f"rows of unknown cases: {unknown}")
    return rows.merge(cases[CASE_COLUMNS], on="case_id", validate="many_to_one")


def _cases_of(rows: pd.DataFrame) -> pd.Series[str]:
    # "<case>-s<replicate>" is how generation names samples. (rpartition needs at least one row.)
    return rows["sample_id"].str.rsplit("-", n=1).str[0]


def read_targets(context: Context) -> tuple[pd.DataFrame | None, pd.DataFrame | None]:
    """Ratings, and what metrics are held against: raters' means, and the truth where known."""
    if "ratings" not in context.artifact.upstream:
        return None, None
    ratings = records.read_table("ratings", context.upstream("ratings") / "ratings.parquet")
    simulated = context.artifact.job["raters_simulated"]
    frames = [tables.targets(ratings, "raters (simulated)" if simulated else "raters")]
    truth = []
    for role, folder in context.roles("truth").items():
        samples = records.read_table("samples", folder / "samples.parquet")
        for sample in samples[samples["status"] == Status.OK].itertuples():
            for dimension, value in details(str(sample.details)).get("truth", {}).items():
                truth.append(
                    {
                        "generator": role.rpartition("/")[0],
                        "sample_id": sample.sample_id,
                        "dimension": dimension,
                        "value": value,
                        "source": "truth",
                        "n_raters": 0,
                    }
                )
    if truth:
        frames.append(pd.DataFrame(truth))
    return ratings, pd.concat(frames, ignore_index=True)


def make(
    context: Context, scores: pd.DataFrame, others: dict[str, pd.DataFrame]
) -> dict[str, pd.DataFrame]:
    """Every table that the job names.

    Args:
        context: of the job.
        scores: of the study's benchmark.
        others: of those beside it, by name.
    """
    job = context.artifact.job
    titles = titles_of(job["generators"])
    statistics = job["statistics"]
    common: dict[str, Any] = {
        "generators": titles,
        "draws": statistics["bootstrap"],
        "seed": statistics["seed"],
        "confidence": statistics["confidence"],
    }
    out = {"coverage": _coverage(scores, others, job)}
    if "pictures" in job["tables"]:
        out["pictures"] = tables.pictures(scores, job["near_copy"], generators=titles)
    if job["dimensions"]:
        board = job["leaderboard"]
        ranked = tables.leaderboard(
            scores,
            job["dimensions"],
            weights=[board[f"{d}_weight"] for d in DIMENSIONS],
            constant=board["constant"],
            min_coverage=board["min_coverage"],
            **common,
        )
        out["leaderboard"] = ranked.sort_values("rank", kind="stable", ignore_index=True)
        if others:
            shown = job["beside_generators"]
            own = scores[scores["generator"].isin(shown)]
            out["benchmarks"] = tables.benchmarks_side_by_side(
                {job["benchmarks"][0]["name"]: own} | others,
                job["dimensions"],
                min_coverage=board["min_coverage"],
                **common | {"generators": {name: titles[name] for name in shown}},
            )
        for name in job["tables"]:
            if name.startswith("by_"):
                out[name] = tables.breakdown(
                    scores,
                    name.removeprefix("by_"),
                    job["dimensions"],
                    min_coverage=board["min_coverage"],
                    **common,
                )
        out["disputed"] = tables.disputed(
            scores, job["dimensions"]["preservation"], _models(job), generators=titles
        )
        out |= _composition(context)
    ratings, targets = read_targets(context)
    if job["dimensions"]:
        # Controls trade one dimension for another by construction.
        models = _models(job)
        out["findings"] = findings.findings(
            scores[scores["generator"].isin(models)],
            job["dimensions"],
            targets=targets,
            min_coverage=job["leaderboard"]["min_coverage"],
            **common | {"generators": {name: titles[name] for name in models}},
        )
    if ratings is not None and targets is not None:
        out["agreement"] = tables.agreement(scores, targets, **common)
        if "human_alignment" in job["tables"]:
            asked = job["human_alignment"]
            out["human_alignment"] = tables.human_alignment(
                scores,
                targets,
                out["agreement"],
                dimension=asked["dimension"],
                metrics=asked["metrics"],
                **{name: common[name] for name in ("draws", "seed", "confidence")},
            )
        out["rater_agreement"] = tables.rater_agreement(ratings)
        if job["beside_raters"]:
            out["beside_raters"] = tables.viescore_agreement(
                scores, ratings, job["beside_raters"], generators=titles
            )
    if job["alignment"]:
        out |= _alignment(context, scores, ratings, targets, common)
    return out


def _models(job: dict[str, Any]) -> list[str]:
    """Names of the models; of all generators where the study has controls only."""
    models = [g["name"] for g in job["generators"] if g["role"] != "control"]
    return models or list(titles_of(job["generators"]))


def _composition(context: Context) -> dict[str, pd.DataFrame]:
    """What the benchmarks consist of."""
    job = context.artifact.job
    at = [""] + [f"beside/{b['name']}/" for b in beside(job)]
    titles = [b["title"] for b in job["benchmarks"]]
    benchmarks = {title: read_cases(context, a) for title, a in zip(titles, at, strict=True)}
    out = {
        "distributions": composition.distributions(benchmarks),
        "hierarchy": composition.hierarchy(benchmarks[titles[0]]),
    }
    if "reference_map" in job["tables"]:
        vectors = {}
        for title, a in zip(titles, at, strict=True):
            folder = context.upstream(f"{a}reference_embeddings")
            found = embed.read(folder / "references.parquet").items()
            vectors[title] = {i: v.values for i, v in found if v.values is not None}
        seed = job["statistics"]["seed"]
        out["reference_map"] = composition.reference_map(benchmarks, vectors, seed=seed)
    return out


def _alignment(
    context: Context,
    scores: pd.DataFrame,
    ratings: pd.DataFrame | None,
    targets: pd.DataFrame | None,
    common: dict[str, Any],
) -> dict[str, pd.DataFrame]:
    """UFO's tables."""
    job = context.artifact.job
    asked = job["alignment"]
    metric, baselines = asked["metric"], asked["baselines"]
    common = common | {"min_coverage": job["leaderboard"]["min_coverage"]}
    cases = read_cases(context)
    out = {
        "models_by_paradigm": tables.models_by_paradigm(scores, metric, **common).sort_values(
            "rank", kind="stable", ignore_index=True
        ),
        "composition": composition.by_category(cases),
    }
    if ratings is not None and targets is not None:
        common["dimension"] = asked["dimension"]
        ablated = asked["ablations"]
        shown = list(dict.fromkeys([*baselines, metric]))
        out["alignment"] = alignment.by_paradigm(scores, targets, shown, **common)
        if ablated:
            out["ablation"] = alignment.ablation(scores, targets, metric, ablated, **common)
        out["rank_agreement"] = alignment.rank_agreement(
            placed(ratings, cases),
            dimension=asked["dimension"],
            **{name: common[name] for name in ("draws", "seed", "confidence")},
        )
        if baselines:
            compared = alignment.differences(scores, targets, metric, baselines, **common)
            out["alignment_differences"] = compared
            best = compared[(compared["paradigm"] == TOTAL) & compared["best"]]["baseline"]
            out["disagreements"] = alignment.disagreements(
                scores,
                targets,
                metric,
                next(iter(best), baselines[0]),
                dimension=asked["dimension"],
                generators=common["generators"],
            )
            out["disagreement_units"] = alignment.deciding_units(scores, out["disagreements"])
    if "units" in context.artifact.upstream:
        units = records.read_table("units", context.upstream("units") / "units.parquet")
        out["units_by_category"] = composition.units_by_category(units, cases)
        out["unit_counts"] = composition.unit_counts(units, cases)
        out["requests"] = _requests(context, units)
    return out


def _requests(context: Context, units: pd.DataFrame) -> pd.DataFrame:
    """Count the requests behind the metric's answers."""
    # Models share sample ids: pictures are told apart by model and shard too.
    answers = pd.concat(
        [
            records.read_table("answers", folder / "answers.parquet").assign(role=role)
            for role, folder in context.roles("answers").items()
        ],
        ignore_index=True,
    )
    request = answers["details"].map(lambda cell: details(cell).get("request"))
    per_image = answers.assign(request=request).groupby(["role", "sample_id"])["request"].nunique()
    asked = pq.read_metadata(context.upstream("units") / "transcripts.parquet").num_rows
    # A face is compared in one case and asked about in another.
    judged = units.loc[units["tool"] != "face", ["case_id", "unit_id"]]
    verified = answers.assign(case_id=_cases_of(answers)).merge(
        judged, left_on=["case_id", "ask"], right_on=["case_id", "unit_id"]
    )
    return composition.requests(
        units,
        generators=len(context.artifact.job["generators"]),
        replicates=context.artifact.job["samples_per_case"],
        calls_per_image=float(per_image.mean()) if len(per_image) else 0.0,
        calls_per_case=asked / units["case_id"].nunique(),
        noes=int((verified["value"] < 0.5).sum()),
    )


def _coverage(
    scores: pd.DataFrame, others: dict[str, pd.DataFrame], job: dict[str, Any]
) -> pd.DataFrame:
    """Coverage on every benchmark of the study; which one is said where there are several."""
    table = coverage(scores, job)
    if not others:
        return table
    frames = [table]
    for frame in others.values():
        mine = coverage(frame, job)
        frames.append(mine[mine["expected"] > 0])  # not all models and metrics run there
    titles = [b["title"] for b in job["benchmarks"]]
    named = [f.assign(benchmark=title) for f, title in zip(frames, titles, strict=True)]
    both = pd.concat(named, ignore_index=True)
    return both[["benchmark", *table.columns]]


def coverage(scores: pd.DataFrame, job: dict[str, Any]) -> pd.DataFrame:
    """How many samples each metric has of each model, by status. Nothing is dropped here."""
    rows = []
    for metric in titles_of(job["metrics"]):
        for generator, title in titles_of(job["generators"]).items():
            mine = scores[(scores["metric"] == metric) & (scores["generator"] == generator)]
            counts = count(mine["status"])
            ok = counts.pop("ok", 0)
            rows.append(
                {
                    "metric": metric,
                    "generator": generator,
                    "title": title,
                    "n": ok,
                    "expected": len(mine),
                    "coverage": ok / len(mine) if len(mine) else 0.0,
                    "others": ", ".join(f"{n} {status}" for status, n in counts.items()),
                    "mean": mine["value"].mean() if ok else None,
                    "minimum": mine["value"].min() if ok else None,
                    "maximum": mine["value"].max() if ok else None,
                    # Scored by their beginning, as the encoder reads no more.
                    "cut_prompts": int(mine["details"].str.contains('"cut":').sum()),
                }
            )
    return pd.DataFrame(rows)
