"""Bars and boxes: certified shares and Certified GridPG, against R and against K."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cbook import boxplot_stats
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ..metrics import random_baseline
from ..study.findings import View
from ..study.job import Job
from .sheet import BASELINE, FAINT, FAMILIES, INK, SOFT, Colour, Sheet, hatch, open_frame, patches, ramp, shades, styled
from .titles import caption, layer_title, method_title, model_title, of_model, radius_title, require_several

Axis = Literal["radius", "level"]

_LANE, _METHOD_GAP, _FAMILY_GAP = 0.125, 0.1, 0.16  # inches
_THICK = 0.82 * _LANE  # a bar or box leaves a little of its lane free
_LABELS, _COLUMN_GAP, _TOP = 1.42, 0.3, 0.24
_WIDE = 6.6  # for all columns together, unless each would become too narrow
_NARROWEST = 1.25


@dataclass(frozen=True)
class Lane:
    """One bar or box: a method at one R or K."""

    method: str
    sigma: float
    level: float
    step: int  # which of the R or K it is
    label: str
    top: float  # inches below the first

    @property
    def middle(self) -> float:
        return self.top + _LANE / 2


@dataclass(frozen=True)
class Panel:
    """Axes of one model and layer; y is in inches down, x the figure's own."""

    axes: Axes
    model: str
    layer: str


@dataclass(frozen=True)
class Layout:
    """A sheet with its panels, and the lanes that each of them has."""

    view: View
    kind: str
    sheet: Sheet
    panels: list[Panel]
    lanes: list[Lane]


Draw = Callable[[Axes, Lane, list[Job]], str]  # draws a lane, or says why it cannot


# ── Layout ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _lay_out(view: View, kind: str, axis: Axis, measure: str, note: str) -> Layout:
    """Lay out a sheet for a measure against R or K, its panels still without limits."""
    view.findings.require(kind)
    require_several(view, "sigma" if axis == "radius" else "levels")
    sigmas = sorted(view.settings.sigma) if axis == "radius" else [view.sigma]
    levels = view.levels if axis == "level" else [view.level]
    series = view.all_series(kind, sigmas=sigmas)
    lanes = _lay_lanes(view, [(*point, _label(view, series, axis, *point)) for point in product(sigmas, levels)])
    stated = caption(view, series, sigma=sigmas, level=levels, note=note)
    title = f"{measure} against {'the radius R' if axis == 'radius' else 'K'}{of_model(view)}"
    places = list(product(view.models, view.layers))
    width, height = max(_NARROWEST, _WIDE / len(places) - _COLUMN_GAP), lanes[-1].top + _LANE
    full = _LABELS + len(places) * (width + _COLUMN_GAP)
    sheet = Sheet(title, full, _TOP + height + 0.5, stated, legend_lines=len(view.families))
    panels = []
    for number, (model, layer) in enumerate(places):
        axes = sheet.axes(_LABELS + number * (width + _COLUMN_GAP), _TOP, width, height + 0.06)
        axes.set_ylim(height + 0.02, -0.04)
        axes.set_yticks([])
        open_frame(axes)
        single = len(view.models) == 1
        name = layer_title(layer) if single else f"{model_title(model)}, {layer}"
        axes.set_title(name, fontsize=8 if single else 6.8, loc="left", pad=5)
        panels.append(Panel(axes, model, layer))
    _write_names(sheet, view, lanes)
    return Layout(view, kind, sheet, panels, lanes)


def _label(view: View, series: Sequence[list[Job]], axis: Axis, sigma: float, level: float) -> str:
    """Label a lane. One label stands for every panel, so R is the smallest of their radii."""
    if axis == "level":
        return f"K = {level:g} %"
    return radius_title(view.findings.radius([job for jobs in series for job in jobs], sigma, view.tau))


def _lay_lanes(view: View, steps: Sequence[tuple[float, float, str]]) -> list[Lane]:
    """Place a lane for every method and step (σ, K, label) from the top."""
    lanes, top = list[Lane](), 0.0
    for number, methods in enumerate(view.families.values()):
        top += _FAMILY_GAP if number else 0.0
        for method in methods:
            for step, (sigma, level, label) in enumerate(steps):
                lanes.append(Lane(method, sigma, level, step, label, top))
                top += _LANE
            top += _METHOD_GAP
    return lanes


def _write_names(sheet: Sheet, view: View, lanes: Sequence[Lane]) -> None:
    """Write the methods and their R or K at the left."""
    for method in dict.fromkeys(lane.method for lane in lanes):
        own = [lane for lane in lanes if lane.method == method]
        middle = _TOP + 0.04 + (own[0].middle + own[-1].middle) / 2
        colour = FAMILIES[view.findings.family(method)]
        sheet.text(0, middle, method_title(method), fontsize=7.5, color=colour, weight="bold", va="center")
        for lane in own:
            place = _TOP + 0.04 + lane.middle
            sheet.text(_LABELS - 0.06, place, lane.label, fontsize=5.6, color=SOFT, ha="right", va="center")


def _draw_lanes(
    layout: Layout, label: str, limits: tuple[float, float], ticks: Sequence[float], baseline: float | None, draw: Draw
) -> None:
    """Give every panel its horizontal axis, and draw its lanes; a lane that cannot be drawn is hatched."""
    for panel in layout.panels:
        axes = panel.axes
        axes.set_xlim(*limits)
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.tick_params(labelsize=6.5)
        axes.set_xlabel(label, fontsize=7)
        axes.grid(axis="x", color=FAINT, linewidth=0.5, zorder=0)
        axes.set_axisbelow(True)
        if baseline is not None:
            axes.axvline(baseline, zorder=1, gid="baseline", **BASELINE)
        for lane in layout.lanes:
            series = layout.view.series(layout.kind, lane.method, panel.layer, model=panel.model, sigma=lane.sigma)
            if why := draw(axes, lane, series):
                box = (limits[0], lane.middle - _THICK / 2, limits[1] - limits[0], _THICK)
                hatch(axes, box, why, fontsize=5, pad=0.4)


# ── Bars ──────────────────────────────────────────────────────────────────────────────────────────────────────────

SHARES = {"certified_1": "certified 1", "certified_0": "certified 0", "abstained": "abstains"}  # dark, medium, light


@styled
def certified_by_radius(view: View) -> Figure:
    """Draw %certified against R, for every method, layer and model."""
    return _bars(view, "radius")


@styled
def certified_by_level(view: View) -> Figure:
    """Draw %certified against K, for every method, layer and model."""
    return _bars(view, "level")


def _bars(view: View, axis: Axis) -> Figure:
    def draw(axes: Axes, lane: Lane, series: list[Job]) -> str:
        left, colours = 0.0, shades(FAMILIES[view.findings.family(lane.method)])
        for metric, shade in zip(SHARES, colours, strict=True):
            share = view.findings.mean(series, metric, view.tau, lane.level)
            if share is None:
                return "missing"
            axes.barh(lane.middle, share, _THICK, left=left, color=shade, linewidth=0, gid=f"{lane.method} {metric}")
            left += share
        return ""

    layout = _lay_out(view, "image", axis, "%certified", "Means over the images. Hatched: not measured.")
    _draw_lanes(layout, "% of pixels", (0, 100), range(0, 101, 25), None, draw)
    keys = {family: zip(SHARES.values(), shades(FAMILIES[family]), strict=True) for family in view.families}
    layout.sheet.family_legend({name: patches(key, edgecolor="#999999", linewidth=0.4) for name, key in keys.items()})
    return layout.sheet.figure


# ── Boxes ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@styled
def localisation_by_radius(view: View) -> Figure:
    """Draw Certified GridPG against R, for every method, layer and model."""
    return _boxes(view, "radius")


@styled
def localisation_by_level(view: View) -> Figure:
    """Draw Certified GridPG against K, for every method, layer and model."""
    return _boxes(view, "level")


def _boxes(view: View, axis: Axis) -> Figure:
    note = (
        "Box: quartiles and median over the grids; whiskers: furthest within 1.5 of its length; points: beyond. Where "
        "a grid has no pixel certified 1 its score is undefined and left out: small numbers say how many are defined."
    )
    layout = _lay_out(view, "grid", axis, "Certified GridPG", note)
    labels = [lane.label for lane in layout.lanes if lane.method == layout.lanes[0].method]

    def draw(axes: Axes, lane: Lane, series: list[Job]) -> str:
        values = view.findings.values(series, "certified_grid_pg", view.tau, lane.level)
        defined = [value for value in values if value is not None]
        if not defined:
            return "undefined" if values else "missing"
        colour = ramp(FAMILIES[view.findings.family(lane.method)], len(labels))[lane.step]
        _draw_box(axes, defined, lane.middle, colour)
        if len(defined) < len(values):
            axes.text(1.03, lane.middle, f"{len(defined)}/{len(values)}", fontsize=4.8, color=SOFT, va="center")
        return ""

    baseline = random_baseline(view.settings.grids.side)
    _draw_lanes(layout, "Certified GridPG", (-0.02, 1.02), np.linspace(0, 1, 5).tolist(), baseline, draw)
    keys = {family: zip(labels, ramp(FAMILIES[family], len(labels)), strict=True) for family in view.families}
    handles = {family: patches(key, edgecolor=INK, linewidth=0.4) for family, key in keys.items()}
    next(iter(handles.values())).append(Line2D([], [], label="random baseline", **BASELINE))
    layout.sheet.family_legend(handles)
    return layout.sheet.figure


def _draw_box(axes: Axes, values: list[float], middle: float, colour: Colour) -> None:
    """Draw a box by hand: matplotlib's versions differ in how they lay theirs on the side."""
    (stats,) = boxplot_stats(values)
    low, high = stats["q1"], stats["q3"]
    axes.barh(middle, high - low, _THICK, left=low, color=colour, edgecolor=INK, linewidth=0.5, zorder=2, gid="box")
    ends: dict[str, Any] = {"color": INK, "linewidth": 0.7, "zorder": 2}
    axes.plot([stats["whislo"], low], [middle, middle], gid="whisker", **ends)
    axes.plot([high, stats["whishi"]], [middle, middle], gid="whisker", **ends)
    across = [middle - _THICK / 2, middle + _THICK / 2]
    axes.plot([stats["med"]] * 2, across, color=INK, linewidth=1.3, zorder=3, gid="median")
    axes.plot(stats["fliers"], [middle] * len(stats["fliers"]), ".", color=INK, markersize=2.2, zorder=2, gid="fliers")
