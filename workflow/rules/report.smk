"""Tables, figures and the page that shows them.

REQUIRED INPUTS: all scores and ratings of the study; for an audit, workflow/published.
OUTPUTS: store/tables/<study>/<key>/ or store/audit/<study>/<key>/, and results/<study>-<key>/ with
tables, figures, the resolved config and index.html.
"""


rule tabulate_study:
    """Make every table of the study: means with n, coverage and interval; agreement."""
    input:
        ancient(upstream),
    output:
        tables_files("tables"),
    log:
        "logs/tables/{name}/{key}.log",
    benchmark:
        "logs/tables/{name}/{key}.benchmark.tsv"
    conda:
        "../../envs/environment.yaml"
    shell:
        "python -m subjectbench tabulate" " --key {wildcards.key:q}" " > {log:q} 2>&1"


rule audit_published:
    """Recompute the papers' printed tables and say what agrees."""
    input:
        ancient(upstream),
    output:
        tables_files("audit"),
    log:
        "logs/audit/{name}/{key}.log",
    benchmark:
        "logs/audit/{name}/{key}.benchmark.tsv"
    conda:
        "../../envs/environment.yaml"
    shell:
        "python -m subjectbench audit" " --key {wildcards.key:q}" " > {log:q} 2>&1"


rule write_report:
    """Draw the figures and write index.html, with captions that say how to read each."""
    input:
        ancient(upstream_of_final),
    output:
        final_files(),
    log:
        f"logs/report/{PLAN.final}.log",
    benchmark:
        f"logs/report/{PLAN.final}.benchmark.tsv"
    conda:
        "../../envs/environment.yaml"
    params:
        key=PLAN.final,
    shell:
        "python -m subjectbench report" " --key {params.key:q}" " > {log:q} 2>&1"
