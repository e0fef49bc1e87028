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
from .charts import EXPLAINED, drawn_style, hollow, lay_panels, note_absent, places
from .findings import Findings, Setting
from .names import caption, of_model
from .page import styled
from .palette import INK, SOFT

_ROOM = 0.25  # inches, for the names of methods that rest on fewer grids


@dataclass(frozen=True)
class _Measure:
    """One axis: a metric on images or grids, with its limits."""

    kind: str
    metric: str
    title: str
    limit: float
    at_tau: bool = True  # the clean map's measures know no τ and no K

    def mean(self, findings: Findings, at: Setting, jobs: list[Job]) -> float | None:
        return findings.mean(jobs, self.metric, *self._where(at))

    def defined(self, findings: Findings, at: Setting, cell: list[Job]) -> list[Job]:
        """The jobs that the mean rests on."""
        return findings.defined(cell, self.metric, *self._where(at))

    def _where(self, at: Setting) -> tuple[float | None, float | None]:
        return (at.tau, at.level) if self.at_tau else (None, None)

    def cell(self, findings: Findings, at: Setting, model: str, method: str, layer: str) -> list[Job]:
        return findings.cell(self.kind, model, method, layer, at)


@dataclass(frozen=True)
class _Point:
    """A method's place, or why it has none; and on how many of all the vertical measure's scenes it rests."""

    across: float | None
    up: float | None
    why: str
    used: int
    all: int


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


def _point(findings: Findings, at: Setting, x: _Measure, y: _Measure, model: str, method: str, layer: str) -> _Point:
    cells = [measure.cell(findings, at, model, method, layer) for measure in (x, y)]
    under, over = (one.defined(findings, at, cell) for one, cell in zip((x, y), cells, strict=True))
    if x.kind == y.kind:  # of the same scenes: means over different ones could not be compared
        both = {job.key for job in under} & {job.key for job in over}
        under = over = [job for job in over if job.key in both]
    finished = all(findings.finished(cell) for cell in cells)
    across, up = x.mean(findings, at, under), y.mean(findings, at, over)
    return _Point(across, up, "undefined" if finished else "missing", len(over), len(cells[1]))
