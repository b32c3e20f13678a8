"""UFO's study through the real Snakefile: its jobs, its tables, and what a change of it costs."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from .conftest import ROOT, Checkout

pytestmark = pytest.mark.slow

MODELS = ["sim_careful", "sim_ignored_prompt", "sim_mixed"]
CASES = 28
READERS = {"tabulate_study": 1, "write_report": 1}


def study() -> dict[str, Any]:
    """The shipped study, smaller."""
    found = yaml.safe_load((ROOT / "workflow/studies/miniworld_ufo.yaml").read_text())
    kept = ["ufo", "ufo_uniform", "ufo_unrouted", "ufo_holistic", "mini_clip_i"]
    found["benchmark"] = {"card": "miniworld_ufo", "params": {"subjects": 1, "cases": 4}}
    found["generators"] = MODELS
    found["metrics"] = [m for m in found["metrics"] if _name(m) in kept]
    found["alignment"]["baselines"] = ["mini_clip_i"]
    ablations = found["alignment"]["ablations"]
    found["alignment"]["ablations"] = {k: m for k, m in ablations.items() if m in kept}
    return found | {"statistics": {"bootstrap": 50}, "run": {"device": "cpu"}}


def _name(metric: Any) -> str:
    return metric if isinstance(metric, str) else str(metric["card"])


@pytest.fixture(scope="module")
def ufo(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    checkout = Checkout(tmp_path_factory.mktemp("ufo") / "a b'c")
    checkout.configure(study())
    assert (
        checkout.planned()
        == {
            "prepare_benchmark": 1,
            "decompose_cases": 1,
            "generate_images": 3,
            "embed_cases": 2,
            "embed_images": 2 * 3,
            "judge_images": 3
            * 3,  # rubrics ufo, ufo_unrouted, holistic; uniform weights ask nobody
            "score_metric": 5 * 3,
            "rate_samples": 1,
        }
        | READERS
    )
    checkout.run()
    return checkout


def table(checkout: Checkout, name: str) -> pd.DataFrame:
    return pd.read_csv(checkout.folder / f"results/latest/tables/{name}.csv")


def test_tables_1_to_3(ufo: Checkout) -> None:
    models = table(ufo, "models_by_paradigm")
    assert set(models["generator"]) == set(MODELS)
    assert (models["total_n"] == CASES).all() and (models["total_coverage"] == 1).all()
    counts = [f"{p}_n" for p in ("non_editing", "local_editing", "global_editing")]
    paradigms = [*counts, "complex_editing_n"]
    means = [c.replace("_n", "_mean") for c in paradigms]
    weighed = (models[means].to_numpy() * models[paradigms].to_numpy()).sum(1) / CASES
    assert np.allclose(weighed, models["total_mean"])
    assert models.sort_values("rank")["generator"].iloc[0] == "sim_careful"

    agreement = table(ufo, "alignment")
    total = agreement[agreement["paradigm"] == "total"].set_index("metric")
    assert set(total.index) == {"ufo", "mini_clip_i"}
    assert (total["n"] + total["undefined"] + total["left_out"] == total["cases"]).all()
    assert total.loc["ufo", "spearman"] > 0.3  # the truth is known, and UFO finds it

    ablation = table(ufo, "ablation")
    assert list(ablation["setting"]) == ["decomposition", "routing", "weights", "full"]
    assert ablation["spearman"].iloc[-1] == pytest.approx(total.loc["ufo", "spearman"])


def test_units_and_their_weights_explain_every_score(ufo: Checkout) -> None:
    paths = list(ufo.folder.glob("results/store/score/miniworld_ufo/ufo/*/*/scores.parquet"))
    rows = pd.concat([pd.read_parquet(p) for p in paths])
    assert len(rows) == CASES * len(MODELS)
    sources = set()
    for row in rows.itertuples():
        units = json.loads(row.details)["units"]
        weights = [u["weight"] for u in units]
        assert row.value == pytest.approx(np.average([u["value"] for u in units], weights=weights))
        sources |= {u["source"] for u in units}
    assert sources == {"vqa", "face"}


def test_requests_are_counted_against_the_reference(ufo: Checkout) -> None:
    counted = table(ufo, "requests").set_index("step")
    asked = pd.concat(
        pd.read_parquet(p)
        for p in ufo.folder.glob("results/store/judge/ufo/*/*/*/0/*/transcripts.parquet")
    )
    assert counted.loc["verification", "here"] == pytest.approx(len(asked))
    assert counted.loc["total", "here"] < counted.loc["total", "reference"] / 2


def test_the_page_shows_every_figure_and_says_what_is_simulated(ufo: Checkout) -> None:
    folder = ufo.folder / "results/latest"
    page = (folder / "index.html").read_text()
    for name in ("composition", "units_by_category", "alignment", "ablation", "disagreements"):
        assert f'src="figures/{name}.svg"' in page
        assert (folder / f"figures/{name}.png").stat().st_size > 5000
    assert "(synthetic pictures, simulated raters)" in page


def test_what_changes_cost(ufo: Checkout) -> None:
    """Exact job sets. Nothing is run, so the study can be changed in place."""
    base = study()

    def planned(change: Any) -> dict[str, int]:
        changed = copy.deepcopy(base)
        change(changed)
        ufo.configure(changed)
        return ufo.planned()

    def metric(found: dict[str, Any], name: str) -> dict[str, Any]:
        return next(m for m in found["metrics"] if isinstance(m, dict) and m["card"] == name)

    assert planned(lambda s: None) == {}
    exclude = {"missing": "unit", "face_low": 0.2, "face_high": 0.9}
    assert planned(lambda s: metric(s, "ufo").update(params=exclude)) == {
        "score_metric": 3,
        **READERS,
    }
    assert planned(lambda s: s["metrics"].append("ufo_no_face")) == {"score_metric": 3, **READERS}
    short = {"card": "prepared", "params": {"levels": ["global_attribute", "part"]}}
    assert planned(lambda s: s.update(decomposition=short)) == {
        "decompose_cases": 1,
        "judge_images": 2 * 3,  # the rubric without units asks what it asked before
        "score_metric": 3 * 3,
        **READERS,
    }
    judge = {"card": "mini_zero_shot", "params": {"scale": 20.0}}
    assert planned(lambda s: metric(s, "ufo").update(judge=judge)) == {
        "judge_images": 3,
        "score_metric": 3,
        **READERS,
    }
    assert planned(lambda s: s["raters"]) == {}
    ufo.configure(base)
