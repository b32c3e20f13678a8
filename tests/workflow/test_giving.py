"""Pictures from a server and pictures made elsewhere, through the real Snakefile."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.judging_server import Answer, Call
from tests.picture_server import PictureServer, fault, good, png

from .conftest import Checkout

pytestmark = pytest.mark.slow

KEY = "AIza-planted-77c1"


@pytest.fixture
def server() -> Iterator[PictureServer]:
    server = PictureServer()
    yield server
    server.close()


def study(server: PictureServer, **limits: Any) -> dict[str, Any]:
    told = {"base_url": server.url, "key_env": "PICTURE_KEY"}
    given = {"path": "given", "pattern": "{case_id}_{replicate}.png"}
    return {
        "study": "giving",
        "benchmark": {"card": "miniworld", "params": {"subjects": 2}},
        "generators": [
            {"card": "nano_banana", "params": told},
            {"card": "imported_pictures", "name": "theirs", "params": given},
        ],
        "metrics": ["mini_clip_i"],
        "run": {"device": "cpu", "batch_size": 6, "generating": {"backoff": 0.01, **limits}},
    }


def files(checkout: Checkout, pattern: str) -> list[Path]:
    return sorted(checkout.folder.glob(pattern))


@pytest.mark.long
def test_a_study_buys_each_picture_once(server: PictureServer, tmp_path: Path) -> None:
    """Stopped by its budget, then by a fault, it goes on and buys only what is missing."""
    checkout = Checkout(tmp_path / "a b'c")
    checkout.configure(study(server, max_requests=9))
    (checkout.folder / "given").mkdir()
    (checkout.folder / "given" / "stray.png").write_bytes(png(0))
    stopped = checkout.snakemake("--cores", "2").stdout
    assert "PICTURE_KEY is not set" in stopped and server.calls == []

    checkout.env["PICTURE_KEY"] = KEY
    planned = checkout.snakemake("--dry-run").stdout
    assert "miniworld/theirs: 0 of 24 pictures are there" in planned and "stray.png" in planned
    stats = planned.split("Job stats:")[1].split("total")[0]
    found = {rule: int(n) for rule, n in re.findall(r"^(\w+) +(\d+)$", stats, re.M)}
    assert sum(found.values()) - found.pop("all", 0) == sum(found.values())
    assert found["generate_images"] == 2
    cases = re.findall(r"(\S+)-s0: no file", planned)
    (checkout.folder / "given" / f"{cases[0]}_0.png").write_bytes(png(1))

    failed = checkout.snakemake("--cores", "2")
    logs = "".join(p.read_text() for p in files(checkout, "logs/generate/**/*.log"))
    assert failed.returncode and "run.generating.max_requests = 9 is used up" in logs
    assert len(server.calls) == 9

    def script(call: Call) -> Answer:
        return fault(500, 500) if call.nth == 1 else good(call, png(len(server.calls)))

    server.script = script
    checkout.configure(study(server))
    checkout.run()
    assert len(server.calls) == 9 + 2 * 15, "each of the missing 15 once more after its fault"
    assert len({call.words for call in server.calls}) <= 24

    rows = {
        path.parts[-4]: pd.read_parquet(path)
        for path in files(checkout, "results/store/generate/*/*/*/*/samples.parquet")
    }
    assert set(rows["nano_banana"]["status"]) == {"ok"}
    counts = dict(rows["theirs"]["status"].value_counts())
    assert counts == {"missing": 23, "ok": 1}
    kept = json.loads(rows["nano_banana"]["details"].iloc[0])
    assert kept["answer"]["model"] == "m-001"
    everything = [p for p in files(checkout, "**/*") if p.is_file()]
    assert not [p for p in everything if KEY.encode() in p.read_bytes()]

    del checkout.env["PICTURE_KEY"]
    assert checkout.planned() == {}
