"""One palette for every figure: ones from light to dark as K shrinks, zeros white, abstained grey."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import to_rgb
from numpy.typing import NDArray

from ..certificate import ABSTAIN

Colour = tuple[float, float, float]

ZERO: Colour = (1.0, 1.0, 1.0)
ABSTAINED: Colour = to_rgb("#b9bcc0")
RADIUS_MAP = "viridis"
_ONES = colormaps["inferno_r"]  # even steps of lightness, also in grey and to colour-blind eyes


def level_colours(levels: Sequence[float]) -> dict[float, Colour]:
    """A colour for label 1 at each level; the smaller K, the darker."""
    descending = sorted(levels, reverse=True)
    shades = np.linspace(0.3, 0.8, len(descending)) if len(descending) > 1 else [0.6]
    return {level: to_rgb(_ONES(float(shade))) for level, shade in zip(descending, shades, strict=True)}


def paint_labels(labels: NDArray[np.int8], one: Colour) -> NDArray[np.float64]:
    """Labels (H, W) as a picture (H, W, 3)."""
    picture = np.empty((*labels.shape, 3))
    for label, colour in ((1, one), (0, ZERO), (ABSTAIN, ABSTAINED)):
        picture[labels == label] = colour
    return picture


def paint_overlay(
    overlay: NDArray[np.float32], colours: dict[float, Colour], photo: NDArray[np.uint8] | None
) -> NDArray[np.float64]:
    """The smallest certified level of each pixel, over the photograph in pale grey: (H, W, 3)."""
    picture = np.full((*overlay.shape, 3), 0.93)
    if photo is not None:
        picture[:] = 0.55 + 0.45 * photo.mean(axis=2, keepdims=True) / 255
    for level, colour in colours.items():
        inside = overlay == level
        picture[inside] = 0.2 * picture[inside] + 0.8 * np.asarray(colour)
    return picture
