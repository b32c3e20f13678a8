"""Make the pictures of every model.

REQUIRED INPUTS: the prepared benchmark; for methods that are trained per subject, what was trained.
OUTPUTS: store/generate/<benchmark>/<model>/<shard>/<key>/: one byte-stable ZIP of pictures and
one row per picture asked for. Finished batches of a killed job are reused.
"""


rule generate_images:
    """Make the pictures of one model and shard."""
    input:
        ancient(upstream),
    output:
        f"{STORE}/generate/{{name}}/{{key}}/manifest.json",
        f"{STORE}/generate/{{name}}/{{key}}/samples.parquet",
        f"{STORE}/generate/{{name}}/{{key}}/images.zip",
    log:
        "logs/generate/{name}/{key}.log",
    benchmark:
        "logs/generate/{name}/{key}.benchmark.tsv"
    conda:
        "../../envs/environment.yaml"
    resources:
        gpu=generate_gpu,
        api=generate_remote,
    shell:
        "python -m subjectbench generate" " --key {wildcards.key:q}" " > {log:q} 2>&1"
