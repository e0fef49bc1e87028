"""Overlays of all methods: over many images, and over grids with their target cell outlined."""

from __future__ import annotations

from itertools import chain

from matplotlib.figure import Figure

from ..study.job import Job
from .findings import Findings, Setting
from .maps import of_vit, overlay_tile, photo_tile, selected, smoothed_tile
from .mosaic import Heading, Tile, key_of_overlays, mosaic
from .names import caption, layer_title, method_title, model_title
from .page import styled
from .palette import FAMILIES

_IMAGES, _GRIDS = 6, 6  # shown at most
_LONGEST_NAME = 16


@styled
def overlays(findings: Findings, at: Setting) -> Figure:
    """Images down, methods across: each method's smoothed sparsified map (SS), and its certified overlay below."""
    return _overlays(findings, at)


@styled
def vit_overlays(findings: Findings, at: Setting) -> Figure:
    """`overlays` on a vision transformer."""
    return _overlays(findings, of_vit(findings, at))


@styled
def grid_overlays(findings: Findings, at: Setting) -> Figure:
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
    return mosaic(title, rows, _columns(findings, methods, "grid"), tiles, stated, key_of_overlays(levels), size=1.05)


def _overlays(findings: Findings, at: Setting) -> Figure:
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
    return mosaic(title, rows, _columns(findings, methods, "image"), tiles, stated, key_of_overlays(levels), size=0.82)


def _cells(findings: Findings, at: Setting, kind: str, methods: tuple[str, ...]) -> list[list[Job]]:
    return [findings.cell(kind, at.model, method, findings.own_layer(method, at), at) for method in methods]


def _columns(findings: Findings, methods: tuple[str, ...], first: str) -> list[Heading]:
    families = [findings.family(method) for method in methods]
    headings = [
        Heading(method_title(method), family, FAMILIES[family])
        for method, family in zip(methods, families, strict=True)
    ]
    return [Heading(first), *headings]


def _layers(findings: Findings, at: Setting) -> str:
    """Which layer each family's maps are of."""
    found: dict[str, list[str]] = {}
    for family, methods in findings.by_family(at.methods).items():
        found.setdefault(findings.own_layer(methods[0], at), []).append(family)
    said = "; ".join(f"{' and '.join(families)} at {_the(layer)}" for layer, families in found.items())
    return f"{said[:1].upper()}{said[1:]}."


def _the(layer: str) -> str:
    title = layer_title(layer)
    return title if title == layer else f"the {title}"
