"""What lies in an archive, and which artifacts those files are.

::

    README.md  LICENSE  CITATION.cff  ro-crate-metadata.json  environment.json  pictures.csv
    results/<study>-<key>/           the run: tables, figures, page, resolved config, manifest
    results/store/<kind>/.../<key>/  every artifact that it is made from, pictures at will
    source/                          the checkout at its commit
    source.commit  source.tree       what proves that it is
    source.diff                      what differed from it, if anything did
    snakemake_report.html            Snakemake's own report
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from subjectbench.archive.bag import Bag
from subjectbench.hashing import sha256
from subjectbench.store import Artifact
from subjectbench.store.artifact import is_pictures
from subjectbench.store.folder import MANIFEST

CRATE, ENVIRONMENT, PICTURES = "ro-crate-metadata.json", "environment.json", "pictures.csv"
REPORT = "snakemake_report.html"
COPIES = ("LICENSE", "CITATION.cff")
"""Files of the source that stand at the top as well, where people look for them."""
RESULTS = "results/"
COMMIT_LINE, DIRTY_LINE = "SubjectBench-Commit", "SubjectBench-Uncommitted"
RUN_LINE, TAG_LINE, PICTURES_LINE = "External-Identifier", "SubjectBench-Tag", "SubjectBench-Images"
"""Labels of ``bag-info.txt``."""


@dataclass(frozen=True)
class Packed:
    """One artifact in an archive.

    Attributes:
        artifact: what it is, without its job.
        manifest: its account of itself.
        files: names of those of its files that the archive holds.
    """

    artifact: Artifact
    manifest: dict[str, Any]
    files: tuple[str, ...]

    def member(self, file: str) -> str:
        """Name of one of its files in the archive."""
        return f"{RESULTS}{self.artifact.folder}/{file}"


def pictures_table(manifests: Iterable[dict[str, Any]]) -> bytes:
    """List the files of pictures of some artifacts, with place and hash, as CSV.

    So pictures that are not in an archive can be held against it wherever they come from.
    """
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(["path", "bytes", "sha256"])
    rows = []
    for manifest in manifests:
        folder = Artifact.of_manifest(manifest).folder
        for name, facts in manifest["files"].items():
            if is_pictures(name):
                rows.append([f"{RESULTS}{folder}/{name}", facts["bytes"], facts["sha256"]])
    table.writerows(sorted(rows))
    return out.getvalue().encode()


def artifacts(bag: Bag) -> tuple[dict[str, Packed], list[str]]:
    """Artifacts of an archive by key, and what about them is not as it must be, in words.

    An artifact must lie where its identity says, hold the files that its manifest lists, and be
    made from artifacts that are there; the run must be made from all of them.
    """
    inside = [name for name in bag if name.startswith(RESULTS)]
    found: dict[str, Packed] = {}
    faults: list[str] = []
    for name in inside:
        folder, _, file = name.rpartition("/")
        if file != MANIFEST:
            continue
        try:
            manifest = json.loads(bag.read(name))
            artifact = Artifact.of_manifest(manifest)
        except (ValueError, RecursionError) as error:
            faults.append(f"{name}: {error}")
            continue
        if folder != f"{RESULTS}{artifact.folder}" or "/." in f"/{artifact.folder}":
            faults.append(f"{name}: accounts for what belongs in {artifact.folder}")
            continue
        files = tuple(n for n in artifact.files if f"{folder}/{n}" in bag)
        found[artifact.key] = Packed(artifact, manifest, files)
    accounted = set()
    for packed in found.values():
        accounted |= {packed.member(file) for file in (MANIFEST, *packed.files)}
        for file, facts in packed.manifest["files"].items():
            member = packed.member(file)
            if file not in packed.files:
                if not is_pictures(file):
                    faults.append(f"{member}: missing")
            elif bag.hash(member) != facts["sha256"]:
                faults.append(f"{member}: is not the file that its artifact's {MANIFEST} lists")
    faults += [f"{name}: belongs to no artifact" for name in inside if name not in accounted]
    return found, faults + _chain(bag, found)


def run_of(found: dict[str, Packed]) -> Packed | None:
    """The run itself; None if there is not exactly one."""
    runs = [packed for packed in found.values() if packed.artifact.kind == "report"]
    return runs[0] if len(runs) == 1 else None


def _chain(bag: Bag, found: dict[str, Packed]) -> list[str]:
    run = run_of(found)
    if run is None:
        return ["holds no run, or more than one"]
    faults, todo, seen = [], [run.artifact.key], set()
    while todo:
        key = todo.pop()
        if key in seen:
            continue
        seen.add(key)
        if key in found:
            todo += found[key].artifact.upstream.values()
        else:
            faults.append(f"{key}: the run is made from it, and it is missing")
    faults += [
        f"{packed.artifact.folder}: the run is not made from it"
        for key, packed in found.items()
        if key not in seen
    ]
    if bag.info.get(RUN_LINE) != run.artifact.folder:
        faults.append(f"bag-info.txt: is of {bag.info.get(RUN_LINE)}, not {run.artifact.folder}")
    return faults


def pages(bag: Bag, found: dict[str, Packed]) -> list[str]:
    """What the files around the results say that the results do not, in words."""
    faults = []
    known = {CRATE, ENVIRONMENT, PICTURES, REPORT, "README.md", *COPIES}
    for name in bag:
        if not name.startswith((RESULTS, "source/", "source.")) and name not in known:
            faults.append(f"{name}: is no part of an archive")
    needed = {CRATE, ENVIRONMENT, PICTURES, "README.md"}
    needed |= {name for name in COPIES if f"source/{name}" in bag}
    for name in sorted(needed - set(bag)):
        faults.append(f"{name}: missing")
    for name in COPIES:
        if {name, f"source/{name}"} <= set(bag) and bag.hash(name) != bag.hash(f"source/{name}"):
            faults.append(f"{name}: is not the one of source/")
    listed = pictures_table(packed.manifest for packed in found.values())
    if PICTURES in bag and bag.hash(PICTURES) != sha256(listed):
        faults.append(f"{PICTURES}: is not what the manifests list")
    return faults
