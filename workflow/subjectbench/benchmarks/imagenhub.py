"""ImagenHub, subject-driven generation, as published with VIEScore: ratings without pictures.

150 pictures per model exist elsewhere; what is here are three raters' TSV files and CLIP-I and
DINO values. Subjects, prompts and references are not published with them, so a case is a picture
id and nothing more: **each case counts as its own subject**, because which cases share one is
unknown (bootstrap intervals by subject are then by case, and too narrow).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from subjectbench.benchmarks.base import Benchmark, check_id, near, read_json, read_rows
from subjectbench.config import LOCATION, Strict
from subjectbench.errors import InputError, suggest

if TYPE_CHECKING:
    import pandas as pd


class RaterFile:
    """One rater's TSV.

    Attributes:
        path: the file.
        rater: what follows the last underscore of its name (``rater1``).
        columns: one per model, ``uid`` left out.
        cells: ``cells[case_id][column]`` is the cell as written.
        lines: line number per case.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rater = check_id(path.stem.rsplit("_", 1)[-1], path, "rater name")
        header, rows = read_rows(path, "\t", required=["uid"], optional=None)
        self.columns = [c for c in header if c != "uid"]
        self.cells: dict[str, dict[str, str]] = {}
        self.lines: dict[str, int] = {}
        for line, row in rows:
            # "sample_0.jpg" names a picture; the id is the case, whatever the file's type.
            case = check_id(PurePosixPath(row["uid"]).stem, f"{path}: line {line}", "uid")
            if case in self.cells:
                raise InputError(
                    f"{path}: line {line}", f"uid '{row['uid']}' is on line {self.lines[case]} too"
                )
            self.cells[case], self.lines[case] = row, line


def natural(name: str) -> tuple[str, int, str]:
    """Sort key that puts ``sample_2`` before ``sample_10``."""
    head, _, tail = name.rpartition("_")
    return (head, int(tail), "") if tail.isdecimal() else (name, -1, tail)


def read_rater_files(folder: Path) -> list[RaterFile]:
    """Read all raters of a folder, sorted by name.

    Raises:
        InputError: no TSV, or two files that differ in columns or uids: both are named.
    """
    paths = sorted(folder.glob("*.tsv"))
    if not paths:
        raise InputError(
            folder,
            "no rater files (*.tsv)" if folder.is_dir() else "no such folder",
            "" if folder.is_dir() else near(folder),
        )
    files = [RaterFile(p) for p in paths]
    first = files[0]
    raters: dict[str, Path] = {}
    for file in files:
        if file.rater.casefold() in raters:
            other = raters[file.rater.casefold()].name
            raise InputError(file.path, f"same rater '{file.rater}' as {other}", "rename one file")
        raters[file.rater.casefold()] = file.path
        for what, mine, theirs in (
            ("columns", set(file.columns), set(first.columns)),
            ("uids", set(file.cells), set(first.cells)),
        ):
            if mine != theirs:
                missing, extra = (sorted(s, key=natural) for s in (theirs - mine, mine - theirs))
                raise InputError(
                    file.path,
                    f"its {what} differ from those of {first.path.name}: "
                    f"missing {missing[:5]}, only here {extra[:5]}",
                    "all raters must have judged the same pictures of the same models",
                )
    return files


class ImagenHub(Benchmark):
    """One case per rated picture id: ``sample_0`` to ``sample_149``."""

    pictures = False
    breakdowns = ()

    class Params(Strict):
        """Where the published files lie."""

        raters: str = Field(
            json_schema_extra=LOCATION, description="Folder of the raters' TSV files"
        )
        scores: str | None = Field(
            default=None,
            json_schema_extra=LOCATION,
            description="Folder of <model>.json with published CLIP_I and DINO",
        )

    version: ClassVar[str] = "1"
    params: Params

    def _scores(self) -> list[Path]:
        if self.params.scores is None:
            return []
        return sorted((self.root / self.params.scores).glob("*.json"))

    def sources(self) -> list[Path]:
        """Return the raters' files and the score files."""
        return [*sorted((self.root / self.params.raters).glob("*.tsv")), *self._scores()]

    def check(self) -> None:
        """Check that raters agree in what they rated and that scores are of the same pictures."""
        from subjectbench.records import unique_ids

        first = read_rater_files(self.root / self.params.raters)[0]
        unique_ids(list(first.cells), first.path, "uid")
        if self.params.scores is None:
            return
        paths = self._scores()
        if not paths:
            folder = self.root / self.params.scores
            raise InputError(folder, "no score files (*.json)", near(folder))
        for path in paths:
            scores = read_json(path)
            if not isinstance(scores, dict):
                raise InputError(path, "is not an object keyed by picture")
            for uid in scores:
                if PurePosixPath(uid).stem not in first.cells:
                    raise InputError(
                        path, f"picture '{uid}' was rated by nobody", suggest(uid, first.cells)
                    )

    def cases(self) -> pd.DataFrame:
        """Return one row per picture id; prompt, reference and taxonomy are unknown."""
        from subjectbench.records import CASES, table

        self.check()
        first = read_rater_files(self.root / self.params.raters)[0]
        unknown = dict.fromkeys(CASES.columns)
        rows = [
            {**unknown, "case_id": case, "subject_id": case, "details": '{"subject": "unknown"}'}
            for case in sorted(first.cells, key=natural)
        ]
        return table("cases", rows, self.root / self.params.raters)

    def references(self) -> Iterator[tuple[str, bytes | None]]:
        """Yield nothing: no reference picture is published."""
        return iter(())


PLUGIN = ImagenHub
