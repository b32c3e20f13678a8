"""Embeddings as artifacts of their own: a changed formula needs no encoder.

References and prompts are embedded once per benchmark, pictures once per model and shard.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from subjectbench import images, progress, records
from subjectbench.encoders.base import Encoder, Vector, as_vector
from subjectbench.records import Status
from subjectbench.stages.base import Context, by_subject, count
from subjectbench.stages.prepare import Prepared, open_png
from subjectbench.store import Partial

Row = tuple[str, str, np.ndarray | None]
"""Id, status, float32 vector (d,) or None."""


def run_images(context: Context) -> None:
    """Write embeddings.parquet: one row per sample of one model and shard."""
    samples = records.read_table("samples", context.upstream("samples") / "samples.parquet")
    cases = Prepared(context.upstream("benchmark")).cases[["case_id", "subject_id"]]
    samples = samples.merge(cases, on="case_id", how="left", validate="many_to_one")
    archive = context.upstream("samples") / "images.zip"

    def build(folder: Path, partial: Partial) -> dict[str, int]:
        encoder: Encoder | None = None
        rows: list[Row] = []
        batches = list(by_subject(samples, context.run.batch_size))
        with images.ZipReader(archive) as pictures:
            for name, groups in progress.bar(batches, len(batches), context.artifact.name):
                saved = partial.load(name)
                if saved is None:
                    encoder = encoder or _encoder(context)
                    done = [row for g in groups for row in _pictures(encoder, g, pictures)]
                    partial.save(name, pickle.dumps(done))
                else:
                    done = pickle.loads(saved)
                rows += done
        return _write(rows, folder / "embeddings.parquet")

    context.store.make(context.artifact, build)


def run_cases(context: Context) -> None:
    """Write references.parquet and texts.parquet: embeddings of a benchmark's own side."""
    prepared = Prepared(context.upstream("benchmark"))

    def build(folder: Path, _: Partial) -> dict[str, int]:
        encoder = _encoder(context)
        found = list(prepared.pictures())
        good = [(i, p) for i, status, p in found if status is Status.OK and p is not None]
        rows = _embed(encoder, [i for i, _ in good], [p for _, p in good])
        rows += [(i, status.value, None) for i, status, _ in found if status is not Status.OK]
        counts = _write(rows, folder / "references.parquet")
        prompts = prepared.cases.dropna(subset=["prompt"])
        texts = (
            _rows(
                list(prompts["case_id"]),
                [as_vector(v) for v in encoder.texts(list(prompts["prompt"]))],
            )
            if encoder.embeds_text
            else []
        )
        _write(texts, folder / "texts.parquet")
        return counts

    context.store.make(context.artifact, build)


def _encoder(context: Context) -> Encoder:
    plugin, card, params = context.plugin("encoder")
    encoder: Encoder = plugin(params, card, context.device)
    return encoder


def _pictures(encoder: Encoder, group: pd.DataFrame, archive: Any) -> list[Row]:
    ok = group[group["status"] == Status.OK]
    pictures = [open_png(archive.read(f"{i}.png")) for i in ok["sample_id"]]
    rows = _embed(encoder, list(ok["sample_id"]), pictures)
    bad = group[group["status"] != Status.OK]
    return rows + [(i, s, None) for i, s in zip(bad["sample_id"], bad["status"], strict=True)]


def _embed(encoder: Encoder, ids: Sequence[str], pictures: Sequence[Image.Image]) -> list[Row]:
    """Embed pictures; say in the log of which the encoder does not see the half."""
    for name, picture in zip(ids, pictures, strict=True):
        kept = encoder.kept(picture.size)
        if kept < 0.5:
            width, height = picture.size
            print(
                f"warning: {name} ({width} x {height}): {1 - kept:.0%} lies outside the crop",
                file=sys.stderr,
            )
    return _rows(ids, encoder.vectors(pictures))


def _rows(ids: Sequence[str], vectors: Sequence[Vector]) -> list[Row]:
    return [(i, v.status.value, v.values) for i, v in zip(ids, vectors, strict=True)]


def _write(rows: list[Row], path: Path) -> dict[str, int]:
    rows = sorted(rows, key=lambda r: r[0])
    table = pa.table(
        {
            "id": pa.array([r[0] for r in rows], pa.string()),
            "status": pa.array([r[1] for r in rows], pa.string()),
            "vector": pa.array(
                [None if r[2] is None else r[2].astype(np.float32) for r in rows],
                pa.list_(pa.float32()),
            ),
        }
    )
    pq.write_table(table, path, compression="zstd")
    return count(r[1] for r in rows)


def read(path: Path) -> dict[str, Vector]:
    """Read an embeddings table: id to vector or reason."""
    table = pq.read_table(path)
    return {
        i: Vector(Status(s), None if v is None else np.asarray(v, np.float32))
        for i, s, v in zip(
            table["id"].to_pylist(),
            table["status"].to_pylist(),
            table["vector"].to_pylist(),
            strict=True,
        )
    }
