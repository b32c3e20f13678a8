"""The study imagenhub on the real ratings and scores, against an independent computation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
import yaml

from tests.golden.test_imagenhub_agreement import MODELS, oracle
from tests.golden.test_imagenhub_viescore import rhos

from .conftest import ROOT, Checkout

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def imagenhub(
    tmp_path_factory: pytest.TempPathFactory, shared: Callable[[str], Path]
) -> tuple[Checkout, Path]:
    data = shared("imagenhub")
    checkout = Checkout(tmp_path_factory.mktemp("imagenhub") / "checkout")
    text = (ROOT / "workflow/studies/imagenhub.yaml").read_text()
    checkout.configure(yaml.safe_load(text.replace("../shared/imagenhub", str(data))))
    return checkout, data


def test_agreement_table_is_the_oracles(imagenhub: tuple[Checkout, Path]) -> None:
    checkout, data = imagenhub
    checkout.run()
    table = pd.read_csv(checkout.folder / "results/latest/tables/agreement.csv")
    names = {"CLIP_I": "CLIP-I", "DINO": "DINO"}
    found = table[
        table["level"].isin(["per model", "pooled"]) & table["metric"].isin(names.values())
    ]
    expected = oracle(data)
    assert len(found) == len(expected)
    for (metric, aspect, model), values in expected.items():
        mine = found[
            (found["metric"] == names[metric])
            & (found["dimension"] == aspect)
            & (found["generator"] == model)
        ]
        assert len(mine) == 1
        for column in ("n", "spearman", "kendall_tau_b"):
            assert mine[column].iloc[0] == pytest.approx(values[column], abs=1e-8)
        assert mine["coverage"].iloc[0] == 1.0
        assert mine["source"].iloc[0] == "raters"


def test_viescore_is_the_published_answers(imagenhub: tuple[Checkout, Path]) -> None:
    """One of 1,200 answers was drawn at random by VIEScore's code: it is a row without a value."""
    checkout, data = imagenhub
    checkout.run()
    table = pd.read_csv(checkout.folder / "results/latest/tables/agreement.csv")
    table = table[table["level"] == "per model"]
    for metric, aspect, n in (
        ("VIEScore-SC", "semantic", 599),
        ("VIEScore-PQ", "quality", 600),
        ("VIEScore-O", "overall", 599),
    ):
        mine = table[(table["metric"] == metric) & (table["dimension"] == aspect)]
        assert mine["generator"].tolist() == list(MODELS)
        assert mine["spearman"].tolist() == pytest.approx(rhos(data, aspect, False, 9), abs=1e-8)
        assert mine["n"].sum() == n
    coverage = pd.read_csv(checkout.folder / "results/latest/tables/coverage.csv")
    short = coverage[coverage["coverage"] < 1]
    assert set(zip(short["metric"], short["generator"])) == {
        ("VIEScore-SC", "BLIPDiffusion_Gen"),
        ("VIEScore-O", "BLIPDiffusion_Gen"),
    }


def test_ratings_of_unknown_samples_stop_the_run_before_it_starts(
    imagenhub: tuple[Checkout, Path], tmp_path: Path
) -> None:
    _, data = imagenhub
    checkout = Checkout(tmp_path / "odd")
    raters = tmp_path / "raters"
    raters.mkdir()
    for file in sorted((data / "raters").glob("*.tsv")):
        lines = file.read_text("utf-8").splitlines()
        more = lines[-1].replace("sample_149", "sample_150")
        (raters / file.name).write_text("\n".join([*lines, more]))
    study = yaml.safe_load((checkout.folder / "workflow/studies/imagenhub.yaml").read_text())
    study["benchmark"]["params"] = {"raters": str(data / "raters")}
    study["raters"]["params"]["path"] = str(raters)
    for metric in study["metrics"]:
        if "rubric" in metric:
            metric["rubric"]["params"]["folder"] = str(data / "judge/gpt4o_0shot")
        else:
            metric["params"]["folder"] = str(data / "autometrics")
    checkout.configure(study)
    done = checkout.snakemake("--cores", "1")
    assert done.returncode != 0
    assert "rater1.tsv: line 152" in done.stdout and "rates 'sample_150'" in done.stdout
    assert not (checkout.folder / "results").exists()


def test_raters_that_disagree_in_columns_stop_the_run_before_it_starts(
    imagenhub: tuple[Checkout, Path], tmp_path: Path
) -> None:
    _, data = imagenhub
    checkout = Checkout(tmp_path / "odd")
    raters = tmp_path / "raters"
    raters.mkdir()
    for i, file in enumerate(sorted((data / "raters").glob("*.tsv"))):
        text = file.read_text("utf-8")
        (raters / file.name).write_text(text.replace("DreamBoothLora", "Lora") if i else text)
    text = (ROOT / "workflow/studies/imagenhub.yaml").read_text()
    text = text.replace("../shared/imagenhub/raters", str(raters))
    checkout.configure(yaml.safe_load(text.replace("../shared/imagenhub", str(data))))
    done = checkout.snakemake("--cores", "1")
    assert done.returncode != 0
    assert "rater1.tsv" in done.stdout and "rater2.tsv" in done.stdout and "Lora" in done.stdout
    assert not (checkout.folder / "results").exists()
