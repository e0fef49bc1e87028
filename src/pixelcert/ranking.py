"""Maps → votes: which pixels are in the top K %, which are outside, for all levels from one sort.

Two rules say what the top K % of N pixels are:

- ``"rank"``: the paper's equation, 0-based rank / N ≤ K / 100, so ⌊KN/100⌋ + 1 ones. Pixels tied at the
  threshold vote for neither class, so a constant map votes for nothing.
- ``"percentile"``: the published code, strictly above NumPy's percentile, so ⌈K(N-1)/100⌉ ones; tied pixels
  vote 0.

NaN pixels vote for neither class, and the others vote only if they would whatever the NaN stood for.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import ceil, floor

import numpy as np
import torch
from torch import Tensor

from .errors import ArgumentError
from .plan import Rule, Sign


def ones_at(level: float, pixels: int, rule: Rule = "rank") -> int:
    """How many of `pixels` are in the top `level` percent, in exact arithmetic.

    >>> ones_at(50, 224 * 224), ones_at(50, 224 * 224, "percentile")
    (25089, 25088)
    """
    share = Fraction(str(level)) / 100
    return floor(share * pixels) + 1 if rule == "rank" else ceil(share * (pixels - 1))


def check_levels_fit(levels: Sequence[float], pixels: int, rule: Rule) -> None:
    """Refuse levels at which every pixel would be in the top K %: there even a constant map would be certified."""
    for level in levels:
        if ones_at(level, pixels, rule) >= pixels:
            raise ArgumentError(f"levels holds {level}, the whole map of {pixels} pixels: lower this K.")


def count_votes(
    maps: Tensor, levels: Sequence[float], sign: Sign = "signed", rule: Rule = "rank"
) -> tuple[Tensor, Tensor]:
    """Votes of a batch of `maps` (B, N), summed over the batch: ones and zeros, each (levels, N) int32.

    >>> ones, zeros = count_votes(torch.tensor([[3.0, 1.0, 2.0, 0.0]]), levels=(25,))
    >>> ones.tolist(), zeros.tolist()
    ([[1, 0, 1, 0]], [[0, 1, 0, 1]])
    """
    values = _ranked_values(maps, sign)
    descending = _sort_descending(values)  # NaN first
    nans = values.isnan().sum(dim=1)
    ones, zeros = [], []
    for level in levels:
        size = ones_at(level, values.shape[1], rule)
        # Inside means even if every NaN ranks first; outside means even if every NaN ranks last.
        inside = values > _value_at(descending, torch.full_like(nans, size), past_end=-torch.inf)
        if rule == "rank":
            outside = values < _value_at(descending, nans + size - 1, past_end=-torch.inf)
        else:
            outside = values <= _value_at(descending, nans + size, past_end=torch.nan)
        ones.append(inside.sum(dim=0, dtype=torch.int32))
        zeros.append(outside.sum(dim=0, dtype=torch.int32))
    return torch.stack(ones), torch.stack(zeros)


def _ranked_values(maps: Tensor, sign: Sign) -> Tensor:
    if sign == "absolute":
        return maps.abs()
    return maps.clamp_min(0) if sign == "positive" else maps


def _sort_descending(values: Tensor) -> Tensor:
    if values.device.type == "cpu":  # NumPy's vectorised sort; torch's also carries the indices along
        return torch.from_numpy(np.sort(values.numpy(), axis=1)).flip(1)
    return values.sort(dim=1, descending=True).values


def _value_at(descending: Tensor, position: Tensor, past_end: float) -> Tensor:
    """Each row's value at its own position: (B, 1)."""
    last = descending.shape[1] - 1
    found = descending.gather(1, position.clamp(max=last)[:, None])
    return found.masked_fill((position > last)[:, None], past_end)
