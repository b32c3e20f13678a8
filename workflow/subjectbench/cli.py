"""The command line: verbs that rules call, and verbs that people call.

Heavy imports stay inside verbs, so that ``--help`` answers at once.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from subjectbench import __version__, cards
from subjectbench.cards import ROOT
from subjectbench.config import Audit, Study, Use, load_study
from subjectbench.errors import InputError
from subjectbench.store import Plan, Store

STAGES = {
    "prepare": ("prepare", "run", "read a benchmark: cases and reference pictures"),
    "train": ("train", "run", "train a method for the subjects of one model and shard"),
    "generate": ("generate", "run", "make the pictures of one model and shard"),
    "embed-cases": ("embed", "run_cases", "embed a benchmark's references and prompts"),
    "embed-images": ("embed", "run_images", "embed the pictures of one model and shard"),
    "decompose": ("decompose", "run", "split the cases of a benchmark into atomic units"),
    "judge": ("judge", "run", "ask a judge about the pictures of one model and shard"),
    "score": ("score", "run", "score one model and shard with one metric"),
    "rate": ("rate", "run", "collect the ratings of one panel"),
    "tabulate": ("tabulate", "run", "make the tables of a study"),
    "audit": ("audit", "run", "recompute the papers' printed tables"),
    "report": ("report", "run", "draw the figures and write index.html"),
}

DOCTOR_HELP = """\
Looks at packages, environments, weights (in the hub's cache, or reachable and within reach of your
account), GPU memory, disk and keys of every generator, encoder and judge, and says how to mend what
is missing. Nothing is loaded, fetched, installed or bought.

  subjectbench doctor --config workflow/studies/dsh_bench.yaml

GPU hours, disk and money are those of the whole study, from what the cards state; what is in the
store already is not asked for again. Exit status: 0 if every model can run here, 1 if one cannot.
"""

COMPARE_HELP = """\
A run is a folder results/<study>-<key>; its name, the beginning of its name or key, and 'latest'
will do. Rows of a table are matched by the text that stands before its first number; rows that
only one run has are listed.

  subjectbench compare miniworld-0ae1 latest       what did my last change do?
  subjectbench compare 0ae1 4c2f --csv cells.csv   every cell, with test, interval and reasons
  subjectbench compare results/x-1 ../other/results/x-2

Exit status: 0, whether or not anything differs; 2 if a run is not found. What was removed from the
store can no longer be compared sample by sample, nor explained: that is said where it matters.
"""

EXPLAIN_HELP = """\
  subjectbench explain                   every job of the next run, and what changed
  subjectbench explain tables            only what leads to the tables
  subjectbench explain mini_dino         only what has this in its name, and what leads there
  subjectbench explain --cell leaderboard mini_diffusion preservation_mean

A cell is named by table, row (its ids, or a part of them that no other row has) and column, as in
the CSV files of a run. Its samples, the worst and the best of them, and every artifact behind it
are shown with keys, parameters, packages, weights and code.
"""

GC_HELP = """\
Kept is what these are made from: config.yaml, every file in workflow/studies, the run that
results/latest points to, and what --keep names: study files (FILE.yaml) and runs (by name, or the
beginning of name or key). The rest is superseded results, old runs and leftovers of killed jobs.

  subjectbench gc                        what could go, and how large it is
  subjectbench gc --keep miniworld-0ae1 paper.yaml --delete

What was published can be restored later. DVC's own cache and remote are not touched: see dvc gc.
"""

RESTORE_HELP = """\
  git pull && subjectbench restore       a colleague's results: afterwards nothing is left to run
  subjectbench restore --needed          the report alone; after a change, what that change reads
  subjectbench restore --only score      scores, e.g. for a table of your own
  subjectbench restore --from FILE       what an archive holds; needs neither DVC nor a remote

What is here and whole is kept. What is damaged, or is not what was published, is replaced. What
the remote does not give whole is named and left out; pictures and paid answers among it are not
made again by a run unless SUBJECTBENCH_REMAKE=1 is set.

Exit status: 0; 1 if something published could not be restored; 2 if DVC cannot be used.
"""


ARCHIVE_HELP = """\
A ZIP (BagIt bag, Workflow Run RO-Crate) with tables, figures, every row behind them, transcripts,
resolved config, source at its commit, lock files and checksums. The same results and commit make
the same bytes, whoever archives them and when.

  subjectbench archive                        the newest run, to archives/<study>-<key>.zip
  subjectbench archive 0ae1 --with-images     another run, with its pictures
  subjectbench archive --tag v2               archives/<study>-v2.zip, and <study>-v2.md: what
                                              changed in the tables since the tag before it there
"""

VERIFY_HELP = """\
With an archive: hashes every file, checks the identities and the source, makes every table again
from the rows inside and names each cell that differs. Needs no network and writes nothing.
Without: hashes every artifact of the study in the store.

  subjectbench verify archives/miniworld-v1.zip
  subjectbench verify --config workflow/studies/published.yaml

Exit status: 0 nothing is wrong, 1 something is, 2 it is no archive or could do harm.
"""


IMPORT_HELP = """\
Use it on a study that names the card imported_pictures:

  generators:
    - card: imported_pictures
      name: their_model
      params: {path: their_pictures.zip, pattern: "{subject_id}/{case_id}_{replicate}.png"}

  subjectbench import-check --config my_study.yaml

Exit status: 0 if every picture that is asked for is there, 1 if some are missing (their rows get
the status 'missing'), 2 if a file could be two samples', or the archive is unsafe.
"""


def _stage(args: argparse.Namespace) -> None:
    """Make one artifact of a plan (called by the rules)."""
    import importlib

    from subjectbench.plan import plan_again
    from subjectbench.stages.base import Context

    plan = Plan.read(args.plan)
    context = Context(plan, plan.artifacts[args.key])
    context.check_upstream()
    context.check_identity(plan_again(load_study(plan.study, args.plan), context.artifact))
    module, function, _ = STAGES[args.verb]
    getattr(importlib.import_module(f"subjectbench.stages.{module}"), function)(context)


def _read_config(paths: list[Path]) -> Study | Audit:
    merged: dict[str, Any] = {}
    for path in paths:
        value = cards.read_yaml(path)
        if not isinstance(value, dict):
            raise InputError(path, "expected keys and values")
        merged |= value
    return load_study(merged, ", ".join(map(str, paths)))


def _plan(args: argparse.Namespace) -> Plan:
    from subjectbench.plan import make_plan

    return make_plan(_read_config(args.config))


def _check(args: argparse.Namespace) -> None:
    """Check a config and everything that it names, and say what a run would need."""
    from subjectbench.plan import match_given

    plan = _plan(args)
    store = Store(Path(plan.results))
    kinds = dict.fromkeys(a.kind for a in plan.artifacts.values())
    for name, match in match_given(plan):
        print(f"{name}: " + "\n".join(match.words()))
    print(f"study {plan.study['study']}: nothing wrong found")
    for kind in kinds:
        wanted = plan.of_kind(kind)
        there = sum(store.has(a) for a in wanted)
        print(f"  {kind:14} {len(wanted):4} artifacts, {there:4} of them there already")


def _import_check(args: argparse.Namespace) -> None:
    """Match pictures made elsewhere with the samples that ask for them; nothing is written."""
    from subjectbench.plan import match_given

    found = list(match_given(_plan(args), every=True))
    for name, match in found:
        print(f"{name}: " + "\n".join(match.words(None if args.all else 3)))
    if not found:
        print("no model of this study has pictures that were made elsewhere")
    if any(match.missing for _, match in found):
        raise SystemExit(1)


def _doctor(args: argparse.Namespace) -> None:
    """Check for each model of a study whether it can run here, and say what it would cost."""
    from subjectbench import doctor
    from subjectbench.plan import Planner

    study = _read_config(args.config)
    if isinstance(study, Audit):
        print("an audit needs no models")
        return
    amounts: dict[str, tuple[int, int]] = {}
    try:
        planner = Planner(study)
        for bench in (planner.own, *planner.beside):
            frame = bench.asked.plugin(bench.asked.params, ROOT).cases()
            for name in (asked.use.label for asked in bench.generators):
                cases, subjects = amounts.get(name, (0, 0))
                amounts[name] = cases + len(frame), subjects + frame["subject_id"].nunique()
    except InputError as error:
        amounts = {}
        print(f"no forecast of costs: what is asked of the models cannot be told here: {error}")
    found = list(doctor.examine(study, amounts))
    print(doctor.words(found, args.all), end="")
    if not all(one.ok for one in found):
        raise SystemExit(1)


def _pin(args: argparse.Namespace) -> None:
    """Write the newest commit of every hub repository that cards name into them."""
    from subjectbench import doctor

    for name in args.card:
        paths = [p for k in cards.KINDS if (p := cards.cards_folder(k) / f"{name}.yaml").is_file()]
        if not paths:
            raise InputError("command line", f"no card named '{name}'", "see subjectbench cards")
        for path in paths:
            written = doctor.pin(path, args.again)
            print(f"{path.relative_to(ROOT)}: {'nothing to pin' if not written else ''}".rstrip())
            for line in written:
                print(f"  {line}")


def _explain(args: argparse.Namespace) -> None:
    """Say what would run and why; or, with --cell, what a number of a table is made from."""
    if args.cell:
        from subjectbench.archive import cell
        from subjectbench.compare import Run

        results = Path(_read_config(args.config).results)
        print(cell.describe(Run.find(args.run_name, results), *args.cell), end="")
        return
    from subjectbench.archive import explain

    print(explain.words(explain.explain(_plan(args), ROOT, args.target)), end="")


def _judging(args: argparse.Namespace) -> None:
    """Say how many requests the judges of a study would get, and what they would cost."""
    from subjectbench.stages import forecast

    found = forecast.of_plan(_plan(args))
    if found.empty:
        print("nobody would be asked: every answer of this study is there")
        return
    print(found.to_string(index=False, float_format=lambda cost: f"{cost:.2f}"))
    sent = found[found["server"]]
    cost = ", ".join(
        f"{c:.2f} {name}" for name, c in sent.groupby("currency")["cost"].sum().items()
    )
    print(f"to servers: {sent['to_send'].sum()} requests, at most {cost or 'nothing'}")
    print("'assumed': pictures or units are not made yet, so requests are counted on blank ones")


def _transcripts(args: argparse.Namespace) -> None:
    """Export the replies that judges gave, or take in those of an export."""
    from subjectbench.stages.judge import open_transcripts

    with open_transcripts(Path(_read_config(args.config).results)) as store:
        if args.action == "export":
            print(f"{args.file}: {store.export(None, args.file)} replies")
        else:
            taken = store.load(args.file)
            print(f"{args.file}: {taken.added} replies taken in, {taken.known} known already")
            if taken.differing:
                print(
                    f"{len(taken.differing)} requests were answered otherwise before; "
                    f"the earlier answers stay: {', '.join(taken.differing[:3])}"
                )


def _archive(args: argparse.Namespace) -> None:
    """Write one file that holds all of a run, and that anyone can check offline."""
    from subjectbench.archive import pack, source, versions
    from subjectbench.compare import Run

    run = Run.find(args.which, args.results)
    out = args.out or args.results.parent / "archives" / versions.file_name(run, args.tag)
    done = pack.write(
        run,
        ROOT,
        out,
        with_images=args.with_images,
        tag=args.tag,
        allow_dirty=args.allow_dirty,
        report=not args.no_report,
    )
    print(f"{done.path}: {done.path.stat().st_size} bytes, {done.files} files")
    print(f"sha256 {done.sha256}")
    if done.left_out[0]:
        print(
            f"without pictures: {done.left_out[0]} files of {done.left_out[1]} bytes, listed with "
            "their hashes (--with-images packs them)"
        )
    if done.dirty:
        print(f"NOT COMMITTED: {len(done.dirty)} files; the archive holds their diff and says so")
    if args.tag:
        before = versions.previous(out.parent, run, args.tag)
        entry = versions.entry(run, args.tag, source.head(ROOT), before)
        out.with_suffix(".md").write_text(entry, "utf-8")
        print(f"{out.with_suffix('.md')}: what changed since {before[0] if before else 'nothing'}")


def _restore_from(path: Path, results: Path) -> None:
    from subjectbench.archive import place, source

    done = place.restore(path, results)
    print(f"{done.artifacts} artifacts of {done.run}: {done.files} files written to {results}")
    if done.without_pictures:
        print(
            f"{done.without_pictures} of them lack their pictures, which the archive does not "
            "hold: what looks at pictures will make them again"
        )
    if source.head(ROOT) != done.commit:
        print(f"made by the source of commit {done.commit}, which is not what is checked out here")
    print(f"what is left to do: snakemake -n --configfile {results / done.run / 'config.yaml'}")


def _verify(args: argparse.Namespace) -> None:
    """Check an archive, or re-hash every artifact of a study."""
    if args.archive:
        from subjectbench.archive.check import verify

        found = verify(args.archive, ROOT, args.tolerance)
        for line in found.told:
            print(line)
        for line in found.faults:
            print(f"WRONG: {line}")
        print(f"{len(found.faults)} faults" if found.faults else "nothing is wrong")
        if found.faults:
            raise SystemExit(1)
        return
    from subjectbench.archive import remote
    from subjectbench.archive.index import Index

    plan = _plan(args)
    store = Store(Path(plan.results))
    there = [a for a in plan.artifacts.values() if store.path(a).is_dir()]
    faults = [f for told in remote.verify(there, store, Index(ROOT)).values() for f in told]
    if faults:
        print("\n".join(faults))
        print("mend: subjectbench restore, if published; or delete the folder and run snakemake")
        raise SystemExit(1)
    print(f"{len(there)} artifacts hashed, all as their manifests say")


def _publish(args: argparse.Namespace) -> None:
    """Check the artifacts of a study that are here, and share them through DVC's remote."""
    from subjectbench.archive import remote
    from subjectbench.archive.index import FOLDER, size

    done = remote.publish(_plan(args), ROOT, prove=not args.no_proof)
    print(
        f"{len(done.new)} artifacts published to {done.remote}, {size(done.bytes)}; "
        f"{done.known} were published before"
    )
    if done.absent:
        print(f"{done.absent} artifacts of the study are not here")
    if done.new:
        proof = "not proven" if args.no_proof else "fetched back into an empty folder and hashed"
        print(f"proof: {proof}")
    print(f"now share what points to them: git add {FOLDER} && git commit && git push")


def _restore(args: argparse.Namespace) -> None:
    """Bring the published artifacts of a study, or those of an archive, checked byte for byte."""
    if args.archive:
        _restore_from(args.archive, Path(_read_config(args.config).results))
        return
    from subjectbench.archive import remote
    from subjectbench.archive.index import REMAKE, size

    done = remote.restore(_plan(args), ROOT, args.only or (), args.needed)
    for key, faults in done.replaced.items():
        if key not in done.lost:
            print("\n".join(f"{fault}: replaced" for fault in faults))
    print(
        f"{len(done.fetched)} artifacts fetched and hashed, {size(done.bytes)}; "
        f"{done.kept} were here"
    )
    print(f"the next run makes {len(done.to_make)} artifacts" if done.to_make else "nothing to run")
    if done.faults:
        print("\n".join(["not restored:", *(f"  {fault}" for fault in done.faults)]))
        if done.remade:
            print(
                f"{len(done.remade)} of them are pictures or paid answers, which a run refuses to "
                f"make again unless told: {REMAKE}=1 snakemake ..."
            )
        raise SystemExit(1)


def _gc(args: argparse.Namespace) -> None:
    """List what no study reaches any more, and with --delete remove it."""
    from subjectbench.archive import unused

    configs = [ROOT / "config.yaml", *sorted((ROOT / "workflow" / "studies").glob("*.yaml"))]
    configs += [Path(k) for k in args.keep if Path(k).suffix in (".yaml", ".yml")]
    runs = [k for k in args.keep if Path(k).suffix not in (".yaml", ".yml")]
    found = unused.find(args.results, [_read_config([c]) for c in configs], runs, ROOT)
    print(unused.words(found, args.all), end="")
    if not found.bytes and not found.leftovers:
        print("nothing to remove")
    elif args.delete:
        unused.delete(found)
        print(f"removed, {unused.size(found.bytes)}")
    else:
        print(f"would free {unused.size(found.bytes)}; nothing was removed: gc --delete does")


def _compare(args: argparse.Namespace) -> None:
    """Show two runs side by side: what moved, whether by more than noise, and why."""
    from subjectbench import compare

    a, b = (compare.Run.find(text, args.results) for text in (args.a, args.b))
    found = compare.compare(a, b)
    print(compare.words(found, None if args.all else 12), end="")
    if args.csv:
        found.cells.to_csv(args.csv, index=False)
        print(f"\n{args.csv}: {len(found.cells)} cells")


def _param(item: str, params: Any) -> tuple[str, Any]:
    """Read NAME=VALUE: text where the plug-in wants text, else YAML, as in a config."""
    name, equals, value = item.partition("=")
    if not equals:
        raise InputError(f"--param {item}", "has no '='", "write NAME=VALUE, e.g. subjects=12")
    field = params.model_fields.get(name)
    if field and field.annotation in (str, str | None):
        return name, value  # a path with a colon or a hash sign is still a path
    try:
        return name, yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise InputError(f"--param {name}", f"not valid YAML: {value!r}", "quote it") from error


def _check_benchmark(args: argparse.Namespace) -> None:
    """Count a benchmark's parts and list what is odd about it."""
    card = cards.load("benchmark", args.card, "command line")
    plugin = cards.plugin("benchmark", card, args.card)
    use = Use(card=args.card, params=dict(_param(item, plugin.Params) for item in args.param or []))
    benchmark = plugin(cards.params("benchmark", use, "command line"), ROOT)
    benchmark.check()
    cases = benchmark.cases()
    print(f"{card.title}: {cases['subject_id'].nunique()} subjects, {len(cases)} cases")
    for column in ("domain", "kind", "difficulty", "scenario", "paradigm"):
        of_cases = column in ("scenario", "paradigm")
        counts = cases.groupby(column, sort=True)["case_id" if of_cases else "subject_id"]
        if len(counts):
            print(f"  {column}: " + ", ".join(f"{k} {n}" for k, n in counts.nunique().items()))
    pairs = cases[["domain", "category"]].dropna().drop_duplicates()
    print(f"  categories (domain x category): {len(pairs)}")
    anomalies = list(benchmark.anomalies()) if hasattr(benchmark, "anomalies") else []
    print(f"{len(anomalies)} anomalies" + (":" if anomalies else ""))
    kinds: dict[str, list[Any]] = {}
    for anomaly in anomalies:
        kinds.setdefault(anomaly["kind"], []).append(anomaly)
    for kind, found in kinds.items():
        print(f"  {kind}: {len(found)}")
        for anomaly in found if args.all else found[:3]:
            told = (anomaly.get("case_id") or anomaly.get("subject_id"), anomaly.get("detail"))
            print("    " + "  ".join(str(t) for t in told if t))
        if len(found) > 3 and not args.all:
            print(f"    ... and {len(found) - 3} more (--all lists them)")


def _fetch(args: argparse.Namespace) -> None:
    """Fetch the files that a manifest lists, checked and resumable; or write such a manifest."""
    from subjectbench.fetch import fetch, write_manifest

    if args.write_manifest:
        print(write_manifest(args.write_manifest, args.base), end="")
        return
    if not (args.source and args.to and args.jobs > 0):
        raise InputError(
            "command line", "needs a manifest, --to FOLDER and 1 job at least", "see fetch --help"
        )
    done = fetch(args.source, args.to, args.jobs)
    print(
        f"{args.to}: {done['fetched']} fetched, {done['already']} already there, "
        f"{done['unpacked']} archives unpacked"
    )


def _cards(args: argparse.Namespace) -> None:
    """List the cards: what a config can name."""
    for kind in cards.KINDS if args.kind is None else [args.kind]:
        print(f"{kind}:")
        for name in cards.names(kind):
            print(f"  {name:28} {cards.load(kind, name).title}")


def schema_text() -> str:
    """JSON schema of ``config.yaml``, as kept in ``workflow/config.schema.json``."""
    from pydantic import TypeAdapter

    schema = TypeAdapter(Study | Audit).json_schema()
    return json.dumps(schema, indent=2, sort_keys=True) + "\n"


def _schema(args: argparse.Namespace) -> None:
    """Print the JSON schema of config.yaml (--write keeps the checked-in copy true)."""
    if args.write:
        (ROOT / "workflow" / "config.schema.json").write_text(schema_text())
    else:
        print(schema_text(), end="")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="subjectbench",
        description="Evaluate subject-driven text-to-image models, reproducibly. "
        "'snakemake --cores all' runs a study; these verbs look at one.",
    )
    parser.add_argument("--version", action="version", version=__version__)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")

    def verb(
        name: str,
        run: Callable[[argparse.Namespace], None],
        text: str = "",
        more: str | None = None,
    ) -> Any:
        about = text or (run.__doc__ or "")
        kept = argparse.RawDescriptionHelpFormatter if more else argparse.HelpFormatter
        sub = verbs.add_parser(
            name, help=about, description=about, epilog=more or None, formatter_class=kept
        )
        sub.set_defaults(run=run)
        return sub

    def with_config(sub: Any) -> None:
        sub.add_argument(
            "--config",
            nargs="+",
            type=Path,
            default=[ROOT / "config.yaml"],
            metavar="FILE",
            help="study to look at; later files change single top-level keys of earlier ones",
        )

    with_config(verb("check", _check))
    sub = verb("import-check", _import_check, more=IMPORT_HELP)
    sub.add_argument("--all", action="store_true", help="list every missing and unused file")
    with_config(sub)
    sub = verb("doctor", _doctor, more=DOCTOR_HELP)
    sub.add_argument("--all", action="store_true", help="show also what is as it should be")
    with_config(sub)
    sub = verb("pin", _pin)
    sub.add_argument("card", nargs="+", help="name of a card, e.g. flux_kontext")
    sub.add_argument("--again", action="store_true", help="replace commits that are there as well")
    sub = verb("explain", _explain, more=EXPLAIN_HELP)
    with_config(sub)
    sub.add_argument(
        "target", nargs="?", default="", help="kind, key, folder or part of a name of artifacts"
    )
    sub.add_argument(
        "--cell", nargs=3, metavar=("TABLE", "ROW", "COLUMN"), help="explain a number instead"
    )
    sub.add_argument(
        "--run", dest="run_name", default="latest", help="run of the table (default: latest)"
    )
    with_config(verb("judging", _judging))
    sub = verb("transcripts", _transcripts)
    sub.add_argument("action", choices=("export", "import"))
    sub.add_argument("file", type=Path, help="Parquet file of the export")
    with_config(sub)
    sub = verb("verify", _verify, more=VERIFY_HELP)
    sub.add_argument("archive", nargs="?", type=Path, help="file that `subjectbench archive` wrote")
    sub.add_argument(
        "--tolerance",
        type=float,
        default=1e-6,
        help="of numbers in tables that are not the same bytes (default: 1e-6; 0: none)",
    )
    with_config(sub)
    sub = verb("archive", _archive, more=ARCHIVE_HELP)
    sub.add_argument("which", nargs="?", default="latest", metavar="RUN", help="default: latest")
    sub.add_argument("--with-images", action="store_true", help="pack the pictures too")
    sub.add_argument(
        "--tag", default="", help="name of this version; also says what changed since the last"
    )
    sub.add_argument("--out", type=Path, metavar="FILE", help="default: archives/<run>.zip")
    sub.add_argument(
        "--allow-dirty", action="store_true", help="include changes that are not committed"
    )
    sub.add_argument(
        "--no-report", action="store_true", help="leave Snakemake's own report out (10 s less)"
    )
    sub.add_argument(
        "--results", type=Path, default=Path("results"), help="where runs are looked for by name"
    )
    sub = verb("publish", _publish)
    with_config(sub)
    sub.add_argument(
        "--no-proof",
        action="store_true",
        help="do not download what was sent into an empty folder to hash it there",
    )
    sub = verb("restore", _restore, more=RESTORE_HELP)
    with_config(sub)
    sub.add_argument(
        "--from", dest="archive", type=Path, metavar="ARCHIVE", help="continue from this archive"
    )
    sub.add_argument(
        "--needed", action="store_true", help="only what the next run reads, and the results"
    )
    sub.add_argument("--only", nargs="+", metavar="KIND", help="only kinds such as score tables")
    sub = verb("gc", _gc, more=GC_HELP)
    sub.add_argument("--keep", nargs="+", default=[], metavar="STUDY|RUN", help="keep these too")
    sub.add_argument("--delete", action="store_true", help="remove what is listed")
    sub.add_argument("--all", action="store_true", help="name every folder")
    sub.add_argument(
        "--results", type=Path, default=Path("results"), help="results folder (default: results)"
    )
    sub = verb("compare", _compare, more=COMPARE_HELP)
    sub.add_argument("a", metavar="A", help="run to compare with")
    sub.add_argument("b", metavar="B", help="run that is compared")
    sub.add_argument("--csv", type=Path, metavar="FILE", help="write every cell, moved or not")
    sub.add_argument("--all", action="store_true", help="show every cell that moved")
    sub.add_argument(
        "--results", type=Path, default=Path("results"), help="where runs are looked for by name"
    )
    sub = verb("check-benchmark", _check_benchmark)
    sub.add_argument("card", help="benchmark card, e.g. dsh_bench")
    sub.add_argument(
        "--param",
        action="append",
        metavar="NAME=VALUE",
        help="parameter of the card, e.g. metadata=FILE or subjects=12; may be repeated",
    )
    sub.add_argument("--all", action="store_true", help="list every anomaly")
    sub = verb("fetch", _fetch)
    sub.add_argument("source", nargs="?", type=Path, help="manifest, e.g. workflow/sources/X.yaml")
    sub.add_argument("--to", type=Path, metavar="FOLDER", help="where the files go")
    sub.add_argument("--jobs", type=int, default=4, help="files in flight (default: 4)")
    sub.add_argument(
        "--write-manifest",
        type=Path,
        metavar="FOLDER",
        help="print a manifest of this folder's files instead",
    )
    sub.add_argument("--base", default=".", help="base of the written manifest")
    sub = verb("cards", _cards)
    sub.add_argument("kind", nargs="?", choices=sorted(cards.KINDS))
    sub = verb("schema", _schema)
    sub.add_argument("--write", action="store_true", help="rewrite workflow/config.schema.json")
    for name, (_, _, text) in STAGES.items():
        sub = verb(name, _stage, f"[called by a rule] {text}")
        sub.add_argument(
            "--plan",
            type=Path,
            default=os.environ.get("SUBJECTBENCH_PLAN"),
            required="SUBJECTBENCH_PLAN" not in os.environ,
            help="plan that the workflow saved; default: $SUBJECTBENCH_PLAN",
        )
        sub.add_argument("--key", required=True, help="artifact to make")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run one verb. Returns the exit status: 2 for a fault in what the user supplied."""
    args = _parser().parse_args(argv)
    try:
        args.run(args)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, sqlite3.OperationalError) as error:
        if not _disk_full(error):
            raise
        where = getattr(error, "filename", None) or "disk"
        mend = "free some, or set results: to a folder on a larger disk, and do it again"
        print(f"error: {InputError(where, 'no space left', mend)}", file=sys.stderr)
        print("What was finished is kept, and nothing half written counts.", file=sys.stderr)
        return 2
    return 0


def _disk_full(error: OSError | sqlite3.OperationalError) -> bool:
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return "disk is full" in str(error) or os.strerror(errno.ENOSPC) in str(error)


if __name__ == "__main__":
    sys.exit(main())
