"""Time and memory of planning a DSH-Bench study of the paper's size.

The shipped study with the published metadata, 459 empty files in place of its pictures (planning
hashes them but opens none), folders of the size of DreamBench and DreamBench++ beside it, and 19
generators, 11 of which run on those, as in Table 2. HPSv2's encoder, whose weights must be brought,
is exchanged for a small one. Planned by ``subjectbench check`` and by ``snakemake --dry-run``, each
in a process of its own, in a scratch copy of this checkout. ``job`` is what each job spends on
reading the plan and planning its own artifact again, imports not counted.
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
KINDS = ("Object", "Live Subject")
HPS = {"card": "hpsv2_1", "encoder": "mini_hps"}
OPEN = 11
"""Models of Table 2."""

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


def stand_ins(folder: Path) -> dict[str, Path]:
    """Folders of the form and size of DreamBench and DreamBench++, with empty pictures."""

    def put(path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    bench, plus = folder / "dreambench", folder / "dreambench_plus"
    classes = [f"thing{i},{'cat' if i < 9 else 'dog' if i < 18 else 'toy'}" for i in range(30)]
    template = "'a {{0}} {{1}} near place {i}'.format(unique_token, class_token),"
    templates = [template.format(i=i) for i in range(25)]
    lists = ["\n".join([f"{k} Prompts", "prompt_list = [", *templates, "]"]) for k in KINDS]
    put(bench / "prompts_and_classes.txt", "\n".join(["Classes", *classes, *lists]))
    for line in classes:
        put(bench / line.split(",")[0] / "0.jpg", "")
    for i in range(150):
        prompts = [f"a thing near place {k}" for k in range(9)]
        put(plus / f"captions/object/{i:02d}.txt", "\n".join(["thing", *prompts]))
        put(plus / f"images/object/{i:02d}.jpg", "")
    return {"dreambench": bench, "dreambench_plus": plus}


def study(
    metadata: Path, images: Path, beside: dict[str, Path], generators: int, shards: int | None
) -> Any:
    """Return the shipped study with as many models as the paper's."""
    out = yaml.safe_load((ROOT / "workflow/studies/dsh_bench.yaml").read_text())
    out["benchmark"]["params"] = {"metadata": str(metadata), "images": str(images)}
    names = [f"model_{i:02d}" for i in range(generators)]
    out["generators"] = [
        {"card": CONTROLS[i % len(CONTROLS)], "name": name} for i, name in enumerate(names)
    ]
    out["metrics"] = [m if m != "hpsv2_1" else HPS for m in out["metrics"]]
    out["beside"] = {
        "benchmarks": [{"card": n, "params": {"path": str(p)}} for n, p in beside.items()],
        "generators": names[:OPEN],
    }
    out["shards"] = shards or out["shards"]
    return out


def measured(command: list[str], cwd: Path) -> tuple[str, dict[str, float]]:
    """Run a command; return what it printed, and its seconds and peak memory."""
    env = {**os.environ, "PYTHONPATH": str(cwd / "workflow"), "OPENAI_API_KEY": "not used"}
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
        beside = stand_ins(Path(scratch))
        made = study(args.metadata.resolve(), images, beside, args.generators, args.shards)
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
