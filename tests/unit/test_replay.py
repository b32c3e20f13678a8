"""Replaying archived transcripts, and the parameters of the judges that can be replayed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from subjectbench import cards
from subjectbench.asking.base import Reply, Request
from subjectbench.asking.transcripts import Attempt, Transcripts
from subjectbench.cards import JudgeCard
from subjectbench.config import Use
from subjectbench.errors import InputError
from subjectbench.hashing import canonical
from subjectbench.judges.base import Backend
from subjectbench.judges.openai import OpenAI
from subjectbench.judges.replay import Replay
from subjectbench.vocabulary import Status
from tests.judging import (
    CARD,
    engine,
    identity_of,
    openai_judge,
    question,
    questions,
    read,
    store_at,
)
from tests.judging_server import Answer, Call, JudgingServer, error, reply

REPLAYED = JudgeCard(title="Archive", plugin="replay", about="of a test")


def script(call: Call) -> Answer:
    """Every kind of end: a score, one after a repair, none, a refusal, a request too large."""
    number = int(call.words.splitlines()[1].split()[-1]) % 6
    if number == 1 and len(call.body["messages"]) == 2:
        return reply("lovely")
    if number == 2:
        return reply("lovely")
    if number == 3:
        return error(400, "no", "content_filter")
    if number == 4:
        return error(400, "too large")
    if number == 5:
        return reply("", "length")
    return reply('{"score": 4}')


@pytest.fixture
def server() -> Iterator[JudgingServer]:
    it = JudgingServer(script)
    yield it
    it.close()


def replaying(path: Path, judge: Any) -> Replay:
    return Replay(Replay.Params.model_validate({"path": str(path), "judge": judge}), REPLAYED)


def named(**params: Any) -> dict[str, Any]:
    return {"card": "openai_server", "params": {"model": "judge-1", **params}}


def recorded(server: JudgingServer, folder: Path, **params: Any) -> Path:
    """An archive made by asking the server, with the parameters of a card."""
    card = cards.params("judge", Use.model_validate(named(**params)), "test")
    judge = OpenAI(card.model_copy(update={"base_url": server.url}), CARD)
    with store_at(folder) as store:
        outcomes = engine(judge, store).ask(questions(12), read)
        store.export([k for o in outcomes for k in o.keys], folder / "archive.parquet")
    return folder / "archive.parquet"


def test_a_replay_ends_as_the_original_did(server: JudgingServer, tmp_path: Path) -> None:
    path = recorded(server, tmp_path)
    with store_at(tmp_path) as store:
        judge = openai_judge(server.url, max_tokens_field="max_tokens")
        original = engine(judge, store).ask(questions(12), read)
    server.close()
    with Transcripts(tmp_path / "new.sqlite") as store:
        it = engine(replaying(path, named()), store)
        assert it.identity == identity_of(judge)
        outcomes = it.ask(questions(12), read)
        store.export([k for o in outcomes for k in o.keys], tmp_path / "again.parquet")
        assert store.spent("run", "USD").requests == 0
    assert outcomes == original
    assert {o.status for o in outcomes} == {"ok", "unparsable", "refused", "failed"}
    # An archive of a replay is an archive, and a folder is all of its files.
    with Transcripts(tmp_path / "third.sqlite") as store:
        it = engine(replaying(tmp_path, named()), store)
        assert it.ask(questions(12), read) == original


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (question("question 0", picture=b"\x89PNG other"), "same words about other pictures"),
        (question("question zero"), "other words about the same pictures"),
        (question("question 0", max_tokens=65), "another max_tokens"),
        (question("question zero", picture=b"\x89PNG other"), "none with these words or pictures"),
    ],
)
def test_a_miss_names_the_request_and_what_there_is(
    server: JudgingServer, tmp_path: Path, request_: Request, says: str
) -> None:
    path = recorded(server, tmp_path)
    with Transcripts(tmp_path / "new.sqlite") as store:
        it = engine(replaying(path, named()), store)
        with pytest.raises(InputError, match=says) as caught:
            it.ask([question("question 0"), request_], read)
    words = str(request_.messages[1].parts[0])
    for part in (words, request_.pictures()[0].sha256[:12], request_.key(it.identity)):
        assert part in caught.value.fault
    assert "1 of the next 2 requests" in caught.value.fault and str(path) in caught.value.where


def test_another_judge_is_another(server: JudgingServer, tmp_path: Path) -> None:
    path = recorded(server, tmp_path)
    with pytest.raises(InputError, match=r"model is 'judge-1', not 'judge-2'"):
        replaying(path, named(model="judge-2")).check()
    with pytest.raises(InputError, match=r"temperature is 0\.0, not 1\.0"):
        replaying(path, named(temperature=1.0)).check()
    (tmp_path / "second").mkdir()
    second = recorded(server, tmp_path / "second", temperature=1.0)
    second.rename(tmp_path / "second.parquet")
    it = replaying(tmp_path, named())
    it.check()
    with pytest.raises(InputError, match="requests by this judge"):
        it.complete([question("question 99", picture=b"x")])
    with store_at(tmp_path / "second") as store:
        engine(openai_judge(server.url, temperature=1.0, max_tokens_field="max_tokens"), store).ask(
            [question("question 42")], read
        )
        store.export(None, tmp_path / "second.parquet")
    with pytest.raises(InputError, match=r"same by another judge.*temperature is 1\.0, not 0\.0"):
        it = replaying(tmp_path, named())
        it.complete([question("question 42")])


def test_a_judge_in_process_is_found_by_its_parameters(tmp_path: Path) -> None:
    """Its code and weights of then are in the archive; nothing could tell them now."""
    params = cards.params("judge", Use(card="mini_zero_shot"), "test")
    plugin = cards.plugin("judge", cards.load("judge", "mini_zero_shot"), "test")
    states = [
        {
            "plugin": "zero_shot",
            "version": plugin.version,
            "params": params.model_dump(mode="json"),
            "code": {"module": code},
        }
        for code in ("old", "new")
    ]
    request = question("q")
    with store_at(tmp_path) as store:
        for judge in states:
            key = request.key(judge)
            store.write([Transcripts.register(canonical(judge), {key: request.text})])
            store.write([Transcripts.save(key, Attempt(Status.OK, "", Reply("1", graded=True)))])
        store.export([request.key(states[0])], tmp_path / "old.parquet")
        store.export(None, tmp_path / "both.parquet")
    replay = replaying(tmp_path / "old.parquet", "mini_zero_shot")
    assert replay.complete([request]) == [Reply("1", graded=True)]
    with pytest.raises(InputError, match="2 states of this judge"):
        replaying(tmp_path / "both.parquet", "mini_zero_shot").check()


def test_wrong_parameters_stop_before_any_work(
    tmp_path: Path, own_cards: Callable[[str, str, dict[str, Any]], None]
) -> None:
    with pytest.raises(InputError, match="no such file or folder"):
        Replay.sources(replaying(tmp_path / "x", named()).params, tmp_path)
    with pytest.raises(InputError, match=r"holds no \.parquet file"):
        Replay.sources(replaying(tmp_path, named()).params, tmp_path)
    own_cards(
        "judge",
        "other_replay",
        {"title": "x", "about": "x", "plugin": "replay", "params": {"path": "a", "judge": "b"}},
    )
    for judge, says in (("other_replay", "is a replay itself"), ("gpt_5o", "did you mean")):
        with pytest.raises(InputError, match=says):
            Replay.identity(replaying(tmp_path, judge).params, {})
    with pytest.raises(InputError, match="temprature"):
        Replay.identity(replaying(tmp_path, named(temprature=0.0)).params, {})


# --- the judge behind a server -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"base_url": "localhost:8000/v1"}, "is no address"),
        ({"base_url": "http://me:secret@host/v1"}, "a user, a password"),
        ({"base_url": "http://host/v1?key=secret"}, "a user, a password"),
        ({"key_env": "sk-secret"}, "is no name of an environment variable"),
        ({"key_env": "NO_SUCH_KEY_HERE"}, "NO_SUCH_KEY_HERE is not set"),
    ],
)
def test_a_secret_in_the_wrong_place_is_refused_and_not_repeated(
    params: dict[str, Any], says: str
) -> None:
    judge = OpenAI(OpenAI.Params(model="m", **{"key_env": None, **params}), CARD)
    with pytest.raises(InputError, match=says) as caught:
        judge.check()
    assert "secret" not in str(caught.value) and caught.value.mend


def test_the_identity_is_what_the_server_is_told() -> None:
    one = identity_of(openai_judge("http://a/v1"), code={"a": "1"}, packages={"openai": "3"})
    assert one == identity_of(openai_judge("http://b/v1", key_env="K"))
    assert set(one) == {"plugin", "version", "params"}
    assert "base_url" not in one["params"] and "key_env" not in one["params"]
    assert identity_of(openai_judge("http://a/v1", seed=None)) != one
    assert None not in identity_of(openai_judge("http://a/v1", seed=None))["params"].values()
    everything = {"plugin": "x", "version": "1", "params": {"a": None}, "code": {"m": "1"}}
    assert Backend.identity(None, everything) == everything  # of a judge in process


def test_the_papers_judge_is_pinned_and_priced() -> None:
    card = cards.load("judge", "gpt_4o")
    assert card.params["model"] == "gpt-4o-2024-11-20" and "gpt-4o-2024-05-13" in card.about
    assert card.price.prompt and card.price.completion and card.price.as_of
