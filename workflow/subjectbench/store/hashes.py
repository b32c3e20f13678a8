"""What was worked out about source files, remembered: each job of a study plans again.

A large file is taken for unchanged while its size, inode and both times to the nanosecond are. The
time of the last change of status cannot be set by programs, so copying old times onto new bytes
shows.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from subjectbench.hashing import sha256_file

SMALL = 1 << 16
"""Bytes; below, hashing costs no more than looking up."""

SETTLED = 2.0
"""Seconds; a file that changed just now may change again without a new time, as clocks tick."""

_TABLE = "CREATE TABLE IF NOT EXISTS remembered(key TEXT PRIMARY KEY, seen TEXT, value TEXT)"


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "subjectbench" / "hashes.sqlite"


def remembered(key: str, seen: str, make: Callable[[], str]) -> str:
    """Value of ``make()``, looked up if it was made before.

    Args:
        key: what the value is of.
        seen: all that the value depends on; it is made anew once this differs.
        make: called at most once.
    """
    value = None
    try:
        cache = _cache()
        cache.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.closing(sqlite3.connect(cache, timeout=10, isolation_level=None)) as known:
            known.execute("PRAGMA journal_mode = WAL")
            known.execute(_TABLE)
            ask = "SELECT value FROM remembered WHERE key = ? AND seen = ?"
            row = known.execute(ask, (key, seen)).fetchone()
            if row:
                return str(row[0])
            value = make()
            known.execute("INSERT OR REPLACE INTO remembered VALUES (?, ?, ?)", (key, seen, value))
            return value
    except (OSError, sqlite3.Error):  # no home, or a full disk: only slower
        return make() if value is None else value


def sha256_once(path: Path) -> str:
    """sha256 of a file; hex. Looked up if the file was hashed before and did not change."""
    facts = path.stat()
    if facts.st_size < SMALL or time.time() - max(facts.st_ctime, facts.st_mtime) < SETTLED:
        return sha256_file(path)
    seen = f"{facts.st_size} {facts.st_dev} {facts.st_ino} {facts.st_mtime_ns} {facts.st_ctime_ns}"
    name = os.path.abspath(path)  # noqa: PTH100 -- a link is a file under its own name
    return remembered(name, seen, lambda: sha256_file(path))
