"""UFO's alignment score: the weighted mean of the scores of a case's atomic units.

UFO, section 3.2.4, equation (3): ``sum(w * s) / sum(w)``, weights 1 to 5. A unit's score is
the judge's answer (1 yes, 0 no, or a probability of yes), and for faces of people a similarity
(section 3.2.3, equation (2)). Everything here is computed from stored answers and embeddings, so
another choice of weights, levels or policies asks nobody anything.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from subjectbench.cards import MetricCard
from subjectbench.config import Strict
from subjectbench.errors import InputError
from subjectbench.metrics.base import Answer, Item, Metric, Result, Vector
from subjectbench.metrics.face_similarity import Map, face_score
from subjectbench.units import Unit
from subjectbench.vocabulary import Status


@dataclass(frozen=True)
class Scored:
    """What one unit adds.

    Args:
        status: of the judge's answer, or of the comparison of faces.
        value: 0 to 1; None: the unit is left out, or makes the whole picture fail.
        source: ``"vqa"`` or ``"face"``.
        policy: the parameter that decided because the status is not ``ok``.
    """

    status: Status
    value: float | None
    source: str
    policy: str = ""


class Ufo(Metric):
    """Weighted mean over the units of a case, with every policy declared."""

    class Params(Strict):
        """What counts, and what happens where a unit has no score."""

        weights: Literal["declared", "uniform"] = Field(
            default="declared", description="uniform: all 1 (UFO, Table 3)"
        )
        levels: list[Literal["global_attribute", "part", "setting"]] = Field(
            default=["global_attribute", "part", "setting"],
            min_length=1,
            description="Levels that count. As in the reference: [global_attribute, part]",
        )
        graded: Literal["keep", "threshold"] = Field(
            default="keep", description="threshold: a probability of yes counts as 1 from 0.5, or 0"
        )
        face: Literal["tool", "vqa"] = Field(
            default="tool", description="tool: face units are scored by comparing faces"
        )
        face_map: Map = Field(
            default="clip",
            description="How the likeness of two faces is formed; see metrics/face_similarity.py",
        )
        face_threshold: float = Field(
            default=0.5, ge=-1, le=1, description="Cosine that the map 'threshold' asks for"
        )
        face_low: float = Field(
            default=0.0, ge=-1, le=1, description="Mapped likeness that counts 0: another person"
        )
        face_high: float = Field(
            default=1.0,
            ge=-1,
            le=1,
            description="Mapped likeness that counts 1: the same person. Between the two the score "
            "is linear; other encoders than ArcFace need their own two",
        )
        no_face_reference: Literal["vqa", "exclude"] = Field(
            default="vqa",
            description="No face in the reference, nothing to compare with: the judge's answer "
            "counts instead, or the unit is left out",
        )
        no_face: Literal["zero", "vqa", "exclude"] = Field(
            default="zero",
            description="No face in the picture: identity is lost, or the judge's answer counts "
            "instead, or the unit is left out",
        )
        missing: Literal["image", "unit", "lower", "upper"] = Field(
            default="image",
            description="A unit without score: the picture gets no score either, or the unit is "
            "left out, or counts 0 or 1, which bounds the score",
        )

        @model_validator(mode="after")
        def _low_is_below_high(self) -> Ufo.Params:
            if self.face_low >= self.face_high:
                raise ValueError("face_low must be below face_high")
            return self

    def __init__(self, params: Any, card: MetricCard, root: Path) -> None:
        super().__init__(params, card, root)
        self._tool = params.face == "tool"
        faces = {"image", "reference"} if self._tool and card.encoder else set()
        self.needs = frozenset({"answers", "units"} | faces)

    def check(self, generators: list[str]) -> None:
        """Faces need an encoder.

        Raises:
            InputError: faces are to be compared, and neither card nor study names one.
        """
        if self._tool and not self.card.encoder:
            raise InputError(
                f"metric '{self.card.title}': encoder",
                "is required to compare faces",
                "name an encoder of faces, or set params.face to 'vqa'",
            )

    def score(self, items: list[Item]) -> list[Result]:
        """Return one result per item, 0 to 1; ``details`` say what each unit added.

        ``details["units"]`` has, per counted unit, ``unit, name, level, relevance, weight, value,
        source, status``: the score is the mean of the values with these weights, and units without
        value are left out. ``details["policy"]`` has the parameters that had to decide something.
        """
        return [self._one(item) for item in items]

    def _one(self, item: Item) -> Result:
        if not item.units:
            return Result(Status.UNPARSABLE, details={"reason": "no units"})
        scored = [
            (unit, self._settled(self._scored(item, unit)))
            for unit in item.units
            if unit.level in self.params.levels
        ]
        details = {
            "units": [self._row(unit, found) for unit, found in scored],
            "policy": {s.policy: getattr(self.params, s.policy) for _, s in scored if s.policy},
        }
        known = [(self._weight(u), s.value) for u, s in scored if s.value is not None]
        failed = [s.status for _, s in scored if s.policy == "missing"]
        if failed and self.params.missing == "image":
            return Result(failed[0], n_raw=len(known), details=details)
        if not known:
            status = scored[0][1].status if scored else Status.NOT_APPLICABLE
            return Result(status, details=details)
        # Exact sums do not depend on the order of units.
        total = math.fsum(weight * value for weight, value in known)
        value = total / sum(weight for weight, _ in known)
        return Result(Status.OK, value, len(known), details)

    def _weight(self, unit: Unit) -> int:
        return unit.weight if self.params.weights == "declared" else 1

    def _row(self, unit: Unit, scored: Scored) -> dict[str, Any]:
        return {
            "unit": unit.unit_id,
            "name": unit.name,
            "level": unit.level,
            "relevance": unit.relevance,
            "weight": self._weight(unit),
            "value": scored.value,
            "source": scored.source,
            "status": scored.status,
        }

    def _settled(self, unit: Scored) -> Scored:
        """Apply ``missing`` to a unit that no other policy has decided about."""
        if unit.value is not None or unit.policy:
            return unit
        bounds = {"lower": 0.0, "upper": 1.0}
        return replace(unit, value=bounds.get(self.params.missing), policy="missing")

    def _scored(self, item: Item, unit: Unit) -> Scored:
        # A face that only the prompt describes has nothing to be compared with.
        if self._tool and unit.tool == "face" and unit.relevance != "text_only":
            return self._face(item, unit)
        return self._vqa(item, unit)

    def _vqa(self, item: Item, unit: Unit) -> Scored:
        answer = item.answers.get(unit.unit_id, Answer(Status.MISSING))
        value = answer.value
        if value is not None and self.params.graded == "threshold":
            value = float(value >= 0.5)
        return Scored(answer.status, value, "vqa")

    def _face(self, item: Item, unit: Unit) -> Scored:
        image = item.image or Vector(Status.MISSING)
        compared = [
            face_score(image, reference, self.params.face_map, self.params.face_threshold)
            for reference in item.references or (Vector(Status.MISSING),)
        ]
        shown = [c for c in compared if c.status is not Status.NO_FACE_REFERENCE]
        if not shown:
            return self._no_face(item, unit, Status.NO_FACE_REFERENCE)
        bad = next((c.status for c in shown if c.status is not Status.OK), None)
        if bad is Status.NO_FACE:
            return self._no_face(item, unit, bad)
        if bad:
            return Scored(bad, None, "face")
        values = [c.value for c in shown if c.value is not None]
        low, high = self.params.face_low, self.params.face_high
        scaled = (math.fsum(values) / len(values) - low) / (high - low)
        return Scored(Status.OK, min(1.0, max(0.0, scaled)), "face")

    def _no_face(self, item: Item, unit: Unit, status: Status) -> Scored:
        policy = status.value  # the parameters are named like the statuses
        choice = getattr(self.params, policy)
        if choice == "vqa":
            answer = self._vqa(item, unit)
            if answer.value is None:
                return answer
            return replace(answer, status=status, policy=policy)
        return Scored(status, 0.0 if choice == "zero" else None, "face", policy)


PLUGIN = Ufo
