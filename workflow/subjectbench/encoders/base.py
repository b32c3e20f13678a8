"""The contract of an encoder: pictures or texts in, one vector each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel

from subjectbench.cards import EncoderCard

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image


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
