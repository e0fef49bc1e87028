"""The teaser: an explanation as people see it, the same under noise, and which of its pixels are certified."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ..plan import Sign
from .findings import Findings, Setting
from .maps import overlay_tile, photo_tile, selected
from .mosaic import Tile, draw_tile, key_of_overlays
from .names import caption, layer_title, method_title, model_title
from .page import Page, styled
from .palette import ATTRIBUTION, FAMILIES, SOFT

_SIZE, _GAP, _SAMPLES, _STEP = 1.35, 0.34, 4, 0.16  # inches; samples stand behind each other, a step apart
_LABELS, _TOP = 0.95, 0.42
_BRIGHTEST = 99.5  # percent of the map that is not clipped, so that one pixel does not darken the others


@styled
def teaser(findings: Findings, at: Setting) -> Figure:
    """Rows of methods: (a) the original explanation, (b) explanations under noise, (c) the certified overlay."""
    number, methods = findings.image_number(at), selected(findings, at)
    levels = sorted(findings.settings.levels, reverse=True)
    cells = [findings.cell("image", at.model, name, findings.own_layer(name, at), at) for name in methods]
    fan = _SIZE + (_SAMPLES - 1) * _STEP
    lefts = np.cumsum([_LABELS, _SIZE + _GAP, _SIZE + _GAP, fan + _GAP])
    row_height = fan + 0.14
    scene = findings.scenes("image")[number]
    page = Page(
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
