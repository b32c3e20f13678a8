"""Time of scoring pictures through the pipeline against the same scores pair by pair.

Pipeline: embed-cases, embed-images and score of each artifact, one process each, as rules call
them. Pair by pair: the way of DSH-Bench's official scripts, one process per metric; each pair opens
its pictures, preprocesses them and runs the model at batch size 1, reference or prompt included.
Same pictures, same weights, one thread. Needs the store of a finished run:

    python benchmarks/scoring_ratio.py --results results
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[variable] = "1"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import pandas as pd
import yaml

from subjectbench import cards, checkpoint, cli, config
from subjectbench.images import ZipReader
from subjectbench.plan import make_plan

TOLERANCE = 1e-5


def timed_forward() -> dict[str, float]:
    """Count the seconds spent in the models' forward passes."""
    import torch
    from transformers import CLIPModel, ViTModel

    torch.set_num_threads(1)
    spent = {"forward": 0.0}

    def wrap(owner: Any, name: str) -> None:
        inner = getattr(owner, name)

        def timed(self: Any, *args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            try:
                return inner(self, *args, **kwargs)
            finally:
                spent["forward"] += time.perf_counter() - start

        setattr(owner, name, timed)

    wrap(CLIPModel, "get_image_features")
    wrap(CLIPModel, "get_text_features")
    wrap(ViTModel, "forward")
    return spent


def pair_by_pair(task: Path) -> None:
    """Score every pair of one metric, batch size 1, nothing kept from one pair to the next."""
    import torch
    from PIL import Image
    from transformers import AutoImageProcessor, AutoTokenizer, CLIPModel, ViTModel

    job = json.loads(task.read_text())
    card = cards.load("encoder", job["encoder"])
    params = cards.params("encoder", config.Use(card=job["encoder"]), job["encoder"])
    if getattr(params, "crop", None):
        raise SystemExit(f"{job['encoder']}: only the checkpoint's own preprocessing is known here")
    folder, is_clip = checkpoint.folder(card.weights), card.plugin == "clip"
    extra = {} if is_clip else {"add_pooling_layer": False}
    model = (CLIPModel if is_clip else ViTModel).from_pretrained(folder, **extra).eval()
    processor = AutoImageProcessor.from_pretrained(folder, backend="pil")
    tokenizer = AutoTokenizer.from_pretrained(folder) if is_clip else None

    def embed(path: str) -> Any:
        picture = Image.open(path).convert("RGB")
        pixels = processor(images=picture, return_tensors="pt")["pixel_values"]
        if is_clip:
            return model.get_image_features(pixel_values=pixels).pooler_output
        return model(pixel_values=pixels).last_hidden_state[:, 0]

    def embed_text(text: str) -> Any:
        tokens = tokenizer([text], padding=True, truncation=True, return_tensors="pt")
        return model.get_text_features(**tokens).pooler_output

    scores = []
    with torch.inference_mode():
        for picture, reference, prompt in job["pairs"]:
            other = embed_text(prompt) if job["text"] else embed(reference)
            scores.append(float(torch.nn.functional.cosine_similarity(embed(picture), other)))
    task.with_suffix(".scores").write_text(json.dumps(scores))


def child(*arguments: str) -> dict[str, float]:
    """Run one process of this script; its wall time from start to end, and its forward time."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, __file__, "--child", *arguments], capture_output=True, text=True
    )
    wall = time.perf_counter() - start
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed:\n{done.stderr}")
    return {"wall": wall, **json.loads(done.stdout.splitlines()[-1])}


def run_child(arguments: list[str]) -> None:
    """Run one stage, or one metric pair by pair; print the seconds inside and in the model."""
    spent, start = timed_forward(), time.perf_counter()
    if arguments[0] == "pairs":
        pair_by_pair(Path(arguments[1]))
    elif status := cli.main(arguments):
        raise SystemExit(status)
    print(json.dumps({**spent, "inside": time.perf_counter() - start}))


def pairs_of(folders: dict[str, Path], unpacked: Path) -> tuple[pd.DataFrame, list[list[str]]]:
    """Samples of some models, and for each the files of picture and reference and the prompt."""
    cases = pd.read_parquet(folders["benchmark"] / "cases.parquet").set_index("case_id")
    frames = []
    for name, folder in folders.items():
        archive = folder / ("references.zip" if name == "benchmark" else "images.zip")
        target = unpacked / name.replace("/", "-")
        target.mkdir(parents=True)
        with ZipReader(archive) as pictures:
            if name == "benchmark":
                wanted = cases["reference_id"].unique()
            else:
                samples = pd.read_parquet(folder / "samples.parquet").query("status == 'ok'")
                frames.append(samples.assign(generator=name.split("/")[0], folder=str(target)))
                wanted = samples["sample_id"]
            for i in wanted:
                (target / f"{i}.png").write_bytes(pictures.read(f"{i}.png"))
    samples, pairs = pd.concat(frames, ignore_index=True), []
    for s in samples.itertuples():
        case = cases.loc[s.case_id]
        reference = unpacked / "benchmark" / f"{case['reference_id']}.png"
        pairs.append([f"{s.folder}/{s.sample_id}.png", str(reference), case["prompt"]])
    return samples, pairs


def total(runs: list[dict[str, float]]) -> dict[str, float]:
    """Sums over processes."""
    return {name: sum(r[name] for r in runs) for name in ("wall", "inside", "forward")}


def main() -> None:
    """Measure and print; exit status 1 where the two sides' scores differ."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--results", type=Path, default=Path("results"), help="results folder of a finished run")
    add("--config", type=Path, default=cards.ROOT / "config.yaml", help="study of that run")
    add("--generators", nargs="+", metavar="NAME", help="models to score (default: simulated ones)")
    add("--metrics", nargs="+", metavar="NAME", default=["mini_clip_i", "mini_clip_t", "mini_dino"])
    args = parser.parse_args()

    study = yaml.safe_load(args.config.read_text("utf-8"))
    whole = make_plan(config.load_study(study | {"results": str(args.results)}, args.config))
    roles = {f"{a.name.split('/', 1)[1]}": a for a in whole.of_kind("generate")}
    wanted = args.generators or [
        n
        for n, f in whole.artifacts[whole.final].job["generators"].items()
        if f["role"] == "simulated"
    ]
    folders = {n: whole.folder(a.key) for n, a in roles.items() if n.split("/")[0] in wanted}
    folders = {"benchmark": whole.folder(whole.of_kind("benchmark")[0].key), **folders}
    for folder in folders.values():
        if not (folder / "manifest.json").is_file():
            raise SystemExit(f"{folder}: not there; run `snakemake --cores all` first")

    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        (root / "results" / "store").mkdir(parents=True)
        for kind in ("benchmark", "generate"):
            source = (args.results / "store" / kind).resolve()
            (root / "results" / "store" / kind).symlink_to(source)
        plan = make_plan(config.load_study(study | {"results": str(root / "results")}))
        plan_file = str(plan.save())
        scores = [
            a
            for a in plan.of_kind("score")
            if a.job["generator"] in wanted and a.job["metric"] in args.metrics
        ]
        steps = {k: "embed-cases" for a in scores for k in [a.upstream["case_embeddings"]]}
        steps |= {k: "embed-images" for a in scores for k in [a.upstream["embeddings"]]}
        steps |= {a.key: "score" for a in scores}
        ours = [child(verb, "--plan", plan_file, "--key", key) for key, verb in steps.items()]
        found = pd.concat(
            pd.read_parquet(plan.folder(a.key) / "scores.parquet") for a in scores
        ).set_index(["metric", "generator", "sample_id"])["value"]

        samples, pairs = pairs_of(folders, root / "unpacked")
        theirs, worst = [], 0.0
        for name in args.metrics:
            use = next(
                u for u in map(config.Use.model_validate, study["metrics"]) if u.label == name
            )
            card = cards.load("metric", use.card)
            task = root / f"{name}.json"
            facts = {"encoder": card.encoder, "text": card.plugin == "cosine_text", "pairs": pairs}
            task.write_text(json.dumps(facts))
            theirs.append(child("pairs", str(task)))
            values = json.loads(task.with_suffix(".scores").read_text())
            for s, value in zip(samples.itertuples(), values, strict=True):
                worst = max(worst, abs(found[name, s.generator, s.sample_id] - value))

    n, a, b = len(pairs), total(ours), total(theirs)
    print(f"{n} pictures x {len(args.metrics)} metrics ({', '.join(args.metrics)}), one thread")
    for name, t, runs in (("pipeline", a, ours), ("pair by pair", b, theirs)):
        print(
            f"  {name:13}{t['wall']:8.2f} s wall in {len(runs)} processes, {t['wall'] / n:.5f} s per "
            f"picture; {t['inside']:.2f} s after start-up, {t['inside'] / n:.5f} s per picture; "
            f"{t['forward']:.2f} s in the models"
        )
    print(
        f"  ratio, pipeline / pair by pair: {a['wall'] / b['wall']:.3f} of wall time, "
        f"{a['inside'] / b['inside']:.3f} after start-up"
    )
    print(
        f"  model forward in the pipeline: {a['forward'] / a['wall']:.1%} of wall time, "
        f"{a['forward'] / a['inside']:.1%} after start-up"
    )
    print(f"  largest difference of two scores: {worst:.2e} (allowed {TOLERANCE:.0e})")
    if not worst <= TOLERANCE:
        raise SystemExit(1)


if __name__ == "__main__":
    run_child(sys.argv[2:]) if sys.argv[1:2] == ["--child"] else main()
