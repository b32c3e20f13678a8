"""From a study to the artifacts that it needs, each with its key. Light: no pandas, no torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from subjectbench import cards
from subjectbench.cards import ROOT, Weights
from subjectbench.config import LOCATION, Study, Use
from subjectbench.errors import InputError
from subjectbench.store import Artifact, Plan, identity

TABLE_FORMATS = ("csv", "md", "tex")
FIGURE_FORMATS = ("svg", "png")


@dataclass(frozen=True)
class Asked:
    """One plug-in as a study uses it."""

    kind: str
    use: Use
    card: Any
    plugin: Any
    params: Any

    @classmethod
    def of(cls, kind: str, use: Use, where: str) -> Asked:
        """Look everything up and check it.

        Raises:
            InputError: naming what is unknown or wrong.
        """
        card = cards.load(kind, use.card, where)
        return cls(kind, use, card, cards.plugin(kind, card, where), cards.params(kind, use, where))

    def components(self, stage: str) -> dict[str, Any]:
        """Identity of the plug-in with its parameters, as a stage runs it."""
        out = {
            "plugin": self.card.plugin,
            "version": self.plugin.version,
            "params": self.params.model_dump(mode="json", exclude=locations(self.plugin.Params)),
            "code": identity.closure(
                f"subjectbench.{cards.room(self.kind)}.{self.card.plugin}",
                f"subjectbench.stages.{stage}",
            ),
            "packages": identity.packages(self.card.packages, self.use.card),
        }
        if self.card.weights:
            out["weights"] = weights_identity(self.card.weights, self.use.card)
        return out

    @property
    def job(self) -> dict[str, Any]:
        """What a job needs to build the plug-in again."""
        return {"use": self.use.model_dump()}


def locations(params: type[BaseModel]) -> set[str]:
    """Names of the parameters that only say where data lies."""
    return {n for n, f in params.model_fields.items() if f.json_schema_extra == LOCATION}


def weights_identity(weights: Weights, where: str) -> dict[str, Any]:
    """Bytes of a checkpoint in the checkout; repository and commit of one on the hub.

    Raises:
        InputError: the folder is not there, or a file is not the one that the card names.
    """
    if weights.repository:
        return weights.model_dump(exclude={"path"})
    folder = ROOT / str(weights.path)
    if not folder.is_dir():
        raise InputError(f"{where}: weights.path", f"no such folder: {folder}", "restore it")
    # training.json tells how the weights came about; it does not change what they compute.
    files = [p for p in folder.rglob("*") if p.is_file() and p.name != "training.json"]
    found = identity.hash_sources(files)
    for name, expected in weights.sha256.items():
        if found.get(name) != expected:
            raise InputError(
                f"{where}: weights.sha256",
                f"{folder / name} is {'another file' if name in found else 'missing'}",
                "restore the file, or state the new sha256 in the card",
            )
    return {"files": found}


class Planner:
    """Builds the plan of one study.

    Raises:
        InputError: from ``plan()``, for anything wrong with what the user supplied, before any
            work starts.
    """

    def __init__(self, study: Study) -> None:
        self.study = study
        self.artifacts: dict[str, Artifact] = {}
        self.benchmark = Asked.of("benchmark", study.benchmark, "config: benchmark")
        self.generators = [Asked.of("generator", u, "config: generators") for u in study.generators]
        self.metrics = [Asked.of("metric", u, "config: metrics") for u in study.metrics]
        self.raters = Asked.of("raters", study.raters, "config: raters") if study.raters else None

    def plan(self) -> Plan:
        """Check all inputs and return the plan."""
        prepared = self._prepare()
        samples = {
            g.use.label: [self._generate(g, prepared, s) for s in range(self.study.shards)]
            for g in self.generators
        }
        upstream: dict[str, str] = {"benchmark": prepared.key}
        for metric in self.metrics:
            upstream |= self._score_all(metric, prepared, samples)
        if self.raters:
            upstream["ratings"] = self._rate(self.raters, samples).key
        for generator in self.generators:
            if generator.card.role == "simulated":
                for artifact in samples[generator.use.label]:
                    upstream[f"truth/{generator.use.label}/{artifact.job['shard']}"] = artifact.key
        tables = self._tables(upstream)
        report = self._report(tables, prepared, samples)
        return Plan(
            study=self.study.model_dump(mode="json"),
            results=self.study.results,
            artifacts=self.artifacts,
            final=report.key,
        )

    def _add(self, artifact: Artifact) -> Artifact:
        self.artifacts[artifact.key] = artifact
        return artifact

    def _prepare(self) -> Artifact:
        asked = self.benchmark
        benchmark = asked.plugin(asked.params, ROOT)
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

    def _generate(self, asked: Asked, prepared: Artifact, shard: int) -> Artifact:
        part = {
            "shard": shard,
            "shards": self.study.shards,
            "samples_per_case": self.study.samples_per_case,
            "seed": self.study.seed,
        }
        return self._add(
            Artifact(
                "generate",
                f"{self.benchmark.use.label}/{asked.use.label}/{shard}",
                {**asked.components("generate"), **part},
                {"benchmark": prepared.key},
                ("samples.parquet", "images.zip"),
                {**asked.job, **part},
            )
        )

    def _score_all(
        self, metric: Asked, prepared: Artifact, samples: dict[str, list[Artifact]]
    ) -> dict[str, str]:
        """Score artifacts of one metric, by role for the tables."""
        plugin = metric.plugin(metric.params, metric.card, ROOT)
        plugin.check(list(samples))
        components = {
            **metric.components("score"),
            "data": identity.hash_sources(plugin.sources()),
        }
        encoder = None
        if metric.plugin.needs:
            if not metric.card.encoder:
                raise InputError(
                    f"metrics/{metric.use.card}.yaml: encoder",
                    "is required",
                    "name an encoder card",
                )
            where = f"metrics/{metric.use.card}.yaml: encoder"
            encoder = Asked.of("encoder", Use(card=metric.card.encoder), where)
            components["encoder"] = encoder.components("embed")
        metric_key = identity.digest(components)
        out = {}
        for generator, shards in samples.items():
            for artifact in shards:
                shard = artifact.job["shard"]
                upstream = {"benchmark": prepared.key, "samples": artifact.key}
                if encoder:
                    upstream["case_embeddings"] = self._embed_cases(encoder, prepared).key
                    upstream["embeddings"] = self._embed_images(encoder, prepared, artifact).key
                score = self._add(
                    Artifact(
                        "score",
                        f"{self.benchmark.use.label}/{metric.use.label}/{generator}/{shard}",
                        {**components, "generator": generator, "metric": metric.use.label},
                        upstream,
                        ("scores.parquet",),
                        {
                            **metric.job,
                            "generator": generator,
                            "metric": metric.use.label,
                            "metric_key": metric_key,
                        },
                    )
                )
                out[f"scores/{metric.use.label}/{generator}/{shard}"] = score.key
        return out

    def _embed_cases(self, encoder: Asked, prepared: Artifact) -> Artifact:
        return self._add(
            Artifact(
                "embed_cases",
                f"{self.benchmark.use.label}/{encoder.use.label}",
                encoder.components("embed"),
                {"benchmark": prepared.key},
                ("references.parquet", "texts.parquet"),
                encoder.job,
            )
        )

    def _embed_images(self, encoder: Asked, prepared: Artifact, samples: Artifact) -> Artifact:
        return self._add(
            Artifact(
                "embed_images",
                f"{encoder.use.label}/{samples.name}",
                encoder.components("embed"),
                {"benchmark": prepared.key, "samples": samples.key},
                ("embeddings.parquet",),
                encoder.job,
            )
        )

    def _rate(self, raters: Asked, samples: dict[str, list[Artifact]]) -> Artifact:
        plugin = raters.plugin(raters.params, ROOT)
        rated = [
            g.use.label
            for g in self.generators
            if g.card.role == "simulated" or not raters.plugin.simulated
        ]
        plugin.check()
        if not raters.plugin.simulated:
            benchmark = self.benchmark.plugin(self.benchmark.params, ROOT)
            plugin.check_study(rated, set(benchmark.cases()["case_id"]))
        return self._add(
            Artifact(
                "rate",
                f"{self.benchmark.use.label}/{raters.use.label}",
                {
                    **raters.components("rate"),
                    "data": identity.hash_sources(plugin.sources()),
                },
                {f"samples/{g}/{a.job['shard']}": a.key for g in rated for a in samples[g]},
                ("ratings.parquet",),
                raters.job,
            )
        )

    def _tables(self, upstream: dict[str, str]) -> Artifact:
        names = []
        if self.study.dimensions:
            names.append("leaderboard")
            names += [f"by_{level}" for level in self.benchmark.plugin.breakdowns]
        if self.raters:
            names += ["agreement", "rater_agreement"]
        names.append("coverage")
        job = {
            "tables": names,
            "dimensions": self.study.dimensions.model_dump() if self.study.dimensions else None,
            "leaderboard": self.study.leaderboard.model_dump(),
            "statistics": self.study.statistics.model_dump(),
            # Lists: their order is the tables' order, and plans are saved with sorted keys.
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
            "raters_simulated": bool(self.raters and self.raters.plugin.simulated),
            "synthetic": bool(self.benchmark.plugin.synthetic),
        }
        packages = ("numpy", "pandas", "scipy", "krippendorff")
        return self._add(
            Artifact(
                "tables",
                self.study.study,
                {
                    **job,
                    "code": identity.closure("subjectbench.stages.tabulate"),
                    "packages": identity.packages(packages, "tables"),
                },
                upstream,
                tuple(f"{name}.{ending}" for name in names for ending in TABLE_FORMATS),
                job,
            )
        )

    def _report(
        self, tables: Artifact, prepared: Artifact, samples: dict[str, list[Artifact]]
    ) -> Artifact:
        names = tables.job["tables"]
        figures = [n for n in ("by_difficulty", "by_scenario", "agreement") if n in names]
        if self.study.dimensions:
            figures.append("preservation_following")
        if self.benchmark.plugin.pictures:
            figures.append("gallery")
        job = {
            **tables.job,
            "figures": figures,
            "title": self.study.title or self.study.study,
            "study": self.study.model_dump(mode="json", exclude={"run", "results"}),
        }
        captions = sorted((ROOT / "workflow" / "report").glob("*.rst"))
        upstream = {"tables": tables.key}
        if "gallery" in figures:
            upstream["benchmark"] = prepared.key
            for generator, shards in samples.items():
                for artifact in shards:
                    upstream[f"samples/{generator}/{artifact.job['shard']}"] = artifact.key
        return self._add(
            Artifact(
                "report",
                self.study.study,
                {
                    **job,
                    "code": identity.closure("subjectbench.stages.report"),
                    "packages": identity.packages(("matplotlib", "seaborn", "docutils"), "report"),
                    "captions": identity.hash_sources(captions),
                },
                upstream,
                (
                    "index.html",
                    "config.yaml",
                    *(f"tables/{name}" for name in tables.files),
                    *(f"figures/{name}.{ending}" for name in figures for ending in FIGURE_FORMATS),
                ),
                job,
            )
        )


def has_gpu() -> bool:
    """Whether this machine has an NVIDIA device; asks no library, so it is instant."""
    return any(Path("/dev").glob("nvidia[0-9]*"))


def make_plan(study: Study) -> Plan:
    """Plan a study.

    Raises:
        InputError: naming file, field and mend of the first fault.
    """
    return Planner(study).plan()
