"""GPU kernels in Triton: noisy copies and vote counts, equal to torch's results bit for bit."""

from __future__ import annotations

import struct

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra import libdevice

_NOISE_BLOCK = 512


def add_noise(image: Tensor, sigma: float, step: float, key: int, first: int, images: Tensor) -> None:
    """Fill `images` (B, C, H, W) with `image` (C, H, W) plus the noise of samples `first`, `first` + 1, …

    Noise is rounded to multiples of `step`, a power of two.
    """
    size = image.numel()
    pairs = (size + 1) // 2
    scale = struct.unpack("<q", struct.pack("<d", sigma / step))[0]  # its bits: Triton would take a float as 32 bits
    launch = (triton.cdiv(pairs, _NOISE_BLOCK), len(images))
    with torch.cuda.device(image.device):
        _noisy[launch](image, images, key, first, pairs, size, scale, step, _NOISE_BLOCK)


@triton.jit(do_not_specialize=["key", "first", "scale"])
def _noisy(image, images, key, first, pairs, size, scale, STEP: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    slot = tl.program_id(1)
    index = (first.to(tl.int64) + slot + 1).to(tl.uint64)
    own = _mix(_mix(key.to(tl.int64).to(tl.uint64)) + index * 0x9E3779B97F4A7C15)
    pair = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    radius = tl.sqrt(tl.log((_uniform(pair + 1, own) + 1) * 2.0**-53) * -2.0)
    angle = _uniform(pair + pairs + 1, own) * (6.283185307179586 * 2.0**-53)
    factor = scale.to(tl.int64).to(tl.float64, bitcast=True)
    start = slot.to(tl.int64) * size
    for half in tl.static_range(2):
        turn = libdevice.cos(angle) if half == 0 else libdevice.sin(angle)
        noise = (libdevice.rint(radius * turn * factor) * STEP).to(tl.float32)
        place = pair + half * pairs
        inside = (pair < pairs) & (place < size)
        tl.store(images + start + place, tl.load(image + place, mask=inside) + noise, mask=inside)


@triton.jit
def _uniform(counter, key):  # type: ignore[no-untyped-def]
    """Return 53 random bits as a float."""
    return (_mix(counter.to(tl.uint64) * 0x9E3779B97F4A7C15 + key) >> 11).to(tl.float64)


@triton.jit
def _mix(z):  # type: ignore[no-untyped-def]
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB
    return z ^ (z >> 31)


_COUNT_BLOCK = 256


def count_beyond(values: Tensor, above: Tensor, below: Tensor, ties_below: bool) -> Tensor:
    """Count, for each pixel, the maps `values` (B, N) in which it is above and below the map's bounds (B, levels).

    The counts are (2, levels, N) int32. `ties_below` counts values equal to the lower bound as below it. NaN is
    neither above nor below.
    """
    (slots, size), levels = values.shape, above.shape[1]
    counts = torch.empty(2, levels, size, dtype=torch.int32, device=values.device)
    launch = (triton.cdiv(size, _COUNT_BLOCK), levels)
    with torch.cuda.device(values.device):
        _count[launch](values, above, below, counts[0], counts[1], slots, size, levels, ties_below, _COUNT_BLOCK)
    return counts


@triton.jit(do_not_specialize=["slots"])
def _count(values, above, below, ones, zeros, slots, size, levels, TIES: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    level = tl.program_id(1)
    inside = pixel < size
    one = tl.zeros((BLOCK,), tl.int32)
    zero = tl.zeros((BLOCK,), tl.int32)
    for slot in range(slots):
        value = tl.load(values + slot.to(tl.int64) * size + pixel, mask=inside)
        bound = tl.load(below + slot * levels + level)
        one += (value > tl.load(above + slot * levels + level)).to(tl.int32)
        zero += (value <= bound if TIES else value < bound).to(tl.int32)
    tl.store(ones + level * size + pixel, one, mask=inside)
    tl.store(zeros + level * size + pixel, zero, mask=inside)
