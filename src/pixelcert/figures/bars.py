"""Bars: how much of the maps is certified 1, certified 0, and abstains, against R and against K."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ..study.job import Job
from .findings import Findings, Setting
from .lanes import Axis, Lane, draw_lanes, grid_lines, lay_lanes, lay_page, steps, thickness
from .names import caption, of_model
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
    along = steps(findings, at, "image", axis)
    lanes, height = lay_lanes(findings, at, along)
    sigmas, levels = sorted({sigma for sigma, _, _ in along}), sorted({level for _, level, _ in along}, reverse=True)
    cells = [
        findings.cell("image", model, lane.method, layer, at, lane.sigma)
        for lane in lanes
        for model in at.models
        for layer in at.layers
    ]
    note = "Means over the images. Hatched: not measured."
    stated = caption(findings, at, cells, sigma=sigmas, level=levels, note=note)
    title = f"%certified against {'the radius R' if axis == 'radius' else 'K'}{of_model(at)}"
    page, panels = lay_page(findings, at, title, lanes, height, stated)

    def draw(axes: Axes, lane: Lane, cell: list[Job], middle: float) -> str:
        left = 0.0
        for metric, shade in zip(SHARES, shades(FAMILIES[findings.family(lane.method)]), strict=True):
            share = findings.mean(cell, metric, at.tau, lane.level)
            if share is None:
                return "missing"
            axes.barh(middle, share, thickness(), left=left, color=shade, linewidth=0, gid=f"{lane.method} {metric}")
            left += share
        return ""

    for panel in panels:
        panel.axes.set_xlim(0, 100)
        panel.axes.set_xticks(range(0, 101, 25))
        panel.axes.tick_params(labelsize=6.5)
        panel.axes.set_xlabel("% of pixels", fontsize=7)
        grid_lines(panel.axes)
        draw_lanes(findings, at, panel, lanes, "image", draw)
    _write_key(page, findings, at)
    return page.figure


def _write_key(page: Page, findings: Findings, at: Setting) -> None:
    for line, family in enumerate(findings.by_family(at.methods)):
        names = ("certified 1", "certified 0", "abstains")
        patches = [
            Patch(facecolor=shade, edgecolor="#999999", linewidth=0.4, label=name)
            for shade, name in zip(shades(FAMILIES[family]), names, strict=True)
        ]
        page.legend(patches, line, left=1.0)
        page.name(line, family, FAMILIES[family])
