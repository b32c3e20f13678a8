"""Raters: ImagenHub's published ratings, and simulated raters with a known error."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subjectbench.errors import InputError
from subjectbench.raters.imagenhub import PLUGIN as ImagenHubRaters
from subjectbench.raters.simulated import PLUGIN as SimulatedRaters
from subjectbench.raters.simulated import normal
from subjectbench.records import table

SHARED = Path(__file__).resolve().parents[3] / "shared"


def samples(cases: list[str], **changes: Any) -> pd.DataFrame:
    rows = [
        {
            "sample_id": f"{case}-r0",
            "case_id": case,
            "replicate": 0,
            "seed": 1,
            "status": "external",
            "image_sha256": None,
            "details": "{}",
            **changes,
        }
        for case in cases
    ]
    return table("samples", rows, "test")


# --- ImagenHub -----------------------------------------------------------------------------------


def files(folder: Path, *texts: str) -> Path:
    (folder / "raters").mkdir(exist_ok=True)
    for number, text in enumerate(texts, 1):
        (folder / "raters" / f"T_rater{number}.tsv").write_bytes(text.encode())
    return folder


GOOD = "uid\tA\tSuTI\r\nsample_0.jpg\t[0.5, 1]\t[1,1]\r\nsample_1.jpg\t[1,0]\t[1,1]"  # no last \n


def imagenhub(folder: Path, **columns: str) -> ImagenHubRaters:
    params = ImagenHubRaters.Params(path="raters", columns=columns or {"a": "A"})
    return ImagenHubRaters(params, folder)


def test_imagenhub_published() -> None:
    if not (SHARED / "imagenhub/raters").exists():
        pytest.skip("published data not here: ../shared/imagenhub/raters")
    columns = {"DB": "DreamBooth", "BLIP": "BLIPDiffusion_Gen"}
    params = ImagenHubRaters.Params(path="imagenhub/raters", columns=columns)
    raters = ImagenHubRaters(params, SHARED)
    raters.check()
    frame = samples([f"sample_{i}" for i in range(150)])
    got = raters.ratings({"BLIP": frame, "DB": frame.iloc[::-1], "control": frame})
    assert len(got) == 2 * 150 * 3 * 3 and (got["status"] == "ok").all()
    assert set(got["rater"]) == {"rater1", "rater2", "rater3"} and not raters.simulated
    one = got[(got["generator"] == "BLIP") & (got["sample_id"] == "sample_1-r0")]
    wide = one.pivot(index="rater", columns="dimension", values="value")
    assert wide.loc["rater1"].to_dict() == {
        "overall": math.sqrt(0.5),
        "quality": 1,
        "semantic": 0.5,
    }
    assert len(raters.sources()) == 3
    assert raters.ratings({"DB": frame, "BLIP": frame}).equals(got)


def test_overall_is_formed_per_rater(tmp_path: Path) -> None:
    raters = imagenhub(files(tmp_path, GOOD, GOOD.replace("[0.5, 1]", "[ 0.0 ,1.0]")))
    raters.check()
    got = raters.ratings({"a": samples(["sample_0"])})
    overall = got[got["dimension"] == "overall"]["value"].tolist()
    assert overall == [math.sqrt(0.5), 0.0]


@pytest.mark.parametrize(
    ("second", "fault"),
    [
        (GOOD.replace("SuTI", "Suti"), "columns differ from those of T_rater1.tsv.*SuTI.*Suti"),
        (GOOD.replace("sample_1", "sample_2"), "uids differ from those of T_rater1.tsv"),
        (GOOD.replace("sample_1", "sample_0"), "line 3: uid 'sample_0.jpg' is on line 2 too"),
        (GOOD.replace("[1,0]", "[1,0.7]"), "line 3, column A: '.1,0.7.' is not"),
        (GOOD.replace("[1,0]", "[1]"), "line 3, column A"),
        (GOOD.replace("[1,0]", ""), "line 3, column A"),
        (GOOD.replace("[1,0]", "[nan,0]"), "line 3, column A"),
        (GOOD.replace("uid", "id"), "no column 'uid'"),
        (GOOD.replace("\t[1,0]", ""), "line 3: 2 cells"),
    ],
)
def test_imagenhub_faults_name_the_file(second: str, fault: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=fault) as caught:
        imagenhub(files(tmp_path, GOOD, second)).check()
    assert "T_rater2.tsv" in str(caught.value)


def test_faults_outside_mapped_columns_do_not_matter(tmp_path: Path) -> None:
    imagenhub(files(tmp_path, GOOD.replace("[1,1]", "n/a"))).check()


def test_imagenhub_columns_and_samples_must_fit(tmp_path: Path) -> None:
    files(tmp_path, GOOD)
    with pytest.raises(InputError, match=r"no column 'suti'\n.*A, SuTI"):
        imagenhub(tmp_path, a="suti").check()
    with pytest.raises(InputError, match="given to 'a' too"):
        imagenhub(tmp_path, a="A", b="A").check()
    with pytest.raises(InputError, match="no generator 'a'"):
        imagenhub(tmp_path).ratings({"b": samples(["sample_0"])})
    with pytest.raises(InputError, match="nobody rated case 'sample_7'"):
        imagenhub(tmp_path).ratings({"a": samples(["sample_7"])})
    with pytest.raises(InputError, match="one picture per case"):
        imagenhub(tmp_path).ratings({"a": samples(["sample_0"], replicate=1)})
    with pytest.raises(InputError, match="no rater files"):
        (tmp_path / "raters" / "T_rater1.tsv").unlink()
        imagenhub(tmp_path).check()


def test_one_rater_twice_is_refused(tmp_path: Path) -> None:
    files(tmp_path, GOOD)
    (tmp_path / "raters" / "U_rater1.tsv").write_text(GOOD)
    with pytest.raises(InputError, match="same rater 'rater1'"):
        imagenhub(tmp_path).check()


@settings(max_examples=60, deadline=None)
@given(cell=st.text(st.characters(codec="utf-8", exclude_characters='\t\r\n\0"')))
def test_any_cell_is_a_rating_or_an_input_error(
    cell: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = files(tmp_path_factory.mktemp("cell"), f"uid\tA\nsample_0.jpg\t{cell}\n")
    try:
        imagenhub(folder).check()
    except InputError:
        return
    assert set(cell) <= set(" [],.015\xa0")


# --- simulated -----------------------------------------------------------------------------------


def truths(*values: Any, status: str = "ok") -> pd.DataFrame:
    frame = samples([f"c{i}" for i in range(len(values))], status=status)
    frame["details"] = [json.dumps({} if v is None else {"truth": v}) for v in values]
    return frame


def simulated(**params: Any) -> SimulatedRaters:
    return SimulatedRaters(SimulatedRaters.Params(**params), Path())


ALL = {"preservation": 0.8, "following": 0.4, "quality": 1.0}


def test_without_error_ratings_are_the_truth() -> None:
    got = simulated(bias=0.0, noise=0.0).ratings({"g": truths(ALL)})
    assert len(got) == 15 and simulated().simulated
    means = got.groupby("dimension")["value"].agg(["min", "max"])
    assert means.loc["preservation"].tolist() == [4, 4]
    assert means.loc["following"].tolist() == [2, 2]
    assert means.loc["quality"].tolist() == [5, 5]


def test_samples_without_truth_are_not_rated() -> None:
    frame = truths(ALL, None, {"quality": 0.5})
    got = simulated(raters=2).ratings({"g": frame})
    assert got.groupby("sample_id").size().to_dict() == {"c0-r0": 6, "c2-r0": 2}
    assert simulated().ratings({"g": truths(ALL, status="invalid_image")}).empty
    assert simulated().ratings({}).empty


def test_order_and_company_do_not_matter() -> None:
    frame = truths(*[ALL] * 6)
    got = simulated().ratings({"g": frame, "h": frame})
    assert simulated().ratings({"h": frame.iloc[::-1], "g": frame.sample(frac=1)}).equals(got)
    alone = simulated(raters=3).ratings({"h": frame.iloc[2:3]})
    part = got[(got["generator"] == "h") & (got["sample_id"] == "c2-r0")]
    part = part[part["rater"].isin(["rater1", "rater2", "rater3"])].reset_index(drop=True)
    assert alone.equals(part)
    assert not simulated(seed=1).ratings({"g": frame, "h": frame}).equals(got)


def test_draws_are_standard_normal_and_never_change() -> None:
    draws = np.array([normal(0, "x", i) for i in range(4000)])
    assert abs(draws.mean()) < 0.06 and abs(draws.std() - 1) < 0.04
    assert normal("a", "b/c") != normal("a/b", "c")
    assert normal(0, "rater1") == pytest.approx(-0.3862319775493195, abs=1e-12)


@settings(max_examples=30, deadline=None)
@given(st.floats(0, 1), st.floats(0, 10), st.integers(0, 2**63))
def test_ratings_are_whole_and_on_the_scale(truth: float, spread: float, seed: int) -> None:
    raters = simulated(raters=3, bias=spread, noise=spread, seed=seed)
    values = raters.ratings({"g": truths({"quality": truth})})["value"]
    assert values.isin(range(6)).all()


@pytest.mark.parametrize("bad", [1.5, -0.1, float("nan"), "0.5", True, None])
def test_bad_truth_is_refused(bad: Any) -> None:
    with pytest.raises(InputError, match=r"g: sample 'c0-r0': details\.truth\.quality"):
        simulated().ratings({"g": truths({"quality": bad})})
    with pytest.raises(InputError, match="not an object"):
        simulated().ratings({"g": truths([1])})
