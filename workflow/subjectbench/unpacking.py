"""Archives that others made: looked through before the first byte is written.

What a name, a link or a size could do to the machine is decided here once, for ZIP and tar alike.
"""

from __future__ import annotations

import gzip
import hashlib
import lzma
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from subjectbench.errors import InputError
from subjectbench.hashing import sha256_file
from subjectbench.images import CHUNK, ZipReader, check_names, sniff

MAX_RATIO = 20
"""Most times its own size that an archive may unpack to: pictures hardly shrink."""

DAMAGED = (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile)


def unpack(archive: Path, target: Path) -> bool:
    """Unpack an archive into a folder that appears whole.

    Returns:
        False if the folder was there already, with the same files.

    Raises:
        InputError: as :func:`members`, or the folder holds something else.
    """
    with members(archive) as found:
        if target.exists():
            for name, data in found:
                there = target / name
                if not there.is_file() or sha256_file(there) != hash_of(data):
                    raise InputError(
                        there, f"is not as in {archive.name}", f"move {target} away, fetch again"
                    )
            return False
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=".unpack-", dir=target.parent))
        try:
            for name, data in found:
                path = temporary / name
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("wb") as out:
                    out.writelines(data)
            temporary.chmod(0o755)  # mkdtemp makes it private
            temporary.rename(target)
        except BaseException:
            shutil.rmtree(temporary)
            raise
    return True


def hash_of(chunks: Iterator[bytes]) -> str:
    """sha256 of bytes that come in pieces; hex."""
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


@contextmanager
def members(archive: Path) -> Iterator[Iterator[tuple[str, Iterator[bytes]]]]:
    """Names and contents of an archive's files, checked before the first is read.

    Raises:
        InputError: no archive, or one with links, devices, names that leave the folder or meet, or
            that unpacks to more than ``MAX_RATIO`` times its size.
    """
    limit = MAX_RATIO * archive.stat().st_size
    with archive.open("rb") as opened:
        kind = sniff(opened.read(512))
    if kind == "ZIP archive":
        with ZipReader(archive) as reader:
            _within(archive, sum(reader.size(name) for name in reader), limit)
            yield ((name, reader.chunks(name)) for name in reader)
        return
    try:
        with closing(tarfile.open(archive)) as tar:
            files, total = [], 0
            for member in tar:  # step by step: a bomb is met before it is passed
                total += member.size
                _within(archive, total, limit)
                if not (member.isreg() or member.isdir()):
                    raise InputError(archive, f"member '{member.name}' is a link or a device")
                if member.isreg():
                    files.append((member.name.removeprefix("./"), member))
            check_names([name for name, _ in files], archive)
            yield ((name, _chunks(tar, member)) for name, member in files)
    except DAMAGED as error:
        raise InputError(archive, f"is no sound ZIP or tar: {error}") from None


def _chunks(tar: tarfile.TarFile, member: tarfile.TarInfo) -> Iterator[bytes]:
    data = tar.extractfile(member)
    assert data is not None  # regular files only
    yield from iter(lambda: data.read(CHUNK), b"")


def _within(archive: Path, total: int, limit: int) -> None:
    if total > limit:
        raise InputError(
            archive,
            f"unpacks to more than {MAX_RATIO} times its size",
            "unpack it by hand if you trust it",
        )
