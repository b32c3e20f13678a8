"""Near copies of the reference, on pictures whose truth is known; pictures that are alike."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from subjectbench import cards, tables
from subjectbench.config import Use
from subjectbench.encoders.base import Vector
from subjectbench.generators.base import Job
from subjectbench.metrics.base import Item, Result
from subjectbench.miniworld.draw import draw
from subjectbench.miniworld.scenes import make_prompts, reference_scene
from subjectbench.miniworld.subjects import make_subjects
from subjectbench.vocabulary import Status

SUBJECTS = 8


def plugin(kind: str, name: str) -> Any:
    card = cards.load(kind, name)
    return cards.plugin(kind, card, name), cards.params(kind, Use(card=name), name), card


def compared(references: list[Image.Image], pictures: list[Image.Image]) -> list[Result]:
    encoder_class, params, card = plugin("encoder", "thumbnail")
    encoder = encoder_class(params, card, "cpu")
    metric_class, params, card = plugin("metric", "near_copy")
    items = [
        Item("g", str(i), str(i), image=picture, references=(reference,))
        for i, (reference, picture) in enumerate(
            zip(encoder.vectors(references), encoder.vectors(pictures), strict=True)
        )
    ]
    results: list[Result] = metric_class(params, card, cards.ROOT).score(items)
    return results


@pytest.fixture(scope="module")
def jobs() -> list[Job]:
    """The miniworld's cases of a few subjects, with their references."""
    out = []
    for number, subject in enumerate(make_subjects(0, SUBJECTS)):
        reference = draw(subject, reference_scene(), 64)
        for index, (_, prompt, scene) in enumerate(make_prompts(subject, 0)):
            details = {"subject": subject.to_dict(), "scene": scene.to_dict()}
            out.append(
                Job(f"{number}-{index}", str(number), "x", prompt, reference, 12 * number + index,
                    details)
            )  # fmt: skip
    return out


def outcomes(name: str, jobs: list[Job]) -> list[Any]:
    made, params, card = plugin("generator", name)
    return list(made(params, card, None, "cpu").generate(jobs))


def test_a_copy_is_one(jobs: list[Job]) -> None:
    made = outcomes("copy_reference", jobs)
    results = compared([j.reference for j in jobs], [o.image for o in made])
    assert {(r.status, r.value, r.details["share"]) for r in results} == {(Status.OK, 1.0, 1.0)}


def test_pasted_subjects_are_found_and_drawn_ones_are_not(jobs: list[Job]) -> None:
    """sim_copy_paste pastes in three of four pictures, and says in which."""
    found = {}
    for name in ("sim_copy_paste", "sim_careful", "sim_identity_drift", "prompt_only"):
        made = outcomes(name, jobs)
        results = compared([j.reference for j in jobs], [o.image for o in made])
        for outcome, result in zip(made, results, strict=True):
            pasted = outcome.details["defects"]["pasted"]
            found.setdefault((name, pasted), []).append(result.value)
    shares = {key: float(np.mean(values)) for key, values in found.items()}
    assert shares.pop(("sim_copy_paste", True)) >= 0.85
    assert len(shares) == 4 and max(shares.values()) <= 0.02, shares


def test_brightness_does_not_hide_a_copy_and_places_do_not_make_one(jobs: list[Job]) -> None:
    reference = jobs[0].reference
    darker = Image.fromarray((np.asarray(reference) * 0.6).astype(np.uint8))
    moved = Image.fromarray(np.roll(np.asarray(reference), (9, 9), (0, 1)))
    larger = reference.resize((512, 512), Image.Resampling.BICUBIC)
    results = compared([reference] * 3, [darker, moved, larger])
    assert [r.value for r in results] == [1.0, 0.0, 1.0]


def test_what_cannot_be_compared_has_no_value() -> None:
    flat = Image.new("RGB", (64, 64), "grey")
    (result,) = compared([flat], [flat])
    assert result.status == Status.NOT_APPLICABLE and result.value is None
    metric_class, params, card = plugin("metric", "near_copy")
    metric = metric_class(params, card, cards.ROOT)
    broken = Item("g", "a", "a", image=Vector(Status.TRUNCATED), references=(Vector(Status.OK),))
    alone = replace(broken, references=())
    assert [r.status for r in metric.score([broken, alone])] == [Status.TRUNCATED, Status.MISSING]


# --- the table of pictures -----------------------------------------------------------------------


def rows(metric: str, shas: dict[tuple[str, str, int], str | None], **values: float) -> Any:
    """Scores of (subject, case, replicate) to sha256."""
    return pd.DataFrame(
        [
            {
                "generator": "g",
                "sample_id": f"{case}-s{replicate}",
                "case_id": case,
                "subject_id": subject,
                "image_sha256": sha,
                "metric": metric,
                "key": "k",
                "status": "ok" if sha else "refused",
                "value": values.get(case, 0.0) if sha else None,
            }
            for (subject, case, replicate), sha in shas.items()
        ]
    )


SHAS: dict[tuple[str, str, int], str | None] = {
    ("s", "c1", 0): "A",
    ("s", "c2", 0): "A",  # another prompt, the same bytes
    ("s", "c3", 0): "B",
    ("s", "c3", 1): "B",  # the same prompt: the seed has no effect, which is another matter
    ("t", "c4", 0): "A",  # another subject
    ("t", "c5", 0): None,
}


def test_identical_pictures_across_prompts_are_counted() -> None:
    scores = pd.concat([rows("m", SHAS), rows("n", SHAS, c1=1.0, c4=1.0)])
    (row,) = tables.pictures(scores, "n", generators={"g": "G"}).to_dict("records")
    wanted = {"generator": "g", "title": "G", "expected": 6, "pictures": 5, "identical": 2}
    assert row | wanted == row
    assert row["without"] == "1 refused" and row["near_copies"] == 2
    assert row["near_copy_share"] == pytest.approx(2 / 5)


def test_without_the_metric_nothing_is_said_of_copies() -> None:
    (row,) = tables.pictures(rows("m", SHAS)).to_dict("records")
    assert row["pictures"] == 5 and np.isnan(row["near_copies"])
