"""Fetching data that is not part of this repository, by a manifest that says what each file is.

A manifest is YAML: a base (an address or a folder) and files with sha256 and size. Nothing lands
under its name before its bytes were hashed; what a cut connection left is continued. Data comes
before plans, because a plan's keys hold the data's hashes: so this is a verb and not a rule.
"""

from __future__ import annotations

import fcntl
import os
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from http.client import HTTPException, InvalidURL
from pathlib import Path
from urllib.parse import quote, urljoin, urlsplit

import yaml
from pydantic import Field

from subjectbench import progress
from subjectbench.cards import read_yaml
from subjectbench.config import Strict, validate
from subjectbench.errors import InputError
from subjectbench.hashing import sha256, sha256_file
from subjectbench.images import check_names, sniff
from subjectbench.unpacking import unpack

TRIES = 5
"""Tries without a new byte before a file is given up."""
WAIT = 1.0
"""Seconds before the second try; each further one waits twice as long."""
TIMEOUT = 60.0
"""Seconds without a byte before a connection counts as cut."""
CHUNK = 1 << 20
LATER = frozenset((408, 425, 429, 500, 502, 503, 504))
"""HTTP answers that may pass."""


class File(Strict):
    """One file of a manifest."""

    path: str = Field(description="Where it lies in the folder, with /")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="Of its bytes")
    size: int = Field(ge=0, description="In bytes")
    url: str = Field(default="", description="Address, relative to base; its path if empty")
    unpack: str = Field(
        default="", description="Folder that an archive (ZIP, tar) is unpacked to; empty: it is not"
    )


class Manifest(Strict):
    """What a source offers."""

    title: str = ""
    about: str = ""
    base: str = Field(description="Address (http, https, file) or folder, relative to the manifest")
    files: list[File] = Field(min_length=1)


def read_manifest(path: Path) -> Manifest:
    """Read and check a manifest.

    Raises:
        InputError: not such a file, a hash that is none, or paths that leave the folder or meet.
    """
    value = read_yaml(path)
    if isinstance(value, dict) and isinstance(value.get("files"), list):
        for index, file in enumerate(value["files"]):
            given = file.get("sha256") if isinstance(file, dict) else None
            if isinstance(given, str) and given.startswith("FILL"):
                raise InputError(
                    f"{path}: files.{index}.sha256",
                    "is not filled in: nobody published it with the data",
                    "get the files once in a way that you trust, run `subjectbench fetch "
                    "--write-manifest FOLDER` and keep what it prints here",
                )
    manifest = validate(Manifest, value, path)
    unpacked = [file.unpack for file in manifest.files if file.unpack]
    check_names([*(file.path for file in manifest.files), *unpacked], path)
    return manifest


def write_manifest(folder: Path, base: str) -> str:
    """Return a manifest of every file below a folder that is not hidden, sorted, as YAML.

    Raises:
        InputError: no such folder, nothing in it, a link, or a name that some system cannot keep.
    """
    if not folder.is_dir():
        raise InputError(folder, "no such folder")
    names = []
    for path in folder.rglob("*"):
        inside = path.relative_to(folder)
        if any(part.startswith(".") for part in inside.parts):
            continue
        if path.is_symlink():
            raise InputError(path, "is a link", "put the file itself there")
        if path.is_file():
            names.append(inside.as_posix())
    if not names:
        raise InputError(folder, "holds no file")
    names.sort()
    check_names(names, folder)
    files = [
        {"path": n, "sha256": sha256_file(folder / n), "size": (folder / n).stat().st_size}
        for n in progress.bar(names, len(names), "hash")
    ]
    return yaml.safe_dump({"base": base, "files": files}, sort_keys=False, allow_unicode=True)


def fetch(source: Path, folder: Path, jobs: int = 4) -> dict[str, int]:
    """Bring every file of a manifest into a folder, and unpack its archives.

    Args:
        source: the manifest.
        folder: made if it is not there; files that it holds already are hashed and kept.
        jobs: files in flight.

    Returns:
        How many files were ``fetched`` or there ``already``, and how many archives ``unpacked``.

    Raises:
        InputError: some file could not be had or is another; every other file is in its place.
    """
    manifest = read_manifest(source)
    urls = [address(manifest.base, source, file) for file in manifest.files]
    folder.mkdir(parents=True, exist_ok=True)
    counts = {"fetched": 0, "already": 0, "unpacked": 0}
    faults: list[InputError] = []
    with _alone(folder):
        with ThreadPoolExecutor(jobs) as pool:
            working = [
                pool.submit(_bring, url, file, folder)
                for url, file in zip(urls, manifest.files, strict=True)
            ]
            try:
                for done in progress.bar(as_completed(working), len(working), "fetch"):
                    try:
                        counts["fetched" if done.result() else "already"] += 1
                    except InputError as error:
                        faults.append(error)
            except BaseException:
                pool.shutdown(cancel_futures=True)  # Ctrl-C: begin no further file
                raise
        if faults:
            first = min(faults, key=lambda error: error.where)
            more = f" (and {len(faults) - 1} more of {len(urls)} files)" if faults[1:] else ""
            raise InputError(first.where, first.fault + more, first.mend)
        for file in manifest.files:
            if file.unpack and unpack(folder / file.path, folder / file.unpack):
                counts["unpacked"] += 1
    return counts


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Two processes would continue the same parts."""
    with (folder / ".fetch.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(folder, "another fetch works here", "wait until it ends") from None
        yield


# --- one file ------------------------------------------------------------------------------------


def address(base: str, source: Path, file: File) -> str:
    """Return where a file comes from: a URL of scheme http, https or file.

    Raises:
        InputError: another scheme.
    """
    if not urlsplit(base).scheme:
        base = (source.parent / base).resolve().as_uri()
    url = urljoin(base.rstrip("/") + "/", file.url or quote(file.path))
    if urlsplit(url).scheme not in ("http", "https", "file"):
        raise InputError(f"{source}: {file.path}", f"{url} is not http, https or file")
    return url


def _bring(url: str, file: File, folder: Path) -> bool:
    """Bring one file; False if it was there already."""
    target = folder / file.path
    if target.exists():
        if target.is_file() and sha256_file(target) == file.sha256:
            return False
        raise InputError(target, "is there with other content", "move it away and fetch again")
    target.parent.mkdir(parents=True, exist_ok=True)
    # The hash keeps a part from being continued for another version, the name from two at once.
    part = target.with_name(f".{file.sha256[:12]}-{sha256(target.name.encode())[:12]}.part")
    _download(url, part, file)
    found = sha256_file(part)
    if found != file.sha256:
        with part.open("rb") as opened:
            kind = sniff(opened.read(512))
        part.unlink()
        told = f" (it is {kind})" if kind else ""
        raise InputError(
            url, f"its sha256 is {found}, not {file.sha256}{told}", "the source offers another file"
        )
    part.replace(target)
    return True


def _download(url: str, part: Path, file: File) -> None:
    """Fill ``part`` up to the declared size, continuing after cut connections."""
    tries, best = 0, 0
    while True:
        before = part.stat().st_size if part.exists() else 0
        if part.exists() and before == file.size:
            return
        if before > file.size:
            part.unlink()
            continue
        try:
            _receive(url, part, before, file.size)
            fault = "the connection was cut"
        except urllib.error.HTTPError as error:
            if error.code == 416 and before:
                part.unlink()
                raise InputError(
                    url, f"the source ends after {before} bytes where {file.size} are expected"
                ) from None
            if error.code not in LATER:
                raise InputError(url, f"the server answers {error.code} {error.reason}") from None
            fault = f"the server answers {error.code} {error.reason}"
        except InvalidURL as error:
            raise InputError(url, f"is no address: {error}") from None
        except (OSError, HTTPException) as error:
            # urllib wraps what goes wrong before the answer, but not what goes wrong after it.
            reason = getattr(error, "reason", None) or error
            if isinstance(reason, FileNotFoundError) or urlsplit(url).scheme == "file":
                raise InputError(url, f"cannot be read: {reason}") from None
            fault = str(reason) or type(reason).__name__
        after = part.stat().st_size if part.exists() else 0
        if after == file.size:
            continue
        tries = 0 if after > best else tries + 1
        best = max(best, after)
        if tries == TRIES:
            raise InputError(
                url,
                f"given up at {after} of {file.size} bytes: {fault}",
                "run the same command again: it continues",
            )
        time.sleep(WAIT * 2 ** max(tries - 1, 0))


def _receive(url: str, part: Path, start: int, size: int) -> None:
    """Append what the server sends from byte ``start`` on; start again if it sends all."""
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})
    with urllib.request.urlopen(
        urllib.request.Request(url, headers=headers), timeout=TIMEOUT
    ) as answer:
        continued = start and answer.headers.get("Content-Range", "").startswith(f"bytes {start}-")
        offered = answer.headers.get("Content-Length")
        expected = size - start if continued else size
        if offered is not None and int(offered) != expected:
            raise InputError(
                url,
                f"the source offers {offered} bytes where {expected} are expected",
                "it offers another file, or a page instead of it",
            )
        with part.open("ab" if continued else "wb") as out:
            left = expected
            while chunk := answer.read(min(CHUNK, left + 1)):
                left -= len(chunk)
                if left < 0:
                    raise InputError(url, f"the source sends more than {size} bytes")
                out.write(chunk)
            out.flush()
            os.fsync(out.fileno())
