"""AggAtt: grids sorted by Certified GridPG and cut into bins: an example of each bin, and each bin's mean map."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, pairwise, product

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ..metrics import EDGES, agg_att, agg_att_bins
from ..study.findings import View
from ..study.job import Job
from .palette import Colour, paint_shades
from .tiles import Heading, Row, Tile, mosaic
from .titles import caption, layer_title, method_headings, method_title, model_title, radius_title

BINS = tuple(f"{low:g}–{high:g}" for low, high in pairwise(EDGES))
_KEY: dict[str, Colour] = {"certified 1": (0, 0, 0), "abstains": (0.5, 0.5, 0.5), "certified 0": (1, 1, 1)}


def aggatt_examples(view: View) -> Figure:
    """Draw, for every method and layer, the grid at the median place of each bin, its target cell outlined."""
    view.findings.require("grid")
    methods = list(chain(*view.families.values()))
    series = [[view.series("grid", method, layer) for layer in view.layers] for method in methods]
    tiles = [[tile for jobs in of_method for tile in _examples(view, jobs)] for of_method in series]
    rows = list(zip(method_headings(view, methods), tiles, strict=True))
    columns = [Heading(f"{bin_} %", layer_title(layer)) for layer in view.layers for bin_ in BINS]
    title = f"AggAtt examples, best grids left, {model_title(view.model)}"
    note = "The grid at the median place of each bin of grids sorted by Certified GridPG; its target cell is outlined."
    return mosaic(title, columns, rows, caption(view, chain(*series), note=note), _KEY, size=0.62)


def aggatt_means(view: View) -> Figure:
    """Draw the mean certified map of each bin, across K at the view's R, and across R at its K."""
    view.findings.require("grid")
    sigmas = (view.sigma, *(sigma for sigma in view.settings.sigma if sigma != view.sigma))
    asked = {sigma: view.levels if sigma == view.sigma else [view.level] for sigma in sigmas}
    rows, shown = list[Row](), list[list[Job]]()
    for layer, method in product(view.layers, chain(*view.families.values())):
        series = {sigma: view.series("grid", method, layer, sigma=sigma) for sigma in sigmas}
        means = [tile for sigma, levels in asked.items() for tile in _means(view, series[sigma], levels)]
        rows.append((Heading(method_title(method), layer_title(layer)), means))
        shown += series.values()
    radii = {sigma: radius_title(view.findings.radius(shown[0], sigma, view.tau)) for sigma in sigmas}
    groups = [f"{radii[sigma]}, K = {level} %" for sigma, levels in asked.items() for level in levels]
    columns = [Heading(bin_, group) for group in groups for bin_ in BINS]
    title = f"AggAtt mean maps, best grids left, {model_title(view.model)}"
    note = (
        "Bins in percent of the grids sorted by Certified GridPG; target cells are moved to the top left. Hatched: no "
        "grid in the bin."
    )
    stated = caption(view, shown, sigma=sigmas, level=view.levels, note=note)
    return mosaic(title, columns, rows, stated, _KEY, size=0.36)


def _scores(view: View, jobs: Sequence[Job], level: float) -> NDArray[np.float64]:
    """Return Certified GridPG of finished jobs, NaN where nothing is certified 1."""
    measured = [view.findings.measures(job) or {} for job in jobs]
    return np.array([values.get(("certified_grid_pg", view.tau, level)) for values in measured], dtype=float)


def _examples(view: View, series: Sequence[Job]) -> list[Tile]:
    jobs = [job for job in series if view.findings.measures(job) is not None]
    if not jobs:
        return [Tile(None)] * len(BINS)
    tiles = []
    for members in agg_att_bins(_scores(view, jobs, view.level)):
        if len(members) == 0:
            tiles.append(Tile(None, why="no grid"))
            continue
        job = jobs[int(members[(len(members) - 1) // 2])]
        found = view.certified(job)
        picture = None if found is None else paint_shades(found.labels[view.level])
        tiles.append(Tile(picture, (job.scene.side, job.scene.cell)))
    return tiles


def _means(view: View, series: Sequence[Job], levels: Sequence[float]) -> list[Tile]:
    """Return the bins' mean maps at each level; every job's votes are read once."""
    jobs, shades = [], {level: list[NDArray[np.float16]]() for level in levels}
    for job in series:
        if view.findings.measures(job) is not None and (found := view.certified(job)) is not None:
            jobs.append(job)
            for level, maps in shades.items():
                maps.append(aligned(paint_shades(found.labels[level]), job))
    if not jobs:
        return [Tile(None)] * len(BINS) * len(levels)
    means = chain(*(agg_att(np.stack(maps), _scores(view, jobs, level)) for level, maps in shades.items()))
    return [Tile(None, why="") if np.isnan(mean).all() else Tile(mean, (jobs[0].scene.side, 0)) for mean in means]


def aligned(shades: NDArray[np.float64], job: Job) -> NDArray[np.float16]:
    """Move a map's target cell to the top left; the other cells move with it, as on a torus."""
    row, column = divmod(job.scene.cell, job.scene.side)
    tall, wide = shades.shape[0] // job.scene.side, shades.shape[1] // job.scene.side
    return np.roll(shades, (-row * tall, -column * wide), axis=(0, 1)).astype(np.float16)  # 0, ½ and 1 are exact
