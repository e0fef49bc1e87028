"""Palette: the colours of labels, levels, maps and families, and pictures painted in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from numpy.typing import NDArray

from ..plan import ABSTAIN

Colour = tuple[float, float, float]

ZERO: Colour = (1.0, 1.0, 1.0)
ABSTAINED: Colour = to_rgb("#b9bcc0")
RADIUS_MAP = "viridis"
INK, SOFT, FAINT = "#222222", "#666666", "#dddddd"  # text, lesser text, frames
TARGET = "#0a5bd3"  # the outline of a grid's target cell
MISSING = "#f4f4f4"  # the ground of what was not measured, below a hatch
_ONES = colormaps["inferno_r"]  # even steps of lightness, also in grey and to colour-blind eyes
ATTRIBUTION = LinearSegmentedColormap.from_list(  # the same, from white
    "attribution", ["white", *(_ONES(shade) for shade in np.linspace(0.15, 0.95, 9))]
)

FAMILIES: Mapping[str, str] = MappingProxyType(
    {"backpropagation": "#1f5fa8", "activation": "#cf5a08", "perturbation": "#8c3a66"}
)


def level_colours(levels: Sequence[float]) -> dict[float, Colour]:
    """Return a colour for label 1 at each level, darker for smaller K."""
    descending = sorted(levels, reverse=True)
    shades = np.linspace(0.3, 0.8, len(descending)) if len(descending) > 1 else [0.6]
    return {level: to_rgb(_ONES(float(shade))) for level, shade in zip(descending, shades, strict=True)}


def paint_labels(labels: NDArray[np.int8], one: Colour) -> NDArray[np.float64]:
    """Paint labels (H, W) as a picture (H, W, 3)."""
    picture = np.empty((*labels.shape, 3))
    for label, colour in ((1, one), (0, ZERO), (ABSTAIN, ABSTAINED)):
        picture[labels == label] = colour
    return picture


def paint_overlay(
    overlay: NDArray[np.float32], colours: dict[float, Colour], photo: NDArray[np.uint8] | None
) -> NDArray[np.float64]:
    """Paint each pixel's smallest certified level over the photograph in pale grey: (H, W, 3)."""
    picture = np.full((*overlay.shape, 3), 0.93)
    if photo is not None:
        picture[:] = 0.55 + 0.45 * photo.mean(axis=2, keepdims=True) / 255
    for level, colour in colours.items():
        inside = overlay == level
        picture[inside] = 0.2 * picture[inside] + 0.8 * np.asarray(colour)
    return picture


def tint(colour: str, strength: float) -> Colour:
    """Mix a colour with white: strength 1 keeps the colour, 0 gives white."""
    red, green, blue = to_rgb(colour)
    return 1 - strength * (1 - red), 1 - strength * (1 - green), 1 - strength * (1 - blue)


def shades(colour: str) -> tuple[Colour, Colour, Colour]:
    """Return dark, medium and light, for the shares certified 1, certified 0 and abstained."""
    return tint(colour, 1.0), tint(colour, 0.45), tint(colour, 0.1)


def ramp(colour: str, steps: int) -> list[Colour]:
    """Return `steps` colours of one hue, from the colour itself to a light one."""
    return [tint(colour, float(strength)) for strength in np.linspace(1.0, 0.35, steps)]


def paint_shades(labels: NDArray[np.int8]) -> NDArray[np.float64]:
    """Shade labels (H, W) as the paper does for AggAtt: label 1 is 1.0 (black), 0 is 0.0 (white), abstention is 0.5."""
    return np.select([labels == 1, labels == 0], [1.0, 0.0], 0.5)
