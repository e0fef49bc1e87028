"""Gaussian noise as a function of (seed, sample index) alone, and exact in float32.

Every normal variate is computed from its own counter, so the batch size never changes which noise a sample gets, and
another device only where its logarithm or sine differs in the last bit at a rounding boundary. Noise and image lie on
a grid of step 2⁻²⁰: their sum is then exact in float32, and the proof of the certificate survives floating point
(rounding commutes with shifts along the grid).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from .basics.machine import can_run_triton
from .plan import LATTICE

# SplitMix64 (Steele, Lea, Flood, 2014), its constants as signed 64-bit integers.
_GAMMA = -7046029254386353131
_MIX_1 = -4658895280553007687
_MIX_2 = -7723592293110705685


def snap(image: Tensor) -> Tensor:
    """The nearest image on the grid, as float32. Moves every pixel by at most 2⁻²¹."""
    wide = image if image.dtype == torch.float64 else image.float()
    if wide.device.type == "cpu":  # by NumPy, since one image is not worth waking threads
        return torch.from_numpy(np.rint(wide.numpy() / LATTICE) * LATTICE).float()
    return (wide / LATTICE).round_().mul_(LATTICE).float()  # scaling by a power of two is exact


def noisy(image: Tensor, sigma: float, seed: int, indices: range, out: Tensor | None = None) -> Tensor:
    """`image` (C, H, W), already on the grid, plus σ·noise for each sample index: (B, C, H, W), exact."""
    images = torch.empty((len(indices), *image.shape), device=image.device) if out is None else out
    if can_run_triton(image.device) and indices.step == 1:
        from .basics.kernels import add_noise

        add_noise(image.contiguous(), sigma, seed, indices.start, images)
        return images
    step = _samples_per_chunk(image)
    for start in range(0, len(indices), step):
        chunk = indices[start : start + step]
        noise = standard_normal(seed, chunk, image.numel(), image.device)
        noise = noise.mul_(sigma / LATTICE).round_().mul_(LATTICE).float().view(-1, *image.shape)
        torch.add(image, noise, out=images[start : start + len(chunk)])
    return images


def standard_normal(seed: int, indices: Sequence[int], size: int, device: torch.device | str) -> Tensor:
    """`size` independent N(0, 1) variates in float64 for each sample index: (B, size), by Box and Muller."""
    pairs = (size + 1) // 2
    counters = torch.arange(1, 2 * pairs + 1, device=device).mul_(_GAMMA)
    seeds = torch.tensor([_signed64(seed)], device=device)
    keys = _mix(_mix(seeds) + torch.tensor(indices, device=device).add_(1).mul_(_GAMMA))
    bits = _mix(counters + keys[:, None])
    uniform = bits.bitwise_right_shift_(11).bitwise_and_((1 << 53) - 1).double()
    radius, angle = uniform.view(-1, 2, pairs).unbind(1)
    radius = radius.add_(1).mul_(2.0**-53).log_().mul_(-2).sqrt_()
    angle = angle.mul_(2 * math.pi * 2.0**-53)
    return torch.cat([radius * angle.cos(), radius * angle.sin()], dim=1)[:, :size]


def _mix(z: Tensor) -> Tensor:
    """SplitMix64's finaliser, in place: a bijection of 64-bit words whose output passes BigCrush."""
    for shift, factor in ((30, _MIX_1), (27, _MIX_2)):
        z = z.bitwise_xor_(_shift_right(z, shift)).mul_(factor)
    return z.bitwise_xor_(_shift_right(z, 31))


def _shift_right(z: Tensor, bits: int) -> Tensor:
    """Logical shift: torch's own keeps the sign."""
    return (z >> bits).bitwise_and_((1 << (64 - bits)) - 1)


def _signed64(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


def _samples_per_chunk(image: Tensor) -> int:
    """Few enough that the integers stay in a CPU's cache; on an accelerator, enough to fill it."""
    values = 2**17 if image.device.type == "cpu" else 2**24
    return max(1, values // image.numel())
