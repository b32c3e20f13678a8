"""The contract of an encoder: pictures or texts in, one vector each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel

from subjectbench.cards import EncoderCard
from subjectbench.vocabulary import Status

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image


@dataclass(frozen=True)
class Vector:
    """An embedding (d,) or the reason why there is none."""

    status: Status
    values: np.ndarray | None = None


class Encoder(ABC):
    """Embeds pictures, and texts where the model has a text side. Loading happens in ``load``."""

    version: ClassVar[str] = "1"
    embeds_text: ClassVar[bool] = False

    class Params(BaseModel):
        """Parameters of the card; subclasses extend it with ``extra='forbid'``."""

    def __init__(self, params: Any, card: EncoderCard, device: str) -> None:
        self.params, self.card, self.device = params, card, device

    def kept(self, size: tuple[int, int]) -> float:
        """Share of a picture of this width and height that the encoder sees; less after a crop."""
        return 1.0

    @abstractmethod
    def images(self, pictures: Sequence[Image.Image]) -> np.ndarray:
        """Embed RGB pictures. Returns float32 (n, d), not normalised."""

    def vectors(self, pictures: Sequence[Image.Image]) -> list[Vector]:
        """Embed RGB pictures; a picture may have no embedding (no face in it), and says why."""
        return [as_vector(values) for values in self.images(pictures)]

    def texts(self, texts: Sequence[str]) -> np.ndarray:
        """Embed texts. Returns float32 (n, d), not normalised.

        Raises:
            NotImplementedError: the model has no text side.
        """
        raise NotImplementedError


def check_rgb(pictures: Sequence[Image.Image]) -> None:
    """Refuse what is no 8-bit RGB picture: an array of 0 to 1 would be divided by 255 once more.

    Raises:
        TypeError: naming what was given.
    """
    for picture in pictures:
        mode = getattr(picture, "mode", None)
        if mode != "RGB":
            raise TypeError(f"expected RGB pictures, got {type(picture).__name__} {mode or ''}")


def as_vector(values: np.ndarray) -> Vector:
    """Wrap an embedding; one that is all zero or not finite is none."""
    import numpy as np

    if np.isfinite(values).all() and np.any(values):
        return Vector(Status.OK, values.astype(np.float32))
    return Vector(Status.NON_FINITE)
