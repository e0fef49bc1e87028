"""Charts: curves and scatter plots that share one legend of methods."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ..metrics import random_baseline
from ..study.findings import Findings, MetricAt, UnavailableError, View
from ..study.job import Job
from .sheet import FAINT, FAMILIES, INK, LOOKS, SOFT, Sheet, show_missing, styled
from .titles import caption, layer_title, method_title, model_title, of_model

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


def drawn_style(findings: Findings, at: View, method: str) -> dict[str, Any]:
    """`style_of`, larger for the methods drawn first: those that score the same stay visible behind each other."""
    later = at.methods.index(method) / max(len(at.methods) - 1, 1)
    sizes = {"markersize": 7.0 - 3.0 * later, "linewidth": 2.1 - 1.1 * later}
    return {**style_of(findings, method), **sizes, "gid": method}


def hollow(style: dict[str, Any]) -> dict[str, Any]:
    """A style for points that rest on fewer than all scenes; a variant's keeps the line between its halves."""
    edge = {"markeredgecolor": style["color"], "markeredgewidth": 1.2}
    return {**style, "markerfacecolor": "white", "markerfacecoloralt": "white", **edge}


def places(at: View) -> tuple[list[list[tuple[str, str]]], list[str], list[str]]:
    """(model, layer) of each panel by row and column, with titles: layers across for one model, else models across."""
    layers = [layer_title(layer) for layer in at.layers]
    if len(at.models) == 1:
        return [[(at.model, layer) for layer in at.layers]], [""], layers
    grid = [[(model, layer) for model in at.models] for layer in at.layers]
    return grid, layers, [model_title(model) for model in at.models]


def lay_panels(
    findings: Findings,
    at: View,
    title: str,
    rows: Sequence[str],
    columns: Sequence[str],
    caption: str,
    *,
    room: float = 0.0,
    **line: Any,
) -> tuple[Sheet, list[list[Axes]]]:
    """A page of axes by row and column, and the legend of all methods below, their lines in the given style.

    `room` is in inches, for longer notes below each of the axes.
    """
    size = 2.9 if len(columns) <= 2 else 2.3 if len(columns) == 3 else 1.75
    families = findings.by_family(at.methods)
    width = _LEFT + len(columns) * size + (len(columns) - 1) * _ACROSS + 0.1
    height = _TOP + len(rows) * size + (len(rows) - 1) * (_DOWN + room) + _BELOW + room
    page = Sheet(title, width, height, caption, legend_lines=len(families))
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


_AGAINST_TAU = {"image": ("certified", "%certified", 100.0), "grid": ("certified_grid_pg", "Certified GridPG", 1.0)}


@styled
def deletion_curves(findings: Findings, at: View) -> Figure:
    """Confidence in the explained class while pixels certified 1 are set to zero, from the smallest K up."""
    findings.require("image")
    if at.tau not in (taus := findings.settings.deletion_taus):
        known = ", ".join(f"{tau:g}" for tau in taus) or "none"
        raise UnavailableError(f"deletion was not measured at τ = {at.tau:g}, but at {known}: name it in deletion.")
    levels = sorted(findings.settings.levels)
    grid, rows, columns = places(at)
    note = "Mean confidence over the images. A steep fall at the first steps is a faithful explanation. " + HOLLOW
    cells = [
        findings.cell("image", model, method, layer, at)
        for row in grid
        for model, layer in row
        for method in at.methods
    ]
    stated = caption(findings, at, cells, level=levels, note=note)
    page, panels = lay_panels(findings, at, f"Deletion of certified pixels{of_model(at)}", rows, columns, stated)

    measures: list[MetricAt] = [("confidence", at.tau, None)]
    measures += [("deletion_confidence", at.tau, level) for level in levels]

    for axes, (model, layer) in zip(chain(*panels), chain(*grid), strict=True):
        cells_here = {method: findings.cell("image", model, method, layer, at) for method in at.methods}
        _draw_curves(findings, at, axes, range(len(levels) + 1), cells_here, measures)
        axes.set_xticks(range(len(levels) + 1), ["none", *(f"{level:g}" for level in levels)])
        axes.set_xlabel("K in %: pixels certified 1 up to it are deleted", fontsize=7, color=SOFT)
        axes.set_ylim(-0.02, 1.02)
        axes.set_ylabel("confidence", fontsize=7.5, color=SOFT)
    return page.figure


@styled
def effect_of_tau(findings: Findings, at: View) -> Figure:
    """%certified (above) and Certified GridPG (below) against τ."""
    taus = sorted(findings.settings.tau)
    if len(taus) < 2:
        raise UnavailableError(f"the study has one τ ({taus[0]:g}): name more in tau; they cost no sampling.")
    grid, rows, columns = places(at)
    kinds = [kind for kind in ("image", "grid") if findings.scenes(kind)]
    panels_of = [(kind, *place) for kind in kinds for row in grid for place in row]
    cells = [findings.cell(*panel[:2], method, panel[2], at) for panel in panels_of for method in at.methods]
    stated = caption(findings, at, cells, tau=taus, note=f"Means over images or grids. {EXPLAINED}")
    page, panels = lay_panels(findings, at, f"Effect of τ{of_model(at)}", rows * len(kinds), columns, stated)
    for axes, (kind, model, layer) in zip(chain(*panels), panels_of, strict=True):
        metric, title, limit = _AGAINST_TAU[kind]

        if kind == "grid":
            baseline = random_baseline(findings.settings.grids.side)
            axes.axhline(baseline, color=INK, linewidth=0.8, linestyle=(0, (4, 2)), zorder=1, gid="baseline")
        cells_here = {method: findings.cell(kind, model, method, layer, at) for method in at.methods}
        _draw_curves(findings, at, axes, taus, cells_here, [(metric, tau, at.level) for tau in taus])
        axes.set_xticks(taus, [f"{tau:g}" for tau in taus])
        axes.set_xlabel("τ", fontsize=7.5, color=SOFT)
        axes.set_ylim(-0.02 * limit, 1.02 * limit)
        axes.set_ylabel(title, fontsize=7.5, color=SOFT)
    return page.figure


def _draw_curves(
    findings: Findings,
    at: View,
    axes: Axes,
    x: Sequence[float],
    cells: dict[str, list[Job]],
    measures: Sequence[MetricAt],
) -> None:
    """A line through each method's measures; one without any value is named below, a point without one is left out.

    Points that rest on fewer than all jobs are hollow: along a line the jobs would otherwise change unseen.
    """
    absent: dict[str, list[str]] = {"missing": [], "undefined": []}
    for method, cell in cells.items():
        heights = [findings.mean(cell, *measure) for measure in measures]
        if all(height is None for height in heights):
            absent["undefined" if findings.finished(cell) else "missing"].append(method)
            continue
        style, y = drawn_style(findings, at, method), np.array(heights, dtype=float)
        few = [len(findings.defined(cell, *measure)) < len(cell) for measure in measures]
        whole = [index for index, one in enumerate(few) if not one]
        axes.plot(x, y, markevery=whole, zorder=3, clip_on=False, **style)
        if any(few):
            open_style = {**hollow(style), "linestyle": "none", "gid": f"{method} hollow"}
            axes.plot(np.array(x)[few], y[few], zorder=3, clip_on=False, **open_style)
    axes.set_xlim(min(x) - 0.03 * (max(x) - min(x)), max(x) + 0.03 * (max(x) - min(x)))
    note_absent(axes, absent, nothing=sum(map(len, absent.values())) == len(cells))


_ROOM = 0.25  # inches, for the names of methods that rest on fewer grids


@dataclass(frozen=True)
class _Axis:
    """One axis: a metric on images or grids, with its limits."""

    kind: str
    metric: str
    title: str
    limit: float
    at_tau: bool = True  # the clean map's measures know no τ and no K

    def mean(self, findings: Findings, at: View, jobs: list[Job]) -> float | None:
        return findings.mean(jobs, self.metric, *self._where(at))

    def defined(self, findings: Findings, at: View, cell: list[Job]) -> list[Job]:
        """The jobs that the mean rests on."""
        return findings.defined(cell, self.metric, *self._where(at))

    def _where(self, at: View) -> tuple[float | None, float | None]:
        return (at.tau, at.level) if self.at_tau else (None, None)

    def cell(self, findings: Findings, at: View, model: str, method: str, layer: str) -> list[Job]:
        return findings.cell(self.kind, model, method, layer, at)


@dataclass(frozen=True)
class _Point:
    """A method's place, or why it has none; and on how many of all the vertical measure's scenes it rests."""

    across: float | None
    up: float | None
    why: str
    used: int
    all: int


_CERTIFIED = _Axis("image", "certified", "%certified", 100)
_LOCALISED = _Axis("grid", "certified_grid_pg", "Certified GridPG", 1)
_GRID_PG = _Axis("grid", "grid_pg", "GridPG of the clean map", 1, at_tau=False)


@styled
def tradeoff(findings: Findings, at: View) -> Figure:
    """Robustness against localisation: %certified on images, Certified GridPG on grids."""
    findings.require("image")
    return _scatter(findings, at, "Robustness and localisation", _CERTIFIED, _LOCALISED, lambda axes: None)


@styled
def grid_pg_scatter(findings: Findings, at: View) -> Figure:
    """GridPG of the map without noise against Certified GridPG; above the diagonal certification localises better."""

    def diagonal(axes: Axes) -> None:
        axes.plot([0, 1], [0, 1], color="#aaaaaa", linewidth=0.8, zorder=1, gid="diagonal")

    return _scatter(findings, at, "GridPG and Certified GridPG", _GRID_PG, _LOCALISED, diagonal)


def _scatter(findings: Findings, at: View, title: str, x: _Axis, y: _Axis, decorate: Callable[[Axes], None]) -> Figure:
    findings.require("grid")
    grid, rows, columns = places(at)
    cells = [
        measure.cell(findings, at, model, method, layer)
        for row in grid
        for model, layer in row
        for method in at.methods
        for measure in (x, y)
    ]
    same = "both over the grids on which both are defined" if x.kind == y.kind else "over images or grids"
    note = f"Means {same}."
    stated = caption(findings, at, cells, note=f"{note} {EXPLAINED}")
    page, panels = lay_panels(findings, at, title + of_model(at), rows, columns, stated, room=_ROOM, linestyle="none")
    baseline = random_baseline(findings.settings.grids.side)
    for axes, (model, layer) in zip(chain(*panels), chain(*grid), strict=True):
        decorate(axes)
        axes.axhline(baseline, color=INK, linewidth=0.8, linestyle=(0, (4, 2)), zorder=1, gid="baseline")
        absent: dict[str, list[str]] = {"missing": [], "undefined": []}
        few: dict[str, str] = {}
        for method in at.methods:
            point = _point(findings, at, x, y, model, method, layer)
            if point.across is None or point.up is None:
                absent[point.why].append(method)
                continue
            style = drawn_style(findings, at, method)
            if point.used < point.all:
                few[method] = f"{point.used}/{point.all}"
                style = hollow(style)
            axes.plot([point.across], [point.up], linestyle="none", zorder=3, clip_on=False, **style)
        for measure, set_limits, set_ticks, set_label in (
            (x, axes.set_xlim, axes.set_xticks, axes.set_xlabel),
            (y, axes.set_ylim, axes.set_yticks, axes.set_ylabel),
        ):
            set_limits(-0.03 * measure.limit, 1.03 * measure.limit)
            set_ticks(np.linspace(0, measure.limit, 5))
            set_label(measure.title, fontsize=7.5, color=SOFT)
        note_absent(axes, absent, nothing=sum(map(len, absent.values())) == len(at.methods), few=few)
    return page.figure


def _point(findings: Findings, at: View, x: _Axis, y: _Axis, model: str, method: str, layer: str) -> _Point:
    cells = [measure.cell(findings, at, model, method, layer) for measure in (x, y)]
    under, over = (one.defined(findings, at, cell) for one, cell in zip((x, y), cells, strict=True))
    if x.kind == y.kind:  # of the same scenes: means over different ones could not be compared
        both = {job.key for job in under} & {job.key for job in over}
        under = over = [job for job in over if job.key in both]
    finished = all(findings.finished(cell) for cell in cells)
    across, up = x.mean(findings, at, under), y.mean(findings, at, over)
    return _Point(across, up, "undefined" if finished else "missing", len(over), len(cells[1]))
