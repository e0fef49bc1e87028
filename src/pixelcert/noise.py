"""Gaussian noise: a function of seed, stream and sample index only, and exact in float32.

Every image has its own stream for each purpose, so no two of them share noise. A digest of seed and stream is the key
of a generator that computes every normal variate from its own counter, so the batch size never changes the noise of a
sample. Another device changes it only where its logarithm or sine differs in the last bit at a rounding boundary. Noise
and image lie on a lattice of step 2⁻²⁰. Their sum is therefore exact in float32, and the proof of the certificate holds
in floating point too (rounding commutes with shifts along the lattice).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from .basics.files import sha256
from .basics.machine import can_run_triton
from .plan import LATTICE, Plan

_GAMMA = 0x9E3779B97F4A7C15 - 2**64  # of SplitMix64 (Steele, Lea, Flood, 2014), as a signed integer of 64 bits


Purpose = Literal["pixels", "attack", "judgement", "verification"]


def stream(seed: int, purpose: Purpose, image: str) -> int:
    """Return the key of one stream of noise: 64 bits from a seed, the noise's purpose and the image's digest."""
    return int(sha256(f"pixelcert {seed} {purpose} {image}".encode())[:16], 16) - 2**63


def key_of(plan: Plan, image: str) -> int:
    """Return the key of the noise that a plan draws for the image with this digest."""
    assert plan.seed is not None, "the seed is drawn when sampling begins"
    return stream(plan.seed, "pixels", image) if plan.streams else plan.seed


def snap(image: Tensor) -> Tensor:
    """Return the nearest image on the lattice, as float32. Every pixel moves by at most 2⁻²¹."""
    wide = image if image.dtype == torch.float64 else image.float()
    if wide.device.type == "cpu":  # NumPy, because to start torch's threads takes longer
        return torch.from_numpy(np.rint(wide.numpy() / LATTICE) * LATTICE + 0.0).float()  # no -0, of another digest
    return (wide / LATTICE).round_().mul_(LATTICE).add_(0.0).float()  # scaling by a power of two is exact


def noisy(image: Tensor, sigma: float, key: int, indices: range, out: Tensor | None = None) -> Tensor:
    """Return `image` (C, H, W), already on the lattice, plus σ·noise for each sample index: (B, C, H, W), exact."""
    images = torch.empty((len(indices), *image.shape), device=image.device) if out is None else out
    if can_run_triton(image.device) and indices.step == 1:
        from .basics.kernels import add_noise

        add_noise(image.contiguous(), sigma, LATTICE, key, indices.start, images)
        return images
    # Chunks are so small that the integers stay in a CPU's cache, or so large that they fill an accelerator.
    step = max(1, (2**17 if image.device.type == "cpu" else 2**24) // image.numel())
    for start in range(0, len(indices), step):
        chunk = indices[start : start + step]
        noise = standard_normal(key, chunk, image.numel(), image.device)
        noise = noise.mul_(sigma / LATTICE).round_().mul_(LATTICE).float().view(-1, *image.shape)
        torch.add(image, noise, out=images[start : start + len(chunk)])
    return images


def standard_normal(key: int, indices: Sequence[int], count: int, device: torch.device | str) -> Tensor:
    """Return independent N(0, 1) variates in float64 for each sample index, (B, count), by Box and Muller's method."""
    pairs = (count + 1) // 2
    counters = torch.arange(1, 2 * pairs + 1, device=device).mul_(_GAMMA)
    first = torch.tensor([(key + 2**63) % 2**64 - 2**63], device=device)  # as a signed integer of 64 bits
    keys = _mix(_mix(first) + torch.tensor(indices, device=device).add_(1).mul_(_GAMMA))
    bits = _mix(counters + keys[:, None])
    uniform = bits.bitwise_right_shift_(11).bitwise_and_((1 << 53) - 1).double()
    radius, angle = uniform.view(-1, 2, pairs).unbind(1)
    radius = radius.add_(1).mul_(2.0**-53).log_().mul_(-2).sqrt_()
    angle = angle.mul_(2 * math.pi * 2.0**-53)
    return torch.cat([radius * angle.cos(), radius * angle.sin()], dim=1)[:, :count]


def _mix(z: Tensor) -> Tensor:
    """Apply SplitMix64's finaliser in place: a bijection of 64-bit words whose output passes BigCrush."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9 - 2**64), (27, 0x94D049BB133111EB - 2**64)):
        z = z.bitwise_xor_(_shift_right(z, shift)).mul_(factor)
    return z.bitwise_xor_(_shift_right(z, 31))


def _shift_right(z: Tensor, bits: int) -> Tensor:
    """Shift logically; torch's own shift keeps the sign."""
    return (z >> bits).bitwise_and_((1 << (64 - bits)) - 1)
