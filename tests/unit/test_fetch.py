"""Fetching: a real server that cuts, lies and forgets; archives that mean harm."""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import re
import stat
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from subjectbench import fetch
from subjectbench.cards import ROOT
from subjectbench.cli import main
from subjectbench.errors import InputError


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Source:
    """What a server has, how it misbehaves, and what it was asked."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[tuple[str, str | None]] = []
        self.cut_after: dict[str, list[int]] = {}
        """Bytes that the next answers for a path send before the connection is cut."""
        self.answers: dict[str, list[int]] = {}
        """HTTP status of the next answers for a path."""
        self.ranges = True
        self.lengths = True
        self.base = ""
        self.now = self.most = 0
        self.lock = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    source: Source

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        source = self.source
        with source.lock:
            source.now += 1
            source.most = max(source.most, source.now)
        try:
            self._answer()
        finally:
            with source.lock:
                source.now -= 1

    def _answer(self) -> None:
        source, path = self.source, self.path.lstrip("/")
        source.asked.append((path, self.headers.get("Range")))
        status = source.answers.get(path, []).pop(0) if source.answers.get(path) else 200
        data = source.files.get(path)
        if status != 200 or data is None:
            self.send_error(status if status != 200 else 404)
            return
        start = 0
        found = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")
        if found and source.ranges:
            start = int(found[1])
            if start >= len(data):
                self.send_error(416)
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        else:
            self.send_response(200)
        if source.lengths:
            self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        cuts = source.cut_after.get(path)
        self.wfile.write(data[start : start + cuts.pop(0)] if cuts else data[start:])


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Iterator[Source]:
    monkeypatch.setattr(fetch, "WAIT", 0.001)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    source = Source()
    handler = type("Bound", (Handler,), {"source": source})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    source.base = f"http://127.0.0.1:{server.server_port}/"
    yield source
    server.shutdown()
    server.server_close()
    thread.join()


def manifest(tmp_path: Path, base: str, files: dict[str, bytes], **extra: dict[str, str]) -> Path:
    entries = [
        {"path": name, "sha256": sha(data), "size": len(data), **extra.get(name, {})}
        for name, data in files.items()
    ]
    path = tmp_path / "source.yaml"
    path.write_text(yaml.safe_dump({"base": base, "files": entries}))
    return path


def tree(folder: Path) -> dict[str, bytes]:
    return {
        p.relative_to(folder).as_posix(): p.read_bytes()
        for p in sorted(folder.rglob("*"))
        if p.is_file() and p.name != ".fetch.lock"
    }


FILES = {f"images/{i}.jpg": os.urandom(5000 + i) for i in range(6)} | {"a b/é.txt": b""}


def served(files: dict[str, bytes]) -> dict[str, bytes]:
    return {quote(name): data for name, data in files.items()}


def test_files_come_whole_and_a_second_time_nothing_is_asked(
    source: Source, tmp_path: Path
) -> None:
    source.files = served(FILES)
    path = manifest(tmp_path, source.base, FILES)
    assert fetch.fetch(path, tmp_path / "to", jobs=2) == {
        "fetched": 7, "already": 0, "unpacked": 0
    }  # fmt: skip
    assert tree(tmp_path / "to") == FILES
    assert source.most <= 2
    asked = len(source.asked)
    assert fetch.fetch(path, tmp_path / "to")["already"] == 7
    assert len(source.asked) == asked


def test_a_cut_connection_is_continued(source: Source, tmp_path: Path) -> None:
    source.files = {"x.bin": os.urandom(100_000)}
    source.cut_after["x.bin"] = [30_000, 0, 20_000]
    fetch.fetch(manifest(tmp_path, source.base, source.files), tmp_path / "to")
    assert tree(tmp_path / "to") == source.files
    assert [r for _, r in source.asked] == [None, *[f"bytes={n}000-" for n in (30, 30, 50)]]


def test_a_killed_run_is_continued_by_the_next(source: Source, tmp_path: Path) -> None:
    source.files = {"x.bin": os.urandom(100_000)}
    path = manifest(tmp_path, source.base, source.files)
    source.cut_after["x.bin"] = [30_000, *[0] * fetch.TRIES]
    with pytest.raises(InputError, match="given up at 30000 of 100000 bytes") as caught:
        fetch.fetch(path, tmp_path / "to")
    assert "continues" in caught.value.mend
    assert not (tmp_path / "to" / "x.bin").exists()
    source.asked.clear()
    assert fetch.fetch(path, tmp_path / "to")["fetched"] == 1
    assert source.asked == [("x.bin", "bytes=30000-")]
    assert tree(tmp_path / "to") == source.files


def test_a_server_without_ranges_starts_again_and_is_given_up_in_the_end(
    source: Source, tmp_path: Path
) -> None:
    source.files, source.ranges = {"x.bin": os.urandom(100_000)}, False
    path = manifest(tmp_path, source.base, source.files)
    source.cut_after["x.bin"] = [50_000, 60_000] * 20
    with pytest.raises(InputError, match="given up"):
        fetch.fetch(path, tmp_path / "to")
    source.cut_after.clear()
    fetch.fetch(path, tmp_path / "to")
    assert tree(tmp_path / "to") == source.files


@pytest.mark.parametrize("lengths", [True, False])
def test_another_file_is_refused(lengths: bool, source: Source, tmp_path: Path) -> None:
    source.lengths = lengths
    source.files = {"good": b"good", "bad": b"<html>no</html>", "long": b"12345", "short": b"1"}
    declared = {"good": b"good", "bad": b"<HTML>no</html>", "long": b"1234", "short": b"12"}
    path = manifest(tmp_path, source.base, declared)
    for name, fault in {
        "bad": r"its sha256 is \w{64}, not \w{64} \(it is HTML\)",
        "long": "offers 5 bytes where 4 are" if lengths else "more than 4 bytes",
        "short": "offers 1 bytes where 2 are" if lengths else "ends after 1 bytes where 2 are",
    }.items():
        alone = manifest(tmp_path, source.base, {name: declared[name]})
        with pytest.raises(InputError, match=fault) as caught:
            fetch.fetch(alone, tmp_path / name)
        assert name in caught.value.where
        assert not (tmp_path / name / name).exists()
    path = manifest(tmp_path, source.base, declared)
    with pytest.raises(InputError, match=r"\(and 2 more of 4 files\)"):
        fetch.fetch(path, tmp_path / "to")
    assert (tmp_path / "to" / "good").read_bytes() == b"good"  # the rest is there


def test_a_part_of_another_version_is_not_continued(source: Source, tmp_path: Path) -> None:
    old, new = b"o" * 1000, b"n" * 1000
    source.files = {"x": old}
    source.cut_after["x"] = [500, *[0] * fetch.TRIES]
    with pytest.raises(InputError, match="given up"):
        fetch.fetch(manifest(tmp_path, source.base, {"x": old}), tmp_path / "to")
    source.files = {"x": new}
    fetch.fetch(manifest(tmp_path, source.base, {"x": new}), tmp_path / "to")
    assert (tmp_path / "to" / "x").read_bytes() == new


def test_what_may_pass_is_tried_again_and_what_may_not_is_not(
    source: Source, tmp_path: Path
) -> None:
    source.files = {"x": b"x", "y": b"y"}
    source.answers = {"x": [503, 429], "y": [403]}
    with pytest.raises(InputError, match="the server answers 403 Forbidden"):
        fetch.fetch(manifest(tmp_path, source.base, source.files), tmp_path / "to")
    asked = [path for path, _ in source.asked]
    assert (asked.count("x"), asked.count("y")) == (3, 1)
    with pytest.raises(InputError, match="answers 404"):
        fetch.fetch(manifest(tmp_path, source.base, {"z": b"z"}), tmp_path / "to")


def test_nobody_listens(source: Source, tmp_path: Path) -> None:
    path = manifest(tmp_path, "http://127.0.0.1:9/", {"x": b"x"})
    with pytest.raises(InputError, match=r"given up at 0 of 1 bytes: .*refused"):
        fetch.fetch(path, tmp_path / "to")


def test_a_file_of_ones_own_is_not_overwritten(source: Source, tmp_path: Path) -> None:
    source.files = {"x": b"new"}
    (tmp_path / "to").mkdir()
    (tmp_path / "to" / "x").write_bytes(b"mine")
    with pytest.raises(InputError, match="is there with other content"):
        fetch.fetch(manifest(tmp_path, source.base, source.files), tmp_path / "to")
    assert (tmp_path / "to" / "x").read_bytes() == b"mine" and source.asked == []


def test_folders_as_sources_and_twins(tmp_path: Path) -> None:
    """A base can be a folder beside the manifest; equal files do not disturb each other."""
    files = {f"{i}.bin": b"same" * 1000 for i in range(8)}
    for name, data in files.items():
        (tmp_path / "there" / "d").mkdir(parents=True, exist_ok=True)
        (tmp_path / "there" / "d" / name).write_bytes(data)
    named = {f"d/{name}": data for name, data in files.items()}
    for number, base in enumerate(
        ("there", str(tmp_path / "there"), (tmp_path / "there").as_uri())
    ):
        fetch.fetch(manifest(tmp_path, base, named), tmp_path / f"to{number}", jobs=8)
        assert tree(tmp_path / f"to{number}") == named
    with pytest.raises(InputError, match=r"cannot be read: .*No such file"):
        fetch.fetch(manifest(tmp_path, "there", {"e": b"e"}), tmp_path / "to")


def test_one_fetch_at_a_time(tmp_path: Path) -> None:
    (tmp_path / "to").mkdir()
    with (tmp_path / "to" / ".fetch.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(InputError, match="another fetch works here"):
            fetch.fetch(manifest(tmp_path, ".", {"x": b"x"}), tmp_path / "to")


# --- manifests -----------------------------------------------------------------------------------


def test_a_written_manifest_brings_the_folder_back(tmp_path: Path) -> None:
    for name, data in FILES.items():
        (tmp_path / "from" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "from" / name).write_bytes(data)
    (tmp_path / "from" / ".DS_Store").write_bytes(b"x")
    text = fetch.write_manifest(tmp_path / "from", "from")
    assert text == fetch.write_manifest(tmp_path / "from", "from")
    (tmp_path / "m.yaml").write_text(text)
    fetch.fetch(tmp_path / "m.yaml", tmp_path / "to")
    assert tree(tmp_path / "to") == FILES
    (tmp_path / "from" / "link").symlink_to("images")
    with pytest.raises(InputError, match="is a link"):
        fetch.write_manifest(tmp_path / "from", "from")
    with pytest.raises(InputError, match="no such folder"):
        fetch.write_manifest(tmp_path / "nowhere", "x")
    (tmp_path / "bare").mkdir()
    with pytest.raises(InputError, match="holds no file"):
        fetch.write_manifest(tmp_path / "bare", "x")


GOOD = {"path": "x", "sha256": "0" * 64, "size": 1}


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ({"base": "b", "files": []}, "files"),
        ({"base": "b"}, "files: is required"),
        ({"files": [GOOD]}, "base: is required"),
        ({"base": "b", "files": [{**GOOD, "sha": "1"}]}, "unknown key 'sha'"),
        ({"base": "b", "files": [{**GOOD, "sha256": "0" * 63}]}, "sha256"),
        ({"base": "b", "files": [{**GOOD, "sha256": "A" * 64}]}, "sha256"),
        ({"base": "b", "files": [{**GOOD, "size": -1}]}, "size"),
        ({"base": "b", "files": [{**GOOD, "size": "1"}]}, "without quotes"),
        ({"base": "b", "files": [GOOD, GOOD]}, "'x' and 'x' are one file"),
        ({"base": "b", "files": [GOOD, {**GOOD, "path": "X"}]}, "one file on some systems"),
        ({"base": "b", "files": [{**GOOD, "path": "../x"}]}, "'..' part"),
        ({"base": "b", "files": [{**GOOD, "path": "/etc/x"}]}, "is absolute"),
        ({"base": "b", "files": [{**GOOD, "path": "a\\b"}]}, "backslash"),
        ({"base": "b", "files": [{**GOOD, "unpack": ".."}]}, "'..' part"),
        ({"base": "b", "files": [{**GOOD, "unpack": "x/y"}]}, "is a file and the folder"),
        ({"base": "ftp://h/", "files": [GOOD]}, "is not http, https or file"),
        ({"base": "http://h/", "files": [{**GOOD, "url": "data:,x"}]}, "is not http"),
    ],
)
def test_bad_manifests_are_refused_before_anything_is_asked(
    value: Any, fault: str, tmp_path: Path
) -> None:
    (tmp_path / "m.yaml").write_text(yaml.safe_dump(value))
    with pytest.raises(InputError, match=re.escape(fault)) as caught:
        fetch.fetch(tmp_path / "m.yaml", tmp_path / "to")
    assert "m.yaml" in caught.value.where
    assert not (tmp_path / "to").exists()


def test_the_template_of_dsh_bench_says_that_it_must_be_filled(shared: Any) -> None:
    path = ROOT / "workflow" / "sources" / "dsh_bench.yaml"
    with pytest.raises(InputError, match=r"files\.1\.sha256: is not filled in") as caught:
        fetch.read_manifest(path)
    assert "--write-manifest" in caught.value.mend
    known = yaml.safe_load(path.read_text())["files"][0]
    data = shared("dsh_bench/DSH-Bench_image_info.json").read_bytes()
    assert (sha(data), len(data)) == (known["sha256"], known["size"])


def test_the_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "from").mkdir()
    (tmp_path / "from" / "x").write_bytes(b"x")
    assert main(["fetch", "--write-manifest", str(tmp_path / "from"), "--base", "from"]) == 0
    (tmp_path / "m.yaml").write_text(capsys.readouterr().out)
    command = ["fetch", str(tmp_path / "m.yaml"), "--to", str(tmp_path / "to")]
    assert main(command) == 0 and "1 fetched, 0 already there" in capsys.readouterr().out
    assert main(command) == 0 and "0 fetched, 1 already there" in capsys.readouterr().out
    for wrong in (command[:2], command[:1], [*command, "--jobs", "0"]):
        assert main(wrong) == 2
    assert "error: command line" in capsys.readouterr().err


# --- archives ------------------------------------------------------------------------------------


def zipped(members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def tarred(members: list[tuple[str, bytes | None]], mode: str = "w:gz") -> bytes:
    """A tar; no bytes means a link to /etc/passwd."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:  # type: ignore[call-overload]
        for name, data in members:
            info = tarfile.TarInfo(name)
            if data is None:
                info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
            info.size = len(data or b"")
            archive.addfile(info, io.BytesIO(data or b""))
    return buffer.getvalue()


def local(tmp_path: Path, name: str, data: bytes) -> Path:
    (tmp_path / "from").mkdir(exist_ok=True)
    (tmp_path / "from" / name).write_bytes(data)
    return manifest(tmp_path, "from", {name: data}, **{name: {"unpack": "data/set"}})


MEMBERS = {"top/a.jpg": os.urandom(3000), "top/b/c.txt": b"c"}


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("x.zip", zipped(MEMBERS)),
        ("x.tar.gz", tarred([(f"./{n}", d) for n, d in MEMBERS.items()])),
        ("x.tar", tarred(list(MEMBERS.items()), "w")),
        ("x.tar.xz", tarred(list(MEMBERS.items()), "w:xz")),
        ("called.jpg", zipped(MEMBERS)),  # the type comes from the bytes
    ],
)
def test_archives_are_unpacked_whole_once(name: str, data: bytes, tmp_path: Path) -> None:
    path = local(tmp_path, name, data)
    assert fetch.fetch(path, tmp_path / "to")["unpacked"] == 1
    assert tree(tmp_path / "to" / "data" / "set") == MEMBERS
    assert stat.S_IMODE((tmp_path / "to" / "data" / "set").stat().st_mode) == 0o755
    assert fetch.fetch(path, tmp_path / "to") == {"fetched": 0, "already": 1, "unpacked": 0}
    (tmp_path / "to" / "data" / "set" / "top" / "a.jpg").write_bytes(b"changed")
    with pytest.raises(InputError, match=f"a.jpg: is not as in {name}"):
        fetch.fetch(path, tmp_path / "to")


def linked() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        info = zipfile.ZipInfo("link")
        info.create_system, info.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
        archive.writestr(info, "/etc/passwd")
    return buffer.getvalue()


GOOD_MEMBER = ("good.txt", b"good" * 50)


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (zipped({"good": b"x", "../evil.txt": b"x"}), "'..' part"),
        (zipped({"/abs.txt": b"x"}), "is absolute"),
        (zipped({"Dog.png": b"x", "dog.png": b"y"}), "one file on some systems"),
        (linked(), "'link' is a link"),
        (zipped({"bomb": b"\0" * 10_000_000}, zipfile.ZIP_DEFLATED), "more than 20 times"),
        (zipped({"x": b"x" * 100})[:-30], "ZIP"),
        (tarred([GOOD_MEMBER, ("../e.txt", b"x")]), "'..' part"),
        (tarred([GOOD_MEMBER, ("/abs.txt", b"x")]), "is absolute"),
        (tarred([GOOD_MEMBER, ("link", None)]), "'link' is a link or a device"),
        (tarred([("a", os.urandom(99)), ("a", b"2")]), "one file on some systems"),
        (tarred([("bomb", b"\0" * 10_000_000)]), "more than 20 times"),
        (tarred([("x", os.urandom(9000))])[:-3000], "no sound ZIP or tar"),
        (b"neither", "no sound ZIP or tar"),
        (b"", "no sound ZIP or tar"),
    ],
)
def test_archives_that_mean_harm_write_nothing(data: bytes, fault: str, tmp_path: Path) -> None:
    """ARC-02, ARC-04."""
    path = local(tmp_path, "x", data)
    before = tree(tmp_path / "from")
    with pytest.raises(InputError, match=re.escape(fault)):
        fetch.fetch(path, tmp_path / "to")
    assert tree(tmp_path) == {
        "from/x": before["x"], "source.yaml": path.read_bytes(), "to/x": data
    }  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damage_raises_nothing_but_input_errors(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    whole = bytearray(data.draw(st.sampled_from([zipped(MEMBERS), tarred([*MEMBERS.items()])])))
    for _ in range(data.draw(st.integers(1, 8))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    tmp_path = tmp_path_factory.mktemp("damage")
    path = local(tmp_path, "x", bytes(whole))
    try:
        fetch.fetch(path, tmp_path / "to")
    except InputError:
        assert not (tmp_path / "to" / "data" / "set").exists()
    assert [p.name for p in (tmp_path / "to").rglob(".unpack-*")] == []
    assert sorted(p.name for p in tmp_path.iterdir()) == ["from", "source.yaml", "to"]
