"""A world in which every share of votes, and its slope, is known in closed form; for tests of attacks."""

from __future__ import annotations

import numpy as np
import torch
from scipy.stats import norm

import pixelcert as pc

SIGMA = 0.15
SIZE, HALF = (8, 8), 32
DIRECTIONS = torch.linalg.qr(torch.randn(64, 64, generator=torch.Generator().manual_seed(1)).double())[0][:HALF]
IMAGE = torch.full((1, *SIZE), 0.5)


class Distances(pc.Explainer):
    """Pixel i < 32 has the value d_i = w_i·x - c_i, pixel i + 32 has -d_i: half of them are positive, the top 49 %.

    The w_i are orthonormal, so pixel i is inside with probability Φ(d_i / σ) under noise, and loses its majority where
    x moves by d_i against w_i, not before.
    """

    name, level = "Distances", 49

    def __init__(self, margins: np.ndarray) -> None:
        self.offsets = DIRECTIONS @ IMAGE.double().flatten() - torch.from_numpy(margins)

    def explain(self, images: torch.Tensor, targets: torch.Tensor) -> pc.Explanation:
        distances = images.double().flatten(1) @ DIRECTIONS.T - self.offsets
        return pc.Explanation(torch.cat([distances, -distances], dim=1).view(-1, *SIZE))

    def margins(self, image: torch.Tensor) -> np.ndarray:
        """Return how far every pixel is from losing its label at IMAGE, negative if it has lost it: (64,)."""
        at_image = (DIRECTIONS @ IMAGE.double().flatten() - self.offsets).sign()
        distances = (DIRECTIONS @ image.double().flatten() - self.offsets) * at_image
        return torch.cat([distances, distances]).numpy()

    def slope(self, weights: np.ndarray) -> np.ndarray:
        """Return ∇ Σ w_i·P(pixel i keeps its label) at IMAGE, for weights (64,): (64,)."""
        margins = self.margins(IMAGE)
        towards = torch.cat([DIRECTIONS, DIRECTIONS]).numpy() * np.sign(self.signed())[:, None]
        return (weights * norm.pdf(margins / SIGMA) / SIGMA) @ towards

    def signed(self) -> np.ndarray:
        """Return the distances of the first half at IMAGE, twice: (64,)."""
        distances = (DIRECTIONS @ IMAGE.double().flatten() - self.offsets).numpy()
        return np.concatenate([distances, distances])


class Votes(pc.Explainer):
    """The same world as a black box: it tells only which pixels are inside."""

    name, level = "Votes", Distances.level

    def __init__(self, margins: np.ndarray) -> None:
        self.distances = Distances(margins)

    def explain(self, images: torch.Tensor, targets: torch.Tensor) -> pc.Explanation:
        return pc.Explanation(self.distances(images, targets).sign().detach())


def margins() -> np.ndarray:
    """Place one pixel (and its mirror) near its boundary, one barely within the certified ones, thirty far inside."""
    found = np.full(HALF, 0.4)
    found[0], found[1] = 0.04, 0.17
    return found
