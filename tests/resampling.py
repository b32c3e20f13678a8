"""Resizing written out in numpy, to compare with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def cubic(x: float) -> float:
    """Keys' kernel with a = -0.5, as Pillow and antialiased tensors are resized by."""
    x = abs(x)
    if x < 1:
        return (1.5 * x - 2.5) * x * x + 1
    return ((-0.5 * x + 2.5) * x - 4) * x + 2 if x < 2 else 0.0


def linear(x: float) -> float:
    """The triangle of bilinear resizing."""
    return max(0.0, 1 - abs(x))


def resize_matrix(
    before: int, after: int, kernel: Callable[[float], float] = cubic, support: float = 2
) -> np.ndarray:
    """Weights (after, before) of one axis, the kernel widened where the picture shrinks."""
    scale = before / after
    wide = max(scale, 1.0)
    out = np.zeros((after, before))
    for i in range(after):
        centre = (i + 0.5) * scale
        first = max(int(centre - support * wide + 0.5), 0)
        last = min(int(centre + support * wide + 0.5), before)
        for j in range(first, last):
            out[i, j] = kernel((j + 0.5 - centre) / wide)
        out[i] /= out[i].sum()
    return out


def resize(values: np.ndarray, size: tuple[int, int], **how: Any) -> np.ndarray:
    """Resize levels of 0 to 255, (height, width, 3), to a width and height, as Pillow does.

    Across first, then down; rounded and clipped to whole levels after each. Returns float64.
    """
    width, height = size
    wide = np.einsum("hwc,jw->hjc", values, resize_matrix(values.shape[1], width, **how))
    wide = np.floor(wide.clip(0, 255) + 0.5)
    both = np.einsum("ih,hjc->ijc", resize_matrix(values.shape[0], height, **how), wide)
    return np.floor(both.clip(0, 255) + 0.5)
