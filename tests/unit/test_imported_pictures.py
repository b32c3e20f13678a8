"""Pictures made elsewhere: real folders and archives, hostile ones too."""

from __future__ import annotations

import csv
import io
import json
import tarfile
import unicodedata
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from subjectbench import cards, records
from subjectbench.cli import main
from subjectbench.config import Use, load_study
from subjectbench.errors import InputError
from subjectbench.generators.base import Job, Outcome
from subjectbench.generators.imported import Imported, Match
from subjectbench.images import encode_png
from subjectbench.plan import make_plan, match_given
from subjectbench.stages import generate, prepare
from subjectbench.stages.base import Context
from subjectbench.vocabulary import Status
from tests.picture_server import png

Make = Callable[[Path, Mapping[str, bytes]], Path]

SAMPLES = [
    ("dog_0-s0", "dog", "dog", "a dog, at sea"),
    ("dog_0-s1", "dog", "dog", "a dog, at sea"),
    ("dog_1-s0", "dog", "dog", "a dog in Café Zoë"),
    ("cat_0-s0", "cat", "cat", "a cat"),
]
PATTERN = "{subject_id}/{case_id}_{replicate}.png"
NAMED = ["dog/dog_0_0.png", "dog/dog_0_1.png", "dog/dog_1_0.png", "cat/cat_0_0.png"]
FILES = {name: png(number) for number, name in enumerate(NAMED)}


def as_folder(path: Path, files: Mapping[str, bytes]) -> Path:
    for name, data in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    return path


def as_zip(path: Path, files: Mapping[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def as_tar(path: Path, files: Mapping[str, bytes], mode: str = "w") -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def as_tar_gz(path: Path, files: Mapping[str, bytes]) -> Path:
    return as_tar(path, files, "w:gz")


FORMS: list[Make] = [as_folder, as_zip, as_tar, as_tar_gz]


def params(path: Path, **more: Any) -> Any:
    use = Use(card="imported_pictures", params={"path": str(path), **more})
    return cards.params("generator", use, "config")


def match(path: Path, samples: Any = SAMPLES, **more: Any) -> Match:
    return Imported.match(params(path, **more), cards.ROOT, samples)


def outcomes(path: Path, samples: Any = SAMPLES, **more: Any) -> dict[str, Outcome]:
    generator = Imported(
        params(path, **more), cards.load("generator", "imported_pictures"), None, ""
    )
    reference = Image.new("RGB", (8, 8))
    jobs = [Job(*sample, reference, 0, {}) for sample in samples]
    try:
        return dict(zip([j.sample_id for j in jobs], generator.generate(jobs), strict=True))
    finally:
        generator.close()


def shown(found: Mapping[str, Outcome]) -> dict[str, bytes]:
    return {sample: encode_png(o.image) for sample, o in found.items() if o.image is not None}


# --- matching ------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", FORMS)
def test_each_sample_gets_the_file_that_has_its_name(make: Make, tmp_path: Path) -> None:
    """Members lie in another order than samples: only names count."""
    turned = dict(reversed(FILES.items()))
    path = make(tmp_path / "given", {**turned, "notes.txt": b"hello", "a/._x.png": b"mac"})
    got = outcomes(path, pattern=PATTERN)
    assert shown(got) == {s[0]: FILES[n] for s, n in zip(SAMPLES, NAMED, strict=True)}
    assert got["dog_1-s0"].details["file"] == "dog/dog_1_0.png"
    found = match(path, pattern=PATTERN)
    assert found.left == ["notes.txt"] and not found.missing and not found.unknown


def test_more_than_ten_files_are_not_paired_by_their_order(tmp_path: Path) -> None:
    samples = [(f"c{n}-s0", "dog", "dog", f"prompt {n}") for n in range(12)]
    path = as_folder(tmp_path / "given", {f"{n}.png": png(n) for n in range(12)})
    rows = "".join(f"{n}.png,c{n}\n" for n in range(12))
    (tmp_path / "m.csv").write_text("file,case_id\n" + rows)
    got = shown(outcomes(path, samples, manifest=str(tmp_path / "m.csv")))
    assert got == {f"c{n}-s0": png(n) for n in range(12)}


def test_a_pattern_may_name_prompts_and_any_ending(tmp_path: Path) -> None:
    jpeg = io.BytesIO()
    Image.open(io.BytesIO(png(1))).save(jpeg, "JPEG")
    names = {"a_dog_at_sea.png": png(0), "a_dog_in_Café_Zoë.jpg": jpeg.getvalue()}
    samples = [SAMPLES[0], SAMPLES[2], SAMPLES[3]]
    found = match(as_folder(tmp_path / "x", names), samples, pattern="{slug}.{ext}")
    assert set(found.found) == {"dog_0-s0", "dog_1-s0"}
    assert found.missing == {"cat_0-s0": "no file 'a_cat.*'"}
    as_folder(tmp_path / "x", {"a_dog_at_sea.jpeg": png(4)})
    with pytest.raises(InputError, match=r"could be a_dog_at_sea\.jpeg or a_dog_at_sea\.png"):
        match(tmp_path / "x", samples, pattern="{slug}.{ext}")


@pytest.mark.parametrize("pattern", ["{case_id}.png", "{prompt}.png", "{subject_id}/{slug}.png"])
def test_a_file_that_could_be_two_samples_is_refused(pattern: str, tmp_path: Path) -> None:
    names = ["dog_0.png", "a dog, at sea.png", "dog/a_dog_at_sea.png"]
    path = as_folder(tmp_path / "x", dict.fromkeys(names, png(1)))
    with pytest.raises(InputError, match="would be the picture of dog_0-s0 and of dog_0-s1"):
        match(path, pattern=pattern)
    with pytest.raises(InputError, match="dog_0-s0 and of dog_0-s1"):
        outcomes(path, pattern=pattern)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "one of 'manifest' and 'pattern'"),
        ({"pattern": "{case_id}", "manifest": "m.csv"}, "one of 'manifest' and 'pattern'"),
        ({"pattern": "{case}.png"}, r"unknown \{case\}"),
        ({"pattern": "{subject_id}.png"}, "must name"),
        ({"pattern": "{case_id:d}.png"}, "format"),
        ({"pattern": "{case_id.png"}, "pattern|expected"),
    ],
)
def test_a_way_to_match_is_checked_while_planning(given: dict[str, str], words: str) -> None:
    with pytest.raises(InputError, match=words):
        params(Path("x"), **given)


WHOSE = [
    ("sample_id", [s[0] for s in SAMPLES]),
    ("case_id,replicate", ["dog_0,0", "dog_0,1", "dog_1,", "cat_0,0"]),
    ("subject_id,prompt,replicate", [f'{s[1]},"{s[3]}",{s[0][-1]}' for s in SAMPLES]),
]


@pytest.mark.parametrize(("head", "rows"), WHOSE, ids=[w[0] for w in WHOSE])
@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_a_manifest_says_whose_a_file_is(
    head: str, rows: list[str], form: str, tmp_path: Path
) -> None:
    path = as_tar_gz(tmp_path / "given.tgz", FILES)
    text = f"{head},file\r\n" + "".join(f"{r},{n}\r\n" for r, n in zip(rows, NAMED, strict=True))
    if form == "jsonl":
        lines = csv.DictReader(io.StringIO(text))
        text = "".join(json.dumps(line) + "\n\n" for line in lines)
    manifest = tmp_path / f"m.{form}"
    manifest.write_text("\ufeff" + text, newline="")
    got = shown(outcomes(path, manifest=str(manifest)))
    assert got == {s[0]: FILES[n] for s, n in zip(SAMPLES, NAMED, strict=True)}


def test_what_a_manifest_leaves_open_is_told(tmp_path: Path) -> None:
    path = as_folder(tmp_path / "x", {**FILES, "extra.png": png(9)})
    manifest = path / "m.csv"
    manifest.write_text(
        "file,sample_id\ndog/dog_0_0.png,dog_0-s0\ngone.png,dog_1-s0\ncat/cat_0_0.png,bird-s0\n"
    )
    found = match(path, manifest=str(manifest))
    assert found.found == {"dog_0-s0": "dog/dog_0_0.png"}
    assert found.missing["dog_1-s0"] == "no file 'gone.png'"
    assert found.missing["cat_0-s0"] == "not in the manifest"
    assert found.unknown == [f"{manifest}: line 4: cat/cat_0_0.png"]
    assert found.left == ["cat/cat_0_0.png", "dog/dog_0_1.png", "dog/dog_1_0.png", "extra.png"]
    got = outcomes(path, manifest=str(manifest))
    assert [o.status for o in got.values()] == [Status.OK] + [Status.MISSING] * 3


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,2\n", "no column 'file'"),
        ("file,sample_id\n", "no rows"),
        ("file,sample_id\nx.png\n", "line 2: has not 2 cells"),
        ("file,sample_id\nx.png,a,b\n", "line 2: has not 2 cells"),
        ("file,sample_id\n,a\n", "line 2: names no 'file'"),
        ("file,prompt\nx.png,a\n", "line 2: does not say whose"),
        ("file,case_id,replicate\nx.png,a,one\n", "'one' is no whole number"),
        ("file,sample_id\nx.png,dog_0-s0\ny.png,dog_0-s0\n", "line 3: gives sample dog_0-s0 a sec"),
        (
            "file,sample_id\ndog/dog_0_0.png,dog_0-s0\ndog/dog_0_0.png,dog_0-s1\n",
            "line 3: 'dog/dog_0_0.png' would be",
        ),
    ],
)
def test_a_faulty_manifest_is_refused_with_its_line(text: str, words: str, tmp_path: Path) -> None:
    path = as_folder(tmp_path / "x", FILES)
    (tmp_path / "m.csv").write_text(text)
    with pytest.raises(InputError, match=words):
        match(path, manifest=str(tmp_path / "m.csv"))


@pytest.mark.parametrize("line", ["[1]", "{", '{"file": 1}', '{"file": "x", "case_id": 7}'])
def test_a_faulty_line_of_json_is_refused(line: str, tmp_path: Path) -> None:
    path = as_folder(tmp_path / "x", FILES)
    (tmp_path / "m.jsonl").write_text('{"file": "x", "case_id": "dog_0"}\n' + line + "\n")
    with pytest.raises(InputError, match="line 2"):
        match(path, manifest=str(tmp_path / "m.jsonl"))


# --- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", FORMS)
@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_accents_match_however_they_are_spelt(make: Make, form: Any, tmp_path: Path) -> None:
    name = unicodedata.normalize(form, "a dog in Café Zoë.png")
    path = make(tmp_path / "given", {name: png(3)})
    got = shown(outcomes(path, [SAMPLES[2]], pattern="{prompt}.png"))
    assert got == {"dog_1-s0": png(3)}


@pytest.mark.parametrize("make", FORMS)
@pytest.mark.parametrize(
    ("one", "other"),
    [("Dog.png", "dog.png"), ("Strasse.png", "Straße.png"), ("e\u0301.png", "\u00e9.png")],
)
def test_names_that_are_one_on_some_systems_are_refused(
    make: Make, one: str, other: str, tmp_path: Path
) -> None:
    """NAME-03: which of the two would survive depends on the file system."""
    path = make(tmp_path / "given", {one: png(1), other: png(2)})
    with pytest.raises(InputError, match="are one file on some systems") as told:
        match(path, pattern="{case_id}.png")
    assert one in str(told.value) and other in str(told.value)


LONG = ["狗" * 100, "x" * 2000, "a/b", "a\nb\tc", "", "..", "%s {0}"]


@pytest.mark.parametrize("make", FORMS)
def test_no_prompt_makes_a_name_that_stops_the_run(make: Make, tmp_path: Path) -> None:
    """NAME-02: such a picture is missing, and the reason names what was looked for."""
    samples = [(f"c{n}-s0", "dog", "dog", prompt) for n, prompt in enumerate(LONG)]
    path = make(tmp_path / "given", {"x.png": png(1)})
    got = outcomes(path, samples, pattern="{prompt}.png")
    assert {o.status for o in got.values()} == {Status.MISSING}
    assert all(o.details["reason"].startswith("no file") for o in got.values())


@pytest.mark.parametrize("make", [as_zip, as_tar, as_tar_gz])
def test_names_too_long_for_a_disk_are_read_all_the_same(make: Make, tmp_path: Path) -> None:
    """NAME-02: members of 300 letters or 100 Han signs are never written under their name."""
    prompts = ["狗" * 100, "x" * 300]
    samples = [(f"c{n}-s0", "dog", "dog", prompt) for n, prompt in enumerate(prompts)]
    path = make(tmp_path / "given", {f"{p}.png": png(n) for n, p in enumerate(prompts)})
    got = shown(outcomes(path, samples, pattern="{prompt}.png"))
    assert got == {"c0-s0": png(0), "c1-s0": png(1)}


# --- hostile archives ----------------------------------------------------------------------------


def with_link(path: Path, kind: bytes) -> Path:
    with tarfile.open(path, "w") as archive:
        member = tarfile.TarInfo("dog/dog_0_0.png")
        member.type, member.linkname = kind, "/etc/passwd"
        archive.addfile(member)
    return path


def zip_link(path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        info = zipfile.ZipInfo("dog/dog_0_0.png")
        info.external_attr = 0o120777 << 16
        archive.writestr(info, "/etc/passwd")
    return path


def bomb(path: Path) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("dog/dog_0_0.png", bytes(30_000_000))
    return path


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


HOSTILE: dict[str, Callable[[Path], Path]] = {
    "zip up": lambda p: as_zip(p, {"../up.png": b"x"}),
    "tar up": lambda p: as_tar(p, {"../up.png": b"x"}),
    "tgz absolute": lambda p: as_tar_gz(p, {"/tmp/up.png": b"x"}),
    "zip drive": lambda p: as_zip(p, {"C:/up.png": b"x"}),
    "zip control": lambda p: as_zip(p, {"a\nb.png": b"x"}),
    "tar symbolic link": lambda p: with_link(p, tarfile.SYMTYPE),
    "tar hard link": lambda p: with_link(p, tarfile.LNKTYPE),
    "tar device": lambda p: with_link(p, tarfile.CHRTYPE),
    "zip link": zip_link,
    "zip bomb": bomb,
    "tgz bomb": lambda p: as_tar_gz(p, {"dog/dog_0_0.png": bytes(30_000_000)}),
    "zip file and folder": lambda p: as_zip(p, {"dog": b"x", "dog/dog_0_0.png": b"x"}),
    "no archive": lambda p: written(p, b"\x89PNG no archive"),
    "cut tgz": lambda p: written(p, as_tar_gz(p, FILES).read_bytes()[:700]),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive_is_refused_before_anything_is_written(name: str, tmp_path: Path) -> None:
    path = HOSTILE[name](tmp_path / "given")
    before = sorted(tmp_path.rglob("*"))
    for look in (match, outcomes):
        with pytest.raises(InputError):
            look(path, pattern=PATTERN)
    assert sorted(tmp_path.rglob("*")) == before
    card = cards.load("generator", "imported_pictures")
    (check,) = Imported.checks(params(path, pattern=PATTERN), card, cards.ROOT)
    assert not check.ok and check.about == "files"


# --- pictures ------------------------------------------------------------------------------------


def test_a_picture_that_cannot_be_used_has_a_status(tmp_path: Path) -> None:
    upright = Image.fromarray(np.arange(24 * 16 * 3, dtype=np.uint8).reshape(16, 24, 3))
    turned = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6
    upright.save(turned, "PNG", exif=exif)
    datas = [b"", png(1)[:-30], b"<html>", turned.getvalue()]
    files = dict(zip(NAMED, datas, strict=True))
    got = outcomes(as_folder(tmp_path / "x", files), pattern=PATTERN)
    statuses = [o.status for o in got.values()]
    assert statuses == [Status.EMPTY, Status.TRUNCATED, Status.UNREADABLE, Status.OK]
    last = got["cat_0-s0"]
    assert last.image is not None and last.image.size == (16, 24)
    assert last.details["orientation"] == 6


# --- a study -------------------------------------------------------------------------------------


@pytest.fixture
def study(tmp_path: Path) -> dict[str, Any]:
    scores = as_folder(tmp_path / "scores", {"theirs.json": b'{"a.jpg": {"CLIP_I": 0.5}}'})
    given = {"card": "imported_pictures", "name": "theirs"}
    return {
        "study": "imported",
        "benchmark": {"card": "miniworld", "params": {"subjects": 2}},
        "generators": [
            given | {"params": {"path": str(tmp_path / "given"), "pattern": "{sample_id}.png"}}
        ],
        "metrics": [{"card": "imagenhub_clip_i", "params": {"folder": str(scores)}}],
        "results": str(tmp_path / "results"),
    }


def test_a_study_of_given_pictures(
    study: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError, match="no such file or folder"):
        make_plan(load_study(study))
    folder = as_folder(tmp_path / "given", {"stray.png": png(0)})
    plan = make_plan(load_study(study))
    ((name, found),) = match_given(plan)
    assert name == "miniworld/theirs" and found.left == ["stray.png"]
    wanted = sorted(found.missing)
    assert len(wanted) == 24
    as_folder(folder, {f"{sample}.png": png(n) for n, sample in enumerate(wanted[1:])})

    plan = make_plan(load_study(study))
    (benchmark,), (artifact,) = plan.of_kind("benchmark"), plan.of_kind("generate")
    prepare.run(Context(plan, benchmark))
    generate.run(Context(plan, artifact))
    rows = records.read_table("samples", plan.folder(artifact.key) / "samples.parquet")
    assert dict(rows["status"].value_counts()) == {"ok": 23, "missing": 1}
    assert list(match_given(plan)) == []  # made already

    config = tmp_path / "study.yaml"
    config.write_text(json.dumps(study))
    capsys.readouterr()
    assert _exit(["import-check", "--config", str(config)]) == 1
    said = capsys.readouterr().out
    assert "miniworld/theirs: 23 of 24 pictures are there" in said
    assert f"{wanted[0]}: no file '{wanted[0]}.png'" in said and "stray.png" in said
    as_folder(folder, {f"{wanted[0]}.png": png(99)})
    assert _exit(["import-check", "--config", str(config)]) == 0

    changed = make_plan(load_study(study)).of_kind("generate")[0]
    assert changed.key != artifact.key, "the pictures' bytes are part of the identity"
    moved = folder.rename(tmp_path / "moved")
    study["generators"][0]["params"]["path"] = str(moved)
    assert make_plan(load_study(study)).of_kind("generate")[0].key == changed.key


def _exit(args: list[str]) -> int:
    try:
        return main(args)
    except SystemExit as error:
        return int(str(error.code))


def test_a_folder_under_dvc_is_known_by_its_pointer(tmp_path: Path) -> None:
    folder = as_folder(tmp_path / "given", FILES)
    whole = params(folder, pattern=PATTERN)
    assert set(Imported.sources(whole, cards.ROOT)) == {f"pictures/{n}" for n in NAMED}
    (tmp_path / "given.dvc").write_text("outs:\n- md5: 0\n")
    assert Imported.sources(whole, cards.ROOT) == {"pictures": folder}
