"""Published, cloned, restored: what a colleague's checkout runs, and what no tool may hide.

Each recipe of the trouble reports (DVC-*, SMK-*) is named where its test is.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from subjectbench.archive import remote
from subjectbench.archive.dvc import Dvc
from subjectbench.archive.index import Index
from subjectbench.config import load_study
from subjectbench.errors import InputError
from subjectbench.plan import make_plan
from subjectbench.store import Plan, Store

from .conftest import ROOT, SMALL, Clone

pytestmark = pytest.mark.slow

EVERYTHING = {
    "prepare_benchmark": 1,
    "generate_images": 2,
    "embed_cases": 1,
    "embed_images": 2,
    "score_metric": 2,
    "tabulate_study": 1,
    "write_report": 1,
}
SCALED = {"score_metric": 2, "tabulate_study": 1, "write_report": 1}


@pytest.fixture(scope="session")
def plan() -> Plan:
    """The plan that every clone has, since it has the same code, cards and weights."""
    return make_plan(load_study(yaml.safe_load((ROOT / SMALL).read_text())))


@contextmanager
def inside(clone: Clone) -> Iterator[Path]:
    before = Path.cwd()
    os.chdir(clone.folder)
    try:
        yield clone.root
    finally:
        os.chdir(before)


def restore(clone: Clone, plan: Plan) -> remote.Restored:
    with inside(clone) as root:
        return remote.restore(plan, root)


def faults(clone: Clone, plan: Plan) -> list[str]:
    with inside(clone) as root:
        store = Store(Path(plan.results))
        told = remote.verify(list(plan.artifacts.values()), store, Index(root))
    return [fault for of in told.values() for fault in of]


def scale(clone: Clone, value: float = 100.0) -> None:
    study = clone.folder / SMALL
    text = study.read_text()
    assert "  - mini_clip_i\n" in text
    new = f"  - {{ card: mini_clip_i, params: {{ scale: {value} }} }}\n"
    study.write_text(text.replace("  - mini_clip_i\n", new))


def file_of(clone: Clone, kind: str, name: str) -> Path:
    return next((clone.folder / "results/store" / kind).rglob(name))


def damage(path: Path) -> None:
    """Flip one bit in place, through links, as root could."""
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("links", ["copy", "hardlink", "symlink"])
def test_a_fresh_clone_has_nothing_to_run_once_restored(
    published: Clone, plan: Plan, tmp_path: Path, links: str
) -> None:
    """SMK-05, SMK-06: whatever the links, the times, the hash seed and the folder."""
    clone = published.clone(tmp_path / "clone", links)
    done = restore(clone, plan)
    assert (len(done.fetched), done.kept, done.faults, done.to_make) == (10, 0, [], [])
    image = file_of(clone, "generate", "images.zip")
    kinds = {"copy": image.stat().st_nlink == 1, "hardlink": image.stat().st_nlink > 1}
    assert image.is_symlink() if links == "symlink" else kinds[links] and not image.is_symlink()
    rng = random.Random(0)
    for path in clone.folder.rglob("*"):
        os.utime(path, (when := rng.uniform(1e9, 2e9), when), follow_symlinks=False)
    clone.folder.rename(tmp_path / "moved d'ir")
    clone = Clone(tmp_path / "moved d'ir")
    clone.env["PYTHONHASHSEED"] = "7"
    if links == "symlink":  # its links into the cache point nowhere now
        assert len(restore(clone, plan).fetched) == 10
    assert clone.planned() == {}


@pytest.mark.long
def test_a_change_in_a_clone_of_links_runs_only_what_it_must_and_writes_into_no_cache(
    published: Clone, plan: Plan, tmp_path: Path
) -> None:
    """DVC-01, DVC-06; and DVC's diffs between the two commits."""
    clone = published.clone(tmp_path / "clone", "hardlink")
    restore(clone, plan)
    cache = clone.folder / ".dvc/cache"
    before = {p: p.read_bytes() for p in cache.rglob("*") if p.is_file()}
    scale(clone)
    assert clone.planned() == SCALED
    said = clone.subjectbench("explain")
    assert "params.scale 1.0 -> 100.0" in said and "follow from these: 1 tables, 1 report" in said
    assert "leaves 2 finished results behind" in said and "reused as they are: 6" in said
    clone.run()
    assert clone.planned() == {}
    assert {p: p.read_bytes() for p in before} == before
    assert "4 artifacts published" in clone.subjectbench("publish", "--no-proof")
    clone.commit()
    metrics = json.loads(clone.call("dvc", "metrics", "diff", "--json", "HEAD~1", "HEAD"))
    moved = metrics["data/metrics/small.json"]["coverage.mini_clip_i / copy_reference.mean"]
    assert moved == {"old": 1.0, "new": 100.0, "diff": 99.0}
    params = json.loads(clone.call("dvc", "params", "diff", "--json", "HEAD~1", "HEAD"))
    changed = params["data/params/small.json"]
    scales = changed["used.score.mini_clip_i.params.scale"]
    assert (scales["old"], scales["new"]) == (1.0, 100.0)
    assert not any("code" in name for name in changed)
    clone.call("dvc", "plots", "diff", "HEAD~1", "HEAD", "-o", "plots")
    page = (clone.folder / "plots/index.html").read_text()
    assert "coverage-mean.csv" in page and '"value": "100.0"' in page
    # Back again: the old results are hit, the old and the new ones are both whole.
    clone.call("git", "checkout", "--quiet", "HEAD~1")
    assert clone.planned() == {} and faults(clone, plan) == []
    assert "coverage" in clone.call("dvc", "ls", ".", "results", "-R", "--dvc-only")
    clone.call("git", "checkout", "--quiet", "-")
    assert clone.planned() == {}
    clone.call("dvc", "status")


def test_a_partial_pull_makes_no_published_picture_again(published: Clone, tmp_path: Path) -> None:
    clone = published.clone(tmp_path / "clone")
    assert "1 artifacts fetched" in clone.subjectbench("restore", "--needed")
    assert clone.planned() == {}
    scale(clone)
    assert clone.planned() == EVERYTHING
    refused = clone.snakemake("--cores", "2")
    assert refused.returncode != 0 and "subjectbench restore" in refused.stdout
    assert "2 published artifacts are not here" in refused.stdout
    assert not (clone.folder / "results/store/benchmark").exists()
    assert "is published but not here" in clone.subjectbench("explain", "generate")
    clone.subjectbench("restore", "--needed")
    assert clone.planned() == SCALED


def test_a_flipped_bit_is_found_never_used_and_healed(
    published: Clone, plan: Plan, tmp_path: Path
) -> None:
    """DVC-01: a hard link shares the damage with the cache, from where DVC would restore it."""
    clone = published.clone(tmp_path / "clone", "hardlink")
    restore(clone, plan)
    scores = file_of(clone, "score", "scores.parquet")
    damage(scores)
    # Snakemake sees nothing, so whoever reads the file must.
    assert clone.planned() == {}
    name = scores.relative_to(clone.folder)
    assert faults(clone, plan) == [f"{name}: bytes differ from the manifest"]
    study = clone.folder / SMALL
    text = study.read_text()
    study.write_text(text.replace("bootstrap: 100", "bootstrap: 90"))
    assert clone.snakemake("--cores", "1").returncode != 0
    log = "".join(p.read_text() for p in clone.folder.glob("logs/tables/**/*.log"))
    assert f"{name}: bytes differ from the manifest" in log and "subjectbench restore" in log
    study.write_text(text)
    # Recipe: gone from the workspace, it comes back damaged from the cache.
    shutil.rmtree(clone.folder / "results")
    clone.call("dvc", "checkout", "--quiet", "data/score.dvc")
    assert faults(clone, plan) == [f"{name}: bytes differ from the manifest"]
    done = restore(clone, plan)
    assert done.faults == [] and list(done.replaced.values()) == [
        [f"{name}: bytes differ from the manifest"]
    ]
    assert faults(clone, plan) == [] and clone.planned() == {}


def test_a_deleted_file_and_a_deleted_manifest_are_healed(
    published: Clone, plan: Plan, tmp_path: Path
) -> None:
    clone = published.clone(tmp_path / "clone", "symlink")
    restore(clone, plan)
    file_of(clone, "score", "scores.parquet").unlink()
    file_of(clone, "generate", "manifest.json").unlink()
    (clone.folder / "results/latest").mkdir()  # no run: only a name in the way
    found = faults(clone, plan)
    assert len(found) == 2 and all(fault.endswith(": missing") for fault in found)
    done = restore(clone, plan)
    assert (len(done.fetched), done.kept, done.faults) == (2, 8, [])
    assert faults(clone, plan) == []


@pytest.mark.long
def test_a_remote_that_lost_or_damaged_an_object_is_named_and_mended(
    published: Clone, plan: Plan, tmp_path: Path
) -> None:
    """DVC-03: DVC calls a push complete though the remote has lost objects."""
    source = published.copy(tmp_path / "source")
    place = tmp_path / "remote"
    shutil.copytree(published.folder.parent / "re mote", place)
    source.call("dvc", "remote", "modify", "team", "url", str(place))
    source.commit()
    with inside(source) as root:
        objects = Dvc(root).objects(Path("results"))
    of = {
        kind: next(
            f
            for f in objects
            if f"store/{kind}/" in str(f)
            and f.suffix in (".zip", ".parquet")
            and f.name != "samples.parquet"
        )
        for kind in ("generate", "score")
    }
    lost, damaged = (place / "files/md5" / objects[f][:2] / objects[f][2:] for f in of.values())
    lost.unlink()
    damage(damaged)
    clone = source.clone(tmp_path / "clone")
    said = clone.subjectbench("restore", status=1)
    assert f"{of['generate']}: the remote has no object {objects[of['generate']]}" in said
    assert f"{of['score']}: object {objects[of['score']]} is damaged" in said
    assert "8 artifacts fetched" in said and "nothing to run" in said
    assert len(faults(clone, plan)) == 0 and not (clone.folder / of["score"]).exists()
    assert "up to date" in source.call("dvc", "push")
    assert not lost.exists()
    damaged.unlink()
    # While the remote has a pointer's list of objects (.dir), DVC takes them all for there.
    for kind in of:
        pointer = yaml.safe_load((source.folder / f"data/{kind}.dvc").read_text())
        md5 = pointer["outs"][0]["md5"]
        (place / "files/md5" / md5[:2] / md5[2:]).unlink()
    source.subjectbench("publish", "--no-proof")
    done = restore(clone, plan)
    assert (len(done.fetched), done.faults) == (2, [])


def test_publishing_refuses_what_is_damaged_or_cannot_be_given_back(
    small: Clone, plan: Plan, tmp_path: Path
) -> None:
    """DVC-03: the release step is a pull into an empty folder, hashed."""
    clone = small.copy(tmp_path / "clone")
    with inside(clone) as root:
        with pytest.raises(InputError, match="no default remote"):
            remote.publish(plan, root)
        # A remote that takes everything and keeps nothing.
        place = tmp_path / "remote"
        clone.call("dvc", "remote", "add", "--quiet", "-d", "team", str(place))
        scores = file_of(clone, "score", "scores.parquet").relative_to(clone.folder)
        kept = scores.read_bytes()
        scores.unlink()
        with pytest.raises(InputError, match=f"{scores}: missing"):
            remote.publish(plan, root)
        assert not place.exists()
        scores.write_bytes(kept)
        push = Dvc.push

        def forgetful(self: Dvc) -> None:
            push(self)
            shutil.rmtree(place / "files")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Dvc, "push", forgetful)
            with pytest.raises(InputError, match="does not give back"):
                remote.publish(plan, root)
        assert not list((root / "data").glob("*.csv"))
        assert len(remote.publish(plan, root).new) == 10


def test_without_dvc_everything_else_works(small: Clone, plan: Plan, tmp_path: Path) -> None:
    clone = small.copy(tmp_path / "clone")
    shutil.rmtree(clone.folder / ".dvc")
    shutil.rmtree(clone.folder / ".git")
    assert clone.planned() == {} and faults(clone, plan) == []
    for verb in ("publish", "restore"):
        said = clone.subjectbench(verb, status=2)
        assert "no DVC repository" in said and "dvc init" in said
    # A plain copy of the folder is a transport as well.
    other = tmp_path / "other"
    shutil.copytree(clone.folder, other, ignore=shutil.ignore_patterns("results", ".snakemake"))
    shutil.copytree(clone.folder / "results", other / "results", symlinks=True)
    assert Clone(other).planned() == {}


@pytest.mark.long
def test_gc_lists_what_no_study_reaches_and_restore_brings_it_back(
    published: Clone, plan: Plan, tmp_path: Path
) -> None:
    clone = published.copy(tmp_path / "clone")
    stale = clone.folder / "results/store/.work/0123456789ab"
    stale.mkdir()
    (stale / "batch").write_bytes(b"0" * 5000)
    os.utime(stale, (1e9, 1e9))

    def gc(*args: str, status: int = 0) -> str:
        return clone.call("subjectbench", "gc", *args, status=status)

    said = gc()
    assert "kept: 10 artifacts" in said and "unreached" not in said and "would free 5.0 kB" in said
    (clone.folder / SMALL).unlink()
    assert "kept: 10 artifacts" in gc()  # results/latest
    (clone.folder / "results/latest").unlink()
    assert "unreached generate: 2" in (said := gc()) and "2 of them published" in said
    assert "kept: 10 artifacts" in gc("--keep", "small-")
    key = plan.of_kind("score")[0].key
    lock = clone.folder / "results/store/.locks" / key
    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert f"{key}: is being made" in gc("--delete", status=2)
    gc("--delete")
    left = [p.name for p in (clone.folder / "results").rglob("*") if p.is_file()]
    assert not [name for name in left if name == "manifest.json"] and not stale.exists()
    clone.call("git", "checkout", "--", SMALL)
    assert len(restore(clone, plan).fetched) == 10


@pytest.mark.long
def test_a_git_checkout_there_and_back(published: Clone, tmp_path: Path) -> None:
    """SMK-01: an edit in an imported module is seen, whatever git does to file times."""
    clone = published.copy(tmp_path / "clone")
    clone.call("git", "checkout", "--quiet", "-b", "other")
    module = clone.folder / "workflow/subjectbench/metrics/cosine.py"
    module.write_text(module.read_text().replace("norms == 0.0", "norms <= 0.0"))
    clone.commit()
    assert clone.planned() == SCALED
    assert "code of metrics.cosine" in clone.subjectbench("explain")
    clone.call("git", "checkout", "--quiet", "-")
    assert clone.planned() == {}


def test_a_cell_is_told_down_to_samples_weights_and_code(small: Clone) -> None:
    said = small.subjectbench("explain", "--cell", "coverage", "shuffled_subject", "mean")
    assert "48 valid rows of: 48 ok" in said and ", as the cell says" in said
    assert said.count("\n  worst ") == said.count("\n  best  ") == 3
    for part in ("benchmark miniworld", "generate miniworld/shuffled_subject/0", "code "):
        assert part in said
    assert "weights model.safetensors sha256 " in said and "packages numpy " in said
    said = small.subjectbench("explain", "--cell", "coverage", "mini_clip_i", "mean", status=2)
    assert "fits 2 rows" in said
    said = small.subjectbench("explain", "--cell", "coverage", "copy_reference", "men", status=2)
    assert "did you mean 'mean'" in said
