"""The study published: two jobs, and what they find."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from .conftest import Checkout

STUDY = ("--configfile", "workflow/studies/published.yaml")


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    checkout = Checkout(tmp_path_factory.mktemp("published") / "a b'c")
    assert checkout.planned(*STUDY) == {"audit_published": 1, "write_report": 1}
    checkout.run(*STUDY)
    return checkout


def table(checkout: Checkout, name: str) -> pd.DataFrame:
    path = checkout.folder / "results" / "latest" / "tables" / f"{name}.csv"
    return pd.read_csv(path, dtype="str", keep_default_na=False)


def test_the_key_findings_are_in_the_tables(published: Checkout) -> None:
    audit = table(published, "audit").set_index("id")
    assert audit.loc["dsh-3-s_h:Nano-Banana", ["printed", "computed", "verdict"]].tolist() == [
        "0.272",
        "0.26836",
        "disagrees",
    ]
    swaps = [i for i in audit.index if i.startswith("dsh-3-swap:")]
    assert swaps == ["dsh-3-swap:IP-Adapter:λ-Eclipse", "dsh-3-swap:OmniGen:SSR-Encoder"]
    assert audit.loc["ufo-headline-average", "computed"] == "10.10"
    assert list(audit["verdict"].drop_duplicates()) == ["disagrees", "cannot be checked"]
    agreements = table(published, "audit_agreements").set_index("id")
    assert set(agreements["verdict"]) == {"agrees"}
    assert "119/211/181/149" in agreements.loc["ufo-1-case-weights", "computed"]
    records = json.loads((published.folder / "results/latest/manifest.json").read_text())
    (upstream,) = records["upstream"].values()
    store = published.folder / f"results/store/audit/published/{upstream}/manifest.json"
    rows = json.loads(store.read_text())["rows"]
    assert sum(rows.values()) == len(audit) + len(agreements)


def test_printed_and_recomputed_stand_side_by_side_digit_for_digit(published: Checkout) -> None:
    models = table(published, "ufo_table1_models").set_index("method")
    assert models.loc["Doubao", "non_editing (printed)"] == "0.7360"
    assert models.loc["Doubao", "total (printed)"] == "0.7439"
    assert models.loc["Doubao", "total over cases (recomputed)"] == "0.74385"
    page = (published.folder / "results/latest/index.html").read_text("utf-8")
    assert "Nothing was measured here" in page
    assert "Synthetic" not in page
    assert '<td class="text">0.7360</td>' in page
    assert "UFO, Table 1: Models on UFO-Bench by editing paradigm" in page
    for name in ("dsh_table3_leaderboard", "audit"):
        for ending in ("csv", "md", "tex"):
            assert f'href="tables/{name}.{ending}"' in page
    tex = (published.folder / "results/latest/tables/audit.tex").read_text("utf-8")
    assert r"$\lambda$-Eclipse" in tex


def test_a_changed_digit_runs_the_audit_again_and_reverting_it_nothing(
    published: Checkout,
) -> None:
    assert published.planned(*STUDY) == {}
    path: Path = published.folder / "workflow/published/ufo_table3_ablation.csv"
    text = path.read_text()
    path.write_text(text.replace("0.6253", "0.6254"))
    assert published.planned(*STUDY) == {"audit_published": 1, "write_report": 1}
    path.write_text(text)
    assert published.planned(*STUDY) == {}


def test_what_measures_nothing_takes_no_metrics(published: Checkout) -> None:
    study = {"study": "trial", "published": True, "metrics": ["mini_clip_i"]}
    published.configure(study)
    refused = published.snakemake("--dry-run")
    assert refused.returncode != 0
    assert "unknown key 'metrics'" in refused.stdout
    assert "known: published, results, run, study, title" in refused.stdout
