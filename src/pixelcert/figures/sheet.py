"""Sheet: a figure laid out in inches, with its style and its file."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from io import BytesIO
from pathlib import Path
from types import MappingProxyType
from typing import Any, ParamSpec, TypeVar

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.patches import Patch, Rectangle

from ..basics.files import write_atomically
from ..basics.locks import one_at_a_time
from ..basics.messages import ArgumentError
from .palette import FAINT, FAMILIES, INK, MISSING, SOFT, Colour

MARGIN, HEADING, LINE = 0.22, 0.5, 0.155  # inches; a line of the caption or the legend
EDGE: Mapping[str, Any] = MappingProxyType({"edgecolor": "#999999", "linewidth": 0.5})  # around colours of a legend
BASELINE: Mapping[str, Any] = MappingProxyType({"color": INK, "linewidth": 0.8, "linestyle": (0, (4, 2))})
Key = Mapping[str, Colour]  # of a legend, by name
_NO_KEY: Key = MappingProxyType({})
_WIDTH_OF_LETTER = 0.0575  # inches, roughly, in the caption
_NARROWEST = 4.6

_TICKS = {"color": SOFT, "labelcolor": INK, "major.width": 0.6, "major.size": 2.5}
STYLE: Any = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, and has σ, τ and ℓ
    "font.size": 7.5,
    "axes.linewidth": 0.6,
    "axes.edgecolor": "#888888",
    "axes.labelcolor": INK,
    "axes.unicode_minus": True,
    **{f"{axis}tick.{name}": value for axis in "xy" for name, value in _TICKS.items()},
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
T = TypeVar("T")


def styled(draw: Callable[P, T]) -> Callable[P, T]:
    """Make `draw` use this style, whatever the user's matplotlib is set to."""

    @wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> T:
        with one_at_a_time, matplotlib.rc_context(STYLE):
            return draw(*args, **kwargs)

    return drawn


class Sheet:
    """A matplotlib figure: a title, contents of a given size in inches, then the legend and the caption."""

    def __init__(
        self, title: str, width: float, height: float, caption: str, legend_lines: int = 0, key: Key = _NO_KEY
    ) -> None:
        """Lay the sheet out. The legend is the `key`, names of colours, or `legend_lines` lines to fill later."""
        self.width = max(width, _NARROWEST) + 2 * MARGIN
        lines = _wrap(caption, int((self.width - 2 * MARGIN) / _WIDTH_OF_LETTER))
        packed = _pack(key, self.width - 2 * MARGIN)
        self._lines_below = len(lines) + (legend_lines or len(packed)) - 1  # below the first of the legend
        self.height = HEADING + height + (MARGIN + (self._lines_below + 1) * LINE + 0.12)
        self.figure = Figure(figsize=(self.width, self.height))
        self.text(0, -HEADING + 0.17, title, fontsize=10, weight="bold", va="top")
        where = (MARGIN / self.width, 0.12 / self.height)
        self.figure.text(*where, "\n".join(lines), fontsize=6.8, color=SOFT, va="bottom", linespacing=1.45)
        for line, names in enumerate(packed):
            self.legend(patches((name, key[name]) for name in names), line)

    def axes(self, left: float, top: float, width: float, height: float) -> Axes:
        """Add axes at inches from the contents' left and top."""
        bottom = self.height - HEADING - top - height
        box = ((MARGIN + left) / self.width, bottom / self.height, width / self.width, height / self.height)
        return self.figure.add_axes(box)

    def chart(self, left: float, top: float, width: float, height: float, title: str, fontsize: float) -> Axes:
        """Add axes for a chart, with a title and a grid, and a line at their left and bottom only."""
        axes = self.axes(left, top, width, height)
        axes.set_title(title, fontsize=fontsize, loc="left", pad=5)
        axes.grid(color=FAINT, linewidth=0.5)
        axes.set_axisbelow(True)
        axes.tick_params(labelsize=6.5)
        axes.spines[["top", "right"]].set_visible(False)
        return axes

    def text(self, left: float, top: float, text: str, **style: Any) -> None:
        """Write at inches from the contents' left and top."""
        self.figure.text(*self._place(left, top), text, **style)

    def line(self, left: float, right: float, top: float) -> None:
        """Draw a thin horizontal rule, under a heading that spans columns."""
        width = (right - left) / self.width
        self.figure.add_artist(Rectangle(self._place(left, top), width, 0.0, edgecolor="#aaaaaa", linewidth=0.6))

    def _place(self, left: float, top: float) -> tuple[float, float]:
        """Convert inches from the contents' left and top to matplotlib's shares of the sheet."""
        return (MARGIN + left) / self.width, (self.height - HEADING - top) / self.height

    def legend(self, handles: Sequence[Artist], line: int = 0, left: float = 0.0) -> None:
        """Add handles in one line of the legend; line 0 is on top."""
        where = (MARGIN + left) / self.width, (0.2 + (self._lines_below - line) * LINE) / self.height
        spaces = {"columnspacing": 1.5, "handletextpad": 0.5}
        self.figure.add_artist(add_legend(self.figure, handles, where, fontsize=7, **spaces))

    def family_legend(self, handles: Mapping[str, Sequence[Artist]]) -> None:
        """Add a line of handles for each family, behind the family's name."""
        for line, (family, own) in enumerate(handles.items()):
            self.legend(own, line, left=1.0)
            y = (0.25 + (self._lines_below - line) * LINE) / self.height
            colour = FAMILIES[family]
            self.figure.text(MARGIN / self.width, y, family, fontsize=7, weight="bold", color=colour, va="center")


def add_legend(figure: Figure, handles: Sequence[Artist], where: tuple[float, float], **style: Any) -> Legend:
    """Add a legend of one line without a frame; `where` is its lower left corner, in shares of the figure."""
    bare: dict[str, Any] = {"borderaxespad": 0, "borderpad": 0, "handlelength": 1.4, "frameon": False}
    ncols = len(handles)
    return figure.legend(handles=handles, loc="lower left", bbox_to_anchor=where, ncols=ncols, **bare, **style)


def patches(colours: Iterable[tuple[str, Colour]], **edge: Any) -> list[Artist]:
    """Make a legend's patches from names and colours."""
    return [Patch(facecolor=colour, label=name, **(edge or EDGE)) for name, colour in colours]


def _wrap(caption: str, letters: int) -> list[str]:
    """Break a caption into lines, but not at no-break spaces."""
    lines = [line for text in caption.splitlines() for line in textwrap.wrap(text, letters)]
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]


def _pack(names: Iterable[str], width: float) -> list[list[str]]:
    """Spread names over as many lines as they need, each with room for its patch."""
    lines, room = list[list[str]](), 0.0
    for name in names:
        needed = 0.42 + _WIDTH_OF_LETTER * len(name)
        if not lines or needed > room:
            lines.append([])
            room = width
        lines[-1].append(name)
        room -= needed
    return lines


def frame(axes: Axes, width: float = 0.6) -> None:
    """Give a picture's axes a faint frame without ticks."""
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set(color=FAINT, linewidth=width)


def hatch(axes: Axes, box: tuple[float, float, float, float], why: str, fontsize: float, pad: float, **at: Any) -> None:
    """Hatch a box (left, bottom, width, height) and write why, so that a missing measure does not look like zero."""
    left, bottom, width, height = box
    ground: dict[str, Any] = {"facecolor": MISSING, "edgecolor": "#cfcfcf", "hatch": "////", "linewidth": 0}
    axes.add_patch(Rectangle((left, bottom), width, height, **ground, **at))
    behind = {"facecolor": "white", "edgecolor": "none", "pad": pad, "alpha": 0.85}
    middle = (left + width / 2, bottom + height / 2)
    axes.text(*middle, why, fontsize=fontsize, color=SOFT, ha="center", va="center", bbox=behind, **at)


def show_missing(axes: Axes, why: str, fontsize: float = 6.5) -> None:
    """Fill axes with a hatch and a word."""
    hatch(axes, (0, 0, 1, 1), why, fontsize, 1.2, transform=axes.transAxes)
    frame(axes)


_METADATA: Mapping[str, dict[str, Any]] = MappingProxyType(  # no dates, and no versions of the writing library
    {"png": {"Software": None}, "pdf": {"CreationDate": None, "Producer": None, "Creator": None}, "svg": {"Date": None}}
)


def save(figure: Figure, path: str | Path) -> Path:
    """Write a figure in one step, in the format that its suffix names. Equal figures make equal files."""
    kind, data = _kind_of(path), BytesIO()
    with one_at_a_time, matplotlib.rc_context({**STYLE, "svg.hashsalt": "pixelcert"}):
        figure.savefig(data, format=kind, metadata=_METADATA[kind])
    return write_atomically(path, data.getvalue())


def plotted(draw: Callable[[], Figure], path: str | Path | None) -> Figure:
    """Draw a figure, and save it if a path is given; refuse the path before drawing."""
    if path is not None:
        _kind_of(path)
    figure = draw()
    if path is not None:
        save(figure, path)
    return figure


def _kind_of(path: str | Path) -> str:
    kind = Path(path).suffix.removeprefix(".").lower()
    if kind not in _METADATA:
        raise ArgumentError(f"path={path} does not name a kind of picture: end it in .png, .pdf or .svg.")
    return kind
