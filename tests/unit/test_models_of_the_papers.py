"""docs/generators.md lists every model of both papers as its card has it."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CARDS = ROOT / "workflow" / "cards" / "generators"
NATIVE = {"stable_diffusion", "flux_kontext", "ace_plus", "omini_control"}
WITH_TORCHVISION = {"omnigen", "qwen_image_edit"}
TRAINED = {"textual_inversion", "dreambooth", "custom_diffusion", "hiper", "neti"}
SERVERS = {"gemini", "seedream"}
RUNS = {
    "native": "yes",
    "trained": "yes",
    "server": "real requests, to a loopback server",
    "command": "other programs of the kind; this one not",
}


def kind(plugin: str) -> str:
    if plugin in NATIVE | WITH_TORCHVISION:
        return "native"
    if plugin in TRAINED | SERVERS:
        return "trained" if plugin in TRAINED else "server"
    assert plugin == "command"
    return "command"


@pytest.mark.parametrize(
    ("paper", "title", "table", "count"),
    [
        ("dsh", "DSH-Bench", "dsh_table3_leaderboard.csv", 19),
        ("ufo", "UFO-Bench", "ufo_table1_models.csv", 6),
    ],
)
def test_every_printed_model_has_a_card_and_a_line(
    paper: str, title: str, table: str, count: int
) -> None:
    cards = {path.stem: yaml.safe_load(path.read_text("utf-8")) for path in CARDS.glob("*.yaml")}
    text = (ROOT / "docs" / "generators.md").read_text("utf-8")
    with (ROOT / "workflow" / "published" / table).open(encoding="utf-8", newline="") as file:
        rows = [row["method"] for row in csv.DictReader(file)]
    assert len(rows) == count
    for row in rows:
        name, card = next(
            (n, c) for n, c in sorted(cards.items()) if (c.get("published") or {}).get(paper) == row
        )
        runs = RUNS[kind(card["plugin"])]
        runs = "no: torchvision is missing" if card["plugin"] in WITH_TORCHVISION else runs
        differs = (card.get("differs") or card["unstated"])[0]
        assert (
            f"| {title} | {row} | `{name}` | {kind(card['plugin'])} | {runs} | {differs} |" in text
        )
