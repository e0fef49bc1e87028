"""Boxes: the spread of Certified GridPG over grids, against R and against K, beside what chance would score."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cbook import boxplot_stats
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from ..metrics import random_baseline
from ..study.job import Job
from .findings import Findings, Setting
from .lanes import Axis, Lane, draw_lanes, grid_lines, lay_out, thickness
from .page import Page, styled
from .palette import FAMILIES, INK, SOFT, Colour, ramp


@styled
def localisation_by_radius(findings: Findings, at: Setting) -> Figure:
    """Certified GridPG against R, for every method, layer and model."""
    return _boxes(findings, at, "radius")


@styled
def localisation_by_level(findings: Findings, at: Setting) -> Figure:
    """Certified GridPG against K, for every method, layer and model."""
    return _boxes(findings, at, "level")


def _boxes(findings: Findings, at: Setting, axis: Axis) -> Figure:
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
    _write_key(sheet.page, findings, at, sheet.labels)
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


def _write_key(page: Page, findings: Findings, at: Setting, labels: list[str]) -> None:
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
