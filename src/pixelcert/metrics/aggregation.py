"""AggAtt: the mean map of the best, the middling and the worst grids, so that no example is picked by hand.

From Rao et al., "Better Understanding Differences in Attribution Methods via Systematic Evaluations" (2024): grids are
sorted by how well they localise and cut into bins of percentiles, narrow ones at both ends.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import ArgumentError

EDGES: tuple[float, ...] = (0, 2, 5, 50, 95, 98, 100)  # percent of the grids, from the best


def agg_att_bins(scores: ArrayLike, edges: Sequence[float] = EDGES) -> tuple[NDArray[np.int64], ...]:
    """Which grids are in each bin, as indices into `scores` (n,), best first.

    The grid of rank r, from 0 for the best, is in the bin from edge a to edge b if a ≤ 100 r / n < b. Equal scores keep
    their order, and undefined ones (NaN) come last. Every grid is in exactly one bin; a bin may be empty.

    >>> [index.tolist() for index in agg_att_bins([0.2, 0.9, float("nan"), 0.5], edges=(0, 25, 75, 100))]
    [[1], [3, 0], [2]]
    """
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 1 or values.size == 0:
        raise ArgumentError(f"scores has shape {values.shape}: give one score per grid as (n,).")
    if len(edges) < 2 or edges[0] != 0 or edges[-1] != 100 or any(low >= high for low, high in pairwise(edges)):
        raise ArgumentError(f"edges={tuple(edges)} do not cut 0 to 100 percent: begin at 0, rise, and end at 100.")
    best_first = np.argsort(-values, kind="stable")  # NumPy puts NaN last
    starts = [math.ceil(Fraction(str(edge)) * len(values) / 100) for edge in edges]
    return tuple(best_first[start:end] for start, end in pairwise(starts))


def agg_att(maps: ArrayLike, scores: ArrayLike, edges: Sequence[float] = EDGES) -> NDArray[np.float64]:
    """The mean of the `maps` (n, H, W) in each bin of `scores` (n,): (bins, H, W), NaN for an empty bin.

    Maps are averaged as they are. Labels must be turned into shades first, or ABSTAIN would count as -1: the paper
    draws 1 black, 0 white and an abstained pixel half-way.

    >>> agg_att([[[1.0]], [[0.0]], [[0.5]]], scores=[0.9, 0.1, 0.3], edges=(0, 50, 100)).ravel()
    array([0.75, 0.  ])
    """
    stack, values = np.asarray(maps), np.asarray(scores)
    if stack.ndim != 3 or values.shape != stack.shape[:1]:
        raise ArgumentError(
            f"maps has shape {stack.shape} and scores {values.shape}: give maps (n, H, W) and one score each (n,)."
        )
    bins = agg_att_bins(values, edges)
    means = np.full((len(bins), *stack.shape[1:]), np.nan)
    for mean, index in zip(means, bins, strict=True):
        if len(index):
            mean[:] = stack[index].mean(axis=0, dtype=np.float64)
    return means
