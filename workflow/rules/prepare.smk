"""Read the benchmark.

REQUIRED INPUTS: the sources that the benchmark's card names, or none (miniworld draws its own).
OUTPUTS: store/benchmark/<benchmark>/<key>/: cases, and references decoded once into one form; in a
study of several shards also store/benchmark/<benchmark>/<shard>/<key>/, the same of a part.
"""


rule prepare_benchmark:
    """Read cases and reference pictures; a picture that cannot be read gets a status."""
    input:
        ancient(upstream),
    output:
        f"{STORE}/benchmark/{{name}}/{{key}}/manifest.json",
        f"{STORE}/benchmark/{{name}}/{{key}}/cases.parquet",
        f"{STORE}/benchmark/{{name}}/{{key}}/references.parquet",
        f"{STORE}/benchmark/{{name}}/{{key}}/references.zip",
    log:
        "logs/prepare/{name}/{key}.log",
    benchmark:
        "logs/prepare/{name}/{key}.benchmark.tsv"
    conda:
        "../../envs/environment.yaml"
    shell:
        "python -m subjectbench prepare" " --key {wildcards.key:q}" " > {log:q} 2>&1"
