"""Artifacts and plans: plain data that the workflow, the jobs and the manifests share."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from subjectbench.hashing import sha256
from subjectbench.store import identity

ROWS_ONLY = frozenset({"score", "rate", "tables"})
"""Kinds that read rows and vectors of what they are made from, and look at no picture."""


def is_pictures(file: str) -> bool:
    """Whether a file of an artifact holds pictures: large, and not needed by ``ROWS_ONLY``."""
    return file.endswith(".zip")


@dataclass(frozen=True)
class Artifact:
    """One folder of the store, or the results of one run.

    Attributes:
        kind: stage that makes it, e.g. ``score``.
        name: readable path below the kind, e.g. ``miniworld/clip_i/noise/0``.
        components: all that decides its content, JSON types only.
        upstream: role to key of the artifacts that it is made from.
        files: names of its files, besides ``manifest.json``.
        job: arguments of the stage; all of them follow from components or from upstream.
    """

    kind: str
    name: str
    components: dict[str, Any]
    upstream: dict[str, str] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    job: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def key(self) -> str:
        """Identity, 12 hex digits."""
        return identity.digest(self.identity)

    @property
    def identity(self) -> dict[str, Any]:
        """What the key is the hash of."""
        return {
            "scheme": identity.SCHEME,
            "kind": self.kind,
            "name": self.name,
            "components": self.components,
            "upstream": self.upstream,
            "files": sorted(self.files),
        }

    @classmethod
    def of_manifest(cls, manifest: dict[str, Any]) -> Artifact:
        """Return the artifact that a manifest accounts for, without its job.

        Raises:
            ValueError: the manifest is none, or of another identity than its key says.
        """
        try:
            parts = {name: manifest[name] for name in ("kind", "name", "components", "upstream")}
            for part, kind in zip(parts.values(), (str, str, dict, dict), strict=True):
                if not isinstance(part, kind):
                    raise TypeError(f"{part!r:.40} is not of type {kind.__name__}")
            if not all(isinstance(key, str) for key in parts["upstream"].values()):
                raise TypeError("a key of upstream is no text")
            for facts in manifest["files"].values():
                int(facts["bytes"]), str(facts["sha256"])
            found = cls(**parts, files=tuple(manifest["files"]))
            if manifest["scheme"] != identity.SCHEME:
                raise ValueError(f"scheme of keys {manifest['scheme']}, here {identity.SCHEME}")
            if manifest["key"] != found.key:
                raise ValueError(f"says key {manifest['key']}, its components make {found.key}")
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"is no manifest: {error!r}") from None
        return found

    @property
    def folder(self) -> str:
        """Path below the results folder."""
        if self.kind == "report":
            return f"{self.name}-{self.key}"
        return f"store/{self.kind}/{self.name}/{self.key}"


@dataclass(frozen=True)
class Plan:
    """Everything that one study needs, by key, with how to run it."""

    study: dict[str, Any]
    results: str
    artifacts: dict[str, Artifact]
    final: str

    def folder(self, key: str) -> Path:
        """Where an artifact lies, relative to the checkout."""
        return Path(self.results) / self.artifacts[key].folder

    def paths(self, key: str) -> list[str]:
        """Every file of an artifact."""
        folder = str(self.folder(key))
        return [f"{folder}/{name}" for name in ("manifest.json", *self.artifacts[key].files)]

    def upstream_paths(self, key: str) -> list[str]:
        """Every file that an artifact is made from: a changed formula needs no picture."""
        artifact = self.artifacts[key]
        paths = [path for up in artifact.upstream.values() for path in self._paths[up]]
        if artifact.kind in ROWS_ONLY:
            return [path for path in paths if not is_pictures(path)]
        return paths

    @cached_property
    def _paths(self) -> dict[str, list[str]]:
        # Most artifacts are asked for many times: all shards of a model read the benchmark.
        return {key: self.paths(key) for key in self.artifacts}

    def of_kind(self, kind: str) -> list[Artifact]:
        """Artifacts that one stage makes."""
        return [a for a in self.artifacts.values() if a.kind == kind]

    def to_make(self, there: Callable[[Artifact], bool]) -> list[Artifact]:
        """What a run would make, upstream first: what is not there and leads to the final artifact.

        Args:
            there: whether an artifact is there.
        """
        out: dict[str, Artifact] = {}
        seen: set[str] = set()

        def visit(key: str) -> None:
            if key in seen:
                return
            seen.add(key)
            artifact = self.artifacts[key]
            if not there(artifact):
                for upstream in artifact.upstream.values():
                    visit(upstream)
                out[key] = artifact

        visit(self.final)
        return list(out.values())

    def save(self) -> Path:
        """Write the plan under its own hash, so that a job always sees the plan it was made for."""
        # Without indent, which json writes ten times slower: the full DSH-Bench has thousands.
        text = json.dumps(_plain(self), sort_keys=True, default=_plain)
        folder = Path(self.results) / "store" / ".plans"
        path = folder / f"{sha256(text.encode())[:12]}.json"
        if not path.is_file():
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=folder, delete=False) as file:
                file.write(text)
            Path(file.name).replace(path)
        return path

    @classmethod
    def read(cls, path: Path) -> Plan:
        """Read a saved plan."""
        data = json.loads(path.read_text("utf-8"))
        artifacts = {
            key: Artifact(**{**value, "files": tuple(value["files"])})
            for key, value in data.pop("artifacts").items()
        }
        return cls(artifacts=artifacts, **data)


def _plain(value: Any) -> dict[str, Any]:
    """Fields of a plan or an artifact, without what it has worked out meanwhile."""
    return {f.name: getattr(value, f.name) for f in fields(value)}
