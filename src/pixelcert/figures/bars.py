"""Bars and boxes: certified shares and Certified GridPG, against R and against K."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, product
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cbook import boxplot_stats
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ..metrics import random_baseline
from ..study.findings import View
from ..study.job import Job
from .palette import FAMILIES, INK, SOFT, Colour, ramp, shades
from .sheet import BASELINE, Sheet, hatch, patches
from .titles import caption, layer_title, method_title, model_title, of_model, radius_title, require_several

Along = Literal["sigma", "levels"]  # R varies with σ, K are the levels

_LANE, _METHOD_GAP, _FAMILY_GAP = 0.125, 0.1, 0.16  # inches
_THICK = 0.82 * _LANE  # a bar or box leaves a little of its lane free
_LABELS, _COLUMN_GAP, _TOP = 1.42, 0.3, 0.24
_WIDE = 6.6  # for all columns together, unless each would become too narrow
_NARROWEST = 1.25


@dataclass(frozen=True)
class Lane:
    """The place of one bar or box: a method at one R or K, in the axes of one model and layer."""

    axes: Axes
    middle: float  # inches below the first method
    method: str
    step: int  # counts the R or K
    level: float
    series: list[Job]

    def hatch(self, why: str) -> None:
        """Show that there is nothing to draw."""
        left, right = self.axes.get_xlim()
        hatch(self.axes, (left, self.middle - _THICK / 2, right - left, _THICK), why, fontsize=5, pad=0.4)


# ── Layout ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _lay_out(
    view: View, kind: str, along: Along, metric: str, label: str, largest: float, note: str
) -> tuple[Sheet, list[str], list[Lane]]:
    """Lay out a sheet for a metric against R or K; return sheet, labels and the lanes of all panels."""
    view.findings.require(kind)
    require_several(view, along)
    sigmas = sorted(view.settings.sigma) if along == "sigma" else [view.sigma]
    levels = view.levels if along == "levels" else [view.level]
    series = view.all_series(kind, sigmas=sigmas)
    labels = [f"K = {level:g} %" for level in levels]
    if along == "sigma":  # one label stands for every panel, so R is the smallest of their radii
        labels = [radius_title(view.findings.radius(list(chain(*series)), sigma, view.tau)) for sigma in sigmas]
    middles = _middles(view, len(labels))
    places = list(product(view.models, view.layers))
    width, height = max(_NARROWEST, _WIDE / len(places) - _COLUMN_GAP), max(chain(*middles.values())) + _LANE / 2
    stated = caption(view, series, sigma=sigmas, level=levels, note=note)
    title = f"{metric} against {'the radius R' if along == 'sigma' else 'K'}{of_model(view)}"
    full = _LABELS + len(places) * (width + _COLUMN_GAP)
    sheet = Sheet(title, full, _TOP + height + 0.5, stated, legend_lines=len(view.families))
    _write_names(sheet, view, middles, labels)
    lanes, single, ticks = list[Lane](), len(view.models) == 1, np.linspace(0, largest, 5)
    for number, (model, layer) in enumerate(places):
        name, fontsize = (layer_title(layer), 8.0) if single else (f"{model_title(model)}, {layer}", 6.8)
        left = _LABELS + number * (width + _COLUMN_GAP)
        axes = sheet.chart(left, _TOP, width, height + 0.06, name, fontsize)
        axes.set(xlim=(0, largest), ylim=(height + 0.02, -0.04), yticks=[])
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.set_xlabel(label, fontsize=7)
        for method, own in middles.items():
            for step, (middle, (sigma, level)) in enumerate(zip(own, product(sigmas, levels), strict=True)):
                jobs = view.series(kind, method, layer, model=model, sigma=sigma)
                lanes.append(Lane(axes, middle, method, step, level, jobs))
    return sheet, labels, lanes


def _middles(view: View, steps: int) -> dict[str, list[float]]:
    """Place a lane for every method and step from the top: by method, the middles of its lanes."""
    middles, top = dict[str, list[float]](), 0.0
    for methods in view.families.values():
        for method in methods:
            middles[method] = [top + (step + 0.5) * _LANE for step in range(steps)]
            top += steps * _LANE + _METHOD_GAP
        top += _FAMILY_GAP
    return middles


def _write_names(sheet: Sheet, view: View, middles: dict[str, list[float]], labels: Sequence[str]) -> None:
    """Write the methods and their R or K at the left."""
    top = _TOP + 0.04
    for method, own in middles.items():
        colour = FAMILIES[view.findings.family(method)]
        place = top + (own[0] + own[-1]) / 2
        sheet.text(0, place, method_title(method), fontsize=7.5, color=colour, weight="bold", va="center")
        for middle, label in zip(own, labels, strict=True):
            sheet.text(_LABELS - 0.06, top + middle, label, fontsize=5.6, color=SOFT, ha="right", va="center")


# ── Bars ──────────────────────────────────────────────────────────────────────────────────────────────────────────

SHARES = {"certified_1": "certified 1", "certified_0": "certified 0", "abstained": "abstains"}  # dark, medium, light


def certified_by_radius(view: View) -> Figure:
    """Draw %certified against R, for every method, layer and model."""
    return _bars(view, "sigma")


def certified_by_level(view: View) -> Figure:
    """Draw %certified against K, for every method, layer and model."""
    return _bars(view, "levels")


def _bars(view: View, along: Along) -> Figure:
    note = "Means over the images. Hatched: not measured."
    sheet, _, lanes = _lay_out(view, "image", along, "%certified", "% of pixels", 100, note)
    colours = {family: shades(FAMILIES[family]) for family in view.families}
    for lane in lanes:
        left = 0.0
        for metric, colour in zip(SHARES, colours[view.findings.family(lane.method)], strict=True):
            share = view.findings.mean(lane.series, (metric, view.tau, lane.level))
            if share is None:
                lane.hatch("missing")
                break
            gid = f"{lane.method} {metric}"
            lane.axes.barh(lane.middle, share, _THICK, left=left, color=colour, linewidth=0, gid=gid)
            left += share
    named = {family: zip(SHARES.values(), own, strict=True) for family, own in colours.items()}
    sheet.family_legend({family: patches(own, edgecolor="#999999", linewidth=0.4) for family, own in named.items()})
    return sheet.figure


# ── Boxes ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def localisation_by_radius(view: View) -> Figure:
    """Draw Certified GridPG against R, for every method, layer and model."""
    return _boxes(view, "sigma")


def localisation_by_level(view: View) -> Figure:
    """Draw Certified GridPG against K, for every method, layer and model."""
    return _boxes(view, "levels")


def _boxes(view: View, along: Along) -> Figure:
    note = (
        "Box: quartiles and median over the grids; whiskers: furthest within 1.5 of its length; points: beyond. Where "
        "a grid has no pixel certified 1 its score is undefined and left out: small numbers say how many are defined."
    )
    sheet, labels, lanes = _lay_out(view, "grid", along, "Certified GridPG", "Certified GridPG", 1, note)
    for axes in sheet.figure.axes:
        axes.set_xlim(-0.02, 1.02)
        axes.axvline(random_baseline(view.settings.grids.side), zorder=1, gid="baseline", **BASELINE)
    colours = {family: ramp(FAMILIES[family], len(labels)) for family in view.families}
    for lane in lanes:
        values = view.findings.values(lane.series, ("certified_grid_pg", view.tau, lane.level))
        defined = [value for value in values if value is not None]
        if not defined:
            lane.hatch("undefined" if values else "missing")
            continue
        _draw_box(lane.axes, defined, lane.middle, colours[view.findings.family(lane.method)][lane.step])
        if len(defined) < len(values):
            few = f"{len(defined)}/{len(values)}"
            lane.axes.text(1.03, lane.middle, few, fontsize=4.8, color=SOFT, va="center")
    named = {family: zip(labels, own, strict=True) for family, own in colours.items()}
    handles = {family: patches(own, edgecolor=INK, linewidth=0.4) for family, own in named.items()}
    next(iter(handles.values())).append(Line2D([], [], label="random baseline", **BASELINE))
    sheet.family_legend(handles)
    return sheet.figure


def _draw_box(axes: Axes, values: list[float], middle: float, colour: Colour) -> None:
    """Draw a horizontal box by hand, because matplotlib's versions differ in how they draw one."""
    (stats,) = boxplot_stats(values)
    low, high = stats["q1"], stats["q3"]
    axes.barh(middle, high - low, _THICK, left=low, color=colour, edgecolor=INK, linewidth=0.5, zorder=2, gid="box")
    for whisker in ([stats["whislo"], low], [high, stats["whishi"]]):
        axes.plot(whisker, [middle, middle], color=INK, linewidth=0.7, zorder=2, gid="whisker")
    across = [middle - _THICK / 2, middle + _THICK / 2]
    axes.plot([stats["med"]] * 2, across, color=INK, linewidth=1.3, zorder=3, gid="median")
    axes.plot(stats["fliers"], [middle] * len(stats["fliers"]), ".", color=INK, markersize=2.2, zorder=2, gid="fliers")
