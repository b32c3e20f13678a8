"""What face encoders share: which face counts, and how it is aligned.

Rules, the same for every face encoder:

- a picture is searched in its own pixels, never squashed to another shape;
- boxes are clipped to the picture, and a box whose shorter side is then below ``min_face`` pixels
  is no face;
- of several faces the largest box counts; of equal ones the nearest to the picture's centre, then
  the left-most, then the upper-most;
- no face left: ``no_face``. A face whose landmarks allow no alignment: ``failed``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import Field

from subjectbench.config import Strict
from subjectbench.encoders.base import Encoder, Vector, as_vector
from subjectbench.vocabulary import Status

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image

SIDE = 112
"""Side in pixels of an aligned face."""

TEMPLATE = (
    (38.2946, 51.6963),
    (73.5318, 51.5014),
    (56.0252, 71.7366),
    (41.5493, 92.3655),
    (70.7299, 92.2041),
)
"""Where the eyes, the nose tip and the corners of the mouth (left of the picture first) lie in an
aligned face, x and y in pixels. The standard of ArcFace (Deng et al. 2019) and SphereFace."""


@dataclass(frozen=True)
class Face:
    """A detected face.

    ``box`` is left, top, right, bottom in pixels, right and bottom exclusive; ``found`` is what the
    encoder needs to embed it (landmarks, or the detector's own rectangle).
    """

    box: tuple[float, float, float, float]
    found: Any


def similarity(points: np.ndarray, target: np.ndarray) -> np.ndarray | None:
    """Rotation, uniform scale and shift that bring ``points`` nearest to ``target``.

    Least squares over proper similarities: no reflection, whatever the points. In the plane,
    Umeyama's solution (1991, equations 40 to 42) is a regression on complex numbers, whose slope is
    ``covariance / variance`` with ``variance = sum(|x - mean|^2) / n``, n the number of points. (To
    average the variance over the 2n coordinates instead would double the scale.)

    Args:
        points: (n, 2), x and y in pixels.
        target: (n, 2).

    Returns:
        (2, 3) matrix for column vectors ``(x, y, 1)``. None where there is no answer: a point is
        not finite, the points lie within about a pixel of each other, or no rotation is better
        than another.
    """
    import numpy as np

    if not np.isfinite(points).all():
        return None
    x = points[:, 0] + 1j * points[:, 1]
    y = target[:, 0] + 1j * target[:, 1]
    from_mean = x - x.mean()
    variance = np.mean(np.abs(from_mean) ** 2)
    if variance < 1.0:
        return None
    slope = np.mean(from_mean.conj() * (y - y.mean())) / variance
    if abs(slope) < 1e-6:
        return None
    shift = y.mean() - slope * x.mean()
    return np.array([[slope.real, -slope.imag, shift.real], [slope.imag, slope.real, shift.imag]])


def largest(faces: Sequence[Face], size: tuple[int, int], min_face: int) -> Face | None:
    """Choose the face that counts, by the rules above.

    Args:
        faces: in any order.
        size: width and height of the picture.
        min_face: pixels.
    """

    ranked = []
    for number, face in enumerate(faces):
        left, top, right, bottom = _clip(face.box, size)
        width, height = right - left, bottom - top
        if width >= min_face and height >= min_face:
            off = (left + right - size[0]) ** 2 + (top + bottom - size[1]) ** 2
            ranked.append((-width * height, off, left, top, number))
    return faces[min(ranked)[-1]] if ranked else None


def _clip(
    box: tuple[float, float, float, float], size: tuple[int, int]
) -> tuple[float, float, float, float]:
    left, top, right, bottom = box
    return max(left, 0), max(top, 0), min(right, size[0]), min(bottom, size[1])


class FaceEncoder(Encoder):
    """Embeds the face that counts of each picture."""

    class Params(Strict):
        """Parameters of every face encoder."""

        min_face: int = Field(
            default=20, ge=1, description="Shorter side in pixels below which a box is no face"
        )

    @abstractmethod
    def detect(self, pixels: np.ndarray) -> list[Face]:
        """Find the faces in RGB pixels, uint8 (height, width, 3)."""

    @abstractmethod
    def embed(self, pixels: np.ndarray, face: Face) -> np.ndarray | None:
        """Align and embed one face. Returns float (d,), or None if it cannot be aligned."""

    def vectors(self, pictures: Sequence[Image.Image]) -> list[Vector]:
        """Embed the face that counts of each picture: ``ok``, ``no_face`` or ``failed``."""
        return [self._one(picture) for picture in pictures]

    def _one(self, picture: Image.Image) -> Vector:
        import numpy as np

        pixels = np.array(picture.convert("RGB"))
        face = largest(self.detect(pixels), picture.size, self.params.min_face)
        if face is None:
            return Vector(Status.NO_FACE)
        values = self.embed(pixels, face)
        return Vector(Status.FAILED) if values is None else as_vector(values)

    def images(self, pictures: Sequence[Image.Image]) -> np.ndarray:
        """Embed pictures of which each is known to show a face. Returns float32 (n, d).

        Raises:
            ValueError: one has no embedding; ``vectors`` says so without raising.
        """
        import numpy as np

        rows = []
        for number, vector in enumerate(self.vectors(pictures)):
            if vector.values is None:
                raise ValueError(f"picture {number}: {vector.status}")
            rows.append(vector.values)
        return np.stack(rows)
