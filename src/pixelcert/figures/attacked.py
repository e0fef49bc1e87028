"""The picture of an attack: photograph, perturbation, the labels before, and what flipped at each radius."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ..attacks.outcome import GROUPS, Attempt, Outcome
from ..certificate import ABSTAIN
from ..statistics import rounded_down
from .mosaic import Heading, Tile, mosaic, photo_of
from .page import styled
from .palette import ABSTAINED, ZERO, Colour, level_colours, paint_labels

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
