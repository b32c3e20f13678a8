"""A judge's answers as published, in VIEScore's form: a folder per model, a JSON file per question.

``<folder>/<generator>/SC.json`` holds
``{"sample_0.jpg": {"score": [8, 3], "reasoning": "..."}, ...}``. VIEScore's code may draw a random
number where a reply could not be read, and marks it only in ``reasoning``: such an entry is no
answer here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import Field

from subjectbench.benchmarks.base import near, read_json
from subjectbench.cards import RubricCard
from subjectbench.config import LOCATION, Strict
from subjectbench.errors import InputError
from subjectbench.rubrics.base import Judged, Rubric, Said


class Imported(Rubric):
    """Looks answers up by case id. A sample without entry gets no answers, so it is ``missing``."""

    needs = frozenset()
    imported = True

    class Params(Strict):
        """Where the answers lie, and what they are called."""

        folder: str = Field(
            json_schema_extra=LOCATION,
            description="Folder of a folder per generator, relative to the checkout",
        )
        files: dict[str, list[str]] = Field(
            min_length=1,
            description="File, without .json: names of the questions, in the order of its scores",
        )
        suffix: str = Field(default=".jpg", description="What the files' ids end with, beyond ours")
        lowest: float = Field(default=0.0, description="Lowest score")
        highest: float = Field(default=10.0, description="Highest score")
        guess: str = Field(
            default="guess_if_cannot_parse",
            min_length=1,
            description="Reasoning that begins with it marks a score that was drawn at random",
        )

    def __init__(self, params: Any, card: RubricCard, root: Path) -> None:
        super().__init__(params, card, root)
        self._read: dict[Path, dict[str, Any]] = {}

    @property
    def _folder(self) -> Path:
        return self.root / self.params.folder

    def sources(self) -> list[Path]:
        """Return the files of every model in the folder."""
        return sorted(p for file in self.params.files for p in self._folder.glob(f"*/{file}.json"))

    def check(self, generators: list[str]) -> None:
        """Every generator has its files, and some entry in each has a list of scores.

        Raises:
            InputError: otherwise.
        """
        for generator in generators:
            if not (self._folder / generator).is_dir():
                mend = near(self._folder / generator)
                raise InputError(self._folder / generator, "no such folder", mend)
            for file in self.params.files:
                entries = self._entries(generator, file)
                if not any(isinstance(e, dict) and "score" in e for e in entries.values()):
                    raise InputError(
                        self._folder / generator / f"{file}.json",
                        "no entry has 'score'",
                        'write {"<id>": {"score": [8, 3], "reasoning": "..."}, ...}',
                    )

    def _entries(self, generator: str, file: str) -> dict[str, Any]:
        path = self._folder / generator / f"{file}.json"
        if path not in self._read:
            entries = read_json(path)
            if not isinstance(entries, dict):
                raise InputError(path, "is not an object keyed by picture")
            self._read[path] = entries
        return self._read[path]

    def said(self, sample: Judged) -> list[Said]:
        """Return the answers about a sample, and why an entry is none."""
        uid = sample.case_id + self.params.suffix
        out: list[Said] = []
        for file, asks in self.params.files.items():
            entries = self._entries(sample.generator, file)
            if uid in entries:
                out += self._answers(entries[uid], asks)
        return out

    def _answers(self, entry: Any, asks: list[str]) -> Iterator[Said]:
        entry = entry if isinstance(entry, dict) else {}
        words, scores = str(entry.get("reasoning") or ""), entry.get("score")
        fault = ""
        if "score" not in entry:
            fault = "no_score"
        elif words.startswith(self.params.guess):
            fault = "guessed"
        elif not isinstance(scores, list) or len(scores) != len(asks):
            fault = "schema"
        for number, ask in enumerate(asks):
            why = fault or self._fault(scores[number])
            # The words are about all scores of the entry: said once.
            text = "" if number else words
            yield Said(ask, None if why else float(scores[number]), why, text)

    def _fault(self, score: Any) -> str:
        if isinstance(score, bool) or not isinstance(score, int | float):
            return "schema"
        within = self.params.lowest <= score <= self.params.highest
        return "" if within else "out_of_range"


PLUGIN = Imported
