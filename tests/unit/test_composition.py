"""What a benchmark is made of, and how many requests judging takes."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from subjectbench import cells, composition, records
from subjectbench.errors import InputError


def cases() -> pd.DataFrame:
    rows = []
    for i, (category, paradigm) in enumerate(
        [
            ("human", "non_editing"),
            ("human", "local_editing"),
            ("human", "complex_editing"),
            ("animal", "global_editing"),
            ("animal", "non_editing"),
        ]
    ):
        row = dict.fromkeys(records.CASES.columns) | {
            "case_id": f"c{i}",
            "subject_id": f"s{i // 2}",
        }
        row |= {"reference_id": f"r{i // 2}", "category": category, "paradigm": paradigm}
        rows.append(row | {"details": "{}"})
    return records.table("cases", rows, "test")


def units() -> pd.DataFrame:
    """Three units for c0, two for c1, one for c3; c2 failed; c4 is absent."""
    kinds = {
        "colour": ("global_attribute", "image_only", "vqa", 2.0),
        "face": ("part", "image_only", "face", 5.0),
        "background": ("setting", "text_only", "vqa", 1.0),
    }
    rows = []
    for case, names in {"c0": list(kinds), "c1": ["colour", "face"], "c3": ["background"]}.items():
        for name in names:
            level, relevance, tool, weight = kinds[name]
            row = {"case_id": case, "unit_id": f"{level}/{name}", "status": "ok", "level": level}
            row |= {"name": name, "relevance": relevance, "weight": weight, "question": "Is it?"}
            rows.append(row | {"tool": tool, "details": "{}"})
    failed = dict.fromkeys(records.UNITS.columns) | {"case_id": "c2", "unit_id": ""}
    rows.append(failed | {"status": "refused", "details": "{}"})
    return records.table("units", rows, "test")


def test_cases_by_category() -> None:
    frame = composition.by_category(cases()).set_index("category")
    assert frame.index.tolist() == ["animal", "human", cells.TOTAL]
    paradigms = list(records.PARADIGMS)
    assert frame.loc["human", paradigms].tolist() == [1, 1, 0, 1]
    assert frame.loc[cells.TOTAL, [*paradigms, "cases"]].tolist() == [2, 1, 1, 1, 5]
    assert frame.loc[cells.TOTAL, ["tier_1", "tier_2", "tier_3"]].tolist() == [2, 2, 1]
    assert frame["conflicting"].tolist() == pytest.approx([1 / 2, 2 / 3, 3 / 5])
    assert frame.loc[cells.TOTAL, ["subjects", "references"]].tolist() == [3, 3]


def test_cases_without_paradigm_or_category_are_shown() -> None:
    odd = cases()
    odd.loc[0, "paradigm"], odd.loc[4, "category"] = None, None
    frame = composition.by_category(odd).set_index("category")
    assert frame.index.tolist() == ["animal", "human", cells.UNLABELLED, cells.TOTAL]
    assert frame.loc["human", cells.UNLABELLED] == 1
    assert frame.loc["human", "conflicting"] == 1.0  # of the two whose paradigm is known
    bare = composition.by_category(cases().assign(paradigm=None))
    assert bare["conflicting"].isna().all()
    with pytest.raises(InputError, match="unknown paradigm 'edit'"):
        composition.by_category(cases().assign(paradigm="edit"))


def test_units_by_category() -> None:
    frame = composition.units_by_category(units(), cases()).set_index("category")
    assert frame.index.tolist() == ["animal", "human", cells.TOTAL]
    human = frame.loc["human"]
    assert (human["cases"], human["n"]) == (3, 2) and human["coverage"] == pytest.approx(2 / 3)
    wanted = {"units": 2.5, "global_attribute": 1, "part": 1, "setting": 0.5, "image_only": 2}
    wanted |= {"text_only": 0.5, "text_and_image": 0, "face": 1}
    assert human[list(wanted)].to_dict() == pytest.approx(wanted)
    assert human["weight"] == pytest.approx((2 + 5 + 1 + 2 + 5) / 5)
    assert frame.loc[cells.TOTAL, "units"] == pytest.approx(6 / 3)
    levels = frame[list(records.LEVELS)].sum(axis=1)
    assert levels.tolist() == pytest.approx(frame["units"].tolist())
    none = composition.units_by_category(units().query("case_id == 'c3'"), cases())
    row = none.set_index("category").loc["human"]
    assert row["n"] == 0 and math.isnan(row["units"]) and row["coverage"] == 0
    with pytest.raises(InputError, match="unknown case 'c9'"):
        composition.units_by_category(units().replace({"case_id": {"c0": "c9"}}), cases())


def test_unit_counts_cover_every_case() -> None:
    frame = composition.unit_counts(units(), cases())
    assert frame.to_dict("list") == {
        "category": ["animal", "animal", "human", "human", "human"],
        "units": [0, 1, 0, 2, 3],
        "cases": [1, 1, 1, 1, 1],
        "share": pytest.approx([0.5, 0.5, 1 / 3, 1 / 3, 1 / 3]),
    }


def test_requests_against_the_reference() -> None:
    """3 decomposed cases, 6 units (2 faces), 4 models, 2 samples: 24 pictures."""
    frame = composition.requests(
        units(), generators=4, replicates=2, calls_per_image=2.5, calls_per_case=1, noes=9
    ).set_index("step")
    assert frame["here"].tolist() == [3, 0, 60, 0, 63]
    assert frame["reference"].tolist() == [3, 6, 4 * 8, 9, 3 + 6 + 32 + 9]
    assert frame.loc["total", "reference_per_case"] == pytest.approx(50 / 3)
    assert frame.loc["verification", "here_per_image"] == 2.5
    assert (frame["note"] == "").all()
    bound = composition.requests(
        units(), generators=4, replicates=2, calls_per_image=1, calls_per_case=0
    ).set_index("step")
    assert pd.isna(bound.loc["explanation", "reference"])
    assert bound.loc["total", "reference"] == 41 and bound.loc["total", "here"] == 24
    assert "not counted" in bound.loc["total", "note"]
    with pytest.raises(InputError, match="0 replicates"):
        composition.requests(
            units(), generators=4, replicates=0, calls_per_image=1, calls_per_case=0
        )


def test_requests_where_no_case_could_be_decomposed() -> None:
    """A study whose judge splits no case still gets its tables."""
    failed = units()
    failed = failed[failed["status"] != "ok"]
    frame = composition.requests(
        failed, generators=4, replicates=2, calls_per_image=0, calls_per_case=2, noes=0
    ).set_index("step")
    assert frame.loc["total", ["here", "reference"]].tolist() == [0, 0]
    assert frame[["here_per_case", "reference_per_case", "here_per_image"]].isna().all(axis=None)


# --------------------------------------------------------------------------- DSH-Bench


def tiered(rows: list[tuple[str, str | None, str | None, str | None]]) -> pd.DataFrame:
    """Two cases per (subject, domain, kind, category)."""
    out = []
    for i, (subject, domain, kind, category) in enumerate(rows):
        for k in range(2):
            row = dict.fromkeys(records.CASES.columns) | {"case_id": f"{subject}-{k}"}
            row |= {"subject_id": subject, "domain": domain, "kind": kind, "category": category}
            row |= {"difficulty": records.DIFFICULTIES[i % 2], "reference_id": subject}
            out.append(row | {"scenario": records.SCENARIOS[k], "details": "{}"})
    return records.table("cases", out, "test")


THREE = [("s1", "P", "Animal", "Bird"), ("s2", "P", "Object", "Mug"), ("s3", "P", "Object", "Hat")]


def test_distributions() -> None:
    both = {"Ours": tiered(THREE), "Other": tiered([("x", None, None, None)])}
    table = composition.distributions(both)
    found = table.set_index(["facet", "level", "benchmark"])
    assert list(dict.fromkeys(table["facet"])) == ["difficulty", "scenario", "category"]
    difficulty = table[table["facet"] == "difficulty"]
    assert list(dict.fromkeys(difficulty["level"])) == ["easy", "medium"]  # no empty level
    assert found.loc[("difficulty", "easy", "Ours"), ["subjects", "cases"]].tolist() == [2, 4]
    assert found.loc[("difficulty", "medium", "Other"), "cases"] == 0
    assert found.loc[("category", cells.UNLABELLED, "Other"), "subjects"] == 1
    levels = list(dict.fromkeys(table.loc[table["facet"] == "category", "level"]))
    assert levels == ["Bird", "Hat", "Mug", cells.UNLABELLED]
    for _, mine in table.groupby(["facet", "benchmark"]):
        assert mine["share_of_cases"].sum() == pytest.approx(1)
        assert mine["cases"].sum() == len(both[mine["benchmark"].iloc[0]])


def test_hierarchy() -> None:
    rows = [*THREE, ("s4", "N", "Animal", "Bird"), ("s5", None, None, None)]
    table = composition.hierarchy(tiered(rows))
    tiers = table[["domain", "kind", "category"]].to_numpy().tolist()
    none = cells.UNLABELLED
    assert tiers[:3] == [["P", "Object", "Hat"], ["P", "Object", "Mug"], ["P", "Animal", "Bird"]]
    assert sorted(tiers[3:]) == [[none, none, none], ["N", "Animal", "Bird"]]
    assert table["subjects"].sum() == 5 and table["cases"].sum() == 10
    shuffled = tiered(rows).sample(frac=1, random_state=0)
    pd.testing.assert_frame_equal(table, composition.hierarchy(shuffled))


def test_reference_map_keeps_neighbours_and_is_seeded() -> None:
    rng = np.random.default_rng(0)
    subjects = [(f"s{i:02d}", "P", f"kind {i % 2}", None) for i in range(40)]
    cases = tiered(subjects)
    centres = rng.normal(size=(2, 16))
    near = {f"s{i:02d}": centres[i % 2] + 0.05 * rng.normal(size=16) for i in range(40)}
    vectors = {"B": {i: (7.0 * v).astype(np.float32) for i, v in near.items()}}
    table = composition.reference_map({"B": cases}, vectors, seed=1)
    again = composition.reference_map({"B": cases.sample(frac=1, random_state=3)}, vectors, seed=1)
    pd.testing.assert_frame_equal(table, again)
    assert (table["perplexity"] == 40 / 3).all()
    points = table[["x", "y"]].to_numpy()
    distance = np.linalg.norm(points[:, None] - points[None], axis=2)
    np.fill_diagonal(distance, np.inf)
    nearest = distance.argmin(axis=1)
    assert (table["kind"].to_numpy() == table["kind"].to_numpy()[nearest]).all()


def test_reference_map_edges() -> None:
    cases = tiered(THREE)
    few = composition.reference_map({"B": cases}, {"B": {"s1": np.ones(3, np.float32)}})
    assert few["reference_id"].tolist() == ["s1"] and few[["x", "perplexity"]].isna().all(axis=None)
    assert len(composition.reference_map({"B": cases}, {})) == 0
    odd = {"B": {"s1": np.ones(3, np.float32), "s2": np.ones(4, np.float32)}}
    with pytest.raises(InputError, match="one encoder"):
        composition.reference_map({"B": cases}, odd)
