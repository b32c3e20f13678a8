"""Score pictures, and collect what raters say of them.

REQUIRED INPUTS: samples, and the embeddings that the metric declares to need.
OUTPUTS: store/score/<benchmark>/<metric>/<model>/<key>/scores.parquet, one row per
sample with a status; store/rate/<benchmark>/<raters>/<key>/ratings.parquet.
"""


rule score_metric:
    """Score one model, all its shards, with one metric."""
    input:
        ancient(upstream),
    output:
        f"{STORE}/score/{{name}}/{{key}}/manifest.json",
        f"{STORE}/score/{{name}}/{{key}}/scores.parquet",
    log:
        "logs/score/{name}/{key}.log",
    benchmark:
        "logs/score/{name}/{key}.benchmark.tsv"
    conda:
        "../../envs/environment.yaml"
    shell:
        "python -m subjectbench score" " --key {wildcards.key:q}" " > {log:q} 2>&1"


rule rate_samples:
    """Collect the ratings of one panel of raters."""
    input:
        ancient(upstream),
    output:
        f"{STORE}/rate/{{name}}/{{key}}/manifest.json",
        f"{STORE}/rate/{{name}}/{{key}}/ratings.parquet",
    log:
        "logs/rate/{name}/{key}.log",
    benchmark:
        "logs/rate/{name}/{key}.benchmark.tsv"
    conda:
        "../../envs/environment.yaml"
    shell:
        "python -m subjectbench rate" " --key {wildcards.key:q}" " > {log:q} 2>&1"
