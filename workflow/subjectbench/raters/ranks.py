"""Ranks by people: the pictures of one case, one per model, ordered from best to worst.

UFO's protocol (section 4.1): six models' pictures of a case are ranked 1 to 6 by overall quality
and alignment with all conditions. How ties and gaps were treated is not stated there; here:

* Only order counts. Equal ranks are ties, and 1, 2, 2, 4 and 1, 2, 2, 3 say the same.
* A model's value is the number of models that it beats, a tie counting half: the number of ranked
  models minus the average rank; 0 is worst, ``n - 1`` best. Higher is better.
* A case is ``missing`` for a rater as a whole who left out a model that another rater of it ranked,
  or ranked fewer than ``min_models``. Ranks among a part cannot be averaged with ranks among all:
  a model left out by one of two raters who agree could come out above their common favourite.
* Cases that no rater touched have no rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from subjectbench.benchmarks.base import check_id, read_rows
from subjectbench.config import LOCATION, Strict
from subjectbench.errors import InputError, suggest
from subjectbench.raters.base import Raters
from subjectbench.vocabulary import Status

if TYPE_CHECKING:
    import pandas as pd

DIMENSION = "preference"

Ranks = Mapping[tuple[str, str], Mapping[str, float]]
"""``ranks[case, rater][generator]``; 1 is best."""

_RANK = re.compile(r"[0-9]+(\.[0-9]+)?")
_DELIMITERS = {".csv": ",", ".tsv": "\t"}


class RankParams(Strict):
    """What ranks by people and simulated ones have in common."""

    min_models: int = Field(
        default=3, ge=2, description="A rater's case with fewer ranked models is missing"
    )
    replicate: int = Field(default=0, ge=0, description="Which picture of a case was ranked")


class RankRaters(Raters):
    """Ranks from one CSV or TSV file: ``case_id, generator (or model), rater, rank``."""

    class Params(RankParams):
        """Where the file lies, and which of its models is which generator."""

        path: str = Field(
            json_schema_extra=LOCATION,
            description="File (.csv or .tsv) with case_id, generator (or model), rater, rank; "
            "1 is best, an empty rank is none",
        )
        models: dict[str, str] = Field(
            default_factory=dict,
            description="Generator name: model in the file. Others go by their own name",
        )
        leave_out: list[str] = Field(
            default_factory=list,
            description="Models in the file that are not in the study; ranks are taken among the "
            "others",
        )

    version: ClassVar[str] = "1"
    params: Params

    @property
    def _file(self) -> Path:
        return self.root / self.params.path

    def sources(self) -> list[Path]:
        """Return the file."""
        return [self._file]

    def check(self) -> None:
        """Check every row, and that the named models are there."""
        self._read()

    def check_study(self, generators: list[str], cases: set[str]) -> None:
        """Refuse ranks of generators and cases that the study does not have."""
        lines, _ = self._read()
        for (case, _, generator), line in lines.items():
            where = f"{self._file}: line {line}"
            if case not in cases:
                raise InputError(where, f"no case '{case}' in the study", suggest(case, cases))
            if generator not in generators:
                raise InputError(
                    where,
                    f"no generator '{generator}' in the study",
                    f"{suggest(generator, generators)} or name it in 'models' or 'leave_out'",
                )

    def _read(self) -> tuple[dict[tuple[str, str, str], int], dict[tuple[str, str, str], float]]:
        """Line, and rank where there is one, by case, rater and generator.

        Raises:
            InputError: names file and line.
        """
        from subjectbench.records import unique_ids

        path = self._file
        if path.suffix.lower() not in _DELIMITERS:
            raise InputError(path, "is neither .csv nor .tsv", "save the ranks as one of them")
        header, rows = read_rows(
            path,
            _DELIMITERS[path.suffix.lower()],
            required=("case_id", "rater", "rank"),
            optional=("generator", "model"),
        )
        named = [c for c in ("generator", "model") if c in header]
        if len(named) != 1:
            raise InputError(path, "needs one column 'generator' or 'model'", "not none, not both")
        if not rows:
            raise InputError(path, "has a header and no rows", "add a row per rank")
        models = list(dict.fromkeys(row[named[0]] for _, row in rows))
        self._check_models(models)
        unique_ids(list(dict.fromkeys(row["rater"] for _, row in rows)), path, "rater")
        names = {model: generator for generator, model in self.params.models.items()}
        lines: dict[tuple[str, str, str], int] = {}
        ranks: dict[tuple[str, str, str], float] = {}
        for line, row in rows:
            where = f"{path}: line {line}"
            model, rater = row[named[0]], check_id(row["rater"], where, "rater")
            if not row["case_id"].strip() or not model.strip():
                raise InputError(where, f"case_id or {named[0]} is empty", "name what was ranked")
            key = (row["case_id"], rater, names.get(model, model))
            if key in lines:
                fault = f"'{rater}' ranks '{model}' of '{key[0]}' here and on line {lines[key]}"
                raise InputError(where, fault, "keep one")
            lines[key] = line
            if row["rank"].strip():
                ranks[key] = _rank(row["rank"], len(models), where)
        kept = {k: n for k, n in lines.items() if k[2] not in self.params.leave_out}
        return kept, {k: r for k, r in ranks.items() if k in kept}

    def _check_models(self, models: list[str]) -> None:
        used: dict[str, str] = {}
        for generator, model in self.params.models.items():
            if model in used:
                fault = f"model '{model}' is given to '{used[model]}' too"
                raise InputError(f"{self._file}: models: {generator}", fault, "give each its own")
            if generator in models and generator != model:
                fault = f"'{generator}' is itself a model in the file"
                raise InputError(f"{self._file}: models: {generator}", fault, "rename one")
            if model in self.params.leave_out:
                fault = f"model '{model}' is in 'leave_out' too"
                raise InputError(f"{self._file}: models: {generator}", fault, "choose one")
            used[model] = generator
        for field, names in (("models", used), ("leave_out", self.params.leave_out)):
            for model in names:
                if model not in models:
                    raise InputError(
                        f"{self._file}: {field}", f"no model '{model}'", suggest(model, models)
                    )

    def ratings(self, samples: dict[str, pd.DataFrame]) -> pd.DataFrame:
        """Rate the ranked picture of each model of each case in the file, by every rater in it.

        Generators that the file does not name (controls) get no rows.

        Raises:
            InputError: a model or case is not in the study, or its ranked picture is not.
        """
        from subjectbench.records import table

        self.check_study(list(samples), {c for f in samples.values() for c in f["case_id"]})
        lines, given = self._read()
        ranks: dict[tuple[str, str], dict[str, float]] = {}
        for case in {case for case, _, _ in lines}:
            for rater in {rater for _, rater, _ in lines}:
                ranks[case, rater] = {}
        for (case, rater, generator), rank in given.items():
            ranks[case, rater][generator] = rank
        shown = pictures({g: samples[g] for g in {g for _, _, g in lines}}, self.params.replicate)
        for (case, _, generator), line in lines.items():
            if (case, generator) not in shown:
                raise InputError(
                    f"{self._file}: line {line}",
                    f"'{generator}' has no picture {self.params.replicate} of '{case}'",
                    "see 'replicate', and samples_per_case in the study",
                )
        return table("ratings", rank_rows(ranks, shown, self.params.min_models), self._file)


def _rank(cell: str, models: int, where: str) -> float:
    if not _RANK.fullmatch(cell.strip()) or float(cell) < 1:
        raise InputError(where, f"rank {cell!r} is not a number from 1", "1 is best")
    if float(cell) > models:
        raise InputError(
            where,
            f"rank {cell.strip()} among {models} models",
            "1 is best; give ranks, not scores, with the rows of all models that were ranked",
        )
    return float(cell)


def preferences(ranks: Mapping[str, float]) -> dict[str, float]:
    """Return for each model how many others it beats, ties counting half.

    The same as the number of models minus the average rank: 0 (worst) to ``len(ranks) - 1``.
    """
    values = list(ranks.values())
    return {
        model: sum(rank < v for v in values) + (sum(rank == v for v in values) - 1) / 2
        for model, rank in ranks.items()
    }


def pictures(samples: dict[str, pd.DataFrame], replicate: int) -> dict[tuple[str, str], str]:
    """Return the sample id of the ranked picture by case and generator."""
    return {
        (case, generator): sample
        for generator, frame in samples.items()
        for case, number, sample in zip(frame["case_id"], frame["replicate"], frame["sample_id"])
        if number == replicate
    }


def rank_rows(
    ranks: Ranks, shown: Mapping[tuple[str, str], str], min_models: int
) -> list[dict[str, Any]]:
    """Return rows of ``records.RATINGS``: one per rater and picture of a ranked case, sorted."""
    generators = sorted({generator for _, generator in shown})
    most: dict[str, set[str]] = {}
    for (case, _), ranked in ranks.items():
        most.setdefault(case, set()).update(ranked)
    rows = []
    for (case, rater), ranked in ranks.items():
        whole = len(ranked) >= max(min_models, len(most[case]))
        values = preferences(ranked) if whole else {}
        for generator in generators:
            if (case, generator) in shown:
                value = values.get(generator)
                rows.append(
                    {
                        "generator": generator,
                        "sample_id": shown[case, generator],
                        "rater": rater,
                        "dimension": DIMENSION,
                        "status": (Status.MISSING if value is None else Status.OK).value,
                        "value": value,
                    }
                )
    rows.sort(key=lambda r: (r["generator"], r["sample_id"], r["rater"]))
    return rows


PLUGIN = RankRaters
