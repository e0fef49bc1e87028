"""Pictures of one certificate, of many, and of an attack."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray

from ..attacks.outcome import GROUPS, Attempt, Outcome
from ..certificate import Certificate
from ..plan import ABSTAIN
from ..statistics import rounded_down
from .sheet import ABSTAINED, INK, RADIUS_MAP, SOFT, ZERO, Colour, level_colours, paint_labels, paint_overlay, styled
from .tiles import Heading, Tile, mosaic, photo_of

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


_SMALL_PANEL, _SMALL_GAP, _NAMES_WIDTH, _TITLES_HEIGHT, _LEGEND_HEIGHT = 1.5, 0.06, 1.45, 0.32, 0.34  # inches


def certificate_gallery(rows: Mapping[str, Sequence[Certificate]]) -> Figure:
    """`rows` of certificates under their names, each drawn as its smoothed map (at the largest K) and its overlay."""
    columns = 2 * max(len(certificates) for certificates in rows.values())
    width = _NAMES_WIDTH + columns * (_SMALL_PANEL + _SMALL_GAP)
    height = _TITLES_HEIGHT + len(rows) * (_SMALL_PANEL + _SMALL_GAP) + _LEGEND_HEIGHT
    figure = Figure(figsize=(width, height), dpi=160)
    for row, (name, certificates) in enumerate(rows.items()):
        bottom = height - _TITLES_HEIGHT - (row + 1) * (_SMALL_PANEL + _SMALL_GAP)
        figure.text(
            0.1 / width, (bottom + _SMALL_PANEL / 2) / height, name, fontsize=8.5, va="center", parse_math=False
        )
        for index, certificate in enumerate(certificates):
            for half, (picture, title) in enumerate(_pictures(certificate)):
                left = _NAMES_WIDTH + (2 * index + half) * (_SMALL_PANEL + _SMALL_GAP)
                axes = figure.add_axes((left / width, bottom / height, _SMALL_PANEL / width, _SMALL_PANEL / height))
                axes.imshow(picture, cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")
                axes.set(xticks=[], yticks=[])
                if row == 0:
                    axes.set_title(title, fontsize=7.5)
                for spine in axes.spines.values():
                    spine.set(color="#dddddd", linewidth=0.6)
    _write_gallery_legend(figure, next(iter(rows.values()))[0])
    return figure


def _pictures(certificate: Certificate) -> list[tuple[NDArray[np.float64], str]]:
    layer, top = certificate.votes.provenance.layer, certificate.levels[0]
    overlay = paint_overlay(certificate.overlay, level_colours(certificate.levels), certificate.votes.photo)
    return [(certificate.smoothed(top), f"{layer}: smoothed, K = {top} %"), (overlay, f"{layer}: certified")]


def _write_gallery_legend(figure: Figure, certificate: Certificate) -> None:
    colours = level_colours(certificate.levels)
    patches = [Patch(facecolor=colour, label=f"certified in the top {level} %") for level, colour in colours.items()]
    figure.legend(handles=patches, loc="lower left", ncols=len(patches), fontsize=7.5, frameon=False)


FLIPPED: Colour = (0.0, 0.62, 0.45)  # estimated
PROVEN: Colour = (0.84, 0.1, 0.11)  # by the test
_SIZE = 1.2  # inches
_CHANGES = {"random": "random δ", "certified": "δ against certified", "abstaining": "δ against abstaining"}


@styled
def attack_panel(outcome: Outcome) -> Figure:
    """Radii across: under every change the photograph with δ, exaggerated, and the labels with what flipped."""
    before, *attempts = outcome.attempts
    photo = photo_of(outcome.certificate.votes.photo, outcome.certificate.votes.size) / 255
    changes = list(dict.fromkeys(attempt.change for attempt in attempts))
    radii = list(dict.fromkeys(attempt.radius for attempt in attempts))
    tiles = {(0, 0): Tile(photo), (1, 0): Tile(_paint_labels(outcome)), (1, 1): Tile(_paint_flips(outcome, before))}
    for attempt in attempts:
        row, column = 2 * changes.index(attempt.change), 2 + radii.index(attempt.radius)
        tiles[row, column] = Tile(np.clip(photo + _exaggerated(attempt), 0, 1))
        tiles[row + 1, column] = Tile(_paint_flips(outcome, attempt))
    rows = [Heading(title, _CHANGES[change]) for change in changes for title in ("photograph + δ", "flips")]
    columns = [Heading("before"), Heading("δ = 0"), *(Heading(_size(outcome, radius)) for radius in radii)]
    return mosaic(_title(outcome), rows, columns, tiles, _caption(outcome), _key(outcome), _SIZE)


def _size(outcome: Outcome, radius: float) -> str:
    certified = outcome.certificate.radius
    return f"‖δ‖ < {radius / certified:.3g} R" if certified else f"‖δ‖ < {radius:.4g}"


def _exaggerated(attempt: Attempt) -> NDArray[np.float64]:
    """δ as (H, W, 3) with its 99th percentile at half the range of colours."""
    delta = attempt.delta.astype(np.float64).transpose(1, 2, 0)
    if delta.shape[2] != 3:
        delta = np.repeat(delta.mean(axis=2, keepdims=True), 3, axis=2)
    largest = float(np.quantile(np.abs(delta), 0.99)) or 1.0
    return np.clip(0.5 * delta / largest, -0.5, 0.5)


def _paint_labels(outcome: Outcome) -> NDArray[np.float64]:
    return paint_labels(outcome.certificate.labels[outcome.level], _colour(outcome))


def _paint_flips(outcome: Outcome, attempt: Attempt) -> NDArray[np.float64]:
    """The certified labels, pale, under the pixels that flipped."""
    picture = 0.5 + 0.5 * _paint_labels(outcome)
    picture[outcome.flipped(attempt) & (outcome.labels != ABSTAIN)] = FLIPPED
    picture[outcome.provably_flipped(attempt) & (outcome.labels != ABSTAIN)] = PROVEN
    return picture


def _colour(outcome: Outcome) -> Colour:
    return level_colours([outcome.level])[outcome.level]


def _title(outcome: Outcome) -> str:
    source = outcome.certificate.votes.provenance
    parts = [source.image_name, source.method, source.layer and f"at {source.layer}", f"K = {outcome.level} %"]
    return "Attack: " + ", ".join(filter(None, parts))


def _caption(outcome: Outcome) -> str:
    counts = {group: int(outcome.members(group).sum()) for group in GROUPS}
    pixels = ", ".join(f"{count} {group}" for group, count in counts.items())
    certificate, sigma = outcome.certificate, outcome.certificate.votes.plan.sigma
    return (
        f"{pixels}. R = {rounded_down(certificate.radius)} (ℓ2, pixels in [0, 1]), σ = {sigma:g}, "
        f"τ = {certificate.tau:g}, α = {certificate.alpha:g}; judged by {outcome.samples} fresh samples. "
        "δ is exaggerated in the photographs. "
        f"{outcome.verdict[0].upper()}{outcome.verdict[1:]}"
    )


def _key(outcome: Outcome) -> dict[str, Colour]:
    return {
        f"certified in the top {outcome.level} %": _colour(outcome),
        "certified outside": ZERO,
        "abstains": ABSTAINED,
        "flipped: at most half the votes": FLIPPED,
        "provably": PROVEN,
    }
