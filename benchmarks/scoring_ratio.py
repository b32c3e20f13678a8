"""Time of scoring pictures through the pipeline against the same scores pair by pair.

Pipeline: embed-cases, embed-images and score of each artifact, one process each, as the rules call
them. Pair by pair, as DSH-Bench's official scripts do, one process per metric: each pair opens both
pictures, preprocesses them and runs the model at batch size 1. Same pictures, same weights, one
thread. Start-up is importing torch and transformers. Needs the store of a finished run.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from subjectbench import cards, checkpoint, cli
from subjectbench.config import Use, load_study
from subjectbench.images import ZipReader
from subjectbench.plan import make_plan
from subjectbench.store import Plan

VERBS = {"case_embeddings": "embed-cases", "embeddings": "embed-images"}


def child(arguments: list[str]) -> None:
    """Run one stage, or one metric pair by pair; print the seconds inside and in the model."""
    import torch
    from transformers import CLIPModel, ViTModel

    torch.set_num_threads(1)
    spent = {"forward": 0.0, "inside": 0.0}

    def timed(call: Any, name: str) -> Any:
        def run(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            try:
                return call(*args, **kwargs)
            finally:
                spent[name] += time.perf_counter() - start

        return run

    CLIPModel.get_image_features = timed(CLIPModel.get_image_features, "forward")
    CLIPModel.get_text_features = timed(CLIPModel.get_text_features, "forward")
    ViTModel.forward = timed(ViTModel.forward, "forward")
    work = (lambda a: pair_by_pair(Path(a[1]))) if arguments[0] == "pairs" else cli.main
    if status := timed(work, "inside")(arguments):
        sys.exit(status)
    print(json.dumps(spent))


def run_children(calls: list[list[str]]) -> dict[str, float]:
    """Run processes one after the other; sums of their seconds in all, inside, in the model."""
    total = {"wall": 0.0, "inside": 0.0, "forward": 0.0}
    for call in calls:
        start = time.perf_counter()
        command = [sys.executable, __file__, "--child", *call]
        one = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        done = subprocess.run(command, capture_output=True, text=True, env=os.environ | one)
        if done.returncode:
            sys.exit(f"{' '.join(call)} failed:\n{done.stderr}")
        spent = {**json.loads(done.stdout.splitlines()[-1]), "wall": time.perf_counter() - start}
        total = {name: total[name] + spent[name] for name in total}
    return total


def pair_by_pair(task: Path) -> None:
    """Score every pair of one metric; nothing is kept from one pair to the next."""
    import torch
    from PIL import Image
    from transformers import AutoImageProcessor, AutoTokenizer, CLIPModel, ViTModel

    job = json.loads(task.read_text())
    card = cards.load("encoder", job["encoder"])
    folder, clip = checkpoint.folder(card.weights), card.plugin == "clip"
    model = CLIPModel.from_pretrained(folder) if clip else ViTModel.from_pretrained(folder)
    model = model.float().eval()
    processor = AutoImageProcessor.from_pretrained(folder, backend="pil")
    tokenizer = AutoTokenizer.from_pretrained(folder) if clip else None

    def image(path: str) -> Any:
        pixels = processor(images=Image.open(path).convert("RGB"), return_tensors="pt")
        if clip:
            return model.get_image_features(**pixels).pooler_output
        return model(**pixels).last_hidden_state[:, 0]

    def text(prompt: str) -> Any:
        tokens = tokenizer([prompt], padding=True, truncation=True, return_tensors="pt")
        return model.get_text_features(**tokens).pooler_output

    with torch.inference_mode():
        values = [
            torch.cosine_similarity(image(path), text(prompt) if job["text"] else image(ref)).item()
            for path, ref, prompt in job["pairs"]
        ]
    task.write_text(json.dumps(values))


def unpack(source: Path, to: Path, names: Iterable[str], prefix: str = "") -> None:
    """Write pictures of an archive as files of their own."""
    with ZipReader(source) as archive:
        for name in names:
            (to / f"{prefix}{name}.png").write_bytes(archive.read(f"{name}.png"))


def pairs_of(plan: Plan, generators: list[str], to: Path) -> dict[tuple[str, str], list[str]]:
    """(Generator, sample) to the files of picture and reference, unpacked, and the prompt."""
    bench = plan.folder(plan.of_kind("benchmark")[0].key)
    cases = pd.read_parquet(bench / "cases.parquet").set_index("case_id")
    unpack(bench / "references.zip", to, cases["reference_id"].unique())
    out = {}
    for artifact in plan.of_kind("generate"):
        name, folder = artifact.name.split("/")[1], plan.folder(artifact.key)
        if name in generators:
            samples = pd.read_parquet(folder / "samples.parquet").query("status == 'ok'")
            unpack(folder / "images.zip", to, samples["sample_id"], f"{name}-")
            for sample, case in zip(samples["sample_id"], samples["case_id"], strict=True):
                reference, prompt = cases.loc[case, ["reference_id", "prompt"]]
                files = [str(to / f"{name}-{sample}.png"), str(to / f"{reference}.png")]
                out[name, sample] = [*files, prompt]
    return out


def main() -> None:
    """Measure and print; exit status 1 where two scores differ by more than 1e-5."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--results", type=Path, default=Path("results"), help="results folder of a finished run")
    add("--config", type=Path, default=cards.ROOT / "config.yaml", help="study of that run")
    add("--generators", nargs="+", default=["sim_identity_drift", "sim_copy_paste"])
    add("--metrics", nargs="+", default=["mini_clip_i", "mini_clip_t", "mini_dino"])
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        (root / "store").mkdir()
        for kind in ("benchmark", "generate"):
            (root / "store" / kind).symlink_to((args.results / "store" / kind).resolve())
        study = cards.read_yaml(args.config) | {"results": str(root)}
        plan = make_plan(load_study(study, args.config))
        jobs = [a for a in plan.of_kind("score") if a.job["generator"] in args.generators]
        jobs = [a for a in jobs if a.job["metric"] in args.metrics]
        roles = {(r, k) for a in jobs for r, k in a.upstream.items()}
        verbs = {k: v for r, k in sorted(roles) if (v := VERBS.get(r.partition("/")[0]))}
        verbs |= {a.key: "score" for a in jobs}
        pairs = pairs_of(plan, args.generators, root)
        common = ["--plan", str(plan.save()), "--key"]
        sides = {"pipeline": run_children([[verb, *common, key] for key, verb in verbs.items()])}
        tasks = {name: root / f"{name}.json" for name in args.metrics}
        for use in map(Use.model_validate, study["metrics"]):
            if use.label in tasks:
                card = cards.load("metric", use.card)
                facts = {"encoder": card.encoder, "text": card.plugin == "cosine_text"}
                tasks[use.label].write_text(json.dumps({**facts, "pairs": list(pairs.values())}))
        sides["pair by pair"] = run_children([["pairs", str(t)] for t in tasks.values()])
        frames = [pd.read_parquet(plan.folder(a.key) / "scores.parquet") for a in jobs]
        ours = pd.concat(frames).set_index(["metric", "generator", "sample_id"])["value"]
        theirs = {
            (metric, *pair): value
            for metric, task in tasks.items()
            for pair, value in zip(pairs, json.loads(task.read_text()), strict=True)
        }
    worst = max(abs(ours[i] - value) for i, value in theirs.items())
    print(f"{len(pairs)} pictures, {len(tasks)} metrics, {len(verbs)} and {len(tasks)} processes")
    for span, label in (("wall", "wall time"), ("inside", "after start-up")):
        a, b = (sides[name][span] for name in ("pipeline", "pair by pair"))
        print(f"{label}: {a:.2f} s against {b:.2f} s pair by pair, ratio {a / b:.3f}")
        a, b = a / len(pairs), b / len(pairs)
        print(f"  per picture: {a:.5f} s against {b:.5f} s, ratio {a / b:.3f}")
        share = sides["pipeline"]["forward"] / sides["pipeline"][span]
        print(f"  model forward: {share:.1%} of the pipeline's")
    print(f"largest difference of two scores: {worst:.1e} (allowed: 1e-05)")
    sys.exit(not worst <= 1e-5)


if __name__ == "__main__":
    child(sys.argv[2:]) if sys.argv[1:2] == ["--child"] else main()
