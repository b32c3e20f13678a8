"""The contract of an encoder: pictures, texts or pairs of both in, one vector each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel

from subjectbench.cards import EncoderCard
from subjectbench.vocabulary import Status

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image


@dataclass(frozen=True)
class Vector:
    """An embedding (d,) or the reason why there is none.

    ``details``: ``cut``, tokens that the text behind it lost at its end.
    """

    status: Status
    values: np.ndarray | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


class Encoder(ABC):
    """Embeds pictures, and texts where the model has a text side. Loading happens in ``load``.

    A model that reads a picture together with its prompt has no vector for either alone: it
    embeds ``pairs`` only.
    """

    version: ClassVar[str] = "1"
    embeds_text: ClassVar[bool] = False
    embeds_pairs: ClassVar[bool] = False

    class Params(BaseModel):
        """Parameters of the card; subclasses extend it with ``extra='forbid'``."""

    def __init__(self, params: Any, card: EncoderCard, device: str) -> None:
        self.params, self.card, self.device = params, card, device

    def kept(self, size: tuple[int, int]) -> float:
        """Share of a picture of this width and height that the encoder sees; less after a crop."""
        return 1.0

    def cut(self, texts: Sequence[str]) -> list[int]:
        """Tokens that each text loses at its end, because the model reads no more."""
        return [0] * len(texts)

    @abstractmethod
    def images(self, pictures: Sequence[Image.Image]) -> np.ndarray:
        """Embed RGB pictures. Returns float32 (n, d), not normalised.

        Raises:
            NotImplementedError: the model reads a picture with its prompt only.
        """

    def vectors(self, pictures: Sequence[Image.Image]) -> list[Vector]:
        """Embed RGB pictures; a picture may have no embedding (no face in it), and says why."""
        return [as_vector(values) for values in self.images(pictures)]

    def pairs(self, pictures: Sequence[Image.Image], texts: Sequence[str]) -> np.ndarray:
        """Embed RGB pictures, each with its prompt. Returns float32 (n, d), not normalised.

        Raises:
            NotImplementedError: the model reads pictures, or texts, by themselves.
        """
        raise NotImplementedError

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


def as_vector(values: np.ndarray, cut: int = 0) -> Vector:
    """Wrap an embedding; one that is all zero or not finite is none."""
    import numpy as np

    details = {"cut": cut} if cut else {}
    if np.isfinite(values).all() and np.any(values):
        return Vector(Status.OK, values.astype(np.float32), details)
    return Vector(Status.NON_FINITE, None, details)
