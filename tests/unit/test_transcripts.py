"""The transcript store and its exports: nothing lost, nothing foreign, the same bytes."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subjectbench.asking.base import Message, Picture, Reply, Request
from subjectbench.asking.transcripts import Attempt, Spent, Transcripts, read_archive
from subjectbench.errors import InputError
from subjectbench.hashing import canonical, digest, sha256
from subjectbench.vocabulary import Status
from tests.judging import question, store_at

JUDGE = {"plugin": "openai", "version": "1", "params": {"model": "judge-1"}}
GOOD = Attempt(Status.OK, "", Reply('{"score": 4}', "stop", "judge-1", 100, 10))
OTHER = Attempt(Status.OK, "", Reply('{"score": 5}', "stop", "judge-1", 100, 10))
BAD = Attempt(Status.UNPARSABLE, "no_score", Reply("lovely", "stop", "judge-1", None, None))
NONE = Attempt(Status.UNPARSABLE, "empty", Reply(None, "length", "judge-1"))
REFUSED = Attempt(Status.REFUSED, "refused", None, "HTTP 400: no", 400)
BUSY = Attempt(Status.FAILED, "retry", None, "HTTP 429: slow down", 429)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Transcripts]:
    with store_at(tmp_path) as it:
        yield it


def put(store: Transcripts, request: Request, *attempts: Attempt) -> str:
    key = request.key(JUDGE)
    store.write([Transcripts.register(canonical(JUDGE), {key: request.text})])
    store.write([Transcripts.save(key, attempt) for attempt in attempts])
    return key


TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
REQUESTS = st.builds(
    lambda words, data, tokens, values: Request(
        (Message("user", (words, Picture("generated", data, "image/png"))),),
        max_tokens=tokens,
        values=values,
    ),
    TEXTS,
    st.binary(max_size=20),
    st.integers(1, 9999),
    st.dictionaries(TEXTS, st.none() | TEXTS | st.floats(allow_nan=False, allow_infinity=False)),
)


@given(REQUESTS, st.dictionaries(TEXTS, TEXTS))
def test_a_key_is_the_hash_of_judge_and_request(request: Request, judge: dict[str, str]) -> None:
    whole = {"judge": judge, "request": request.canonical()}
    assert request.key(judge) == digest(whole, 32)
    assert request.key(judge) != request.key({**judge, "another": "1"})


def test_attempts_are_kept_in_order(store: Transcripts, tmp_path: Path) -> None:
    key = put(store, question("q"), BUSY, BAD)
    put(store, question("q"), GOOD)
    assert store.attempts([key, key, "0" * 32]) == {key: [BUSY, BAD, GOOD]}
    many = [put(store, question(f"q{n}"), GOOD) for n in range(1100)]
    assert set(store.attempts(many)) == set(many)
    with store_at(tmp_path) as again:
        assert again.attempts([key])[key] == [BUSY, BAD, GOOD]


def test_a_transaction_is_kept_whole_or_not_at_all(store: Transcripts) -> None:
    key = put(store, question("q"))

    def breaks(_: sqlite3.Connection) -> None:
        raise MemoryError

    with pytest.raises(MemoryError):
        store.write([Transcripts.save(key, GOOD), breaks])
    assert store.attempts([key]) == {}
    put(store, question("q"), GOOD)
    assert store.attempts([key]) == {key: [GOOD]}


def test_what_a_run_used_is_counted_over_processes(store: Transcripts, tmp_path: Path) -> None:
    store.write([Transcripts.spend("a", "USD", Spent(1, 100, 0.5))] * 3)
    with store_at(tmp_path) as other:
        other.write([Transcripts.spend("a", "EUR", Spent(1, 10, 2.0))])
        budget = {"requests": 5, "cost": 9.0}
        assert other.write([Transcripts.reserve("a", "USD", budget)]) == [""]
        assert other.write([Transcripts.reserve("a", "USD", budget)]) == ["requests"]
        assert other.write([Transcripts.reserve("a", "EUR", {"tokens": 310})]) == ["tokens"]
        assert other.write([Transcripts.reserve("b", "USD", budget)]) == [""]
    assert store.spent("a", "USD") == Spent(5, 310, 1.5)
    assert store.spent("a", "EUR") == Spent(5, 310, 2.0)


def test_a_claim_is_one_process_s_and_ends_with_it(store: Transcripts, tmp_path: Path) -> None:
    assert store.claim(["a", "b"]) == {"a", "b"} == store.claim(["a", "b"])
    with store_at(tmp_path) as other:
        assert other.claim(["b", "c"]) == {"c"}
        assert store.claim(["b", "c"]) == {"b"}
        store.release()
        assert other.claim(["a", "b"]) == {"a", "b"}
        assert store.claim(["a"]) == set()
    assert store.claim(["a", "b", "c"]) == {"a", "b", "c"}
    assert len(list(tmp_path.glob("*.owners/*"))) == 1


# --- exports -------------------------------------------------------------------------------------


def test_an_export_depends_on_what_was_said_alone(tmp_path: Path) -> None:
    files = []
    for name, order in (("a", 1), ("b", -1)):
        with Transcripts(tmp_path / f"{name}.sqlite") as store:
            keys = []
            for n in range(50)[::order]:
                noise = [BUSY] * (n % 3 if name == "a" else 0)
                late = Attempt(Status.OK, "", GOOD.reply, latency=n / 7, run=name)
                keys.append(put(store, question(f"q{n}"), *noise, BAD, *noise, late))
            put(store, question("not asked for"), GOOD)
            files.append(tmp_path / f"{name}.parquet")
            assert store.export([*keys, keys[0]], files[-1]) == 100
    assert files[0].read_bytes() == files[1].read_bytes()
    rows = pq.read_table(files[0]).to_pylist()
    numbered = [(key, n) for key in sorted(keys) for n in (1, 2)]
    assert [(row["key"], row["attempt"]) for row in rows] == numbered
    assert json.loads(rows[0]["judge"]) == JUDGE
    picture = json.loads(rows[0]["request"])["messages"][1]["parts"][1]
    assert picture["sha256"] == sha256(b"\x89PNG picture") and picture["bytes"] == 12


def test_an_import_gives_back_what_was_exported(store: Transcripts, tmp_path: Path) -> None:
    first = put(store, question("first"), BUSY, BAD, BAD, GOOD)
    second = put(store, question("second"), NONE, REFUSED)
    put(store, question("third"), BUSY)
    a, b = tmp_path / "a.parquet", tmp_path / "b.parquet"
    assert store.export(None, a) == 5
    with Transcripts(tmp_path / "new.sqlite") as new:
        done = new.load(a)
        assert (done.added, done.known, done.differing) == (5, 0, ())
        done = new.load(a)
        assert (done.added, done.known, done.differing) == (0, 5, ())
        new.export(None, b)
        kept = new.attempts([first, second])
        assert kept == {first: [BAD, BAD, GOOD], second: [NONE, REFUSED]}
        assert new.spent("", "USD") == Spent()  # what was bought elsewhere is in no budget here
    assert a.read_bytes() == b.read_bytes()
    assert store.export([], b) == 0 == store.load(b).added


def test_of_two_answers_the_first_stays(store: Transcripts, tmp_path: Path) -> None:
    key = put(store, question("q"), GOOD)
    with Transcripts(tmp_path / "other.sqlite") as other:
        put(other, question("q"), BAD, OTHER)
        other.export(None, tmp_path / "other.parquet")
    done = store.load(tmp_path / "other.parquet")
    assert (done.added, done.differing) == (1, (key,))
    assert store.attempts([key])[key] == [GOOD, BAD]


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(REQUESTS, TEXTS | st.none(), st.booleans()), max_size=5))
def test_any_text_survives_an_archive(
    tmp_path_factory: pytest.TempPathFactory, said: list[tuple[Request, str | None, bool]]
) -> None:
    folder = tmp_path_factory.mktemp("archive")
    with store_at(folder) as store:
        for request, text, graded in said:
            put(store, request, Attempt(Status.OK, "", Reply(text, graded=graded)))
        store.export(None, folder / "t.parquet")
    found = [(e.request, e.attempt.reply) for e in read_archive(folder / "t.parquet")]
    expected = [(r.text, Reply(text, graded=graded)) for r, text, graded in said]
    assert sorted(map(repr, found)) == sorted(map(repr, expected))


def damaged(folder: Path) -> Iterator[tuple[str, bytes]]:
    with store_at(folder) as store:
        for n in range(30):
            put(store, question(f"question {n}"), GOOD)
        store.export(None, folder / "good.parquet")
    good = (folder / "good.parquet").read_bytes()
    yield "empty", b""
    yield "text", b"key,attempt\n"
    yield "cut", good[: len(good) // 2]
    yield "flipped", good[:400] + bytes([good[400] ^ 1]) + good[401:]

    def rewritten(**columns: object) -> bytes:
        table = pq.read_table(folder / "good.parquet")
        for name, values in columns.items():
            at = table.schema.get_field_index(name)
            if values is None:
                table = table.remove_column(at)
            else:
                table = table.set_column(at, table.schema.field(at), [values])
        pq.write_table(table, folder / "x.parquet")
        return (folder / "x.parquet").read_bytes()

    table = pq.read_table(folder / "good.parquet")
    yield "column", rewritten(text=None)
    yield "key", rewritten(key=pa.array(["0" * 32] * 30))
    yield "status", rewritten(status=pa.array(["splendid"] * 30))
    pretty = [json.dumps(json.loads(t), indent=1) for t in table["request"].to_pylist()]
    yield "request", rewritten(request=pa.array(pretty))
    pq.write_table(pa.table({"a": [1]}), folder / "x.parquet")
    yield "foreign", (folder / "x.parquet").read_bytes()


def test_damaged_and_foreign_archives_are_refused(store: Transcripts, tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    cases = dict(damaged(tmp_path / "made"))
    assert len(cases) == 9
    for name, data in cases.items():
        path = tmp_path / f"{name}.parquet"
        path.write_bytes(data)
        with pytest.raises(InputError, match=f"{name}.parquet") as caught:
            store.load(path)
        assert caught.value.mend
    with pytest.raises(InputError, match="no such file"):
        store.load(tmp_path / "nothing.parquet")
    store.export(None, tmp_path / "left.parquet")
    assert read_archive(tmp_path / "left.parquet") == []


def test_another_file_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "mine.sqlite"
    path.write_text("dear diary, this is no database at all, but long enough to look like one")
    with pytest.raises(InputError, match="no transcript store"):
        Transcripts(path)
    assert path.read_text().startswith("dear diary")
    path.unlink()
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE cats(name)")
    with pytest.raises(InputError, match="another program's"):
        Transcripts(path)
    path.unlink()
    Transcripts(path).close()
    with sqlite3.connect(path) as ours:
        ours.execute("PRAGMA user_version = 99")
    with pytest.raises(InputError, match="version 99"):
        Transcripts(path)
