"""Choice: which level of a certificate is attacked, and which pixels alone, each by a change of its own."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..certificate import ABSTAIN, Certificate
from ..errors import ArgumentError
from .outcome import Pixel, labels_before


def choose_level(certificate: Certificate, level: float | None) -> float:
    """`level` if it is certified, the middle one by default."""
    if level is None:
        return sorted(certificate.levels, reverse=True)[len(certificate.levels) // 2]
    if level not in certificate.levels:
        known = ", ".join(map(str, certificate.levels))
        raise ArgumentError(f"level {level:g} is not in the certificate: choose one of {known}.")
    return certificate.levels[certificate.levels.index(level)]  # 10 where 10.0 was asked for


def choose_pixels(certificate: Certificate, level: float | None, count: int, seed: int = 0) -> list[Pixel]:
    """Up to `count` certified pixels, and as many that abstain with a majority to lose; ties are broken under `seed`.

    Of the certified ones those with the fewest votes for their labels, which should be the easiest to flip; of the
    others any, since those with the fewest votes flip without an attack.
    """
    if count < 1 or count != int(count):
        raise ArgumentError(f"pixels={count} is not a number of pixels: use a whole number from 1.")
    level = choose_level(certificate, level)
    random, labels = np.random.default_rng(seed), labels_before(certificate, level)
    votes, certified = certificate.votes, certificate.labels[level] != ABSTAIN
    kept = np.where(labels == 1, votes.ones[votes.index(level)], votes.zeros[votes.index(level)]).flatten()
    sure, unsure = _shuffled(certified, random), _shuffled(~certified & (labels != ABSTAIN), random)
    weakest = sure[np.argsort(kept[sure], kind="stable")]
    chosen = np.concatenate([weakest[:count], unsure[:count]])
    if not len(chosen):
        raise ArgumentError(f"at level {level} no pixel has a majority: there is nothing to flip.")
    return [(int(row), int(column)) for row, column in zip(*np.unravel_index(chosen, labels.shape), strict=True)]


def check_pixel(certificate: Certificate, pixel: Pixel | None) -> Pixel | None:
    if pixel is None:
        return None
    height, width = certificate.votes.size
    row, column = pixel
    if not (0 <= row < height and 0 <= column < width):
        raise ArgumentError(f"pixel {row}, {column} is not in a map of {height} × {width}: count from 0, rows first.")
    return row, column


def _shuffled(members: NDArray[np.bool_], random: np.random.Generator) -> NDArray[np.intp]:
    return random.permutation(np.flatnonzero(members))
