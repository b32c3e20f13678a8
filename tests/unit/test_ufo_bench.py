"""UFO-Bench's loader, on small trees in exactly the published form.

Numbers such as ``1f-18`` are those of the faults of the publishers' own code.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from subjectbench import cli
from subjectbench.benchmarks.base import ID
from subjectbench.benchmarks.ufo_bench import PLUGIN as UfoBench
from subjectbench.benchmarks.ufo_bench import plain_id
from subjectbench.benchmarks.ufo_files import safe
from subjectbench.errors import InputError
from subjectbench.store import identity

METADATA = [
    {
        "category": "Soft object",
        "subtypes": ["Plush", "Pillow"],
        "templates": {
            "Non-Editing": ["[CATEGORY] lying on a ferry deck at dawn."],
            "Local-Editing": ["[CATEGORY] beside a tin cup.", "[CATEGORY] in a paper hat."],
        },
    },
    {
        "category": "Character-Full body",
        "templates": {
            "Global-Editing": ["A watercolour of [CATEGORY]."],
            "Complex-Editing": ["A watercolour of [CATEGORY] holding a map."],
        },
    },
    {"category": "Human", "subtypes": ["Face"], "templates": {"Local-Editing": ["[CATEGORY]!"]}},
]
PICTURES = {
    "Soft object/Plush": ["1.png", "10.jpg", "00078.bmp"],
    "Soft object/Pillow": ["1.JPEG"],  # a stem that is elsewhere too
    "Character_Full_body/Character-Full body": ["1.webp"],  # sanitised, and not
    "Human/Face": ["3.png"],
}


def write(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value), "utf-8")
    return path


def picture(path: Path, shade: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = {".bmp": "BMP", ".webp": "WEBP", ".png": "PNG"}.get(path.suffix.lower(), "JPEG")
    Image.linear_gradient("L").resize((8, 8 + shade)).save(path, kind)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The published layout, without units: 12 + 2 + 1 cases."""
    write(tmp_path / "metadata.jsonl", "".join(json.dumps(block) + "\n" for block in METADATA))
    shade = 0
    for folder, names in PICTURES.items():
        for name in names:
            picture(tmp_path / "reference" / folder / name, shade := shade + 1)
    return tmp_path


def bench(root: Path, **params: Any) -> UfoBench:
    given = {"metadata": "metadata.jsonl", "references": "reference", "phrases": "as_published"}
    return UfoBench(UfoBench.Params(**{**given, **params}), root)


def kinds(benchmark: UfoBench) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for anomaly in benchmark.anomalies():
        found.setdefault(str(anomaly["kind"]), []).append(str(anomaly["detail"]))
    return found


# --- cases ---------------------------------------------------------------------------------------


def test_cases_are_templates_times_references(root: Path) -> None:
    """1f-20, 1f-21, 1f-23: equal stems and uids stay apart; no extension is lost."""
    benchmark = bench(root)
    benchmark.check()
    cases = benchmark.cases()
    assert len(cases) == 4 * 3 + 2 + 1 and not benchmark.has_units
    assert cases["paradigm"].value_counts().to_dict() == {
        "local_editing": 9,
        "non_editing": 4,
        "global_editing": 1,
        "complex_editing": 1,
    }
    row = cases.set_index("case_id").loc["Soft_object-Plush-00078-local-t1"]
    assert row["subject_id"] == row["reference_id"] == "Soft_object-Plush-00078"
    assert row["category"] == "Soft object" and row["prompt"] == "Plush in a paper hat."
    assert json.loads(row["details"]) == {
        "category": "Soft object",
        "subtype": "Plush",
        "edit_type": "Local-Editing",
        "tier": 2,
        "template_idx": 1,
        "reference": "00078",
    }
    same_uid = cases[cases["details"].str.contains('"reference": "1"')]
    assert len(same_uid) == 3 + 3 + 2 and same_uid["subject_id"].nunique() == 3
    tiers = {r.paradigm: json.loads(r.details)["tier"] for r in cases.itertuples()}
    assert sorted(tiers.values()) == [1, 2, 2, 3]
    references = dict(benchmark.references())
    assert len(references) == 6 and all(references.values())
    assert references["Character_Full_body-1"] != references["Soft_object-Plush-1"]
    assert cases["case_id"].map(lambda c: bool(ID.fullmatch(c))).all()


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(METADATA),
        json.dumps(METADATA, indent=1),
        "\n\n".join(json.dumps(b, indent=2) for b in METADATA),
        "\ufeff" + "\r\n".join(json.dumps(b) for b in METADATA),
    ],
)
def test_metadata_is_one_value_or_many(text: str, root: Path) -> None:
    expected = bench(root).cases()
    write(root / "metadata.jsonl", text)
    assert bench(root).cases().equals(expected)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (json.dumps(METADATA[0]) + "\n\n" + json.dumps(METADATA[1])[:-1], "line 3.*not JSON"),
        (json.dumps(METADATA[0]) + "\n{'category': 1}\n", "line 2, column 2"),
        (json.dumps(METADATA[0]) + "\n7\n", "line 2: expected keys and values"),
        (json.dumps({**METADATA[0], "category": 1}), "line 1: category: 1 is not text"),
        (json.dumps({"category": "Logo"}), "line 1: templates: is required"),
        (json.dumps({"category": "Human", "templates": {}}), "templates"),
        (json.dumps({**METADATA[2], "templates": {"Locale": ["x"]}}), "did you mean 'local_edit"),
        (json.dumps({**METADATA[2], "templates": {"Local-Editing": [""]}}), "prompt is empty"),
        (json.dumps({**METADATA[2], "templates": {"Local-Editing": []}}), "holds no template"),
        (json.dumps({**METADATA[2], "subtypes": ["../Face"]}), "cannot be a folder"),
        (json.dumps([METADATA[2], METADATA[2]]), "Human / Face / Local-Editing is here and in"),
        ("", "is empty"),
    ],
)
def test_no_block_of_metadata_is_skipped(text: str, fault: str, root: Path) -> None:
    """1f-24."""
    write(root / "metadata.jsonl", text)
    with pytest.raises(InputError, match=fault) as caught:
        bench(root).check()
    assert str(root) in str(caught.value)


# --- references ----------------------------------------------------------------------------------


def test_stems_are_exact(root: Path) -> None:
    """1f-18: ``1`` is neither ``10`` nor ``00001``, and ``00078`` is not ``78``."""
    benchmark = bench(root)
    plush = [r for r, _ in benchmark.references() if "Plush" in r]
    assert plush == [f"Soft_object-Plush-{s}" for s in ("00078", "1", "10")]
    assert (
        dict(benchmark.references())["Soft_object-Plush-1"]
        == (root / "reference/Soft object/Plush/1.png").read_bytes()
    )
    picture(root / "reference/Soft object/Plush/1.jpg")
    with pytest.raises(InputError, match=r"'1\.jpg' and '1\.png' are both '1'"):
        bench(root).check()
    (root / "reference/Soft object/Plush/1.jpg").rename(root / "reference/Soft object/Plush/01.jpg")
    assert len(bench(root).cases()) == 18


def test_files_that_no_case_uses_are_listed(root: Path) -> None:
    """1f-23: another type, another folder: nothing is passed over without a word."""
    write(root / "reference/Human/Face/readme.txt", "x")
    write(root / "reference/Human/Face/4.heic", "x")
    write(root / "reference/Human/Body/5.png", "x")
    unused = kinds(bench(root))["unused_file"]
    assert [Path(u).name for u in unused] == ["5.png", "4.heic", "readme.txt"]


def test_folders_are_raw_or_sanitised_never_both(root: Path) -> None:
    """1f-19."""
    expected = bench(root).cases()
    (root / "reference/Soft object").rename(root / "reference/Soft_object")
    (root / "reference/Character_Full_body").rename(root / "reference/Character-Full body")
    assert bench(root).cases().equals(expected)
    picture(root / "reference/Soft object/Plush/1.png")
    with pytest.raises(InputError, match="holds both 'Soft object' and 'Soft_object'"):
        bench(root).check()


def test_fallback_folders_are_a_choice(root: Path) -> None:
    """1f-22: one rule for all, off by default, and listed where it was used."""
    folder = root / "reference/Human"
    (folder / "Face").rename(folder / "Human")
    with pytest.raises(InputError, match=r"Human/Face: no such folder\n.*see fallback_folders"):
        bench(root).check()
    benchmark = bench(root, fallback_folders=True)
    assert "Human-Face-3-local-t0" in set(benchmark.cases()["case_id"])
    assert kinds(benchmark)["fallback_folder"] == ["Human/Human/3.png"]
    (folder / "Human/3.png").rename(folder / "3.png")
    assert kinds(bench(root, fallback_folders=True))["fallback_folder"] == ["Human/3.png"]
    (folder / "3.png").unlink()
    with pytest.raises(InputError, match="Human/Face: no such folder"):
        bench(root, fallback_folders=True).check()
    write(folder / "Face/3.txt", "x")
    with pytest.raises(InputError, match="Face: holds no picture"):
        bench(root).check()


# --- phrases -------------------------------------------------------------------------------------

PHRASES = """category,subtype,reference,phrase
Soft object,Plush,1,a plush rabbit
Soft_object,Plush,10,the blue bear
Soft object,Plush,00078,an octopus
Soft object,Pillow,1,a pillow
Character-Full body,,1,a paper knight
Human,Face,3,a woman
"""


def test_a_phrase_per_reference(root: Path) -> None:
    """1f-17: bare labels ("of Animal") only where the study says so."""
    with pytest.raises(InputError, match="phrases: as_published"):
        bench(root, phrases="per_reference").check()
    write(root / "phrases.csv", PHRASES)
    per_reference = {"phrases": "per_reference", "subject_phrases": "phrases.csv"}
    cases = bench(root, **per_reference).cases().set_index("case_id")
    assert cases.loc["Soft_object-Plush-10-non-t0", "prompt"].startswith("the blue bear lying")
    assert cases.loc["Soft_object-Plush-10-non-t0", "subject"] == "blue bear"
    assert cases.loc["Soft_object-Plush-00078-non-t0", "subject"] == "octopus"
    assert cases.loc["Character_Full_body-1-global-t0", "prompt"] == (
        "A watercolour of a paper knight."
    )
    published = bench(root).cases().set_index("case_id")
    assert published.loc["Character_Full_body-1-global-t0", "prompt"] == (
        "A watercolour of Character-Full body."
    )
    with pytest.raises(InputError, match="phrases is as_published"):
        bench(root, subject_phrases="phrases.csv").check()
    for changed, fault in [
        (PHRASES.replace("00078", "78"), "no phrase for Soft object / Plush / 00078"),
        (PHRASES.replace("a woman", " "), "line 7: the prompt is empty"),
        (PHRASES + "Human,Face,3,a man\n", "line 8: '3' of Face again"),
    ]:
        write(root / "phrases.csv", changed)
        with pytest.raises(InputError, match=fault):
            bench(root, **per_reference).check()
    write(root / "phrases.csv", PHRASES + "Human,Face,4,a man\n")
    assert kinds(bench(root, **per_reference))["unused_phrase"] == ["human / face / 4"]


# --- a part of the cases -------------------------------------------------------------------------


def test_chosen_categories_choose_everything(units_root: Path) -> None:
    """1f-27: prompts, references and units are chosen together."""
    shutil.rmtree(units_root / "reference" / "Human")  # not chosen, so not missed
    part = bench(units_root, **UNITS, categories=["soft_object"])
    cases = part.cases()
    assert set(cases["category"]) == {"Soft object"} and len(cases) == 12
    assert {r for r, _ in part.references()} == set(cases["reference_id"])
    assert set(part.units()) == set(cases["case_id"])
    files = [*part.sources(), *part.unit_sources()]
    assert all("Soft" in str(f) or f.suffix == ".jsonl" for f in files) and len(files) == 1 + 4 + 24
    assert all(json.loads(d)["partial"] for d in cases["details"])
    assert kinds(part)["partial"] == ["categories: soft_object"] and "count" not in kinds(part)
    with pytest.raises(
        InputError, match="no category 'Soft objekt'\n  mend: did you mean 'Soft obj"
    ):
        bench(units_root, categories=["Soft objekt"]).check()


def test_sample_list_names_whole_cases(root: Path) -> None:
    """1f-7, 1f-19: everything by default; a part is labelled; both writings of a label."""
    assert not any("partial" in d for d in bench(root).cases()["details"])
    entry = {"category": "Soft_object", "subtype": "Plush", "edit_type": "Local_Editing"}
    one = {**entry, "uid": "1_template1"}
    human = {"category": "Human", "subtype": "Face", "edit_type": "Local-Editing"}
    other = {**human, "uid": "3_template0", "note": "x"}
    write(root / "list.json", [one, other])
    part = bench(root, sample_list="list.json")
    assert list(part.cases()["case_id"]) == [
        "Soft_object-Plush-1-local-t1",
        "Human-Face-3-local-t0",
    ]
    assert kinds(part)["partial"] == ["2 of 15 cases in the sample list"]
    assert len(list(part.references())) == 2 and "unused_file" not in kinds(part)
    for entries, fault in [
        ([one, {**one, "subtype": "Plush"}], r"\[1\]: lists 1_template1 of Plush again"),
        ([{**entry, "uid": "78_template0"}], "did you mean '00078_template0'"),
        ([{**human, "uid": "1_template1"}], r"no case Human / Face / Local-Editing / 1_template1"),
        (["1_template1"], r"\[0\]: expected keys and values"),
        ([], "is not a list of cases"),
    ]:
        write(root / "list.json", entries)
        with pytest.raises(InputError, match=fault):
            bench(root, sample_list="list.json").check()


# --- units ---------------------------------------------------------------------------------------

UNITS = {"decompositions": "T_gt", "questions": "Question_list"}


def tgt(**changes: Any) -> dict[str, Any]:
    return {
        "_analysis": {"subject_type": "SOFT_OBJECT", "image_focus": ["ears"], "prompt_focus": []},
        "prompt": "",
        "subject": {
            "name": "plush toy",
            "global_attributes": [{"type": "material", "relevance": "text_and_image", "reward": 5}],
            "parts": [{"name": "ears", "relevance": "image_only", "reward": 3}],
        },
        **changes,
    }


def question(part: str, level: str, relevance: str, reward: Any, **changes: Any) -> dict[str, Any]:
    asked = {
        "question_type": "image_alignment",
        "input": "both pictures",
        "question": f"Is the {part} right?",
        "answer_space": ["Yes", "No"],
        **changes,
    }
    named = {"subject": "plush toy", "part": part, "level": level}
    return {**named, "relevance": relevance, "reward": reward, "question": asked}


MATERIAL = question("Material", "global_attribute", "text_and_image", 5)
EARS = question("ears", "part", "image_only", 3)


@pytest.fixture
def units_root(root: Path) -> Path:
    """The same with units for every case; decompositions have raw names, questions safe ones."""
    for row in bench(root).cases()["details"]:
        d = json.loads(row)
        uid = f"{d['reference']}_template{d['template_idx']}"
        labels = [d["category"], d["subtype"], d["edit_type"]]
        write(root.joinpath("T_gt", *labels, f"{uid}.json"), {**tgt(), "uid": uid})
        plain = [safe(label) for label in labels]
        asked = {"source": uid, "questions": [MATERIAL, EARS]}
        write(root.joinpath("Question_list", *plain, f"{uid}.json"), asked)
    return root


FILE = "Soft object/Plush/Local-Editing/1_template0.json"
ASKED = "Soft_object/Plush/Local_Editing/1_template0.json"
CASE = "Soft_object-Plush-1-local-t0"


def test_units_join_both_files(units_root: Path) -> None:
    """1f-19: found under either writing of the labels; one set per case, not per uid (1f-20)."""
    one = {"global_attributes": [], "parts": [{"name": "lid", "relevance": "text_only"}]}
    one["parts"][0]["reward"] = 1  # type: ignore[index]
    other = "Soft object/Pillow/Local-Editing/1_template0.json"
    write(units_root / "T_gt" / other, tgt(subject=one))
    lid = question("lid", "part", "text_only", 1)
    write(units_root / "Question_list/Soft_object/Pillow/Local_Editing/1_template0.json", [lid])
    benchmark = bench(units_root, **UNITS)
    units = benchmark.units()
    assert benchmark.has_units and set(units) == set(benchmark.cases()["case_id"])
    material, ears = units[CASE]
    assert material.unit_id == "global_attribute/material" and material.weight == 5
    assert (ears.level, ears.name, ears.relevance) == ("part", "ears", "image_only")
    assert ears.question == "Is the ears right?" and ears.tool == "vqa"
    assert [u.name for u in units["Soft_object-Pillow-1-local-t0"]] == ["lid"]
    assert (len(benchmark.sources()), len(benchmark.unit_sources())) == (1 + 6, 2 * 15)
    assert "no_units" not in kinds(benchmark) and "unused_file" not in kinds(benchmark)


def test_a_half_prepared_case_is_a_fault_a_bare_one_is_listed(units_root: Path) -> None:
    (units_root / "Question_list" / ASKED).unlink()
    with pytest.raises(InputError, match=r"1_template0\.json: is missing, though .*T_gt"):
        bench(units_root, **UNITS).check()
    (units_root / "T_gt" / FILE).unlink()
    benchmark = bench(units_root, **UNITS)
    benchmark.check()
    assert CASE not in benchmark.units() and len(benchmark.units()) == 14
    listed = [a for a in benchmark.anomalies() if a["kind"] == "no_units"]
    assert [a["case_id"] for a in listed] == [CASE]
    with pytest.raises(InputError, match="questions: is required"):
        bench(units_root, decompositions="T_gt").check()
    with pytest.raises(InputError, match=r"T_go: no such folder\n  mend: did you mean 'T_gt'"):
        bench(units_root, decompositions="T_go", questions="Question_list").check()
    with pytest.raises(InputError, match="no file of any case"):
        bench(units_root, decompositions="reference", questions="reference").check()


def changed(path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    whole = json.loads(json.dumps(tgt()))
    inner = whole
    for step in path[:-1]:
        inner = inner[step]
    if value is None:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return dict(whole)


PART = ("subject", "parts", 0)


@pytest.mark.parametrize(
    ("written", "asked", "fault"),
    [
        (changed((*PART, "reward"), 0), None, "reward"),
        (changed((*PART, "reward"), 9), None, "reward"),
        (changed((*PART, "reward"), "5"), None, "reward"),
        (changed((*PART, "reward"), 2.5), None, "reward"),
        (changed((*PART, "reward"), True), None, "reward"),
        (changed((*PART, "reward"), None), None, "reward: is required"),
        (changed((*PART, "relevance"), "image"), None, "relevance"),
        (changed((*PART, "name"), " "), None, "name"),
        (changed((*PART, "name"), "tail"), None, "no question about part 'tail'"),
        (changed(("subject", "parts"), []), None, "asks about part 'ears'"),
        (changed(("subject",), {"global_attributes": [], "parts": []}), None, "neither attributes"),
        (changed(("subject", "global_attributes"), None), None, "is required"),
        (tgt(uid="2_template0"), None, "is about '2_template0'"),
        (None, {"source": "1_template1", "questions": [MATERIAL, EARS]}, "is about '1_template1'"),
        (None, [MATERIAL], "no question about part 'ears'"),
        (None, [MATERIAL, EARS, {**EARS, "part": "tail"}], "asks about part 'tail'"),
        (None, [MATERIAL, {**EARS, "reward": 4}], r"'image_only', 4\), but \('image_only', 3\)"),
        (None, [MATERIAL, {**EARS, "relevance": "text_only"}], "make relevance and reward agree"),
        (None, [MATERIAL, {**EARS, "level": "global"}], "level"),
        (
            None,
            [MATERIAL, question("ears", "part", "image_only", 3, answer_space=["Y", "N"])],
            "answer_space of 'ears'",
        ),
        (None, "[", "not JSON"),
        ('{"_analysis": {}, "_analysis": {}}', None, "appears twice"),
    ],
)
def test_units_are_read_strictly(written: Any, asked: Any, fault: str, units_root: Path) -> None:
    """1f-14: nothing is taken for 1, cut off, or noticed only after all was paid for."""
    if written is not None:
        write(units_root / "T_gt" / FILE, written)
    if asked is not None:
        write(units_root / "Question_list" / ASKED, asked)
    with pytest.raises(InputError, match=fault) as caught:
        bench(units_root, **UNITS).check()
    assert "1_template0.json" in str(caught.value)


def test_twins_count_once(units_root: Path) -> None:
    """1f-15."""
    parts = [{"name": n, "relevance": "image_only", "reward": 3} for n in ("ears", " Ears", "EARS")]
    subject = {**tgt()["subject"], "parts": parts}
    write(units_root / "T_gt" / FILE, tgt(subject=subject, prompt="Plush beside a tin cup."))
    twins = [MATERIAL, EARS, {**EARS, "part": "Ears"}]
    write(units_root / "Question_list" / ASKED, {"questions": twins})
    benchmark = bench(units_root, **UNITS)
    assert [u.unit_id for u in benchmark.units()[CASE]] == [
        "global_attribute/material",
        "part/ears",
    ]
    assert kinds(benchmark)["duplicate_unit"] == ["part/ears"]
    assert "prompt_differs" not in kinds(benchmark)
    write(units_root / "T_gt" / FILE, tgt(prompt="A rabbit beside a tin cup."))
    assert kinds(bench(units_root, **UNITS))["prompt_differs"] == ["A rabbit beside a tin cup."]


@pytest.mark.parametrize(
    ("kind", "name", "relevance", "tool"),
    [
        ("HUMAN", "face", "image_only", "face"),
        ("HUMAN", " Face", "text_and_image", "face"),
        ("HUMAN", "face", "text_only", "vqa"),
        ("HUMAN", "watercolor face", "image_only", "vqa"),
        ("ANIMAL", "face", "image_only", "vqa"),
        ("CHARACTER_FULL_BODY", "face", "image_only", "vqa"),
        ("LOGO", "face", "image_only", "vqa"),  # 1f-16: no type is refused
        ("", "face", "image_only", "vqa"),  # then the category decides: a soft object
    ],
)
def test_faces_are_compared_for_people_only(
    kind: str, name: str, relevance: str, tool: str, units_root: Path
) -> None:
    """1f-4."""
    parts = [{"name": name, "relevance": relevance, "reward": 3}]
    subject = {"global_attributes": [], "parts": parts}
    analysis = {"subject_type": kind} if kind else {}
    write(units_root / "T_gt" / FILE, tgt(subject=subject, _analysis=analysis))
    write(units_root / "Question_list" / ASKED, [question(name, "part", relevance, 3)])
    (unit,) = bench(units_root, **UNITS).units()[CASE]
    assert unit.tool == tool


def test_units_of_older_form_are_kept(units_root: Path) -> None:
    """1f-28: a decomposition without ``uid`` or analysis is as good; the file's name counts."""
    old = tgt()
    del old["_analysis"]
    write(units_root / "T_gt/Human/Face/Local-Editing/3_template0.json", old)
    assert len(bench(units_root, **UNITS).units()["Human-Face-3-local-t0"]) == 2


def test_other_encodings_are_refused_not_guessed(units_root: Path) -> None:
    """1f-38: a GBK file decoded by a fallback has lost signs without a word."""
    path = units_root / "T_gt" / FILE
    text = json.dumps(tgt(prompt="毛绒玩具"), ensure_ascii=False, indent=1)
    path.write_bytes(text.encode("gbk"))
    with pytest.raises(InputError, match=r"1_template0\.json: line 9: .*is not UTF-8"):
        bench(units_root, **UNITS).check()
    path.write_text(text, "utf-8")
    assert CASE in bench(units_root, **UNITS).units()


def test_unit_files_of_no_case_are_listed(units_root: Path) -> None:
    write(units_root / "T_gt/Soft object/Plush/Local-Editing/0001_template0.json", tgt())
    assert [Path(p).name for p in kinds(bench(units_root, **UNITS))["unused_file"]] == [
        "0001_template0.json"
    ]


# --- identity ------------------------------------------------------------------------------------


def test_identity_is_of_content_and_pictures_do_not_depend_on_questions(
    units_root: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    def identities(root: Path) -> list[dict[str, str]]:
        benchmark = bench(root, **UNITS)
        sources = (benchmark.sources(), benchmark.unit_sources())
        return [identity.hash_sources(files) for files in sources]

    before = identities(units_root)
    moved = tmp_path_factory.mktemp("moved") / "deeper"
    shutil.copytree(units_root, moved)
    assert identities(moved) == before
    path = moved / "Question_list" / ASKED
    path.write_text(path.read_text().replace("right", "wrong"))
    after = identities(moved)
    assert after[0] == before[0] and after[1] != before[1]


PARTS = st.lists(st.text(max_size=40), min_size=1, max_size=5).map(tuple)


@given(st.lists(PARTS, min_size=2, max_size=6, unique=True))
def test_ids_are_plain_and_differ_where_names_do(names: list[tuple[str, ...]]) -> None:
    ids = [plain_id(*parts) for parts in names]
    assert len(set(ids)) == len(names)
    assert all(ID.fullmatch(i) for i in ids)


@given(st.integers(0, 10**6), st.integers(0, 60))
def test_long_names_keep_their_difference(number: int, length: int) -> None:
    one, two = (plain_id("Soft_object", "x" * length, f"{n:07d}") for n in (number, number + 1))
    assert one != two and len(one) <= 64
    assert (f"{number:07d}" in one) == (12 + length + 8 <= 64)


def test_case_twins_are_refused(root: Path) -> None:
    """They would be one file on some systems."""
    folder = root / "reference/Soft object/Plush"
    picture(folder / "Dog.png")
    picture(folder / "dog.png")
    if len(list(folder.glob("[Dd]og.png"))) == 1:
        pytest.skip("this file system knows no case")
    with pytest.raises(InputError, match="differ only in case"):
        bench(root).check()


# --- what is odd ---------------------------------------------------------------------------------


def full_size(root: Path) -> None:
    """A tree of the published size: 86 references, and 119, 211, 181 and 149 cases."""
    shape = {  # references; templates per paradigm
        "Rigid object": (17, (2, 3, 3, 2)),
        "Human": (17, (2, 3, 3, 2)),
        "Animal": (17, (2, 3, 2, 2)),
        "Soft object": (17, (1, 2, 2, 2)),
        "Character-Full body": (9, (0, 1, 0, 0)),
        "Logo": (8, (0, 1, 0, 0)),
        "Scene": (1, (0, 7, 11, 13)),
    }
    edits = ("Non-Editing", "Local-Editing", "Global-Editing", "Complex-Editing")
    blocks = []
    for category, (references, counts) in shape.items():
        for number in range(references):
            picture(root / "reference" / category / category / f"{number:02d}.png")
        templates = {
            e: [f"[CATEGORY] as number {i}" for i in range(n)] for e, n in zip(edits, counts)
        }
        blocks.append({"category": category, "subtypes": [], "templates": templates})
    write(root / "metadata.jsonl", blocks)


def test_counts_of_the_paper(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    full_size(tmp_path)
    assert bench(tmp_path).anomalies() == []
    (tmp_path / "reference/Scene/Scene/00.png").rename(
        tmp_path / "reference/Animal/Animal/extra.png"
    )
    picture(tmp_path / "reference/Scene/Scene/00.png")
    assert kinds(bench(tmp_path))["count"] == [
        "87 references, UFO-Bench has 86",
        "669 cases, UFO-Bench has 660",
        "121 non_editing cases, UFO-Bench has 119",
        "214 local_editing cases, UFO-Bench has 211",
        "183 global_editing cases, UFO-Bench has 181",
        "151 complex_editing cases, UFO-Bench has 149",
    ]
    where = {"metadata": "metadata.jsonl", "references": "reference"}
    given = [f"{k}={tmp_path / v}" for k, v in where.items()] + ["phrases=as_published"]
    params = [word for item in given for word in ("--param", item)]
    cli.main(["check-benchmark", "ufo_bench", *params])
    out = capsys.readouterr().out
    assert "87 subjects, 669 cases" in out and "count: 6" in out


def test_odd_templates_and_fields_are_listed(root: Path) -> None:
    odd = {
        "category": "Doodle",
        "subtypes": [],
        "colour": 1,
        "templates": {"Non-Editing": ["A [CATEGORY] at sea", "A boat", "of the [CATEGORY]"]},
    }
    picture(root / "reference/Doodle/Doodle/1.png")
    write(root / "metadata.jsonl", [odd])
    found = kinds(bench(root))
    assert found["unknown_category"][0].endswith("line 1: Doodle")
    assert found["unknown_field"][0].endswith("colour")
    assert len(found["no_placeholder"]) == 1 and len(found["article_before_placeholder"]) == 2
    assert set(bench(root).cases()["category"]) == {"Doodle"}


def test_the_papers_other_spellings(root: Path, picture_of: Callable[[str], None]) -> None:
    """The text says Rigid Object and Full-body Character where the metadata says otherwise."""
    picture_of("Rigid Object")
    picture_of("Full-body Character")
    names = ["Rigid Object", "Full-body Character"]
    blocks = [{"category": n, "templates": {"Non-Editing": ["[CATEGORY]"]}} for n in names]
    write(root / "metadata.jsonl", blocks)
    assert set(bench(root).cases()["category"]) == {"Rigid object", "Character-Full body"}


@pytest.fixture
def picture_of(root: Path) -> Callable[[str], None]:
    return lambda category: picture(root / "reference" / category / category / "1.png")
