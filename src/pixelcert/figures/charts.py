"""Charts: axes in rows and columns that share one legend of methods, families grouped."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from .findings import Findings, Setting
from .names import layer_title, method_title, model_title
from .page import Page, show_missing
from .palette import FAINT, FAMILIES, LOOKS, SOFT

_LEFT, _ACROSS, _DOWN, _TOP, _BELOW = 0.5, 0.55, 0.95, 0.22, 0.72  # inches around panels
HOLLOW = "Hollow: rests on fewer than all images or grids."
EXPLAINED = (
    "Dashed: what chance would score. Grids on which nothing is certified 1 have no Certified GridPG and are left out; "
    f"a method without any other is undefined. {HOLLOW} Missing: not measured."
)
_LETTERS_PER_INCH = 22  # of the note below a panel


def style_of(findings: Findings, method: str) -> dict[str, Any]:
    """A method's line and marker; a variant has its method's, with the marker half filled."""
    base = findings.base(method)
    colour, marker = LOOKS.get(base, (FAMILIES[findings.family(method)], "*"))
    return {
        "color": colour,
        "marker": marker,
        "fillstyle": "full" if method == base else "left",
        "markerfacecolor": colour,
        "markerfacecoloralt": "white",
        "markeredgecolor": "#333333" if method == base else colour,
        "markeredgewidth": 0.5 if method == base else 1.2,
        "markersize": 5.5,
        "linewidth": 1.3,
    }


def drawn_style(findings: Findings, at: Setting, method: str) -> dict[str, Any]:
    """`style_of`, larger for the methods drawn first: those that score the same stay visible behind each other."""
    later = at.methods.index(method) / max(len(at.methods) - 1, 1)
    sizes = {"markersize": 7.0 - 3.0 * later, "linewidth": 2.1 - 1.1 * later}
    return {**style_of(findings, method), **sizes, "gid": method}


def hollow(style: dict[str, Any]) -> dict[str, Any]:
    """A style for points that rest on fewer than all scenes; a variant's keeps the line between its halves."""
    edge = {"markeredgecolor": style["color"], "markeredgewidth": 1.2}
    return {**style, "markerfacecolor": "white", "markerfacecoloralt": "white", **edge}


def places(at: Setting) -> tuple[list[list[tuple[str, str]]], list[str], list[str]]:
    """(model, layer) of each panel by row and column, with titles: layers across for one model, else models across."""
    layers = [layer_title(layer) for layer in at.layers]
    if len(at.models) == 1:
        return [[(at.model, layer) for layer in at.layers]], [""], layers
    grid = [[(model, layer) for model in at.models] for layer in at.layers]
    return grid, layers, [model_title(model) for model in at.models]


def lay_panels(
    findings: Findings,
    at: Setting,
    title: str,
    rows: Sequence[str],
    columns: Sequence[str],
    caption: str,
    *,
    room: float = 0.0,
    **line: Any,
) -> tuple[Page, list[list[Axes]]]:
    """A page of axes by row and column, and the legend of all methods below, their lines in the given style.

    `room` is in inches, for longer notes below each of the axes.
    """
    size = 2.9 if len(columns) <= 2 else 2.3 if len(columns) == 3 else 1.75
    families = findings.by_family(at.methods)
    width = _LEFT + len(columns) * size + (len(columns) - 1) * _ACROSS + 0.1
    height = _TOP + len(rows) * size + (len(rows) - 1) * (_DOWN + room) + _BELOW + room
    page = Page(title, width, height, caption, legend_lines=len(families))
    grid = []
    for row, name in enumerate(rows):
        top = _TOP + row * (size + _DOWN + room)
        grid.append([page.axes(_LEFT + c * (size + _ACROSS), top, size, size) for c in range(len(columns))])
        for axes, column in zip(grid[-1], columns, strict=True):
            axes.set_title(", ".join(part for part in (column, name) if part), fontsize=8, loc="left", pad=5)
            axes.grid(color=FAINT, linewidth=0.5)
            axes.set_axisbelow(True)
            axes.tick_params(labelsize=6.5)
            for side in ("top", "right"):
                axes.spines[side].set_visible(False)
    for number, (family, methods) in enumerate(families.items()):
        handles = [Line2D([], [], label=method_title(name), **style_of(findings, name), **line) for name in methods]
        page.legend(handles, number, left=1.0)
        page.name(number, family, FAMILIES[family])
    return page, grid


def note_absent(axes: Axes, absent: dict[str, list[str]], nothing: bool, few: Mapping[str, str] | None = None) -> None:
    """Say below the axes which methods are not drawn, and why; axes without any method are hatched.

    `few` says of methods on how many of all grids they rest.
    """
    said = [f"{why}: {', '.join(method_title(name) for name in names)}" for why, names in absent.items() if names]
    if few:
        said.append(f"fewer grids: {', '.join(f'{method_title(name)} {share}' for name, share in few.items())}")
    if nothing:
        show_missing(axes, "missing" if absent.get("missing") else "undefined", fontsize=8)
    if said:
        inches = axes.get_position().width * axes.figure.get_figwidth()  # type: ignore[union-attr]
        text = "\n".join(textwrap.wrap(". ".join(said), int(_LETTERS_PER_INCH * inches)))
        axes.annotate(
            text, (0, 0), (0, -31), "axes fraction", textcoords="offset points", fontsize=5.6, color=SOFT, va="top"
        )
