"""What runs, and only that: exact job sets of the real Snakefile."""

from __future__ import annotations

import copy
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from .conftest import ROOT, TINY, Checkout

pytestmark = pytest.mark.slow

EVERYTHING = {
    "prepare_benchmark": 1,
    "generate_images": 3,
    "embed_cases": 3,
    "embed_images": 9,
    "score_metric": 12,
    "rate_samples": 1,
    "tabulate_study": 1,
    "write_report": 1,
}
READERS = {"tabulate_study": 1, "write_report": 1}


def edit(checkout: Checkout, change: Callable[[dict[str, Any]], object]) -> None:
    study = copy.deepcopy(TINY)
    change(study)
    checkout.configure(study)


def replace(checkout: Checkout, path: str, old: str, new: str) -> None:
    file = checkout.folder / path
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def test_fresh_checkout_plans_everything(tmp_path: Path) -> None:
    assert Checkout(tmp_path / "fresh").planned() == EVERYTHING


def test_nothing_to_do_after_a_run(ran: Checkout) -> None:
    """SMK-06; SMK-07: in a folder whose name holds a space and a quote."""
    assert ran.planned() == {}


def test_deleting_snakemakes_own_records_changes_nothing(ran: Checkout) -> None:
    shutil.rmtree(ran.folder / ".snakemake")
    assert ran.planned() == {}


def test_file_times_change_nothing(ran: Checkout) -> None:
    """SMK-05."""
    rng = random.Random(0)
    for path in ran.folder.rglob("*"):
        os.utime(path, (when := rng.uniform(1e9, 2e9), when), follow_symlinks=False)
    assert ran.planned() == {}


def test_comments_docstrings_and_key_order_change_nothing(ran: Checkout) -> None:
    for path in (ran.folder / "workflow" / "subjectbench").rglob("*.py"):
        path.write_text(path.read_text() + "\n\n# a remark\n")
    replace(
        ran,
        "workflow/subjectbench/metrics/cosine.py",
        '"""Cosine between the picture',
        '"""The cosine between the picture',
    )
    ran.configure(dict(reversed(TINY.items())))
    config = ran.folder / "config.yaml"
    config.write_text("# a remark\n" + config.read_text())
    card = ran.folder / "workflow/cards/metrics/mini_dino.yaml"
    card.write_text("# a remark\n" + card.read_text())
    assert ran.planned() == {}


def test_how_to_run_changes_nothing(ran: Checkout) -> None:
    edit(ran, lambda s: s["run"].update(batch_size=7, device="auto", threads=2))
    assert ran.planned() == {}


def test_one_metric_parameter_and_back(ran: Checkout) -> None:
    def change(study: dict[str, Any]) -> None:
        study["metrics"][2] = {"card": "mini_dino", "name": "mini_dino", "params": {"scale": 2.0}}

    before = ran.hashes("results/store/score")
    edit(ran, change)
    assert ran.planned() == {"score_metric": 3, **READERS}
    ran.run()
    assert ran.planned() == {}
    after = ran.hashes("results/store/score")
    new = set(after) - set(before)
    assert new and all("/mini_dino/" in f"/{name}" for name in new)
    assert {name: after[name] for name in before} == before
    latest = (ran.folder / "results" / "latest").readlink()
    # Reverting is an instant hit, and the pointer follows though nothing runs.
    ran.configure(TINY)
    assert ran.planned() == {}
    ran.run()
    assert (ran.folder / "results" / "latest").readlink() != latest


@pytest.mark.long
def test_a_subject_more_runs_its_shard_only(tmp_path: Path) -> None:
    """And afterwards no picture, embedding or row of the other shard is another than before."""
    checkout = Checkout(tmp_path / "sharded")
    study = {
        "study": "sharded",
        "benchmark": {"card": "miniworld", "params": {"subjects": 4}},
        "generators": ["sim_identity_drift", "copy_reference"],
        "metrics": ["near_copy"],
        "shards": 2,
        "run": {"device": "cpu"},
    }
    checkout.configure(study)
    checkout.run()
    before = checkout.hashes("results/store")
    checkout.configure(study | {"benchmark": {"card": "miniworld", "params": {"subjects": 5}}})
    assert checkout.planned() == {
        "prepare_benchmark": 2,  # the whole, for tables, and the shard
        "generate_images": 2,
        "embed_cases": 1,
        "embed_images": 2,
        "score_metric": 2,
        **READERS,
    }
    checkout.run()
    assert checkout.planned() == {}
    after = checkout.hashes("results/store")
    assert after.items() >= before.items()
    counts = {}
    for path in checkout.folder.glob("results/store/score/miniworld/near_copy/*/*/scores.parquet"):
        counts.setdefault(path.parts[-3], []).append(len(pd.read_parquet(path)))
    assert {name: sorted(n) for name, n in counts.items()} == {
        "sim_identity_drift": [48, 60],
        "copy_reference": [48, 60],
    }


def test_code_of_one_metric(ran: Checkout) -> None:
    replace(
        ran,
        "workflow/subjectbench/metrics/cosine_text.py",
        "return (item.text,) if item.text else ()",
        "return (item.text,) if item.text is not None else ()",
    )
    assert ran.planned() == {"score_metric": 6, **READERS}


def test_code_that_metrics_import(ran: Checkout) -> None:
    replace(
        ran,
        "workflow/subjectbench/metrics/cosine.py",
        "norms == 0.0",
        "norms <= 0.0",
    )
    assert ran.planned() == {"score_metric": 12, **READERS}


def test_card_of_one_encoder(ran: Checkout) -> None:
    replace(
        ran,
        "workflow/cards/encoders/mini_dino.yaml",
        "params: {}",
        "params: {compute_batch: 6}",
    )
    expected = {"embed_cases": 1, "embed_images": 3, "score_metric": 3, **READERS}
    assert ran.planned() == expected


def test_weights_of_one_encoder(ran: Checkout) -> None:
    file = ran.folder / "workflow/weights/mini_dino/config.json"
    file.write_text(file.read_text() + "\n")
    expected = {"embed_cases": 1, "embed_images": 3, "score_metric": 3, **READERS}
    assert ran.planned() == expected


def test_another_checkpoint_than_the_card_names_stops_the_run_before_it_starts(
    tmp_path: Path,
) -> None:
    checkout = Checkout(tmp_path / "swapped")
    weights = checkout.folder / "workflow" / "weights"
    shutil.copyfile(
        weights / "mini_clip" / "model.safetensors", weights / "mini_hps" / "model.safetensors"
    )
    done = checkout.snakemake("--cores", "1")
    assert done.returncode != 0
    assert "mini_hps/model.safetensors: is another file" in done.stdout and "mend:" in done.stdout
    assert not (checkout.folder / "results").exists()


def test_added_model(ran: Checkout) -> None:
    edit(ran, lambda s: s["generators"].append("noise"))
    assert ran.planned() == {
        "generate_images": 1,
        "embed_images": 3,
        "score_metric": 4,
        **READERS,
    }


def test_added_rater(ran: Checkout) -> None:
    edit(ran, lambda s: s.update(raters={"card": "miniworld_raters", "params": {"raters": 6}}))
    assert ran.planned() == {"rate_samples": 1, **READERS}


def test_leaderboard_weight(ran: Checkout) -> None:
    edit(ran, lambda s: s.update(leaderboard={"quality_weight": 2.0}))
    assert ran.planned() == READERS


def test_caption(ran: Checkout) -> None:
    replace(ran, "workflow/report/leaderboard.rst", "Models", "All models")
    assert ran.planned() == {"write_report": 1}


def test_deleted_table(ran: Checkout) -> None:
    (ran.folder / "results" / "latest" / "tables" / "leaderboard.md").unlink()
    assert ran.planned() == {"write_report": 1}


def test_deleted_intermediate_is_made_again_only_when_needed(ran: Checkout) -> None:
    next((ran.folder / "results/store/score").glob("**/mini_dino/**/scores.parquet")).unlink()
    assert ran.planned() == {}
    edit(ran, lambda s: s.update(leaderboard={"quality_weight": 2.0}))
    assert ran.planned() == {"score_metric": 1, **READERS}


def test_the_default_study_runs_this_and_no_more(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path / "default")
    shutil.copyfile(ROOT / "config.yaml", checkout.folder / "config.yaml")
    study = yaml.safe_load((ROOT / "config.yaml").read_text())
    models, metrics, encoders = len(study["generators"]), len(study["metrics"]), 3
    own = {
        "prepare_benchmark": 1,
        "generate_images": models,
        "embed_cases": encoders,
        "embed_images": encoders * models,
        "judge_images": models,
        "score_metric": metrics * models,
    }
    # Two benchmarks beside it: two models, the three metrics of the dimensions, two encoders.
    each = {
        "prepare_benchmark": 1,
        "generate_images": 2,
        "embed_cases": 2,
        "embed_images": 4,
        "judge_images": 2,
        "score_metric": 6,
    }
    assert (models, metrics, len(study["beside"]["benchmarks"])) == (7, 5, 2)
    jobs = checkout.planned()
    expected = {rule: n + 2 * each[rule] for rule, n in own.items()}
    assert jobs == expected | {"rate_samples": 1, **READERS}
    assert sum(jobs.values()) == 111


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda s: s.update(metrcs=[]), ["metrcs", "did you mean 'metrics'"]),
        (lambda s: s["metrics"].append("mini_dinno"), ["mini_dinno", "did you mean 'mini_dino'"]),
        (
            lambda s: s.update(benchmark={"card": "miniworld", "params": {"subjcts": 3}}),
            ["subjcts", "did you mean 'subjects'"],
        ),
        (lambda s: s.update(study=2.10), ["study", "2.1 is not text", "quotes"]),
        (lambda s: s["generators"].append("copy_reference"), ["copy_reference", "twice"]),
    ],
)
def test_bad_config_is_one_clear_error(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], said: list[str]
) -> None:
    checkout = Checkout(tmp_path / "bad")
    edit(checkout, change)
    done = checkout.snakemake("--cores", "2")
    assert done.returncode != 0
    assert all(text in done.stdout for text in said), done.stdout
    assert "Traceback" not in done.stdout
    assert not (checkout.folder / "results").exists()


@pytest.mark.long
def test_comparing_two_runs_says_what_moved_and_why(ran: Checkout) -> None:
    before = (ran.folder / "results" / "latest").readlink().name
    edit(
        ran,
        lambda s: s["metrics"].__setitem__(2, {"card": "mini_dino", "params": {"scale": 2.0}}),
    )
    ran.run()
    done = subprocess.run(
        [sys.executable, "-m", "subjectbench", "compare", before, "latest", "--csv", "cells.csv"],
        cwd=ran.folder,
        env=ran.env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    reasons = done.stdout.split("Why\n")[1].split("\n\n")[0]
    assert "score miniworld/mini_dino/" in reasons and "params.scale 1.0 -> 2.0" in reasons
    assert "NOT EXPLAINED" not in reasons
    cells = pd.read_csv(ran.folder / "cells.csv", keep_default_na=False)
    board = cells[(cells["table"] == "leaderboard") & cells["moved"]]
    assert not board["column"].str.startswith(("following", "quality")).any()
    means = board[board["column"] == "preservation_mean"]
    assert len(means) == 3 and set(means["test"]) == {"paired"}
    np.testing.assert_allclose(means["b"].astype(float), 2 * means["a"].astype(float), atol=1e-8)
    coverage = cells[(cells["table"] == "coverage") & cells["moved"]]
    assert {row.split(" / ")[0] for row in coverage["row"]} == {"mini_dino"}
    assert cells.loc[cells["table"] == "rater_agreement", "moved"].eq(False).all()
