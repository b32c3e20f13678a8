"""What the stages keep of judging: whose replies, where, and what became of a case's units."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from subjectbench import cards, records
from subjectbench.asking.base import Reply, Request
from subjectbench.asking.transcripts import Transcripts
from subjectbench.cards import JudgeCard
from subjectbench.config import Strict, Use, load_study
from subjectbench.judges.base import Backend
from subjectbench.plan import make_plan
from subjectbench.rubrics.base import Judged
from subjectbench.stages import decompose, judge, tabulate
from subjectbench.stages.judge import open_transcripts
from subjectbench.vocabulary import Status
from tests.judging import engine, questions, read, store_at

CARD = JudgeCard(title="Scripted", plugin="scripted", about="of a test")
PICTURE = Image.new("RGB", (8, 8), "red")


class Scripted(Backend):
    """Gives these replies, one after the other."""

    class Params(Strict):
        """None."""

    def __init__(self, *script: Reply) -> None:
        super().__init__(self.Params(), CARD)
        self._script = iter(script)

    def complete(self, requests: Sequence[Request]) -> list[Reply]:
        return [next(self._script) for _ in requests]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Transcripts]:
    with store_at(tmp_path) as it:
        yield it


def plugin(kind: str, name: str) -> Any:
    card = cards.load(kind, name)
    params = cards.params(kind, Use(card=name), name)
    return cards.plugin(kind, card, name)(params, card, cards.ROOT)


# --- what is archived ----------------------------------------------------------------------------


def test_the_reply_to_a_repair_question_is_archived_with_its_answer(
    store: Transcripts, tmp_path: Path
) -> None:
    """Otherwise nobody could replay it, and a restored study would buy it again."""
    judging = engine(Scripted(Reply("quite alike"), Reply('{"preservation": 4}')), store)
    sample = Judged("g", "c-s0", "c", "mug", "a mug", PICTURE, PICTURE)
    samples: Any = SimpleNamespace(batches=lambda size: iter([[sample]]))
    context: Any = SimpleNamespace(run=SimpleNamespace(batch_size=8))
    (row,), keys = judge._asked(plugin("rubric", "sics"), samples, judging, context)
    assert (row["status"], row["value"]) == ("ok", 4.0)
    assert len(keys) == 2
    store.export(keys, tmp_path / "t.parquet")
    replies = pd.read_parquet(tmp_path / "t.parquet")["text"]
    assert any("preservation" in reply for reply in replies.dropna())


# --- units ---------------------------------------------------------------------------------------


def split(store: Transcripts, *script: Reply) -> tuple[Any, list[str]]:
    """What becomes of one case, and the keys of what was asked."""
    frame = pd.DataFrame([{"case_id": "c", "subject_id": "s", "subject": None, "prompt": "a mug"}])
    prepared: Any = SimpleNamespace(cases=frame, picture=lambda subject: PICTURE)
    asked = plugin("decomposition", "asked")
    ((_, found),), keys = decompose._asked(asked, prepared, engine(Scripted(*script), store))
    return found, keys


UNITS = (
    '{"analysis": "", "subject": "mug", "subject_type": "rigid_object", "units": [{"level":'
    ' "part", "name": "handle", "relevance": "image_only", "weight": 4, "question": "Same?"}]}'
)


def test_units_come_with_all_that_was_asked_for_them(store: Transcripts) -> None:
    found, keys = split(store, Reply("a handle"), Reply(UNITS))
    assert [unit.unit_id for unit in found] == ["part/handle"] and len(keys) == 2


@pytest.mark.parametrize(
    "reply",
    [Reply("I'm sorry, I can't help with that."), Reply("", finish="content_filter")],
    ids=["declined", "filtered"],
)
def test_a_refused_decomposition_is_refused(store: Transcripts, reply: Reply) -> None:
    found, keys = split(store, reply)
    assert found == (Status.REFUSED, "refused")
    assert len(keys) == 1  # nobody is asked to mend a refusal


# --- the store of a results folder ---------------------------------------------------------------


def archived(folder: Path, results: Path) -> list[str]:
    """Put an artifact's transcripts into a fresh results folder, as a restored study has them."""
    with store_at(folder) as store:
        script = (Reply('{"score": 1}'), Reply('{"score": 2}'))
        outcomes = engine(Scripted(*script), store).ask(questions(2), read)
        target = results / "store/judge/sics/who/key/transcripts.parquet"
        target.parent.mkdir(parents=True)
        keys = [key for outcome in outcomes for key in outcome.keys]
        store.export(keys, target)
    return keys


def test_a_new_store_takes_in_restored_transcripts_whoever_opens_it_first(tmp_path: Path) -> None:
    keys = archived(tmp_path, tmp_path / "results")
    for _ in range(2):
        with open_transcripts(tmp_path / "results") as store:
            assert set(store.attempts(keys)) == set(keys)
    names = sorted(p.name for p in (tmp_path / "results").iterdir())
    assert names == ["store", "transcripts.sqlite", "transcripts.sqlite.owners"]


def test_a_store_is_not_there_before_it_has_all_restored_transcripts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed halfway, or opened by another job meanwhile: nothing is missing, nothing bought."""
    results = tmp_path / "results"
    keys = archived(tmp_path, results)
    load = Transcripts.load

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    def another_comes_first(self: Transcripts, path: Path) -> Any:
        assert not (results / "transcripts.sqlite").exists()
        monkeypatch.setattr(Transcripts, "load", load)
        open_transcripts(results).close()
        return load(self, path)

    monkeypatch.setattr(Transcripts, "load", killed)
    with pytest.raises(KeyboardInterrupt):
        open_transcripts(results)
    assert not (results / "transcripts.sqlite").exists()
    monkeypatch.setattr(Transcripts, "load", another_comes_first)
    with open_transcripts(results) as store:
        assert set(store.attempts(keys)) == set(keys)


# --- what it took ---------------------------------------------------------------------------------


def counted(folder: Path, answers: dict[str, list[dict[str, Any]]]) -> pd.DataFrame:
    """Requests by step, of a person's case h and an animal's case a with two units each."""
    unit = {"status": "ok", "level": "part", "relevance": "image_only", "weight": 3}
    rows = [
        {"case_id": c, "unit_id": f"part/{n}", "name": n, "question": "Same?", "tool": tool, **unit}
        for c, n, tool in [
            ("a", "face", "vqa"),
            ("a", "tail", "vqa"),
            ("h", "face", "face"),
            ("h", "hat", "vqa"),
        ]
    ]
    units = records.table("units", [row | {"details": "{}"} for row in rows], "test")
    pq.write_table(pa.table({"key": ["k1", "k2"]}), folder / "transcripts.parquet")
    for role, found in answers.items():
        (folder / role).mkdir()
        records.write_table("answers", found, folder / role / "answers.parquet")
    context: Any = SimpleNamespace(
        roles=lambda _: {role: folder / role for role in answers},
        upstream=lambda _: folder,
        artifact=SimpleNamespace(job={"generators": [{}], "samples_per_case": 1}),
    )
    return tabulate._requests(context, units).set_index("step")


def no(case: str, name: str) -> dict[str, Any]:
    row = {"sample_id": f"{case}-s0", "ask": f"part/{name}", "status": "ok", "value": 0.0}
    return row | {"details": '{"request": "k"}'}


def test_a_face_counts_as_compared_only_in_its_own_case(tmp_path: Path) -> None:
    noes = [no("a", "face"), no("a", "tail"), no("h", "face"), no("h", "hat")]
    frame = counted(tmp_path, {"g0": noes})
    assert frame.loc["explanation", "reference"] == 3  # all but the person's face


def test_requests_without_any_answer(tmp_path: Path) -> None:
    frame = counted(tmp_path, {"g0": []})
    assert frame.loc[["decomposition", "verification"], "here"].tolist() == [2, 0]


# --- who judges ----------------------------------------------------------------------------------


def test_how_replies_are_kept_and_read_is_no_part_of_a_judge(tmp_path: Path) -> None:
    """A change of the engine or of the parser must not ask a judge in process all over again."""
    study = {
        "study": "s",
        "benchmark": {"card": "miniworld_ufo", "params": {"subjects": 1, "cases": 4}},
        "generators": ["sim_careful"],
        "metrics": ["sics"],
        "judge": "mini_zero_shot",
        "results": str(tmp_path),
    }
    (artifact,) = make_plan(load_study(study)).of_kind("judge")
    told = artifact.job["judge"]["identity"]
    for code in (told["code"], told["encoder"]["code"]):
        assert not [m for m in code if ".stages." in m or m.endswith((".engine", ".replies"))]
    assert "subjectbench.judges.zero_shot" in told["code"]
    assert "subjectbench.encoders.clip" in told["encoder"]["code"]
    # The answers are made by all of it.
    assert "subjectbench.asking.engine" in artifact.components["rubric"]["code"]
