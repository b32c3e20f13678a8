"""Benchmark: cases, and reference pictures decoded once into one form."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from PIL import Image

from subjectbench import cards, images, records
from subjectbench.records import Status
from subjectbench.stages.base import Context, count, of_shard, to_json
from subjectbench.store import Partial


def run(context: Context) -> None:
    """Write cases.parquet, references.parquet and references.zip (PNG, RGB, upright)."""
    plugin, _, params = context.plugin("benchmark")
    benchmark = plugin(params, cards.ROOT)
    part = context.artifact.job

    def build(folder: Path, _: Partial) -> dict[str, int]:
        cases = benchmark.cases()
        if "shards" in part:
            cases = of_shard(cases, part["shard"], part["shards"])
        records.write_table("cases", cases, folder / "cases.parquet")
        used = set(cases["reference_id"])
        rows: list[dict[str, Any]] = []
        pictures: dict[str, bytes] = {}
        for reference_id, data in benchmark.references():
            if "shards" in part and reference_id not in used:
                continue
            picture = (
                images.read_picture(data, name=reference_id)
                if data is not None
                else images.Picture(None, Status.MISSING, {})
            )
            png = images.encode_png(picture.image) if picture.image else None
            if png:
                pictures[f"{reference_id}.png"] = png
            rows.append(
                {
                    "reference_id": reference_id,
                    "status": picture.status.value,
                    "image_sha256": images.sha256(png) if png else None,
                    "source_sha256": images.sha256(data) if data is not None else None,
                    "details": to_json(picture.details),
                }
            )
        rows.sort(key=lambda r: r["reference_id"])
        records.write_table("references", rows, folder / "references.parquet")
        images.write_zip(folder / "references.zip", pictures)
        return count(r["status"] for r in rows)

    context.store.make(context.artifact, build)


class Prepared:
    """A prepared benchmark: cases, and references by subject."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cases = records.read_table("cases", folder / "cases.parquet")
        references = records.read_table("references", folder / "references.parquet")
        self._statuses = {
            r: Status(s)
            for r, s in zip(references["reference_id"], references["status"], strict=True)
        }
        self._of_subject = dict(
            zip(self.cases["subject_id"], self.cases["reference_id"], strict=True)
        )
        named = self.cases.dropna(subset=["subject"])
        self._nouns = dict(zip(named["subject_id"], named["subject"], strict=True))
        self.subjects: list[str] = sorted(self._of_subject)

    def picture(self, subject_id: str) -> Image.Image | None:
        """Reference of a subject, RGB, or None if it could not be read."""
        reference_id = self._of_subject[subject_id]
        if pd.isna(reference_id) or self._statuses.get(reference_id) is not Status.OK:
            return None
        with images.ZipReader(self.folder / "references.zip") as archive:
            return open_png(archive.read(f"{reference_id}.png"))

    def noun(self, subject_id: str) -> str | None:
        """Noun of a subject's class, if the benchmark names one."""
        return self._nouns.get(subject_id)

    def pictures(self) -> Iterator[tuple[str, Status, Image.Image | None]]:
        """Every reference by id, in order."""
        with images.ZipReader(self.folder / "references.zip") as archive:
            for reference_id, status in self._statuses.items():
                ok = status is Status.OK
                yield (
                    reference_id,
                    status,
                    open_png(archive.read(f"{reference_id}.png")) if ok else None,
                )


def open_png(data: bytes) -> Image.Image:
    """Decode a PNG that this library wrote."""
    picture = Image.open(io.BytesIO(data))
    picture.load()
    return picture.convert("RGB")
