"""Scatter: two measures of every method against each other, a panel for each model and layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..metrics import random_baseline
from ..study.job import Job
from .charts import EXPLAINED, drawn_style, lay_panels, note_absent, places
from .findings import Findings, Setting
from .names import caption, of_model
from .page import styled
from .palette import INK, SOFT


@dataclass(frozen=True)
class _Measure:
    """One axis: a metric on images or grids, with its limits."""

    kind: str
    metric: str
    title: str
    limit: float
    at_tau: bool = True  # the clean map's measures know no τ and no K

    def read(self, findings: Findings, at: Setting, model: str, method: str, layer: str) -> tuple[float | None, str]:
        """The mean over scenes, or None and why there is none."""
        cell = self.cell(findings, at, model, method, layer)
        where = (at.tau, at.level) if self.at_tau else (None, None)
        values = findings.values(cell, self.metric, *where)
        return findings.mean(cell, self.metric, *where), "undefined" if values else "missing"

    def cell(self, findings: Findings, at: Setting, model: str, method: str, layer: str) -> list[Job]:
        return findings.cell(self.kind, model, method, layer, at)


_CERTIFIED = _Measure("image", "certified", "%certified", 100)
_LOCALISED = _Measure("grid", "certified_grid_pg", "Certified GridPG", 1)
_GRID_PG = _Measure("grid", "grid_pg", "GridPG of the clean map", 1, at_tau=False)


@styled
def tradeoff(findings: Findings, at: Setting) -> Figure:
    """Robustness against localisation: %certified on images, Certified GridPG on grids."""
    findings.require("image")
    return _scatter(findings, at, "Robustness and localisation", _CERTIFIED, _LOCALISED, lambda axes: None)


@styled
def grid_pg_scatter(findings: Findings, at: Setting) -> Figure:
    """GridPG of the map without noise against Certified GridPG; above the diagonal certification localises better."""

    def diagonal(axes: Axes) -> None:
        axes.plot([0, 1], [0, 1], color="#aaaaaa", linewidth=0.8, zorder=1, gid="diagonal")

    return _scatter(findings, at, "GridPG and Certified GridPG", _GRID_PG, _LOCALISED, diagonal)


def _scatter(
    findings: Findings, at: Setting, title: str, x: _Measure, y: _Measure, decorate: Callable[[Axes], None]
) -> Figure:
    findings.require("grid")
    grid, rows, columns = places(at)
    cells = [
        measure.cell(findings, at, model, method, layer)
        for row in grid
        for model, layer in row
        for method in at.methods
        for measure in (x, y)
    ]
    stated = caption(findings, at, cells, note=f"Means over images or grids. {EXPLAINED}")
    page, panels = lay_panels(findings, at, title + of_model(at), rows, columns, stated, linestyle="none")
    baseline = random_baseline(findings.settings.grids.side)
    for axes, (model, layer) in zip(chain(*panels), chain(*grid), strict=True):
        decorate(axes)
        axes.axhline(baseline, color=INK, linewidth=0.8, linestyle=(0, (4, 2)), zorder=1, gid="baseline")
        absent: dict[str, list[str]] = {"missing": [], "undefined": []}
        for method in at.methods:
            (across, why_x), (up, why_y) = (one.read(findings, at, model, method, layer) for one in (x, y))
            if across is None or up is None:
                absent[why_x if across is None else why_y].append(method)
                continue
            axes.plot([across], [up], linestyle="none", zorder=3, clip_on=False, **drawn_style(findings, at, method))
        for measure, set_limits, set_ticks, set_label in (
            (x, axes.set_xlim, axes.set_xticks, axes.set_xlabel),
            (y, axes.set_ylim, axes.set_yticks, axes.set_ylabel),
        ):
            set_limits(-0.03 * measure.limit, 1.03 * measure.limit)
            set_ticks(np.linspace(0, measure.limit, 5))
            set_label(measure.title, fontsize=7.5, color=SOFT)
        note_absent(axes, absent, nothing=sum(map(len, absent.values())) == len(at.methods))
    return page.figure
