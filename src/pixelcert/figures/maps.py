"""Certified maps: what each method certifies on one image, for every K, beside the smoothed map and the overlay."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import chain

from matplotlib.figure import Figure

from ..study.job import Job
from .findings import Certified, Findings, Setting, UnavailableError
from .mosaic import Heading, Tile, key_of_maps, mosaic, photo_of
from .names import caption, layer_title, method_title, model_title, radius_title
from .page import styled
from .palette import FAMILIES, level_colours, paint_labels, paint_overlay

SELECTED = ("lrp", "rise", "grad_cam")  # the paper's, one of each family


def selected(findings: Findings, at: Setting) -> tuple[str, ...]:
    """The methods asked for, else the paper's choice, else the first of each family."""
    if "method" in at.given:
        return at.methods
    chosen = [name for base in SELECTED for name in at.methods if findings.base(name) == base]
    return tuple(chosen) or tuple(names[0] for names in findings.by_family(at.methods).values())


@styled
def certified_maps(findings: Findings, at: Setting) -> Figure:
    """Rows of methods: the smoothed sparsified map (SS), the certified map at every K, and all K overlaid."""
    return _maps(findings, at, selected(findings, at))


@styled
def vit_maps(findings: Findings, at: Setting) -> Figure:
    """`certified_maps` of all methods on a vision transformer."""
    return _maps(findings, of_vit(findings, at), at.methods)


@styled
def level_radius_matrix(findings: Findings, at: Setting) -> Figure:
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


def of_vit(findings: Findings, at: Setting) -> Setting:
    """The setting at the study's first vision transformer among the models shown."""
    named = {label: f"{label} {findings.settings.model_named(label).model}".lower() for label in at.models}
    if not (found := tuple(label for label, name in named.items() if "vit" in name)):
        raise UnavailableError("the study shows no vision transformer: name one in models, such as vit_b_16.")
    return replace(at, models=found)


def _maps(findings: Findings, at: Setting, methods: tuple[str, ...]) -> Figure:
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


def _job(
    findings: Findings, at: Setting, method: str, number: int, sigma: float | None = None
) -> tuple[Job, list[Job]]:
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
