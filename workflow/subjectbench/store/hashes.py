"""Hashes of large source files, remembered: a study is planned again by each of its jobs.

A file is taken for unchanged while its size, inode and both times to the nanosecond are. The time
of the last change of status cannot be set by programs, so copying old times onto new bytes shows.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from pathlib import Path

from subjectbench.hashing import sha256_file

SMALL = 1 << 16
"""Bytes; below, hashing costs no more than looking up."""

SETTLED = 2.0
"""Seconds; a file that changed just now may change again without a new time, as clocks tick."""

_TABLE = "CREATE TABLE IF NOT EXISTS hashes(path TEXT PRIMARY KEY, seen TEXT, sha256 TEXT)"


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "subjectbench" / "hashes.sqlite"


def sha256_once(path: Path) -> str:
    """sha256 of a file; hex. Looked up if the file was hashed before and did not change."""
    facts = path.stat()
    if facts.st_size < SMALL or time.time() - max(facts.st_ctime, facts.st_mtime) < SETTLED:
        return sha256_file(path)
    seen = f"{facts.st_size} {facts.st_dev} {facts.st_ino} {facts.st_mtime_ns} {facts.st_ctime_ns}"
    name = os.path.abspath(path)  # noqa: PTH100 -- a link is a file under its own name
    try:
        cache = _cache()
        cache.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.closing(sqlite3.connect(cache, timeout=10, isolation_level=None)) as known:
            known.execute("PRAGMA journal_mode = WAL")
            known.execute(_TABLE)
            ask = "SELECT sha256 FROM hashes WHERE path = ? AND seen = ?"
            row = known.execute(ask, (name, seen)).fetchone()
            if row:
                return str(row[0])
            found = sha256_file(path)
            known.execute("INSERT OR REPLACE INTO hashes VALUES (?, ?, ?)", (name, seen, found))
            return found
    except (OSError, sqlite3.Error):  # no home, or a full disk: only slower
        return sha256_file(path)
