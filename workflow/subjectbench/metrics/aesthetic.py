"""LAION's aesthetic predictors: linear layers on a picture's CLIP embedding of unit length.

The published heads are ``Linear`` layers with nothing but dropout between them: five for
"sac+logos+ava1-l14-linearMSE" (768, 1024, 128, 64, 16, 1), one for "sa_0_4_vit_l_14_linear". They
were trained on ratings of 1 to 10; the value is the head's, not clipped. Neither prompt nor
reference counts.
Source: repositories christophschuhmann/improved-aesthetic-predictor, LAION-AI/aesthetic-predictor.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING

from pydantic import Field

from subjectbench import checkpoint
from subjectbench.config import Strict
from subjectbench.errors import InputError
from subjectbench.metrics.base import Item, Metric, Result
from subjectbench.vocabulary import Status

if TYPE_CHECKING:
    import numpy as np

    Layer = tuple[np.ndarray, np.ndarray]
    """Weight (out, in) and bias (out,), float64."""


class Aesthetic(Metric):
    """Applies the head of the card's weights to the picture's embedding."""

    needs = frozenset({"image"})

    class Params(Strict):
        """Parameters of an aesthetic card."""

        file: str = Field(description="File of the head in the weights' folder")
        sizes: list[int] = Field(
            min_length=2, description="Width of the embedding, then of each layer's output, to 1"
        )

    @cached_property
    def layers(self) -> list[Layer]:
        """The head, read when first needed.

        Raises:
            InputError: a tensor is missing, unexpected or of another shape.
        """
        assert self.card.weights is not None
        file = checkpoint.folder(self.card.weights) / self.params.file
        state = checkpoint.tensors(file)
        # "layers.0.weight", "layers.2.weight", ... as dropout has numbers too; or "weight" alone.
        numbers = sorted({int(n) for name in state for n in re.findall(r"^layers\.(\d+)\.", name)})
        names = [f"layers.{n}." for n in numbers] or [""]
        wanted = {f"{name}{kind}" for name in names for kind in ("weight", "bias")}
        if set(state) != wanted:
            odd = min(set(state) ^ wanted)
            raise InputError(file, f"'{odd}' is missing or not known", "use the right head")
        layers = [
            tuple(state[f"{n}{kind}"].double().numpy() for kind in ("weight", "bias"))
            for n in names
        ]
        found = [layers[0][0].shape[1], *(weight.shape[0] for weight, _ in layers)]
        pairs = zip(self.params.sizes, self.params.sizes[1:], strict=False)
        if [(w.shape, b.shape) for w, b in layers] != [((o, i), (o,)) for i, o in pairs]:
            raise InputError(
                file,
                f"layers are {found} wide, the card says {self.params.sizes}",
                "use the right head",
            )
        return layers

    def score(self, items: list[Item]) -> list[Result]:
        """Return one result per item; a zero or non-finite embedding becomes ``non_finite``."""
        return [self._one(item) for item in items]

    def _one(self, item: Item) -> Result:
        import numpy as np

        if item.image is None or item.image.values is None:
            return Result(item.image.status if item.image else Status.MISSING)
        state = item.image.values.astype(np.float64)
        norm = float(np.linalg.norm(state))
        if not np.isfinite(norm) or norm == 0.0:
            return Result(Status.NON_FINITE)
        state = state / norm
        for weight, bias in self.layers:
            state = weight @ state + bias
        value = float(state[0])
        return Result(Status.OK, value, 1) if np.isfinite(value) else Result(Status.NON_FINITE)


PLUGIN = Aesthetic
