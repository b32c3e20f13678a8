"""From a study to the artifacts that it needs, each with its key. Light: no pandas, no torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from subjectbench import cards, checkpoint
from subjectbench.cards import ROOT, Weights
from subjectbench.config import Audit, MetricUse, Study, Use, locations
from subjectbench.errors import InputError
from subjectbench.hashing import subject_shard
from subjectbench.published import data as printed
from subjectbench.store import Artifact, Plan, Store, identity

TABLE_FORMATS = ("csv", "md", "tex")
FIGURE_FORMATS = ("svg", "png")
EMBEDDINGS = frozenset({"image", "text", "reference", "pair"})
"""What a metric may need of an encoder."""


@dataclass(frozen=True)
class Asked:
    """One plug-in as a study uses it."""

    kind: str
    use: Use
    card: Any
    plugin: Any
    params: Any
    _known: dict[str, dict[str, Any]] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, kind: str, use: Use, where: str) -> Asked:
        """Look everything up and check it.

        Raises:
            InputError: naming what is unknown or wrong.
        """
        card = cards.load(kind, use.card, where)
        return cls(kind, use, card, cards.plugin(kind, card, where), cards.params(kind, use, where))

    def components(self, stage: str = "") -> dict[str, Any]:
        """Identity of the plug-in with its parameters, as a stage runs it; or by itself."""
        # Weights are hashed once, however many models and shards share the plug-in.
        if stage not in self._known:
            self._known[stage] = self._components(stage)
        return dict(self._known[stage])

    def _components(self, stage: str) -> dict[str, Any]:
        modules = [f"subjectbench.{cards.room(self.kind)}.{self.card.plugin}"]
        modules += [f"subjectbench.stages.{stage}"] if stage else []
        out = {
            "plugin": self.card.plugin,
            "version": self.plugin.version,
            "params": self.params.model_dump(mode="json", exclude=locations(self.plugin.Params)),
            "code": identity.closure(*modules),
            "packages": identity.packages(self.card.packages, self.use.card),
        }
        where = f"{cards.room(self.kind)}/{self.use.card}.yaml: "
        if self.card.weights:
            out["weights"] = weights_identity(self.card.weights, where + "weights")
        if getattr(self.card, "parts", None):
            out["parts"] = {
                role: weights_identity(weights, f"{where}parts.{role}")
                for role, weights in self.card.parts.items()
            }
        return out

    @property
    def job(self) -> dict[str, Any]:
        """What a job needs to build the plug-in again."""
        return {"use": self.use.model_dump(include={"card", "name", "params"})}

    def named(self, part: str, use: Use | None) -> Asked:
        """Return a part that this plug-in's card names, or that the study names instead.

        Args:
            part: a kind that is also a field of the card, e.g. ``"encoder"``.
            use: what the study says; None: the card's own.

        Raises:
            InputError: neither names one.
        """
        where = f"{cards.room(self.kind)}/{self.use.card}.yaml: {part}"
        own = getattr(self.card, part)
        if not use and not own:
            raise InputError(
                where, "is required", f"name {_article(part)} card there or in the config"
            )
        return Asked.of(part, use or Use(card=own), f"config: {part}" if use else where)


def _article(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


def _check_encoder(metric: Asked, needs: frozenset[str], encoder: Asked) -> None:
    """Refuse an encoder that embeds something else than the metric compares.

    Raises:
        InputError: naming both.
    """
    pairs, texts = encoder.plugin.embeds_pairs, encoder.plugin.embeds_text
    if ("pair" in needs) != pairs or ("text" in needs and not texts):
        embeds = "pairs of both" if pairs else "pictures and texts" if texts else "pictures only"
        raise InputError(
            f"config: metrics: {metric.use.label}: encoder",
            f"'{encoder.use.label}' embeds {embeds}, the metric needs {', '.join(sorted(needs))}",
            "name another encoder, or none for the metric's own",
        )


@dataclass(frozen=True)
class Judge:
    """A judge as a study uses it."""

    asked: Asked
    encoder: Asked | None

    @classmethod
    def of(cls, asker: Asked, *uses: Use | None) -> Judge:
        """Look up who judges for a rubric or a decomposition: the first use given, or the card's.

        Raises:
            InputError: none is named, or something about it is unknown or wrong.
        """
        asked = asker.named("judge", next((u for u in uses if u), None))
        return cls(asked, asked.named("encoder", None) if asked.card.encoder else None)

    @cached_property
    def components(self) -> dict[str, Any]:
        """Identity of the judge, as its replies and the artifacts of its answers know it.

        Without the stage that asks it: who asks, keeps and reads changes no reply.
        """
        sources = self.asked.plugin.sources(self.asked.params, ROOT)
        out = {**self.asked.components(), "data": identity.hash_sources(sources)}
        if self.encoder:
            out["encoder"] = self.encoder.components()
        return out

    @cached_property
    def job(self) -> dict[str, Any]:
        """What a job needs to build the judge again, and to know its requests."""
        return {
            **self.asked.job,
            "encoder": self.encoder.job if self.encoder else None,
            "identity": self.asked.plugin.identity(self.asked.params, self.components),
            "remote": self.asked.plugin.remote,
        }


def weights_identity(weights: Weights, where: str = "weights") -> dict[str, Any]:
    """Bytes of a checkpoint in the checkout; place and version, or hashes, of one elsewhere.

    Raises:
        InputError: no commit of a repository is pinned, the folder is not there, or a file is not
            the one that the card names.
    """
    checkpoint.check_pinned(weights, where)
    if not weights.path:
        # Which of the commit's files are fetched changes none of them.
        return weights.model_dump(exclude_none=True, exclude={"files"})
    folder = ROOT / weights.path
    checkpoint.check(folder, weights)
    # training.json tells how the weights came about; it does not change what they compute.
    files = [p for p in folder.rglob("*") if p.is_file() and p.name != "training.json"]
    return {"files": identity.hash_sources(files)}


@dataclass(frozen=True)
class Judging:
    """How a metric's answers come about."""

    rubric: Asked
    judge: Judge | None
    units: Artifact | None
    components: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Bench:
    """Plans what is done on one benchmark: cases, pictures, embeddings, answers, scores.

    Attributes:
        study: the study.
        asked: the benchmark.
        generators: those that run on it.
        metrics: those that score on it.
        map_encoder: of the map of references; None: there is no map.
        shards: those to plan.
        artifacts: by key; what is planned is added.
    """

    study: Study
    asked: Asked
    generators: Sequence[Asked]
    metrics: Sequence[Asked]
    map_encoder: Asked | None
    shards: Sequence[int]
    artifacts: dict[str, Artifact]

    @property
    def label(self) -> str:
        """Name in paths and in columns."""
        return self.asked.use.label

    @property
    def title(self) -> str:
        """Name on pages."""
        return str(self.asked.use.name or self.asked.card.title)

    @cached_property
    def _benchmark(self) -> Any:
        return self.asked.plugin(self.asked.params, ROOT)

    @cached_property
    def prepared(self) -> Artifact:
        """Cases and references."""
        asked, benchmark = self.asked, self._benchmark
        benchmark.check()
        return self._add(
            Artifact(
                "benchmark",
                asked.use.label,
                {
                    **asked.components("prepare"),
                    "data": identity.hash_sources(benchmark.sources()),
                },
                files=("cases.parquet", "references.parquet", "references.zip"),
                job=asked.job,
            )
        )

    @cached_property
    def _sources(self) -> dict[int, dict[str, Any]] | None:
        """What each shard's cases and references are made from; None: that cannot be told."""
        files = self._benchmark.reference_files()
        if files is None:
            return None
        cases = self._benchmark.cases()
        # As objects: an undefined cell is no number, and no JSON.
        cases = cases.astype(object).where(cases.notna(), None)
        shards = [subject_shard(s, self.study.shards) for s in cases["subject_id"]]
        return {
            int(shard): {
                "cases": identity.digest(rows.to_dict("records")),
                "data": identity.hash_sources(
                    {name: files[name] for name in {*rows["reference_id"]} & files.keys()}
                ),
            }
            for shard, rows in cases.groupby(shards)
        }

    def part(self, shard: int) -> Artifact:
        """Cases and references of the subjects of one shard: the same whatever others there are.

        So a subject that is added, or a picture that is replaced, repeats its shard's work only.
        """
        if self.study.shards == 1:
            return self.prepared
        components = dict(self.prepared.components)
        if self._sources is not None:
            params = components["params"].items()
            amounts = self.asked.plugin.amounts
            components["params"] = {n: value for n, value in params if n not in amounts}
            components |= self._sources.get(shard, {"cases": "", "data": {}})
        where = {"shard": shard, "shards": self.study.shards}
        return self._add(
            Artifact(
                "benchmark",
                f"{self.label}/{shard}",
                components | where,
                files=self.prepared.files,
                job=self.asked.job | where,
            )
        )

    @cached_property
    def samples(self) -> dict[str, list[Artifact]]:
        """Pictures by generator, one artifact per shard."""
        return {g.use.label: [self._generate(g, s) for s in self.shards] for g in self.generators}

    @cached_property
    def roles(self) -> dict[str, str]:
        """All that tables are made from here but ratings: role to key."""
        out = {"benchmark": self.prepared.key}
        for metric in self.metrics:
            out |= self._score_all(metric)
        if self.map_encoder:
            out["reference_embeddings"] = self._embed_cases(self.map_encoder).key
        return out

    def _add(self, artifact: Artifact) -> Artifact:
        artifact.job["on"] = self.label
        self.artifacts[artifact.key] = artifact
        return artifact

    def _generate(self, asked: Asked, shard: int) -> Artifact:
        part = {
            "shard": shard,
            "shards": self.study.shards,
            "samples_per_case": self.study.samples_per_case,
            "seed": self.study.seed,
        }
        sources = asked.plugin.sources(asked.params, ROOT)
        data = {"data": identity.hash_sources(sources)} if sources else {}
        upstream = {"benchmark": self.part(shard).key}
        if asked.plugin.tuning:
            upstream["trained"] = self._train(asked, shard).key
        return self._add(
            Artifact(
                "generate",
                f"{self.label}/{asked.use.label}/{shard}",
                {**asked.components("generate"), **data, **part},
                upstream,
                ("samples.parquet", "images.zip"),
                {
                    **asked.job,
                    **part,
                    "remote": asked.plugin.remote,
                    "given": asked.plugin.given,
                },
            )
        )

    def _train(self, asked: Asked, shard: int) -> Artifact:
        """Plan the per-subject training behind a model: nothing of sampling is in its identity."""
        tuning = asked.plugin.tuning
        part = {"shard": shard, "shards": self.study.shards}
        whole = asked.components("train")
        of_training = set(tuning.Params.model_fields)
        return self._add(
            Artifact(
                "train",
                f"{self.label}/{asked.use.label}/{shard}",
                {
                    "plugin": tuning.__module__.rpartition(".")[2],
                    "version": tuning.version,
                    "params": {k: v for k, v in whole["params"].items() if k in of_training},
                    "code": identity.closure(tuning.__module__, "subjectbench.stages.train"),
                    "packages": whole["packages"],
                    "weights": whole["weights"],
                    **part,
                },
                {"benchmark": self.part(shard).key},
                ("subjects.parquet", "losses.parquet", "weights.zip"),
                {**asked.job, **part},
            )
        )

    def _score_all(self, metric: Asked) -> dict[str, str]:
        """Score artifacts of one metric, by role for the tables."""
        use = metric.use
        assert isinstance(use, MetricUse)
        card = metric.card.model_copy(
            update={
                part: getattr(use, part).card if getattr(use, part) else getattr(metric.card, part)
                for part in ("encoder", "rubric")
            }
        )
        plugin = metric.plugin(metric.params, card, ROOT)
        plugin.check(list(self.samples))
        components = {
            **metric.components("score"),
            "data": identity.hash_sources(plugin.sources()),
        }
        encoder = judging = None
        if plugin.needs & EMBEDDINGS:
            encoder = metric.named("encoder", use.encoder)
            _check_encoder(metric, plugin.needs, encoder)
            components["encoder"] = encoder.components("embed")
        if "answers" in plugin.needs:
            judging = self._judging(metric, use)
            components["judging"] = judging.components
        metric_key = identity.digest(components)
        out = {}
        # One artifact for all shards: scoring is cheap beside starting Python, and thousands of
        # jobs would take Snakemake longer to plan than the pictures' shards are worth.
        for generator, shards in self.samples.items():
            upstream = {"benchmark": self.prepared.key}
            if encoder:
                upstream["case_embeddings"] = self._embed_cases(encoder).key
            if "units" in plugin.needs:
                if judging is None or judging.units is None:
                    raise InputError(
                        f"metrics/{use.card}.yaml: rubric",
                        "asks about no units, which the metric needs",
                        "name a rubric of units, e.g. ufo",
                    )
                upstream["units"] = judging.units.key
            for artifact in shards:
                shard = artifact.job["shard"]
                upstream[f"samples/{shard}"] = artifact.key
                if encoder:
                    embedded = self._embed_images(encoder, artifact)
                    upstream[f"embeddings/{shard}"] = embedded.key
                if judging:
                    judged = self._judge(judging, generator, artifact)
                    upstream[f"answers/{shard}"] = judged.key
            score = self._add(
                Artifact(
                    "score",
                    f"{self.label}/{use.label}/{generator}",
                    {**components, "generator": generator, "metric": use.label},
                    upstream,
                    ("scores.parquet",),
                    {
                        **metric.job,
                        "encoder": card.encoder,
                        "generator": generator,
                        "metric": use.label,
                        "metric_key": metric_key,
                    },
                )
            )
            out[f"scores/{use.label}/{generator}"] = score.key
        return out

    def _judging(self, metric: Asked, use: MetricUse) -> Judging:
        """Rubric, judge and units of a metric that a judge's answers are behind."""
        rubric = metric.named("rubric", use.rubric)
        plugin = rubric.plugin(rubric.params, rubric.card, ROOT)
        plugin.check(list(self.samples))
        components: dict[str, Any] = {
            "rubric": rubric.components("judge"),
            "data": identity.hash_sources(plugin.sources()),
        }
        judge = None if plugin.imported else Judge.of(rubric, use.judge, self.study.judge)
        if judge:
            components["judge"] = judge.components
        units = None
        if "units" in plugin.needs:
            units = self._decompose(rubric, use)
            components["units"] = units.identity
        return Judging(rubric, judge, units, components)

    def _decompose(self, rubric: Asked, use: MetricUse) -> Artifact:
        asked = rubric.named("decomposition", use.decomposition or self.study.decomposition)
        components: dict[str, Any] = asked.components("decompose")
        job = asked.job
        if asked.plugin.asks_judge:
            judge = Judge.of(asked, use.judge, self.study.judge)
            components["judge"] = judge.components
            job["judge"] = judge.job
        else:
            benchmark = self._benchmark
            if not benchmark.has_units:
                raise InputError(
                    f"config: benchmark: {self.label}",
                    "has no prepared atomic units",
                    "set decomposition: asked, so that a judge splits the cases into units",
                )
            # The benchmark's own parameters and files are in its key; here its way of forming
            # units counts too, and files of units alone, so that a changed question repeats no
            # picture.
            components["benchmark"] = self.asked.components("decompose")
            components["data"] = identity.hash_sources(benchmark.unit_sources())
            job["benchmark"] = self.asked.job
        return self._add(
            Artifact(
                "decompose",
                f"{self.label}/{asked.use.label}",
                components,
                {"benchmark": self.prepared.key},
                ("units.parquet", "transcripts.parquet"),
                job,
            )
        )

    def _judge(self, judging: Judging, generator: str, samples: Artifact) -> Artifact:
        who = judging.judge.asked.use.label if judging.judge else "imported"
        upstream = {"benchmark": samples.upstream["benchmark"], "samples": samples.key}
        if judging.units:
            upstream["units"] = judging.units.key
        return self._add(
            Artifact(
                "judge",
                f"{judging.rubric.use.label}/{who}/{samples.name}",
                {**judging.components, "generator": generator},
                upstream,
                ("answers.parquet", "transcripts.parquet"),
                {
                    **judging.rubric.job,
                    "judge": judging.judge.job if judging.judge else None,
                    "generator": generator,
                },
            )
        )

    def _embed_cases(self, encoder: Asked) -> Artifact:
        return self._add(
            Artifact(
                "embed_cases",
                f"{self.label}/{encoder.use.label}",
                encoder.components("embed"),
                {"benchmark": self.prepared.key},
                ("references.parquet", "texts.parquet"),
                encoder.job,
            )
        )

    def _embed_images(self, encoder: Asked, samples: Artifact) -> Artifact:
        return self._add(
            Artifact(
                "embed_images",
                f"{encoder.use.label}/{samples.name}",
                encoder.components("embed"),
                {"benchmark": samples.upstream["benchmark"], "samples": samples.key},
                ("embeddings.parquet",),
                encoder.job,
            )
        )


class Planner:
    """Builds the plan of one study.

    Attributes:
        own: the study's benchmark, which all its tables are of.
        beside: further ones, with the metrics of the dimensions.

    Raises:
        InputError: also from ``plan()``, for anything wrong with what the user supplied, before
            any work starts.
    """

    def __init__(self, study: Study) -> None:
        self.study = study
        self.artifacts: dict[str, Artifact] = {}
        benchmark = Asked.of("benchmark", study.benchmark, "config: benchmark")
        self.generators = [Asked.of("generator", u, "config: generators") for u in study.generators]
        self.metrics = [Asked.of("metric", u, "config: metrics") for u in study.metrics]
        self.raters = Asked.of("raters", study.raters, "config: raters") if study.raters else None
        self.map_encoder = self._map_encoder()
        self.own = self._bench(benchmark, self.generators, self.metrics)
        self.beside = self._beside()

    def _bench(self, asked: Asked, generators: Sequence[Asked], metrics: Sequence[Asked]) -> Bench:
        shards = range(self.study.shards)
        return Bench(
            self.study, asked, generators, metrics, self.map_encoder, shards, self.artifacts
        )

    def _beside(self) -> list[Bench]:
        """Benchmarks beside the study's own (DSH-Bench, Table 2)."""
        beside, dimensions = self.study.beside, self.study.dimensions
        if not beside or not dimensions:
            return []
        chosen = beside.generators or [
            g.use.label for g in self.generators if g.card.role != "control"
        ]
        where = "config: beside.benchmarks"
        if not chosen:
            raise InputError(
                "config: beside", "the study has controls only", "name some of them: generators"
            )
        generators = [g for g in self.generators if g.use.label in chosen]
        used = set(dimensions.model_dump().values())
        metrics = [m for m in self.metrics if m.use.label in used]
        asked = [Asked.of("benchmark", use, where) for use in beside.benchmarks]
        benches = [self._bench(a, generators, metrics) for a in asked]
        titles = [bench.title for bench in (self.own, *benches)]
        twice = next((t for t in titles if titles.count(t) > 1), None)
        if twice:
            raise InputError(where, f"two are called '{twice}'", "give one another name")
        return benches

    def plan(self) -> Plan:
        """Check all inputs and return the plan."""
        for generator in self.generators:
            generator.plugin.check(generator.params, generator.card, ROOT)
        upstream = dict(self.own.roles)
        upstream |= self._units_behind(upstream)
        if self.raters:
            upstream["ratings"] = self._rate(self.raters).key
        for generator in self.generators:
            if generator.card.role == "simulated":
                for artifact in self.own.samples[generator.use.label]:
                    upstream[f"truth/{generator.use.label}/{artifact.job['shard']}"] = artifact.key
        for bench in self.beside:
            roles = bench.roles.items()
            upstream |= {f"beside/{bench.label}/{role}": key for role, key in roles}
        tables = self._tables(upstream)
        report = self._report(tables)
        return Plan(
            study=self.study.model_dump(mode="json"),
            results=self.study.results,
            artifacts=self.artifacts,
            final=report.key,
        )

    def part(self, artifact: Artifact) -> dict[str, Artifact]:
        """Plan again what one artifact of a benchmark can depend on, and little else."""
        benches = (self.own, *self.beside)
        bench = next((b for b in benches if b.label == artifact.job["on"]), None)
        if not bench:
            return {}
        generators, shards = _part(bench, artifact)
        _ = replace(bench, generators=generators, shards=shards).roles
        return self.artifacts

    def _map_encoder(self) -> Asked | None:
        """Return the encoder of the map of references: that of the first metric of its kind."""
        for metric in self.metrics if self.study.dimensions else []:
            assert isinstance(metric.use, MetricUse)
            if metric.card.plugin == "cosine":  # pictures by pictures; others look at faces
                return metric.named("encoder", metric.use.encoder)
        return None

    def _units_behind(self, upstream: dict[str, str]) -> dict[str, str]:
        """Units and answers behind the metric of UFO's tables, by role for the tables."""
        if not self.study.alignment:
            return {}
        metric, out = self.study.alignment.metric, {}
        for generator in self.generators:
            score = self.artifacts[upstream[f"scores/{metric}/{generator.use.label}"]]
            if "units" in score.upstream:
                out["units"] = score.upstream["units"]
                for shard in range(self.study.shards):
                    key = score.upstream[f"answers/{shard}"]
                    out[f"answers/{generator.use.label}/{shard}"] = key
        return out

    def _add(self, artifact: Artifact) -> Artifact:
        self.artifacts[artifact.key] = artifact
        return artifact

    def _rate(self, raters: Asked) -> Artifact:
        plugin = raters.plugin(raters.params, ROOT)
        rated = [
            g.use.label
            for g in self.generators
            if g.card.role == "simulated" or not raters.plugin.simulated
        ]
        plugin.check()
        if not raters.plugin.simulated:
            benchmark = self.own.asked.plugin(self.own.asked.params, ROOT)
            plugin.check_study(rated, set(benchmark.cases()["case_id"]))
        return self._add(
            Artifact(
                "rate",
                f"{self.own.label}/{raters.use.label}",
                {
                    **raters.components("rate"),
                    "data": identity.hash_sources(plugin.sources()),
                },
                {
                    f"samples/{g}/{a.job['shard']}": a.key
                    for g in rated
                    for a in self.own.samples[g]
                },
                ("ratings.parquet",),
                raters.job,
            )
        )

    def _told(self) -> dict[str, Any]:
        """Return the study as its report shows it: without where data lies."""

        def told(kind: str, use: Use) -> dict[str, Any]:
            plugin = cards.plugin(kind, cards.load(kind, use.card), use.card)
            places = locations(plugin.Params)
            out = use.model_dump(mode="json")
            out["params"] = {n: v for n, v in out["params"].items() if n not in places}
            parts = ((part, getattr(use, part, None)) for part in cards.KINDS)
            return out | {part: told(part, other) for part, other in parts if other}

        study = self.study
        out = study.model_dump(mode="json", exclude={"run", "results"})
        for kind in ("benchmark", "raters", "judge", "decomposition"):
            use = getattr(study, kind)
            out[kind] = told(kind, use) if use else None
        if study.beside:
            out["beside"]["benchmarks"] = [told("benchmark", u) for u in study.beside.benchmarks]
        out["generators"] = [told("generator", use) for use in study.generators]
        out["metrics"] = [told("metric", use) for use in study.metrics]
        return out

    def _tables(self, upstream: dict[str, str]) -> Artifact:
        study, benches = self.study, (self.own, *self.beside)
        names = []
        if study.dimensions:
            names.append("leaderboard")
            names += ["benchmarks"] if self.beside else []
            names += [f"by_{level}" for level in self.own.asked.plugin.breakdowns]
            names += ["human_alignment"] if self.raters else []
            names += ["findings", "disputed", "distributions", "hierarchy"]
            names += ["reference_map"] if self.map_encoder else []
        if study.alignment:
            names += self._alignment_tables(bool("units" in upstream))
        if self.raters:
            names += ["agreement", "rater_agreement"]
            names += ["beside_raters"] if study.beside_raters else []
        names += ["pictures"] if self.own.asked.plugin.pictures else []
        names.append("coverage")
        job = {
            "tables": names,
            "near_copy": next(
                (m.use.label for m in self.metrics if m.card.plugin == "near_copy"), ""
            ),
            "alignment": study.alignment.model_dump() if study.alignment else None,
            "human_alignment": study.human_alignment.model_dump(),
            "beside_raters": study.beside_raters,
            # Lists: their order is the tables' order, and plans are saved with sorted keys.
            "benchmarks": [{"name": b.label, "title": b.title} for b in benches],
            "beside_generators": [g.use.label for b in self.beside[:1] for g in b.generators],
            "map_encoder": self.map_encoder.card.title if self.map_encoder else "",
            "samples_per_case": study.samples_per_case,
            "dimensions": self.study.dimensions.model_dump() if self.study.dimensions else None,
            "leaderboard": self.study.leaderboard.model_dump(),
            "statistics": self.study.statistics.model_dump(),
            "generators": [
                {
                    "name": g.use.label,
                    "title": g.use.name or g.card.title,
                    "role": g.card.role,
                    "base_model": g.card.base_model,
                }
                for g in self.generators
            ],
            "metrics": [
                {
                    "name": m.use.label,
                    "title": m.use.name or m.card.title,
                    "scale": m.card.scale,
                    "direction": m.card.direction,
                }
                for m in self.metrics
            ],
            "printed": self._printed(),
            "raters_simulated": bool(self.raters and self.raters.plugin.simulated),
            "synthetic": any(b.asked.plugin.synthetic for b in benches),
        }
        packages = identity.packages(
            ("numpy", "pandas", "scipy", "krippendorff", "scikit-learn"), "tables"
        )
        behind = [a.components for a in self.artifacts.values()]
        job["off_lock"] = identity.off_lock(_packages([*behind, {"packages": packages}]))
        return self._add(
            Artifact(
                "tables",
                self.study.study,
                {
                    **job,
                    "code": identity.closure("subjectbench.stages.tabulate"),
                    # Only tables that show printed numbers are made from them.
                    **(
                        {"data": identity.hash_sources(printed.sources())} if job["printed"] else {}
                    ),
                    "packages": packages,
                },
                upstream,
                tuple(f"{name}.{ending}" for name in names for ending in TABLE_FORMATS),
                job,
            )
        )

    def _printed(self) -> dict[str, dict[str, dict[str, str]]]:
        """Paper to kind to name to the name that the paper prints: of what is the paper's own.

        A benchmark, a model or a metric that is made up or changed has no printed numbers.
        """
        benches = (self.own, *self.beside)
        if any(b.asked.plugin.synthetic for b in benches):
            return {}
        parts = ("params", "encoder", "rubric")
        unchanged = [m for m in self.metrics if not any(getattr(m.use, p) for p in parts)]
        named = {
            "benchmarks": [b.asked for b in benches],
            "generators": self.generators,
            "metrics": unchanged,
        }
        out = {}
        for paper in dict.fromkeys(p for b in benches for p in b.asked.card.published):
            out[paper] = {
                kind: {
                    a.use.label: a.card.published[paper] for a in all_ if paper in a.card.published
                }
                for kind, all_ in named.items()
            }
        return {paper: kinds for paper, kinds in out.items() if kinds["metrics"]}

    def _alignment_tables(self, units: bool) -> list[str]:
        """Names of UFO's tables that this study can make."""
        assert self.study.alignment
        names = ["models_by_paradigm"]
        if self.raters:
            names += ["alignment"]
            names += ["alignment_differences"] if self.study.alignment.baselines else []
            names += ["ablation"] if self.study.alignment.ablations else []
            names += ["rank_agreement"]
            names += ["disagreements"] if self.study.alignment.baselines else []
        names.append("composition")
        if units:
            names += ["disagreement_units"] if "disagreements" in names else []
            names += ["units_by_category", "unit_counts", "requests"]
        return names

    def _report(self, tables: Artifact) -> Artifact:
        names, pictures = tables.job["tables"], self.own.asked.plugin.pictures
        shown = ("benchmarks", "by_difficulty", "by_scenario", "by_category", "agreement")
        figures = [n for n in shown if n in names]
        if self.study.dimensions:
            figures += ["preservation_following", "distributions", "hierarchy"]
            figures += ["reference_map"] if "reference_map" in names else []
            figures += ["disputed"] if pictures else []
        if self.study.alignment:
            of_tables = ("composition", "units_by_category", "alignment", "ablation")
            figures += [n for n in of_tables if n in names]
            # Shows pictures, and of each the units that decided.
            whole = {"disagreements", "disagreement_units"} <= set(names)
            figures += ["disagreements"] if whole and pictures else []
        if pictures:
            figures.append("gallery")
        job = {
            **tables.job,
            "figures": figures,
            "title": self.study.title or self.study.study,
            "study": self._told(),
        }
        captions = sorted((ROOT / "workflow" / "report").glob("*.rst"))
        packages = ("matplotlib", "seaborn", "docutils", "cvttf-notosanscjk-regular")
        upstream = {"tables": tables.key}
        if "gallery" in figures:
            upstream["benchmark"] = self.own.prepared.key
            for generator, shards in self.own.samples.items():
                for artifact in shards:
                    upstream[f"samples/{generator}/{artifact.job['shard']}"] = artifact.key
        return self._add(
            Artifact(
                "report",
                self.study.study,
                {
                    **job,
                    "code": identity.closure("subjectbench.stages.report"),
                    "packages": identity.packages(packages, "report"),
                    "captions": identity.hash_sources(captions),
                },
                upstream,
                (
                    "index.html",
                    "config.yaml",
                    *(f"tables/{name}" for name in tables.files),
                    *(f"figures/{name}.{ending}" for name in figures for ending in FIGURE_FORMATS),
                    # What the others show is in the table of the same name.
                    *(f"figures/{name}.csv" for name in figures if name not in names),
                ),
                job,
            )
        )


def _packages(value: Any) -> dict[str, str]:
    """Version of every package that components name, at any depth."""
    out: dict[str, str] = {}
    for inner in value.values() if isinstance(value, dict) else value:
        if isinstance(inner, dict | list):
            out |= _packages(inner)
    return out | (value.get("packages") or {} if isinstance(value, dict) else {})


def check_asked(plan: Plan) -> None:
    """Find what stands in the way of those who would be asked: no key, no archive.

    A study whose pictures and answers are all there needs neither.

    Raises:
        InputError: naming the field and the mend.
    """
    store = Store(Path(plan.results))
    seen = []
    for artifact in [*plan.of_kind("decompose"), *plan.of_kind("judge")]:
        judge = artifact.job.get("judge")
        if judge and judge["use"] not in seen and not store.has(artifact):
            seen.append(judge["use"])
            asked = Asked.of("judge", Use.model_validate(judge["use"]), "config: judge")
            # One with an encoder asks nobody else, and cannot be built without loading it.
            if not asked.card.encoder:
                asked.plugin(asked.params, asked.card).check()
    for artifact in plan.of_kind("generate"):
        use = artifact.job["use"]
        if artifact.job["remote"] and use not in seen and not store.has(artifact):
            seen.append(use)
            asked = Asked.of("generator", Use.model_validate(use), "config: generators")
            for check in asked.plugin.checks(asked.params, asked.card, ROOT):
                if not check.ok:
                    raise InputError(
                        f"config: generators: {use['name'] or use['card']}", check.found, check.mend
                    )


def match_given(plan: Plan, every: bool = False) -> Iterator[tuple[str, Any]]:
    """Match pictures that were made elsewhere with the samples that ask for them.

    Args:
        every: also of artifacts that are there already.

    Yields:
        Benchmark and model, and their ``generators.imported.Match``.

    Raises:
        InputError: a file could be two samples', or is unsafe; see there.
    """
    store, wanted = Store(Path(plan.results)), {}
    for artifact in plan.of_kind("generate"):
        if artifact.job["given"] and (every or not store.has(artifact)):
            wanted[artifact.name.rpartition("/")[0]] = artifact
    for name, artifact in wanted.items():
        prepared = plan.artifacts[artifact.upstream["benchmark"]]
        benchmark = Asked.of("benchmark", Use.model_validate(prepared.job["use"]), "config")
        cases = (
            benchmark.plugin(benchmark.params, ROOT).cases().fillna({"subject": "", "prompt": ""})
        )
        asked = Asked.of("generator", Use.model_validate(artifact.job["use"]), "config: generators")
        samples = (
            (f"{row.case_id}-s{replicate}", row.subject_id, row.subject, row.prompt)
            for replicate in range(artifact.job["samples_per_case"])
            for row in cases.itertuples()
        )
        yield name, asked.plugin.match(asked.params, ROOT, samples)


def has_gpu() -> bool:
    """Whether this machine has an NVIDIA device; asks no library, so it is instant."""
    return any(Path("/dev").glob("nvidia[0-9]*"))


def plan_audit(audit: Audit) -> Plan:
    """Plan the audit of the papers' printed tables: its tables, and their report."""
    captions = {
        "audit": "Printed numbers that disagree, or cannot be checked",
        "audit_agreements": "Printed numbers that agree",
    }
    for name, table in printed.read().tables.items():
        facts = table.facts
        captions[name] = f"{facts.paper}, Table {facts.table}: {facts.title}"
    packages = identity.packages(("numpy", "pandas", "scipy"), "audit")
    job: dict[str, Any] = {"tables": list(captions), "captions": captions}
    job["off_lock"] = identity.off_lock(packages)
    tables = Artifact(
        "audit",
        audit.study,
        {
            **job,
            "code": identity.closure("subjectbench.stages.audit"),
            "packages": packages,
            "data": identity.hash_sources(printed.sources()),
        },
        files=tuple(f"{name}.{ending}" for name in captions for ending in TABLE_FORMATS),
        job=job,
    )
    job = {
        **job,
        "figures": [],
        "title": audit.title or audit.study,
        "study": audit.model_dump(mode="json", exclude={"run", "results"}),
        "printed_only": True,
        "synthetic": False,
        "raters_simulated": False,
    }
    notes = [ROOT / "workflow" / "report" / f"{name}.rst" for name in captions]
    report = Artifact(
        "report",
        audit.study,
        {
            **job,
            "code": identity.closure("subjectbench.stages.report"),
            "packages": identity.packages(("docutils",), "report"),
            "captions": identity.hash_sources(note for note in notes if note.is_file()),
        },
        {"tables": tables.key},
        ("index.html", "config.yaml", *(f"tables/{file}" for file in tables.files)),
        job,
    )
    return Plan(
        study=audit.model_dump(mode="json"),
        results=audit.results,
        artifacts={tables.key: tables, report.key: report},
        final=report.key,
    )


def make_plan(study: Study | Audit) -> Plan:
    """Plan a study.

    Raises:
        InputError: naming file, field and mend of the first fault.
    """
    return plan_audit(study) if isinstance(study, Audit) else Planner(study).plan()


def plan_again(study: Study | Audit, artifact: Artifact) -> Artifact | None:
    """Plan one artifact of a study again, and as little else as its identity can depend on.

    Every job asks for this. In a study of thousands of artifacts, planning them all would cost
    more than the work of most jobs.

    Returns:
        The artifact itself if it would be planned the same way, else one of its kind and name;
        None: the study has none.

    Raises:
        InputError: as :func:`make_plan`.
    """
    if isinstance(study, Audit) or artifact.kind in ("rate", "tables", "report"):
        found = make_plan(study).artifacts
    else:
        found = Planner(study).part(artifact)
    # By key first: parts of one card with different parameters share a name.
    same = (a for a in found.values() if (a.kind, a.name) == (artifact.kind, artifact.name))
    return found.get(artifact.key) or next(same, None)


def _part(bench: Bench, artifact: Artifact) -> tuple[list[Asked], Sequence[int]]:
    """Generator and shards that an artifact's name ends in; the first of one that has none."""
    head, _, shard = artifact.name.rpartition("/")
    name, shards = artifact.name, bench.shards
    if artifact.kind != "score":
        name, shards = (head, [int(shard)]) if shard.isdecimal() else ("", [0])
    named = [g for g in bench.generators if name.endswith(f"/{g.use.label}")]
    return [max(named, key=lambda g: len(g.use.label), default=bench.generators[0])], shards
