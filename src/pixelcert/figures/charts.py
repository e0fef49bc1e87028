"""Charts: curves and scatter plots that share one legend of methods."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ..methods import METHODS
from ..metrics import random_baseline
from ..study.findings import MetricAt, UnavailableError, View
from ..study.job import Job
from .palette import SOFT
from .sheet import BASELINE, Sheet, show_missing
from .titles import caption, layer_title, method_title, model_title, of_model, require_several

_LEFT, _ACROSS, _DOWN, _TOP, _BELOW = 0.5, 0.55, 0.95, 0.22, 0.72  # inches around panels
_LETTERS_PER_INCH = 22  # in the note below a panel
_NOTES = ("missing", "undefined", "fewer grids")
HOLLOW = "Hollow: a mean over fewer than all images or grids."
EXPLAINED = (
    "Dashed: the score of chance. Grids on which nothing is certified 1 have no Certified GridPG and are left out; "
    f"a method with only such grids is undefined. {HOLLOW} Missing: not measured."
)


@dataclass(frozen=True)
class Axis:
    """A metric on images or grids, with its title and largest value."""

    kind: str
    metric: str
    title: str
    largest: float
    at_tau: bool = True  # False for measures of the clean map, which have no τ and no K

    def at(self, tau: float, level: float) -> MetricAt:
        return (self.metric, tau, level) if self.at_tau else (self.metric, None, None)


CERTIFIED = Axis("image", "certified", "%certified", 100)
LOCALISED = Axis("grid", "certified_grid_pg", "Certified GridPG", 1)
GRID_PG = Axis("grid", "grid_pg", "GridPG of the clean map", 1, at_tau=False)


@dataclass(frozen=True)
class Panel:
    """Axes of one model and layer, in one of the blocks of panels that a figure stacks."""

    axes: Axes
    block: int
    model: str
    layer: str

    def series(self, view: View, kind: str) -> dict[str, list[Job]]:
        """Return the series of each method shown."""
        return {method: view.series(kind, method, self.layer, model=self.model) for method in view.methods}


# ── Layout ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _lay_out(
    view: View, title: str, caption: str, *, blocks: int = 1, room: float = 0.0, **line: Any
) -> tuple[Sheet, list[Panel]]:
    """Lay out panels and the legend of all methods below, their lines in the given style.

    With one model, layers are across; with several, models are across and layers down. `room` is in inches, for longer
    notes below each panel.
    """
    single = len(view.models) == 1
    places = list(product(view.layers, view.models)) * blocks
    across = len(view.layers if single else view.models)
    down = len(places) // across
    size = {1: 2.9, 2: 2.9, 3: 2.3}.get(across, 1.75)
    width = _LEFT + across * size + (across - 1) * _ACROSS + 0.1
    height = _TOP + down * size + (down - 1) * (_DOWN + room) + _BELOW + room
    sheet = Sheet(f"{title}{of_model(view)}", width, height, caption, legend_lines=len(view.families))
    panels = []
    for number, (layer, model) in enumerate(places):
        row, column = divmod(number, across)
        name = layer_title(layer) if single else f"{model_title(model)}, {layer_title(layer)}"
        left, top = _LEFT + column * (size + _ACROSS), _TOP + row * (size + _DOWN + room)
        panels.append(Panel(sheet.chart(left, top, size, size, name, 8), number * blocks // len(places), model, layer))
    handles = {
        family: [Line2D([], [], label=method_title(name), **_style(view, name), **line) for name in methods]
        for family, methods in view.families.items()
    }
    sheet.family_legend(handles)
    return sheet, panels


def _style(view: View, method: str) -> dict[str, Any]:
    """Return a method's line and marker; a variant has its method's, with the marker half filled."""
    base = view.findings.base(method)
    colour, marker = METHODS[base].look
    own = {"fillstyle": "full", "markeredgecolor": "#333333", "markeredgewidth": 0.5}
    half = {"fillstyle": "left", "markeredgecolor": colour, "markeredgewidth": 1.2, "markerfacecoloralt": "white"}
    line = {"color": colour, "marker": marker, "markerfacecolor": colour, "markersize": 5.5, "linewidth": 1.3}
    return {**line, **(own if method == base else half)}


def _drawn_style(view: View, method: str) -> dict[str, Any]:
    """Return `_style`, larger for methods drawn first, so that those with equal scores stay visible."""
    later = view.methods.index(method) / max(len(view.methods) - 1, 1)
    return {**_style(view, method), "markersize": 7.0 - 3.0 * later, "linewidth": 2.1 - 1.1 * later, "gid": method}


def _hollow(style: dict[str, Any]) -> dict[str, Any]:
    """Return the style of points that rest on fewer than all scenes; a variant keeps the line between its halves."""
    white = {"markerfacecolor": "white", "markerfacecoloralt": "white"}
    return {**style, **white, "markeredgecolor": style["color"], "markeredgewidth": 1.2}


def _label(axes: Axes, across: str, up: str) -> None:
    axes.set_xlabel(across, fontsize=7.5, color=SOFT)
    axes.set_ylabel(up, fontsize=7.5, color=SOFT)


def _draw_baseline(view: View, axes: Axes) -> None:
    axes.axhline(random_baseline(view.settings.grids.side), zorder=1, gid="baseline", **BASELINE)


def _write_notes(axes: Axes, notes: Mapping[str, list[str]], methods: int) -> None:
    """List below the axes the methods that are not drawn, or use fewer grids; hatch axes that show no method."""
    said = [f"{why}: {', '.join(names)}" for why, names in notes.items() if names]
    if len(notes["missing"]) + len(notes["undefined"]) == methods:
        show_missing(axes, "missing" if notes["missing"] else "undefined", fontsize=8)
    if said:
        inches = axes.get_position().width * axes.figure.get_figwidth()  # type: ignore[union-attr]
        text = "\n".join(textwrap.wrap(". ".join(said), int(_LETTERS_PER_INCH * inches)))
        where: Any = {"xytext": (0, -31), "xycoords": "axes fraction", "textcoords": "offset points"}
        axes.annotate(text, (0, 0), **where, fontsize=5.6, color=SOFT, va="top")


# ── Curves ────────────────────────────────────────────────────────────────────────────────────────────────────────


def deletion_curves(view: View) -> Figure:
    """Draw the confidence in the explained class while pixels certified 1 are set to zero, from the smallest K up."""
    view.findings.require("image")
    if view.tau not in (taus := view.settings.deletion_taus):
        known = ", ".join(f"{tau}" for tau in taus) or "none"
        raise UnavailableError(f"deletion was not measured at τ = {view.tau}, only at {known}: add it to deletion.")
    levels = view.levels[::-1]
    note = "Mean confidence over the images. A steep fall at the first steps is a faithful explanation. " + HOLLOW
    stated = caption(view, view.all_series("image"), level=levels, note=note)
    sheet, panels = _lay_out(view, "Deletion of certified pixels", stated)
    metrics: list[MetricAt] = [("confidence", view.tau, None)]
    metrics += [("deletion_confidence", view.tau, level) for level in levels]
    steps = range(len(metrics))
    for panel in panels:
        _draw_curves(view, panel.axes, steps, panel.series(view, "image"), metrics)
        panel.axes.set_xticks(steps, ["none", *(f"{level:g}" for level in levels)])
        panel.axes.set_ylim(-0.02, 1.02)
        _label(panel.axes, "", "confidence")
        panel.axes.set_xlabel("K in %: pixels certified 1 up to it are deleted", fontsize=7, color=SOFT)
    return sheet.figure


def effect_of_tau(view: View) -> Figure:
    """Draw %certified (above) and Certified GridPG (below) against τ."""
    require_several(view, "tau")
    taus = sorted(view.settings.tau)
    drawn = [axis for axis in (CERTIFIED, LOCALISED) if view.findings.scenes(axis.kind)]
    series = view.all_series(*(axis.kind for axis in drawn))
    stated = caption(view, series, tau=taus, note=f"Means over images or grids. {EXPLAINED}")
    sheet, panels = _lay_out(view, "Effect of τ", stated, blocks=len(drawn))
    for panel in panels:
        axes, axis = panel.axes, drawn[panel.block]
        if axis is LOCALISED:
            _draw_baseline(view, axes)
        points = [axis.at(tau, view.level) for tau in taus]
        _draw_curves(view, axes, taus, panel.series(view, axis.kind), points)
        axes.set_xticks(taus, [f"{tau}" for tau in taus])
        axes.set_ylim(-0.02 * axis.largest, 1.02 * axis.largest)
        _label(axes, "τ", axis.title)
    return sheet.figure


def _draw_curves(
    view: View, axes: Axes, x: Sequence[float], series: Mapping[str, list[Job]], metrics: Sequence[MetricAt]
) -> None:
    """Draw a line through each method's means, with gaps for missing ones; list methods without any value below.

    Points over fewer than all jobs are hollow, so that a reader sees where the jobs change along a line.
    """
    findings, notes = view.findings, {why: list[str]() for why in _NOTES}
    for method, jobs in series.items():
        heights = [findings.mean(jobs, at) for at in metrics]
        if all(height is None for height in heights):
            notes["undefined" if findings.finished(jobs) else "missing"].append(method_title(method))
            continue
        style, y = _drawn_style(view, method), np.array(heights, dtype=float)
        few = np.array([len(findings.defined(jobs, at)) < len(jobs) for at in metrics])
        axes.plot(x, y, markevery=np.flatnonzero(~few).tolist(), zorder=3, clip_on=False, **style)
        if few.any():
            points = {**_hollow(style), "linestyle": "none", "gid": f"{method} hollow"}
            axes.plot(np.array(x)[few], y[few], zorder=3, clip_on=False, **points)
    margin = 0.03 * (max(x) - min(x))
    axes.set_xlim(min(x) - margin, max(x) + margin)
    _write_notes(axes, notes, len(series))


# ── Scatter plots ─────────────────────────────────────────────────────────────────────────────────────────────────

_ROOM = 0.25  # inches, for the names of methods that use fewer grids


def tradeoff(view: View) -> Figure:
    """Draw robustness against localisation: %certified on images, Certified GridPG on grids."""
    view.findings.require("image")
    return _scatter(view, "Robustness and localisation", CERTIFIED, LOCALISED)


def grid_pg_scatter(view: View) -> Figure:
    """Draw GridPG of the clean map against Certified GridPG; above the diagonal certification localises better."""
    return _scatter(view, "GridPG and Certified GridPG", GRID_PG, LOCALISED)


def _scatter(view: View, title: str, x: Axis, y: Axis) -> Figure:
    view.findings.require("grid")
    same = "both over the grids on which both are defined" if x.kind == y.kind else "over images or grids"
    stated = caption(view, view.all_series(x.kind, y.kind), note=f"Means {same}. {EXPLAINED}")
    sheet, panels = _lay_out(view, title, stated, room=_ROOM, linestyle="none")
    for panel in panels:
        axes = panel.axes
        axes.set(xlim=(-0.03 * x.largest, 1.03 * x.largest), xticks=np.linspace(0, x.largest, 5))
        axes.set(ylim=(-0.03 * y.largest, 1.03 * y.largest), yticks=np.linspace(0, y.largest, 5))
        _label(axes, x.title, y.title)
        if x.kind == y.kind:
            axes.plot([0, 1], [0, 1], color="#aaaaaa", linewidth=0.8, zorder=1, gid="diagonal")
        _draw_baseline(view, axes)
        _draw_points(view, panel, x, y)
    return sheet.figure


def _draw_points(view: View, panel: Panel, x: Axis, y: Axis) -> None:
    """Draw each method at its means; list below the methods without means, and those that use fewer grids."""
    findings, notes = view.findings, {why: list[str]() for why in _NOTES}
    places = [(axis.at(view.tau, view.level), panel.series(view, axis.kind)) for axis in (x, y)]
    for method in view.methods:
        series = [of_method[method] for _, of_method in places]
        under, over = (findings.defined(jobs, at) for (at, _), jobs in zip(places, series, strict=True))
        if x.kind == y.kind:  # means over different scenes could not be compared
            both = {job.key for job in under} & {job.key for job in over}
            under = over = [job for job in over if job.key in both]
        across, up = (findings.mean(jobs, at) for (at, _), jobs in zip(places, (under, over), strict=True))
        if across is None or up is None:
            notes["undefined" if all(map(findings.finished, series)) else "missing"].append(method_title(method))
            continue
        style = _drawn_style(view, method)
        if len(over) < len(series[1]):
            notes["fewer grids"].append(f"{method_title(method)} {len(over)}/{len(series[1])}")
            style = _hollow(style)
        panel.axes.plot([across], [up], linestyle="none", zorder=3, clip_on=False, **style)
    _write_notes(panel.axes, notes, len(view.methods))
