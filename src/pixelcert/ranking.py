"""Ranking: from maps to votes for pixels in and outside the top K %, for all levels from one sort.

Two rules define the top K % of N pixels:

- ``"rank"``: the paper's equation, 0-based rank / N ≤ K / 100, so ⌊KN/100⌋ + 1 ones. Pixels tied at the
  threshold vote for neither class, so a constant map votes for nothing.
- ``"percentile"``: the published code, strictly above NumPy's percentile, so ⌈K(N-1)/100⌉ ones. Tied pixels
  vote 0.

NaN pixels vote for neither class. The others vote only if their vote is the same for every value that NaN may hide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from .basics.machine import can_run_triton
from .plan import Plan, Rule, Sign, ones_at


@dataclass(frozen=True)
class Ranking:
    """A batch of maps with the bounds of their top sets: sorted once, counted as often as needed."""

    values: Tensor  # (B, N), as they are ranked
    above: Tensor  # (B, levels): pixels with greater values are in the top set
    below: Tensor  # (B, levels): pixels with lower values are outside
    ties_below: bool  # whether pixels with the value `below` are outside too

    @classmethod
    def of(cls, maps: Tensor, levels: Sequence[float], sign: Sign, rule: Rule) -> Ranking:
        """Sort maps (B, N) and find the bounds of each level.

        Values above the first bound are in the top set even if every NaN ranks first. Values below the second are
        outside even if every NaN ranks last.
        """
        if sign != "signed":
            maps = maps.abs() if sign == "absolute" else maps.clamp_min(0)
        values = maps.contiguous()
        sizes = tuple(ones_at(level, values.shape[1], rule) for level in levels)
        nans = values.isnan().sum(dim=1, keepdim=True)
        descending = _sort_descending(values, sizes, nans)
        first_outside = _on_device(sizes, values.device).expand(len(values), -1)  # places from 0
        above = _values_at(descending, first_outside, past_end=-torch.inf)
        if rule == "rank":
            below = _values_at(descending, nans + first_outside - 1, past_end=-torch.inf)
        else:
            below = _values_at(descending, nans + first_outside, past_end=torch.nan)
        return cls(values, above, below, ties_below=rule == "percentile")

    def count(self, slots: slice = slice(None)) -> Tensor:
        """Sum the votes of all maps, or of some: ones and zeros, (2, levels, N) int32."""
        values, above, below = self.values[slots], self.above[slots], self.below[slots]
        if can_run_triton(values.device) and values.dtype == torch.float32:
            from .basics.kernels import count_beyond

            return count_beyond(values, above, below, self.ties_below)
        ones = [(values > bound[:, None]).sum(dim=0, dtype=torch.int32) for bound in above.T]
        under = torch.le if self.ties_below else torch.lt
        zeros = [under(values, bound[:, None]).sum(dim=0, dtype=torch.int32) for bound in below.T]
        return torch.stack([torch.stack(ones), torch.stack(zeros)])


def count_votes(maps: Tensor, levels: Sequence[float], sign: Sign = "signed", rule: Rule = "rank") -> Tensor:
    """Count the votes of a batch of `maps` (B, N): ones and zeros, (2, levels, N) int32.

    >>> ones, zeros = count_votes(torch.tensor([[3.0, 1.0, 2.0, 0.0]]), levels=(25,))
    >>> ones.tolist(), zeros.tolist()
    ([[1, 0, 1, 0]], [[0, 1, 0, 1]])
    """
    return Ranking.of(maps, levels, sign, rule).count()


def _values_at(descending: Tensor, places: Tensor, past_end: float) -> Tensor:
    """Return each row's values at its own places (B, ·), or `past_end` for places that it does not have."""
    last = descending.shape[1] - 1
    return descending.gather(1, places.clamp(max=last)).masked_fill(places > last, past_end)


@lru_cache(64)
def _on_device(numbers: tuple[int, ...], device: torch.device) -> Tensor:
    """Return the numbers as a tensor, copied only once because a copy makes an accelerator wait."""
    return torch.tensor(numbers, device=device)


def _sort_descending(values: Tensor, sizes: Sequence[int], nans: Tensor) -> Tensor:
    """Sort each row from its greatest value down, NaN first; on a CPU only the places that a few levels need."""
    if values.device.type != "cpu":
        plain = values.masked_fill(values.isnan(), torch.nan)  # some GPUs put a NaN with a sign last
        return plain.sort(dim=1, descending=True).values
    array, last = values.numpy(), values.shape[1] - 1  # NumPy is faster: torch carries the indices along
    if len(sizes) > 8 or bool(nans.any()):  # for a few levels a partition is faster than a sort
        return torch.from_numpy(np.sort(array, axis=1)).flip(1)
    places = sorted({max(0, last - place) for size in sizes for place in (size - 1, size)})
    return torch.from_numpy(np.partition(array, places, axis=1)).flip(1)


@dataclass(frozen=True)
class Counts:
    """Votes on the device while they are counted. Adding makes a new value, so no interruption sees half a batch."""

    counted: int
    votes: Tensor  # ones and zeros, (2, levels, H·W) int32
    guess_ones: Tensor | None  # (levels, H·W) int32, where the plan guesses
    predictions: Tensor | None = None  # (classes,) int32

    @classmethod
    def none(cls, plan: Plan, pixels: int, device: torch.device) -> Counts:
        """Return the counts before the first sample."""
        zeros = torch.zeros(2, len(plan.levels), pixels, dtype=torch.int32, device=device)
        return cls(0, zeros, zeros[0] if plan.guess else None)

    def plus(self, ranking: Ranking, slots: slice, answers: Tensor | None, classes: int, plan: Plan) -> Counts:
        """Add some slots of a batch; `answers` (B,) are its classes, where the number of classes stands for none."""
        guess_ones, predictions = self.guess_ones, self.predictions
        if guess_ones is not None and (guessing := plan.guess - self.counted) > 0:
            first = slice(slots.start, min(slots.stop, slots.start + guessing))
            guess_ones = guess_ones + ranking.count(first)[0]
        if answers is not None:
            found = count_answers(answers[slots], classes)
            predictions = found if predictions is None else predictions + found
        counted = self.counted + slots.stop - slots.start
        return Counts(counted, self.votes + ranking.count(slots), guess_ones, predictions)

    def to(self, device: torch.device | str) -> Counts:
        """Move the counts; an accelerator copies them later, while the program goes on."""
        others = (self.guess_ones, self.predictions)
        moved = (None if counts is None else counts.to(device, non_blocking=True) for counts in others)
        return Counts(self.counted, self.votes.to(device, non_blocking=True), *moved)


def answers_of(logits: Tensor) -> Tensor:
    """Return the predicted class of each image, (B,); a tie for first place and NaN give the number of classes."""
    first, second = logits.topk(2, dim=1).values.unbind(1) if logits.shape[1] > 1 else (logits[:, 0], -torch.inf)
    return torch.where(first > second, logits.argmax(dim=1), logits.shape[1])


def count_answers(answers: Tensor, classes: int) -> Tensor:
    """Count each class among the answers: (classes,). Unlike `bincount`, this does not wait for the device."""
    counts = torch.zeros(classes + 1, dtype=torch.int32, device=answers.device)
    return counts.scatter_add_(0, answers, torch.ones_like(answers, dtype=torch.int32))[:classes]
