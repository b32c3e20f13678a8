"""A folder of one's own, with pictures as they come: some of them broken."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from .conftest import Checkout

pytestmark = pytest.mark.slow

SUBJECTS = ("whole", "cut", "empty", "text", "sideways", "glass")


def picture(mode: str = "RGB") -> Image.Image:
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (96, 64, len(mode)), np.uint8)
    return Image.fromarray(pixels, mode)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Six subjects: one cut, one empty, one no picture at all, one with EXIF, one transparent."""
    folder = tmp_path / "mine"
    folder.mkdir()
    whole = io.BytesIO()
    picture().save(whole, "JPEG")
    (folder / "whole.jpg").write_bytes(whole.getvalue())
    (folder / "cut.jpg").write_bytes(whole.getvalue()[: len(whole.getvalue()) // 2])
    (folder / "empty.jpg").touch()
    (folder / "text.jpg").write_text("<html>not found</html>")
    exif = Image.Exif()
    exif[0x0112] = 6
    picture().save(folder / "sideways.jpg", "JPEG", exif=exif)
    picture("RGBA").save(folder / "glass.jpg", "PNG")
    rows = "\n".join(f"{s},thing,{s}.jpg" for s in SUBJECTS)
    (folder / "subjects.csv").write_text(f"subject_id,subject,image\n{rows}\n")
    rows = "\n".join(f"{s},a thing on a beach\n{s},a thing in the snow" for s in SUBJECTS)
    (folder / "prompts.csv").write_text(f"subject_id,prompt\n{rows}\n")
    return folder


def study(folder: Path) -> dict[str, Any]:
    return {
        "study": "mine",
        "benchmark": {"card": "folder", "params": {"path": str(folder)}},
        "generators": ["copy_reference"],
        "metrics": ["mini_clip_i", "near_copy"],
        "run": {"device": "cpu"},
    }


def test_broken_pictures_are_counted_and_the_rest_is_scored(folder: Path, tmp_path: Path) -> None:
    checkout = Checkout(tmp_path / "checkout")
    checkout.configure(study(folder))
    checkout.run()
    store = checkout.folder / "results/store"
    found = pd.read_parquet(next(store.glob("benchmark/*/*/references.parquet")))
    assert dict(zip(found["reference_id"], found["status"], strict=True)) == {
        "whole": "ok",
        "cut": "truncated",
        "empty": "empty",
        "text": "unreadable",
        "sideways": "ok",
        "glass": "ok",
    }
    scores = pd.concat(map(pd.read_parquet, store.rglob("scores.parquet")))
    scores = scores[scores["metric"] == "mini_clip_i"]
    assert len(scores) == 12  # nothing is dropped
    ok = scores[scores["status"] == "ok"]
    assert sorted(set(ok["sample_id"].str.split("-").str[0])) == ["glass", "sideways", "whole"]
    np.testing.assert_allclose(ok["value"], 1.0, atol=1e-6)  # a copy of the reference
    assert scores.loc[scores["status"] != "ok", "value"].isna().all()
    table = pd.read_csv(checkout.folder / "results/latest/tables/coverage.csv")
    assert (table["n"].iloc[0], table["expected"].iloc[0]) == (6, 12)
    assert table["coverage"].iloc[0] == 0.5
    assert table["others"].iloc[0] == "6 bad_reference"
    (made,) = pd.read_csv(checkout.folder / "results/latest/tables/pictures.csv").to_dict("records")
    assert (made["expected"], made["pictures"], made["without"]) == (12, 6, "6 bad_reference")
    assert (made["identical"], made["near_copies"], made["near_copy_share"]) == (6, 6, 1.0)


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("subjects.csv", "subject_id,subject,image\nwhole,thing,no.jpg\n", ["no.jpg", "line 2"]),
        (
            "subjects.csv",
            "subject_id,subject,image\nDog,thing,whole.jpg\ndog,thing,cut.jpg\n",
            ["'Dog' and 'dog'"],
        ),
        ("prompts.csv", "subject_id,prompt\nwhole,caf\xe9\n", ["prompts.csv", "UTF-8", "line 2"]),
        ("prompts.csv", "subject_id,promt\nwhole,a thing\n", ["promt", "did you mean 'prompt'"]),
    ],
)
def test_bad_files_stop_the_run_before_it_starts(
    folder: Path, tmp_path: Path, file: str, text: str, said: list[str]
) -> None:
    (folder / file).write_bytes(text.encode("latin-1"))
    checkout = Checkout(tmp_path / "checkout")
    checkout.configure(study(folder))
    done = checkout.snakemake("--cores", "1")
    assert done.returncode != 0
    assert all(part in done.stdout for part in said), done.stdout
    assert not (checkout.folder / "results").exists()
