"""Aim: the level and pixels that are attacked, and how far each pixel is from losing its label."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..basics.messages import ArgumentError, check_whole
from ..certificate import Certificate
from ..plan import ABSTAIN, Plan, ones_at
from ..ranking import count_votes
from .judge import Pixel, labels_before

_WIDTH = 0.03  # attack shares within about this of one half; with a larger width the many sure pixels dominate


@dataclass(frozen=True)
class Aim:
    """Pixels to attack at one level, and the labels that should lose their majority, counted as in `plan`."""

    labels: Tensor  # (N,) of 1 and 0, ABSTAIN where a pixel is not attacked
    level: float
    plan: Plan

    @property
    def ones(self) -> int:
        """The number of pixels in the top K %."""
        return ones_at(self.level, self.labels.numel(), self.plan.rule)

    def keeping(self, maps: Tensor) -> Tensor:
        """Count the maps (B, H, W) in which each pixel has its label: (N,)."""
        ones, zeros = count_votes(maps.flatten(1), (self.level,), self.plan.sign, self.plan.rule)
        return torch.where(self.labels == 1, ones[0], zeros[0])

    def ranked(self, maps: Tensor) -> Tensor:
        """Return the values (B, N) of maps (B, H, W) that the plan ranks: magnitudes, or the values as they are.

        Positive parts are ranked as the values, because a clamped value has no slope to follow.
        """
        flat = maps.flatten(1)
        return flat.abs() if self.plan.sign == "absolute" else flat

    def weights(self, shares: Tensor) -> Tensor:
        """Return how much a vote against each label helps, when `shares` (N,) of the votes are for it: (N,).

        This is the slope of a smooth count of flips, Σ sigmoid((1/2 - share) / width), so that the attack spends its
        radius on pixels that it can still flip.
        """
        flipped = torch.sigmoid((0.5 - shares) / _WIDTH)
        return flipped * (1 - flipped) * (self.labels != ABSTAIN)


def choose_pixels(certificate: Certificate, level: float | None, count: int, seed: int = 0) -> list[Pixel]:
    """Choose up to `count` certified pixels, and up to `count` that abstain but have a majority.

    The certified ones have the fewest votes for their labels, so they should be the easiest to flip; `seed` breaks
    ties. The others are drawn at random, because those with the fewest votes flip without an attack.
    """
    check_whole("pixels", count, 1)
    level = certificate.level(level)
    random, labels = np.random.default_rng(seed % 2**64), labels_before(certificate, level)
    votes, certified = certificate.votes, certificate.labels[level] != ABSTAIN
    kept = np.where(labels == 1, votes.ones[votes.index(level)], votes.zeros[votes.index(level)]).flatten()
    sure = random.permutation(np.flatnonzero(certified))
    unsure = random.permutation(np.flatnonzero(~certified & (labels != ABSTAIN)))
    weakest = sure[np.argsort(kept[sure], kind="stable")]
    chosen = np.concatenate([weakest[:count], unsure[:count]])
    if not len(chosen):
        raise ArgumentError(f"at level {level} no pixel has a majority: there is nothing to flip.")
    return [(int(row), int(column)) for row, column in zip(*np.unravel_index(chosen, labels.shape), strict=True)]
