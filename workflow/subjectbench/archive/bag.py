"""One file that says of itself what it must hold: a BagIt bag (RFC 8493) in a ZIP.

A ZIP and not a tar, because readers open one file of it without unpacking the rest, every member
carries its CRC, and everybody's system shows what is inside. Members are stored, not deflated:
deflated bytes differ between builds of zlib, and what is large here is compressed already. So the
bytes of a bag depend on nothing but its content, and a bag never grows when it is unpacked, which
leaves no room for a bomb.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from subjectbench import progress
from subjectbench.errors import InputError
from subjectbench.hashing import sha256, sha256_file
from subjectbench.images import ZipReader, check_names, write_zip
from subjectbench.unpacking import hash_of

DECLARATION = b"BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n"
PAYLOAD, TAGS = "manifest-sha256.txt", "tagmanifest-sha256.txt"
DEEPEST = 100
"""Most folders above a file."""
BYTES_OF_NAME = 255
"""Longest name of a file or folder that common systems keep, in bytes of UTF-8."""


def write(
    path: Path, name: str, payload: Mapping[str, bytes | Path], info: Mapping[str, str]
) -> None:
    """Write a bag, read it back, and only then give it its name.

    Args:
        path: of the file; replaced if it is there.
        name: of the folder inside.
        payload: content by name below ``data/``; a path stands for the bytes of that file.
        info: lines of ``bag-info.txt``.

    Raises:
        InputError: a name that some system cannot keep, or bytes that changed while being packed.
    """
    check_names(payload, path)
    for member in payload:
        _check_name(member, path)
    hashes = {
        f"data/{n}": sha256(v) if isinstance(v, bytes) else sha256_file(v)
        for n, v in progress.bar(payload.items(), len(payload), "hash")
    }
    sizes = [len(v) if isinstance(v, bytes) else v.stat().st_size for v in payload.values()]
    tags = {
        "bagit.txt": DECLARATION,
        "bag-info.txt": "".join(
            f"{label}: {' '.join(value.split())}\n"
            for label, value in {
                **info,
                "Payload-Oxum": f"{sum(sizes)}.{len(sizes)}",
            }.items()
        ).encode(),
        PAYLOAD: _lines(hashes),
    }
    tags[TAGS] = _lines({tag: sha256(data) for tag, data in tags.items()})
    members: dict[str, bytes | Path] = {f"{name}/{tag}": data for tag, data in tags.items()}
    members |= {f"{name}/data/{n}": v for n, v in payload.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:40]}-")
    os.close(handle)
    part = Path(temporary)
    try:
        write_zip(part, members)
        with Bag(part) as bag:
            if faults := bag.faults():
                raise InputError(path, f"did not come out as it went in: {faults[0]}", "try again")
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.chmod(0o644)
        part.replace(path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            part.unlink()


def _check_name(name: str, where: object) -> None:
    """Refuse what ``check_names`` does not, since a single ZIP on one system could hold it."""
    if "%" in name:
        raise InputError(
            where, f"the name {name} has a %, which readers of bags understand differently",
            "give it another",
        )  # fmt: skip
    if name.count("/") > DEEPEST:
        raise InputError(where, f"the name {name[:40]}... is more than {DEEPEST} folders deep")
    longest = max(name.split("/"), key=lambda part: len(part.encode()))
    if len(longest.encode()) > BYTES_OF_NAME:
        raise InputError(
            where,
            f"the name {longest[:40]}... has {len(longest.encode())} bytes; many systems allow "
            f"{BYTES_OF_NAME}",
            "give it a shorter one",
        )


def _lines(hashes: Mapping[str, str]) -> bytes:
    return "".join(f"{h}  {n}\n" for n, h in sorted(hashes.items())).encode()


class Bag:
    """A bag that somebody handed over. Opening it writes nothing and trusts nothing.

    Use it as a context manager. Names of members are those below ``data/``.

    Raises:
        InputError: at opening, if it is no bag in a ZIP, or has names that leave their folder or
            meet, links, members that grow when unpacked, more or less than its manifests list.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self._zip = ZipReader(self.path)
        try:
            self.name = self._name()
            self._grown()
            self._hashes = self._listed(PAYLOAD)
            self._tags = self._listed(TAGS)
            self._complete()
            self.info = self._info()
        except BaseException:
            self._zip.close()
            raise

    def _name(self) -> str:
        tops = {name.partition("/")[0] for name in self._zip}
        if len(tops) != 1 or f"{(top := next(iter(tops)))}/bagit.txt" not in self._zip:
            raise InputError(
                self.path, "is no archive of a run", "give a file that `subjectbench archive` wrote"
            )
        for name in self._zip:
            _check_name(name, self.path)
        return top

    def _grown(self) -> None:
        total = sum(self._zip.size(name) for name in self._zip)
        if total > self.path.stat().st_size:
            raise InputError(
                self.path,
                f"says that it unpacks to {total} bytes, more than the file itself has",
                "archives of runs are never compressed: do not trust this one",
            )

    def _listed(self, manifest: str) -> dict[str, str]:
        """Hash by name of one of the two manifests."""
        name = f"{self.name}/{manifest}"
        if name not in self._zip:
            raise InputError(self.path, f"has no {manifest}", "it is no whole archive of a run")
        out: dict[str, str] = {}
        for number, line in enumerate(self._text(manifest).splitlines(), start=1):
            digest, _, listed = line.partition("  ")
            if len(digest) != 64 or set(digest) - set("0123456789abcdef") or not listed:
                raise InputError(f"{self.path}: {manifest}: line {number}", "is no hash and name")
            if listed in out:
                raise InputError(f"{self.path}: {manifest}", f"lists '{listed}' twice")
            out[listed] = digest
        return out

    def _text(self, tag: str) -> str:
        try:
            return self._zip[f"{self.name}/{tag}"].decode()
        except UnicodeDecodeError as error:
            raise InputError(f"{self.path}: {tag}", f"is not UTF-8: {error}") from None

    def _complete(self) -> None:
        inside = {name.removeprefix(f"{self.name}/") for name in self._zip}
        listed = {*self._hashes, *self._tags, TAGS}
        strange = [n for n in self._hashes if not n.startswith("data/")]
        for names, fault in (
            (sorted(inside - listed), "holds files that no manifest lists"),
            (sorted(listed - inside), "lacks files that its manifests list"),
            (strange, "lists as payload what is outside data/"),
            ([n for n in self._tags if n.startswith("data/")], "lists payload as tags"),
        ):
            if names:
                more = f" and {len(names) - 3} more" if len(names) > 3 else ""
                raise InputError(
                    self.path,
                    f"{fault}: {', '.join(names[:3])}{more}",
                    "ask for the archive again, and compare its sha256",
                )
        if len(self._tags) < 3:
            raise InputError(self.path, f"{TAGS} does not list bagit.txt, bag-info.txt, {PAYLOAD}")

    def _info(self) -> dict[str, str]:
        lines = (line.partition(": ") for line in self._text("bag-info.txt").splitlines())
        return {label: value for label, _, value in lines}

    def faults(self) -> list[str]:
        """Hash every file; return what is not as its manifest says, in words."""
        out = []
        listed = {**self._tags, **self._hashes}
        for name, digest in progress.bar(listed.items(), len(listed), "hash"):
            try:
                found = hash_of(self._zip.chunks(f"{self.name}/{name}"))
            except InputError as error:
                out.append(f"{name}: {error.fault}")
                continue
            if found != digest:
                out.append(f"{name}: its sha256 is {found[:12]}..., not {digest[:12]}...")
        return out

    def __iter__(self) -> Iterator[str]:
        return (name.removeprefix("data/") for name in self._hashes)

    def __contains__(self, name: object) -> bool:
        return f"data/{name}" in self._hashes

    def hash(self, name: str) -> str:
        """sha256 of a member, as the manifest says."""
        return self._hashes[f"data/{name}"]

    def size(self, name: str) -> int:
        """Bytes of a member."""
        return self._zip.size(f"{self.name}/data/{name}")

    def read(self, name: str) -> bytes:
        """Content of a member.

        Raises:
            InputError: there is none, or it is damaged.
        """
        return self._zip[f"{self.name}/data/{name}"]

    def copy(self, name: str, path: Path) -> None:
        """Write a member to a file; its folder is made."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as out:
            out.writelines(self._zip.chunks(f"{self.name}/data/{name}"))

    def __enter__(self) -> Bag:
        return self

    def __exit__(self, *exc: object) -> None:
        self._zip.close()
