"""One file that holds all of a run: results, the rows behind them, the source, and how to check it.

The same results make the same bytes, whoever packs them, when and where: nothing in it tells of
time, host, user or folder.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml

from subjectbench import __version__, progress
from subjectbench.archive import bag, crate, source
from subjectbench.archive.contents import (
    COMMIT_LINE,
    COPIES,
    CRATE,
    DIRTY_LINE,
    ENVIRONMENT,
    PICTURES,
    PICTURES_LINE,
    REPORT,
    RESULTS,
    RUN_LINE,
    TAG_LINE,
    pictures_table,
)
from subjectbench.compare import Run
from subjectbench.config import load_study
from subjectbench.errors import InputError
from subjectbench.hashing import sha256, sha256_file
from subjectbench.plan import make_plan
from subjectbench.store import Plan
from subjectbench.store.artifact import is_pictures
from subjectbench.store.folder import MANIFEST
from subjectbench.store.identity import changed


@dataclass(frozen=True)
class Written:
    """An archive that was written.

    Attributes:
        path: of the file.
        sha256: of its bytes.
        files: how many it holds.
        left_out: files of pictures that it does not hold, and their bytes.
        dirty: files that were not committed.
    """

    path: Path
    sha256: str
    files: int
    left_out: tuple[int, int]
    dirty: tuple[str, ...]


def write(
    run: Run,
    root: Path,
    out: Path,
    *,
    with_images: bool = False,
    tag: str = "",
    allow_dirty: bool = False,
    report: bool = True,
) -> Written:
    """Archive a run.

    Args:
        run: what to archive; all that it is made from must be in the store, but for pictures.
        root: the checkout whose source made it.
        out: file to write.
        with_images: pack the pictures too; else their places and hashes.
        tag: name of this version.
        allow_dirty: include changes that are not committed, as a diff.
        report: include Snakemake's own report.

    Raises:
        InputError: the checkout would make another run, its changes are not committed, or a file
            in the store is missing or not as its manifest says.
    """
    code = source.read(root, allow_dirty=allow_dirty)
    plan = plan_of(run)
    payload: dict[str, bytes | Path] = dict(code.members)
    manifests, left_out = {}, []
    for key in progress.bar(chain := list(run.chain()), len(chain), "check"):
        manifest, folder = run.artifact(key), run.folder_of(key)
        if manifest is None or folder is None:
            raise InputError(key, "is gone from the store, and the run is made from it", MEND)
        manifests[key] = manifest
        inside = f"{RESULTS}{folder.relative_to(run.folder.parent).as_posix()}"
        payload[f"{inside}/{MANIFEST}"] = folder / MANIFEST
        for name, facts in manifest["files"].items():
            if is_pictures(name) and not with_images:
                left_out.append(facts["bytes"])
                continue
            _check(folder / name, facts)
            payload[f"{inside}/{name}"] = folder / name
    parts = run.manifest["components"]
    payload[PICTURES] = pictures_table(manifests.values())
    payload[ENVIRONMENT] = _environment(run, code)
    for name in COPIES:
        if f"source/{name}" in code.members:
            payload[name] = code.members[f"source/{name}"]
    if report:
        payload[REPORT] = snakemake_report(root, plan, run.folder.parent)
    payload["README.md"] = _readme(run, code, bool(left_out), report).encode()
    about = "Tables, figures and every row behind them, of one run of SubjectBench."
    if parts.get("synthetic"):
        about += " Synthetic: its numbers say nothing about real models."
    payload[CRATE] = crate.describe(
        {n: len(v) if isinstance(v, bytes) else v.stat().st_size for n, v in payload.items()},
        run=run.name,
        title=parts["title"],
        about=about,
        date=code.date,
        commit=code.commit,
        snakemake=version("snakemake"),
    )
    info = {
        RUN_LINE: run.name,
        "External-Description": f"{parts['title']}. {about}",
        COMMIT_LINE: code.commit,
        DIRTY_LINE: f"{len(code.dirty)} files, see {source.DIFF}" if code.dirty else "nothing",
        PICTURES_LINE: f"left out, see {PICTURES}" if left_out else "all there",
        **({TAG_LINE: tag} if tag else {}),
        "Bag-Software-Agent": f"SubjectBench {__version__}",
    }
    bag.write(out, run.name, payload, info)
    return Written(out, sha256_file(out), len(payload), (len(left_out), sum(left_out)), code.dirty)


MEND = "make or fetch it again: snakemake --cores all, or subjectbench restore"


def _check(path: Path, facts: Mapping[str, Any]) -> None:
    if not path.is_file():
        raise InputError(path, "is missing, and the run is made from it", MEND)
    if path.stat().st_size != facts["bytes"] or sha256_file(path) != facts["sha256"]:
        raise InputError(path, f"is not as its {MANIFEST} says", f"delete it, then {MEND}")


def plan_of(run: Run) -> Plan:
    """Plan a run again, with the study that it was planned from.

    Raises:
        InputError: this checkout does not know its study any more, or would make another run.
    """
    key, results = run.manifest["key"], run.folder.parent
    study = _study(run, key, results)
    plan = make_plan(load_study(study, run.folder / "config.yaml"))
    if plan.final != key:
        final = plan.artifacts[plan.final]
        told = changed(run.manifest["components"], final.components)
        told += [
            f"upstream {role}"
            for role, up in final.upstream.items()
            if run.manifest["upstream"].get(role) != up
        ]
        made_at = sorted(run.environment()["git_commit"])
        raise InputError(
            run.folder,
            f"is not what this checkout makes of its study: {'; '.join(told[:3]) or 'another key'}",
            "check out the source that made it"
            + (f" (its artifacts name {', '.join(c[:12] for c in made_at)})" if made_at else "")
            + ", or run snakemake and archive the new run",
        )
    return plan


def _study(run: Run, key: str, results: Path) -> dict[str, Any]:
    """The study of a run with its places; as the run tells it, if no plan of it is kept."""
    for path in sorted((results / "store" / ".plans").glob("*.json")):
        text = path.read_text("utf-8")
        if f'"final": "{key}"' in text:
            return dict(json.loads(text)["study"])
    told = yaml.safe_load((run.folder / "config.yaml").read_text("utf-8"))
    return {**told, "results": str(results)}


def _environment(run: Run, code: source.Source) -> bytes:
    """With what the artifacts were made: only what is the same wherever the same was used."""
    made = run.environment()
    locks = {
        name.removeprefix("source/"): sha256(data)
        for name, data in code.members.items()
        if name.startswith("source/envs/")
    }
    facts = {
        "python": sorted(made["python"]),
        "machine": sorted(made["machine"]),
        "device": sorted(made["device"]),
        "other_than_locked": sorted(made["other_than_locked"]),
        "locks": locks,
    }
    return (json.dumps(facts, indent=1, sort_keys=True) + "\n").encode()


def _readme(run: Run, code: source.Source, without: bool, report: bool) -> str:
    folder = f"results/{run.name}/"
    lines = [
        f"# {run.manifest['components']['title']}",
        "",
        f"One run of SubjectBench: `{run.name}`. Open `{folder}index.html`.",
        "",
        f"- `{folder}`: tables (CSV, Markdown, LaTeX), figures, the resolved config",
        "- `results/store/`: every artifact that they are made from: cases, samples, embeddings, "
        "transcripts and answers of judges, scores, ratings. Each `manifest.json` says what its "
        "artifact is: parameters, code, weights, packages, and keys of what it was made from",
        f"- `source/`: the source at commit `{code.commit}`, lock files in `source/envs/`; "
        f"`{source.COMMIT}` and `{source.TREE}` prove offline that it is",
        f"- `{ENVIRONMENT}`: versions that it was made with; `{PICTURES}`: place and sha256 of "
        "every file of pictures" + (", which are not in here" if without else ""),
        f"- `{CRATE}`: all of this for machines (Workflow Run RO-Crate); the whole is a BagIt bag",
    ]
    lines += [f"- `{REPORT}`: Snakemake's own report"] if report else []
    if code.dirty:
        lines += [
            "",
            f"**Not all source was committed**: {len(code.dirty)} files differ from the commit; "
            f"`{source.DIFF}` holds how.",
        ]
    lines += [
        "",
        "To check it, in a checkout of SubjectBench (or in `source/`): "
        "`subjectbench verify ARCHIVE` hashes every file and computes every table again from the "
        "rows. `subjectbench restore --from ARCHIVE` continues from it.",
        "",
    ]
    return "\n".join(lines)


# --- Snakemake's report --------------------------------------------------------------------------


def snakemake_report(root: Path, plan: Plan, results: Path) -> bytes:
    """Snakemake's own report of a finished run, the same bytes each time.

    It is made in an empty working folder that sees the results through a link: there Snakemake
    finds no records of jobs, which hold times, and of itself it writes none (9.27).

    Args:
        root: the checkout.
        plan: of the run.
        results: folder of its results.

    Raises:
        InputError: Snakemake could not make it.
    """
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "results").symlink_to(results.resolve())
        study = {**plan.study, "results": "results"}
        config = folder / "study.yaml"
        config.write_text(yaml.safe_dump(study, sort_keys=False, allow_unicode=True), "utf-8")
        out = folder / "report.html"
        command = [sys.executable, "-m", "snakemake", "--snakefile", str(root / "Snakefile")]
        command += ["--directory", str(folder), "--configfile", str(config)]
        command += ["--report", str(out), "--quiet", "all"]
        library = os.pathsep.join([str(root / "workflow"), os.environ.get("PYTHONPATH", "")])
        env = {**os.environ, "PYTHONPATH": library}
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=env)
        if done.returncode or not out.is_file():
            said = (done.stderr or done.stdout).strip().splitlines()
            raise InputError(
                "snakemake --report",
                " ".join(said[-3:]) or "wrote nothing",
                "archive with --no-report to leave it out",
            )
        return out.read_bytes()
