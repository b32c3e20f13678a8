"""Archives as files: the same bytes for the same content, and nothing hostile gets to the disk."""

from __future__ import annotations

import hashlib
import io
import json
import os
import stat
import time
import unicodedata
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import bagit
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subjectbench import records
from subjectbench.archive import bag, contents, place
from subjectbench.archive.bag import Bag
from subjectbench.errors import InputError
from subjectbench.store import Artifact
from subjectbench.unpacking import unpack

INFO = {"External-Identifier": "x-1", "Source": "here"}
PAYLOAD: dict[str, bytes | Path] = {"a.txt": b"one", "b/c.txt": b"two", "b/d e.txt": b"three"}


def made(path: Path, payload: dict[str, bytes | Path] = PAYLOAD) -> Path:
    bag.write(path, "x-1", payload, INFO)
    return path


Change = Callable[[dict[str, bytes]], object]


def forged(path: Path, change: Change, *, seal: bool = True) -> Path:
    """Change the members of a good archive; ``seal`` makes its manifests agree again."""
    made(path)
    with zipfile.ZipFile(path) as archive:
        members = {i.filename: archive.read(i) for i in archive.infolist()}
    change(members)
    if seal:
        data = {n: d for n, d in members.items() if n.startswith("x-1/data/")}
        lines = [f"{hashlib.sha256(d).hexdigest()}  {n[4:]}\n" for n, d in data.items()]
        members["x-1/manifest-sha256.txt"] = "".join(lines).encode()
        tags = [n for n in members if n not in data and not n.endswith("tagmanifest-sha256.txt")]
        members["x-1/tagmanifest-sha256.txt"] = "".join(
            f"{hashlib.sha256(members[n]).hexdigest()}  {n[4:]}\n" for n in tags
        ).encode()
    path.write_bytes(zipped(list(members.items())))
    return path


def zipped(members: list[tuple[str, bytes]], kind: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", kind) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, data in members:
            archive.writestr(name, data)
    return buffer.getvalue()


def test_the_same_content_is_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = made(tmp_path / "a.zip").read_bytes()
    (tmp_path / "c").write_bytes(b"two")
    (tmp_path / "c").chmod(0o600)
    os.utime(tmp_path / "c", (1e9, 1e9))
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    before = os.umask(0o077)
    try:
        other = dict(reversed([*PAYLOAD.items(), ("b/c.txt", tmp_path / "c")]))
        assert made(tmp_path / "far" / "b.zip", other).read_bytes() == first
    finally:
        os.umask(before)
        monkeypatch.undo()
        time.tzset()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.zip", "c", "far"]


def test_another_tool_finds_the_bag_valid(tmp_path: Path) -> None:
    unpack(made(tmp_path / "a.zip"), tmp_path / "out")
    found = bagit.Bag(str(tmp_path / "out" / "x-1"))
    found.validate()  # raises if it is not
    assert found.info["External-Identifier"] == "x-1"
    assert set(found.payload_files()) == {f"data/{n}" for n in PAYLOAD}
    (tmp_path / "out" / "x-1" / "data" / "a.txt").write_text("no")
    with pytest.raises(bagit.BagValidationError):
        found.validate()


def test_content_comes_back(tmp_path: Path) -> None:
    with Bag(made(tmp_path / "a.zip")) as found:
        assert found.faults() == []
        assert {name: found.read(name) for name in found} == PAYLOAD
        assert found.info["Source"] == "here" and found.info["Payload-Oxum"] == "11.3"
        assert "a.txt" in found and "absent" not in found and found.size("a.txt") == 3


names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)


@settings(max_examples=80, deadline=None)
@given(st.dictionaries(names, st.binary(max_size=20), min_size=1, max_size=5))
def test_any_names_come_back_or_are_refused(
    tmp_path_factory: pytest.TempPathFactory, payload: dict[str, bytes | Path]
) -> None:
    folder = tmp_path_factory.mktemp("names")
    try:
        made(folder / "a.zip", payload)
    except InputError as error:
        assert "name" in str(error) or "member" in str(error)
        assert list(folder.iterdir()) == []
        return
    folded = {unicodedata.normalize("NFC", n).casefold() for n in payload}
    assert len(folded) == len(payload) and not any(".." in n.split("/") for n in payload)
    with Bag(folder / "a.zip") as found:
        assert {name: found.read(name) for name in found} == payload


def test_arc_04_links_are_packed_as_what_they_point_to(tmp_path: Path) -> None:
    """DVC's cache may be linked: the archive must hold bytes."""
    (tmp_path / "cache").write_bytes(b"two")
    (tmp_path / "link").symlink_to(tmp_path / "cache")
    with_link = made(tmp_path / "a.zip", {**PAYLOAD, "b/c.txt": tmp_path / "link"})
    assert with_link.read_bytes() == made(tmp_path / "b.zip").read_bytes()
    with zipfile.ZipFile(with_link) as archive:
        assert all(stat.S_ISREG(i.external_attr >> 16) for i in archive.infolist())


@pytest.mark.parametrize(
    "name",
    [
        "../e",
        "/abs",
        "a/../b",
        "C:/x",
        "a\\b",
        "A.txt",
        "b",
        "a.txt/x",
        "Å",
        "x" * 256,
        "漢" * 86,
        "100%",
    ],
)
def test_arc_04_name_02_name_03_names_that_some_system_cannot_keep(
    name: str, tmp_path: Path
) -> None:
    twin = {"Å": "A\u030a"}.get(name, "z")
    with pytest.raises(InputError):
        made(tmp_path / "a.zip", {**PAYLOAD, name: b"x", twin: b"y"})
    assert list(tmp_path.iterdir()) == []


def test_bytes_that_change_while_they_are_packed_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "c").write_bytes(b"two")
    write = bag.write_zip

    def late(path: Path, members: dict[str, bytes | Path]) -> None:
        (tmp_path / "c").write_bytes(b"TWO")
        write(path, members)

    monkeypatch.setattr(bag, "write_zip", late)
    with pytest.raises(InputError, match=r"did not come out as it went in: data/b/c\.txt"):
        made(tmp_path / "a.zip", {**PAYLOAD, "b/c.txt": tmp_path / "c"})
    assert [p.name for p in tmp_path.iterdir()] == ["c"]


def link(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO(zipped(list(members.items())))
    with zipfile.ZipFile(buffer, "a") as archive:
        info = zipfile.ZipInfo("x-1/data/link")
        info.create_system, info.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
        archive.writestr(info, "/etc/passwd")
    return buffer.getvalue()


def renamed(old: str, new: str) -> Change:
    return lambda m: m.update({new: m.pop(old)})


def added(name: str) -> Change:
    return lambda m: m.update({name: b"x"})


def without(name: str) -> Change:
    return lambda m: m.pop(name)


HOSTILE: dict[str, tuple[Change, bool, str]] = {
    "traversal": (added("x-1/data/../../evil"), True, "'..'"),
    "absolute": (added("/etc/evil"), True, "absolute"),
    "case twins": (added("x-1/data/A.txt"), True, "one file on some systems"),
    "NFC and NFD": (
        lambda m: m.update({"x-1/data/\u00e9": b"1", "x-1/data/e\u0301": b"2"}),
        True,
        "one file on some systems",
    ),
    "long name": (added("x-1/data/" + "x" * 256), True, "256 bytes"),
    "two folders": (added("y/z"), True, "is no archive of a run"),
    "no bag": (without("x-1/bagit.txt"), False, "is no archive of a run"),
    "no manifest": (without("x-1/manifest-sha256.txt"), False, "has no manifest-sha256.txt"),
    "no tag manifest": (without("x-1/tagmanifest-sha256.txt"), False, "has no tagmanifest"),
    "extra file": (added("x-1/data/extra"), False, "no manifest lists: data/extra"),
    "extra tag": (added("x-1/extra"), False, "no manifest lists: extra"),
    "missing file": (without("x-1/data/a.txt"), False, "lacks files that its manifests list"),
    "garbage manifest": (
        lambda m: m.update({"x-1/manifest-sha256.txt": b"zz  data/a.txt\n"}),
        False,
        "line 1: is no hash and name",
    ),
    "listed twice": (
        lambda m: m.update({"x-1/manifest-sha256.txt": m["x-1/manifest-sha256.txt"] * 2}),
        False,
        "twice",
    ),
    "no text": (lambda m: m.update({"x-1/manifest-sha256.txt": b"\xff"}), False, "is not UTF-8"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_arc_02_arc_04_hostile_archives_are_refused_before_anything_is_written(
    kind: str, tmp_path: Path
) -> None:
    change, seal, fault = HOSTILE[kind]
    path = forged(tmp_path / "a.zip", change, seal=seal)
    refused(path, fault, tmp_path)


def refused(path: Path, fault: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        Bag(path)
    assert fault in str(error.value)
    with pytest.raises(InputError):
        place.restore(path, tmp_path / "results")
    assert [p.name for p in tmp_path.iterdir()] == ["a.zip"]


def test_arc_04_doubles_and_links(tmp_path: Path) -> None:
    path = made(tmp_path / "a.zip")
    with zipfile.ZipFile(path) as archive:
        members = {i.filename: archive.read(i) for i in archive.infolist()}
    path.write_bytes(zipped([*members.items(), ("x-1/data/a.txt", b"other")]))
    refused(path, "one file on some systems", tmp_path)
    path.write_bytes(link(members))
    refused(path, "'x-1/data/link' is a link", tmp_path)


def test_bombs(tmp_path: Path) -> None:
    path = forged(tmp_path / "a.zip", lambda m: m.update({"x-1/data/bomb": bytes(10**7)}))
    with zipfile.ZipFile(path) as archive:
        members = [(i.filename, archive.read(i)) for i in archive.infolist()]
    path.write_bytes(zipped(members, zipfile.ZIP_DEFLATED))
    assert path.stat().st_size < 10**5
    refused(path, "says that it unpacks to", tmp_path)
    # A header that lies about the size: the declared bytes are all that is ever read.
    whole = bytearray(made(path).read_bytes())
    at = whole.rindex(b"x-1/data/a.txt") - 46 + 24
    whole[at : at + 4] = (2**31).to_bytes(4, "little")
    path.write_bytes(whole)
    refused(path, "says that it unpacks to", tmp_path)


def test_wrong_bytes_are_named_and_not_restored(tmp_path: Path) -> None:
    path = forged(tmp_path / "a.zip", lambda m: m.update({"x-1/data/a.txt": b"two"}), seal=False)
    with Bag(path) as found:
        assert [f.partition(":")[0] for f in found.faults()] == ["data/a.txt"]
    with pytest.raises(InputError, match=r"data/a\.txt: its sha256 is"):
        place.restore(path, tmp_path / "results")
    assert [p.name for p in tmp_path.iterdir()] == ["a.zip"]
    whole = made(path).read_bytes()
    path.write_bytes(whole.replace(b"three", b"threE"))  # now the CRC is wrong as well
    with Bag(path) as found:
        assert "data/b/d e.txt: member" in found.faults()[0]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damage_anywhere_raises_nothing_but_input_errors(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("damage")
    whole = bytearray(made(folder / "a.zip").read_bytes())
    for _ in range(data.draw(st.integers(1, 6))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    (folder / "a.zip").write_bytes(whole[: data.draw(st.integers(1, len(whole)))])
    with pytest.raises(InputError):  # what is whole is still no run
        place.restore(folder / "a.zip", folder / "results")
    assert [p.name for p in folder.iterdir()] == ["a.zip"]


def manifest(**changes: object) -> bytes:
    artifact = Artifact("score", "b/m/g", {"x": 1}, {}, ("scores.parquet",))
    files = {"scores.parquet": {"bytes": 1, "sha256": hashlib.sha256(b"x").hexdigest()}}
    whole = {"key": artifact.key, **artifact.identity, "files": files, "rows": {}}
    return json.dumps(whole | changes).encode()


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b"[]", b"{", b"null", b'"x"', b"[" * 100_000, b"\xff"),
        *(manifest(kind=1), manifest(name=None), manifest(components=[]), manifest(upstream=[])),
        *(manifest(upstream={"a": 1}), manifest(files=[]), manifest(files={"a": 1})),
        *(manifest(files={"scores.parquet": {}}), manifest(scheme=0), manifest(key="0" * 12)),
        *(manifest(components={"x": 2}), manifest(name="../../x"), manifest(kind=".plans")),
    ],
)
def test_manifests_of_any_content_are_faults_and_no_crash(text: bytes, tmp_path: Path) -> None:
    key = json.loads(manifest())["key"]
    folder = f"results/store/score/b/m/g/{key}"
    payload: dict[str, bytes | Path] = {f"{folder}/scores.parquet": b"x"}
    made(tmp_path / "a.zip", payload | {f"{folder}/manifest.json": manifest()})
    with Bag(tmp_path / "a.zip") as found:  # the good one is an artifact, but no run
        assert contents.artifacts(found)[1] == ["holds no run, or more than one"]
    made(tmp_path / "a.zip", payload | {f"{folder}/manifest.json": text})
    with Bag(tmp_path / "a.zip") as found:
        packed, faults = contents.artifacts(found)
        assert not packed and any("manifest.json: " in fault for fault in faults)
    with pytest.raises(InputError):
        place.restore(tmp_path / "a.zip", tmp_path / "results")
    assert [p.name for p in tmp_path.iterdir()] == ["a.zip"]


def test_a_small_table_that_would_fill_the_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repeated value takes no space in Parquet, so the file's size and hash say nothing."""
    path = tmp_path / "losses.parquet"
    rows = 300_000
    frame = pd.DataFrame({"subject_id": ["s"] * rows, "step": [0] * rows, "loss": [0.5] * rows})
    records.write_table("losses", frame.iloc[:3].assign(step=range(3)), path)
    assert len(records.read_table("losses", path)) == 3
    frame.to_parquet(path, index=False)
    assert path.stat().st_size < 10_000
    monkeypatch.setattr(records, "MAX_CELLS", 3 * rows - 1)
    with pytest.raises(InputError, match="unpacks to 300000 rows of 3 columns"):
        records.read_table("losses", path)
    records.write_table("losses", frame.iloc[:3].assign(step=range(3)), path)
    monkeypatch.setattr(records, "MAX_BYTES", 10)
    with pytest.raises(InputError, match="unpacks to 3 rows of 3 columns"):
        records.read_table("losses", path)
