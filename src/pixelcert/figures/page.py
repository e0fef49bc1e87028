"""Page: a figure laid out in inches, with a title, a caption line and a legend below, drawn in one style."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from types import MappingProxyType
from typing import Any, ParamSpec

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from .palette import FAINT, INK, MISSING, SOFT, Colour

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


class Page:
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
