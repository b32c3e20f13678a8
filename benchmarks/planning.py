"""Time and memory of planning a DSH-Bench study of the paper's size.

The published metadata, 459 empty files in place of its pictures (planning hashes them but opens
none), 19 generators, 4 pictures per case and as many metrics and encoders as DSH-Bench has here:
planned by ``subjectbench check`` and by ``snakemake --dry-run``, each in a process of its own, in a
scratch copy of this checkout. ``job`` is what each job spends on reading the plan and planning its
own artifact again, imports not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("Snakefile", "config.yaml", "profiles", "workflow", "envs", "pyproject.toml")
CONTROLS = ("copy_reference", "shuffled_subject", "noise", "prompt_only")
METRICS: tuple[Any, ...] = (
    "sics",
    "dreambench_cp",
    "dreambench_pf",
    "clip_i_b32",
    "clip_i_l14",
    "clip_i_l14_336",
    "clip_t_b32",
    "clip_t_l14",
    "clip_t_l14_336",
    "dino_vits16",
    "dino_vits8",
    "dino_vitb16",
    "dinov2_vits14",
    "dinov2_vitb14",
    "dinov2_vitl14",
    # For those whose weights must be converted first; they cost a plan as much.
    "mini_clip_i",
    "mini_dino",
    "mini_hps",
    {
        "card": "mini_hps",
        "name": "second",
        "encoder": {"card": "mini_hps", "params": {"compute_batch": 2}},
    },
)

JOB = """
import json, sys, time
from pathlib import Path
from subjectbench.config import load_study
from subjectbench.plan import plan_again
from subjectbench.store import Plan
start = time.perf_counter()
plan = Plan.read(Path(sys.argv[1]))
read = time.perf_counter()
artifact = plan.of_kind("score")[-1]
assert plan_again(load_study(plan.study), artifact) == artifact
seconds = {"read_s": read - start, "plan_again_s": time.perf_counter() - read}
print(json.dumps({name: round(value, 2) for name, value in seconds.items()}))
"""


def study(metadata: Path, images: Path, generators: int, metrics: int, shards: int | None) -> Any:
    """Return the shipped study with as many models and metrics as the paper's."""
    out = yaml.safe_load((ROOT / "workflow/studies/dsh_bench.yaml").read_text())
    out["benchmark"]["params"] = {"metadata": str(metadata), "images": str(images)}
    out["generators"] = [
        {"card": CONTROLS[i % len(CONTROLS)], "name": f"model_{i:02d}"} for i in range(generators)
    ]
    out["metrics"] = list(METRICS[:metrics])
    out["dimensions"] = {"preservation": "sics", "following": "clip_t_b32", "quality": "mini_hps"}
    if metrics < len(METRICS):
        del out["dimensions"]
    out["samples_per_case"] = 4
    out["shards"] = shards or out["shards"]
    return out


def measured(command: list[str], cwd: Path) -> tuple[str, dict[str, float]]:
    """Run a command; return what it printed, and its seconds and peak memory."""
    env = {**os.environ, "PYTHONPATH": str(cwd / "workflow")}
    start = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout
    out = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    if status:
        sys.exit(out[-3000:])
    return out, {
        "wall_s": round(time.perf_counter() - start, 2),
        "cpu_s": round(used.ru_utime + used.ru_stime, 2),
        "peak_mb": round(used.ru_maxrss / 1024),
    }


def main() -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--metadata", type=Path, required=True, help="DSH-Bench_image_info.json")
    parser.add_argument("--generators", type=int, default=19)
    parser.add_argument("--metrics", type=int, default=len(METRICS))
    parser.add_argument("--shards", type=int, help="default: as in the shipped study")
    parser.add_argument("--repeat", type=int, default=1, help="the fastest counts")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "checkout"
        copy.mkdir()
        for name in COPIED:
            put = shutil.copytree if (ROOT / name).is_dir() else shutil.copyfile
            put(ROOT / name, copy / name)
        images = Path(scratch) / "images"
        images.mkdir()
        for name in json.loads(args.metadata.read_text()):
            (images / Path(name).name).touch()
        config = copy / "study.yaml"
        made = study(args.metadata.resolve(), images, args.generators, args.metrics, args.shards)
        config.write_text(yaml.safe_dump(made, sort_keys=False))
        python = [sys.executable, "-m"]
        commands = {
            "check": [*python, "subjectbench", "check", "--config", str(config)],
            "dry_run": [*python, "snakemake", "-n", "-q", "rules", "--configfile", str(config)],
        }
        out: dict[str, Any] = {"shards": made["shards"]}
        for name, command in commands.items():
            runs = [measured(command, copy) for _ in range(args.repeat)]
            out[name] = min((facts for _, facts in runs), key=lambda facts: facts["wall_s"])
            if name == "check":
                out["artifacts"] = sum(int(line.split()[1]) for line in runs[0][0].splitlines()[1:])
        (plan,) = (copy / "results/store/.plans").glob("*.json")
        out["plan_mb"] = round(plan.stat().st_size / 2**20, 2)
        told, _ = measured([sys.executable, "-c", JOB, str(plan)], copy)
        out["job"] = json.loads(told)
        print(json.dumps(out, indent=1))


if __name__ == "__main__":
    main()
