"""Plan the study, and answer what an artifact is made from.

The plan carries every artifact's identity in its path, so Snakemake only asks whether a path
exists. It is saved under its own hash; each job reads it from there.
"""

import os
import shlex
import uuid
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.io import report as in_report
from snakemake.logging import logger

from subjectbench.archive.index import refuse_remaking
from subjectbench.cards import ROOT
from subjectbench.config import load_study
from subjectbench.plan import check_asked, has_gpu, make_plan, match_given
from subjectbench.store import Store


def plan_study():
    """Check the config and everything it names, before any work starts."""
    try:
        plan = make_plan(load_study(config, "config"))
        check_asked(plan)
        for name, match in match_given(plan):
            if match.missing or match.left or match.unknown:
                logger.warning(f"{name}: " + "\n".join(match.words()))
        return plan
    except InputError as error:
        raise WorkflowError(f"\n\n{error}\n") from None


def refuse_remaking_published():
    """Stop before any work that would repeat what a colleague published."""
    try:
        refuse_remaking(PLAN, ROOT)
    except InputError as error:
        raise WorkflowError(f"\n\n{error}\n") from None


PLAN = plan_study()
# Jobs learn by their environment, and not by their command, where the library and the plan are:
# what a rule says stays the same from plan to plan, so Snakemake never thinks that it changed.
LIBRARY = shlex.quote(str(Path(workflow.basedir) / "workflow"))
PLAN_FILE = shlex.quote(str(PLAN.save()))
shell.prefix(
    f"export PYTHONPATH={LIBRARY}${{{{PYTHONPATH:+:$PYTHONPATH}}}} SUBJECTBENCH_PLAN={PLAN_FILE}; "
)
STORE = f"{PLAN.results}/store"
FINAL = str(PLAN.folder(PLAN.final))
# Jobs that can use a GPU count as one where there is one; the profile says how many run at once.
GPU = int(PLAN.study["run"]["device"] != "cpu" and has_gpu())


# All jobs of one run share its budgets.
os.environ.setdefault("SUBJECTBENCH_RUN", uuid.uuid4().hex)


wildcard_constraints:
    key="[0-9a-f]{12}",


def upstream(wildcards):
    """Files that the artifact with this key is made from."""
    return Store(Path(PLAN.results)).inputs(PLAN, wildcards.key)


def generate_remote(wildcards):
    """1 if a server makes the pictures: the profile lets one such job run at once."""
    return int(PLAN.artifacts[wildcards.key].job["remote"])


def generate_gpu(wildcards):
    """Pictures made here can use a GPU; asking a server needs none."""
    return 0 if PLAN.artifacts[wildcards.key].job["remote"] else GPU


def judge_remote(wildcards):
    """1 if the job asks a server: the profile lets one such job run at once, with many requests."""
    judge = PLAN.artifacts[wildcards.key].job.get("judge")
    return int(bool(judge and judge["remote"]))


def judge_gpu(wildcards):
    """A judge in process can use a GPU; asking a server needs none."""
    judge = PLAN.artifacts[wildcards.key].job.get("judge")
    return GPU if judge and not judge["remote"] else 0


def upstream_of_final(wildcards):
    """Files that the report is made from."""
    return Store(Path(PLAN.results)).inputs(PLAN, PLAN.final)


def final_files():
    """Files of the report; figures and the leaderboard go into Snakemake's own report too."""
    captions = Path(workflow.basedir) / "workflow" / "report"
    paths = []
    for path in PLAN.paths(PLAN.final):
        caption = captions / f"{Path(path).stem}.rst"
        shown = path.endswith((".svg", "leaderboard.csv")) and caption.is_file()
        flagged = in_report(path, caption=str(caption), category=PLAN.study["study"])
        paths.append(flagged if shown else path)
    return paths


def tables_files(kind):
    """Files of the artifact of tables or of the audit, if this study has one."""
    files = [file for artifact in PLAN.of_kind(kind) for file in artifact.files]
    return [f"{STORE}/{kind}/{{name}}/{{key}}/{f}" for f in ("manifest.json", *files)]


def point_latest():
    """Let results/latest follow the run that just ended, if its report was asked for."""
    if not all(Path(path).is_file() for path in PLAN.paths(PLAN.final)):
        return
    latest = Path(PLAN.results) / "latest"
    target = Path(FINAL).name
    if latest.is_symlink() and os.readlink(latest) == target:
        return
    temporary = latest.with_name(f".latest-{os.getpid()}")
    temporary.symlink_to(target)
    os.replace(temporary, latest)


# Snakemake calls onsuccess only if some job ran; a run that finds everything there counts as well
# (and so does a dry run, which cannot be told apart here).
point_latest()
