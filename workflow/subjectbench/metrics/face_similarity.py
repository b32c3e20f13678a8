"""Likeness of the face in a picture to the face in its reference: UFO, section 3.1, equation (2).

Cosine of unit vectors in [-1, 1], unless a map is declared. UFO gives four definitions: one minus a
normalised distance in the equation, a threshold of 0.5 in Figure 5, and in its code ``max(cos, 0)``
and ``max(0, 1 - distance)``; each is one of the maps here.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from subjectbench.config import Strict
from subjectbench.metrics.base import Item, Metric, Result, Vector
from subjectbench.metrics.cosine import cosine
from subjectbench.vocabulary import Status

Map = Literal["cosine", "clip", "half", "threshold", "distance"]
"""How a score is formed of two embeddings a and b:

- ``cosine``: cos(a, b), -1 to 1;
- ``clip``: max(cos(a, b), 0);
- ``half``: (1 + cos(a, b)) / 2;
- ``threshold``: 1 where cos(a, b) reaches the threshold, else 0;
- ``distance``: max(0, 1 - |a - b|) of the embeddings as they are, for an encoder that was made for
  Euclidean distance (dlib).
"""


def face_score(
    image: Vector, reference: Vector, map: Map = "cosine", threshold: float = 0.5
) -> Result:
    """Compare the face of a picture with that of one reference.

    Returns:
        ``ok`` with the mapped value; ``no_face_reference`` where the reference shows no face, so
        that there is nothing to compare with, whatever the picture shows; ``no_face`` where only
        the picture shows none; ``non_finite`` for a vector that is zero or not finite; otherwise
        the status of the side that has no vector.
    """
    import numpy as np

    if reference.values is None:
        none = reference.status is Status.NO_FACE
        return Result(Status.NO_FACE_REFERENCE if none else reference.status)
    if image.values is None:
        return Result(image.status)
    cos = cosine(image.values, reference.values)
    if cos is None:
        return Result(Status.NON_FINITE)
    if map == "cosine":
        value = cos
    elif map == "clip":
        value = max(cos, 0.0)
    elif map == "half":
        value = (1.0 + cos) / 2.0
    elif map == "threshold":
        value = float(cos >= threshold)
    else:
        apart = image.values.astype(np.float64) - reference.values
        value = max(0.0, 1.0 - float(np.linalg.norm(apart)))
    return Result(Status.OK, value, 1)


class FaceSimilarity(Metric):
    """Mean over the references of the mapped likeness."""

    needs = frozenset({"image", "reference"})

    class Params(Strict):
        """Parameters of a face similarity card."""

        map: Map = Field(default="cosine", description="How a score is formed; see the module")
        threshold: float = Field(
            default=0.5, ge=-1, le=1, description="Cosine that the map 'threshold' asks for"
        )
        no_face: Literal["status", "zero"] = Field(
            default="status",
            description="A picture without a face: a row without a value, which coverage shows; or "
            "zero, since the identity is lost",
        )

    def score(self, items: list[Item]) -> list[Result]:
        """Return one result per item."""
        return [self._one(item) for item in items]

    def _one(self, item: Item) -> Result:
        image = item.image or Vector(Status.MISSING)
        found = [
            face_score(image, reference, self.params.map, self.params.threshold)
            for reference in item.references
        ]
        if not found:
            return Result(Status.MISSING)
        bad = next((r for r in found if r.status is not Status.OK), None)
        if bad and bad.status is Status.NO_FACE and self.params.no_face == "zero":
            return Result(Status.OK, 0.0, 0, {"policy": "zero"})
        if bad:
            return bad
        values = [r.value for r in found if r.value is not None]
        return Result(Status.OK, sum(values) / len(values), len(values))


PLUGIN = FaceSimilarity
