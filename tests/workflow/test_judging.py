"""Judging through the real Snakefile and a real server on loopback: what is asked, how often."""

from __future__ import annotations

import copy
import json
import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest

from tests.judging_server import Answer, Call, JudgingServer, error, reply

from .conftest import Checkout

pytestmark = pytest.mark.slow

KEY = "sk-planted-3c9d17"
CASES, MODELS = 28, 2
CALLS = {"decompose": CASES, "ufo": CASES * MODELS * 3, "sics": CASES * MODELS}
"""Requests of the study: the script's units are of three classes, and each class is one call."""
UNITS = [
    ("global_attribute", "colour", "image_only", 5),
    ("part", "hat", "text_only", 4),
    ("setting", "background", "text_and_image", 2),
]


def study(server: JudgingServer) -> dict[str, Any]:
    judge = {"model": "judge-1", "base_url": server.url, "key_env": "JUDGE_KEY"}
    return {
        "study": "judged",
        "benchmark": {"card": "miniworld_ufo", "params": {"subjects": 1, "cases": 4}},
        "generators": ["sim_careful", "sim_mixed"],
        "judge": {"card": "openai_server", "params": judge},
        "decomposition": "asked",
        "metrics": ["ufo_no_face", "sics"],
        "run": {"device": "cpu", "judging": {"backoff": 0.01, "max_backoff": 0.02}},
    }


def answer(call: Call) -> Answer:
    """Play a judge that always gives the same answer to the same request."""
    form = call.body["response_format"]["json_schema"]["schema"]["properties"]
    if "units" in form:
        units = [
            {"level": level, "name": name, "relevance": relevance, "weight": weight}
            | {"question": "Is it right?"}
            for level, name, relevance, weight in UNITS
        ]
        said: dict[str, Any] = {"analysis": "", "subject": "x", "subject_type": "rigid_object"}
        return reply(json.dumps(said | {"units": units}))
    pictures = [p for m in call.body["messages"] if isinstance(m["content"], list)
                for p in m["content"] if p["type"] == "image_url"]  # fmt: skip
    mark = sum(len(p["image_url"]["url"]) for p in pictures) % 2
    return reply(json.dumps({name: _value(name, spec, mark) for name, spec in form.items()}))


def _value(name: str, spec: dict[str, Any], mark: int) -> Any:
    if name == "reason":
        return "because"
    return ["no", "yes"][mark] if spec["type"] == "string" else 3 + mark


@pytest.fixture
def server() -> Iterator[JudgingServer]:
    found = JudgingServer(answer)
    yield found
    found.close()


def checkout(base: Checkout, server: JudgingServer) -> Checkout:
    base.env = {**base.env, "JUDGE_KEY": KEY}
    base.configure(study(server))
    return base


@pytest.fixture(scope="session")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout whose judged study has run once."""
    server = JudgingServer(answer)
    done = checkout(Checkout(tmp_path_factory.mktemp("judged") / "a b'c"), server)
    done.run()
    assert len(server.calls) == sum(CALLS.values())
    server.close()
    return done


@pytest.fixture
def again(judged: Checkout, server: JudgingServer, tmp_path: Any) -> Checkout:
    """A copy of it, with a server of its own at another address."""
    mine = Checkout.__new__(Checkout)
    mine.folder = tmp_path / "a b'c"
    shutil.copytree(judged.folder, mine.folder, symlinks=True)
    mine.env = {**judged.env, "PYTHONPATH": str(mine.folder / "workflow")}
    return checkout(mine, server)


def configured(mine: Checkout, server: JudgingServer, **changes: Any) -> None:
    mine.configure({**copy.deepcopy(study(server)), **changes})


def test_nothing_runs_again_at_another_address(again: Checkout) -> None:
    assert again.planned() == {}


def test_other_weights_ask_nobody(again: Checkout, server: JudgingServer) -> None:
    uniform = {"card": "ufo_no_face", "params": {"weights": "uniform"}}
    configured(again, server, metrics=[uniform, "sics"])
    readers = {"tabulate_study": 1, "write_report": 1}
    assert again.planned() == {"score_metric": MODELS} | readers
    again.run()
    assert server.calls == []


def test_a_changed_prompt_asks_that_rubric_alone(again: Checkout, server: JudgingServer) -> None:
    card = again.folder / "workflow/cards/rubrics/sics.yaml"
    text = card.read_text()
    card.write_text("# a remark\n" + text)
    assert again.planned() == {}
    assert "5: identical." in text
    card.write_text(text.replace("5: identical.", "5: the very same."))
    readers = {"tabulate_study": 1, "write_report": 1}
    assert again.planned() == {"judge_images": MODELS, "score_metric": MODELS} | readers
    again.run()
    assert len(server.calls) == CALLS["sics"]


def test_the_papers_levels_alone_need_no_new_decomposition(
    again: Checkout, server: JudgingServer
) -> None:
    paper = {"card": "ufo_no_face", "params": {"levels": ["global_attribute", "part"]}}
    configured(again, server, metrics=["ufo_no_face", {**paper, "name": "ufo_paper"}, "sics"])
    again.run()
    assert server.calls == []
    (path,) = again.folder.glob("results/store/score/*/ufo_paper/sim_mixed/*/scores.parquet")
    scores = pd.read_parquet(path)
    units = [json.loads(d)["units"] for d in scores["details"]]
    assert {u["level"] for rows in units for u in rows} == {"global_attribute", "part"}


def test_the_planted_key_is_nowhere(judged: Checkout) -> None:
    files = [p for p in judged.folder.rglob("*") if p.is_file() and not p.is_symlink()]
    assert any(p.name == "transcripts.sqlite" for p in files)
    assert any(p.name == "transcripts.parquet" for p in files)
    for path in files:
        data = path.read_bytes()
        assert KEY.encode() not in data, path
        assert b"Authorization" not in data or path.suffix in (".py", ".md"), path
    archived = [p for p in files if p.name == "transcripts.parquet"]
    for path in archived:  # nor a picture, in any of its two forms
        text = pd.read_parquet(path).to_json()
        assert "data:image" not in text and "iVBORw0KGgo" not in text


def test_without_the_key_nothing_starts(again: Checkout, server: JudgingServer) -> None:
    shutil.rmtree(again.folder / "results")
    del again.env["JUDGE_KEY"]
    done = again.snakemake("--cores", "1")
    assert done.returncode != 0 and "JUDGE_KEY" in done.stdout
    assert server.calls == [] and not list(again.folder.glob("results/store/generate/*"))


def judging(mine: Checkout) -> pd.DataFrame:
    """What ``subjectbench judging`` prints, by rubric or decomposition."""
    command = [mine.command()[0], "-m", "subjectbench", "judging"]
    done = subprocess.run(command, cwd=mine.folder, env=mine.env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    if done.stdout.startswith("nobody would be asked"):
        return pd.DataFrame(columns=["asks"])
    lines = [line.split() for line in done.stdout.splitlines()]
    end = next(i for i, line in enumerate(lines) if line[:2] == ["to", "servers:"])
    frame = pd.DataFrame(lines[1:end], columns=lines[0]).set_index("asks")
    return frame.astype({"requests": int, "answered": int, "to_send": int, "cost": float})


def test_a_forecast_sends_nothing(again: Checkout, server: JudgingServer) -> None:
    """Before pictures exist, it guesses; once they do, it knows, replies in the store included."""
    assert judging(again).empty
    for part in ("score", "judge/sics", "tables"):
        shutil.rmtree(again.folder / "results/store" / part)
    kept = judging(again)
    assert list(kept.index) == ["sics"] and kept.loc["sics", "pictures"] == "known"
    assert kept.loc["sics", "answered"] == CALLS["sics"] and kept.loc["sics", "to_send"] == 0
    shutil.rmtree(again.folder / "results")
    guessed = judging(again)
    assert guessed.loc[["asked", "sics"], "to_send"].tolist() == [CASES, CALLS["sics"]]
    assert (guessed["pictures"] == "assumed").all() and (guessed["cost"] == 0).all()
    card = again.folder / "workflow/cards/judges/openai_server.yaml"
    card.write_text(card.read_text() + "price: {prompt: 10.0, completion: 30.0}\n")
    priced = judging(again)
    assert (priced["cost"] > 0).all() and server.calls == []


def test_a_finished_study_needs_no_key(again: Checkout) -> None:
    del again.env["JUDGE_KEY"]
    assert again.planned() == {}


@pytest.mark.long
def test_a_server_that_stops_answering_loses_nothing(
    again: Checkout, server: JudgingServer
) -> None:
    """VLM-13: failed, resumable, never scored; the next run asks only what is missing."""
    shutil.rmtree(again.folder / "results")
    broken = Counter[str]()

    def stops(call: Call) -> Answer:
        if len(server.calls) > 50:
            broken[call.words] += 1
            return error(429)
        return answer(call)

    server.script = stops
    configured(again, server, run={"judging": {"retries": 1, "backoff": 0.01, "concurrency": 2}})
    done = again.snakemake("--cores", "2", "--keep-going")
    assert done.returncode != 0
    good = [c for c in server.calls[:50]]
    server.script, server.calls = answer, []
    again.run()
    assert len(good) + len(server.calls) == sum(CALLS.values())
    assert {_identity(c) for c in good}.isdisjoint(_identity(c) for c in server.calls)


def _identity(call: Call) -> str:
    return json.dumps(call.body, sort_keys=True)


@pytest.mark.long
def test_killed_runs_buy_nothing_twice(again: Checkout, server: JudgingServer) -> None:
    """SIGKILL of the whole run, twice; only what was in flight is asked again."""
    reference = again.hashes("results/store/score")
    shutil.rmtree(again.folder / "results")
    concurrency = 4
    answered: Counter[str] = Counter()

    def slow(call: Call) -> Answer:
        found = answer(call)
        answered[_identity(call)] += 1
        return Answer(found.body, delay=0.1)

    server.script = slow
    configured(again, server, run={"judging": {"concurrency": concurrency}})
    for kill_after in (40, 120):
        process = subprocess.Popen(
            again.command("--cores", "2"),
            cwd=again.folder,
            env=again.env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        while len(server.calls) < kill_after and process.poll() is None:
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    again.run()
    assert set(answered) and len(answered) == sum(CALLS.values())
    twice = sum(n - 1 for n in answered.values())
    assert twice <= 2 * concurrency, "only requests in flight may be repeated"
    assert again.hashes("results/store/score") == reference


@pytest.mark.long
def test_an_archive_replaces_the_server(again: Checkout, server: JudgingServer) -> None:
    """``replay``: the same tables from transcripts alone; a miss names the request."""
    tables = _tables(again)
    archive = again.folder / "archive.parquet"
    subprocess.run(
        [again.command()[0], "-m", "subjectbench", "transcripts", "export", str(archive)],
        cwd=again.folder,
        env=again.env,
        check=True,
    )
    shutil.rmtree(again.folder / "results")
    live = study(server)["judge"]
    told = {"card": live["card"], "params": {"model": "judge-1"}}
    replayed = {"card": "replay", "params": {"path": str(archive), "judge": told}}
    del again.env["JUDGE_KEY"]
    configured(again, server, judge=replayed)
    again.run()
    assert server.calls == []
    pd.testing.assert_frame_equal(_tables(again), tables)

    configured(again, server, judge=replayed, seed=1)
    done = again.snakemake("--cores", "2")
    logs = "".join(p.read_text() for p in again.folder.glob("logs/judge/**/*.log"))
    assert done.returncode != 0 and "archive.parquet" in logs and server.calls == []


def _tables(mine: Checkout) -> pd.DataFrame:
    return pd.read_csv(mine.folder / "results/latest/tables/coverage.csv")
