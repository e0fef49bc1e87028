"""The rate of false certificates through the whole of `pc.certify`, on half-spaces whose truth is known exactly.

    python -m bench.soundness [--runs 10000] [--alpha 0.05]

Every pixel says on which side of a plane the image lies. So its share of votes, and the distance at which it loses its
majority, are known exactly. Each run certifies another image, with a seed from the operating system. A run is false if
any certified label loses its majority within R. In the hardest world every share is just below τ.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from statistics import NormalDist

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import beta
from torch import Tensor

import pixelcert as pc

from .machine import head, row, say

SIDE, SIGMA, TAU = 8, 0.15, 0.75
PAIRS = SIDE**2 // 2
LEVEL = 49  # the rule of ranks then puts exactly half of the pixels in the top set
NORMALS = torch.linalg.qr(torch.randn(3 * SIDE**2, PAIRS, generator=torch.Generator().manual_seed(0)).double())[0]
EDGE = SIGMA * NormalDist().inv_cdf(TAU)  # the distance at which a pixel's share is τ

Margins = NDArray[np.float64]  # signed distances of the image from the planes


WORLDS: dict[str, Callable[[np.random.Generator], Margins]] = {
    "every share just below τ": lambda random: random.choice([-1, 1], PAIRS) * EDGE * (1 - 1e-3),
    "shares of all sizes": lambda random: random.normal(0, 3 * EDGE, PAIRS),
    "every share one half": lambda random: np.zeros(PAIRS),
}


def half_spaces(image: Tensor, margins: Margins) -> Callable[[Tensor, Tensor], Tensor]:
    """Return an explainer with two pixels for each plane: one is 1 beyond it, its partner is 1 before it."""
    bounds = image.double().flatten() @ NORMALS - torch.from_numpy(margins)

    def explain(images: Tensor, targets: Tensor) -> Tensor:
        beyond = (images.double().flatten(1) @ NORMALS - bounds).sign()
        return torch.cat([beyond, -beyond], dim=1).view(-1, SIDE, SIDE)

    return explain


def is_false(random: np.random.Generator, world: str, alpha: float) -> tuple[bool, float]:
    """Certify one image; return True if a label is false, and the share of certified pixels in percent."""
    image = torch.from_numpy(random.random((3, SIDE, SIDE)))
    margins = WORLDS[world](random)
    certificate = pc.certify(half_spaces(image, margins), image, 0, sigma=SIGMA, levels=LEVEL, tau=TAU, alpha=alpha)
    labels = certificate.labels[LEVEL].flatten()
    beyond = np.concatenate([margins, -margins])  # of every pixel, on the side where it is 1
    kept = np.select([labels == 1, labels == 0], [beyond, -beyond], np.inf)
    return bool((kept < certificate.radius).any()), certificate.percent_certified(LEVEL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=10_000, help="in each world")
    parser.add_argument("--alpha", type=float, default=0.05)
    asked = parser.parse_args()
    warnings.simplefilter("ignore", pc.PixelcertWarning)
    torch.set_num_threads(1)
    head("world", "runs", "false", "rate", "95 % interval", "α", "certified pixels", "time")
    for number, world in enumerate(WORLDS):
        random, started = np.random.default_rng(number), time.monotonic()
        found = [is_false(random, world, asked.alpha) for _ in range(asked.runs)]
        false, certified = sum(one for one, _ in found), np.mean([share for _, share in found])
        low = beta.ppf(0.025, false, asked.runs - false + 1) if false else 0.0
        high = beta.ppf(0.975, false + 1, asked.runs - false)
        rate, taken = f"{false / asked.runs:.4f}", f"{time.monotonic() - started:.0f} s"
        row(world, asked.runs, false, rate, f"{low:.4f} to {high:.4f}", asked.alpha, f"{certified:.1f} %", taken)
    size = f"{SIDE} × {SIDE} × 3 values"
    say(f"\nHalf-spaces of {size}, n = 100, σ = {SIGMA}, τ = {TAU}, K = {LEVEL} %, Holm's correction.")


if __name__ == "__main__":
    main()
