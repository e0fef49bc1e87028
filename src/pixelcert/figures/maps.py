"""Certified maps, overlays and the teaser of a study."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ..plan import Sign
from ..study.findings import Certified, Findings, UnavailableError, View
from ..study.job import Job
from .sheet import ATTRIBUTION, FAMILIES, SOFT, Sheet, level_colours, paint_labels, paint_overlay, styled
from .tiles import Heading, Tile, draw_tile, key_of_maps, key_of_overlays, mosaic, photo_of
from .titles import caption, layer_title, method_title, model_title, radius_title

SELECTED = ("lrp", "rise", "grad_cam")  # the paper's, one of each family


def selected(findings: Findings, at: View) -> tuple[str, ...]:
    """The methods asked for, else the paper's choice, else the first of each family."""
    if "method" in at.given:
        return at.methods
    chosen = [name for base in SELECTED for name in at.methods if findings.base(name) == base]
    return tuple(chosen) or tuple(names[0] for names in findings.by_family(at.methods).values())


@styled
def certified_maps(findings: Findings, at: View) -> Figure:
    """Rows of methods: the smoothed sparsified map (SS), the certified map at every K, and all K overlaid."""
    return _maps(findings, at, selected(findings, at))


@styled
def vit_maps(findings: Findings, at: View) -> Figure:
    """`certified_maps` of all methods on a vision transformer."""
    return _maps(findings, of_vit(findings, at), at.methods)


@styled
def level_radius_matrix(findings: Findings, at: View) -> Figure:
    """One image under all methods, a row each: K across within each R, and R across."""
    sigmas = findings.settings.sigma
    if len(sigmas) < 2:
        raise UnavailableError(f"the study has one σ ({sigmas[0]:g}), and R varies with it: name more in sigma.")
    number, levels = findings.image_number(at), _levels(findings)
    rows, cells, tiles = list[Heading](), [], dict[tuple[int, int], Tile]()
    radii: dict[float, str] = {}
    for method in chain(*findings.by_family(at.methods).values()):
        family = findings.family(method)
        pictures: list[Tile] = []
        for sigma in sigmas:
            job, cell = _job(findings, at, method, number, sigma)
            found = findings.certified(job, at.tau)
            pictures += _map_tiles(found, levels)
            cells.append(cell)
            radii[sigma] = radius_title(findings.radius(cell, sigma, at.tau))
        tiles |= {(len(rows), column): tile for column, tile in enumerate(pictures, 1)}
        rows.append(Heading(method_title(method), family, FAMILIES[family]))
    tiles[0, 0] = photo_tile(findings, [cell[number] for cell in cells])
    titles = ["SS", *(f"K = {level} %" for level in levels), "overlaid"]
    columns = [Heading("image"), *(Heading(title, radii[sigma]) for sigma in sigmas for title in titles)]
    title = f"Certified maps by K and R, {model_title(at.model)}"
    note = f"SS: share of the noisy samples in which a pixel is in the top {levels[0]} %."
    stated = caption(findings, at, cells, sigma=sigmas, level=levels, scenes=_one_image(findings, number), note=note)
    return mosaic(title, rows, columns, tiles, stated, key_of_maps(levels), size=0.62)


def of_vit(findings: Findings, at: View) -> View:
    """The setting at the study's first vision transformer among the models shown."""
    named = {label: f"{label} {findings.settings.model_named(label).model}".lower() for label in at.models}
    if not (found := tuple(label for label, name in named.items() if "vit" in name)):
        raise UnavailableError("the study shows no vision transformer: name one in models, such as vit_b_16.")
    return replace(at, models=found)


def _maps(findings: Findings, at: View, methods: tuple[str, ...]) -> Figure:
    number, levels = findings.image_number(at), _levels(findings)
    rows, cells, tiles = list[Heading](), [], dict[tuple[int, int], Tile]()
    for index, method in enumerate(methods):
        job, cell = _job(findings, at, method, number)
        found = findings.certified(job, at.tau)
        tiles |= {(index, column): tile for column, tile in enumerate(_map_tiles(found, levels), 1)}
        layer = layer_title(findings.own_layer(method, at))
        rows.append(Heading(layer, method_title(method), FAMILIES[findings.family(method)]))
        cells.append(cell)
    tiles[0, 0] = photo_tile(findings, [cell[number] for cell in cells])
    title = f"Certified maps at every K, {model_title(at.model)}"
    stated = caption(findings, at, cells, level=levels, scenes=_one_image(findings, number))
    return mosaic(title, rows, _columns(levels), tiles, stated, key_of_maps(levels), size=0.95)


def _job(findings: Findings, at: View, method: str, number: int, sigma: float | None = None) -> tuple[Job, list[Job]]:
    cell = findings.cell("image", at.model, method, findings.own_layer(method, at), at, sigma)
    return cell[number], cell


def _levels(findings: Findings) -> list[float]:
    return sorted(findings.settings.levels, reverse=True)


def _columns(levels: list[float]) -> list[Heading]:
    titles = ["image", f"SS, K = {levels[0]} %", *(f"K = {level} %" for level in levels), "overlaid"]
    return [Heading(title) for title in titles]


def _map_tiles(found: Certified | None, levels: list[float]) -> list[Tile]:
    """SS, the certified maps and the overlay of a job."""
    return [smoothed_tile(found, levels[0]), *(_labels_tile(found, level) for level in levels), overlay_tile(found)]


def photo_tile(findings: Findings, jobs: Iterable[Job], target: tuple[int, int] | None = None) -> Tile:
    """The photograph, from the first of the jobs that is finished: all of one scene and model have the same."""
    for job in jobs:
        if (votes := findings.study.store.load_votes(job)) is not None:
            return Tile(photo_of(votes.photo, votes.size), target)
    return Tile(None)


def smoothed_tile(found: Certified | None, level: float) -> Tile:
    """SS: the share of samples in which each pixel was in the top K %."""
    return Tile(None if found is None else found.votes.smoothed(level))


def overlay_tile(found: Certified | None, cell: tuple[int, int] | None = None) -> Tile:
    """Pixels certified in the top K %, the smallest K on top, over the photograph in grey."""
    if found is None:
        return Tile(None)
    return Tile(paint_overlay(found.overlay, level_colours(list(found.labels)), found.votes.photo), cell)


def _labels_tile(found: Certified | None, level: float) -> Tile:
    if found is None:
        return Tile(None)
    return Tile(paint_labels(found.labels[level], level_colours(list(found.labels))[level]))


def _one_image(findings: Findings, number: int) -> str:
    return f"image {findings.scenes('image')[number].name}"


_IMAGES, _GRIDS = 6, 6  # shown at most
_LONGEST_NAME = 16


@styled
def overlays(findings: Findings, at: View) -> Figure:
    """Images down, methods across: each method's smoothed sparsified map (SS), and its certified overlay below."""
    return _overlays(findings, at)


@styled
def vit_overlays(findings: Findings, at: View) -> Figure:
    """`overlays` on a vision transformer."""
    return _overlays(findings, of_vit(findings, at))


@styled
def grid_overlays(findings: Findings, at: View) -> Figure:
    """Certified overlays on grids, the cell whose class is explained outlined."""
    scenes = findings.require("grid")[:_GRIDS]
    methods = tuple(chain(*findings.by_family(selected(findings, at)).values()))
    cells = _cells(findings, at, "grid", methods)
    levels = sorted(findings.settings.levels, reverse=True)
    tiles: dict[tuple[int, int], Tile] = {}
    for row, scene in enumerate(scenes):
        target = scene.side, scene.cell
        tiles[row, 0] = photo_tile(findings, [cell[row] for cell in cells], target)
        for column, cell in enumerate(cells, 1):
            tiles[row, column] = overlay_tile(findings.certified(cell[row], at.tau), target)
    rows = [Heading(scene.name) for scene in scenes]
    title = f"Certified overlays on grids, {model_title(at.model)}"
    note = "The blue outline is the cell whose class is explained."
    shown = f"{len(scenes)} of {len(findings.scenes('grid'))} grids"
    stated = caption(findings, at, cells, level=levels, scenes=shown, note=note)
    return mosaic(
        title, rows, _method_columns(findings, methods, "grid"), tiles, stated, key_of_overlays(levels), size=1.05
    )


def _overlays(findings: Findings, at: View) -> Figure:
    scenes = findings.require("image")[:_IMAGES]
    methods = tuple(chain(*findings.by_family(at.methods).values()))
    cells = _cells(findings, at, "image", methods)
    levels = sorted(findings.settings.levels, reverse=True)
    rows, tiles = list[Heading](), dict[tuple[int, int], Tile]()
    for number in range(len(scenes)):
        top = len(rows)
        tiles[top, 0] = photo_tile(findings, [cell[number] for cell in cells])
        name = scenes[number].name
        for column, cell in enumerate(cells, 1):
            found = findings.certified(cell[number], at.tau)
            name = name if found is None else found.votes.provenance.target_name
            tiles[top, column] = smoothed_tile(found, levels[0])
            tiles[top + 1, column] = overlay_tile(found)
        # a number keeps images of one class apart
        group = f"{number + 1} {name}" if len(name) < _LONGEST_NAME else f"{number + 1} {name[:_LONGEST_NAME]}…"
        rows += [Heading("SS", group), Heading("certified", group)]
    title = f"Certified overlays of all methods, {model_title(at.model)}"
    shown = f"{len(scenes)} of {len(findings.scenes('image'))} images"
    note = f"SS: share of the noisy samples in which a pixel is in the top {levels[0]} %. {_layers(findings, at)}"
    stated = caption(findings, at, cells, level=levels, scenes=shown, note=note)
    return mosaic(
        title, rows, _method_columns(findings, methods, "image"), tiles, stated, key_of_overlays(levels), size=0.82
    )


def _cells(findings: Findings, at: View, kind: str, methods: tuple[str, ...]) -> list[list[Job]]:
    return [findings.cell(kind, at.model, method, findings.own_layer(method, at), at) for method in methods]


def _method_columns(findings: Findings, methods: tuple[str, ...], first: str) -> list[Heading]:
    families = [findings.family(method) for method in methods]
    headings = [
        Heading(method_title(method), family, FAMILIES[family])
        for method, family in zip(methods, families, strict=True)
    ]
    return [Heading(first), *headings]


def _layers(findings: Findings, at: View) -> str:
    """Which layer each family's maps are of."""
    found: dict[str, list[str]] = {}
    for family, methods in findings.by_family(at.methods).items():
        found.setdefault(findings.own_layer(methods[0], at), []).append(family)
    said = "; ".join(f"{' and '.join(families)} at {_the(layer)}" for layer, families in found.items())
    return f"{said[:1].upper()}{said[1:]}."


def _the(layer: str) -> str:
    title = layer_title(layer)
    return title if title == layer else f"the {title}"


_SIZE, _GAP, _SAMPLES, _STEP = 1.35, 0.34, 4, 0.16  # inches; samples stand behind each other, a step apart
_LABELS, _TOP = 0.95, 0.42
_BRIGHTEST = 99.5  # percent of the map that is not clipped, so that one pixel does not darken the others


@styled
def teaser(findings: Findings, at: View) -> Figure:
    """Rows of methods: (a) the original explanation, (b) explanations under noise, (c) the certified overlay."""
    number, methods = findings.image_number(at), selected(findings, at)
    levels = sorted(findings.settings.levels, reverse=True)
    cells = [findings.cell("image", at.model, name, findings.own_layer(name, at), at) for name in methods]
    fan = _SIZE + (_SAMPLES - 1) * _STEP
    lefts = np.cumsum([_LABELS, _SIZE + _GAP, _SIZE + _GAP, fan + _GAP])
    row_height = fan + 0.14
    scene = findings.scenes("image")[number]
    page = Sheet(
        f"Which pixels of an explanation can be trusted, {model_title(at.model)}",
        float(lefts[-1]) + _SIZE,
        _TOP + len(methods) * row_height,
        caption(findings, at, cells, level=levels, scenes=f"image {scene.name}", note=_note(findings.correction(at))),
        key=key_of_overlays(levels),
    )
    for left, title in zip(lefts, _TITLES, strict=True):
        page.text(float(left), _TOP - 0.22, title, fontsize=7.5, va="bottom")
    photo = photo_tile(findings, [cell[number] for cell in cells])
    middle = (row_height - 0.14 - _SIZE) / 2
    for row, (method, cell) in enumerate(zip(methods, cells, strict=True)):
        top, job = _TOP + row * row_height, cell[number]
        colour = FAMILIES[findings.family(method)]
        page.text(0, top + fan / 2, method_title(method), fontsize=8.5, weight="bold", color=colour, va="bottom")
        layer = layer_title(findings.own_layer(method, at))
        page.text(0, top + fan / 2 + 0.05, layer, fontsize=6.8, color=SOFT, va="top")
        found = findings.certified(job, at.tau)
        missing = Tile(None)
        maps = [] if found is None else [shown(one, job.plan.sign) for one in findings.noisy_maps(job, _SAMPLES)]
        tiles = [Tile(one, cmap=ATTRIBUTION) for one in maps] or [missing] * (1 + _SAMPLES)
        draw_tile(page.axes(float(lefts[0]), top + middle, _SIZE, _SIZE), photo)
        draw_tile(page.axes(float(lefts[1]), top + middle, _SIZE, _SIZE), tiles[0])
        for behind in reversed(range(_SAMPLES)):
            shift = behind * _STEP
            place = (float(lefts[2]) + shift, top + (_SAMPLES - 1) * _STEP - shift)
            draw_tile(page.axes(*place, _SIZE, _SIZE), tiles[1 + behind])
        draw_tile(page.axes(float(lefts[3]), top + middle, _SIZE, _SIZE), overlay_tile(found))
    return page.figure


_TITLES = ("image x", "(a) explanation h(x)", "(b) under noise, h(x + ε)", "(c) certified")


def _note(correction: str) -> str:
    confidence = "with confidence 1-α" + (" for each pixel alone" if correction == "not corrected" else "")
    return (
        f"(c) shows the pixels that keep their majority under noise, in the top K %, for every change of the image "
        f"below R, {confidence}; the smallest K is on top."
    )


def shown(attribution: NDArray[Any], sign: Sign) -> NDArray[np.float64]:
    """A map as shades from 0 to 1: its positive part, or its magnitude where that is what is ranked."""
    values = np.abs(attribution) if sign == "absolute" else np.clip(attribution, 0, None)
    brightest = np.percentile(values, _BRIGHTEST)
    return np.clip(values / brightest, 0, 1) if brightest > 0 else np.zeros(values.shape)
