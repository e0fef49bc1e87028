"""Aim: which pixels are attacked, and how far each of them is from losing its label."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..certificate import ABSTAIN
from ..plan import Plan
from ..ranking import count_votes, ones_at

_WIDTH = 0.03  # shares within about this of one half are worth pushing; wider, sure pixels outweigh them by number


@dataclass(frozen=True)
class Aim:
    """Pixels whose labels are to lose the majority at one level, as the votes of `plan` are counted."""

    labels: Tensor  # (N,) of 1 and 0, ABSTAIN where a pixel is left alone
    level: float
    plan: Plan

    @property
    def ones(self) -> int:
        """How many pixels the top K % has."""
        return ones_at(self.level, self.labels.numel(), self.plan.rule)

    def keeping(self, maps: Tensor) -> Tensor:
        """In how many of the maps (B, H, W) each pixel has its label: (N,)."""
        ones, zeros = count_votes(maps.flatten(1), (self.level,), self.plan.sign, self.plan.rule)
        return torch.where(self.labels == 1, ones[0], zeros[0])

    def ranked(self, maps: Tensor) -> Tensor:
        """What the plan ranks of maps (B, H, W): (B, N). Magnitudes, or the values as they are.

        Positive parts are ranked as the values: a clamped value has no slope to follow.
        """
        flat = maps.flatten(1)
        return flat.abs() if self.plan.sign == "absolute" else flat

    def weights(self, shares: Tensor) -> Tensor:
        """How much a vote against each pixel's label helps, when `shares` (N,) of the votes are for it: (N,).

        The slope of a smooth count of flips, Σ sigmoid((1/2 - share) / width), so that the attack spends its radius on
        pixels that it can still flip.
        """
        flipped = torch.sigmoid((0.5 - shares) / _WIDTH)
        return flipped * (1 - flipped) * (self.labels != ABSTAIN)
