"""SubjectBench: every table and figure of one study.

snakemake --cores all                                          the study of config.yaml
snakemake --cores all --configfile workflow/studies/NAME.yaml  another study
snakemake --cores all tables                                   its tables alone
snakemake --dry-run                                            what would run
"""

from snakemake.utils import min_version

from subjectbench.errors import InputError

min_version("9.19")

# A study file given with --configfile stands for config.yaml; --config changes single keys.
if "study" not in config:

    configfile: "config.yaml"


include: "workflow/rules/common.smk"


localrules:
    all,
    tables,


rule all:
    """Every table and figure of the study, in one folder."""
    input:
        PLAN.paths(PLAN.final),


rule tables:
    """The tables alone: `snakemake tables` needs no picture where the rows are there."""
    input:
        PLAN.paths(PLAN.artifacts[PLAN.final].upstream["tables"]),


include: "workflow/rules/prepare.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/generate.smk"
include: "workflow/rules/embed.smk"
include: "workflow/rules/judge.smk"
include: "workflow/rules/score.smk"
include: "workflow/rules/report.smk"


onstart:
    refuse_remaking_published()


onsuccess:
    point_latest()
