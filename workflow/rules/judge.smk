"""Ask judges.

REQUIRED INPUTS: the prepared benchmark; for pictures, those of one model and shard, and the units
that the rubric asks about.
OUTPUTS: store/decompose/<benchmark>/<decomposition>/<key>/ and
store/judge/<rubric>/<judge>/<benchmark>/<model>/<shard>/<key>/: units or answers, one row each
with a status, and the transcripts of every request behind them. Replies are kept in
transcripts.sqlite as they come: a killed or failed job asks only what is missing.
"""


rule decompose_cases:
    """Split every case into atomic units: as prepared by the benchmark, or by asking a judge."""
    input:
        ancient(upstream),
    output:
        f"{STORE}/decompose/{{name}}/{{key}}/manifest.json",
        f"{STORE}/decompose/{{name}}/{{key}}/units.parquet",
        f"{STORE}/decompose/{{name}}/{{key}}/transcripts.parquet",
    log:
        "logs/decompose/{name}/{key}.log",
    benchmark:
        "logs/decompose/{name}/{key}.benchmark.tsv"
    conda:
        "../../envs/environment.yaml"
    resources:
        gpu=judge_gpu,
        judge=judge_remote,
    shell:
        "python -m subjectbench decompose" " --key {wildcards.key:q}" " > {log:q} 2>&1"


rule judge_images:
    """Ask a judge about the pictures of one model and shard."""
    input:
        ancient(upstream),
    output:
        f"{STORE}/judge/{{name}}/{{key}}/manifest.json",
        f"{STORE}/judge/{{name}}/{{key}}/answers.parquet",
        f"{STORE}/judge/{{name}}/{{key}}/transcripts.parquet",
    log:
        "logs/judge/{name}/{key}.log",
    benchmark:
        "logs/judge/{name}/{key}.benchmark.tsv"
    conda:
        "../../envs/environment.yaml"
    resources:
        gpu=judge_gpu,
        judge=judge_remote,
    shell:
        "python -m subjectbench judge" " --key {wildcards.key:q}" " > {log:q} 2>&1"
