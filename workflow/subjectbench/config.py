"""What a user writes in ``config.yaml``: one study, checked before any work starts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, ClassVar, Literal, TypeVar, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from subjectbench.errors import InputError, suggest

M = TypeVar("M", bound=BaseModel)

NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
"""Names become folders and Snakemake wildcards, so they are short and plain."""


UNUSABLE = re.compile(r"[{}\x00-\x1f\x7f]|^/|/$|(^|/)\.|.{65}|(.+?)\2{19}")
"""Names that leave their folder, or that Snakemake fails on from inside: braces, and what repeats
itself 20 times."""

LOCATION: dict[str, Any] = {"location": True}
"""``json_schema_extra`` of a parameter that says where data lies.

The data's content is part of the identity, its place is not: moving it changes no key.
"""


def locations(params: type[BaseModel]) -> set[str]:
    """Names of the parameters that only say where data lies."""
    return {n for n, f in params.model_fields.items() if f.json_schema_extra == LOCATION}


class Strict(BaseModel):
    """A model that refuses unknown keys and never guesses a type (YAML's ``no`` is no name)."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class Use(Strict):
    """A card that the study uses, under its own or another name, with changed parameters."""

    card: str = Field(pattern=NAME, description="File name of the card, without .yaml")
    name: str = Field(default="", description="Name in tables and paths; the card's own if empty")
    params: dict[str, Any] = Field(
        default_factory=dict, description="Parameters that differ from the card's"
    )

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        return {"card": value} if isinstance(value, str) else value

    @field_validator("name")
    @classmethod
    def _fits_a_path(cls, name: str) -> str:
        if UNUSABLE.search(name):
            raise ValueError(f"{name!r} cannot be part of a path here; take a short, plain name")
        return name

    @property
    def label(self) -> str:
        """The name under which results of this use appear."""
        return self.name or self.card


class MetricUse(Use):
    """A metric, optionally with other parts than its card and the study name."""

    encoder: Use | None = Field(default=None, description="Another encoder than the card's")
    rubric: Use | None = Field(default=None, description="Another rubric than the card's")
    judge: Use | None = Field(default=None, description="Another judge than the study's")
    decomposition: Use | None = Field(
        default=None, description="Another decomposition than the study's"
    )


class Dimensions(Strict):
    """Which metric stands for each of DSH-Bench's three dimensions."""

    preservation: str = Field(description="Metric for Subject Preservation (the paper: SICS)")
    following: str = Field(description="Metric for Prompt Following (the paper: CLIP-T)")
    quality: str = Field(description="Metric for Image Quality (the paper: HPSv2)")


class Leaderboard(Strict):
    """How the score S_h is formed: DSH-Bench, equation (1)."""

    preservation_weight: float = Field(default=1.5, gt=0)
    following_weight: float = Field(default=1.5, gt=0)
    quality_weight: float = Field(default=1.0, gt=0)
    constant: float = Field(
        default=3.0, gt=0, description="Numerator of S_h; the paper's is 3 though weights sum to 4"
    )
    min_coverage: float = Field(
        default=0.9,
        ge=0,
        le=1,
        description="Below this share of scored samples: no headline number",
    )


class Alignment(Strict):
    """What UFO's tables show: omni-condition alignment, by paradigm."""

    metric: str = Field(description="Metric of the table of models (UFO, Table 1)")
    baselines: list[str] = Field(
        default_factory=list, description="Metrics beside it against raters (UFO, Table 2)"
    )
    ablations: dict[str, str] = Field(
        default_factory=dict, description="What is left out: metric without it (UFO, Table 3)"
    )
    dimension: str = Field(default="preference", description="Of the raters")


class HumanAlignment(Strict):
    """What the table of metrics against raters shows: DSH-Bench, Table 1."""

    dimension: str = Field(default="preservation", description="Of the raters")
    metrics: list[str] = Field(default_factory=list, description="In order; none: all")


class Beside(Strict):
    """Other benchmarks, for the table that sets them beside the study's own (DSH-Bench, Table 2).

    Only what that table needs is made of them: pictures of ``generators``, scored by the metrics of
    the study's ``dimensions``.
    """

    benchmarks: list[Use] = Field(min_length=1, description="Cards in workflow/cards/benchmarks")
    generators: list[str] = Field(
        default_factory=list, description="Of the study's generators; none: all but controls"
    )


class Statistics(Strict):
    """Intervals around every number."""

    bootstrap: int = Field(default=1000, ge=0, description="Draws, clustered by subject; 0: none")
    confidence: float = Field(default=0.95, gt=0, lt=1)
    seed: int = Field(default=0, ge=0)


class Asking(Strict):
    """How servers are asked. Nothing here changes an answer."""

    place: ClassVar[str] = "run"

    concurrency: int = Field(default=8, ge=1, le=1024, description="Requests in flight")
    requests_per_minute: float | None = Field(
        default=None, gt=0, description="At most, by one job; none: as the server lets"
    )
    timeout: float = Field(default=120.0, gt=0, description="Seconds for one request")
    retries: int = Field(
        default=6, ge=0, description="Further tries after 408, 409, 429, 5xx or a time-out"
    )
    backoff: float = Field(default=2.0, gt=0, description="Seconds before the first further try")
    max_backoff: float = Field(default=60.0, gt=0, description="Longest wait between tries")
    max_requests: int | None = Field(default=None, ge=0, description="Budget of one run")
    max_tokens: int | None = Field(default=None, ge=0, description="Budget of one run")
    max_cost: float | None = Field(
        default=None, ge=0, description="Budget of one run, in the currency of the card"
    )


class Judging(Asking):
    """How remote judges are asked. Nothing here changes an answer."""

    place: ClassVar[str] = "run.judging"


class Generating(Asking):
    """How servers that make pictures are asked: one picture per request."""

    place: ClassVar[str] = "run.generating"

    concurrency: int = Field(default=4, ge=1, le=1024, description="Requests in flight")
    timeout: float = Field(default=300.0, gt=0, description="Seconds for one request")


class Run(Strict):
    """How the work is done. Nothing here changes a result, so nothing here is part of a key."""

    device: Literal["auto", "cpu", "cuda"] = Field(
        default="auto", description="auto takes a GPU where there is one"
    )
    batch_size: int = Field(
        default=48,
        ge=1,
        description="Samples between two saves; a killed job repeats at most one batch",
    )
    threads: int = Field(
        default=1, ge=1, description="CPU threads per job; more than 1 may change the last digit"
    )
    judging: Judging = Field(default_factory=Judging, description="How remote judges are asked")
    generating: Generating = Field(
        default_factory=Generating, description="How servers that make pictures are asked"
    )


class _Named(Strict):
    """What every study says."""

    study: str = Field(pattern=NAME, description="Name of the study; part of the results' folder")
    title: str = Field(default="", description="Heading of the report")
    run: Run = Field(default_factory=Run)
    results: str = Field(default="results", description="Folder of the store and of the results")


class Audit(_Named):
    """A study that measures nothing: it recomputes the papers' printed tables."""

    published: Literal[True] = Field(description="Audit workflow/published")


class Study(_Named):
    """One study: what is generated, scored and tabulated."""

    benchmark: Use = Field(description="Card in workflow/cards/benchmarks")
    generators: list[Use] = Field(min_length=1, description="Cards in workflow/cards/generators")
    metrics: list[MetricUse] = Field(min_length=1, description="Cards in workflow/cards/metrics")
    raters: Use | None = Field(default=None, description="Card in workflow/cards/raters, or none")
    judge: Use | None = Field(
        default=None, description="Card in workflow/cards/judges; none: each rubric card's own"
    )
    decomposition: Use | None = Field(
        default=None,
        description="Card in workflow/cards/decompositions; none: each rubric card's own",
    )
    dimensions: Dimensions | None = Field(
        default=None, description="Metrics of the leaderboard; none: no leaderboard"
    )
    beside: Beside | None = Field(
        default=None, description="Other benchmarks in a table beside this one; needs dimensions"
    )
    human_alignment: HumanAlignment = Field(
        default_factory=HumanAlignment,
        description="Metrics against raters; shown where there are raters and dimensions",
    )
    alignment: Alignment | None = Field(
        default=None, description="Metrics of UFO's tables; none: no such tables"
    )
    beside_raters: dict[str, list[str]] = Field(
        default_factory=dict,
        description="Dimension of the raters: metrics that claim to measure it, for a table of "
        "those metrics beside single raters",
    )
    samples_per_case: int = Field(default=1, ge=1, description="Pictures per case and generator")
    shards: int = Field(default=1, ge=1, le=999, description="Parts of the benchmark, by subject")
    seed: int = Field(default=0, ge=0, description="Every picture's seed derives from it")
    leaderboard: Leaderboard = Field(default_factory=Leaderboard)
    statistics: Statistics = Field(default_factory=Statistics)


def _fields(model: Any, path: tuple[Any, ...]) -> list[str]:
    """Names that are known at a place of a nested model."""
    for step in path:
        if isinstance(step, int) or not (isinstance(model, type) and issubclass(model, BaseModel)):
            continue
        if step not in model.model_fields:
            return []
        annotation = model.model_fields[step].annotation
        nested = [a for a in (annotation, *get_args(annotation)) if isinstance(a, type)]
        model = next((a for a in nested if issubclass(a, BaseModel)), None)
    known = isinstance(model, type) and issubclass(model, BaseModel)
    return list(model.model_fields) if known else []


def _faults(model: type[BaseModel], error: ValidationError) -> Iterator[tuple[str, str, str]]:
    # An unknown key comes first: misspelt, it is also why another "is required".
    for fault in sorted(error.errors(), key=lambda f: f["type"] != "extra_forbidden"):
        path = tuple(p for p in fault["loc"] if not str(p).startswith("function-"))
        field = ".".join(str(p) for p in path)
        kind, given = fault["type"], fault["input"]
        scalar = not isinstance(given, dict | list)
        if kind == "extra_forbidden":
            known = _fields(model, path[:-1])
            yield field, f"unknown key '{path[-1]}'", suggest(str(path[-1]), known)
        elif kind == "string_type" or (kind == "model_type" and scalar):
            yield field, f"{given!r} is not text", "put quotes around it"
        elif kind == "missing":
            yield field, "is required", f"add '{path[-1]}'"
        elif isinstance(given, str) and kind in ("float_type", "int_type", "bool_type"):
            mend = "write it without quotes; YAML reads 1e-4 as text, 1.0e-4 as a number"
            yield field, f"{fault['msg']} (got {given!r})", mend
        else:
            yield field, f"{fault['msg']} (got {given!r})", "give a value of that kind"


def validate(model: type[M], value: Any, where: object) -> M:
    """Check a mapping against a model.

    Raises:
        InputError: the first fault, naming file and field, with a suggestion for unknown keys.
    """
    if not isinstance(value, dict):
        raise InputError(where, f"expected keys and values, got {value!r}", "write 'key: value'")
    try:
        return model.model_validate(value)
    except ValidationError as error:
        field, fault, mend = next(_faults(model, error))
        more = error.error_count() - 1
        raise InputError(
            f"{where}: {field}" if field else where,
            fault + (f" ({more} more faults)" if more else ""),
            mend,
        ) from error


def load_study(value: Any, where: object = "config") -> Study | Audit:
    """Check a study as Snakemake or YAML hands it over, names included.

    One with the key ``published`` is an audit.

    Raises:
        InputError: naming the file, the field and the mend.
    """
    if isinstance(value, dict) and "published" in value:
        return validate(Audit, value, where)
    study = validate(Study, value, where)
    others = study.beside.benchmarks if study.beside else []
    for field, uses in (
        ("generators", study.generators),
        ("metrics", study.metrics),
        ("beside.benchmarks", [study.benchmark, *others]),
    ):
        seen: set[str] = set()
        for use in uses:
            if use.label.casefold() in seen:
                raise InputError(
                    f"{where}: {field}", f"'{use.label}' is listed twice", "give one another name"
                )
            seen.add(use.label.casefold())
    if study.beside and not study.dimensions:
        raise InputError(
            f"{where}: beside", "needs dimensions", "add 'dimensions': what the table shows"
        )
    for generator in study.beside.generators if study.beside else []:
        labels = [g.label for g in study.generators]
        if generator not in labels:
            raise InputError(
                f"{where}: beside.generators",
                f"'{generator}' is not among the study's generators",
                suggest(generator, labels),
            )
    known = [m.label for m in study.metrics]
    for field, metric in _named_metrics(study):
        if metric not in known:
            raise InputError(
                f"{where}: {field}",
                f"'{metric}' is not among the study's metrics",
                suggest(metric, known),
            )
    return study


def _named_metrics(study: Study) -> Iterator[tuple[str, str]]:
    """Every place of a study that names one of its metrics, with the name."""
    if study.dimensions:
        for dimension, metric in study.dimensions.model_dump().items():
            yield f"dimensions.{dimension}", metric
    for metric in study.human_alignment.metrics:
        yield "human_alignment.metrics", metric
    if study.alignment:
        yield "alignment.metric", study.alignment.metric
        for metric in study.alignment.baselines:
            yield "alignment.baselines", metric
        for left_out, metric in study.alignment.ablations.items():
            yield f"alignment.ablations.{left_out}", metric
    for dimension, metrics in study.beside_raters.items():
        for metric in metrics:
            yield f"beside_raters.{dimension}", metric
