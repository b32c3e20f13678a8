"""Tables of a study, from the rows of all its metrics, models and shards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from subjectbench import records, tables
from subjectbench.records import DIMENSIONS, Status
from subjectbench.stages.base import Context, count, details
from subjectbench.store import Partial

CASE_COLUMNS = ["case_id", "subject_id", "difficulty", "scenario", "category"]


def run(context: Context) -> None:
    """Write each table of the job as CSV, Markdown and LaTeX."""
    job = context.artifact.job

    def build(folder: Path, _: Partial) -> dict[str, int]:
        scores = read_scores(context)
        made = make(context, scores)
        titles = titles_of(job["metrics"])
        for name in job["tables"]:
            frame = made[name]
            if "metric" in frame.columns:
                place = list(frame.columns).index("metric") + 1
                frame.insert(place, "metric_title", frame["metric"].map(titles))
            tables.write(
                frame,
                folder / name,
                caption(name, job),
                f"tab:{name.replace('_', '-')}",
                ("csv", "md", "tex"),
            )
        return count(scores["status"])

    context.store.make(context.artifact, build)


def titles_of(listed: list[dict[str, Any]]) -> dict[str, str]:
    """Name to title, in the order of the config."""
    return {facts["name"]: facts["title"] for facts in listed}


def caption(name: str, job: dict[str, Any]) -> str:
    """Say what a table shows, which metrics stand for which dimension, and what is synthetic."""
    titles = titles_of(job["metrics"])
    texts = {
        "leaderboard": "Leaderboard by S_h",
        "by_difficulty": "Scores by subject difficulty",
        "by_scenario": "Scores by prompt scenario",
        "by_category": "Scores by category",
        "agreement": "Agreement of metrics with raters",
        "rater_agreement": "Agreement among raters",
        "coverage": "Samples by metric, model and status",
    }
    text = texts[name]
    if job["dimensions"] and (name == "leaderboard" or name.startswith("by_")):
        text += ": " + ", ".join(f"{d} = {titles[job['dimensions'][d]]}" for d in DIMENSIONS)
    notes = []
    if job["synthetic"]:
        notes.append("synthetic pictures")
    if job["raters_simulated"] and "agreement" in name:
        notes.append("simulated raters")
    return text + (f" ({', '.join(notes)})" if notes else "")


def read_scores(context: Context) -> pd.DataFrame:
    """All score rows with their case, one row per expected sample and metric."""
    cases = records.read_table("cases", context.upstream("benchmark") / "cases.parquet")
    frames = [
        records.read_table("scores", folder / "scores.parquet")
        for folder in context.roles("scores").values()
    ]
    scores = pd.concat(frames, ignore_index=True)
    order = list(titles_of(context.artifact.job["metrics"]))
    scores = scores.sort_values("metric", key=lambda m: m.map(order.index), kind="stable")
    # "<case>-s<replicate>" is how generation names samples.
    scores["case_id"] = scores["sample_id"].str.rpartition("-")[0]
    known = set(cases["case_id"])
    if not set(scores["case_id"]) <= known:
        raise RuntimeError(f"score rows of unknown cases: {set(scores['case_id']) - known}")
    return scores.merge(cases[CASE_COLUMNS], on="case_id", validate="many_to_one")


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


def make(context: Context, scores: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Every table that the job names."""
    job = context.artifact.job
    titles = titles_of(job["generators"])
    statistics = job["statistics"]
    common: dict[str, Any] = {
        "generators": titles,
        "draws": statistics["bootstrap"],
        "seed": statistics["seed"],
        "confidence": statistics["confidence"],
    }
    out = {"coverage": coverage(scores, job)}
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
        for name in job["tables"]:
            if name.startswith("by_"):
                out[name] = tables.breakdown(
                    scores,
                    name.removeprefix("by_"),
                    job["dimensions"],
                    min_coverage=board["min_coverage"],
                    **common,
                )
    ratings, targets = read_targets(context)
    if ratings is not None and targets is not None:
        out["agreement"] = tables.agreement(scores, targets, **common)
        out["rater_agreement"] = tables.rater_agreement(ratings)
    return out


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
                }
            )
    return pd.DataFrame(rows)
