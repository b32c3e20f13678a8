"""The folder that a run leaves for people: tables, figures, the resolved config, one page."""

from __future__ import annotations

import html
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import docutils.core
import matplotlib
import pandas as pd
import yaml

from subjectbench import alignment, figures, images, records, tables, writing
from subjectbench.cards import ROOT
from subjectbench.cells import POOLED
from subjectbench.records import DIMENSIONS, Status
from subjectbench.stages.base import Context
from subjectbench.stages.prepare import Prepared, open_png
from subjectbench.stages.tabulate import caption, titles_of
from subjectbench.store import Partial

GALLERY_CASES = 8


def run(context: Context) -> None:
    """Write index.html, config.yaml, tables/ and figures/."""
    job = context.artifact.job
    source = context.upstream("tables")

    def build(folder: Path, _: Partial) -> dict[str, int]:
        (folder / "tables").mkdir()
        (folder / "figures").mkdir()
        for name in job["tables"]:
            for ending in writing.FORMATS:
                shutil.copyfile(source / f"{name}.{ending}", folder / "tables" / f"{name}.{ending}")
        printed = bool(job.get("printed_only"))
        frames = {n: writing.read(source / f"{n}.csv", as_printed=printed) for n in job["tables"]}
        for name in job["figures"]:
            with matplotlib.rc_context(figures.STYLE):
                figures.save(_figure(context, name, frames), folder / "figures" / name)
            if name not in job["tables"]:
                values = _values(context, name, frames)
                (folder / "figures" / f"{name}.csv").write_text(writing.to_csv(values), "utf-8")
        config = yaml.safe_dump(job["study"], sort_keys=False, allow_unicode=True)
        (folder / "config.yaml").write_text(config)
        (folder / "index.html").write_text(page(context, frames), encoding="utf-8")
        return {}

    context.store.make(context.artifact, build)


def _figure(context: Context, name: str, frames: dict[str, pd.DataFrame]) -> Any:
    job = context.artifact.job
    if name == "by_category" and frames[name]["level"].nunique() > 2:
        return figures.radar(frames[name])
    if name.startswith("by_"):
        return figures.breakdown(frames[name], name.removeprefix("by_"))
    if name == "benchmarks":
        return figures.benchmarks(frames[name], *_names_beside(job))
    if name == "agreement":
        return figures.agreement(frames["agreement"])
    if name == "preservation_following":
        _, titles = _names_beside(job)
        names = list(titles_of(job["generators"]).values())
        return figures.preservation_following(frames["leaderboard"], titles, names)
    if name == "distributions":
        return figures.distributions(frames["distributions"])
    if name == "hierarchy":
        return figures.hierarchy(frames["hierarchy"])
    if name == "reference_map":
        return figures.reference_map(frames["reference_map"], job["map_encoder"])
    if name == "disputed":
        return _disputed(context, frames["disputed"])
    if name == "composition":
        return figures.composition(frames["composition"])
    if name == "units_by_category":
        return figures.units_by_category(frames["units_by_category"], frames["unit_counts"])
    if name == "alignment":
        return figures.alignment(frames["alignment"], frames["rank_agreement"])
    if name == "ablation":
        return figures.ablation(frames["ablation"])
    if name == "disagreements":
        return _disagreements(context, frames["disagreements"], frames["disagreement_units"])
    return _gallery(context)


def _values(context: Context, name: str, frames: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """What a figure shows that no table of its name holds."""
    if name == "preservation_following":
        board = frames["leaderboard"]
        ends = ("mean", "ci_low", "ci_high", "n")
        columns = [f"{d}_{end}" for d in ("following", "preservation") for end in ends]
        front = tables.pareto(board)[["generator", "on_front"]]
        shown = board[["generator", "title", *columns]]
        return shown.merge(front, on="generator", how="left", validate="one_to_one")
    chosen = pd.DataFrame([dict(case) for case in _chosen(Prepared(context.upstream("benchmark")))])
    columns = ["case_id", "subject_id", "reference_id", "scenario", "paradigm", "prompt"]
    samples = chosen["case_id"].map("{}-s0".format)
    return chosen[columns].assign(sample_id=samples)


def _names_beside(job: dict[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """Titles of benchmarks by name, and of the dimensions' metrics by dimension."""
    metrics = titles_of(job["metrics"])
    of = {d: metrics[job["dimensions"][d]] for d in DIMENSIONS}  # plans are saved with sorted keys
    return titles_of(job["benchmarks"]), of


def _disagreements(context: Context, chosen: pd.DataFrame, units: pd.DataFrame) -> Any:
    if chosen.empty:
        return figures.remark("No case has two metrics that rank its models at all.")
    prepared = Prepared(context.upstream("benchmark"))
    cases = prepared.cases.set_index("case_id")
    pictures: dict[tuple[str, str], Any] = {}
    for generator, rows in chosen.groupby("generator"):
        found = _pictures(_shards(context, str(generator)), list(rows["sample_id"]))
        keys = [(sample, str(generator)) for sample in rows["sample_id"]]
        pictures |= {key: picture for key, picture in zip(keys, found, strict=True) if picture}
    references = {}
    for case_id, subject_id in chosen[["case_id", "subject_id"]].drop_duplicates().values:
        if (picture := prepared.picture(subject_id)) is not None:
            references[case_id] = picture
    prompts = cases.loc[chosen["case_id"].unique(), "prompt"].to_dict()
    titles = titles_of(context.artifact.job["metrics"])
    return figures.disagreements(chosen, units, pictures, references, prompts, titles)


def _disputed(context: Context, chosen: pd.DataFrame) -> Any:
    if chosen.empty:
        return figures.remark("No sample has different scores of two models.")
    samples = chosen.drop_duplicates("sample_id")
    prepared = Prepared(context.upstream("benchmark"))
    cases = prepared.cases.set_index("case_id").loc[samples["case_id"]]
    rows = [("reference", [prepared.picture(subject) for subject in samples["subject_id"]])]
    notes: dict[tuple[int, int], str] = {}
    for y, (generator, mine) in enumerate(chosen.groupby("generator", sort=False), start=1):
        pictures = _pictures(_shards(context, str(generator)), list(mine["sample_id"]))
        rows.append((mine["title"].iloc[0], pictures))
        values = enumerate(mine["value"])
        notes |= {(y, x): f"{value:.2f}" for x, value in values if pd.notna(value)}
    return figures.gallery(_headings(cases.to_dict("records")), rows, notes)


def _headings(cases: Sequence[Any]) -> list[tuple[str, str]]:
    """Scenario, or paradigm where there is none, and prompt of each case."""
    kinds = ["paradigm" if pd.isna(c["scenario"]) else "scenario" for c in cases]
    return [(str(c[kind]), str(c["prompt"])) for kind, c in zip(kinds, cases, strict=True)]


def _gallery(context: Context) -> Any:
    """A fixed choice of cases, spread over subjects and scenarios, for all models."""
    prepared = Prepared(context.upstream("benchmark"))
    titles = titles_of(context.artifact.job["generators"])
    chosen = _chosen(prepared)
    rows = [("reference", [prepared.picture(c["subject_id"]) for c in chosen])]
    for generator, title in titles.items():
        wanted = [f"{c['case_id']}-s0" for c in chosen]
        rows.append((title, _pictures(_shards(context, generator), wanted)))
    return figures.gallery(_headings(chosen), rows)


def _chosen(prepared: Prepared) -> list[Any]:
    """Cases of the gallery."""
    subjects = prepared.subjects
    step = max(1, len(subjects) // GALLERY_CASES)
    chosen = []
    for i, subject in enumerate(subjects[::step][:GALLERY_CASES]):
        cases = prepared.cases[prepared.cases["subject_id"] == subject]
        # Two cases per scenario: every second one of a later subject shows another scenario.
        chosen.append(cases.iloc[(2 * i) % len(cases)])
    return chosen


def _shards(context: Context, generator: str) -> list[Path]:
    """Folders of one model's samples."""
    return [f for r, f in context.roles("samples").items() if r.rpartition("/")[0] == generator]


def _pictures(shards: list[Path], sample_ids: list[str]) -> list[Any]:
    """Pictures of these samples, in order; None where there is none."""
    found: dict[str, Any] = {}
    for folder in shards:
        samples = records.read_table("samples", folder / "samples.parquet")
        ok = set(samples.loc[samples["status"] == Status.OK, "sample_id"])
        with images.ZipReader(folder / "images.zip") as archive:
            found |= {i: open_png(archive.read(f"{i}.png")) for i in sample_ids if i in ok}
    return [found.get(i) for i in sample_ids]


def caption_text(name: str) -> str:
    """The reStructuredText that says how to read a table or figure."""
    path = ROOT / "workflow" / "report" / f"{name}.rst"
    return path.read_text("utf-8") if path.is_file() else ""


def _rendered(rst: str) -> str:
    parts = docutils.core.publish_parts(
        rst, writer="html5", settings_overrides={"report_level": 3, "halt_level": 3}
    )
    return str(parts["body"])


STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1060px; margin: 2em auto; padding: 0 1em;
  color: #222; }
h1 { font-size: 1.6em; } h2 { font-size: 1.2em; margin-top: 2.2em; }
.note { background: #fff3cd; border: 1px solid #e6d28a; padding: .6em 1em; border-radius: 4px; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: 13px; }
th, td { padding: .25em .7em; border-bottom: 1px solid #ddd; text-align: right;
  white-space: nowrap; }
th:first-child, td:first-child, td.text, th.text { text-align: left; }
.long td.text, .long th { white-space: normal; vertical-align: top; }
tbody tr:hover { background: #f4f6f8; } img { max-width: 100%; }
.files { font-size: 13px; color: #666; } code { background: #f2f2f2; padding: 0 .25em; }
"""


def page(context: Context, frames: dict[str, pd.DataFrame]) -> str:
    """Write the page that shows tables and figures; it depends on the tables and the job alone."""
    job = context.artifact.job
    notes = []
    if job["synthetic"]:
        notes.append(
            "<b>Synthetic.</b> Subjects, pictures and most models of this study are made up; "
            "its numbers say nothing about real models."
        )
    if job.get("printed_only"):
        notes.append(
            "<b>Nothing was measured here.</b> Numbers are as printed in the papers, or recomputed "
            "from printed ones; columns say which."
        )
    if job["raters_simulated"]:
        notes.append("<b>Simulated raters.</b> No person rated anything here.")
    if footer := writing.off_lock(job["off_lock"]):
        notes.append(html.escape(footer))
    sections = []
    order = [
        "leaderboard",
        "preservation_following",
        "benchmarks",
        "gallery",
        "disputed",
        "human_alignment",
    ]
    order += ["agreement", "rater_agreement"]
    names = [*job["tables"], *(f for f in job["figures"] if f not in job["tables"])]
    names.sort(key=lambda n: order.index(n) if n in order else len(order))
    for name in names:
        sections.append(_section(name, job, frames.get(name)))
    title = html.escape(job["title"])
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{title}</title><style>{STYLE}</style></head><body>\n<h1>{title}</h1>\n"
        + "".join(f'<p class="note">{n}</p>\n' for n in notes)
        + f"<p>Study <code>{html.escape(context.artifact.name)}</code>, "
        f"key <code>{context.artifact.key}</code>: the same key always holds the same bytes. "
        'Resolved config: <a href="config.yaml">config.yaml</a>. What each number was made from: '
        "<code>manifest.json</code> here and in the store.</p>\n"
        + "\n".join(sections)
        + "\n</body></html>\n"
    )


def _section(name: str, job: dict[str, Any], frame: pd.DataFrame | None) -> str:
    title = name.replace("_", " ").capitalize()
    if frame is not None:
        title = job["captions"][name] if "captions" in job else caption(name, job, frame)
    text = [f'<h2 id="{name}">{html.escape(title)}</h2>', _rendered(caption_text(name))]
    files = []
    if name in job["figures"]:
        text.append(f'<img src="figures/{name}.svg" alt="{html.escape(title)}">')
        endings = ("svg", "png") if frame is not None else ("svg", "png", "csv")
        files += [f"figures/{name}.{ending}" for ending in endings]
    if frame is not None:
        shown = _table(writing.compact(_readable(name, frame, job)))
        # Long tables stay out of the way until asked for.
        folded = len(frame) > 30
        text.append(f"<details><summary>{len(frame)} rows</summary>" if folded else "")
        text.append(f'<div class="wide">{shown}</div>' + ("</details>" if folded else ""))
        files += [f"tables/{name}.{ending}" for ending in writing.FORMATS]
    links = ", ".join(f'<a href="{f}">{f}</a>' for f in files)
    return "\n".join([*text, f'<p class="files">{links}</p>'])


def _readable(name: str, frame: pd.DataFrame, job: dict[str, Any]) -> pd.DataFrame:
    """The form and the columns that a page shows; the files have all."""
    if name == "alignment":
        frame = alignment.as_printed(frame)
    dropped = ["generator", "metric"] if "title" in frame.columns else ["metric"]
    if name in ("leaderboard", "models_by_paradigm"):
        ends = zip(frame["rank_low"], frame["rank_high"], strict=True)
        ranks = ["" if pd.isna(low) else f"{low:g}–{high:g}" for low, high in ends]
        frame = frame.assign(rank=ranks).rename(columns={"rank": "ranks"})
        frame = frame[["place", *(c for c in frame.columns if c != "place")]]
        dropped += ["rank_low", "rank_high"]
    if name == "benchmarks":
        titles = titles_of(job["benchmarks"])
        lowest = [c for c in frame.columns if c.endswith("_lowest")]
        frame = frame.assign(**{c: frame[c].map(titles) for c in lowest})
        frame = frame.rename(columns=lambda c: _titled(c, titles))
    if name == "human_alignment":
        titles = titles_of(job["metrics"])
        shown = {f"{m}{end}": f"{t}{end}" for m, t in titles.items() for end in _ENDS}
        named = {c: frame[c].map(titles) for c in ("best", "second")}
        frame = frame.assign(**named).rename(columns=shown)
    if name == "findings":  # claim by claim, over all models
        frame = frame[frame["generator"] == POOLED]
        dropped += ["title", "rule"]
    if name == "agreement":
        dropped += ["fisher_clip", "kendall_tau_b_fisher", "spearman_fisher"]
    return frame.drop(columns=[c for c in dropped if c in frame.columns])


_ENDS = ("", "_ci_low", "_ci_high", "_printed")


def _titled(column: str, titles: dict[str, str]) -> str:
    """A column ``<dimension>_<benchmark>_<what>`` with the benchmark's title."""
    dimension, _, rest = column.partition("_")
    # The longest name first: "dreambench" is the beginning of another.
    for name in sorted(titles, key=len, reverse=True):
        if dimension in DIMENSIONS and rest.startswith(f"{name}_"):
            return f"{dimension}, {titles[name]}{rest.removeprefix(name)}"
    return column


def _table(frame: pd.DataFrame) -> str:
    kinds = ["" if pd.api.types.is_numeric_dtype(frame[c]) else ' class="text"' for c in frame]
    head = "".join(
        f"<th{kind}>{html.escape(writing.header(str(c)))}</th>"
        for c, kind in zip(frame.columns, kinds, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f"<td{kind}>{html.escape(_cell(v))}</td>" for v, kind in zip(row, kinds, strict=True)
        )
        + "</tr>\n"
        for row in frame.itertuples(index=False)
    )
    # Sentences, and columns by the dozen, would be wider than any screen.
    longest = max((len(t) for c in frame for t in frame[c] if isinstance(t, str)), default=0)
    kind = ' class="long"' if longest > 120 else ""
    return f"<table{kind}><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>"


def _cell(value: Any) -> str:
    if pd.isna(value):
        return writing.DASH
    return f"{value:.3f}" if isinstance(value, float) else str(value)
