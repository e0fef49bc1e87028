"""Sheet: a figure laid out in inches, its style and its colours."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from types import MappingProxyType
from typing import Any, ParamSpec

import matplotlib
import numpy as np
from matplotlib import colormaps
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
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
LOOKS: Mapping[str, tuple[str, str]] = MappingProxyType(  # a colour and a marker
    {
        "grad": ("#b3d9f2", "o"),
        "gb": ("#74b8e8", "s"),
        "intgrad": ("#3b8fd0", "^"),
        "ixg": ("#1f5fa8", "v"),
        "lrp": ("#08306b", "D"),
        "cam": ("#ffd68a", "o"),
        "grad_cam": ("#7a2a00", "s"),
        "grad_cam_pp": ("#c04a00", "P"),
        "ablation_cam": ("#e8780c", "X"),
        "layer_cam": ("#f9a83c", "^"),
        "rise": ("#4c2237", "o"),
        "occlusion": ("#b55183", "s"),
    }
)


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


def tint(colour: str, strength: float) -> Colour:
    """The colour mixed with white: itself at strength 1, white at 0."""
    red, green, blue = to_rgb(colour)
    return 1 - strength * (1 - red), 1 - strength * (1 - green), 1 - strength * (1 - blue)


def shades(colour: str) -> tuple[Colour, Colour, Colour]:
    """Dark, medium and light, for the shares certified 1, certified 0 and abstained."""
    return tint(colour, 1.0), tint(colour, 0.45), tint(colour, 0.1)


def ramp(colour: str, steps: int) -> list[Colour]:
    """`steps` colours of one hue, from the colour itself to a light one."""
    return [tint(colour, float(strength)) for strength in np.linspace(1.0, 0.35, steps)]


def paint_shades(labels: NDArray[np.int8]) -> NDArray[np.float64]:
    """Labels (H, W) as the paper shades them for AggAtt: 1 black (1.0), 0 white (0.0), an abstained pixel half-way."""
    return np.select([labels == 1, labels == 0], [1.0, 0.0], 0.5)


MARGIN, HEADING, LINE = 0.22, 0.5, 0.155  # inches; a line is one of the caption or the legend
HATCH = "////"
_WIDTH_OF_LETTER = 0.0575  # inches, about, of the caption's
_NARROWEST = 4.6

STYLE: Any = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, and has σ, τ and ℓ
    "font.size": 7.5,
    "axes.linewidth": 0.6,
    "axes.edgecolor": "#888888",
    "axes.labelcolor": INK,
    "axes.unicode_minus": True,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "hatch.linewidth": 0.5,
    "text.color": INK,
    "text.parse_math": False,  # names may hold dollars
    "text.usetex": False,
    "figure.dpi": 200,
    "savefig.dpi": "figure",
    "savefig.bbox": None,
    "pdf.fonttype": 42,  # text stays text
    "pdf.compression": 6,
}

P = ParamSpec("P")


def styled(function: Callable[P, Figure]) -> Callable[P, Figure]:
    """Run in the figures' own style, whatever the user's matplotlib is set to."""

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with matplotlib.rc_context(STYLE):
            return function(*args, **kwargs)

    return run


class Sheet:
    """A figure of a content's width and height in inches, between its title and a footer of legend and caption."""

    def __init__(
        self,
        title: str,
        width: float,
        height: float,
        caption: str,
        *,
        legend_lines: int = 0,
        key: Mapping[str, Colour] = MappingProxyType({}),
    ) -> None:
        """The legend has `legend_lines` to be filled later, or is the `key`, names of colours."""
        self.width = max(width, _NARROWEST) + 2 * MARGIN
        lines = _wrap(caption, int((self.width - 2 * MARGIN) / _WIDTH_OF_LETTER))
        packed = _pack(key, self.width - 2 * MARGIN)
        self._legend_lines, self._caption_lines = legend_lines or len(packed), len(lines)
        self._footer = MARGIN + (self._caption_lines + self._legend_lines) * LINE + 0.12
        self.height = HEADING + height + self._footer
        self.figure = Figure(figsize=(self.width, self.height))
        self.text(0, -HEADING + 0.17, title, fontsize=10, weight="bold", va="top")
        where = (MARGIN / self.width, 0.12 / self.height)
        self.figure.text(*where, "\n".join(lines), fontsize=6.8, color=SOFT, va="bottom", linespacing=1.45)
        for line, names in enumerate(packed):
            patches = [Patch(facecolor=key[name], edgecolor="#999999", linewidth=0.5, label=name) for name in names]
            self.legend(patches, line)

    def axes(self, left: float, top: float, width: float, height: float) -> Axes:
        """Axes at inches from the content's left and top."""
        bottom = self.height - HEADING - top - height
        box = ((MARGIN + left) / self.width, bottom / self.height, width / self.width, height / self.height)
        return self.figure.add_axes(box)

    def text(self, left: float, top: float, text: str, **style: Any) -> None:
        x, y = (MARGIN + left) / self.width, (self.height - HEADING - top) / self.height
        self.figure.text(x, y, text, **style)

    def line(self, left: float, right: float, top: float) -> None:
        """A thin horizontal rule, under a heading that spans columns."""
        y = (self.height - HEADING - top) / self.height
        rule = Rectangle(
            ((MARGIN + left) / self.width, y), (right - left) / self.width, 0.0, edgecolor="#aaaaaa", linewidth=0.6
        )
        self.figure.add_artist(rule)

    def legend(self, handles: Sequence[Artist], line: int = 0, left: float = 0.0, **style: Any) -> None:
        """Handles in one line of the footer, the first line on top."""
        lines_below = self._caption_lines + self._legend_lines - line - 1
        legend = self.figure.legend(
            handles=list(handles),
            loc="lower left",
            bbox_to_anchor=((MARGIN + left) / self.width, (0.2 + lines_below * LINE) / self.height),
            ncols=max(len(handles), 1),
            borderaxespad=0,
            borderpad=0,
            columnspacing=1.5,
            handletextpad=0.5,
            handlelength=1.4,
            fontsize=7,
            frameon=False,
            **style,
        )
        self.figure.add_artist(legend)

    def name(self, line: int, text: str, colour: str) -> None:
        """What a line of the legend is about, at its left."""
        lines_below = self._caption_lines + self._legend_lines - line - 1
        y = (0.25 + lines_below * LINE) / self.height
        self.figure.text(MARGIN / self.width, y, text, fontsize=7, weight="bold", color=colour, va="center")


def _wrap(caption: str, letters: int) -> list[str]:
    """The caption's lines; what is joined by no-break spaces stays together."""
    lines = [line for text in caption.splitlines() for line in textwrap.wrap(text, letters)]
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]


def _pack(names: Iterable[str], width: float) -> list[list[str]]:
    """Names in as many lines as they need, each with its patch."""
    lines, room = list[list[str]](), 0.0
    for name in names:
        needed = 0.42 + _WIDTH_OF_LETTER * len(name)
        if not lines or needed > room:
            lines.append([])
            room = width
        lines[-1].append(name)
        room -= needed
    return lines


def show_missing(axes: Axes, why: str, fontsize: float = 6.5) -> None:
    """Fill axes with a hatch and a word: nothing was measured here, which is not a zero."""
    axes.set(xticks=[], yticks=[])
    axes.add_patch(
        Rectangle((0, 0), 1, 1, transform=axes.transAxes, facecolor=MISSING, edgecolor="#cfcfcf", hatch=HATCH, lw=0)
    )
    box = {"facecolor": "white", "edgecolor": "none", "pad": 1.2, "alpha": 0.85}
    axes.text(
        0.5, 0.5, why, transform=axes.transAxes, ha="center", va="center", fontsize=fontsize, color=SOFT, bbox=box
    )
    for spine in axes.spines.values():
        spine.set(color=FAINT, linewidth=0.6)
