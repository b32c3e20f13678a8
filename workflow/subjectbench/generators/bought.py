"""Pictures that a server made: kept by the request that they answer, before anything else happens.

A picture is money. So it lies on disk, whole, before its reply is committed, counted or looked at;
a job that is killed in between finds it again and asks nobody.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from subjectbench.hashing import sha256
from subjectbench.store import Partial
from subjectbench.vocabulary import Status


@dataclass(frozen=True)
class Answer:
    """What a server answered to one request for a picture.

    Args:
        sha256: of the picture's bytes as they came; None: there is no picture.
        words: what the server said: beside the picture, or in place of it.
        finish: why it ended, in the server's word.
        refused: a filter, or the model itself, declined.
        model: as the server names it.
        prompt_tokens: as counted by the server; None: not told.
        completion_tokens: likewise.
        url: where the picture lies, bought but not fetched yet; never in an artifact.
    """

    sha256: str | None = None
    words: str = ""
    finish: str = ""
    refused: bool = False
    model: str = ""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    url: str | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """What is worth telling, as JSON types."""
        return {name: value for name, value in asdict(self).items() if value not in (None, "")}


class Bought:
    """Answers by request, in files: ``<folder>/<2 digits>/<key>.json`` and the picture beside it.

    Args:
        folder: made when the first answer comes.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _shelf(self, key: str) -> Partial:
        return Partial(self.folder / key[:2])

    def answer(self, key: str) -> Answer | None:
        """Return what is kept of a request, without looking at the picture; None: nothing is."""
        facts = self._shelf(key).load(f"{key}.json")
        try:
            return None if facts is None else Answer(**json.loads(facts))
        except (ValueError, TypeError):  # damaged: as if it were not there
            return None

    def find(self, key: str) -> tuple[Answer, bytes | None] | None:
        """Return the answer to a request with its picture; None: the server must be asked.

        A picture that is gone or damaged was not kept.
        """
        answer = self.answer(key)
        if answer is None or answer.url:
            return None
        if answer.sha256 is None:
            return answer, None
        data = self._shelf(key).load(f"{key}.picture")
        return (answer, data) if data is not None and sha256(data) == answer.sha256 else None

    def keep(self, key: str, answer: Answer, data: bytes | None = None) -> None:
        """Keep an answer: its picture first, so that what is named is there."""
        shelf = self._shelf(key)
        if data is not None:
            shelf.save(f"{key}.picture", data)
        shelf.save(f"{key}.json", json.dumps(asdict(answer), sort_keys=True).encode())

    def restore(self, artifacts: Path) -> None:
        """Take in what artifacts of pictures hold, unless this store is there already.

        After a fresh clone and restored artifacts, a changed module of ours must not buy the same
        pictures again. They come as the PNG that the artifact has: the same pixels.

        Args:
            artifacts: folder of all artifacts of pictures.
        """
        if self.folder.is_dir():
            return
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=self.folder.parent, prefix=".pictures-") as temporary:
            new = Bought(Path(temporary) / "new")
            new.folder.mkdir()
            for key, answer, data in _in_artifacts(artifacts):
                new.keep(key, answer, data)
            with suppress(OSError):  # another process was first
                new.folder.rename(self.folder)


def _in_artifacts(artifacts: Path) -> Iterator[tuple[str, Answer, bytes | None]]:
    from subjectbench import images, records

    for table in sorted(artifacts.rglob("samples.parquet")):
        rows = records.read_table("samples", table)
        rows = rows[rows["details"].str.contains('"request"', regex=False)]
        if rows.empty:
            continue
        with images.ZipReader(table.with_name("images.zip")) as pictures:
            for row in rows.itertuples():
                facts = json.loads(row.details)
                data = None
                if row.status == Status.OK:
                    data = pictures[f"{row.sample_id}.png"]
                elif "sha256" in facts["answer"]:
                    continue  # its picture was unusable, and is not in the artifact
                answer = facts["answer"] | {"sha256": sha256(data) if data else None}
                yield facts["request"], Answer(**answer), data
