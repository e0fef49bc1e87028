"""Votes counted by one GPU kernel that reads every map once per level."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 256


def count_beyond(values: Tensor, above: Tensor, below: Tensor, ties_below: bool) -> Tensor:
    """How many rows of `values` (B, N) have each column above, and how many below, that row's bounds (B, levels).

    (2, levels, N) int32. `ties_below` counts values equal to the lower bound as below it. NaN is neither.
    """
    (rows, size), levels = values.shape, above.shape[1]
    counts = torch.empty(2, levels, size, dtype=torch.int32, device=values.device)
    with torch.cuda.device(values.device):
        grid = (triton.cdiv(size, _BLOCK), levels)
        _count[grid](values, above, below, counts[0], counts[1], rows, size, levels, ties_below, _BLOCK)
    return counts


@triton.jit(do_not_specialize=["rows"])
def _count(values, above, below, ones, zeros, rows, size, levels, TIES: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    level = tl.program_id(1)
    inside = column < size
    one = tl.zeros((BLOCK,), tl.int32)
    zero = tl.zeros((BLOCK,), tl.int32)
    for row in range(rows):
        value = tl.load(values + row.to(tl.int64) * size + column, mask=inside)
        bound = tl.load(below + row * levels + level)
        one += (value > tl.load(above + row * levels + level)).to(tl.int32)
        zero += (value <= bound if TIES else value < bound).to(tl.int32)
    tl.store(ones + level * size + column, one, mask=inside)
    tl.store(zeros + level * size + column, zero, mask=inside)
