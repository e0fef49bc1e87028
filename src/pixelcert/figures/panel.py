"""The picture of one certificate: photograph, smoothed map, certified map per level, overlay, radius map."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray

from ..certificate import Certificate
from ..statistics import rounded_down
from .palette import ABSTAINED, INK, RADIUS_MAP, SOFT, ZERO, Colour, level_colours, paint_labels, paint_overlay

_COLUMNS = 4
_PANEL, _GAP, _MARGIN = 2.4, 0.16, 0.14  # inches
_HEADING, _CAPTION, _FOOTER, _BAR = 0.42, 0.44, 1.03, 0.46


def certificate_panel(certificate: Certificate) -> Figure:
    """Everything that a certificate says about one image, at a size that prints."""
    figure, axes = _lay_out(len(certificate.levels) + 4, *certificate.votes.size)
    colours = level_colours(certificate.levels)
    top = certificate.levels[0]

    _draw_photo(next(axes), certificate)
    _draw(next(axes), certificate.smoothed(top), "Smoothed map", f"share of samples in the top {top} %", "gray_r", 1.0)
    for level in certificate.levels:
        shares = certificate.shares(level)
        detail = f"{shares.ones:.1f} % in · {shares.zeros:.1f} % out · {shares.abstained:.1f} % abstain"
        _draw(next(axes), paint_labels(certificate.labels[level], colours[level]), f"Certified, K = {level} %", detail)
    overlay = paint_overlay(certificate.overlay, colours, certificate.votes.photo)
    _draw(next(axes), overlay, "Overlay", "certified in at any K; the smallest wins")
    _draw_radius_map(next(axes), certificate, top)

    _write_title(figure, certificate)
    _write_legend(figure, certificate, colours)
    return figure


def _lay_out(panels: int, height: int, width: int) -> tuple[Figure, Iterator[Axes]]:
    """A figure and the axes of its panels, row by row, all the image's shape."""
    rows = math.ceil(panels / _COLUMNS)
    tall = _PANEL * height / width
    full_width = 2 * _MARGIN + _COLUMNS * _PANEL + (_COLUMNS - 1) * _GAP + _BAR
    full_height = _HEADING + rows * (tall + _CAPTION) + _FOOTER
    figure = Figure(figsize=(full_width, full_height), dpi=160)

    def place(index: int) -> Axes:
        row, column = divmod(index, _COLUMNS)
        left = _MARGIN + column * (_PANEL + _GAP)
        bottom = full_height - _HEADING - (row + 1) * (tall + _CAPTION)
        return figure.add_axes((left / full_width, bottom / full_height, _PANEL / full_width, tall / full_height))

    return figure, map(place, range(panels))


def _draw(
    axes: Axes,
    picture: NDArray[Any],
    title: str,
    detail: str,
    cmap: str | None = None,
    top: float | None = None,
) -> None:
    axes.imshow(picture, cmap=cmap, vmin=0, vmax=top, interpolation="nearest")
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set(color="#dddddd", linewidth=0.6)
    axes.annotate(
        title, (0, 1), (0, 15), "axes fraction", textcoords="offset points", fontsize=10, color=INK, parse_math=False
    )
    axes.annotate(
        detail, (0, 1), (0, 5), "axes fraction", textcoords="offset points", fontsize=7.2, color=SOFT, parse_math=False
    )


def _draw_photo(axes: Axes, certificate: Certificate) -> None:
    votes = certificate.votes
    blank = np.full((*votes.size, 3), 245, dtype=np.uint8)
    _draw(
        axes,
        blank if votes.photo is None else votes.photo,
        "Photograph",
        f"explained class: {votes.provenance.target_name}",
    )


def _draw_radius_map(axes: Axes, certificate: Certificate, level: float) -> None:
    radii = certificate.votes.radius_map(level, certificate.alpha)
    detail = f"K = {level} %, each pixel's own, for all τ; grey: none"
    _draw(axes, np.where(radii > 0, radii, np.nan), "Radius map", detail, RADIUS_MAP)
    axes.set_facecolor(ABSTAINED)
    bar = axes.inset_axes((1.03, 0.0, 0.03, 1.0))
    axes.figure.colorbar(axes.images[0], cax=bar)
    bar.tick_params(labelsize=7, color=SOFT, labelcolor=SOFT)


def _write_title(figure: Figure, certificate: Certificate) -> None:
    source = certificate.votes.provenance
    layer = f" at the {source.layer} layer" if source.layer in ("input", "final") else f" at {source.layer}"
    model = f" of {source.model}" if source.model else ""
    parts = [source.image_name, f"{source.method}{layer if source.layer else ''}{model}"]
    title = "   ".join(part for part in parts if part)
    x, y = _MARGIN / figure.get_figwidth(), 1 - 0.13 / figure.get_figheight()
    figure.text(x, y, title, fontsize=11, color=INK, va="top", weight="bold", parse_math=False)


def _write_legend(figure: Figure, certificate: Certificate, colours: dict[float, Colour]) -> None:
    names = [(f"top {level} %", colour) for level, colour in colours.items()]
    names += [("outside the top K %", ZERO), ("abstains", ABSTAINED)]
    patches = [Patch(facecolor=colour, edgecolor="#999999", linewidth=0.5, label=name) for name, colour in names]
    x, inch = _MARGIN / figure.get_figwidth(), 1 / figure.get_figheight()
    figure.legend(
        handles=patches,
        loc="lower left",
        bbox_to_anchor=(x, 0.63 * inch),
        borderaxespad=0,
        borderpad=0,
        ncols=len(patches),
        columnspacing=1.4,
        handlelength=1.4,
        fontsize=8,
        frameon=False,
    )
    figure.text(x, 0.42 * inch, _settings(certificate), fontsize=8, color=SOFT, va="bottom")
    promise = textwrap.fill(certificate.promise, 160)  # two lines at most
    figure.text(x, 0.38 * inch, promise, fontsize=8, color=SOFT, va="top")


def _settings(certificate: Certificate) -> str:
    plan = certificate.votes.plan
    radius = f"R = {rounded_down(certificate.radius)} (ℓ2, pixels in [0, 1])"
    test = f"τ = {certificate.tau}   α = {certificate.alpha}   {certificate.correction}"
    return f"{radius}   σ = {plan.sigma}   n = {plan.n}   {test}"
