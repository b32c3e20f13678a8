"""The source of a commit, with what proves offline that it is the source of that commit.

A commit's id is the hash of the commit object, which names the hash of its tree, which names the
hash of every file. An archive holds all three, so that nobody needs git, or this repository, to
see that the files are those of the commit, and whoever has the repository sees that the commit is.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from subjectbench.errors import InputError

COMMIT, TREE, DIFF = "source.commit", "source.tree", "source.diff"
"""Members of an archive beside ``source/``: the commit object, the list of its files, and what
differed from it."""

MATTERS = ("Snakefile", "config.yaml", "envs", "profiles", "pyproject.toml", "workflow")
"""Parts of a checkout where a new file can change a result."""


ENTRY = re.compile(r"(100644|100755) blob ([0-9a-f]{40}|[0-9a-f]{64})\t(.+)")
"""A line of ``git ls-tree -r``."""


@dataclass(frozen=True)
class Source:
    """What a checkout holds.

    Attributes:
        commit: id of the commit that is checked out.
        date: of that commit, as YYYY-MM-DD in UTC.
        members: archive members by name: the files below ``source/``, and their proof.
        dirty: files that differ from the commit.
    """

    commit: str
    date: str
    members: dict[str, bytes]
    dirty: tuple[str, ...]


def _git(
    root: Path,
    *args: str,
    env: Mapping[str, str] | None = None,
    given: bytes = b"",
    ok: tuple[int, ...] = (0,),
) -> bytes:
    command = ["git", "-C", str(root), *args]
    done = subprocess.run(command, capture_output=True, env=env, input=given)
    if done.returncode not in ok:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise InputError(
            root,
            f"git {args[0]}: {said[-1] if said else 'failed'}",
            "archive from a git checkout: the source of a result must have a name",
        )
    return done.stdout


def read(root: Path, *, allow_dirty: bool = False) -> Source:
    """Read the source of the commit that is checked out.

    Files come from git's objects and not from the working tree, where line ends and filters may
    have changed them.

    Args:
        root: the checkout.
        allow_dirty: take a checkout with uncommitted changes; their diff becomes a member.

    Raises:
        InputError: no git checkout, no commit, links or submodules in it, uncommitted changes.
    """
    if not shutil.which("git"):
        raise InputError("git", "is not installed", "install it: the source is read by git")
    top = Path(os.fsdecode(_git(root, "rev-parse", "--show-toplevel").rstrip(b"\n")))
    if top.resolve() != root.resolve():
        raise InputError(root, f"is part of another repository: {top}", "archive from a clone")
    commit = _git(root, "rev-parse", "HEAD^{commit}").decode().strip()
    entries = [
        e for e in _git(root, "ls-tree", "-r", "-z", "--full-tree", commit).split(b"\0") if e
    ]
    members: dict[str, bytes] = {}
    blobs = []
    for entry in entries:
        facts, _, name = entry.partition(b"\t")
        mode, _, blob = facts.decode().split(" ")
        if mode not in ("100644", "100755") or b"\n" in name:
            raise InputError(
                name.decode(), "is a link, a submodule or of no name", "commit the file instead"
            )
        blobs.append((blob, f"source/{name.decode()}"))
    members |= dict(zip((n for _, n in blobs), _contents(root, [b for b, _ in blobs]), strict=True))
    members[COMMIT] = _git(root, "cat-file", "commit", commit)
    members[TREE] = b"".join(entry + b"\n" for entry in entries)
    date = _git(root, "show", "-s", "--format=%cd", "--date=format-local:%Y-%m-%d", commit,
                env={**os.environ, "TZ": "UTC"})  # fmt: skip
    dirty, diff = _changes(root)
    if dirty and not allow_dirty:
        more = f" and {len(dirty) - 3} more" if len(dirty) > 3 else ""
        raise InputError(
            root,
            f"has changes that are not committed: {', '.join(dirty[:3])}{more}",
            "commit them, or archive with --allow-dirty, which includes them as a diff and says so",
        )
    if dirty:
        members[DIFF] = diff
    return Source(commit, date.decode().strip(), members, dirty)


def _contents(root: Path, blobs: list[str]) -> Iterator[bytes]:
    stream = _git(root, "cat-file", "--batch", given="".join(f"{b}\n" for b in blobs).encode())
    start = 0
    for _ in blobs:
        end = stream.index(b"\n", start)
        size = int(stream[start:end].split(b" ")[2])
        yield stream[end + 1 : end + 1 + size]
        start = end + size + 2


def _changes(root: Path) -> tuple[tuple[str, ...], bytes]:
    """Files that differ from the commit, new ones among what matters, and their diff."""
    index = Path(os.fsdecode(_git(root, "rev-parse", "--git-path", "index").rstrip(b"\n")))
    with tempfile.TemporaryDirectory() as folder:
        # In a copy of the index, so that the user's own is left alone. With its time: git trusts
        # no entry as young as its index, and a newer copy would hide an edit within that second.
        copy = Path(folder) / "index"
        shutil.copy2(root / index, copy)
        env = {**os.environ, "GIT_INDEX_FILE": str(copy)}
        there = [p for p in MATTERS if (root / p).exists()]
        _git(root, "add", "--intent-to-add", "--", *there, env=env)
        # A file that was only touched is no change.
        _git(root, "update-index", "-q", "--refresh", env=env, ok=(0, 1))
        names = _git(root, "diff-index", "-z", "--name-only", "HEAD", env=env)
        diff = _git(root, "diff-index", "-p", "--binary", "--full-index", "--no-ext-diff",
                    "--no-textconv", "--no-color", "HEAD", env=env)  # fmt: skip
    return tuple(sorted(n.decode() for n in names.split(b"\0") if n)), diff


# --- the proof -----------------------------------------------------------------------------------


def _object(kind: str, data: bytes, algorithm: str) -> bytes:
    return hashlib.new(algorithm, f"{kind} {len(data)}\0".encode() + data).digest()


def prove(commit: str, names: Iterable[str], read: Callable[[str], bytes]) -> list[str]:
    """Check that an archive's source is that of a commit; return what is not, in words.

    Args:
        commit: id that the archive claims.
        names: of all members of the archive.
        read: returns a member's content.
    """
    there = set(names)
    if not {COMMIT, TREE} <= there:
        return [f"{COMMIT} or {TREE} is missing: the source cannot be held against its commit"]
    algorithm = {40: "sha1", 64: "sha256"}.get(len(commit))
    if algorithm is None:
        return [f"'{commit}' is no id of a commit"]
    faults = []
    if _object("commit", read(COMMIT), algorithm).hex() != commit:
        faults.append(f"{COMMIT} is not commit {commit}")
    files: dict[str, tuple[str, str]] = {}
    for line in read(TREE).removesuffix(b"\n").split(b"\n"):
        entry = ENTRY.fullmatch(line.decode(errors="replace"))
        if not entry:
            return [*faults, f"{TREE}: {line[:60]!r} is no file of a commit"]
        files[f"source/{entry[3]}"] = (entry[1], entry[2])
    source = {name for name in there if name.startswith("source/")}
    faults += [f"{n}: is not part of commit {commit[:12]}" for n in sorted(source - files.keys())]
    faults += [f"{n}: is missing" for n in sorted(files.keys() - source)]
    for name in sorted(source & files.keys()):
        if _object("blob", read(name), algorithm).hex() != files[name][1]:
            faults.append(f"{name}: is not the file of commit {commit[:12]}")
    if source != files.keys():
        return faults
    tree = _tree({n.removeprefix("source/"): facts for n, facts in files.items()}, algorithm)
    if f"tree {tree.hex()}".encode() != read(COMMIT).partition(b"\n")[0]:
        faults.append(f"{TREE} is not the list of files of commit {commit[:12]}")
    return faults


def _tree(files: Mapping[str, tuple[str, str]], algorithm: str) -> bytes:
    """Id of the tree object that holds these files, each with mode and id."""
    here: dict[str, tuple[str, bytes]] = {}
    below: dict[str, dict[str, tuple[str, str]]] = {}
    for name, facts in files.items():
        head, slash, rest = name.partition("/")
        if slash:
            below.setdefault(head, {})[rest] = facts
        else:
            here[head] = (facts[0], bytes.fromhex(facts[1]))
    here |= {name: ("40000", _tree(inner, algorithm)) for name, inner in below.items()}
    # git sorts a folder as if its name ended in a slash.
    order = sorted(here, key=lambda n: n.encode() + (b"/" if n in below else b""))
    data = b"".join(f"{here[n][0]} {n}\0".encode() + here[n][1] for n in order)
    return _object("tree", data, algorithm)


def head(root: Path) -> str:
    """Commit that is checked out; empty where there is none."""
    done = subprocess.run(["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True)
    return done.stdout.decode().strip() if done.returncode == 0 else ""


def knows(root: Path, commit: str) -> bool:
    """Whether the repository of a checkout has a commit."""
    done = subprocess.run(
        ["git", "-C", str(root), "cat-file", "-e", f"{commit}^{{commit}}"], capture_output=True
    )
    return done.returncode == 0
