"""Bars: how much of the maps is certified 1, certified 0, and abstains, against R and against K."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ..study.job import Job
from .findings import Findings, Setting
from .lanes import Axis, Lane, draw_lanes, grid_lines, lay_out, thickness
from .page import Page, styled
from .palette import FAMILIES, shades

SHARES = ("certified_1", "certified_0", "abstained")  # dark, medium, light


@styled
def certified_by_radius(findings: Findings, at: Setting) -> Figure:
    """%certified against R, for every method, layer and model."""
    return _bars(findings, at, "radius")


@styled
def certified_by_level(findings: Findings, at: Setting) -> Figure:
    """%certified against K, for every method, layer and model."""
    return _bars(findings, at, "level")


def _bars(findings: Findings, at: Setting, axis: Axis) -> Figure:
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
    _write_key(sheet.page, findings, at)
    return sheet.page.figure


def _write_key(page: Page, findings: Findings, at: Setting) -> None:
    for line, family in enumerate(findings.by_family(at.methods)):
        names = ("certified 1", "certified 0", "abstains")
        patches = [
            Patch(facecolor=shade, edgecolor="#999999", linewidth=0.4, label=name)
            for shade, name in zip(shades(FAMILIES[family]), names, strict=True)
        ]
        page.legend(patches, line, left=1.0)
        page.name(line, family, FAMILIES[family])
