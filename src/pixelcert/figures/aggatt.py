"""AggAtt: grids sorted by Certified GridPG and cut into bins: an example of each bin, and each bin's mean map."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ..metrics import EDGES, agg_att, agg_att_bins
from ..study.findings import Findings, View
from ..study.job import Job
from .sheet import FAMILIES, Colour, paint_shades, styled
from .tiles import Heading, Tile, mosaic
from .titles import caption, layer_title, method_title, model_title, radius_title

BINS = tuple(f"{low:g}–{high:g}" for low, high in pairwise(EDGES))
_KEY: dict[str, Colour] = {"certified 1": (0, 0, 0), "abstains": (0.5, 0.5, 0.5), "certified 0": (1, 1, 1)}
_EMPTY = "no grid"


@styled
def aggatt_examples(findings: Findings, at: View) -> Figure:
    """For every method and layer, the grid at the median place of each bin, its target cell outlined."""
    findings.require("grid")
    tiles: dict[tuple[int, int], Tile] = {}
    cells, methods = [], _by_family(findings, at)
    for row, method in enumerate(methods):
        for block, layer in enumerate(at.layers):
            cells.append(findings.cell("grid", at.model, method, layer, at))
            for bin_, tile in enumerate(_examples(findings, cells[-1], at)):
                tiles[row, block * len(BINS) + bin_] = tile
    columns = [Heading(f"{bin_} %", layer_title(layer)) for layer in at.layers for bin_ in BINS]
    title = f"AggAtt examples, best grids left, {model_title(at.model)}"
    note = "The grid at the median place of each bin of grids sorted by Certified GridPG; its target cell is outlined."
    stated = caption(findings, at, cells, note=note)
    return mosaic(title, _rows(findings, methods), columns, tiles, stated, _KEY, size=0.62)


@styled
def aggatt_means(findings: Findings, at: View) -> Figure:
    """The mean certified map of each bin, across K at the setting's R, and across R at its K."""
    findings.require("grid")
    levels = sorted(findings.settings.levels, reverse=True)
    others = [sigma for sigma in findings.settings.sigma if sigma != at.sigma]
    tiles: dict[tuple[int, int], Tile] = {}
    rows, cells = list[Heading](), []
    for layer in at.layers:
        for method in _by_family(findings, at):
            asked = {at.sigma: levels, **{sigma: [at.level] for sigma in others}}
            means = []
            for sigma, wanted in asked.items():
                cells.append(findings.cell("grid", at.model, method, layer, at, sigma))
                means += _means(findings, cells[-1], at.tau, wanted)
            tiles |= {(len(rows), column): tile for column, tile in enumerate(means)}
            rows.append(Heading(method_title(method), layer_title(layer)))
    radii = {sigma: radius_title(findings.radius(cells[0], sigma, at.tau)) for sigma in findings.settings.sigma}
    groups = [f"{radii[at.sigma]}, K = {level} %" for level in levels]
    groups += [f"{radii[sigma]}, K = {at.level} %" for sigma in others]
    columns = [Heading(bin_, group) for group in groups for bin_ in BINS]
    title = f"AggAtt mean maps, best grids left, {model_title(at.model)}"
    note = (
        "Bins in percent of the grids sorted by Certified GridPG; target cells are moved to the top left. Hatched: no "
        "grid in the bin."
    )
    sigmas = (at.sigma, *others)
    stated = caption(findings, at, cells, sigma=sigmas, level=levels, note=note)
    return mosaic(title, rows, columns, tiles, stated, _KEY, size=0.36)


def _by_family(findings: Findings, at: View) -> list[str]:
    return [method for methods in findings.by_family(at.methods).values() for method in methods]


def _rows(findings: Findings, methods: Sequence[str]) -> list[Heading]:
    families = [findings.family(method) for method in methods]
    return [
        Heading(method_title(method), family, FAMILIES[family])
        for method, family in zip(methods, families, strict=True)
    ]


def _finished(findings: Findings, cell: Sequence[Job], tau: float, level: float) -> tuple[list[Job], list[float]]:
    """The finished jobs of a cell and their scores, NaN where nothing is certified 1."""
    found = [(job, measured) for job in cell if (measured := findings.measures(job)) is not None]
    scores = [measured.get(("certified_grid_pg", tau, level)) for _, measured in found]
    return [job for job, _ in found], [math.nan if score is None else score for score in scores]


def _examples(findings: Findings, cell: Sequence[Job], at: View) -> list[Tile]:
    jobs, scores = _finished(findings, cell, at.tau, at.level)
    if not jobs:
        return [Tile(None)] * len(BINS)
    tiles = []
    for index in agg_att_bins(scores):
        if len(index) == 0:
            tiles.append(Tile(None, why=_EMPTY))
            continue
        job = jobs[int(index[(len(index) - 1) // 2])]
        found = findings.certified(job, at.tau)
        picture = None if found is None else paint_shades(found.labels[at.level])
        tiles.append(Tile(picture, (job.scene.side, job.scene.cell)))
    return tiles


def _means(findings: Findings, cell: Sequence[Job], tau: float, levels: Sequence[float]) -> list[Tile]:
    """The bins' mean maps at each level; every job's votes are read once."""
    jobs, shades = [], [list[NDArray[np.float16]]() for _ in levels]
    for job in _finished(findings, cell, tau, levels[0])[0]:
        if (found := findings.certified(job, tau)) is not None:
            jobs.append(job)
            for maps, level in zip(shades, levels, strict=True):
                maps.append(aligned(paint_shades(found.labels[level]), job))
    if not jobs:
        return [Tile(None)] * len(BINS) * len(levels)
    tiles = []
    for maps, level in zip(shades, levels, strict=True):
        for mean in agg_att(np.stack(maps), _finished(findings, jobs, tau, level)[1]):
            empty = bool(np.isnan(mean).all())
            tiles.append(Tile(None, why="") if empty else Tile(mean, (jobs[0].scene.side, 0)))
    return tiles


def aligned(shades: NDArray[np.float64], job: Job) -> NDArray[np.float16]:
    """A map (H, W) with its target cell moved to the top left, the others round about as on a torus."""
    row, column = divmod(job.scene.cell, job.scene.side)
    tall, wide = shades.shape[0] // job.scene.side, shades.shape[1] // job.scene.side
    return np.roll(shades, (-row * tall, -column * wide), axis=(0, 1)).astype(np.float16)  # 0, ½ and 1 are exact
