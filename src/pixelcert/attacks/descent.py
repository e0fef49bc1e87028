"""Descent: projected gradient descent in a ball, and how hard it tries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from ..basics.messages import check_choice, check_seed, check_whole
from ..explainer import Explainer
from ..noise import snap
from ..plan import draw_seed
from ..sampling.loop import explain_copies
from .gradients import Gradient

Choice = Literal["auto", "pathwise", "stein"]


@dataclass(frozen=True)
class Effort:
    """The effort of an attack, and of its judgement.

    An attack takes `steps` steps. Each explains `draws` noisy copies of the current image and follows a gradient:
    "pathwise" differentiates a surrogate of the map, "stein" needs only votes, and "auto" chooses. Then `samples` fresh
    copies, `batch_size` at once, judge the perturbation. `seed` is the attack's own, drawn from the operating system
    unless it is given to repeat an attack.
    """

    steps: int = 30
    draws: int = 16
    samples: int = 1000
    gradient: Choice = "auto"
    seed: int | None = None
    batch_size: int | None = None

    def __post_init__(self) -> None:
        for name, least in {"steps": 1, "draws": 2, "samples": 1}.items():
            object.__setattr__(self, name, check_whole(name, getattr(self, name), least, 2**31 - 1))
        if self.seed is not None:
            object.__setattr__(self, "seed", check_seed(self.seed))
        check_choice("gradient", self.gradient, Choice)

    def drawn(self) -> Effort:
        """Return the effort with a seed: its own, or one that is drawn now."""
        return replace(self, seed=draw_seed()) if self.seed is None else self


_HALVINGS = 60  # more than a double's digits
_AMPLE = 4  # radii: a direction that is cut at the box has to be longer than the radius to fill it


@dataclass(frozen=True)
class Ball:
    """All δ with ‖δ‖₂ ≤ `radius` and `image` + δ in [0, 1]."""

    image: Tensor  # (C, H, W) in [0, 1]
    radius: float

    def project(self, delta: Tensor) -> Tensor:
        """Return the nearest δ of the ball, in the sense of ℓ2.

        By Karush, Kuhn and Tucker's conditions it is δ / (1 + λ), cut to the box, for the least λ ≥ 0 that leaves it
        within the radius; its norm falls as λ grows, so bisect for the scale 1 / (1 + λ).
        """
        wanted, image = delta.double(), self.image.double()
        low, high = 0.0, 1.0
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            inside = float((middle * wanted).clamp(-image, 1 - image).norm()) <= self.radius
            low, high = (middle, high) if inside else (low, middle)
        return (low * wanted).clamp(-image, 1 - image).to(delta.dtype)

    def stretch(self, direction: Tensor) -> Tensor:
        """Go as far along the direction as the ball allows; zero stays zero."""
        norm = float(direction.norm())
        return self.project(direction * (_AMPLE * self.radius / norm)) if norm > 0 else direction

    def random(self, seed: int) -> Tensor:
        """Return a perturbation of full length in a direction drawn evenly."""
        generator = torch.Generator().manual_seed(seed % 2**63)
        return self.stretch(torch.randn(self.image.shape, generator=generator).to(self.image))


_REACH = 2.5  # radii: the length of all steps together, as in Madry et al. (2018)
_MEMORY = 0.8  # of the running shares


@dataclass(frozen=True)
class Descent:
    """The search for a perturbation under which as many pixels of an aim as possible lose their majority.

    Each step explains noisy copies of the current image, with fresh noise of `key`. The explainer shows which
    labels still hold. `gradient`, which has the aim, gives the direction of the step.
    """

    gradient: Gradient
    explainer: Explainer
    target: int
    effort: Effort
    key: int

    @property
    def copies(self) -> int:
        """The number of noisy copies that a run explains, with those of the gradient."""
        return self.effort.steps * self.effort.draws * (1 + self.gradient.passes)

    def run(self, ball: Ball, before: Tensor, report: Callable[[int], None]) -> Tensor:
        """Return a perturbation (C, H, W) in `ball`, going on from the one found `before` at a smaller radius.

        `report` is called with the number of copies that a step took.
        """
        steps, draws, aim = self.effort.steps, self.effort.draws, self.gradient.aim
        delta = ball.project(ball.stretch(before))
        momentum, shares = torch.zeros_like(delta), None
        for step in range(steps):
            moved, samples = snap(ball.image + delta), range(step * draws, (step + 1) * draws)
            images, (maps, _) = explain_copies(
                self.explainer, moved, self.target, sigma=aim.plan.sigma, key=self.key, samples=samples
            )
            now = aim.keeping(maps) / draws
            shares = now if shares is None else _MEMORY * shares + (1 - _MEMORY) * now
            slope = self.gradient.descent(moved, images, maps, aim.weights(shares))
            momentum = self.gradient.momentum * momentum + _unit(slope)
            delta = ball.project(delta + _REACH * ball.radius / steps * _unit(momentum))
            report(self.copies // steps)
        return delta


def _unit(direction: Tensor) -> Tensor:
    """Scale to length 1; zero stays zero."""
    return F.normalize(direction.flatten(), dim=0, eps=torch.finfo(direction.dtype).tiny).view_as(direction)
