"""The engine against a real server on loopback that misbehaves: nothing lost, nothing bought twice.

Also the recipes VLM-04, VLM-11, VLM-13 and VLM-18 of the trouble reports.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from subjectbench.asking.base import Ask, Message, Picture, Reply, Request, SendError
from subjectbench.asking.engine import BATCH, BREAKER, Unanswered, forecast
from subjectbench.asking.transcripts import Transcripts
from subjectbench.cards import JudgeCard, Price
from subjectbench.config import Strict
from subjectbench.errors import InputError
from subjectbench.judges.base import Backend
from subjectbench.judges.repair import follow_up
from subjectbench.vocabulary import Status
from tests.judging import Seen, engine, openai_judge, question, questions, read, store_at
from tests.judging_server import Answer, Call, JudgingServer, error, reply

ROOT = Path(__file__).resolve().parents[2]

GOOD = reply('{"score": 4}')


@pytest.fixture
def serve() -> Iterator[Callable[..., JudgingServer]]:
    servers = []

    def start(script: Callable[[Call], Answer] | None = None) -> JudgingServer:
        servers.append(JudgingServer(script))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Transcripts]:
    with store_at(tmp_path) as it:
        yield it


def first_then_good(first: Answer, times: int = 1) -> Callable[[Call], Answer]:
    return lambda call: first if call.nth <= times else GOOD


# --- the plain case ------------------------------------------------------------------------------


def test_outcomes_are_in_order_and_a_repeated_request_is_sent_once(
    serve: Callable[..., JudgingServer], store: Transcripts
) -> None:
    server = serve(lambda c: reply(json.dumps({"score": int(c.words.split()[-1])})))
    asked = [question(f"question {n}") for n in (3, 1, 2, 1, 3, 3)]
    it = engine(openai_judge(server.url), store)
    outcomes = it.ask(asked, read)
    assert [o.reading.value for o in outcomes if o.reading] == [3, 1, 2, 1, 3, 3]
    assert [o.request for o in outcomes] == asked and len(server.calls) == 3
    assert {o.key for o in outcomes} == {r.key(it.identity) for r in asked}
    assert all(o.keys == (o.key,) and o.status is Status.OK and not o.fault for o in outcomes)
    assert it.ask([], read) == []
    assert engine(openai_judge(server.url), store).ask(asked, read) == outcomes
    assert len(server.calls) == 3
    assert store.spent("run", "USD").requests == 3 and store.spent("run", "USD").tokens == 330
    assert store.spent("run", "USD").cost == pytest.approx(3 * 0.2)
    assert store.spent("run", "EUR").cost == 0 and store.spent("other", "USD").requests == 0


def test_no_more_requests_are_in_flight_than_allowed(
    serve: Callable[..., JudgingServer], store: Transcripts
) -> None:
    server = serve(lambda _: Answer(GOOD.body, delay=0.02))
    engine(openai_judge(server.url), store, concurrency=5).ask(questions(40), read)
    assert server.most_at_once == 5 and len(server.calls) == 40


def test_the_same_request_to_another_judge_or_with_other_parts_is_another(
    serve: Callable[..., JudgingServer], store: Transcripts
) -> None:
    """VLM-11: another picture under the same name, one letter, the budget, the model: new calls."""
    server = serve()
    base = question("Rate it.")
    asked = [
        base,
        question("Rate it.", picture=b"\x89PNG another"),
        question("Rate it!"),
        question("Rate it.", max_tokens=65),
    ]
    for number, request in enumerate(asked, 1):
        for _ in range(2):
            engine(openai_judge(server.url), store).ask([request], read)
            assert len(server.calls) == number
    for params in ({"model": "judge-2"}, {"temperature": 1.0}, {"seed": None}):
        before = len(server.calls)
        for _ in range(2):
            engine(openai_judge(server.url, **params), store).ask([base], read)
            assert len(server.calls) == before + 1
    moved = serve()  # the same model elsewhere: where it stands is not who it is
    engine(openai_judge(moved.url), store).ask(asked, read)
    assert not moved.calls


# --- trouble that passes -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "trouble",
    [
        error(429),
        error(429, code="rate_limit_exceeded", retry_after="0"),
        error(429, retry_after="Wed, 21 Oct 2015 07:28:00 GMT"),
        error(429, retry_after="soon"),
        error(500),
        error(503, retry_after_ms="5"),
        error(408),
        error(409),
        Answer(GOOD.body, cut=True),
        Answer(GOOD.body, delay=2.0),
        Answer('{"choices": [{"mess'),
        Answer("<html>gateway</html>", headers={"content-type": "text/html"}),
        Answer({"error": {"message": "overloaded", "code": 503}}),
    ],
    ids=lambda a: f"{a.status}{'-cut' * a.cut}{'-slow' * bool(a.delay)}{str(a.headers)[:16]}",
)
def test_trouble_that_passes_costs_another_try_and_nothing_else(
    serve: Callable[..., JudgingServer], store: Transcripts, trouble: Answer
) -> None:
    server = serve(first_then_good(trouble))
    timeout = 1.5 if trouble.delay else 20.0  # a busy machine may take long to connect
    (outcome,) = engine(openai_judge(server.url), store, timeout=timeout).ask([question("q")], read)
    assert outcome.status is Status.OK and len(server.calls) == 2
    attempts = store.attempts([outcome.key])[outcome.key]
    assert [a.status for a in attempts] == [Status.FAILED, Status.OK]
    assert attempts[0].fault == "retry" and attempts[0].reply is None and attempts[0].error
    assert store.spent("run", "USD").requests == 2


def test_retry_after_is_waited_for(serve: Callable[..., JudgingServer], store: Transcripts) -> None:
    """VLM-13: two 429 with Retry-After 1, then a score: one score, at least 1 s before each."""
    server = serve(first_then_good(error(429, retry_after="1"), times=2))
    (outcome,) = engine(openai_judge(server.url), store).ask([question("q")], read)
    assert outcome.reading == Seen(Status.OK, "", 4)
    first, second, third = (call.at for call in server.calls)
    assert second - first >= 1 and third - second >= 1


def test_always_429_is_no_answer_and_a_rerun_asks_only_what_is_missing(
    serve: Callable[..., JudgingServer], store: Transcripts
) -> None:
    """VLM-13: after the retries it is an error that a rerun mends, never a score."""
    ill = True
    server = serve(lambda c: error(429) if ill and c.words.endswith(" 1") else GOOD)
    asked = questions(3)
    with pytest.raises(Unanswered, match=r"1 of 3 .*no reply after 4 tries.*429") as caught:
        engine(openai_judge(server.url), store).ask(asked, read)
    assert "only what is missing" in caught.value.mend and caught.value.where == "job"
    assert sorted(server.count().values()) == [1, 1, 4]
    ill = False
    server.calls.clear()
    outcomes = engine(openai_judge(server.url), store).ask(asked, read)
    assert [o.status for o in outcomes] == [Status.OK] * 3
    assert [call.words.split()[-1] for call in server.calls] == ["1"]


def test_429_in_a_reply_is_text(serve: Callable[..., JudgingServer], store: Transcripts) -> None:
    """VLM-13: '429' inside a normal reply is no rate limit."""
    server = serve(lambda _: reply('{"score": 4, "reason": "429 Too Many Requests"}'))
    (outcome,) = engine(openai_judge(server.url), store).ask([question("q")], read)
    assert outcome.status is Status.OK and len(server.calls) == 1


def test_a_pause_of_hours_is_not_waited_for(
    serve: Callable[..., JudgingServer], store: Transcripts
) -> None:
    server = serve(lambda _: error(429, retry_after="86400"))
    with pytest.raises(Unanswered, match="pause of 86400 s"):
        engine(openai_judge(server.url), store).ask([question("q")], read)
    assert len(server.calls) == 1


def test_a_server_that_is_not_there_is_given_up_soon(
    serve: Callable[..., JudgingServer], store: Transcripts
) -> None:
    server = serve()
    server.close()
    judge = openai_judge(server.url)
    with pytest.raises(Unanswered, match=r"200 of 200 .*no reply after 2 tries"):
        engine(judge, store, retries=1, concurrency=4).ask(questions(200), read)
    assert store.spent("run", "USD").requests <= 4 * (2 * BREAKER + 2)


# --- trouble that stays --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trouble", "status"),
    [
        (error(400, "too long", "context_length_exceeded"), Status.FAILED),
        (error(422, "no"), Status.FAILED),
        (error(413, "too large"), Status.FAILED),
        (error(400, "no", "content_filter"), Status.REFUSED),
        (error(400, "no", "content_policy_violation"), Status.REFUSED),
    ],
)
def test_a_final_error_is_one_call_and_no_number(
    serve: Callable[..., JudgingServer], store: Transcripts, trouble: Answer, status: Status
) -> None:
    server = serve(lambda c: trouble if c.words.endswith("bad") else GOOD)
    asked = [question("bad"), question("good")]
    bad, good = engine(openai_judge(server.url), store).ask(asked, read)
    assert (bad.status, bad.reply, bad.reading) == (status, None, None) and bad.fault
    assert good.status is Status.OK and sorted(server.count().values()) == [1, 1]


@pytest.mark.parametrize(
    "trouble",
    [
        error(401, "wrong key", "invalid_api_key"),
        error(403, "not for you"),
        error(429, "pay first", "insufficient_quota"),
        error(402, "pay first"),
        error(404, "no such model", "model_not_found"),
        error(400, "temperature", "unsupported_value"),
    ],
    ids=lambda a: str(a.body["error"]["code"]) + str(a.status),
)
def test_a_wrong_key_or_an_empty_account_costs_three_calls(
    serve: Callable[..., JudgingServer],
    store: Transcripts,
    monkeypatch: pytest.MonkeyPatch,
    trouble: Answer,
) -> None:
    monkeypatch.setenv("JUDGE_KEY", "k-123")
    server = serve(lambda _: trouble)
    judge = openai_judge(server.url, key_env="JUDGE_KEY")
    with pytest.raises(Unanswered, match=f"HTTP {trouble.status}") as caught:
        engine(judge, store, concurrency=64).ask(questions(500), read)
    assert "500 of 500" in caught.value.fault
    assert len(server.calls) == BREAKER
    assert ("JUDGE_KEY" in str(caught.value)) == (trouble.status in (401, 403))


def test_401_is_exactly_one_call(serve: Callable[..., JudgingServer], store: Transcripts) -> None:
    """VLM-13: 401 is no rate limit."""
    server = serve(lambda _: error(401))
    with pytest.raises(Unanswered):
        engine(openai_judge(server.url), store).ask([question("q")], read)
    assert len(server.calls) == 1


def test_quota_that_ends_in_the_middle_loses_nothing(
    serve: Callable[..., JudgingServer], store: Transcripts
) -> None:
    paid = 20
    server = serve(
        lambda c: GOOD if len(server.calls) <= paid else error(429, "pay", "insufficient_quota")
    )
    asked = questions(100)
    with pytest.raises(Unanswered, match=f"{100 - paid} of 100"):
        engine(openai_judge(server.url), store, concurrency=4).ask(asked, read)
    assert len(server.calls) <= paid + BREAKER + 3  # three more may be under way
    paid, already = 1000, len(server.calls)
    engine(openai_judge(server.url), store).ask(asked, read)
    assert len(server.calls) == already + 80


# --- replies that cannot be read -----------------------------------------------------------------


@pytest.mark.parametrize("text", ['{"score":', '{"score": 3}', ""])
def test_a_cut_off_reply_is_asked_again_with_a_larger_budget_once(
    serve: Callable[..., JudgingServer], store: Transcripts, text: str
) -> None:
    """VLM-04: finish_reason length is a failure whatever is there; one retry with more tokens."""
    cut = reply(text, "length")
    server = serve(lambda c: cut if c.body["max_completion_tokens"] == 64 else GOOD)
    (outcome,) = engine(openai_judge(server.url), store).ask([question("q")], read)
    assert outcome.status is Status.OK and len(outcome.keys) == 2
    assert [c.body["max_completion_tokens"] for c in server.calls] == [64, 128]
    engine(openai_judge(server.url), store).ask([question("q")], read)
    assert len(server.calls) == 2
    server.script = lambda _: cut
    (outcome,) = engine(openai_judge(server.url), store).ask([question("r")], read)
    assert (outcome.status, outcome.fault) == (Status.UNPARSABLE, "truncated")
    assert len(server.calls) == 4 and outcome.reading and outcome.reading.value is None


@pytest.mark.parametrize(
    "answer",
    [
        reply(None, reasoning_content="Score: 2 then Score: 4"),
        reply(None, "length", reasoning='{"score": 4}'),
        reply(""),
        reply([{"type": "thinking", "thinking": '{"score": 4}'}]),
        reply([]),
        Answer({"id": "x", "object": "chat.completion", "model": "m", "choices": []}),
        Answer({"id": "x", "object": "chat.completion", "model": "m", "choices": None}),
        Answer({"choices": [{"finish_reason": "stop"}]}),
    ],
)
def test_reasoning_is_no_answer_and_empty_is_a_failure(
    serve: Callable[..., JudgingServer], store: Transcripts, answer: Answer
) -> None:
    """VLM-18: empty or null content with status 200 is a failure; one try with a larger budget."""
    server = serve(lambda _: answer)
    (outcome,) = engine(openai_judge(server.url), store).ask([question("q")], read)
    assert outcome.status is Status.UNPARSABLE and outcome.reply and not outcome.reply.text
    assert outcome.fault in ("empty", "truncated")
    assert [c.body["max_completion_tokens"] for c in server.calls] == [64, 128]


def test_text_parts_are_text(serve: Callable[..., JudgingServer], store: Transcripts) -> None:
    parts = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": '{"score": 7}'}]
    server = serve(lambda _: reply(parts))
    (outcome,) = engine(openai_judge(server.url), store).ask([question("q")], read)
    assert outcome.reading == Seen(Status.OK, "", 7)


def test_a_wrong_form_is_repaired_by_one_question(
    serve: Callable[..., JudgingServer], store: Transcripts
) -> None:
    server = serve(lambda c: reply("A lovely mug!") if len(c.body["messages"]) == 2 else GOOD)
    (outcome,) = engine(openai_judge(server.url), store).ask([question("q")], read)
    assert outcome.status is Status.OK and len(server.calls) == 2
    turns = server.calls[1].body["messages"]
    assert turns[:2] == server.calls[0].body["messages"]
    assert turns[2] == {"role": "assistant", "content": "A lovely mug!"}
    assert turns[3]["role"] == "user"
    assert "no_score" in turns[3]["content"] and '"score": <whole number, 0 to 10>' in str(turns[3])
    assert outcome.key != outcome.keys[1] and outcome.reply and outcome.reply.text == '{"score": 4}'
    # The pair answers the question for good, though its first reply never did.
    (again,) = engine(openai_judge(server.url), store).ask([question("q")], read)
    assert again == outcome and len(server.calls) == 2


def test_what_stays_unreadable_has_no_value_and_is_asked_again_another_time(
    serve: Callable[..., JudgingServer], store: Transcripts
) -> None:
    server = serve(lambda _: reply("lovely"))
    (outcome,) = engine(openai_judge(server.url), store).ask([question("q")], read)
    assert (outcome.status, outcome.fault) == (Status.UNPARSABLE, "no_score")
    assert len(server.calls) == 2
    server.script = lambda _: GOOD
    (outcome,) = engine(openai_judge(server.url), store).ask([question("q")], read)
    assert outcome.status is Status.OK and len(server.calls) == 3
    attempts = store.attempts([outcome.key])[outcome.key]
    assert [a.status for a in attempts] == [Status.UNPARSABLE, Status.OK]
    assert attempts[0].reply and attempts[0].reply.text == "lovely"


def test_a_better_reader_reads_what_was_paid_for(
    serve: Callable[..., JudgingServer], store: Transcripts
) -> None:
    server = serve(lambda _: reply("Score: 4"))

    def better(request: Request, reply: Reply) -> Seen:
        return Seen(Status.OK, "", int((reply.text or "").split()[-1]))

    engine(openai_judge(server.url), store).ask([question("q")], read)
    (outcome,) = engine(openai_judge(server.url), store).ask([question("q")], better)
    assert outcome.reading == Seen(Status.OK, "", 4) and len(server.calls) == 2


@pytest.mark.parametrize(
    "refusal",
    [reply("", "content_filter"), reply(None, refusal="I cannot help with that.")],
)
def test_a_refusal_is_not_argued_with(
    serve: Callable[..., JudgingServer], store: Transcripts, refusal: Answer
) -> None:
    server = serve(lambda _: refusal)
    (outcome,) = engine(openai_judge(server.url), store).ask([question("q")], read)
    assert outcome.status is Status.REFUSED and len(server.calls) == 1


def test_a_follow_up_that_fails_leaves_what_there_was(
    serve: Callable[..., JudgingServer], store: Transcripts
) -> None:
    server = serve(
        lambda c: (
            reply("", "length")
            if c.body["max_completion_tokens"] == 64
            else error(400, "max_tokens is too large")
        )
    )
    (outcome,) = engine(openai_judge(server.url), store).ask([question("q")], read)
    assert (outcome.status, outcome.fault) == (Status.UNPARSABLE, "truncated")
    assert len(server.calls) == 2


def test_each_kind_of_follow_up_comes_once() -> None:
    bad, cut = Seen(Status.UNPARSABLE, "no_score"), Seen(Status.UNPARSABLE, "truncated")
    request, tried = question("q"), frozenset[str]()
    step = follow_up(request, Reply("", "length"), cut, tried)
    assert step and step.kind == "longer" and step.request.max_tokens == 128
    step = follow_up(step.request, Reply("x"), bad, tried | {"longer"})
    assert step and step.kind == "repair" and step.request.max_tokens == 128
    assert follow_up(step.request, Reply("x"), bad, frozenset({"longer", "repair"})) is None
    assert follow_up(request, Reply(None), cut, frozenset({"longer"})) is None
    assert follow_up(request, Reply("x"), Seen(Status.REFUSED), tried) is None
    assert follow_up(request, Reply("x"), Seen(Status.OK), tried) is None
    plain = Request(
        (Message("user", ("?",)),), (Ask("same", "Is it?"), Ask("fit", "How well?", (0, 4)))
    )
    step = follow_up(plain, Reply("x"), bad, tried)
    assert step and "same: yes or no; fit: whole number, 0 to 4" in str(step.request.messages[-1])
    free = Request((Message("user", ("?",)),), schema={"type": "array"})
    step = follow_up(free, Reply("x"), bad, tried)
    assert step and '{"type":"array"}' in str(step.request.messages[-1])


def test_a_reader_that_breaks_costs_no_reply(
    serve: Callable[..., JudgingServer], store: Transcripts
) -> None:
    server = serve()

    def broken(request: Request, reply: Reply) -> Seen:
        raise ZeroDivisionError("a bug")

    with pytest.raises(ZeroDivisionError):
        engine(openai_judge(server.url), store).ask(questions(20), broken)
    bought = len(server.calls)
    outcomes = engine(openai_judge(server.url), store).ask(questions(20), read)
    assert len(server.calls) == 20 >= bought and {o.status for o in outcomes} == {Status.OK}


# --- budgets -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("budget", "most"),
    [
        ({"max_requests": 7}, 7),
        ({"max_tokens": 700}, 7 + 3),  # 110 each; with four in flight three more may be under way
        ({"max_cost": 1.3}, 7 + 3),  # 0.2 each
        ({"max_requests": 0}, 0),
    ],
)
def test_a_budget_stops_the_run_and_another_run_goes_on(
    serve: Callable[..., JudgingServer],
    store: Transcripts,
    budget: dict[str, Any],
    most: int,
) -> None:
    server = serve()
    judge = openai_judge(server.url)
    (name,) = budget
    with pytest.raises(Unanswered, match=rf"run\.judging\.{name} = ") as caught:
        engine(judge, store, concurrency=4, **budget).ask(questions(30), read)
    assert f"raise run.judging.{name}" in caught.value.mend
    sent = len(server.calls)
    assert min(most, 7) <= sent <= most
    assert store.spent("run", "USD").requests == sent
    with pytest.raises(Unanswered, match=f"{30 - sent} of {30 - sent}"):
        engine(judge, store, concurrency=4, **budget).ask(questions(30), read)
    assert len(server.calls) == sent
    if most:
        with pytest.raises(Unanswered):  # a new run has a budget of its own
            engine(judge, store, "next", concurrency=4, **budget).ask(questions(30), read)
        assert len(server.calls) > sent
    engine(judge, store).ask(questions(30), read)
    assert len(server.calls) == 30 and set(server.count().values()) == {1}


def test_tokens_that_a_server_does_not_count_are_guessed(
    serve: Callable[..., JudgingServer], store: Transcripts
) -> None:
    body = {**GOOD.body}
    del body["usage"]
    server = serve(lambda _: Answer(body))
    price = Price(prompt=1e6, completion=1e6, image_tokens=100)
    engine(openai_judge(server.url), store, price=price).ask([question("q")], read)
    spent = store.spent("run", "USD")
    assert spent.tokens == spent.cost == 100 + -(-len("You are a judge.q") // 4) + 3


def test_a_forecast_sends_nothing(serve: Callable[..., JudgingServer], store: Transcripts) -> None:
    price = Price(prompt=2.0, completion=8.0, image_tokens=50)
    words = -(-len("You are a judge.question 0") // 4)
    blank = forecast(questions(1), price)
    assert (blank.requests, blank.to_send, blank.prompt_tokens) == (1, 1, 50 + words)
    assert blank.cost == pytest.approx(((50 + words) * 2 + 64 * 8) / 1e6)
    assert (blank * 5 + blank).completion_tokens == 6 * 64
    server = serve(lambda c: reply("?") if c.words.endswith("question 1") else GOOD)
    it = engine(openai_judge(server.url), store)
    it.ask(questions(3), read)
    sent = len(server.calls)
    mixed = [*questions(5), *questions(5)]
    seen = forecast(mixed, price, it.identity, store, follow_up)
    assert (seen.requests, seen.answered, seen.to_send) == (5, 3, 2)
    assert seen.cost == pytest.approx(2 * blank.cost) and len(server.calls) == sent


# --- judges in process ---------------------------------------------------------------------------


class Local(Backend):
    """Answers the number in a question; some not at all, and one batch breaks it."""

    def __init__(self, breaks_at: int | None = None) -> None:
        super().__init__(Strict(), JudgeCard(title="local", plugin="local", about="x"))
        self.breaks_at, self.batches = breaks_at, list[int]()

    def complete(self, requests: Sequence[Request]) -> list[Reply | SendError]:
        if len(self.batches) == self.breaks_at:
            raise MemoryError
        self.batches.append(len(requests))
        return [self._one(request) for request in requests]

    @staticmethod
    def _one(request: Request) -> Reply | SendError:
        number = int(str(request.messages[1].parts[0]).split()[-1])
        if number == 1:
            return SendError("request", "too long for this model")
        if number == 2 and len(request.messages) == 2:
            return Reply("two")
        return Reply(json.dumps({"score": number}))


def test_a_judge_in_process_is_saved_batch_by_batch(store: Transcripts) -> None:
    asked = questions(2 * BATCH + 5)
    with pytest.raises(MemoryError):
        engine(Local(breaks_at=1), store).ask(asked, read)
    judge = Local()
    outcomes = engine(judge, store).ask(asked, read)
    # Of the first batch all but two were there; the last holds a repair question.
    assert judge.batches == [BATCH, 2 * BATCH + 5 - (BATCH - 2) - BATCH + 1]
    assert outcomes[1].status is Status.FAILED and outcomes[1].fault == "too long for this model"
    del outcomes[1]
    assert [o.reading.value for o in outcomes if o.reading] == [0, *range(2, len(asked))]
    assert store.spent("run", "USD").requests == 0  # nothing was bought
    assert engine(Local(breaks_at=0), store).ask(asked[2:], read) == outcomes[1:]


def test_a_judge_in_process_that_miscounts_is_an_error(store: Transcripts) -> None:
    class Short(Local):
        def complete(self, requests: Sequence[Request]) -> list[Reply | SendError]:
            return [Reply("x")]

    with pytest.raises(RuntimeError, match="1 replies to 2 requests"):
        engine(Short(), store).ask(questions(2), read)


# --- several processes, and killed ones ----------------------------------------------------------

CHILD = textwrap.dedent(
    """
    import sys
    from pathlib import Path
    from subjectbench.asking.engine import Unanswered
    from tests.judging import engine, openai_judge, questions, read, store_at
    folder, url, number, limits = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
    with store_at(folder) as store:
        it = engine(openai_judge(url), store, **eval(limits))
        print("ready", flush=True)
        try:
            outcomes = it.ask(questions(number), read)
            print(sum(o.status == "ok" for o in outcomes))
        except Unanswered as error:
            print(error.fault)
    """
)


def child(folder: Path, url: str, number: int, **limits: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CHILD, str(folder), url, str(number), repr(limits)]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, stdout=pipe, stderr=pipe, text=True, cwd=ROOT, env={**os.environ}
    )


def test_a_killed_process_loses_at_most_what_is_in_flight(
    serve: Callable[..., JudgingServer], tmp_path: Path
) -> None:
    server = serve(lambda _: Answer(GOOD.body, delay=0.03))
    process = child(tmp_path, server.url, 200, concurrency=4)
    while len(server.calls) < 60:
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    time.sleep(0.1)
    before = server.count()
    with store_at(tmp_path) as store:
        it = engine(openai_judge(server.url), store)
        kept = store.attempts(q.key(it.identity) for q in questions(200))
        assert len(before) - 4 <= len(kept) <= len(before)  # a reply is saved as it comes
        outcomes = it.ask(questions(200), read)  # at once, though the dead process had claims
    assert {o.status for o in outcomes} == {Status.OK}
    counts = server.count()
    assert len(counts) == 200 and max(counts.values()) <= 2
    assert sum(counts.values()) == 200 + len(before) - len(kept)


def test_two_processes_share_a_store_and_buy_nothing_twice(
    serve: Callable[..., JudgingServer], tmp_path: Path
) -> None:
    server = serve(lambda _: Answer(GOOD.body, delay=0.01))
    both = [child(tmp_path, server.url, number, concurrency=4) for number in (60, 90)]
    outputs = [process.communicate(timeout=60) for process in both]
    assert [out.split() for out, _ in outputs] == [["ready", "60"], ["ready", "90"]], outputs
    assert len(server.count()) == 90 and set(server.count().values()) == {1}


def test_two_processes_share_a_budget(serve: Callable[..., JudgingServer], tmp_path: Path) -> None:
    server = serve(lambda _: Answer(GOOD.body, delay=0.01))
    both = [child(tmp_path, server.url, n, max_requests=25, concurrency=8) for n in (60, 90)]
    outputs = [process.communicate(timeout=60)[0] for process in both]
    assert all("max_requests = 25" in out for out in outputs), outputs
    assert len(server.calls) == 25


# --- secrets -------------------------------------------------------------------------------------


def test_the_key_is_nowhere(
    serve: Callable[..., JudgingServer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A server that repeats what it was sent puts the key into no file, log or message."""
    key = "planted-key-4711-do-not-keep"
    monkeypatch.setenv("JUDGE_KEY", key)
    picture = b"\x89PNG a person's face"

    def echo(call: Call) -> Answer:
        said = call.headers["authorization"]
        if call.words.endswith("401"):
            return error(401, f"wrong key: {said} sk-abc***wxyz")
        if call.words.endswith("400"):
            return error(400, f"bad request of {key}")
        if call.nth == 1:
            return error(500, f"trouble with {said}", authorization=said)
        return reply(json.dumps({"score": 4, "reason": said}))

    server = serve(echo)
    judge = openai_judge(server.url, key_env="JUDGE_KEY")
    caplog.set_level("DEBUG")
    with store_at(tmp_path) as store:
        it = engine(judge, store)
        outcomes = it.ask([question("q", picture), question("q 400", picture)], read)
        assert [o.status for o in outcomes] == [Status.OK, Status.FAILED]
        with pytest.raises(Unanswered) as caught:
            it.ask([question("q 401", picture)], read)
        assert "JUDGE_KEY" in str(caught.value)
        assert all(call.headers["authorization"] == f"Bearer {key}" for call in server.calls)
        assert store.export(None, tmp_path / "t.parquet") == 2
        files = [p for p in tmp_path.rglob("*") if p.is_file()]
        assert {p.name for p in files} >= {"transcripts.sqlite", "t.parquet"}
        held = b"".join(p.read_bytes() for p in files)  # the log of the database as well
    import pyarrow.parquet as pq

    held += json.dumps(pq.read_table(tmp_path / "t.parquet").to_pylist()).encode()
    held += b"".join(p.read_bytes() for p in tmp_path.rglob("*") if p.is_file())
    out, err = capfd.readouterr()
    held += "\n".join([out, err, caplog.text, repr(caught.value), repr(outcomes)]).encode()
    assert b"trouble with" in held and b"wrong key" in held
    for secret in (key.encode(), b"sk-abc", b"wxyz"):
        assert secret not in held.replace(repr(picture).encode(), b"")
    on_disk = b"".join(p.read_bytes() for p in tmp_path.rglob("*") if p.is_file())
    assert b"a person's face" not in on_disk
    import base64

    assert base64.b64encode(picture)[:20] not in on_disk + err.encode() + caplog.text.encode()


def test_a_missing_key_is_an_error_before_anything_is_sent(
    serve: Callable[..., JudgingServer], store: Transcripts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JUDGE_KEY", raising=False)
    server = serve()
    judge = openai_judge(server.url, key_env="JUDGE_KEY")
    with pytest.raises(InputError, match="environment variable JUDGE_KEY is not set"):
        engine(judge, store).ask([question("q")], read)
    assert not server.calls
    engine(openai_judge(server.url), store).ask([question("q")], read)
    # What is in the store needs no key.
    (outcome,) = engine(judge, store).ask([question("q")], read)
    assert outcome.status is Status.OK and len(server.calls) == 1


def test_the_bar_shows_how_far_it_is_and_what_it_cost(
    serve: Callable[..., JudgingServer],
    store: Transcripts,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    style = {"ascii": True, "mininterval": 0.0}  # without the delay that spares short work a bar
    monkeypatch.setattr("subjectbench.progress._style", lambda: style)
    it = engine(openai_judge(serve().url), store)
    it.ask(questions(5), read)
    assert it._bar is not None
    it._bar.close()
    err = capfd.readouterr().err
    assert re.search(r"job: 100%.* 5/5 .*1\.0000 USD", err), err


def test_pictures_are_sent_in_order_and_encoded_whole(
    serve: Callable[..., JudgingServer], store: Transcripts
) -> None:
    server = serve()
    parts: tuple[str | Picture, ...] = (
        "First",
        Picture("reference", b"\xff\xd8a", "image/jpeg"),
        "Second",
    )
    parts += (Picture("generated", b"\x89b", "image/png"), "Compare.")
    request = Request((Message("system", ("Be strict.",)), Message("user", parts)))
    judge = openai_judge(server.url, image_detail="low", max_tokens_field="max_tokens")
    engine(judge, store).ask([request], read)
    body = server.calls[0].body
    assert body["max_tokens"] == 1024 and body["temperature"] == 0 and body["seed"] == 0
    assert "response_format" not in body and "max_completion_tokens" not in body
    assert body["messages"][0] == {"role": "system", "content": "Be strict."}
    content = body["messages"][1]["content"]
    assert [p["type"] for p in content] == ["text", "image_url"] * 2 + ["text"]
    assert content[1]["image_url"] == {"url": "data:image/jpeg;base64,/9hh", "detail": "low"}
    assert content[3]["image_url"]["url"] == "data:image/png;base64,iWI="
