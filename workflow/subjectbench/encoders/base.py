"""The contract of an encoder: pictures or texts in, one vector each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from pydantic import BaseModel

from subjectbench.cards import EncoderCard

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image

T = TypeVar("T")


def fixed_batches(items: Sequence[T], size: int) -> Iterator[tuple[list[T], int]]:
    """Cut into batches of exactly ``size``, the last padded with its last item.

    Yields each batch and how many of it count. A matrix product may round differently for another
    number of rows; with one shape for all, neither shard nor batch size can change a digit.
    """
    for start in range(0, len(items), size):
        batch = list(items[start : start + size])
        yield batch + [batch[-1]] * (size - len(batch)), len(batch)


class Encoder(ABC):
    """Embeds pictures, and texts where the model has a text side. Loading happens in ``load``."""

    version: ClassVar[str] = "1"
    embeds_text: ClassVar[bool] = False

    class Params(BaseModel):
        """Parameters of the card; subclasses extend it with ``extra='forbid'``."""

    def __init__(self, params: Any, card: EncoderCard, device: str) -> None:
        self.params, self.card, self.device = params, card, device

    @abstractmethod
    def images(self, pictures: Sequence[Image.Image]) -> np.ndarray:
        """Embed RGB pictures. Returns float32 (n, d), not normalised."""

    def texts(self, texts: Sequence[str]) -> np.ndarray:
        """Embed texts. Returns float32 (n, d), not normalised.

        Raises:
            NotImplementedError: the model has no text side.
        """
        raise NotImplementedError
