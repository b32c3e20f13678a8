"""DreamBench, DreamBench++, CustomConcept101 and simple folders, on trees in their form.

Words of the templates are made up; form, names and counts are those of the published files.
"""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from subjectbench import images
from subjectbench.benchmarks.catalogue import PICTURES, pictures_in, read_lines
from subjectbench.benchmarks.custom_concept_101 import PLUGIN as CustomConcept101
from subjectbench.benchmarks.dreambench import PLUGIN as DreamBench
from subjectbench.benchmarks.dreambench_plus import PLUGIN as DreamBenchPlus
from subjectbench.benchmarks.folder import PLUGIN as FolderBenchmark
from subjectbench.benchmarks.folder import noun_of
from subjectbench.config import load_study
from subjectbench.errors import InputError
from subjectbench.plan import make_plan
from subjectbench.records import read_table
from subjectbench.stages import prepare
from subjectbench.stages.base import Context


def put(path: Path, data: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def kinds(benchmark: Any) -> Counter[str]:
    return Counter(a["kind"] for a in benchmark.anomalies())


# --- DreamBench ----------------------------------------------------------------------------------

# fmt: off
CLASSES = {
    "backpack": "backpack", "backpack_dog": "backpack", "bear_plushie": "stuffed animal",
    "berry_bowl": "bowl", "can": "can", "candle": "candle", "cat": "cat", "cat2": "cat",
    "clock": "clock", "colorful_sneaker": "sneaker", "dog": "dog", "dog2": "dog", "dog3": "dog",
    "dog5": "dog", "dog6": "dog", "dog7": "dog", "dog8": "dog", "duck_toy": "toy",
    "fancy_boot": "boot", "grey_sloth_plushie": "stuffed animal", "monster_toy": "toy",
    "pink_sunglasses": "glasses", "poop_emoji": "toy", "rc_car": "toy", "red_cartoon": "cartoon",
    "robot_toy": "toy", "shiny_sneaker": "sneaker", "teapot": "teapot", "vase": "vase",
    "wolf_plushie": "stuffed animal",
}
# fmt: on


def prompts_and_classes(objects: int = 25, live: int = 25) -> str:
    def templates(word: str, count: int) -> list[str]:
        lines = [
            f"'a {{0}} {{1}} {word} {i}'.format(unique_token, class_token)" for i in range(count)
        ]
        return ["prompt_list = [", *[line + "," for line in lines[:-1]], lines[-1], "]", ""]

    lines = ["Classes", "", "subject_name,class", *[f"{s},{c}" for s, c in CLASSES.items()], ""]
    lines += ["Prompts", "", "Object Prompts", "", *templates("near thing", objects)]
    lines += ["Live Subject Prompts", "", *templates("wearing thing", live)]
    return "\n".join(lines)


def dreambench(root: Path, text: str | bytes | None = None, **params: Any) -> Any:
    put(root / "dataset" / "prompts_and_classes.txt", text or prompts_and_classes())
    put(root / "dataset" / "references_and_licenses.txt", "not read")
    for subject in CLASSES:
        for number in ("01", "03", "02"):
            put(root / "dataset" / subject / f"{number}.jpg", f"{subject} {number}")
    return DreamBench(DreamBench.Params(path="dataset", **params), root)


def test_dreambench_counts_of_the_paper(tmp_path: Path) -> None:
    bench = dreambench(tmp_path)
    bench.check()
    cases = bench.cases()
    assert (cases["subject_id"].nunique(), len(cases)) == (30, 750)
    per_subject = cases.drop_duplicates("subject_id")
    assert Counter(per_subject["kind"]) == {"Object": 21, "Animal": 9}
    asked = Counter(json.loads(d)["prompt_kind"] for d in cases["details"])
    assert asked == {
        "recontextualization": 21 * 20 + 9 * 10,
        "accessorization": 90,
        "property_modification": 150,
    }
    assert Counter(cases["scenario"].dropna()) == {"attribute": 150}
    assert cases["prompt"].tolist()[0] == "a backpack near thing 0"
    assert cases.set_index("case_id")["prompt"]["dog6-p24"] == "a dog wearing thing 24"
    found = kinds(bench)
    assert found["count"] == found["no_picture"] == found["subject_not_in_prompt"] == 0
    assert found["several_pictures"] == 30
    assert found["shared_label"] == 2 + 3 + 2 + 2 + 7 + 5  # backpacks to toys


def test_dreambench_reference_and_token_are_declared(tmp_path: Path) -> None:
    assert dict(dreambench(tmp_path).references())["dog6"] == b"dog6 01"
    bench = dreambench(tmp_path, reference=2, unique_token="sks")
    assert dict(bench.references())["dog6"] == b"dog6 03"
    assert [p.name for p in bench.sources()][:2] == ["prompts_and_classes.txt", "03.jpg"]
    assert bench.cases()["prompt"].tolist()[0] == "a sks backpack near thing 0"
    with pytest.raises(InputError, match="'backpack' has 3 pictures, and reference is 3"):
        dreambench(tmp_path, reference=3).check()


def test_dreambench_what_is_missing_or_too_much_is_told(tmp_path: Path) -> None:
    bench = dreambench(tmp_path, prompts_and_classes(live=24))
    for picture in (tmp_path / "dataset" / "vase").iterdir():
        picture.unlink()
    put(tmp_path / "dataset" / "dog4" / "00.jpg", b"x")
    bench.check()
    assert dict(bench.references())["vase"] is None
    found = {a["kind"]: a["detail"] for a in bench.anomalies()}
    assert found["count"] == "30 subjects and 741 cases; published are 30 subjects and 750 cases"
    assert (found["no_picture"], found["unlisted_folder"]) == ("vase", "dog4")
    cases = bench.cases()
    of_dog = [json.loads(d) for d in cases.loc[cases["subject_id"] == "dog", "details"]]
    assert "prompt_kind" not in of_dog[0]  # places of another list say nothing
    empty = DreamBench(DreamBench.Params(path="bare"), tmp_path)
    put(tmp_path / "bare" / "prompts_and_classes.txt", prompts_and_classes())
    with pytest.raises(InputError, match="no picture of any subject"):
        empty.check()


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("'a {0} {1} near thing 3'", "'a {0} near thing 3'", r"lacks \{0\} \{1\}"),
        ("'a {0} {1} near thing 3'", "'a {0} {1} {2} near'", "lacks"),
        ("'a {0} {1} near thing 3'", "__import__('os').system('x')", "neither a class nor"),
        ("cat2,cat", "cat2,cat,cat", "line 11: 'cat2,cat,cat' is neither"),
        ("cat2,cat", "cat,cat", "'cat' is listed twice"),
        ("cat2,cat", "Cat,cat", "'cat' and 'Cat' differ only in case"),
        ("cat2,cat", "c/t,cat", "cannot be a file name"),
        ("Live Subject Prompts", "Live Prompts", "neither a class nor"),
        ("near thing 3'", "near\u2028thing'", "control character"),
    ],
)
def test_dreambench_faults_are_named(old: str, new: str, fault: str, tmp_path: Path) -> None:
    text = prompts_and_classes()
    assert old in text
    with pytest.raises(InputError, match=fault) as caught:
        dreambench(tmp_path, text.replace(old, new)).check()
    assert "prompts_and_classes.txt" in str(caught.value)


def test_dreambench_more_faults(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no subject of live class 'dgo'.*\n.*'dog'"):
        dreambench(tmp_path, live_classes=["dgo"]).check()
    with pytest.raises(InputError, match="no template below 'Object Prompts'"):
        dreambench(tmp_path, "Classes\ncat,cat\ndog,dog\nObject Prompts\n").check()
    with pytest.raises(InputError, match=r"no such file\n.*there is no folder"):
        DreamBench(DreamBench.Params(path="nowhere"), tmp_path).check()
    with pytest.raises(InputError, match=r"line 4: byte .* is not UTF-8"):
        latin = prompts_and_classes().replace("backpack,backpack", "backpack,b\xe4g", 1)
        dreambench(tmp_path, latin.encode("latin-1")).check()


# --- DreamBench++ --------------------------------------------------------------------------------

FOLDERS = {"live_subject/animal": 45, "live_subject/human": 25, "object": 50, "style": 30}
"""How the 150 are shared out is made up; the folders are not."""


def dreambench_plus(root: Path, folders: dict[str, int] | None = None) -> Any:
    for folder, count in (folders or FOLDERS).items():
        for number in range(count):
            lines = ["Red fox", *[f"A red-fox does thing {i}" for i in range(9)]]
            put(root / f"data/captions/{folder}/{number:02d}.txt", "\n".join(lines))
            put(root / f"data/images/{folder}/{number:02d}.jpg", f"{folder} {number}")
    return DreamBenchPlus(DreamBenchPlus.Params(path="data"), root)


def test_dreambench_plus_counts_of_the_paper(tmp_path: Path) -> None:
    bench = dreambench_plus(tmp_path)
    bench.check()
    cases = bench.cases()
    assert (cases["subject_id"].nunique(), len(cases)) == (150, 1350)
    assert cases["scenario"].value_counts().to_dict() == {"style": 450, "imagination": 300}
    assert cases["scenario"].isna().sum() == 600
    per_subject = cases.drop_duplicates("subject_id")
    assert Counter(per_subject["category"]) == {
        "animal": 45, "human": 25, "object": 50, "style": 30
    }  # fmt: skip
    assert Counter(per_subject["kind"].dropna()) == {"Animal": 45, "Human": 25, "Object": 50}
    row = cases.set_index("case_id").loc["animal-07-p6"]
    assert (row["subject"], row["prompt"]) == ("Red fox", "A red-fox does thing 6")
    assert json.loads(row["details"]) == {
        "prompt_index": 6,
        "prompt_kind": "style",
        "collection_id": "live_subject_animal_07_red_fox",
    }
    assert dict(bench.references())["style-02"] == b"style 2"
    assert len(bench.sources()) == 300
    assert kinds(bench) == {"shared_label": 150}


def test_dreambench_plus_also_without_the_upper_folder(tmp_path: Path) -> None:
    cases = dreambench_plus(tmp_path, {"animal": 2}).cases()
    assert list(cases["subject_id"].unique()) == ["animal-00", "animal-01"]


NINE = "\n".join(f"p{i}" for i in range(9))


@pytest.mark.parametrize(
    ("path", "data", "fault"),
    [
        ("captions/object/00.txt", "fox\n" + NINE.rsplit("\n", 1)[0], "has 8 prompts.*not 9"),
        ("captions/object/00.txt", f"fox\n{NINE}\nmore", "has 10 prompts"),
        ("captions/object/00.txt", "\n" + NINE + "\nx", "line 1: names no subject"),
        ("captions/object/00.txt", "", "names no subject"),
        (
            "captions/object/00.txt",
            f"fox\n{NINE.replace('p3', ' ')}",
            "line 5: the prompt is empty",
        ),
        ("captions/object/00.txt", "fox\n" + NINE.replace("p3", "a\tb"), "line 5: .*control"),
        ("captions/object/00.txt", f"f\xf6x\n{NINE}".encode("latin-1"), "line 1: byte 1.*UTF-8"),
        ("captions/objet/00.txt", f"fox\n{NINE}", "unknown category 'objet'\n.*'object'"),
        ("captions/Object/00.txt", f"fox\n{NINE}", "unknown category 'Object'"),
        ("captions/object/a b.txt", f"fox\n{NINE}", "cannot be a file name"),
        ("images/object/77.jpg", "x", "77.jpg: has no caption file .*77.txt"),
        ("images/object/00.png", "x", "has two pictures, 00.jpg and 00.png"),
    ],
)
def test_dreambench_plus_faults_are_named(
    path: str, data: str | bytes, fault: str, tmp_path: Path
) -> None:
    bench = dreambench_plus(tmp_path, {"object": 2})
    put(tmp_path / "data" / path, data)
    with pytest.raises(InputError, match=fault):
        bench.check()


def test_dreambench_plus_tolerates_what_files_pick_up(tmp_path: Path) -> None:
    """A byte order mark, CRLF, a last newline, files that macOS leaves, one lost picture."""
    bench = dreambench_plus(tmp_path, {"object": 2})
    expected = bench.cases()
    for file in (tmp_path / "data/captions").rglob("*.txt"):
        text = file.read_text().replace("\n", "\r\n") + "\r\n\r\n"
        file.write_bytes(b"\xef\xbb\xbf" + text.encode())
    put(tmp_path / "data/captions/object/._00.txt", b"\x00\x05\x16\x07")
    put(tmp_path / "data/images/object/._00.jpg", b"\x00\x05\x16\x07")
    pd.testing.assert_frame_equal(bench.cases(), expected)
    (tmp_path / "data/images/object/01.jpg").unlink()
    assert dict(bench.references())["object-01"] is None
    (tmp_path / "data/images/object/00.jpg").unlink()
    with pytest.raises(InputError, match="no picture of any subject"):
        bench.check()
    with pytest.raises(InputError, match="holds no <category>"):
        put(tmp_path / "bare/captions/x", "").unlink()
        DreamBenchPlus(DreamBenchPlus.Params(path="bare"), tmp_path).check()


# --- CustomConcept101 ----------------------------------------------------------------------------


def concept(name: str, noun: str, prompts: str, called: str = "") -> dict[str, str]:
    return {
        "instance_prompt": f"photo of a <new1> {called or noun}",
        "class_prompt": noun,
        "instance_data_dir": f"./benchmark_dataset/{name}",
        "class_data_dir": f"./regularization/{name}",
        "prompt_filename": f"prompts/{prompts}.txt",
    }


CONCEPTS = [
    *[concept(f"pet_cat{i}", "cat", "cat") for i in range(1, 100)],
    concept("plushie_dice", "dice", "plushie", "dice plushie"),
    concept("transport_car1", "car", "transport"),
]


def custom(root: Path, concepts: Any = CONCEPTS, pictures: bool = True, **params: Any) -> Any:
    put(root / "cc" / "dataset.json", json.dumps(concepts))
    for name in ("cat", "plushie", "transport"):
        lines = ["photo of a {}.", *[f"{{}} near thing {i}. " for i in range(18)], "A {}, a {}"]
        put(root / f"cc/prompts/{name}.txt", "\n".join(lines) + "\n")
    for entry in concepts if pictures else []:
        for name in ("b.jpg", "a.jpeg", "list.txt"):
            put(root / "cc" / entry["instance_data_dir"] / name, name)
    return CustomConcept101(CustomConcept101.Params(path="cc", **params), root)


def test_custom_concept_101(tmp_path: Path) -> None:
    bench = custom(tmp_path)
    bench.check()
    cases = bench.cases()
    assert (cases["subject_id"].nunique(), len(cases)) == (101, 2020)
    by_id = cases.set_index("case_id")
    assert by_id["prompt"]["pet_cat3-p00"] == "photo of a cat."
    assert by_id["prompt"]["transport_car1-p19"] == "A car, a car"
    assert by_id["prompt"]["pet_cat1-p18"] == "cat near thing 17."  # without the blank at its end
    assert by_id["category"]["plushie_dice-p00"] == "plushie"
    assert cases[["domain", "kind", "difficulty", "scenario"]].isna().all(axis=None)
    assert dict(bench.references())["pet_cat1"] == b"a.jpeg"
    assert dict(custom(tmp_path, reference=1).references())["pet_cat1"] == b"b.jpg"
    names = [p.name for p in bench.sources()]
    assert names[:4] == ["dataset.json", "cat.txt", "plushie.txt", "transport.txt"]
    assert len(names) == 4 + 101
    odd = [a for a in bench.anomalies() if a["kind"] == "class_differs"]
    assert [a["subject_id"] for a in odd] == ["plushie_dice"]
    assert kinds(bench)["count"] == kinds(bench)["no_placeholder"] == 0


def test_custom_concept_101_elsewhere_and_with_a_token(tmp_path: Path) -> None:
    bench = custom(tmp_path, unique_token="<new1>")
    (tmp_path / "cc/benchmark_dataset").rename(tmp_path / "pics")
    with pytest.raises(InputError, match=r"no picture of any subject.*\n.*'images'"):
        bench.check()
    moved = CustomConcept101(
        CustomConcept101.Params(path="cc", images="pics", unique_token="<new1>"), tmp_path
    )
    assert moved.cases()["prompt"].tolist()[0] == "photo of a <new1> cat."
    put(tmp_path / "cc/prompts/transport.txt", "a red one\n{} alone")
    found = [a for a in moved.anomalies() if a["kind"] in ("no_placeholder", "count")]
    assert [a["case_id"] for a in found] == [None, "transport_car1-p00"]


@pytest.mark.parametrize(
    ("entries", "fault"),
    [
        ({}, "is not a list"),
        ([], "is not a list"),
        ([[CONCEPTS[0], CONCEPTS[1]]], r"\[0\]: lists several concepts"),
        (["x"], r"\[0\]: field 'class_prompt' is None"),
        ([{**CONCEPTS[0], "class_prompt": 7}], "field 'class_prompt' is 7"),
        ([{**CONCEPTS[0], "prompt_filename": "../../etc/passwd"}], "leaves the folder"),
        ([{**CONCEPTS[0], "prompt_filename": "/etc/passwd"}], "leaves the folder"),
        ([{**CONCEPTS[0], "prompt_filename": "prompts/cats.txt"}], r"no such file\n.*'cat.txt'"),
        ([{**CONCEPTS[0], "instance_data_dir": ".."}], "cannot be a file name"),
        ([CONCEPTS[0], CONCEPTS[0]], "duplicate subject 'pet_cat1'"),
        ([CONCEPTS[0], concept("Pet_cat1", "cat", "cat")], "differ only in case"),
    ],
)
def test_custom_concept_101_faults_are_named(entries: Any, fault: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=fault):
        custom(tmp_path, entries, pictures=False).check()


# --- a simple folder -----------------------------------------------------------------------------


def simple(root: Path, prompts: str | bytes = "a {} on a beach\n[SUBJECT], red\n") -> Any:
    put(root / "mine" / "prompts.txt", prompts)
    for name in ("dog6/b.PNG", "dog6/a.webp", "grey_cat_2/x.jpg", ".cache/y.jpg"):
        put(root / "mine" / name, name)
    return FolderBenchmark(FolderBenchmark.Params(path="mine"), root)


def test_simple_folder(tmp_path: Path) -> None:
    bench = simple(tmp_path)
    bench.check()
    cases = bench.cases()
    assert list(cases["case_id"]) == [
        "dog6-p00", "dog6-p01", "grey_cat_2-p00", "grey_cat_2-p01"
    ]  # fmt: skip
    assert list(cases["prompt"]) == [
        "a dog on a beach", "dog, red", "a grey cat on a beach", "grey cat, red"
    ]  # fmt: skip
    assert dict(bench.references()) == {"dog6": b"dog6/a.webp", "grey_cat_2": b"grey_cat_2/x.jpg"}
    assert [p.name for p in bench.sources()] == ["prompts.txt", "a.webp", "x.jpg"]
    assert kinds(bench) == {"several_pictures": 1}


@pytest.mark.parametrize(
    ("folder", "noun"),
    [("dog", "dog"), ("dog-12", "dog"), ("red_t-shirt", "red t shirt"), ("007", "007")],
)
def test_nouns_of_folders(folder: str, noun: str) -> None:
    assert noun_of(folder) == noun


@pytest.mark.parametrize(
    ("prompts", "fault"),
    [
        ("", "line 1: the prompt is empty"),
        ("a {}\n\nb {}\n", "line 2: the prompt is empty"),
        ("a {subject}", r"line 1: \{subject\} is no placeholder\n.*\[SUBJECT\]"),
        ("a [subject]", r"\[subject\] is no placeholder"),
        ("a {}\tx", "control character"),
        ("a {}\rb {}", "control character"),
        ("a {}\x0bb", "control character"),
        ("a {}\u2028b {}", "control character"),
        ("a {}\0", "control character"),
        ("a {} caf\xe9".encode("latin-1"), "line 1: byte 8 .0xe9. is not UTF-8"),
        ("a {}".encode("utf-16"), "not UTF-8"),
    ],
)
def test_simple_folder_refuses_prompts(prompts: str | bytes, fault: str, tmp_path: Path) -> None:
    """NAME-02: what cannot be a prompt stops before anything is generated."""
    with pytest.raises(InputError, match=fault) as caught:
        simple(tmp_path, prompts).check()
    assert "prompts.txt" in str(caught.value) and caught.value.mend


@pytest.mark.parametrize("prompt", ["{} \u732b" * 50, "{} " + "x" * 2000, "{} — à la plage 🐶"])
def test_simple_folder_takes_any_sensible_prompt(prompt: str, tmp_path: Path) -> None:
    """NAME-02: ids are short whatever the prompt."""
    cases = simple(tmp_path, "\ufeff" + prompt + "\r\n").cases()
    assert list(cases["case_id"]) == ["dog6-p00", "grey_cat_2-p00"]
    assert cases["prompt"].tolist()[0] == prompt.replace("{}", "dog")


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("mine/loose.jpg", "loose.jpg: lies beside the subjects' folders\n.*e.g. loose"),
        ("mine/Dog6/x.jpg", "'Dog6' and 'dog6' differ only in case"),
        ("mine/a b/x.jpg", "subject 'a b'"),
        (f"mine/{'p' * 65}/x.jpg", r"\(65 characters\)"),
        ("mine/subjects.csv", "holds both prompts.txt and subjects.csv"),
    ],
)
def test_simple_folder_refuses_trees(name: str, fault: str, tmp_path: Path) -> None:
    """NAME-02, NAME-03."""
    bench = simple(tmp_path)
    put(tmp_path / name, "x")
    with pytest.raises(InputError, match=fault):
        bench.check()


def test_simple_folder_without_pictures(tmp_path: Path) -> None:
    bench = simple(tmp_path)
    put(tmp_path / "mine/empty_one/readme.md", "x")
    bench.check()
    assert dict(bench.references())["empty_one"] is None
    assert kinds(bench)["no_picture"] == 1
    put(tmp_path / "bare" / "prompts.txt", "a {}")
    bare = FolderBenchmark(FolderBenchmark.Params(path="bare"), tmp_path)
    with pytest.raises(InputError, match="names no subject"):
        bare.check()
    put(tmp_path / "bare" / "dog" / "notes.txt", "x")
    with pytest.raises(
        InputError, match=r"no picture of any subject is there\n.*put pictures into"
    ):
        bare.check()


# --- what they share -----------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n\r")), min_size=1))
def test_lines_round_trip(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    path = put(tmp_path_factory.mktemp("lines") / "x", "\n".join([*lines, "end"]) + "\n")
    assert read_lines(path) == [line.strip() for line in [*lines, "end"]]


def test_pictures_are_found_by_ending_and_name(tmp_path: Path) -> None:
    for name in ("b.jpg", "a.HEIC", "c.txt", "._d.jpg", "e", "f.tar.gz"):
        put(tmp_path / name, "x")
    (tmp_path / "folder.png").mkdir()
    assert [p.name for p in pictures_in(tmp_path)] == ["a.HEIC", "b.jpg"]
    assert pictures_in(tmp_path / "nowhere") == ()
    assert all(ending == ending.lower() and ending[0] == "." for ending in PICTURES)


def turned() -> bytes:
    """60x40, red above blue, with the tag that turns it: 40x60, red on the right."""
    buffer, exif = io.BytesIO(), Image.Exif()
    exif[0x0112] = 6
    picture = Image.new("RGB", (60, 40), "red")
    picture.paste("blue", (0, 20, 60, 40))
    picture.save(buffer, "JPEG", exif=exif, quality=95)
    return buffer.getvalue()


def huge() -> bytes:
    buffer = io.BytesIO()
    Image.new("1", (14000, 13000)).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.mark.parametrize("make", [dreambench, dreambench_plus, custom], ids=lambda m: m.__name__)
def test_broken_pictures_get_a_status(make: Callable[[Path], Any], tmp_path: Path) -> None:
    """IMG-01, -04, -08, -09: through the real stage, whichever loader names the picture."""
    bench = make(tmp_path)
    used = [path for path in bench.sources() if path.suffix.lower() in PICTURES]
    for path in used:
        path.write_bytes(turned())
    damaged = {
        "truncated": turned()[: len(turned()) // 2],
        "oversize": huge(),
        "unreadable": b"\x00\x00\x00\x18ftypheic\x00\x00\x00\x00mif1heic",
        "empty": b"",
    }
    for path, data in zip(used, damaged.values(), strict=False):
        path.write_bytes(data)
    study = {
        "study": "loaders",
        "benchmark": {
            "card": type(bench).__module__.rsplit(".", 1)[1],
            "params": {"path": str(tmp_path / bench.params.path)},
        },
        "generators": ["copy_reference"],
        "metrics": ["mini_clip_i"],
        "results": str(tmp_path / "results"),
    }
    plan = make_plan(load_study(study))
    (artifact,) = plan.of_kind("benchmark")
    prepare.run(Context(plan, artifact))
    folder = plan.folder(artifact.key)
    found = read_table("references", folder / "references.parquet")
    assert Counter(found["status"]) == {**dict.fromkeys(damaged, 1), "ok": len(used) - 4}
    ok = found.loc[found["status"] == "ok", "reference_id"].tolist()
    with images.ZipReader(folder / "references.zip") as archive:
        picture = prepare.open_png(archive[f"{ok[0]}.png"])
    assert picture.size == (40, 60)
    assert picture.getpixel((35, 30))[0] > 240 and picture.getpixel((5, 30))[2] > 240
