"""Embed references, prompts and pictures.

REQUIRED INPUTS: the prepared benchmark; for pictures, those of one model and shard.
OUTPUTS: store/embed_cases/... (once per benchmark and encoder) and store/embed_images/... (per
encoder, model and shard). Metrics that share an encoder share its embeddings.
"""


rule embed_cases:
    """Embed the references and prompts of the benchmark with one encoder."""
    input:
        ancient(upstream),
    output:
        f"{STORE}/embed_cases/{{name}}/{{key}}/manifest.json",
        f"{STORE}/embed_cases/{{name}}/{{key}}/references.parquet",
        f"{STORE}/embed_cases/{{name}}/{{key}}/texts.parquet",
    log:
        "logs/embed_cases/{name}/{key}.log",
    benchmark:
        "logs/embed_cases/{name}/{key}.benchmark.tsv"
    conda:
        "../../envs/environment.yaml"
    resources:
        gpu=GPU,
    shell:
        "python -m subjectbench embed-cases" " --key {wildcards.key:q}" " > {log:q} 2>&1"


rule embed_images:
    """Embed the pictures of one model and shard with one encoder."""
    input:
        ancient(upstream),
    output:
        f"{STORE}/embed_images/{{name}}/{{key}}/manifest.json",
        f"{STORE}/embed_images/{{name}}/{{key}}/embeddings.parquet",
    log:
        "logs/embed_images/{name}/{key}.log",
    benchmark:
        "logs/embed_images/{name}/{key}.benchmark.tsv"
    conda:
        "../../envs/environment.yaml"
    resources:
        gpu=GPU,
    shell:
        "python -m subjectbench embed-images" " --key {wildcards.key:q}" " > {log:q} 2>&1"
