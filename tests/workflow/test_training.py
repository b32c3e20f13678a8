"""Methods that are trained per subject, in the real Snakefile: what runs, and only that."""

from __future__ import annotations

import copy
from typing import Any

import pandas as pd
import pytest

from .conftest import Checkout

pytestmark = pytest.mark.slow

STUDY: dict[str, Any] = {
    "study": "trained",
    "benchmark": {"card": "miniworld", "params": {"subjects": 2, "scenarios": ["background"]}},
    "generators": [
        {
            "card": "mini_textual_inversion",
            "params": {"training_steps": 3, "training_batch": 1, "steps": 2},
        },
        "noise",
    ],
    "metrics": ["mini_dino"],
    "statistics": {"bootstrap": 10},
    "run": {"device": "cpu"},
}
READERS = {"tabulate_study": 1, "write_report": 1}


def changed(**params: Any) -> dict[str, Any]:
    study = copy.deepcopy(STUDY)
    study["generators"][0]["params"] |= params
    return study


@pytest.mark.long
def test_training_is_a_step_of_its_own(tmp_path: Any) -> None:
    checkout = Checkout(tmp_path / "a b'c")
    checkout.configure(STUDY)
    assert checkout.planned() == {
        "prepare_benchmark": 1,
        "train_subjects": 1,
        "generate_images": 2,
        "embed_cases": 1,
        "embed_images": 2,
        "score_metric": 2,
        **READERS,
    }
    checkout.run()
    assert checkout.planned() == {}
    sampled = {"generate_images": 1, "embed_images": 1, "score_metric": 1, **READERS}
    # How pictures are sampled trains nothing; how methods are trained does.
    for change in ({"steps": 3}, {"guidance_scale": 2.0}, {"template": "a photo, {prompt}"}):
        checkout.configure(changed(**change))
        assert checkout.planned() == sampled, change
    checkout.configure(changed(learning_rate=0.1))
    assert checkout.planned() == {"train_subjects": 1, **sampled}
    checkout.configure(STUDY)
    path = "workflow/subjectbench/generators/personal.py"
    text = (checkout.folder / path).read_text()
    assert "replace(job, prompt=told, subject=name)" in text
    code = text.replace("subject=name)", "subject=str(name))")
    (checkout.folder / path).write_text(code)
    assert checkout.planned() == sampled
    (checkout.folder / path).write_text(text)
    # Another subject: its own training runs, the others' files are taken over.
    study = copy.deepcopy(STUDY)
    study["benchmark"]["params"]["subjects"] = 3
    checkout.configure(study)
    assert checkout.planned()["train_subjects"] == 1
    before = {p: p.stat().st_mtime_ns for p in (checkout.folder / "results").rglob("weights.zip")}
    checkout.run("--until", "train_subjects")
    found = sorted(
        (checkout.folder / "results/store/train").rglob("subjects.parquet"),
        key=lambda p: p.stat().st_mtime_ns,
    )
    old, new = (pd.read_parquet(p).set_index("subject_id") for p in found)
    assert len(old) == 2 and len(new) == 3
    pd.testing.assert_frame_equal(new.loc[old.index], old)
    assert {p: p.stat().st_mtime_ns for p in before} == before
