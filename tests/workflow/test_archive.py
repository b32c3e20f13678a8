"""Archives of a real run: the same bytes anywhere, every number checked, a clone that continues."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from subjectbench.archive import bag, check
from subjectbench.archive.bag import Bag
from subjectbench.images import ZipReader
from tests import tutorials

from .conftest import ROOT, TINY, Checkout

pytestmark = pytest.mark.slow

IDENTITY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "N"), ("EMAIL", "e@x"), ("DATE", "2026-01-02T03:04:05+0000"))
}


def git(folder: Path, *args: str) -> str:
    env = {**os.environ, **IDENTITY, "GIT_CONFIG_GLOBAL": os.devnull}
    done = subprocess.run(["git", *args], cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def subjectbench(
    checkout: Checkout, *args: str, code: int = 0, **env: str
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "subjectbench", *args],
        cwd=checkout.folder,
        env={**checkout.env, **env},
        capture_output=True,
        text=True,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


def clone_of(checkout: Checkout, folder: Path) -> Checkout:
    """A clone of a checkout's commit, without results."""
    git(checkout.folder.parent, "clone", "-q", str(checkout.folder), str(folder))
    clone = Checkout.__new__(Checkout)
    clone.folder = folder
    clone.env = {**checkout.env, "PYTHONPATH": str(folder / "workflow")}
    return clone


@pytest.fixture(scope="module")
def committed(finished: Checkout, tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """The finished checkout as a git repository."""
    copy = Checkout.__new__(Checkout)
    copy.folder = tmp_path_factory.mktemp("committed") / "a b'c"
    shutil.copytree(finished.folder, copy.folder, symlinks=True)
    copy.env = {**finished.env, "PYTHONPATH": str(copy.folder / "workflow")}
    for name in ("LICENSE", "CITATION.cff"):
        shutil.copyfile(ROOT / name, copy.folder / name)
    (copy.folder / ".gitignore").write_text("results/\nlogs/\n.snakemake/\narchives/\n")
    git(copy.folder, "init", "-q")
    git(copy.folder, "add", "-A")
    git(copy.folder, "commit", "-qm", "all")
    return copy


@pytest.fixture(scope="module")
def archived(committed: Checkout) -> Path:
    """Its archive."""
    told = subjectbench(committed, "archive").stdout
    run = (committed.folder / "results" / "latest").readlink().name
    path = committed.folder / "archives" / f"{run}.zip"
    assert f"sha256 {hashlib.sha256(path.read_bytes()).hexdigest()}" in told
    assert "without pictures: 4 files" in told
    return path


def test_the_same_bytes_in_another_clone_folder_day_and_account(
    committed: Checkout, archived: Path, tmp_path: Path
) -> None:
    other = clone_of(committed, tmp_path / "elsewhere")
    # Results that were linked into place from a cache, as DVC does; other times.
    cache = tmp_path / "cache"
    shutil.copytree(committed.folder / "results", cache, symlinks=True)
    results = other.folder / "results"
    results.mkdir()
    for path in sorted(cache.rglob("*")):
        place = results / path.relative_to(cache)
        if path.is_symlink():
            place.symlink_to(path.readlink())
        elif path.is_dir():
            place.mkdir(parents=True)
        else:
            os.utime(path, (1e9, 1e9))
            place.symlink_to(path)
    for record in cache.rglob("record.json"):
        facts = json.loads(record.read_text())
        facts |= {"host": "other", "finished": "2030-01-01T00:00:00+00:00", "git_commit": "0" * 40}
        record.write_text(json.dumps(facts))
    out = tmp_path / "b.zip"
    told = subjectbench(
        other,
        *("archive", "--out", str(out)),
        HOME=str(tmp_path),
        USER="somebody",
        TZ="Asia/Tokyo",
        LC_ALL="C",
        PYTHONHASHSEED="7",
    ).stdout
    assert out.read_bytes() == archived.read_bytes(), told
    with zipfile.ZipFile(out) as found:  # ARC-04: bytes, not links
        assert not any((i.external_attr >> 16) & 0o120000 == 0o120000 for i in found.infolist())


def test_nothing_in_it_tells_of_host_folder_user_or_time(
    committed: Checkout, archived: Path
) -> None:
    told = [str(committed.folder), str(ROOT), '"host":', '"finished":']
    with ZipReader(archived) as found:
        for name in found:
            if "/source/" not in name:
                data = found[name]
                assert not [t for t in told if t.encode() in data], name
                assert not name.endswith("record.json")


def test_what_it_holds(committed: Checkout, archived: Path) -> None:
    with Bag(archived) as found:
        names = set(found)
        crate = json.loads(found.read("ro-crate-metadata.json"))
        environment = json.loads(found.read("environment.json"))
        assert found.info["SubjectBench-Commit"] == git(committed.folder, "rev-parse", "HEAD")
    run = archived.stem
    tables = {p.name for p in (committed.folder / "results" / run / "tables").iterdir()}
    assert {f"results/{run}/tables/{t}" for t in tables} <= names
    for kind, file in (("benchmark", "cases"), ("generate", "samples"), ("score", "scores"),
                       ("rate", "ratings"), ("embed_images", "embeddings")):  # fmt: skip
        assert any(n.startswith(f"results/store/{kind}/") and n.endswith(f"/{file}.parquet")
                   for n in names), kind  # fmt: skip
    assert {"LICENSE", "CITATION.cff", "README.md", "snakemake_report.html"} <= names
    assert {
        "source/envs/requirements.txt",
        "source/Snakefile",
        f"results/{run}/config.yaml",
    } < names
    assert not any(n.endswith((".zip", "record.json")) for n in names if n.startswith("results/"))
    assert (
        environment["locks"]["envs/requirements.txt"]
        == hashlib.sha256((ROOT / "envs" / "requirements.txt").read_bytes()).hexdigest()
    )
    _check_crate(crate, names)


def _check_crate(crate: dict[str, Any], names: set[str]) -> None:
    """What RO-Crate 1.1 and the Workflow Run Crate profile demand (their validator needs a net)."""
    by_id = {e["@id"]: e for e in crate["@graph"]}
    assert len(by_id) == len(crate["@graph"])
    assert by_id["ro-crate-metadata.json"]["conformsTo"]["@id"] == "https://w3id.org/ro/crate/1.1"
    assert by_id["ro-crate-metadata.json"]["about"] == {"@id": "./"}
    root = by_id["./"]
    assert root["@type"] == "Dataset" and {"name", "description", "license"} < root.keys()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", root["datePublished"])
    assert {e["@id"] for e in root["conformsTo"]} >= {"https://w3id.org/ro/wfrun/workflow/0.5"}
    assert all(e["@id"] in by_id for e in root["conformsTo"])
    workflow = by_id[root["mainEntity"]["@id"]]
    assert {"File", "SoftwareSourceCode", "ComputationalWorkflow"} <= set(workflow["@type"])
    assert by_id[workflow["programmingLanguage"]["@id"]]["@type"] == "ComputerLanguage"
    action = by_id[root["mentions"]["@id"]]
    assert action["@type"] == "CreateAction" and action["instrument"]["@id"] == workflow["@id"]
    parts = {e["@id"] for e in root["hasPart"]}
    for used in [*action["object"], *action["result"]]:
        assert used["@id"] in parts and used["@id"] in by_id
    for part in parts - {"source/"}:
        assert part in names, part
    files = {n for n in names if not n.startswith("source/")} - {"ro-crate-metadata.json"}
    assert files <= parts


def test_verify_needs_no_store_and_says_what_it_checked(
    committed: Checkout, archived: Path, tmp_path: Path
) -> None:
    other = clone_of(committed, tmp_path / "reviewer")
    before = sorted(p.relative_to(other.folder) for p in other.folder.rglob("*"))
    told = subjectbench(other, "verify", str(archived)).stdout
    commit = git(committed.folder, "rev-parse", "HEAD")
    assert f"that of commit {commit}" in told and "this repository has it" in told
    assert "nothing is wrong" in told and "identities, chain and files in order" in told
    files = len(list((committed.folder / "results" / archived.stem / "tables").iterdir()))
    assert f"{files} of {files} files the same bytes" in told
    assert "page and config: as tables and identity make them" in told
    assert "not in it: pictures, 4 files" in told
    assert before == sorted(p.relative_to(other.folder) for p in other.folder.rglob("*"))
    subjectbench(other, "verify", str(other.folder / "README.md"), code=2)


# --- tampering -----------------------------------------------------------------------------------


class Tampered:
    """An archive's content, changed so that all hashes agree again."""

    def __init__(self, path: Path) -> None:
        with Bag(path) as found:
            self.name, self.info = found.name, dict(found.info)
            self.payload: dict[str, bytes] = {name: found.read(name) for name in found}
        self.info.pop("Payload-Oxum")

    def one(self, *parts: str) -> str:
        """The first member whose name has all these parts."""
        return next(n for n in self.payload if all(p in n for p in parts))

    def put(self, name: str, data: bytes) -> None:
        """Replace a file of an artifact, and its hash in the artifact's manifest."""
        self.payload[name] = data
        folder = next(
            name[: i + 1]
            for i in range(len(name) - 1, 0, -1)
            if name[i] == "/" and f"{name[: i + 1]}manifest.json" in self.payload
        )
        manifest = json.loads(self.payload[f"{folder}manifest.json"])
        manifest["files"][name.removeprefix(folder)] = {
            "bytes": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
        }
        text = json.dumps(manifest, indent=1, sort_keys=True) + "\n"
        self.payload[f"{folder}manifest.json"] = text.encode()

    def replace(self, name: str, old: bytes, new: bytes) -> None:
        assert old in self.payload[name]
        self.put(name, self.payload[name].replace(old, new, 1))

    def faults(self, path: Path) -> list[str]:
        bag.write(path, self.name, dict(self.payload), self.info)
        return check.verify(path, path.parent).faults


def cell(t: Tampered) -> None:
    name = t.one("store/tables/", "/leaderboard.csv")
    value = re.search(rb"0\.\d{9}", t.payload[name])
    assert value
    t.replace(name, value[0], b"0.999999999")


def report_table(t: Tampered) -> None:
    name = t.one("results/tiny-", "/tables/coverage.md")
    t.put(name, t.payload[name] + b"x")


def score_row(t: Tampered) -> None:
    import io

    name = t.one("store/score/", "mini_dino", "copy_reference", "scores.parquet")
    frame = pd.read_parquet(io.BytesIO(t.payload[name]))
    frame.loc[frame.index[0], "value"] += 0.25
    out = io.BytesIO()
    frame.to_parquet(out, index=False)
    t.put(name, out.getvalue())


def component(t: Tampered) -> None:
    name = t.one("store/score/", "mini_dino", "manifest.json")
    t.payload[name] = t.payload[name].replace(b'"scale": 1.0', b'"scale": 2.0')
    assert b'"scale": 2.0' in t.payload[name]


def drop_artifact(t: Tampered) -> None:
    folder = t.one("store/rate/", "manifest.json").removesuffix("manifest.json")
    t.payload = {n: v for n, v in t.payload.items() if not n.startswith(folder)}


CHANGES: dict[str, tuple[Callable[[Tampered], object], str]] = {
    "a cell of a table": (cell, r"tables/leaderboard\.csv: row 1 .*'0\.999999999', its rows make"),
    "a table of the run": (report_table, r"tables/coverage\.md: is not the table of its run"),
    "a score": (score_row, r"tables/coverage\.csv: row .*copy_reference.*, mean: .*its rows make"),
    "the page": (
        lambda t: t.replace(t.one("index.html"), b"<h1>", b"<h1>Great "),
        r"index\.html: is not the page that its tables make",
    ),
    "the config": (
        lambda t: t.replace(t.one("results/tiny-", "config.yaml"), b"seed: 0", b"seed: 1"),
        r"config\.yaml: is not the study of this run",
    ),
    "a component": (component, r"manifest\.json: says key"),
    "an artifact left out": (drop_artifact, r"the run is made from it, and it is missing"),
    "a file beside": (
        lambda t: t.payload.update({"results/store/rate/x": b""}),
        r"results/store/rate/x: belongs to no artifact",
    ),
    "a file at the top": (lambda t: t.payload.update(x=b""), r"x: is no part of an archive"),
    "the source": (
        lambda t: t.payload.update({"source/Snakefile": b"x"}),
        r"source/Snakefile: is not the file of commit",
    ),
    "the commit": (
        lambda t: t.info.update({"SubjectBench-Commit": "0" * 40}),
        r"source\.commit is not commit 0000",
    ),
    "the licence": (lambda t: t.payload.update(LICENSE=b"x"), r"LICENSE: is not the one of source"),
    "the list of pictures": (
        lambda t: t.payload.update({"pictures.csv": b""}),
        r"pictures\.csv: is not what the manifests list",
    ),
    "the name of the run": (
        lambda t: t.info.update({"External-Identifier": "tiny-0"}),
        r"bag-info\.txt: is of tiny-0",
    ),
    "a hidden diff": (
        lambda t: t.payload.update({"source.diff": b"x"}),
        r"does not say the truth about source\.diff",
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_whoever_changes_something_is_found_even_if_all_hashes_agree(
    what: str, archived: Path, tmp_path: Path
) -> None:
    change, said = CHANGES[what]
    tampered = Tampered(archived)
    change(tampered)
    faults = tampered.faults(tmp_path / "a.zip")
    assert any(re.search(said, fault) for fault in faults), faults


def test_nothing_is_found_where_nothing_was_changed(archived: Path, tmp_path: Path) -> None:
    assert Tampered(archived).faults(tmp_path / "a.zip") == []


def test_a_flipped_bit_is_named(committed: Checkout, archived: Path, tmp_path: Path) -> None:
    data = bytearray(archived.read_bytes())
    at = data.index(b"<!doctype html>\n<html")
    data[at + 3] ^= 1
    (tmp_path / "a.zip").write_bytes(data)
    told = subjectbench(committed, "verify", str(tmp_path / "a.zip"), code=1).stdout
    assert f"WRONG: data/results/{archived.stem}/index.html" in told and "1 fault" not in told
    results = tmp_path / "results"
    done = subjectbench(committed, "restore", "--from", str(tmp_path / "a.zip"), code=2)
    assert "index.html" in done.stderr and not results.exists()


def test_numbers_within_the_tolerance_are_told_and_pass(archived: Path, tmp_path: Path) -> None:
    tampered = Tampered(archived)
    for name in [n for n in tampered.payload if n.endswith("/leaderboard.csv")]:
        value = re.search(rb"0\.\d{8}[1-8]", tampered.payload[name])
        assert value
        tampered.replace(name, value[0], value[0][:-1] + bytes([value[0][-1] + 1]))
    assert tampered.faults(tmp_path / "a.zip") == []
    found = check.verify(tmp_path / "a.zip", tmp_path)
    assert any("1 more within 1e-06" in line for line in found.told)
    strict = check.verify(tmp_path / "a.zip", tmp_path, tolerance=0.0)
    assert any("leaderboard.csv: row" in fault for fault in strict.faults)


# --- continuing ----------------------------------------------------------------------------------


def test_a_clone_continues_from_it(committed: Checkout, archived: Path, tmp_path: Path) -> None:
    other = clone_of(committed, tmp_path / "continued")
    told = subjectbench(other, "restore", "--from", str(archived)).stdout
    config = f"results/{archived.stem}/config.yaml"
    assert f"snakemake -n --configfile {config}" in told and "4 of them lack their pictures" in told
    with_pictures = committed.hashes()
    assert other.hashes() == {
        n: h for n, h in with_pictures.items() if not n.endswith(".zip") and "transcripts" not in n
    }
    # Nothing is left to do, though no picture is there.
    assert other.planned("--configfile", config) == {}
    # A changed formula needs no picture; what shows pictures plans to make them.
    study = yaml.safe_load((other.folder / config).read_text())
    study["metrics"] = [
        {**m, "params": {"scale": 2.0}} if m["card"] == "mini_dino" else m for m in study["metrics"]
    ]
    other.configure(study)
    needed = {"score_metric": 3, "tabulate_study": 1}
    assert other.planned("tables") == needed | {"tables": 1}
    pictures = {"prepare_benchmark": 1, "generate_images": 3, "write_report": 1}
    assert other.planned() == needed | pictures
    other.run("tables")
    latest = other.folder / "results" / "latest"  # tables alone are no run to point to
    assert latest.readlink().name == archived.stem
    # Again: what is there and right stays; what is damaged is mended, and a link is not followed.
    victim = next((other.folder / "results/store/score").rglob("scores.parquet"))
    kept = tmp_path / "kept"
    kept.write_bytes(b"damaged")
    victim.unlink()
    victim.symlink_to(kept)
    assert "1 files written" in subjectbench(other, "restore", "--from", str(archived)).stdout
    assert kept.read_bytes() == b"damaged" and not victim.is_symlink()
    # Another result under the same key is refused before anything is written.
    manifest = next((other.folder / "results/store/rate").rglob("manifest.json"))
    manifest.write_text(manifest.read_text().replace('"rows": {', '"rows": {"x": 1,'))
    victim.unlink()
    done = subjectbench(other, "restore", "--from", str(archived), code=2)
    assert "two results under one key" in done.stderr and not victim.exists()


def test_with_pictures_nothing_is_missing(
    committed: Checkout, archived: Path, tmp_path: Path
) -> None:
    whole = tmp_path / "whole.zip"
    args = ("--with-images", "--no-report", "--out", str(whole))
    assert "without pictures" not in subjectbench(committed, "archive", *args).stdout
    other = clone_of(committed, tmp_path / "whole")
    subjectbench(other, "restore", "--from", str(archived))
    subjectbench(other, "restore", "--from", str(whole))  # adds the pictures
    with_pictures = {n: h for n, h in committed.hashes().items() if "transcripts" not in n}
    assert other.hashes() == with_pictures


# --- what must stop an archive -------------------------------------------------------------------


def test_only_what_this_source_makes_is_archived(
    committed: Checkout, archived: Path, tmp_path: Path
) -> None:
    other = clone_of(committed, tmp_path / "other")
    shutil.copytree(committed.folder / "results", other.folder / "results", symlinks=True)
    card = other.folder / "workflow/subjectbench/metrics/cosine.py"
    card.write_text(card.read_text().replace("norms == 0.0", "norms <= 0.0"))
    done = subjectbench(other, "archive", code=2)
    assert "not committed: workflow/subjectbench/metrics/cosine.py" in done.stderr
    git(other.folder, "commit", "-qam", "changed")
    done = subjectbench(other, "archive", code=2)
    assert "is not what this checkout makes of its study" in done.stderr
    git(other.folder, "reset", "-q", "--hard", "HEAD~1")
    rows = next((other.folder / "results/store/rate").rglob("ratings.parquet"))
    rows.write_bytes(rows.read_bytes()[:-1])
    done = subjectbench(other, "archive", code=2)
    assert f"{rows.name}: is not as its manifest.json says" in done.stderr
    rows.unlink()
    assert "ratings.parquet: is missing" in subjectbench(other, "archive", code=2).stderr
    assert not (other.folder / "archives").exists()


def test_changes_that_are_not_committed_are_told(
    committed: Checkout, archived: Path, tmp_path: Path
) -> None:
    other = clone_of(committed, tmp_path / "dirty")
    shutil.copytree(committed.folder / "results", other.folder / "results", symlinks=True)
    module = other.folder / "workflow/subjectbench/metrics/cosine.py"
    module.write_text(module.read_text() + "\n# a remark\n")
    out = tmp_path / "dirty.zip"
    args = ("archive", "--allow-dirty", "--no-report", "--out", str(out))
    assert "NOT COMMITTED: 1 files" in subjectbench(other, *args).stdout
    found = check.verify(out, other.folder)
    assert found.faults == [] and any(t.startswith("NOT COMMITTED") for t in found.told)
    with Bag(out) as opened:
        assert b"+# a remark" in opened.read("source.diff")
        assert b"Not all source was committed" in opened.read("README.md")


@pytest.mark.long
def test_tags_say_what_changed_since_the_last(
    committed: Checkout, archived: Path, tmp_path: Path
) -> None:
    other = clone_of(committed, tmp_path / "tagged")
    shutil.copytree(committed.folder / "results", other.folder / "results", symlinks=True)
    told = subjectbench(other, "archive", "--tag", "v9", "--no-report").stdout
    assert "what changed since nothing" in told
    study = {**TINY, "leaderboard": {"quality_weight": 2.0}}
    other.configure(study)
    other.run()
    git(other.folder, "commit", "-qam", "another weight")
    told = subjectbench(other, "archive", "--tag", "v10", "--no-report").stdout
    entry = (other.folder / "archives" / "tiny-v10.md").read_text()
    assert "what changed since v9" in told and entry.startswith("## v10\n")
    assert "Since v9" in entry and "leaderboard.quality_weight 1.0 -> 2.0" in entry
    assert "### leaderboard:" in entry and "| s_h |" in entry and "### agreement" not in entry
    subjectbench(other, "archive", "--tag", "no good", code=2)


def test_the_reviewers_tutorial(committed: Checkout, archived: Path, tmp_path: Path) -> None:
    clone = clone_of(committed, tmp_path / "clone")
    shutil.copyfile(archived, tmp_path / "run.zip")
    tutorials.run(ROOT / "docs/tutorials/check_an_archive.md", clone.folder)
