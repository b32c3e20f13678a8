"""Source in an archive: that of the commit, provably, and nothing that git's settings change."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subjectbench.archive import source
from subjectbench.errors import InputError


def git(folder: Path, *args: str) -> str:
    env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    env |= {f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER")
            for what, value in (("NAME", "N"), ("EMAIL", "e@x"), ("DATE", "2026-11-30T23:30:00-0500"))}  # fmt: skip # noqa: E501
    done = subprocess.run(["git", *args], cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "a b'c"
    (folder / "workflow" / "deep").mkdir(parents=True)
    (folder / "Snakefile").write_bytes(b"one\r\ntwo\n")
    # Sorted by git as "workflow/": after "workflow-x", before "workflow0".
    for name in ("workflow-x", "workflow0", "workflow/deep/é.py", "workflow/a.py"):
        (folder / name).write_text(name)
    (folder / "run").write_text("#!/bin/sh\n")
    (folder / "run").chmod(0o755)
    (folder / ".gitignore").write_text("/results/\n")
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "all")
    return folder


def prove(found: source.Source, **changes: bytes) -> list[str]:
    members = found.members | {n.replace("__", "/"): v for n, v in changes.items()}
    return source.prove(found.commit, members, members.__getitem__)


def test_source_is_that_of_the_commit_and_proves_it(repository: Path) -> None:
    found = source.read(repository)
    assert found.commit == git(repository, "rev-parse", "HEAD").strip()
    assert found.date == "2026-12-01"  # in UTC
    names = {f"source/{n}" for n in git(repository, "ls-files", "-z").split("\0") if n}
    assert set(found.members) == names | {source.COMMIT, source.TREE} and not found.dirty
    assert found.members["source/Snakefile"] == b"one\r\ntwo\n"
    assert prove(found) == []
    assert source.knows(repository, found.commit) and source.head(repository) == found.commit
    assert not source.knows(repository, "0" * 40) and source.head(repository.parent) == ""


def test_every_lie_about_the_source_is_named(repository: Path) -> None:
    found = source.read(repository)
    assert prove(found, source__Snakefile=b"x") == [
        f"source/Snakefile: is not the file of commit {found.commit[:12]}"
    ]
    assert "is not part of commit" in prove(found, source__new=b"x")[0]
    less = {n: v for n, v in found.members.items() if n != "source/run"}
    assert source.prove(found.commit, less, less.__getitem__) == ["source/run: is missing"]
    # A file and the list changed together: then the list is not that of the commit.
    blob = hashlib.sha1(b"blob 1\0x").hexdigest().encode()
    lines = [b"100644 blob " + blob + b"\tSnakefile" if line.endswith(b"\tSnakefile") else line
             for line in found.members[source.TREE].splitlines()]  # fmt: skip
    changed = {"source__Snakefile": b"x", source.TREE: b"\n".join(lines) + b"\n"}
    assert "is not the list of files" in prove(found, **changed)[0]
    mode = found.members[source.TREE].replace(b"100755", b"100644")
    assert "is not the list of files" in prove(found, **{source.TREE: mode})[0]
    text = found.members[source.COMMIT].replace(b"all", b"some")
    assert f"is not commit {found.commit}" in prove(found, **{source.COMMIT: text})[0]
    assert "is no id" in source.prove("abc", found.members, found.members.__getitem__)[0]
    assert "is missing" in source.prove(found.commit, [], found.members.__getitem__)[0]


@settings(max_examples=60, deadline=None)
@given(
    st.binary(max_size=200),
    st.binary(max_size=200)
    | st.from_regex(r"(100644 blob [0-9a-f]{40}\t(a|source|a/b|é)\n){0,3}", fullmatch=True).map(
        str.encode
    ),
)
def test_a_forged_proof_is_a_fault_and_no_crash(commit: bytes, tree: bytes) -> None:
    members = {source.COMMIT: commit, source.TREE: tree, "source/a": b""}
    assert source.prove("0" * 40, members, members.__getitem__)


def test_a_users_settings_change_nothing(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = source.read(repository)
    other = repository.parent / "clone"
    git(repository.parent, "clone", "-q", str(repository), str(other))
    for name, value in (
        ("core.autocrlf", "true"), ("core.quotePath", "false"), ("diff.noprefix", "true"),
        ("color.ui", "always"), ("log.date", "relative"), ("core.abbrev", "4"),
    ):  # fmt: skip
        git(other, "config", name, value)
    (other / ".git" / "info" / "attributes").write_text("* text=auto eol=crlf export-ignore\n")
    git(other, "checkout", "-q", "--", ".")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    after = source.read(other, allow_dirty=True)
    assert (after.commit, after.date) == (before.commit, before.date)
    assert {n: after.members[n] for n in before.members} == before.members


def test_uncommitted_changes_are_refused_or_told(repository: Path) -> None:
    (repository / "results").mkdir()
    (repository / "results" / "x").write_text("ignored")
    (repository / "notes.txt").write_text("new, but where no result comes from")
    os.utime(repository / "Snakefile")  # touched is not changed
    assert source.read(repository).dirty == ()
    (repository / "Snakefile").write_bytes(b"one\r\nthree\n")
    (repository / "workflow" / "card.yaml").write_bytes(b"\0new\n")
    (repository / "run").unlink()
    index = (repository / ".git" / "index").read_bytes()
    with pytest.raises(InputError, match=r"not committed: Snakefile, run, workflow/card\.yaml"):
        source.read(repository)
    found = source.read(repository, allow_dirty=True)
    assert found.dirty == ("Snakefile", "run", "workflow/card.yaml")
    assert (repository / ".git" / "index").read_bytes() == index
    assert git(repository, "status", "--porcelain").count("\n") == 4
    # The commit and the diff together are what was there.
    clone = repository.parent / "clone"
    git(repository.parent, "clone", "-q", str(repository), str(clone))
    (clone / "diff").write_bytes(found.members[source.DIFF])
    git(clone, "apply", "--index", "diff")
    assert (clone / "Snakefile").read_bytes() == b"one\r\nthree\n"
    assert (clone / "workflow" / "card.yaml").read_bytes() == b"\0new\n"
    assert not (clone / "run").exists()
    assert source.read(repository, allow_dirty=True).members == found.members


def test_an_edit_within_the_second_of_the_checkout_is_seen(repository: Path) -> None:
    """Same size, same times to the second: git looks inside, since its index is as young."""
    git(repository, "config", "core.trustctime", "false")
    file, index = repository / "workflow/a.py", repository / ".git/index"
    os.utime(file, (1e9, 1e9))
    git(repository, "update-index", "--refresh")
    os.utime(index, (1e9, 1e9))
    file.write_text("workflow/b.py")
    os.utime(file, (1e9, 1e9))
    assert git(repository, "diff", "--name-only") == "workflow/a.py\n"
    with pytest.raises(InputError, match=r"not committed: workflow/a\.py"):
        source.read(repository)


def test_what_has_no_name_is_refused(repository: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is part of another repository"):
        source.read(repository / "workflow")
    (tmp_path / "bare").mkdir()
    with pytest.raises(InputError, match="git rev-parse"):
        source.read(tmp_path / "bare")
    (repository / "workflow" / "link").symlink_to("/etc/passwd")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "link")
    with pytest.raises(InputError, match="workflow/link: is a link"):
        source.read(repository)
