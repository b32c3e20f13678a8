"""A run described as RO-Crate 1.1, profile Workflow Run Crate 0.5: JSON-LD that tools can read.

The same run gives the same bytes. So three things that the profile asks for are left out, or are
of the source instead of the run: who ran it, when it ended, and when it was published (the date of
the source's commit).
"""

from __future__ import annotations

import json
import mimetypes
from collections.abc import Mapping
from typing import Any

from rocrate.model import ComputationalWorkflow, ContextEntity, File
from rocrate.rocrate import ROCrate

PROFILES = {
    "https://w3id.org/ro/wfrun/process/0.5": "Process Run Crate",
    "https://w3id.org/ro/wfrun/workflow/0.5": "Workflow Run Crate",
    "https://w3id.org/workflowhub/workflow-ro-crate/1.0": "Workflow RO-Crate",
}
WORKFLOW = "source/Snakefile"
LICENCE = "https://spdx.org/licenses/Apache-2.0"
TYPES = {
    ".parquet": "application/vnd.apache.parquet",
    ".cff": "application/yaml",
    ".md": "text/markdown",
    ".yaml": "application/yaml",
}
"""Media types that Python's own table lacks, or has on some systems only."""


def describe(
    sizes: Mapping[str, int],
    *,
    run: str,
    title: str,
    about: str,
    date: str,
    commit: str,
    snakemake: str,
) -> bytes:
    """Write ``ro-crate-metadata.json``.

    Args:
        sizes: bytes of every member of the archive by name; those of ``source/`` are described as
            one folder, but for its workflow.
        run: folder of the run, below ``results/``.
        title: of the study.
        about: what the study is, in a sentence.
        date: of the source's commit, YYYY-MM-DD.
        commit: its id.
        snakemake: version.
    """
    crate = ROCrate(version="1.1")
    root = crate.root_dataset
    root["name"] = title
    root["description"] = about
    root["datePublished"] = date
    root["identifier"] = run
    root["license"] = crate.add(
        ContextEntity(crate, LICENCE, {"@type": "CreativeWork", "name": "Apache License 2.0"})
    )
    root["conformsTo"] = [
        crate.add(
            ContextEntity(
                crate,
                address,
                {"@type": "CreativeWork", "name": name, "version": address.rpartition("/")[2]},
            )
        )
        for address, name in PROFILES.items()
    ]
    language = crate.add(
        ContextEntity(
            crate,
            "#snakemake",
            {
                "@type": "ComputerLanguage",
                "name": "Snakemake",
                "version": snakemake,
                "identifier": {"@id": "https://doi.org/10.1093/bioinformatics/bts480"},
                "url": {"@id": "https://snakemake.readthedocs.io"},
            },
        )
    )
    workflow = crate.add(
        ComputationalWorkflow(
            crate,
            dest_path=WORKFLOW,
            properties={"name": "SubjectBench", "version": commit},
        )
    )
    workflow["programmingLanguage"] = language
    root["mainEntity"] = workflow
    source = crate.add_dataset(
        dest_path="source/",
        properties={"name": "Source of the workflow at its commit", "version": commit},
    )
    files: dict[str, Any] = {}
    for name, size in sorted(sizes.items()):
        if not name.startswith("source/"):
            about_file = {"name": _named(name), "contentSize": str(size)} | _type(name)
            files[name] = crate.add(File(crate, dest_path=name, properties=about_file))
    folder = f"results/{run}/"
    results = [f for name, f in files.items() if name.startswith(folder)]
    config = f"{folder}config.yaml"
    crate.add(
        ContextEntity(
            crate,
            "#run",
            {
                "@type": "CreateAction",
                "name": f"Run {run}",
                "description": "Who ran it and when is left out, so that the same results are the "
                "same archive.",
                "actionStatus": {"@id": "http://schema.org/CompletedActionStatus"},
                "instrument": {"@id": WORKFLOW},
                "object": [{"@id": config}, {"@id": source.id}],
                "result": [{"@id": f.id} for f in results if f.id != config],
            },
        )
    )
    root["mentions"] = {"@id": "#run"}
    value = crate.metadata.generate()
    # The library lists entities as they were added, and parts in the order of their ids' hashes.
    value["@graph"] = sorted(
        value["@graph"], key=lambda e: (e["@id"] != "ro-crate-metadata.json", e["@id"])
    )
    return (json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


def _type(name: str) -> dict[str, str]:
    ending = f".{name.rpartition('.')[2]}"
    found = TYPES.get(ending) or mimetypes.types_map.get(ending)
    return {"encodingFormat": found} if found else {}


def _named(name: str) -> str:
    """A member's name in words: kind and name of the artifact, without its key."""
    parts = name.removeprefix("results/").removeprefix("store/").split("/")
    return " ".join(p for p in parts if len(p) != 12 or set(p) - set("0123456789abcdef"))
