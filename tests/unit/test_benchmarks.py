"""Benchmarks: published metadata, ImagenHub, and a user's own folder with every usual fault."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from subjectbench import cli
from subjectbench.benchmarks import base
from subjectbench.benchmarks.dsh_bench import PLUGIN as DshBench
from subjectbench.benchmarks.folder import PLUGIN as FolderBenchmark
from subjectbench.benchmarks.imagenhub import PLUGIN as ImagenHub
from subjectbench.errors import InputError
from subjectbench.records import SCENARIOS

SHARED = Path(__file__).resolve().parents[3] / "shared"
WORKFLOW = Path(__file__).resolve().parents[2] / "workflow"


def shared(name: str) -> Path:
    if not (SHARED / name).exists():
        pytest.skip(f"published data not here: ../shared/{name}")
    return SHARED


def test_modules_stay_light() -> None:
    code = (
        "import sys\n"
        "import subjectbench.benchmarks.dsh_bench, subjectbench.benchmarks.folder\n"
        "import subjectbench.benchmarks.imagenhub, subjectbench.raters.imagenhub\n"
        "import subjectbench.raters.simulated\n"
        "heavy = {'pandas', 'pandera', 'torch', 'numpy', 'PIL', 'snakemake'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=WORKFLOW)


# --- text ----------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(*[st.text(st.characters(codec="utf-8", exclude_characters="\0\r"))] * 2)),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
)
def test_rows_round_trip(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[str, str]],
    newline: str,
    bom: bool,
) -> None:
    buffer = io.StringIO(newline="")
    csv.writer(buffer, lineterminator=newline).writerows([("a", "b"), *rows])
    path = tmp_path_factory.mktemp("rows") / "x.csv"
    text = buffer.getvalue().removesuffix(newline)
    path.write_bytes((b"\xef\xbb\xbf" if bom else b"") + text.encode())
    expected = [{"a": a, "b": b} for a, b in rows if (a + b).strip()]
    assert [row for _, row in base.read_rows(path, ",", ["a", "b"])[1]] == expected


@settings(max_examples=80, deadline=None)
@given(st.binary(max_size=60))
def test_readers_raise_nothing_but_input_errors(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.mktemp("junk") / "x"
    path.write_bytes(data)
    for read in (base.read_json, base.read_text, base.read_rows):
        try:
            read(path)
        except InputError as error:
            assert str(path) in str(error)


def test_lines_are_those_of_an_editor(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text('a,b\n\n"two\nlines",1\nlast,2\n')
    assert [line for line, _ in base.read_rows(path, ",", ["a", "b"])[1]] == [3, 5]
    path.write_text("a,b\n1,2\n3\n")
    with pytest.raises(InputError, match="line 3: 1 cells where the header has 2"):
        base.read_rows(path, ",", ["a", "b"])
    path.write_text('a,b\n1,"2')
    with pytest.raises(InputError, match="line 2: not CSV"):
        base.read_rows(path, ",", ["a", "b"])
    path.write_text("")
    with pytest.raises(InputError, match="is empty"):
        base.read_rows(path, ",", ["a", "b"])


def test_json_faults(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    for text, fault in [
        ('{"a": 1, "a": 2}', "'a' appears twice"),
        ('{"a": NaN}', "NaN"),
        ('{"a":\n 1,}', "line 2, column"),
        ("[" * 100_000, "nested|not JSON"),
    ]:
        path.write_text(text)
        with pytest.raises(InputError, match=fault):
            base.read_json(path)
    with pytest.raises(InputError, match=r"no such file\n  mend: did you mean 'x\.json'"):
        base.read_json(tmp_path / "X.json")


# --- DSH-Bench -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dsh() -> Any:
    root = shared("dsh_bench/DSH-Bench_image_info.json")
    return DshBench(DshBench.Params(metadata="dsh_bench/DSH-Bench_image_info.json"), root)


@pytest.fixture(scope="module")
def dsh_cases(dsh: Any) -> pd.DataFrame:
    return dsh.cases()


def test_dsh_counts_of_the_paper(dsh_cases: pd.DataFrame) -> None:
    subjects = dsh_cases.drop_duplicates("subject_id")
    assert (len(subjects), len(dsh_cases)) == (459, 5508)
    assert dsh_cases["scenario"].value_counts().to_dict() == dict.fromkeys(SCENARIOS, 918)
    assert Counter(subjects["difficulty"]) == {"easy": 89, "medium": 197, "hard": 173}
    assert Counter(subjects["domain"]) == {"Photorealistic": 336, "Non-photorealistic": 123}
    assert Counter(subjects["kind"]) == {"Object": 300, "Animal": 83, "Human": 76}
    assert subjects["category"].nunique() == 29
    assert len(subjects[["domain", "category"]].drop_duplicates()) == 58


def test_dsh_ids(dsh: Any, dsh_cases: pd.DataFrame) -> None:
    row = dsh_cases.set_index("case_id").loc["431-p05"]
    assert (row["subject_id"], row["reference_id"], row["subject"]) == ("431", "431", "mug")
    assert row["scenario"] == "interaction" and "playful kitten" in row["prompt"]
    assert list(dsh_cases["subject_id"].unique()) == [str(i) for i in range(459)]
    references = list(dsh.references())
    assert len(references) == 459 and all(data is None for _, data in references)
    assert [p.name for p in dsh.sources()] == ["DSH-Bench_image_info.json"]


def test_dsh_anomalies(dsh: Any) -> None:
    found = dsh.anomalies()
    counts = Counter(a["kind"] for a in found)
    of = {k: [a for a in found if a["kind"] == k] for k in counts}
    # The reference study counts 29 of 5508 after it removed spaces: "biscuit standing" then
    # holds "biscuits". Literally it is 30, of which 8 name the subject in no form.
    assert counts["subject_not_in_prompt"] == 30
    absent = {a["case_id"] for a in of["subject_not_in_prompt"]}
    assert absent >= {"385-p07", "165-p06", "308-p09", "119-p09", "179-p09", "302-p07", "305-p07",
                      "297-p08"}  # fmt: skip
    assert counts["non_ascii"] == 164
    assert counts["imperative_edit"] >= 109
    assert counts["non_square"] == 8 and counts["small"] == 3
    assert [a["subject_id"] for a in of["oversize"]] == ["190"]
    assert {a["detail"] for a in of["glued_label"]} == {"actionfigure", "catstatue", "mugskulls"}
    assert counts["mixed_case_label"] == 8
    assert counts["few_subjects"] == 11
    assert (counts["no_easy"], counts["no_medium"], counts["no_hard"]) == (21, 7, 16)
    labels = {a["detail"] for a in of["shared_label"]}
    assert "man: 21 subjects" in labels and "girl: 18 subjects" in labels
    assert 459 - counts["shared_label"] + len(labels) == 298  # distinct labels
    grammar = Counter((a["subject_id"], a["detail"]) for a in of["grammar"])
    assert grammar["323", "A adjustable"] == 12 and {s for s, _ in grammar} == {"323", "413"}


def small_dsh() -> dict[str, Any]:
    return {
        "./images/7.jpg": {
            "ref_image": {"image_path": "./images/7.jpg", "height": 9, "width": 9},
            "prompt": [{"prompt": "A mug.", "prompt_scenario": "imagination"}],
            "subject": "mug",
            "metadata": {
                "subject_difficulty_level": "mid",
                "cate1": "Photorealistic",
                "cate2": "Person",
                "cate3": "Toy",
            },
        }
    }


def test_dsh_images_and_missing_images(tmp_path: Path) -> None:
    entries = small_dsh()
    entries["./images/8.jpg"] = json.loads(json.dumps(entries["./images/7.jpg"]))
    entries["./images/8.jpg"]["ref_image"]["image_path"] = "./images/8.jpg"
    (tmp_path / "m.json").write_text(json.dumps(entries))
    (tmp_path / "pics").mkdir()
    bench = DshBench(DshBench.Params(metadata="m.json", images="pics"), tmp_path)
    with pytest.raises(InputError, match=r"holds none.*\n.*7\.jpg"):
        bench.check()
    (tmp_path / "pics" / "7.jpg").write_bytes(b"x")
    bench.check()
    assert list(bench.references()) == [("7", b"x"), ("8", None)]
    assert [p.name for p in bench.sources()] == ["m.json", "7.jpg"]


@pytest.mark.parametrize(
    ("path", "value", "fault"),
    [
        (("metadata", "cate2"), "Persons", "mean 'Person'"),
        (("metadata", "subject_difficulty_level"), 3, "unknown label 3"),
        (("metadata",), None, "form"),
        (("subject",), 7, "subject is 7"),
        (("ref_image", "height"), "9", "height"),
        (("ref_image", "image_path"), "./images/8.jpg", "another picture"),
        (("prompt", 0, "prompt"), " ", "empty"),
        (("prompt", 0, "prompt"), "a\nb", "control"),
        (("prompt", 0, "prompt_scenario"), "style", "style_changes"),
        (("prompt", 0), {}, "prompt_scenario' is missing"),
    ],
)
def test_dsh_faults_are_named(
    path: tuple[Any, ...], value: Any, fault: str, tmp_path: Path
) -> None:
    entries = small_dsh()
    node: Any = entries["./images/7.jpg"]
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    (tmp_path / "m.json").write_text(json.dumps(entries))
    with pytest.raises(InputError, match=fault) as caught:
        DshBench(DshBench.Params(metadata="m.json"), tmp_path).check()
    assert "m.json: ./images/7.jpg" in str(caught.value)


# --- ImagenHub -----------------------------------------------------------------------------------


def test_imagenhub_published() -> None:
    root = shared("imagenhub/raters")
    params = ImagenHub.Params(raters="imagenhub/raters", scores="imagenhub/autometrics")
    bench = ImagenHub(params, root)
    bench.check()
    cases = bench.cases()
    assert list(cases["case_id"]) == [f"sample_{i}" for i in range(150)]
    assert (cases["subject_id"] == cases["case_id"]).all()
    assert cases[["prompt", "reference_id", "subject"]].isna().all(axis=None)
    assert list(bench.references()) == []
    assert len(bench.sources()) == 7


def test_imagenhub_scores_of_unrated_pictures_are_refused(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "x_rater1.tsv").write_text("uid\tM\nsample_0.jpg\t[0,1]\n")
    (tmp_path / "s").mkdir()
    bench = ImagenHub(ImagenHub.Params(raters="r", scores="s"), tmp_path)
    with pytest.raises(InputError, match="no score files"):
        bench.check()
    (tmp_path / "s" / "M.json").write_text('{"sample_1.jpg": {}}')
    with pytest.raises(InputError, match=r"M\.json: picture 'sample_1\.jpg' was rated by nobody"):
        bench.check()
    with pytest.raises(InputError, match="no such folder"):
        ImagenHub(ImagenHub.Params(raters="q"), tmp_path).check()


# --- your own folder -----------------------------------------------------------------------------

SUBJECTS = "subject_id,subject,image,difficulty\n007,mug,images/a.png,easy\n08,dog,images/b.png,\n"
PROMPTS = "subject_id,prompt\n08,A dog — à la plage\n007,A mug\n007,Two mugs\n"


def own(
    folder: Path, subjects: str | bytes = SUBJECTS, prompts: str | bytes = PROMPTS
) -> FolderBenchmark:
    (folder / "mine" / "images").mkdir(parents=True, exist_ok=True)
    for name in "ab":
        (folder / "mine" / "images" / f"{name}.png").write_bytes(name.encode())
    for name, text in (("subjects", subjects), ("prompts", prompts)):
        data = text if isinstance(text, bytes) else text.encode()
        (folder / "mine" / f"{name}.csv").write_bytes(data)
    return FolderBenchmark(FolderBenchmark.Params(path="mine"), folder)


def test_folder(tmp_path: Path) -> None:
    bench = own(tmp_path)
    bench.check()
    cases = bench.cases()
    assert list(cases["case_id"]) == ["007-p00", "007-p01", "08-p00"]
    assert list(cases["subject_id"]) == ["007", "007", "08"]
    assert cases["difficulty"].tolist()[0] == "easy" and pd.isna(cases["difficulty"].tolist()[2])
    assert cases["prompt"].tolist()[2] == "A dog — à la plage"
    assert list(bench.references()) == [("007", b"a"), ("08", b"b")]
    names = [p.name for p in bench.sources()]
    assert names == ["subjects.csv", "prompts.csv", "a.png", "b.png"]


def test_folder_with_prompt_ids_and_scenarios(tmp_path: Path) -> None:
    prompts = "prompt_id,scenario,subject_id,prompt\n1e3,style,007,x\n,,08,null\n"
    cases = own(tmp_path, prompts=prompts).cases()
    assert list(cases["case_id"]) == ["007-1e3", "08-p00"]
    assert cases["scenario"].tolist()[0] == "style" and cases["prompt"].tolist()[1] == "null"


def subject(name: str, image: str = "images/a.png") -> str:
    return f"{SUBJECTS}{name},cup,{image},\n"


@pytest.mark.parametrize(
    ("subjects", "fault"),
    [
        (subject("007"), "duplicate subject_id '007'"),
        (subject("Dog") + "dog,x,images/a.png,\n", "'Dog' and 'dog' differ only in case"),
        (subject("Strasse") + "Straße,x,images/a.png,\n", "'Strasse' and 'Straße'"),
        (subject("a" * 240), r"line 4: subject_id 'a+\.\.\.' \(240 characters\)"),
        (subject("a b"), "'a b'"),
        (subject(""), "line 4: subject_id ''"),
        (subject("../x"), r"'\.\./x'"),
        (subject("x", "images/c.png"), r"line 4: image 'images/c\.png' is not there\n.*[ab]\.png"),
        (subject("x", "pics/c.png"), "there is no folder"),
        (subject("x", "/etc/passwd"), "no path inside the folder"),
        (subject("x", "../other.png"), "no path inside the folder"),
        (subject("x", ""), "no path inside the folder"),
        (SUBJECTS.replace("difficulty", "dificulty"), "mean 'difficulty'"),
        (SUBJECTS.replace("easy", "mid"), "line 2: difficulty: unknown value 'mid'"),
        (SUBJECTS.replace("mug", " "), "line 2: the subject is empty"),
        (SUBJECTS.replace("subject,", "", 1), "no column 'subject'|unknown column"),
        (SUBJECTS.splitlines()[0], "no rows"),
        (SUBJECTS.replace("mug", "caf\xe9").encode("latin-1"), r"line 2: byte \d+ \(0xe9\)"),
        (b"\xef\xbb\xbf" + SUBJECTS.replace("mug", "m\xfc").encode("latin-1"), r"\(0xfc\)"),
        (SUBJECTS.replace("mug", "m\0g"), "line 2: holds a NUL"),
        (SUBJECTS.encode("utf-16"), "not UTF-8"),
    ],
)  # fmt: skip
def test_folder_refuses_subjects(subjects: str | bytes, fault: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=fault) as caught:
        own(tmp_path, subjects=subjects).check()
    assert "subjects.csv" in str(caught.value)
    assert caught.value.mend


@pytest.mark.parametrize(
    ("prompts", "fault"),
    [
        (PROMPTS + "009,x\n", "line 5: unknown subject_id '009'.*\n.*'007'"),
        (PROMPTS + "7,x\n", "unknown subject_id '7'"),
        (PROMPTS + "007,\n", "line 5: the prompt is empty"),
        (PROMPTS + '007,"a\nb"\n', "line 5: the prompt holds the control character"),
        (PROMPTS + "007,a\tb\n", "control character"),
        (PROMPTS + "007,a\u2028b\n", "control character"),
        (PROMPTS + "007,a\0b\n", "line 5: holds a NUL"),
        (PROMPTS + "007,a, b\n", "line 5: 3 cells where the header has 2"),
        ("subject_id,prompt\n007,x\n", "subject '08' has no prompt"),
        ("subject_id,prompt,prompt_id\n08,x,a\n007,x,A\n007,x,a\n", "differ only in case"),
        ("subject_id,prompt,scenario\n08,x,styl\n", "line 2: scenario.*\n.*'style'"),
        ("subject_id,promt\n08,x\n", "mean 'prompt'"),
    ],
)
def test_folder_refuses_prompts(prompts: str, fault: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=fault) as caught:
        own(tmp_path, prompts=prompts).check()
    assert "prompts.csv" in str(caught.value)


def test_case_ids_that_meet_are_refused(tmp_path: Path) -> None:
    subjects = "subject_id,subject,image\na,x,images/a.png\na-b,x,images/b.png\n"
    prompts = "subject_id,prompt,prompt_id\na,x,b-c\na-b,x,c\n"
    with pytest.raises(InputError, match="duplicate case id 'a-b-c'"):
        own(tmp_path, subjects, prompts).check()


def test_long_prompts_run(tmp_path: Path) -> None:
    prompts = f"subject_id,prompt\n08,{'汉' * 100}\n007,{'x' * 2000}\n"
    assert own(tmp_path, prompts=prompts).cases()["prompt"].str.len().tolist() == [2000, 100]


@pytest.mark.parametrize("params", [{"path": 7}, {"path": "x", "pth": 1}, {}, {"path": False}])
def test_params_are_strict(params: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        FolderBenchmark.Params(**params)


def test_parameters_on_the_command_line_are_read_as_in_a_config(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Numbers and lists are such; a path is text, whatever it looks like."""
    told = ["--param", "subjects=3", "--param", "difficulties=[easy, hard]"]
    cli.main(["check-benchmark", "miniworld", *told])
    out = capsys.readouterr().out
    assert "3 subjects, 36 cases" in out and "medium" not in out
    folder = tmp_path / "no: #1"
    (folder / "mug").mkdir(parents=True)
    (folder / "mug" / "a.png").write_bytes(b"x")
    (folder / "prompts.txt").write_text("a {}\n")
    cli.main(["check-benchmark", "folder", "--param", f"path={folder}"])
    assert "1 subjects, 1 cases" in capsys.readouterr().out
    for param, said in (
        ("subjects=three", "subjects"),
        ("subjects", "has no '='"),
        ("subjects=[", "not valid YAML"),
        ("subject=3", "did you mean 'subjects'"),
    ):
        assert cli.main(["check-benchmark", "miniworld", "--param", param]) == 2
        assert said in capsys.readouterr().err
