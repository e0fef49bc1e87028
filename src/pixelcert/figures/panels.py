"""Panels: pictures of one certificate, of many, and of an attack."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ..attacks.judge import GROUPS, Attempt
from ..attacks.outcome import Outcome
from ..certificate import Certificate
from ..plan import ABSTAIN
from ..statistics import rounded_down
from ..votes import title_of
from .palette import ABSTAINED, INK, RADIUS_MAP, SOFT, ZERO, Colour, level_colours, paint_labels, paint_overlay
from .sheet import add_legend, frame, patches, styled
from .tiles import Heading, Row, Tile, key_of_overlays, mosaic, photo_of

_COLUMNS = 4
_PANEL, _GAP, _MARGIN = 2.4, 0.16, 0.14  # inches
_HEADING, _CAPTION, _FOOTER, _BAR = 0.42, 0.44, 1.03, 0.46


def certificate_panel(certificate: Certificate) -> Figure:
    """Draw everything that a certificate says about one image, at a size that prints."""
    votes, colours, top = certificate.votes, level_colours(certificate.levels), certificate.levels[0]
    figure, places = _lay_out(len(certificate.levels) + 4, *votes.size)
    _draw(next(places), photo_of(votes), "Photograph", f"explained class: {votes.provenance.target_name}")
    detail = f"share of samples in the top {top} %"
    _draw(next(places), certificate.smoothed(top), "Smoothed map", detail, cmap="gray_r", vmax=1.0)
    for level in certificate.levels:
        shares = certificate.shares(level)
        detail = f"{shares.ones:.1f} % in · {shares.zeros:.1f} % out · {shares.abstained:.1f} % abstain"
        labels = paint_labels(certificate.labels[level], colours[level])
        _draw(next(places), labels, f"Certified, K = {level} %", detail)
    overlay = paint_overlay(certificate.overlay, colours, votes.photo)
    _draw(next(places), overlay, "Overlay", "certified in at any K; the smallest wins")
    _draw_radius_map(next(places), certificate, top)
    _write_title(figure, certificate)
    _write_legend(figure, certificate, colours)
    return figure


def _lay_out(panels: int, height: int, width: int) -> tuple[Figure, Iterator[Axes]]:
    """Make a figure, and an iterator that adds its panels, row by row, all in the image's shape."""
    tall = _PANEL * height / width
    full_width = 2 * _MARGIN + _COLUMNS * _PANEL + (_COLUMNS - 1) * _GAP + _BAR
    rows = math.ceil(panels / _COLUMNS)
    full_height = _HEADING + rows * (tall + _CAPTION) + _FOOTER
    figure = Figure(figsize=(full_width, full_height), dpi=160)
    lefts = [_MARGIN + column * (_PANEL + _GAP) for column in range(_COLUMNS)]
    bottoms = [full_height - _HEADING - (row + 1) * (tall + _CAPTION) for row in range(rows)]
    return figure, (_axes(figure, left, bottom, _PANEL, tall) for bottom, left in product(bottoms, lefts))


def _axes(figure: Figure, left: float, bottom: float, width: float, height: float) -> Axes:
    """Add axes at inches from the figure's left and bottom."""
    full_width, full_height = figure.get_size_inches()
    return figure.add_axes((left / full_width, bottom / full_height, width / full_width, height / full_height))


def _draw(axes: Axes, picture: NDArray[Any], title: str, detail: str, **style: Any) -> None:
    axes.imshow(picture, **{"vmin": 0, "interpolation": "nearest", **style})
    frame(axes)
    for text, above, size, colour in ((title, 15, 10, INK), (detail, 5, 7.2, SOFT)):
        where: Any = {"xytext": (0, above), "xycoords": "axes fraction", "textcoords": "offset points"}
        axes.annotate(text, (0, 1), **where, fontsize=size, color=colour, parse_math=False)


def _draw_radius_map(axes: Axes, certificate: Certificate, level: float) -> None:
    radii = certificate.votes.radius_map(level, certificate.alpha)
    detail = f"K = {level} %, each pixel's own, for all τ; grey: none"
    _draw(axes, np.where(radii > 0, radii, np.nan), "Radius map", detail, cmap=RADIUS_MAP)
    axes.set_facecolor(ABSTAINED)
    bar = axes.inset_axes((1.03, 0.0, 0.03, 1.0))
    axes.figure.colorbar(axes.images[0], cax=bar)
    bar.tick_params(labelsize=7, color=SOFT, labelcolor=SOFT)


def _write_title(figure: Figure, certificate: Certificate) -> None:
    source = certificate.votes.provenance
    if source.layer in ("input", "final"):
        source = replace(source, layer=f"the {source.layer} layer")
    title = "   ".join(filter(None, (source.image_name, source.title)))
    x, y = _MARGIN / figure.get_figwidth(), 1 - 0.13 / figure.get_figheight()
    figure.text(x, y, title, fontsize=11, color=INK, va="top", weight="bold", parse_math=False)


def _write_legend(figure: Figure, certificate: Certificate, colours: dict[float, Colour]) -> None:
    names = [(f"top {level} %", colour) for level, colour in colours.items()]
    handles = patches([*names, ("outside the top K %", ZERO), ("abstains", ABSTAINED)])
    x, inch = _MARGIN / figure.get_figwidth(), 1 / figure.get_figheight()
    add_legend(figure, handles, (x, 0.63 * inch), columnspacing=1.4, fontsize=8)
    plan = certificate.votes.plan
    test = f"τ = {certificate.tau}   α = {certificate.alpha}   {certificate.correction}"
    settings = f"{_radius(certificate)}   σ = {plan.sigma}   n = {plan.n}   {test}"
    figure.text(x, 0.42 * inch, settings, fontsize=8, color=SOFT, va="bottom")
    promise = textwrap.fill(certificate.promise, 160)  # two lines at most
    figure.text(x, 0.38 * inch, promise, fontsize=8, color=SOFT, va="top")


def _radius(certificate: Certificate) -> str:
    return f"R = {rounded_down(certificate.radius)} (ℓ2, pixels in [0, 1])"


_SMALL, _SMALL_GAP, _NAMES_WIDTH, _TITLES_HEIGHT, _LEGEND_HEIGHT = 1.5, 0.06, 1.45, 0.32, 0.34  # inches


def certificate_gallery(rows: Mapping[str, Sequence[Certificate]]) -> Figure:
    """Draw rows of certificates under their names, each as its smoothed map (at the largest K) and its overlay."""
    columns = 2 * max(len(certificates) for certificates in rows.values())
    width = _NAMES_WIDTH + columns * (_SMALL + _SMALL_GAP)
    height = _TITLES_HEIGHT + len(rows) * (_SMALL + _SMALL_GAP) + _LEGEND_HEIGHT
    figure = Figure(figsize=(width, height), dpi=160)
    for row, (name, certificates) in enumerate(rows.items()):
        bottom = height - _TITLES_HEIGHT - (row + 1) * (_SMALL + _SMALL_GAP)
        middle = (bottom + _SMALL / 2) / height
        figure.text(0.1 / width, middle, name, fontsize=8.5, va="center", parse_math=False)
        pictures = [picture for certificate in certificates for picture in _pictures(certificate)]
        for column, (picture, title) in enumerate(pictures):
            axes = _axes(figure, _NAMES_WIDTH + column * (_SMALL + _SMALL_GAP), bottom, _SMALL, _SMALL)
            axes.imshow(picture, cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")
            frame(axes)
            if row == 0:
                axes.set_title(title, fontsize=7.5)
    key = patches(key_of_overlays(next(iter(rows.values()))[0].levels).items(), linewidth=None)
    figure.legend(handles=key, loc="lower left", ncols=len(key), fontsize=7.5, frameon=False)
    return figure


def _pictures(certificate: Certificate) -> list[tuple[NDArray[np.float64], str]]:
    """Return smoothed map and overlay with their titles."""
    layer, top = certificate.votes.provenance.layer, certificate.levels[0]
    overlay = paint_overlay(certificate.overlay, level_colours(certificate.levels), certificate.votes.photo)
    return [(certificate.smoothed(top), f"{layer}: smoothed, K = {top} %"), (overlay, f"{layer}: certified")]


FLIPPED: Colour = (0.0, 0.62, 0.45)  # estimated
PROVEN: Colour = (0.84, 0.1, 0.11)  # by the test
_CHANGES = {"random": "random δ", "certified": "δ against certified", "abstaining": "δ against abstaining"}


@styled
def attack_panel(outcome: Outcome) -> Figure:
    """Draw radii across; for every change, the photograph with an exaggerated δ, and the labels with flipped pixels."""
    before, *attempts = outcome.attempts
    certificate, level, source = outcome.certificate, outcome.level, outcome.certificate.votes.provenance
    photo = photo_of(certificate.votes) / 255
    labels = paint_labels(certificate.labels[level], level_colours([level])[level])
    rows = list[Row]()
    for change in dict.fromkeys(attempt.change for attempt in attempts):  # each at every radius, from small to large
        own = [attempt for attempt in attempts if attempt.change == change]
        photos = [Tile(np.clip(photo + _exaggerated(attempt), 0, 1)) for attempt in own]
        flips = [Tile(_paint_flips(outcome, labels, attempt)) for attempt in own]
        first = [None, None] if rows else [Tile(photo), None]
        second = [None, None] if rows else [Tile(labels), Tile(_paint_flips(outcome, labels, before))]
        rows.append((Heading("photograph + δ", _CHANGES[change]), [*first, *photos]))
        rows.append((Heading("flips", _CHANGES[change]), [*second, *flips]))
    radii = dict.fromkeys(attempt.radius for attempt in attempts)
    columns = [Heading("before"), Heading("δ = 0"), *(Heading(_size(certificate, radius)) for radius in radii)]
    parts = [source.image_name, title_of(source.method, source.layer), f"K = {level} %"]
    key = {**key_of_overlays([level]), "certified outside": ZERO, "abstains": ABSTAINED}
    key |= {"flipped: at most half the votes": FLIPPED, "provably": PROVEN}
    return mosaic(f"Attack: {', '.join(filter(None, parts))}", columns, rows, _caption(outcome), key, size=1.2)


def _size(certificate: Certificate, radius: float) -> str:
    return f"‖δ‖ < {radius / certificate.radius:.3g} R" if certificate.radius else f"‖δ‖ < {radius:.4g}"


def _exaggerated(attempt: Attempt) -> NDArray[np.float64]:
    """Return δ as (H, W, 3), with its 99th percentile at half the range of colours."""
    delta = attempt.delta.astype(np.float64).transpose(1, 2, 0)
    if delta.shape[2] != 3:
        delta = np.repeat(delta.mean(axis=2, keepdims=True), 3, axis=2)
    largest = float(np.quantile(np.abs(delta), 0.99)) or 1.0
    return np.clip(0.5 * delta / largest, -0.5, 0.5)


def _paint_flips(outcome: Outcome, labels: NDArray[np.float64], attempt: Attempt) -> NDArray[np.float64]:
    """Paint the certified labels, pale, under the pixels that flipped."""
    picture = 0.5 + 0.5 * labels
    judge, labelled = outcome.judge, outcome.judge.labels != ABSTAIN
    picture[judge.flipped(attempt) & labelled] = FLIPPED
    picture[judge.provably_flipped(attempt) & labelled] = PROVEN
    return picture


def _caption(outcome: Outcome) -> str:
    counts = {group: int(outcome.judge.members(group).sum()) for group in GROUPS}
    pixels = ", ".join(f"{count} {group}" for group, count in counts.items())
    certificate, sigma = outcome.certificate, outcome.certificate.votes.plan.sigma
    return (
        f"{pixels}. {_radius(certificate)}, σ = {sigma}, τ = {certificate.tau}, α = {certificate.alpha}; "
        f"judged by {outcome.samples} fresh samples. δ is exaggerated in the photographs. "
        f"{outcome.verdict[0].upper()}{outcome.verdict[1:]}"
    )
