"""Seconds for the intervals of all cells of a table like DSH-Bench's Table 1.

Made data: ratings in steps of a fifth from 0 to 5, one metric on whole numbers from 0 to 5, the
others continuous; the samples are spread over the models, and subjects are drawn at random. A cell
is one metric, one model (or all together), one correlation; its interval comes from
``bootstrap.correlation_interval``, which draws subjects. The last line says what scipy would take
on the drawn samples themselves, from a few draws of the same cells, and that it gives the same.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time

import numpy as np
from scipy import stats

from subjectbench.statistics import bootstrap
from subjectbench.statistics.correlation import METHODS

SCIPY = {"kendall_tau_b": stats.kendalltau, "spearman": stats.spearmanr}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, value in {
        "samples": 5000, "subjects": 459, "models": 17, "metrics": 8, "draws": 10_000, "direct": 2
    }.items():  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()

    rng = np.random.default_rng(0)
    model = np.arange(args.samples) % args.models
    subject = np.char.add("subject", rng.integers(0, args.subjects, args.samples).astype(str))
    people = np.round(rng.uniform(0, 5, args.samples) * 5) / 5
    columns = [people + rng.normal(0, 1 + i, args.samples) for i in range(args.metrics)]
    columns[0] = np.clip(np.round(columns[0]), 0, 5)
    every = np.ones(args.samples, dtype=bool)
    groups = [("model", model == m) for m in range(args.models)] + [("ALL", every)]

    seconds = {(level, name): 0.0 for level in ("model", "ALL") for name in METHODS}
    direct = dict.fromkeys(METHODS, 0.0)
    difference, missing, started = 0.0, 0, time.perf_counter()
    for values in columns:
        for level, chosen in groups:
            x, y, clusters = values[chosen], people[chosen], subject[chosen].tolist()
            for name in METHODS:
                start = time.perf_counter()
                found = bootstrap.correlation_interval(x, y, clusters, name, args.draws)
                seconds[level, name] += time.perf_counter() - start
                missing += found.low is None
    total = time.perf_counter() - started

    for values in columns:
        for _, chosen in groups:
            x, y, clusters = values[chosen], people[chosen], subject[chosen].tolist()
            resample = bootstrap.Resample.of(clusters, args.draws, 0)
            few = bootstrap.Resample(resample.labels, resample.weights[: args.direct])
            for name in METHODS:
                fast = bootstrap.correlation_draws(x, y, clusters, few, name)
                for draw, counts in zip(fast, few.weights):
                    copies = counts[few.codes(clusters)].astype(int)
                    start = time.perf_counter()
                    slow = SCIPY[name](np.repeat(x, copies), np.repeat(y, copies)).statistic
                    direct[name] += time.perf_counter() - start
                    difference = max(difference, abs(draw - slow))

    cells = len(columns) * len(groups) * len(METHODS)
    share = args.draws / args.direct if args.direct else 0.0
    print(f"{cells} cells, {missing} without an interval, {args.draws} draws: {total:.1f} s")
    for (level, name), spent in seconds.items():
        print(f"  {level:6} {name:14} {spent:6.2f} s")
    print(f"scipy on the drawn samples, from {args.direct} draws each: "
          + ", ".join(f"{name} {spent * share:.0f} s" for name, spent in direct.items())
          + f"; largest difference {difference:.1e}")  # fmt: skip
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    threads = os.environ.get("OPENBLAS_NUM_THREADS", "as the library chooses")
    print(json.dumps(vars(args) | {"cores": os.cpu_count(), "blas_threads": threads}))
    print(f"peak memory {peak:.0f} MiB")


if __name__ == "__main__":
    main()
