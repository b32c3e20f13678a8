"""What was trained for each subject, as a finished artifact holds it.

Apart from training, so that a change there renews no picture of a model that trains nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from subjectbench import images, records
from subjectbench.records import Status
from subjectbench.stages.base import details


class Trained:
    """What a finished artifact holds of each subject."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        frame = records.read_table("trained", folder / "subjects.parquet")
        self._rows = {row.subject_id: row for row in frame.itertuples()}

    def status(self, subject_id: str) -> Status:
        """``OK``, or why there are no files."""
        return Status(self._rows[subject_id].status)

    def details(self, subject_id: str) -> dict[str, Any]:
        """What was decided for the subject, or the reason why there is nothing."""
        return details(self._rows[subject_id].details)

    def files(self, subject_id: str) -> dict[str, str]:
        """Name and sha256 of each file of a subject."""
        return details(self._rows[subject_id].files)

    def unpack(self, subject_id: str, folder: Path) -> None:
        """Write a subject's files into a folder."""
        with images.ZipReader(self.folder / "weights.zip") as archive:
            for name in self.files(subject_id):
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("wb") as file:
                    for chunk in archive.chunks(f"{subject_id}/{name}"):
                        file.write(chunk)
