"""Maps: the certified maps of a study, their overlays, and the teaser."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ..certificate import CertifiedMaps
from ..plan import Sign
from ..study.findings import UnavailableError, View
from ..study.job import Job
from .palette import ATTRIBUTION, FAMILIES, SOFT, level_colours, paint_labels, paint_overlay
from .sheet import Sheet
from .tiles import Heading, Row, Tile, draw_tile, key_of_maps, key_of_overlays, mosaic, photo_of
from .titles import caption, layer_title, method_headings, method_title, model_title, radius_title, require_several

SELECTED = ("lrp", "rise", "grad_cam")  # the paper's, one of each family


def selected(view: View) -> tuple[str, ...]:
    """Return the methods asked for, else the paper's choice, else the first of each family."""
    if "method" in view.given:
        return view.methods
    chosen = [name for base in SELECTED for name in view.methods if view.findings.base(name) == base]
    return tuple(chosen) or tuple(names[0] for names in view.families.values())


def of_vit(view: View) -> View:
    """Return a view of the first vision transformer among the models shown, with all its methods."""
    titles = {name: f"{name} {view.settings.model_named(name).model}".lower() for name in view.models}
    if not (found := tuple(name for name, title in titles.items() if "vit" in title)):
        raise UnavailableError("the study shows no vision transformer: name one in models, such as vit_b_16.")
    return replace(view, models=found, given=view.given | {"method"})


# ── Tiles ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _own_series(view: View, kind: str, methods: Iterable[str]) -> list[list[Job]]:
    """Return the series of each method at the layer where it is shown."""
    return [view.series(kind, method, view.own_layer(method)) for method in methods]


def _photo_tile(found: Iterable[CertifiedMaps | None], target: tuple[int, int] | None = None) -> Tile:
    """Take the photograph from the first finished job: all of one scene and model have the same."""
    return Tile(next((photo_of(one.votes) for one in found if one is not None), None), target)


def _smoothed_tile(found: CertifiedMaps | None, level: float) -> Tile:
    """Show the share of samples in which each pixel was in the top K % (SS)."""
    return Tile(None if found is None else found.votes.smoothed(level))


def _overlay_tile(found: CertifiedMaps | None, target: tuple[int, int] | None = None) -> Tile:
    """Show the pixels certified in the top K %, the smallest K on top, over the photograph in grey."""
    if found is None:
        return Tile(None)
    return Tile(paint_overlay(found.overlay, level_colours(list(found.labels)), found.votes.photo), target)


def _map_tiles(found: CertifiedMaps | None, levels: list[float]) -> list[Tile]:
    """Show SS, the certified maps and the overlay of a job."""
    if found is None:
        return [Tile(None)] * (len(levels) + 2)
    colours = level_colours(list(found.labels))
    labels = [Tile(paint_labels(found.labels[level], colours[level])) for level in levels]
    return [_smoothed_tile(found, levels[0]), *labels, _overlay_tile(found)]


def _smoothing_note(view: View) -> str:
    return f"SS: share of the noisy samples in which a pixel is in the top {view.levels[0]} %."


# ── Certified maps ────────────────────────────────────────────────────────────────────────────────────────────────


def certified_maps(view: View) -> Figure:
    """Draw rows of methods: the smoothed sparsified map (SS), the certified map at every K, and all K overlaid."""
    number, methods, levels = view.image_number(), selected(view), view.levels
    series = _own_series(view, "image", methods)
    found = [view.certified(jobs[number]) for jobs in series]
    rows = list[Row]()
    for method, one in zip(methods, found, strict=True):
        colour = FAMILIES[view.findings.family(method)]
        heading = Heading(layer_title(view.own_layer(method)), method_title(method), colour)
        rows.append((heading, [None if rows else _photo_tile(found), *_map_tiles(one, levels)]))
    titles = ["image", f"SS, K = {levels[0]} %", *(f"K = {level} %" for level in levels), "overlaid"]
    title = f"Certified maps at every K, {model_title(view.model)}"
    stated = caption(view, series, level=levels, scenes=_image_name(view))
    return mosaic(title, list(map(Heading, titles)), rows, stated, key_of_maps(levels), size=0.95)


def vit_maps(view: View) -> Figure:
    """Draw `certified_maps` of all methods on a vision transformer."""
    return certified_maps(of_vit(view))


def level_radius_matrix(view: View) -> Figure:
    """Draw one image under all methods, a row each: K across within each R, and R across."""
    require_several(view, "sigma")
    number, levels, sigmas = view.image_number(), view.levels, view.settings.sigma
    methods = list(chain(*view.families.values()))
    views = [replace(view, sigma=sigma) for sigma in sigmas]
    series = list(zip(*(_own_series(one, "image", methods) for one in views), strict=True))  # by method and σ
    found = [[view.certified(jobs[number]) for jobs in of_method] for of_method in series]
    rows = list[Row]()
    for heading, own in zip(method_headings(view, methods), found, strict=True):
        tiles = [tile for one in own for tile in _map_tiles(one, levels)]
        rows.append((heading, [None if rows else _photo_tile(chain(*found)), *tiles]))
    radii = [radius_title(view.findings.radius(series[0][0], sigma, view.tau)) for sigma in sigmas]
    titles = ["SS", *(f"K = {level} %" for level in levels), "overlaid"]
    columns = [Heading("image"), *(Heading(title, radius) for radius in radii for title in titles)]
    title = f"Certified maps by K and R, {model_title(view.model)}"
    note = _smoothing_note(view)
    stated = caption(view, chain(*series), sigma=sigmas, level=levels, scenes=_image_name(view), note=note)
    return mosaic(title, columns, rows, stated, key_of_maps(levels), size=0.62)


def _image_name(view: View) -> str:
    return f"image {view.findings.scenes('image')[view.image_number()].name}"


# ── Overlays ──────────────────────────────────────────────────────────────────────────────────────────────────────

_IMAGES, _GRIDS = 6, 6  # shown at most
_LONGEST_NAME = 16


def overlays(view: View) -> Figure:
    """Draw images down and methods across: each smoothed sparsified map (SS), and its certified overlay below."""
    scenes = view.findings.require("image")
    methods = list(chain(*view.families.values()))
    series, levels = _own_series(view, "image", methods), view.levels
    rows = list[Row]()
    for number, scene in enumerate(scenes[:_IMAGES]):
        found = [view.certified(jobs[number]) for jobs in series]
        name = next((one.votes.provenance.target_name for one in found if one is not None), scene.name)
        name = name if len(name) < _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…"
        group = f"{number + 1} {name}"  # the number keeps images of one class apart
        rows.append((Heading("SS", group), [_photo_tile(found), *(_smoothed_tile(one, levels[0]) for one in found)]))
        rows.append((Heading("certified", group), [None, *map(_overlay_tile, found)]))
    title = f"Certified overlays of all methods, {model_title(view.model)}"
    shown = f"{min(_IMAGES, len(scenes))} of {len(scenes)} images"
    note = f"{_smoothing_note(view)} {_layers_note(view)}"
    stated = caption(view, series, level=levels, scenes=shown, note=note)
    columns = [Heading("image"), *method_headings(view, methods)]
    return mosaic(title, columns, rows, stated, key_of_overlays(levels), size=0.82)


def vit_overlays(view: View) -> Figure:
    """Draw `overlays` on a vision transformer."""
    return overlays(of_vit(view))


def grid_overlays(view: View) -> Figure:
    """Draw certified overlays on grids, the cell whose class is explained outlined."""
    scenes = view.findings.require("grid")
    methods = list(chain(*view.findings.by_family(selected(view)).values()))
    series, levels = _own_series(view, "grid", methods), view.levels
    rows = list[Row]()
    for number, scene in enumerate(scenes[:_GRIDS]):
        target, found = (scene.side, scene.cell), [view.certified(jobs[number]) for jobs in series]
        tiles = [_photo_tile(found, target), *(_overlay_tile(one, target) for one in found)]
        rows.append((Heading(scene.name), tiles))
    title = f"Certified overlays on grids, {model_title(view.model)}"
    note = "The blue outline is the cell whose class is explained."
    shown = f"{min(_GRIDS, len(scenes))} of {len(scenes)} grids"
    stated = caption(view, series, level=levels, scenes=shown, note=note)
    columns = [Heading("grid"), *method_headings(view, methods)]
    return mosaic(title, columns, rows, stated, key_of_overlays(levels), size=1.05)


def _layers_note(view: View) -> str:
    """Say at which layer each family is shown."""
    found: dict[str, list[str]] = {}
    for family, methods in view.families.items():
        layer = view.own_layer(methods[0])
        title = layer_title(layer)
        found.setdefault(title if title == layer else f"the {title}", []).append(family)
    said = "; ".join(f"{' and '.join(families)} at {place}" for place, families in found.items())
    return f"{said[:1].upper()}{said[1:]}."


# ── The teaser ────────────────────────────────────────────────────────────────────────────────────────────────────

_SIZE, _GAP, _SAMPLES, _STEP = 1.35, 0.34, 4, 0.16  # inches; samples stand behind each other, a step apart
_LABELS, _TOP = 0.95, 0.42
_FAN = _SIZE + (_SAMPLES - 1) * _STEP  # the room of the samples, in both directions
_LEFTS: list[float] = np.cumsum([_LABELS, _SIZE + _GAP, _SIZE + _GAP, _FAN + _GAP]).tolist()
_TITLES = ("image x", "(a) explanation h(x)", "(b) under noise, h(x + ε)", "(c) certified")
_BRIGHTEST = 99.5  # percent of the map that is not clipped, so that one pixel does not darken the others


def teaser(view: View) -> Figure:
    """Draw rows of methods: (a) the original explanation, (b) explanations under noise, (c) the certified overlay."""
    number, methods, levels = view.image_number(), selected(view), view.levels
    series = _own_series(view, "image", methods)
    row_height = _FAN + 0.14
    confidence = "with confidence 1-α" + (" for each pixel alone" if view.correction == "not corrected" else "")
    note = (
        f"(c) shows the pixels that keep their majority under noise, in the top K %, for every change of the image "
        f"below R, {confidence}; the smallest K is on top."
    )
    stated = caption(view, series, level=levels, scenes=_image_name(view), note=note)
    title = f"Which pixels of an explanation can be trusted, {model_title(view.model)}"
    height = _TOP + len(methods) * row_height
    sheet = Sheet(title, _LEFTS[-1] + _SIZE, height, stated, key=key_of_overlays(levels))
    for left, heading in zip(_LEFTS, _TITLES, strict=True):
        sheet.text(left, _TOP - 0.22, heading, fontsize=7.5, va="bottom")
    photo = _photo_tile(view.certified(jobs[number]) for jobs in series)
    for row, (method, jobs) in enumerate(zip(methods, series, strict=True)):
        _draw_row(sheet, view, method, jobs[number], _TOP + row * row_height, photo)
    return sheet.figure


def _draw_row(sheet: Sheet, view: View, method: str, job: Job, top: float, photo: Tile) -> None:
    colour, centre, middle = FAMILIES[view.findings.family(method)], top + _FAN / 2, top + (_FAN - _SIZE) / 2
    sheet.text(0, centre, method_title(method), fontsize=8.5, weight="bold", color=colour, va="bottom")
    sheet.text(0, centre + 0.05, layer_title(view.own_layer(method)), fontsize=6.8, color=SOFT, va="top")
    clean, *noisy = [Tile(None)] * (1 + _SAMPLES)
    if (found := view.certified(job)) is not None:
        maps = view.findings.noisy_maps(job, _SAMPLES)
        clean, *noisy = [Tile(shaded(one, job.plan.sign), cmap=ATTRIBUTION) for one in maps]
    tiles = [(_LEFTS[0], middle, photo), (_LEFTS[1], middle, clean), (_LEFTS[3], middle, _overlay_tile(found))]
    shifts = [behind * _STEP for behind in range(_SAMPLES)]
    fan = [(_LEFTS[2] + shift, top + shifts[-1] - shift, tile) for shift, tile in zip(shifts, noisy, strict=True)]
    for left, down, tile in [*tiles[:2], *fan[::-1], tiles[2]]:  # the first sample on top
        draw_tile(sheet.axes(left, down, _SIZE, _SIZE), tile)


def shaded(attribution: NDArray[Any], sign: Sign) -> NDArray[np.float64]:
    """Shade a map from 0 to 1: its positive part, or its magnitude if that is what is ranked."""
    values = np.abs(attribution) if sign == "absolute" else np.clip(attribution, 0, None)
    brightest = np.percentile(values, _BRIGHTEST)
    return np.clip(values / brightest, 0, 1) if brightest > 0 else np.zeros(values.shape)
