"""Maps: the certified maps of a study, their overlays, and the teaser."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ..plan import Sign
from ..study.findings import Certified, UnavailableError, View
from ..study.job import Job
from .sheet import ATTRIBUTION, FAMILIES, SOFT, Sheet, level_colours, paint_labels, paint_overlay
from .tiles import Heading, Tile, draw_tile, key_of_maps, key_of_overlays, mosaic, photo_of
from .titles import caption, layer_title, method_headings, method_title, model_title, radius_title, require_several

SELECTED = ("lrp", "rise", "grad_cam")  # the paper's, one of each family

Tiles = dict[tuple[int, int], Tile]  # by row and column


def selected(view: View) -> tuple[str, ...]:
    """Return the methods asked for, else the paper's choice, else the first of each family."""
    if "method" in view.given:
        return view.methods
    chosen = [name for base in SELECTED for name in view.methods if view.findings.base(name) == base]
    return tuple(chosen) or tuple(names[0] for names in view.families.values())


def of_vit(view: View) -> View:
    """Return a view of the first vision transformer among the models shown."""
    named = {label: f"{label} {view.settings.model_named(label).model}".lower() for label in view.models}
    if not (found := tuple(label for label, name in named.items() if "vit" in name)):
        raise UnavailableError("the study shows no vision transformer: name one in models, such as vit_b_16.")
    return replace(view, models=found)


# ── Tiles ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _own_series(view: View, kind: str, methods: Iterable[str], sigma: float | None = None) -> list[list[Job]]:
    """Return the series of each method at the layer where it is shown."""
    return [view.series(kind, method, view.own_layer(method), sigma=sigma) for method in methods]


def _photo_tile(view: View, jobs: Iterable[Job], target: tuple[int, int] | None = None) -> Tile:
    """Take the photograph from the first finished job: all of one scene and model have the same."""
    for job in jobs:
        if (votes := view.findings.study.store.load_votes(job)) is not None:
            return Tile(photo_of(votes), target)
    return Tile(None)


def _smoothed_tile(found: Certified | None, level: float) -> Tile:
    """Show the share of samples in which each pixel was in the top K % (SS)."""
    return Tile(None if found is None else found.votes.smoothed(level))


def _overlay_tile(found: Certified | None, target: tuple[int, int] | None = None) -> Tile:
    """Show the pixels certified in the top K %, the smallest K on top, over the photograph in grey."""
    if found is None:
        return Tile(None)
    return Tile(paint_overlay(found.overlay, level_colours(list(found.labels)), found.votes.photo), target)


def _map_tiles(found: Certified | None, levels: list[float]) -> list[Tile]:
    """Show SS, the certified maps and the overlay of a job."""
    labels = [Tile(None)] * len(levels)
    if found is not None:
        colours = level_colours(list(found.labels))
        labels = [Tile(paint_labels(found.labels[level], colours[level])) for level in levels]
    return [_smoothed_tile(found, levels[0]), *labels, _overlay_tile(found)]


def _smoothing_note(view: View) -> str:
    return f"SS: share of the noisy samples in which a pixel is in the top {view.levels[0]} %."


# ── Certified maps ────────────────────────────────────────────────────────────────────────────────────────────────


def certified_maps(view: View) -> Figure:
    """Draw rows of methods: the smoothed sparsified map (SS), the certified map at every K, and all K overlaid."""
    return _maps(view, selected(view))


def vit_maps(view: View) -> Figure:
    """Draw `certified_maps` of all methods on a vision transformer."""
    return _maps(of_vit(view), view.methods)


def _maps(view: View, methods: tuple[str, ...]) -> Figure:
    number, levels = view.image_number(), view.levels
    series = _own_series(view, "image", methods)
    tiles = Tiles()
    for row, jobs in enumerate(series):
        found = view.certified(jobs[number])
        tiles |= {(row, column): tile for column, tile in enumerate(_map_tiles(found, levels), 1)}
    tiles[0, 0] = _photo_tile(view, (jobs[number] for jobs in series))
    layers = [layer_title(view.own_layer(method)) for method in methods]
    colours = [FAMILIES[view.findings.family(method)] for method in methods]
    rows = list(map(Heading, layers, map(method_title, methods), colours))
    titles = ["image", f"SS, K = {levels[0]} %", *(f"K = {level} %" for level in levels), "overlaid"]
    title = f"Certified maps at every K, {model_title(view.model)}"
    stated = caption(view, series, level=levels, scenes=_image_name(view))
    return mosaic(title, rows, list(map(Heading, titles)), tiles, stated, key_of_maps(levels), size=0.95)


def level_radius_matrix(view: View) -> Figure:
    """Draw one image under all methods, a row each: K across within each R, and R across."""
    require_several(view, "sigma")
    number, levels, sigmas = view.image_number(), view.levels, view.settings.sigma
    methods = list(chain(*view.families.values()))
    series = {sigma: _own_series(view, "image", methods, sigma) for sigma in sigmas}
    shown = list(chain(*zip(*series.values(), strict=True)))
    tiles = Tiles()
    for row in range(len(methods)):
        found = [view.certified(series[sigma][row][number]) for sigma in sigmas]
        pictures = chain(*(_map_tiles(one, levels) for one in found))
        tiles |= {(row, column): tile for column, tile in enumerate(pictures, 1)}
    tiles[0, 0] = _photo_tile(view, (jobs[number] for jobs in shown))
    radii = {sigma: radius_title(view.findings.radius(series[sigma][-1], sigma, view.tau)) for sigma in sigmas}
    titles = ["SS", *(f"K = {level} %" for level in levels), "overlaid"]
    columns = [Heading("image"), *(Heading(title, radii[sigma]) for sigma in sigmas for title in titles)]
    title = f"Certified maps by K and R, {model_title(view.model)}"
    note = _smoothing_note(view)
    stated = caption(view, shown, sigma=sigmas, level=levels, scenes=_image_name(view), note=note)
    return mosaic(title, method_headings(view, methods), columns, tiles, stated, key_of_maps(levels), size=0.62)


def _image_name(view: View) -> str:
    return f"image {view.findings.scenes('image')[view.image_number()].name}"


# ── Overlays ──────────────────────────────────────────────────────────────────────────────────────────────────────

_IMAGES, _GRIDS = 6, 6  # shown at most
_LONGEST_NAME = 16


def overlays(view: View) -> Figure:
    """Draw images down and methods across: each smoothed sparsified map (SS), and its certified overlay below."""
    return _overlays(view)


def vit_overlays(view: View) -> Figure:
    """Draw `overlays` on a vision transformer."""
    return _overlays(of_vit(view))


def _overlays(view: View) -> Figure:
    scenes = view.findings.require("image")[:_IMAGES]
    methods = list(chain(*view.families.values()))
    series, levels = _own_series(view, "image", methods), view.levels
    rows, tiles = list[Heading](), Tiles()
    for number, scene in enumerate(scenes):
        name = scene.name
        tiles[len(rows), 0] = _photo_tile(view, (jobs[number] for jobs in series))
        for column, jobs in enumerate(series, 1):
            found = view.certified(jobs[number])
            name = name if found is None else found.votes.provenance.target_name
            tiles[len(rows), column] = _smoothed_tile(found, levels[0])
            tiles[len(rows) + 1, column] = _overlay_tile(found)
        name = name if len(name) < _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…"
        group = f"{number + 1} {name}"  # the number keeps images of one class apart
        rows += [Heading("SS", group), Heading("certified", group)]
    title = f"Certified overlays of all methods, {model_title(view.model)}"
    shown = f"{len(scenes)} of {len(view.findings.scenes('image'))} images"
    note = f"{_smoothing_note(view)} {_layers_note(view)}"
    stated = caption(view, series, level=levels, scenes=shown, note=note)
    columns = [Heading("image"), *method_headings(view, methods)]
    return mosaic(title, rows, columns, tiles, stated, key_of_overlays(levels), size=0.82)


def grid_overlays(view: View) -> Figure:
    """Draw certified overlays on grids, the cell whose class is explained outlined."""
    scenes = view.findings.require("grid")[:_GRIDS]
    methods = list(chain(*view.findings.by_family(selected(view)).values()))
    series, levels = _own_series(view, "grid", methods), view.levels
    tiles = Tiles()
    for row, scene in enumerate(scenes):
        target = scene.side, scene.cell
        tiles[row, 0] = _photo_tile(view, (jobs[row] for jobs in series), target)
        for column, jobs in enumerate(series, 1):
            tiles[row, column] = _overlay_tile(view.certified(jobs[row]), target)
    rows = [Heading(scene.name) for scene in scenes]
    title = f"Certified overlays on grids, {model_title(view.model)}"
    note = "The blue outline is the cell whose class is explained."
    shown = f"{len(scenes)} of {len(view.findings.scenes('grid'))} grids"
    stated = caption(view, series, level=levels, scenes=shown, note=note)
    columns = [Heading("grid"), *method_headings(view, methods)]
    return mosaic(title, rows, columns, tiles, stated, key_of_overlays(levels), size=1.05)


def _layers_note(view: View) -> str:
    """Say at which layer each family is shown."""
    found: dict[str, list[str]] = {}
    for family, methods in view.families.items():
        found.setdefault(view.own_layer(methods[0]), []).append(family)
    titles = {layer: layer_title(layer) for layer in found}
    places = {layer: title if title == layer else f"the {title}" for layer, title in titles.items()}
    said = "; ".join(f"{' and '.join(families)} at {places[layer]}" for layer, families in found.items())
    return f"{said[:1].upper()}{said[1:]}."


# ── The teaser ────────────────────────────────────────────────────────────────────────────────────────────────────

_SIZE, _GAP, _SAMPLES, _STEP = 1.35, 0.34, 4, 0.16  # inches; samples stand behind each other, a step apart
_LABELS, _TOP = 0.95, 0.42
_FAN = _SIZE + (_SAMPLES - 1) * _STEP  # the room of the samples, in both directions
_LEFTS = np.cumsum([_LABELS, _SIZE + _GAP, _SIZE + _GAP, _FAN + _GAP])
_TITLES = ("image x", "(a) explanation h(x)", "(b) under noise, h(x + ε)", "(c) certified")
_BRIGHTEST = 99.5  # percent of the map that is not clipped, so that one pixel does not darken the others


def teaser(view: View) -> Figure:
    """Draw rows of methods: (a) the original explanation, (b) explanations under noise, (c) the certified overlay."""
    number, methods, levels = view.image_number(), selected(view), view.levels
    series = _own_series(view, "image", methods)
    row_height = _FAN + 0.14
    size = float(_LEFTS[-1]) + _SIZE, _TOP + len(methods) * row_height
    stated = caption(view, series, level=levels, scenes=_image_name(view), note=_promise(view.correction))
    title = f"Which pixels of an explanation can be trusted, {model_title(view.model)}"
    sheet = Sheet(title, *size, stated, key=key_of_overlays(levels))
    for left, heading in zip(_LEFTS, _TITLES, strict=True):
        sheet.text(float(left), _TOP - 0.22, heading, fontsize=7.5, va="bottom")
    photo = _photo_tile(view, (jobs[number] for jobs in series))
    for row, (method, jobs) in enumerate(zip(methods, series, strict=True)):
        _draw_row(sheet, view, method, jobs[number], _TOP + row * row_height, photo)
    return sheet.figure


def _draw_row(sheet: Sheet, view: View, method: str, job: Job, top: float, photo: Tile) -> None:
    colour = FAMILIES[view.findings.family(method)]
    sheet.text(0, top + _FAN / 2, method_title(method), fontsize=8.5, weight="bold", color=colour, va="bottom")
    layer = layer_title(view.own_layer(method))
    sheet.text(0, top + _FAN / 2 + 0.05, layer, fontsize=6.8, color=SOFT, va="top")
    clean, *noisy = [Tile(None)] * (1 + _SAMPLES)
    if (found := view.certified(job)) is not None:
        maps = view.findings.noisy_maps(job, _SAMPLES)
        clean, *noisy = [Tile(shaded(one, job.plan.sign), cmap=ATTRIBUTION) for one in maps]
    middle = top + (_FAN - _SIZE) / 2
    places = [(_LEFTS[0], middle), (_LEFTS[1], middle)]
    shifts = [behind * _STEP for behind in range(_SAMPLES)]
    places += [(_LEFTS[2] + shift, top + shifts[-1] - shift) for shift in shifts[::-1]]  # the first sample on top
    places.append((_LEFTS[3], middle))
    for (left, down), tile in zip(places, [photo, clean, *noisy[::-1], _overlay_tile(found)], strict=True):
        draw_tile(sheet.axes(float(left), down, _SIZE, _SIZE), tile)


def _promise(correction: str) -> str:
    confidence = "with confidence 1-α" + (" for each pixel alone" if correction == "not corrected" else "")
    return (
        f"(c) shows the pixels that keep their majority under noise, in the top K %, for every change of the image "
        f"below R, {confidence}; the smallest K is on top."
    )


def shaded(attribution: NDArray[Any], sign: Sign) -> NDArray[np.float64]:
    """Shade a map from 0 to 1: its positive part, or its magnitude if that is what is ranked."""
    values = np.abs(attribution) if sign == "absolute" else np.clip(attribution, 0, None)
    brightest = np.percentile(values, _BRIGHTEST)
    return np.clip(values / brightest, 0, 1) if brightest > 0 else np.zeros(values.shape)
