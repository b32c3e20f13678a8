"""The leaderboard score S_h of DSH-Bench."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from subjectbench.errors import InputError

WEIGHTS = (1.5, 1.5, 1.0)
"""lambda, gamma and mu of DSH-Bench section 4: preservation, following, quality."""

CONSTANT = 3.0
"""Numerator of DSH-Bench equation (1)."""


@dataclass(frozen=True)
class Headline:
    """S_h, or why there is none.

    Attributes:
        value: positive, in the unit of the dimensions; None where undefined.
        reason: None, ``"missing"`` or ``"not_positive"``, followed by the dimension at fault.
    """

    value: float | None
    reason: str | None = None


def check_weights(weights: Sequence[float], constant: float) -> NDArray[np.float64]:
    """Return the three weights as floats.

    Raises:
        InputError: not three finite positive weights, or a constant that is not positive.
    """
    array = np.asarray(weights, dtype=np.float64)
    if array.shape != (3,) or not (np.isfinite(array) & (array > 0)).all():
        raise InputError("S_h", f"weights {list(weights)} are not three positive numbers")
    if not (math.isfinite(constant) and constant > 0):
        raise InputError("S_h", f"constant {constant} is not a positive number")
    return array


def s_h(
    preservation: float | None,
    following: float | None,
    quality: float | None,
    weights: Sequence[float] = WEIGHTS,
    constant: float = CONSTANT,
) -> Headline:
    """Combine three dimension means: S_h = constant / (w1/SP + w2/PF + w3/IQ).

    Source: DSH-Bench section 4, equation (1). The paper calls it a harmonic mean, yet its weights
    sum to 4 and its constant is 3: three equal dimensions s give 0.75 s. A weighted harmonic mean
    needs ``constant = sum(weights)``. The printed table follows the equation, so it is the default.

    Args:
        preservation: mean SP, in the unit of the metric (0 to 1 in the paper).
        following: mean PF.
        quality: mean IQ.
        weights: importance of SP, PF and IQ, positive.
        constant: numerator, positive.

    Returns:
        Undefined when a mean is missing (None or not finite), zero or negative.

    Raises:
        InputError: bad weights or constant.
    """
    w = check_weights(weights, constant)
    named = {"preservation": preservation, "following": following, "quality": quality}
    means: list[float] = []
    for name, mean in named.items():
        if mean is None or not math.isfinite(mean):
            return Headline(None, f"missing {name}")
        if mean <= 0:
            return Headline(None, f"not_positive {name}")
        means.append(mean)
    return Headline(float(constant / (w / np.array(means)).sum()))


def s_h_draws(
    means: NDArray[np.float64],
    weights: Sequence[float] = WEIGHTS,
    constant: float = CONSTANT,
) -> NDArray[np.float64]:
    """S_h of many draws at once.

    Args:
        means: shape (draws, 3), columns SP, PF, IQ; NaN where a mean is undefined.
        weights: as in ``s_h``.
        constant: as in ``s_h``.

    Returns:
        Shape (draws,), NaN where ``s_h`` would be undefined.

    Raises:
        InputError: bad weights or constant.
    """
    w = check_weights(weights, constant)
    safe = np.where(means > 0, means, np.nan)
    result: NDArray[np.float64] = constant / (w / safe).sum(axis=1)
    return result
