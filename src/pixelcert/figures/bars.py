"""Bars and boxes: certified shares and Certified GridPG, against R and against K."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cbook import boxplot_stats
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from ..metrics import random_baseline
from ..study.findings import Findings, UnavailableError, View
from ..study.job import Job
from .sheet import FAINT, FAMILIES, HATCH, INK, MISSING, SOFT, Colour, Sheet, ramp, shades, styled
from .titles import caption, layer_title, method_title, model_title, of_model, radius_title

Axis = Literal["radius", "level"]

_LANE, _METHOD_GAP, _FAMILY_GAP = 0.125, 0.1, 0.16  # inches
_LABELS, _COLUMN_GAP, _TOP = 1.42, 0.3, 0.24
_WIDE = 6.6  # of all columns together, unless each would become too narrow
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


@dataclass(frozen=True)
class Panel:
    """Axes of one model and layer; y is in inches down, x the figure's own."""

    axes: Axes
    model: str
    layer: str


@dataclass(frozen=True)
class Layout:
    """A page with its panels, the lanes that each of them has, and the labels of the R or K."""

    page: Sheet
    panels: list[Panel]
    lanes: list[Lane]
    labels: list[str]


def _steps(findings: Findings, at: View, kind: str, axis: Axis) -> list[tuple[float, float, str]]:
    """(σ, K, label) of every lane of a method; refuses an axis along which the study has one value."""
    findings.require(kind)
    settings = findings.settings
    if axis == "level":
        if len(settings.levels) < 2:
            raise UnavailableError(f"the study has one K ({settings.levels[0]:g} %): name more in levels.")
        return [(at.sigma, level, f"K = {level:g} %") for level in sorted(settings.levels, reverse=True)]
    if len(settings.sigma) < 2:
        raise UnavailableError(
            f"the study has one σ ({settings.sigma[0]:g}), and R varies with it: name more in sigma."
        )
    # one label stands for every panel, so it is the smallest of their radii
    jobs = [
        job
        for model, layer in _places(at)
        for method in at.methods
        for sigma in settings.sigma
        for job in findings.cell(kind, model, method, layer, at, sigma)
    ]
    return [(sigma, at.level, radius_title(findings.radius(jobs, sigma, at.tau))) for sigma in sorted(settings.sigma)]


def lay_out(findings: Findings, at: View, kind: str, axis: Axis, measure: str, note: str) -> Layout:
    """A page of a measure against R or K, its panels still without limits and lanes."""
    along = _steps(findings, at, kind, axis)
    lanes, height = _lay_lanes(findings, at, along)
    sigmas, levels = sorted({sigma for sigma, _, _ in along}), sorted({level for _, level, _ in along}, reverse=True)
    cells = [
        findings.cell(kind, model, lane.method, layer, at, lane.sigma) for lane in lanes for model, layer in _places(at)
    ]
    stated = caption(findings, at, cells, sigma=sigmas, level=levels, note=note)
    title = f"{measure} against {'the radius R' if axis == 'radius' else 'K'}{of_model(at)}"
    page, panels = _lay_page(findings, at, title, lanes, height, stated)
    return Layout(page, panels, lanes, [label for _, _, label in along])


def _places(at: View) -> list[tuple[str, str]]:
    return [(model, layer) for model in at.models for layer in at.layers]


def _lay_lanes(findings: Findings, at: View, along: Sequence[tuple[float, float, str]]) -> tuple[list[Lane], float]:
    """Every lane from the top, and the height of all."""
    lanes, top = [], 0.0
    for number, methods in enumerate(findings.by_family(at.methods).values()):
        top += _FAMILY_GAP if number else 0.0
        for method in methods:
            for step, (sigma, level, label) in enumerate(along):
                lanes.append(Lane(method, sigma, level, step, label, top))
                top += _LANE
            top += _METHOD_GAP
    return lanes, top - _METHOD_GAP


def _lay_page(
    findings: Findings, at: View, title: str, lanes: Sequence[Lane], height: float, stated: str
) -> tuple[Sheet, list[Panel]]:
    """A page with a panel for each model and layer, the lanes' names at the left, and the families' in colour."""
    places = _places(at)
    width = max(_NARROWEST, _WIDE / len(places) - _COLUMN_GAP)
    full = _LABELS + len(places) * (width + _COLUMN_GAP)
    page = Sheet(title, full, _TOP + height + 0.5, stated, legend_lines=len(findings.by_family(at.methods)))
    panels = []
    for number, (model, layer) in enumerate(places):
        axes = page.axes(_LABELS + number * (width + _COLUMN_GAP), _TOP, width, height + 0.06)
        axes.set_ylim(height + 0.02, -0.04)
        axes.set_yticks([])
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        single = len(at.models) == 1
        name = layer_title(layer) if single else f"{model_title(model)}, {layer}"
        axes.set_title(name, fontsize=8 if single else 6.8, loc="left", pad=5)
        panels.append(Panel(axes, model, layer))
    _write_names(page, findings, lanes)
    return page, panels


def draw_lanes(
    findings: Findings,
    at: View,
    panel: Panel,
    lanes: Sequence[Lane],
    kind: str,
    draw: Callable[[Axes, Lane, list[Job], float], str],
) -> None:
    """`draw` every lane at its middle; where it answers with a word, the lane is hatched and says so."""
    for lane in lanes:
        cell = findings.cell(kind, panel.model, lane.method, panel.layer, at, lane.sigma)
        if why := draw(panel.axes, lane, cell, lane.top + _LANE / 2):
            _hatch(panel.axes, lane, why)


def thickness() -> float:
    """Of a bar or box, which leaves a little of its lane free."""
    return 0.82 * _LANE


def _hatch(axes: Axes, lane: Lane, why: str) -> None:
    left, right = axes.get_xlim()
    corner, size = (left, lane.top + 0.09 * _LANE), (right - left, thickness())
    axes.add_patch(Rectangle(corner, *size, facecolor=MISSING, edgecolor="#cfcfcf", hatch=HATCH, linewidth=0))
    box = {"facecolor": "white", "edgecolor": "none", "pad": 0.4, "alpha": 0.85}
    middle = lane.top + _LANE / 2
    axes.text((left + right) / 2, middle, why, fontsize=5, color=SOFT, ha="center", va="center", bbox=box)


def _write_names(page: Sheet, findings: Findings, lanes: Sequence[Lane]) -> None:
    for method in dict.fromkeys(lane.method for lane in lanes):
        own = [lane for lane in lanes if lane.method == method]
        middle = _TOP + 0.04 + (own[0].top + own[-1].top + _LANE) / 2
        colour = FAMILIES[findings.family(method)]
        page.text(0, middle, method_title(method), fontsize=7.5, color=colour, weight="bold", va="center")
        for lane in own:
            place = _TOP + 0.04 + lane.top + _LANE / 2
            page.text(_LABELS - 0.06, place, lane.label, fontsize=5.6, color=SOFT, ha="right", va="center")


def grid_lines(axes: Axes) -> None:
    axes.grid(axis="x", color=FAINT, linewidth=0.5, zorder=0)
    axes.set_axisbelow(True)


SHARES = ("certified_1", "certified_0", "abstained")  # dark, medium, light


@styled
def certified_by_radius(findings: Findings, at: View) -> Figure:
    """%certified against R, for every method, layer and model."""
    return _bars(findings, at, "radius")


@styled
def certified_by_level(findings: Findings, at: View) -> Figure:
    """%certified against K, for every method, layer and model."""
    return _bars(findings, at, "level")


def _bars(findings: Findings, at: View, axis: Axis) -> Figure:
    note = "Means over the images. Hatched: not measured."
    sheet = lay_out(findings, at, "image", axis, "%certified", note)

    def draw(axes: Axes, lane: Lane, cell: list[Job], middle: float) -> str:
        left = 0.0
        for metric, shade in zip(SHARES, shades(FAMILIES[findings.family(lane.method)]), strict=True):
            share = findings.mean(cell, metric, at.tau, lane.level)
            if share is None:
                return "missing"
            axes.barh(middle, share, thickness(), left=left, color=shade, linewidth=0, gid=f"{lane.method} {metric}")
            left += share
        return ""

    for panel in sheet.panels:
        panel.axes.set_xlim(0, 100)
        panel.axes.set_xticks(range(0, 101, 25))
        panel.axes.tick_params(labelsize=6.5)
        panel.axes.set_xlabel("% of pixels", fontsize=7)
        grid_lines(panel.axes)
        draw_lanes(findings, at, panel, sheet.lanes, "image", draw)
    _write_bar_key(sheet.page, findings, at)
    return sheet.page.figure


def _write_bar_key(page: Sheet, findings: Findings, at: View) -> None:
    for line, family in enumerate(findings.by_family(at.methods)):
        names = ("certified 1", "certified 0", "abstains")
        patches = [
            Patch(facecolor=shade, edgecolor="#999999", linewidth=0.4, label=name)
            for shade, name in zip(shades(FAMILIES[family]), names, strict=True)
        ]
        page.legend(patches, line, left=1.0)
        page.name(line, family, FAMILIES[family])


@styled
def localisation_by_radius(findings: Findings, at: View) -> Figure:
    """Certified GridPG against R, for every method, layer and model."""
    return _boxes(findings, at, "radius")


@styled
def localisation_by_level(findings: Findings, at: View) -> Figure:
    """Certified GridPG against K, for every method, layer and model."""
    return _boxes(findings, at, "level")


def _boxes(findings: Findings, at: View, axis: Axis) -> Figure:
    note = (
        "Box: quartiles and median over the grids; whiskers: furthest within 1.5 of its length; points: beyond. Where "
        "a grid has no pixel certified 1 its score is undefined and left out: small numbers say how many are defined."
    )
    sheet = lay_out(findings, at, "grid", axis, "Certified GridPG", note)

    def draw(axes: Axes, lane: Lane, cell: list[Job], middle: float) -> str:
        values = findings.values(cell, "certified_grid_pg", at.tau, lane.level)
        defined = [value for value in values if value is not None]
        if not defined:
            return "undefined" if values else "missing"
        _draw_box(axes, defined, middle, ramp(FAMILIES[findings.family(lane.method)], len(sheet.labels))[lane.step])
        if len(defined) < len(values):
            axes.text(1.03, middle, f"{len(defined)}/{len(values)}", fontsize=4.8, color=SOFT, va="center")
        return ""

    baseline = random_baseline(findings.settings.grids.side)
    for panel in sheet.panels:
        panel.axes.set_xlim(-0.02, 1.02)
        panel.axes.set_xticks(np.linspace(0, 1, 5), ["0", "0.25", "0.5", "0.75", "1"])
        panel.axes.tick_params(labelsize=6.5)
        panel.axes.set_xlabel("Certified GridPG", fontsize=7)
        grid_lines(panel.axes)
        panel.axes.axvline(baseline, color=INK, linewidth=0.8, linestyle=(0, (4, 2)), zorder=1, gid="baseline")
        draw_lanes(findings, at, panel, sheet.lanes, "grid", draw)
    _write_box_key(sheet.page, findings, at, sheet.labels)
    return sheet.page.figure


def _draw_box(axes: Axes, values: list[float], middle: float, colour: Colour) -> None:
    """By hand: how matplotlib's own boxes are laid on their side differs between its versions."""
    (stats,) = boxplot_stats(values)
    low, high, thick = stats["q1"], stats["q3"], thickness()
    axes.barh(middle, high - low, thick, left=low, color=colour, edgecolor=INK, linewidth=0.5, zorder=2, gid="box")
    ends: dict[str, Any] = {"color": INK, "linewidth": 0.7, "zorder": 2}
    axes.plot([stats["whislo"], low], [middle, middle], gid="whisker", **ends)
    axes.plot([high, stats["whishi"]], [middle, middle], gid="whisker", **ends)
    median = [stats["med"]] * 2
    axes.plot(median, [middle - thick / 2, middle + thick / 2], color=INK, linewidth=1.3, zorder=3, gid="median")
    axes.plot(stats["fliers"], [middle] * len(stats["fliers"]), ".", color=INK, markersize=2.2, zorder=2, gid="fliers")


def _write_box_key(page: Sheet, findings: Findings, at: View, labels: list[str]) -> None:
    for row, family in enumerate(findings.by_family(at.methods)):
        colours = ramp(FAMILIES[family], len(labels))
        patches: list[Patch | Line2D] = [
            Patch(facecolor=colour, edgecolor=INK, linewidth=0.4, label=label)
            for colour, label in zip(colours, labels, strict=True)
        ]
        if row == 0:
            style: dict[str, Any] = {"color": INK, "linewidth": 0.8, "linestyle": (0, (4, 2))}
            patches.append(Line2D([], [], label="random baseline", **style))
        page.legend(patches, row, left=1.0)
        page.name(row, family, FAMILIES[family])
