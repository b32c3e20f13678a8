"""What publishing leaves in git, what a run would make, and the shape that keeps both small."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subjectbench.archive import explain
from subjectbench.archive.dvc import _absolute
from subjectbench.archive.index import Index, costly, refuse_remaking, size
from subjectbench.config import load_study
from subjectbench.errors import InputError
from subjectbench.plan import make_plan
from subjectbench.store import Artifact, Partial, Plan, Store
from subjectbench.store.identity import changed


def build(folder: Path, _: Partial) -> dict[str, int]:
    (folder / "x").write_bytes(b"12345")
    return {"ok": 1}


def chain(results: Path, scale: float = 1.0) -> Plan:
    """Pictures, their scores, and a report of them."""
    made = Artifact("generate", "mini/noise/0", {"seed": 0}, files=("x",))
    score = Artifact(
        "score",
        "mini/clip/noise",
        {"params": {"scale": scale}, "code": {"subjectbench.metrics.cosine": f"{scale:.0f}abc"}},
        {"samples/0": made.key},
        ("x",),
    )
    report = Artifact("report", "mini", {}, {"scores": score.key}, ("x",))
    artifacts = {a.key: a for a in (made, score, report)}
    return Plan({"study": "mini", "run": {}}, str(results), artifacts, report.key)


@pytest.fixture
def made(tmp_path: Path) -> tuple[Plan, Store]:
    plan = chain(tmp_path / "results")
    store = Store(tmp_path / "results")
    for artifact in plan.artifacts.values():
        store.make(artifact, build)
    return plan, store


def test_the_list_of_what_is_published_is_the_same_bytes_in_any_order(
    made: tuple[Plan, Store], tmp_path: Path
) -> None:
    plan, store = made
    texts = []
    for order in (1, -1):
        index = Index(tmp_path)
        index.entries.clear()
        for artifact in list(plan.artifacts.values())[::order]:
            index.add(artifact, store)
        index.write()
        texts.append({p.name: p.read_text() for p in (tmp_path / "data").iterdir()})
    assert texts[0] == texts[1] and set(texts[0]) == {"generate.csv", "report.csv", "score.csv"}
    again = Index(tmp_path)
    assert again.entries == index.entries
    assert all(again.same(a, store) for a in plan.artifacts.values())
    assert {e.bytes for e in again.entries.values()} == {5}
    # A merge that keeps the lines of both sides, equal ones twice, in any order.
    path = tmp_path / "data" / "score.csv"
    head, *lines = path.read_text().splitlines()
    path.write_text("\n".join([head, "other/name,0123456789ab,7," + "0" * 64, *lines, *lines]))
    assert len(Index(tmp_path).entries) == 4


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name,key\n", "line 1"),
        ("name,key,bytes,manifest_sha256\na,b,c,d\n", "line 2"),
        ("name,key,bytes,manifest_sha256\n<<<<<<< HEAD\n", "line 2: cannot be read: <<<<<<< HEAD"),
        ("name,key,bytes,manifest_sha256\na,k,1,x\na,k,1,y\n", "line 3: key k has another entry"),
    ],
)
def test_a_damaged_list_is_named(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "score.csv").write_text(text)
    with pytest.raises(InputError, match=said):
        Index(tmp_path)


def test_what_a_run_makes_follows_from_the_end(made: tuple[Plan, Store], tmp_path: Path) -> None:
    plan, _ = made
    of = {a.kind: a for a in plan.artifacts.values()}

    def without(*kinds: str) -> list[str]:
        gone = {of[kind].key for kind in kinds}
        return [a.kind for a in plan.to_make(lambda a: a.key not in gone)]

    assert without("generate", "score") == []
    assert without("report") == ["report"]
    assert without("report", "generate") == ["report"]
    assert without("report", "score", "generate") == ["generate", "score", "report"]


def test_published_pictures_are_not_made_again_unless_told(
    made: tuple[Plan, Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, store = made
    index = Index(tmp_path)
    for artifact in plan.artifacts.values():
        index.add(artifact, store)
    index.write()
    other = chain(tmp_path / "elsewhere", scale=2.0)
    with pytest.raises(InputError, match="generate mini/noise/0") as error:
        refuse_remaking(other, tmp_path)
    assert "subjectbench restore" in error.value.mend
    monkeypatch.setenv("SUBJECTBENCH_REMAKE", "1")
    refuse_remaking(other, tmp_path)
    monkeypatch.setenv("SUBJECTBENCH_REMAKE", "0")
    refuse_remaking(chain(store.results, scale=2.0), tmp_path)  # its pictures are here


def test_asking_a_server_is_costly_and_a_judge_in_process_is_not() -> None:
    judge: dict[str, Any] = {"judge": {"remote": True}}
    assert costly(Artifact("judge", "x", {}, job=judge))
    assert not costly(Artifact("judge", "x", {}, job={"judge": {"remote": False}}))
    assert not costly(Artifact("score", "x", {}))


def test_explaining_names_the_change_once_and_what_follows(
    made: tuple[Plan, Store], tmp_path: Path
) -> None:
    plan, _ = made
    same = explain.explain(plan, tmp_path)
    assert same.jobs == [] and len(same.reused) == 3
    found = explain.explain(chain(tmp_path / "results", scale=2.0), tmp_path)
    text = explain.words(found)
    assert text.splitlines()[:6] == [
        "would run: 2 of 3 artifacts",
        "",
        "score mini/clip/noise",
        "  code of metrics.cosine",
        "  params.scale 1.0 -> 2.0",
        "  leaves 1 finished results behind, 5 B",
    ]
    assert "follow from these: 1 report" in text and "reused as they are: 1, 5 B" in text
    only = explain.explain(chain(tmp_path / "results", scale=2.0), tmp_path, "clip")
    assert [job.artifact.kind for job in only.jobs] == ["score"]
    with pytest.raises(InputError, match="no artifact of this study"):
        explain.explain(plan, tmp_path, "clap")


def test_the_nearest_finished_one_is_compared_with_not_the_newest(
    made: tuple[Plan, Store], tmp_path: Path
) -> None:
    _, store = made
    far = Artifact("score", "mini/clip/noise", {"params": {"a": 1, "b": 2, "c": 3}}, {}, ("x",))
    store.make(far, build)
    found = explain.explain(chain(tmp_path / "results", scale=3.0), tmp_path)
    assert found.jobs[0].causes == ("code of metrics.cosine", "params.scale 1.0 -> 3.0")
    assert len(found.jobs[0].behind) == 2


def test_a_damaged_artifact_is_no_missing_one(made: tuple[Plan, Store], tmp_path: Path) -> None:
    plan, store = made
    folder = store.path(plan.of_kind("report")[0])
    (folder / "x").write_bytes(b"1")
    assert "is here but incomplete" in explain.words(explain.explain(plan, tmp_path))
    assert store.verify(folder) == [f"{folder}/x: bytes differ from the manifest"]


def test_a_manifest_of_another_artifact_is_found(made: tuple[Plan, Store]) -> None:
    """A whole manifest, edited: the key is the hash of what it says."""
    plan, store = made
    path = store.path(plan.of_kind("score")[0]) / "manifest.json"
    path.write_text(path.read_text().replace('"scale": 1.0', '"scale": 2.0'))
    assert store.verify(path.parent) == [f"{path}: is not the manifest of this key"]
    path.write_text("{")
    assert "damaged" in store.verify(path.parent)[0]


def test_a_named_thing_in_a_list_is_told_of_by_its_name() -> None:
    old = {"metrics": [{"name": "a", "k": 1}, {"name": "b", "k": 1}]}
    new = {"metrics": [{"name": "b", "k": 2}, {"name": "a", "k": 1}]}
    assert changed(old, new) == ["metrics.b.k 1 -> 2"]


def test_remotes_in_relative_folders_keep_their_place(tmp_path: Path) -> None:
    config = "[core]\n    remote = a\n['remote \"a\"']\n    url = ../../x y\n['remote \"b\"']\n"
    config += "    url = s3://bucket/path\n['remote \"c\"']\n    url = /data/r\n"
    out = _absolute(config, Path("/home/me/repo/.dvc"))
    assert "url = /home/me/x y\n" in out
    assert "url = s3://bucket/path\n" in out and "url = /data/r\n" in out


@given(st.integers(0, 10**15))
def test_sizes_are_short(count: int) -> None:
    assert len(size(count)) <= 12 and size(999) == "999 B" and size(12_345_678) == "12.3 MB"


@pytest.mark.parametrize(
    "name", ["p" * 240, "p" * 30, "ab" * 25, "../x", "/x", "x/", "{brace}", "a\nb"]
)
def test_names_that_would_break_snakemake_are_refused(name: str) -> None:
    """SMK-09: Snakemake fails from inside on a wildcard that repeats itself 20 times."""
    study = {
        "study": "trial",
        "benchmark": "miniworld",
        "generators": [{"card": "noise", "name": name}, "copy_reference"],
        "metrics": ["mini_clip_i"],
    }
    with pytest.raises(InputError, match=r"generators\.0"):
        load_study(study)


def test_many_pictures_are_few_jobs_and_few_files(tmp_path: Path) -> None:
    """SMK-10, DVC-05: 12 models x 40 subjects x 12 prompts x 4 seeds."""
    study = load_study(
        {
            "study": "many",
            "benchmark": {"card": "miniworld", "params": {"subjects": 40}},
            "generators": [{"card": "noise", "name": f"m{i}"} for i in range(12)],
            "metrics": ["mini_clip_i", "mini_clip_t", "mini_dino"],
            "samples_per_case": 4,
            "shards": 4,
            "results": str(tmp_path),
        }
    )
    started = time.process_time()
    plan = make_plan(study)
    assert time.process_time() - started < 60
    pictures = 12 * 40 * 12 * 4
    assert pictures > 20_000 and len(plan.artifacts) < 2000
    assert sum(len(a.files) + 1 for a in plan.artifacts.values()) < 1000
    assert {len(a.files) for a in plan.of_kind("generate")} == {2}
