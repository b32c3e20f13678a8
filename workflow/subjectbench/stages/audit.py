"""The audit of the papers' printed tables."""

from __future__ import annotations

from pathlib import Path

from subjectbench import writing
from subjectbench.published import audit, data
from subjectbench.stages.base import Context, count
from subjectbench.store import Partial


def run(context: Context) -> None:
    """Write each table of the job as CSV, Markdown and LaTeX."""
    job = context.artifact.job

    def build(folder: Path, _: Partial) -> dict[str, int]:
        printed = data.read()
        made = audit.tables(printed)
        for name in job["tables"]:
            label = f"tab:{name.replace('_', '-')}"
            footer = writing.off_lock(job["off_lock"])
            writing.write(made[name], folder / name, job["captions"][name], label, footer=footer)
        return count(f.verdict for f in audit.findings(printed))

    context.store.make(context.artifact, build)
