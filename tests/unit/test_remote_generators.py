"""Models behind a server, against real HTTP on loopback in each vendor's form."""

from __future__ import annotations

import base64
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from subjectbench import cards, images
from subjectbench.asking.engine import Unanswered
from subjectbench.config import Generating, Use, load_study
from subjectbench.errors import InputError
from subjectbench.generators.base import Generator, Job, Outcome
from subjectbench.plan import check_asked, make_plan
from subjectbench.vocabulary import Status
from tests.judging_server import Answer, Call
from tests.picture_server import (
    CARDS,
    PictureServer,
    ark,
    b64,
    desk,
    fault,
    gemini,
    good,
    openai,
    png,
)

Serve = Callable[..., PictureServer]


@pytest.fixture
def serve() -> Iterator[Serve]:
    servers: list[PictureServer] = []

    def start(script: Callable[[Call], Answer] | None = None) -> PictureServer:
        servers.append(PictureServer(script))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def model(
    server: PictureServer, results: Path, card: str = "nano_banana", run: str = "run", **more: Any
) -> Generator:
    limits = {n: more.pop(n) for n in Generating.model_fields if n in more}
    use = Use(card=card, params={"base_url": server.url, "key_env": None, **more})
    found = cards.load("generator", card)
    params = cards.params("generator", use, "test")
    out: Generator = cards.plugin("generator", found, "test")(params, found, None, "cpu")
    out.desk = desk(results, run, **limits)
    return out


def job(number: int = 0, prompt: str = "") -> Job:
    reference = Image.fromarray(np.full((16, 16, 3), 7 * number % 255, np.uint8))
    prompt = prompt or f"a mug {number}"
    return Job(f"s{number}", "mug", "mug", prompt, reference, number, {})


def one(generator: Generator, jobs: list[Job] | None = None) -> Outcome:
    try:
        return generator.generate(jobs or [job()])[0]
    finally:
        generator.close()


# --- what is sent --------------------------------------------------------------------------------


def test_gemini_is_sent_prompt_reference_and_shape(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve()
    monkeypatch.setenv("TEST_PICTURE_KEY", "AIzaSecret-0123456789")
    generator = model(server, tmp_path, key_env="TEST_PICTURE_KEY", template="{prompt} ({subject})")
    assert one(generator).status is Status.OK
    (call,) = server.calls
    assert call.path == "/v1/models/gemini-2.5-flash-image:generateContent"
    assert call.headers["x-goog-api-key"] == "AIzaSecret-0123456789"
    text, picture = call.body["contents"][0]["parts"]
    assert text == {"text": "a mug 0 (mug)"}
    sent = images.read_picture(base64.b64decode(picture["inline_data"]["data"]), name="sent.png")
    assert sent.image is not None and sent.image.tobytes() == job().reference.tobytes()
    config = call.body["generationConfig"]
    assert config == {"responseModalities": ["IMAGE"], "imageConfig": {"aspectRatio": "1:1"}}
    everything = b"".join(p.read_bytes() for p in tmp_path.rglob("*") if p.is_file())
    assert b"AIzaSecret" not in everything and b"AIzaSecret" not in call.path.encode()


def test_seedream_is_told_to_leave_the_watermark_out(serve: Serve, tmp_path: Path) -> None:
    server = serve()
    assert one(model(server, tmp_path, "seedream_4_5")).status is Status.OK
    body = server.calls[0].body
    assert body["watermark"] is False and body["sequential_image_generation"] == "disabled"
    assert body["size"] == "2048x2048" and body["response_format"] == "b64_json"
    assert body["image"].startswith("data:image/png;base64,")


@pytest.mark.parametrize("size", ["1024x1024", "1K", "8192x8192", "100x40000", "2048"])
def test_a_size_that_seedream_refuses_stops_the_plan(size: str) -> None:
    with pytest.raises(InputError, match="size"):
        cards.params("generator", Use(card="seedream_4_5", params={"size": size}), "config")
    with pytest.raises(InputError, match=r"found \{word\}|has \{prompt\}"):
        cards.params("generator", Use(card="nano_banana", params={"template": "{word}"}), "config")


def test_openai_is_sent_a_form_with_the_reference_as_a_file(serve: Serve, tmp_path: Path) -> None:
    server = serve()
    assert one(model(server, tmp_path, "openai_image")).status is Status.OK
    (call,) = server.calls
    assert call.path == "/v1/images/edits"
    assert call.form["prompt"] == b"a mug 0" and call.form["n"] == b"1"
    assert call.form["size"] == b"1024x1024" and call.form["model"] == b"gpt-image-1"
    assert Image.open(io.BytesIO(call.form["image[]"])).tobytes() == job().reference.tobytes()
    alone = serve(lambda call: openai({"b64_json": b64(png(1))}))
    generator = model(alone, tmp_path / "b", "openai_image", endpoint="generations", size=None)
    assert one(generator).status is Status.OK
    body = {"model": "gpt-image-1", "prompt": "a mug 0", "quality": "medium", "n": 1}
    assert alone.calls[0].body == body and alone.calls[0].path == "/v1/images/generations"


# --- what comes back -----------------------------------------------------------------------------

THOUGHT = {"thought": True, "inlineData": {"mimeType": "image/png", "data": b64(png(99))}}


def test_a_picture_comes_with_its_story(serve: Serve, tmp_path: Path) -> None:
    server = serve(lambda _: gemini(THOUGHT, "Here it is.", png(5)))
    outcome = one(model(server, tmp_path))
    assert outcome.image is not None and images.encode_png(outcome.image) == png(5)
    answer = outcome.details["answer"]
    assert answer["words"] == "Here it is." and answer["finish"] == "STOP"
    assert (answer["prompt_tokens"], answer["completion_tokens"]) == (270, 1290)
    assert answer["model"] == "m-001" and answer["sha256"] == images.sha256(png(5))


BLOCKED = Answer({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "modelVersion": "m"})
MARKED = {"code": "OutputImageSensitiveContentDetected", "message": "the picture may be sensitive"}
ANSWERS: list[tuple[str, Answer, Status, str]] = [
    ("nano_banana", gemini(finish="IMAGE_SAFETY"), Status.REFUSED, "IMAGE_SAFETY"),
    ("nano_banana", gemini("I cannot.", finish="PROHIBITED_CONTENT"), Status.REFUSED, "I cannot."),
    ("nano_banana", BLOCKED, Status.REFUSED, "PROHIBITED_CONTENT"),
    ("nano_banana", gemini("A mug is a cup."), Status.FAILED, "A mug is a cup."),
    ("nano_banana", gemini(finish="NO_IMAGE"), Status.FAILED, "NO_IMAGE"),
    ("nano_banana", gemini(b"GIF99 this is no picture"), Status.UNREADABLE, ""),
    ("nano_banana", gemini(png(1)[:-40]), Status.TRUNCATED, ""),
    ("seedream_4_5", fault(400, "InputTextSensitiveContentDetected", "no"), Status.REFUSED, "no"),
    ("seedream_4_5", ark({"error": MARKED}), Status.REFUSED, "the picture may be sensitive"),
    ("openai_image", fault(400, "moderation_blocked", "safety"), Status.REFUSED, "safety"),
    ("openai_image", fault(400, "content_policy_violation", "safety"), Status.REFUSED, "safety"),
]


@pytest.mark.parametrize(
    ("card", "answer", "status", "why"),
    ANSWERS,
    ids=lambda v: str(v) if isinstance(v, str) else "",
)
def test_an_answer_without_a_usable_picture_is_final(
    serve: Serve, tmp_path: Path, card: str, answer: Answer, status: Status, why: str
) -> None:
    server = serve(lambda _: answer)
    outcome = one(model(server, tmp_path, card))
    assert outcome.status is status and outcome.image is None
    assert why in outcome.details["reason"] and "request" in outcome.details
    assert len(server.calls) == 1
    again = one(model(server, tmp_path, card, run="next"))
    assert (again.status, again.details) == (outcome.status, outcome.details)
    assert len(server.calls) == 1, "an answer was asked for twice"


def test_another_size_than_asked_is_noted(serve: Serve, tmp_path: Path) -> None:
    outcome = one(model(serve(), tmp_path, "seedream_4_5"))
    assert outcome.details["unexpected_size"] == "24x16, asked 2048x2048"
    server = serve(lambda call: ark({"b64_json": b64(png(1, (2048, 2048)))}))
    assert "unexpected_size" not in one(model(server, tmp_path / "b", "seedream_4_5")).details


TROUBLE: list[Answer] = [
    fault(429, 429, "slow down", headers={"retry-after": "0.01"}),
    fault(429, 429, "slow", status="X", details=[{"retryDelay": "0.01s"}]),
    fault(500, 500),
    fault(503, 503, "overloaded"),
    Answer(delay=1.0),
    Answer("[" * 4000, cut=True),
    Answer('{"candidates": [{"cont'),
    Answer("<html>gateway</html>", headers={"content-type": "text/html"}),
    Answer({"candidates": []}),
    gemini({"inlineData": {"data": "%%%"}}),
]


@pytest.mark.parametrize("trouble", TROUBLE, ids=range(len(TROUBLE)))
def test_trouble_that_passes_costs_another_try(
    serve: Serve, tmp_path: Path, trouble: Answer
) -> None:
    server = serve(lambda call: trouble if call.nth == 1 else good(call, png(3)))
    slow = bool(trouble.delay)
    outcome = one(model(server, tmp_path, timeout=0.7 if slow else 20.0))
    assert outcome.status is Status.OK and len(server.calls) == 2


def test_the_server_says_for_how_long_to_wait(serve: Serve, tmp_path: Path) -> None:
    wait = fault(429, 429, "slow", details=[{"@type": "RetryInfo", "retryDelay": "0.6s"}])
    server = serve(lambda call: wait if call.nth == 1 else good(call, png(3)))
    assert one(model(server, tmp_path)).status is Status.OK
    assert server.calls[1].at - server.calls[0].at >= 0.6


def test_requests_are_paced(serve: Serve, tmp_path: Path) -> None:
    server = serve()
    generator = model(server, tmp_path, requests_per_minute=240.0)
    generator.generate([job(n) for n in range(4)])
    generator.close()
    times = [call.at for call in server.calls]
    assert times[-1] - times[1] >= 2 * 0.25 - 0.05


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (fault(404, 404, "models/x is not found", status="NOT_FOUND"), "not found"),
        (fault(403, 403, "no permission"), "no permission"),
        (fault(400, 400, "bad key", details=[{"reason": "API_KEY_INVALID"}]), "bad key"),
        (fault(400, 400, "no billing", status="FAILED_PRECONDITION"), "no billing"),
        (fault(400, 400, "no such aspect ratio"), "so are all before"),
    ],
)
def test_what_no_request_will_pass_stops_the_job(
    serve: Serve, tmp_path: Path, answer: Answer, words: str
) -> None:
    """A retired model, a bad key, a setting that the server refuses: a few calls, not thousands."""
    server = serve(lambda _: answer)
    generator = model(server, tmp_path)
    with pytest.raises(Unanswered, match=words):
        generator.generate([job(n) for n in range(40)])
    generator.close()
    assert len(server.calls) <= 8


def test_one_request_that_is_wrong_fails_alone(serve: Serve, tmp_path: Path) -> None:
    def script(call: Call) -> Answer:
        return fault(400, 400, "too long") if "long" in call.words else good(call, png(1))

    generator = model(serve(script), tmp_path)
    found = generator.generate([job(0), job(1, "long"), job(2)])
    generator.close()
    assert [o.status for o in found] == [Status.OK, Status.FAILED, Status.OK]
    assert "too long" in found[1].details["reason"]


# --- addresses -----------------------------------------------------------------------------------


def addressed(server: PictureServer, fetch: Callable[[int], Answer]) -> Callable[[Call], Answer]:
    def script(call: Call) -> Answer:
        if call.path.endswith("/file.png"):
            return fetch(call.nth)
        return ark({"url": server.url + "/file.png"})

    return script


def test_an_address_is_fetched_at_once_and_never_bought_twice(serve: Serve, tmp_path: Path) -> None:
    server = serve()
    server.script = addressed(server, lambda nth: Answer(png(1)) if nth > 2 else fault(500, 500))
    assert one(model(server, tmp_path, "seedream_4_5")).status is Status.OK
    assert [c.path.rpartition("/")[2] for c in server.calls] == ["generations"] + ["file.png"] * 3


def test_a_picture_that_is_bought_but_not_fetched_is_fetched_next_time(
    serve: Serve, tmp_path: Path
) -> None:
    server = serve()
    server.script = addressed(server, lambda nth: fault(500, 500))
    with pytest.raises(Unanswered, match="bought, but its address gives no file"):
        one(model(server, tmp_path, "seedream_4_5"))
    server.script = addressed(server, lambda nth: Answer(png(1)))
    outcome = one(model(server, tmp_path, "seedream_4_5", run="next"))
    assert outcome.status is Status.OK and "url" not in json.dumps(outcome.details)
    assert sum(call.path.endswith("generations") for call in server.calls) == 1


# --- money ---------------------------------------------------------------------------------------


def test_the_budget_is_counted_before_a_picture_is_bought(serve: Serve, tmp_path: Path) -> None:
    server = serve()
    server.script = lambda call: Answer(good(call, png(len(server.calls))).body, delay=0.05)
    jobs = [job(n) for n in range(12)]
    generator = model(server, tmp_path, max_cost=0.039 * 5, concurrency=8)
    with pytest.raises(Unanswered, match=r"run\.generating\.max_cost"):
        generator.generate(jobs)
    generator.close()
    assert len(server.calls) == 5, "several in flight must not overrun the budget together"
    generator = model(server, tmp_path, run="next", max_requests=4)
    with pytest.raises(Unanswered, match=r"run\.generating\.max_requests = 4 is used up"):
        generator.generate(jobs)
    generator.close()
    assert len(server.calls) == 9
    generator = model(server, tmp_path, run="last", price=0.0, max_cost=0.01)
    assert {o.status for o in generator.generate(jobs)} == {Status.OK}
    generator.close()
    assert len(server.calls) == 12, "what was bought before was bought again"


def test_a_failed_try_gives_its_money_back(
    serve: Serve, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = serve(lambda call: fault(500, 500) if call.nth < 3 else good(call, png(1)))
    assert one(model(server, tmp_path, max_cost=0.04)).status is Status.OK
    assert "3 requests, 1560 tokens, 0.04 USD" in capsys.readouterr().out


# --- nothing is bought twice ---------------------------------------------------------------------


@pytest.mark.parametrize("card", CARDS)
def test_replicates_differ_and_nothing_is_bought_twice(
    serve: Serve, tmp_path: Path, card: str
) -> None:
    server = serve()
    twins = [job(0), Job(**{**job(0).__dict__, "sample_id": "s1", "seed": 77})]
    first = model(server, tmp_path, card)
    found = first.generate(twins)
    first.close()
    assert found[0].image is not None and found[1].image is not None
    assert found[0].image.tobytes() != found[1].image.tobytes()
    again = model(server, tmp_path, card, run="next", base_url=server.url + "/", price=9.0)
    assert [o.details for o in again.generate(twins)] == [o.details for o in found]
    assert len(server.calls) == 2, "where the server is and what it costs is no part of a request"
    other = model(server, tmp_path, card, model="another")
    other.generate(twins)
    other.close()
    assert len(server.calls) == 4


@pytest.mark.parametrize("damage", ["gone", "changed", "facts"])
def test_a_picture_that_is_no_longer_there_is_bought_again(
    serve: Serve, tmp_path: Path, damage: str
) -> None:
    server = serve()
    assert one(model(server, tmp_path)).status is Status.OK
    (picture,) = tmp_path.glob("pictures/*/*.picture")
    if damage == "gone":
        picture.unlink()
    elif damage == "changed":
        picture.write_bytes(png(1234))
    else:
        picture.with_suffix(".json").write_text('{"sha')
    assert one(model(server, tmp_path)).status is Status.OK
    assert len(server.calls) == 2


KILLED = """
    import sys
    from pathlib import Path
    from tests.unit import test_remote_generators as t
    class There:
        url = sys.argv[1]
    t.one(t.model(There, Path(sys.argv[2]), concurrency=2), [t.job(n) for n in range(8)])
"""


def test_a_killed_job_buys_only_what_is_missing(serve: Serve, tmp_path: Path) -> None:
    """From the fifth request on the server hangs; what came before must not be bought again."""
    server = serve()
    server.script = lambda call: (
        Answer(delay=30) if len(server.calls) > 4 else good(call, png(len(server.calls)))
    )
    root = cards.ROOT
    env = {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{root / 'workflow'}"}
    code = textwrap.dedent(KILLED)
    process = subprocess.Popen([sys.executable, "-c", code, server.url, str(tmp_path)], env=env)
    try:
        until = time.monotonic() + 60
        while len(list(tmp_path.glob("pictures/*/*.json"))) < 4 and time.monotonic() < until:
            time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    bought = {call.words for call in server.calls[:4]}
    before = len(server.calls)
    server.script = server._new_picture
    generator = model(server, tmp_path)
    found = generator.generate([job(n) for n in range(8)])
    generator.close()
    assert {o.status for o in found} == {Status.OK}
    later = [call.words for call in server.calls[before:]]
    assert len(later) == 4 and not bought & set(later)


def test_a_picture_kept_but_not_counted_is_not_bought_again(serve: Serve, tmp_path: Path) -> None:
    """As after a kill between the picture's file and the store's commit."""
    server = serve()
    assert one(model(server, tmp_path)).status is Status.OK
    for path in (tmp_path / "pictures").glob("asked.sqlite*"):
        if path.is_file():
            path.unlink()
    assert one(model(server, tmp_path)).status is Status.OK
    assert len(server.calls) == 1


# --- the study -----------------------------------------------------------------------------------


def study(folder: Path, url: str, **params: Any) -> dict[str, Any]:
    told = {"base_url": url, "key_env": "TEST_PICTURE_KEY", **params}
    scores = folder / "scores"
    scores.mkdir(exist_ok=True)
    (scores / "nano_banana.json").write_text('{"a.jpg": {"CLIP_I": 0.5}}')
    return {
        "study": "remote",
        "benchmark": {"card": "miniworld", "params": {"subjects": 2}},
        "generators": [{"card": "nano_banana", "params": told}],
        "metrics": [{"card": "imagenhub_clip_i", "params": {"folder": str(scores)}}],
        "results": str(folder / "results"),
    }


def test_artifacts_give_their_pictures_back_after_a_fresh_clone(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a missing key stops the run only while something must be bought."""
    from subjectbench.stages import generate, prepare
    from subjectbench.stages.base import Context

    def script(call: Call) -> Answer:
        if len(server.calls) == 3:
            return gemini("No.", finish="SAFETY")
        return good(call, png(len(server.calls)))

    server = serve()
    server.script = script
    config = study(tmp_path, server.url)
    monkeypatch.delenv("TEST_PICTURE_KEY", raising=False)
    plan = make_plan(load_study(config))
    with pytest.raises(InputError, match="TEST_PICTURE_KEY is not set"):
        check_asked(plan)
    monkeypatch.setenv("TEST_PICTURE_KEY", "secret-key-0123")
    check_asked(plan)
    (benchmark,), (artifact,) = plan.of_kind("benchmark"), plan.of_kind("generate")
    prepare.run(Context(plan, benchmark))
    generate.run(Context(plan, artifact))
    assert len(server.calls) == 24
    monkeypatch.delenv("TEST_PICTURE_KEY")
    check_asked(plan)  # all pictures are there
    monkeypatch.setenv("TEST_PICTURE_KEY", "secret-key-0123")
    assert "secret-key" not in json.dumps(artifact.identity) + json.dumps(artifact.job)

    shutil.rmtree(tmp_path / "results" / "pictures")
    first = plan.folder(artifact.key)
    made = {p.name: p.read_bytes() for p in first.iterdir()}
    assert not any(b"secret-key" in data for data in made.values())
    later = make_plan(load_study({**config, "shards": 2}))
    for part in later.of_kind("benchmark"):
        prepare.run(Context(later, part))
    parts = later.of_kind("generate")
    for part in parts:
        generate.run(Context(later, part))
    assert len(server.calls) == 24, "restored artifacts hold what was bought"
    from subjectbench import records

    both = [records.read_table("samples", later.folder(p.key) / "samples.parquet") for p in parts]
    before = records.read_table("samples", first / "samples.parquet")
    rows = {r.sample_id: (r.status, r.image_sha256) for frame in both for r in frame.itertuples()}
    assert rows == {r.sample_id: (r.status, r.image_sha256) for r in before.itertuples()}
    assert sorted(before["status"].unique()) == ["ok", "refused"]


def test_the_doctor_sees_a_missing_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GEMINI_API_KEY", raising=False)
    card = cards.load("generator", "nano_banana")
    plugin = cards.plugin("generator", card, "")
    params = cards.params("generator", Use(card="nano_banana"), "")
    (check,) = plugin.checks(params, card, cards.ROOT)
    assert not check.ok and check.about == "keys" and "export GEMINI_API_KEY" in check.mend
    monkeypatch.setenv("GEMINI_API_KEY", "x")
    assert plugin.checks(params, card, cards.ROOT)[0].ok
    wrong = params.model_copy(update={"base_url": "https://me:pw@host/v1"})
    (check,) = plugin.checks(wrong, card, cards.ROOT)
    assert not check.ok and "pw" not in check.found
