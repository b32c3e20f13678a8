"""Train the methods that learn each subject by optimisation.

REQUIRED INPUTS: the prepared benchmark.
OUTPUTS: store/train/<benchmark>/<model>/<shard>/<key>/: one byte-stable ZIP of each subject's files,
one row per subject, and every step's loss; beside them store/prior/<base>/<noun>/, pictures of a
class that methods share. Finished subjects of a killed job or an earlier artifact are reused, and
the one under way goes on from its last checkpoint.
"""


rule train_subjects:
    """Train one method for the subjects of one model and shard."""
    input:
        ancient(upstream),
    output:
        f"{STORE}/train/{{name}}/{{key}}/manifest.json",
        f"{STORE}/train/{{name}}/{{key}}/subjects.parquet",
        f"{STORE}/train/{{name}}/{{key}}/losses.parquet",
        f"{STORE}/train/{{name}}/{{key}}/weights.zip",
    log:
        "logs/train/{name}/{key}.log",
    benchmark:
        "logs/train/{name}/{key}.benchmark.tsv"
    conda:
        "../../envs/environment.yaml"
    resources:
        gpu=GPU,
    shell:
        "python -m subjectbench train" " --key {wildcards.key:q}" " > {log:q} 2>&1"
