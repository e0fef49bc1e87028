"""Descent: projected gradient descent in a ball, and how hard it tries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from ..basics.messages import ArgumentError, check_choice
from ..explainer import Explainer, explain
from ..noise import noisy, snap
from .aim import Aim
from .gradients import Gradient

Choice = Literal["auto", "pathwise", "stein"]


@dataclass(frozen=True)
class Effort:
    """Settings of an attack.

    Each of `steps` explains `draws` noisy copies of the image where it stands and follows a gradient: "pathwise", of a
    differentiable surrogate of the map, or "stein", of votes alone; "auto" takes the first where there is one. Each
    perturbation is judged by `samples` fresh copies, `batch_size` at once. `seed` is the attack's.
    """

    steps: int = 30
    draws: int = 16
    samples: int = 1000
    gradient: Choice = "auto"
    seed: int = 0
    batch_size: int | None = None

    def __post_init__(self) -> None:
        for name, least in (("steps", 1), ("draws", 2), ("samples", 1)):
            if (value := getattr(self, name)) < least or value != int(value):
                raise ArgumentError(f"{name}={value} is not a number of {name}: use a whole number from {least}.")
        check_choice("gradient", self.gradient, Choice)
        if not 0 <= self.seed < 2**32 or self.seed != int(self.seed):
            raise ArgumentError(f"seed={self.seed} is not a whole number from 0 to {2**32 - 1}: use one such as 0.")

    def noise_seeds(self, certificate: int) -> tuple[int, int]:
        """Seeds of the attack's noise and of the noise that judges it, given the certificate's: three that differ."""
        away = 1 if certificate < 0 else -1  # towards zero, where no seed is out of range
        return certificate + away * (2 * self.seed + 1), certificate + away * (2 * self.seed + 2)


_HALVINGS = 60  # more than a double's digits
_AMPLE = 4  # radii: a direction that is cut at the box has to be longer than the radius to fill it


@dataclass(frozen=True)
class Ball:
    """All δ with ‖δ‖₂ ≤ `radius` and `image` + δ in [0, 1]."""

    image: Tensor  # (C, H, W) in [0, 1]
    radius: float

    def project(self, delta: Tensor) -> Tensor:
        """The nearest δ of the ball, in the sense of ℓ2.

        By Karush, Kuhn and Tucker's conditions it is δ / (1 + λ), cut to the box, for the least λ ≥ 0 that leaves it
        within the radius; its norm falls as λ grows, so bisect for the scale 1 / (1 + λ).
        """
        wanted = delta.double()
        low, high = 0.0, 1.0
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if self._norm(middle * wanted) <= self.radius else (low, middle)
        return self._cut(low * wanted).to(delta.dtype)

    def stretch(self, direction: Tensor) -> Tensor:
        """As far along the direction as the ball allows; zero stays zero."""
        norm = float(direction.norm())
        return self.project(direction * (_AMPLE * self.radius / norm)) if norm > 0 else direction

    def random(self, seed: int) -> Tensor:
        """A direction drawn evenly, at its full length."""
        generator = torch.Generator().manual_seed(seed)
        return self.stretch(torch.randn(self.image.shape, generator=generator).to(self.image))

    def _cut(self, delta: Tensor) -> Tensor:
        image = self.image.to(delta)
        return delta.clamp(-image, 1 - image)

    def _norm(self, delta: Tensor) -> float:
        return float(self._cut(delta).norm())


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
