"""Ball: the perturbations of ℓ2 norm up to a radius that leave an image in [0, 1]."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

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
