"""Embeddings as artifacts of their own: a changed formula needs no encoder.

References and prompts are embedded once per benchmark, pictures once per model and shard. An
encoder of pairs has nothing to embed for a benchmark, and embeds pictures with their prompts.
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
from subjectbench.stages.base import Context, by_subject, count, details, to_json
from subjectbench.stages.prepare import Prepared, open_png
from subjectbench.store import Partial

Row = tuple[str, Vector]
"""Id, and its embedding or why there is none."""


def run_images(context: Context) -> None:
    """Write embeddings.parquet: one row per sample of one model and shard."""
    samples = records.read_table("samples", context.upstream("samples") / "samples.parquet")
    cases = Prepared(context.upstream("benchmark")).cases[["case_id", "subject_id", "prompt"]]
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
        _warn_of_cut(rows)
        return _write(rows, folder / "embeddings.parquet")

    context.store.make(context.artifact, build)


def run_cases(context: Context) -> None:
    """Write references.parquet and texts.parquet: embeddings of a benchmark's own side."""
    prepared = Prepared(context.upstream("benchmark"))

    def build(folder: Path, _: Partial) -> dict[str, int]:
        encoder = _encoder(context)
        found = list(prepared.pictures())
        good = [(i, p) for i, status, p in found if status is Status.OK and p is not None]
        rows = [] if encoder.embeds_pairs else _embed(encoder, *_columns(good))
        rows += [(i, Vector(status)) for i, status, _ in found if status is not Status.OK]
        counts = _write(rows, folder / "references.parquet")
        prompts = prepared.cases.dropna(subset=["prompt"])
        ids, texts = list(prompts["case_id"]), list(prompts["prompt"])
        rows = []
        if encoder.embeds_text:
            vectors = map(as_vector, encoder.texts(texts), encoder.cut(texts))
            rows = list(zip(ids, vectors, strict=True))
            _warn_of_cut(rows)
        _write(rows, folder / "texts.parquet")
        return counts

    context.store.make(context.artifact, build)


def _encoder(context: Context) -> Encoder:
    plugin, card, params = context.plugin("encoder")
    encoder: Encoder = plugin(params, card, context.device)
    return encoder


def _pictures(encoder: Encoder, group: pd.DataFrame, archive: Any) -> list[Row]:
    ok = group["status"] == Status.OK
    bad = [(i, Vector(Status(s))) for i, s in group.loc[~ok, ["sample_id", "status"]].values]
    if encoder.embeds_pairs:
        mute = ok & group["prompt"].isna()
        bad += [(i, Vector(Status.NOT_APPLICABLE)) for i in group.loc[mute, "sample_id"]]
        ok &= ~mute
    ids = list(group.loc[ok, "sample_id"])
    pictures = [open_png(archive.read(f"{i}.png")) for i in ids]
    return _embed(encoder, ids, pictures, list(group.loc[ok, "prompt"])) + bad


def _columns(rows: Sequence[tuple[str, Image.Image]]) -> tuple[list[str], list[Image.Image]]:
    return [i for i, _ in rows], [p for _, p in rows]


def _embed(
    encoder: Encoder,
    ids: Sequence[str],
    pictures: Sequence[Image.Image],
    prompts: Sequence[str] = (),
) -> list[Row]:
    """Embed pictures; say in the log of which the encoder does not see the half."""
    for name, picture in zip(ids, pictures, strict=True):
        kept = encoder.kept(picture.size)
        if kept < 0.5:
            width, height = picture.size
            print(
                f"warning: {name} ({width} x {height}): {1 - kept:.0%} lies outside the crop",
                file=sys.stderr,
            )
    if not encoder.embeds_pairs:
        return list(zip(ids, encoder.vectors(pictures), strict=True))
    vectors = map(as_vector, encoder.pairs(pictures, prompts), encoder.cut(prompts))
    return list(zip(ids, vectors, strict=True))


def _warn_of_cut(rows: Sequence[Row]) -> None:
    """Say in the log of how many prompts the encoder does not read the end."""
    cut = [v.details["cut"] for _, v in rows if "cut" in v.details]
    if cut:
        print(
            f"warning: {len(cut)} of {len(rows)} prompts are too long for the encoder, and lose up "
            f"to {max(cut)} tokens at their end",
            file=sys.stderr,
        )


def _write(rows: list[Row], path: Path) -> dict[str, int]:
    rows = sorted(rows, key=lambda r: r[0])
    table = pa.table(
        {
            "id": pa.array([i for i, _ in rows], pa.string()),
            "status": pa.array([v.status.value for _, v in rows], pa.string()),
            "vector": pa.array(
                [None if v.values is None else v.values.astype(np.float32) for _, v in rows],
                pa.list_(pa.float32()),
            ),
            "details": pa.array([to_json(dict(v.details)) for _, v in rows], pa.string()),
        }
    )
    pq.write_table(table, path, compression="zstd")
    return count(v.status for _, v in rows)


def read(path: Path) -> dict[str, Vector]:
    """Read an embeddings table: id to vector or reason."""
    table = pq.read_table(path)
    return {
        i: Vector(Status(s), None if v is None else np.asarray(v, np.float32), details(d))
        for i, s, v, d in zip(
            *(table[name].to_pylist() for name in ("id", "status", "vector", "details")),
            strict=True,
        )
    }
