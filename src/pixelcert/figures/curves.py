"""Curves: confidence while certified pixels are deleted, and what a stricter τ does."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..metrics import random_baseline
from ..study.job import Job
from .charts import EXPLAINED, HOLLOW, drawn_style, hollow, lay_panels, note_absent, places
from .findings import Findings, Measure, Setting, UnavailableError
from .names import caption, of_model
from .page import styled
from .palette import INK, SOFT

_AGAINST_TAU = {"image": ("certified", "%certified", 100.0), "grid": ("certified_grid_pg", "Certified GridPG", 1.0)}


@styled
def deletion_curves(findings: Findings, at: Setting) -> Figure:
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

    measures: list[Measure] = [("confidence", at.tau, None)]
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
def effect_of_tau(findings: Findings, at: Setting) -> Figure:
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
    at: Setting,
    axes: Axes,
    x: Sequence[float],
    cells: dict[str, list[Job]],
    measures: Sequence[Measure],
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
