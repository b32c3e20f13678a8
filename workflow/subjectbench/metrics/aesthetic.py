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
from subjectbench.metrics.base import Item, Metric, Result, Vector
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
        prefix: str = Field(default="", description="Beginning of the head's names in that file")
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
        prefix = self.params.prefix
        found = checkpoint.tensors(file)
        state = {n.removeprefix(prefix): t for n, t in found.items() if n.startswith(prefix)}
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
        wide = [layers[0][0].shape[1], *(weight.shape[0] for weight, _ in layers)]
        pairs = zip(self.params.sizes, self.params.sizes[1:], strict=False)
        if [(w.shape, b.shape) for w, b in layers] != [((o, i), (o,)) for i, o in pairs]:
            raise InputError(
                file,
                f"layers are {wide} wide, the card says {self.params.sizes}",
                "use the right head",
            )
        return layers

    def score(self, items: list[Item]) -> list[Result]:
        """Return one result per item; a zero or non-finite embedding becomes ``non_finite``."""
        return [self.one(item.image) for item in items]

    def one(self, vector: Vector | None) -> Result:
        """Score one embedding."""
        import numpy as np

        if vector is None or vector.values is None:
            return Result(vector.status if vector else Status.MISSING)
        state = self.scaled(vector.values.astype(np.float64))
        if not np.isfinite(state).all():
            return Result(Status.NON_FINITE)
        for weight, bias in self.layers:
            state = weight @ state + bias
        return Result(Status.OK, self.named(float(state[0])), 1, vector.details)

    def scaled(self, values: np.ndarray) -> np.ndarray:
        """Bring an embedding, float64 (d,), to unit length; NaN where it has none."""
        import numpy as np

        norm = np.linalg.norm(values)
        return values / norm if 0 < norm < np.inf else values * np.nan

    def named(self, value: float) -> float:
        """Bring what the head says to the scale of the card."""
        return value


PLUGIN = Aesthetic
