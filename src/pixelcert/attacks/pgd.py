"""PGD: projected gradient descent on the shares of votes that pixels have for their labels."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from ..explainer import Explainer, explain
from ..noise import noisy, snap
from .aim import Aim
from .ball import Ball
from .gradients import Gradient

_REACH = 2.5  # the steps together are so many radii long, as Madry et al. (2018) have it
_MEMORY = 0.8  # of the running shares


def descend(
    aim: Aim,
    ball: Ball,
    gradient: Gradient,
    explainer: Explainer,
    target: int,
    *,
    start: Tensor,
    steps: int,
    draws: int,
    seed: int,
    report: Callable[[int], None],
) -> Tensor:
    """A perturbation in `ball` under which as many pixels of `aim` as possible lose their majority: (C, H, W).

    Each step explains `draws` noisy copies of the image where it stands, with noise of their own under `seed`. The
    explainer itself says how the pixels stand, and `gradient` which way to go. `report` hears how many copies a step
    took.
    """
    delta = ball.project(start)
    momentum, shares = torch.zeros_like(delta), None
    for step in range(steps):
        moved = snap(ball.image + delta)
        images = noisy(moved, aim.plan.sigma, seed, range(step * draws, (step + 1) * draws))
        maps = explain(explainer, images, target).maps
        now = aim.keeping(maps) / draws
        shares = now if shares is None else _MEMORY * shares + (1 - _MEMORY) * now
        slope = gradient.descent(moved, images, maps, aim.weights(shares))
        momentum = gradient.momentum * momentum + _unit(slope)
        delta = ball.project(delta + _REACH * ball.radius / steps * _unit(momentum))
        report(draws * (1 + gradient.passes))
    return delta


def _unit(direction: Tensor) -> Tensor:
    """At length 1; zero stays zero."""
    return F.normalize(direction.flatten(), dim=0, eps=torch.finfo(direction.dtype).tiny).view_as(direction)
