"""Localisation: the grid pointing game, which asks how much of a map falls into the grid cell that shows the target.

A grid has m × m cells of equal size, numbered from 0 row by row. All scores are ratios in [0, 1]; evenly spread
evidence scores 1/m².
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..basics.messages import ArgumentError, check_whole
from ..plan import ABSTAIN
from ..statistics import outward
from .robustness import check_labels


class Interval(NamedTuple):
    """The smallest and the largest value that a ratio can take; both are NaN where it is undefined."""

    low: float
    high: float


def cell_mask(height: int, width: int, m: int, cell: int) -> NDArray[np.bool_]:
    """Return the pixels of one cell of an m × m grid: (height, width).

    >>> cell_mask(2, 4, m=2, cell=1).astype(int)
    array([[0, 0, 1, 1],
           [0, 0, 0, 0]])
    """
    m = check_whole("m", m, 1, example=2)
    if height < 1 or width < 1 or height % m or width % m:
        raise ArgumentError(
            f"m={m} does not divide a grid of {height} × {width} pixels into equal cells: cut or pad both sides to "
            f"multiples of {m}."
        )
    row, column = divmod(check_whole("cell", cell, 0, m * m - 1, example=0), m)
    mask = np.zeros((height, width), dtype=np.bool_)
    mask.reshape(m, height // m, m, width // m)[row, :, column] = True
    return mask


def grid_pg(attribution: ArrayLike, m: int, cell: int) -> float:
    """Return GridPG: the share of the positive attributions (H, W) that lies in the cell (the paper's eq. gridpg).

    The score is NaN where nothing is positive. A map with NaN or infinite values is refused, because a ratio over the
    other values would look like a measured score.

    >>> grid_pg([[3.0, -5.0], [1.0, 0.0]], m=2, cell=0)
    0.75
    """
    values = np.asarray(attribution, dtype=np.float64)
    if values.ndim != 2 or values.size == 0:
        raise ArgumentError(f"attribution has shape {values.shape}: give one map as (H, W).")
    if broken := int((~np.isfinite(values)).sum()):
        raise ArgumentError(f"attribution has {broken} values that are NaN or infinite: repair or leave out this map.")
    positive = values.clip(min=0)
    positive /= positive.max() or 1.0  # the scale cancels, and sums of huge values stay finite
    return _ratio(*_sums(positive, m, cell), math.nan)


def certified_grid_pg(labels: ArrayLike, m: int, cell: int, *, undefined: float = math.nan) -> float:
    """Return certified GridPG: the share of pixels certified 1 that lies in the cell (the paper's eq. certified-pg).

    `undefined` is the score where no pixel is certified 1; the paper's convention is 0.

    The paper says that this value holds within the radius. It does not: at another image of the ball, certified pixels
    may abstain and abstaining pixels may be certified. `certified_interval` holds there.

    >>> certified_grid_pg([[1, 1], [1, -1]], m=2, cell=0)
    0.3333333333333333
    """
    return _ratio(*_sums(check_labels(labels) == 1, m, cell), undefined)


def certified_interval(labels: ArrayLike, m: int, cell: int) -> Interval:
    """Return the bounds of the majority labels' localisation within the radius.

    Anywhere in the ball, pixels certified 1 keep the majority label 1 and pixels certified 0 do not get it, while
    every abstained pixel may have it or not. Count A certified ones and U abstained pixels, in the cell and out of it.
    The share of majority ones in the cell is then between A_in / (A_in + A_out + U_out) and
    (A_in + U_in) / (A_in + U_in + A_out), with the certificate's confidence, wherever there are majority ones at all.
    If there can be none, both ends are NaN. Ends that no float holds exactly are rounded outward.

    >>> certified_interval([[1, 0], [1, -1]], m=2, cell=0)
    Interval(low=0.3333333333333333, high=0.5)
    >>> certified_interval([[-1, 0], [0, 0]], m=2, cell=0)
    Interval(low=1.0, high=1.0)
    """
    labels = check_labels(labels)
    (a_in, a_out), (u_in, u_out) = _sums(labels == 1, m, cell), _sums(labels == ABSTAIN, m, cell)
    # Where an end would be 0 / 0, ones are possible only on one side of the cell's border: all in, or all out.
    low, high = (1.0 if u_in else math.nan), (0.0 if u_out else math.nan)
    if most := int(a_in + a_out + u_out):
        low = outward(Fraction(int(a_in), most), 0)
    if most := int(a_in + u_in + a_out):
        high = outward(Fraction(int(a_in + u_in), most), 1)
    return Interval(low, high)


def random_baseline(m: int) -> float:
    """Return the score of evidence without any localisation on a grid of m × m cells.

    >>> random_baseline(2)
    0.25
    """
    return 1 / check_whole("m", m, 1, example=2) ** 2


def _sums(values: NDArray[Any], m: int, cell: int) -> tuple[float, float]:
    """Sum the values (H, W) in the cell, and out of it; pixels that are True are counted."""
    height, width = values.shape
    mask = cell_mask(height, width, m, cell)
    return values[mask].sum().item(), values[~mask].sum().item()


def _ratio(inside: float, outside: float, empty: float) -> float:
    """Return inside / (inside + outside), which never exceeds 1 as a quotient of two separate sums could."""
    return inside / (inside + outside) if inside + outside > 0 else empty


EDGES: tuple[float, ...] = (0, 2, 5, 50, 95, 98, 100)  # percent of the grids, from the best


def agg_att_bins(scores: ArrayLike, edges: Sequence[float] = EDGES) -> tuple[NDArray[np.int64], ...]:
    """Return the grids in each bin, as indices into `scores` (n,), best first.

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
    """Return the mean of the `maps` (n, H, W) in each bin of `scores` (n,): (bins, H, W), NaN for an empty bin.

    Maps are averaged as they are. Turn labels into shades first, or ABSTAIN would count as -1: the paper draws 1
    black, 0 white and an abstained pixel half-way.

    >>> agg_att([[[1.0]], [[0.0]], [[0.5]]], scores=[0.9, 0.1, 0.3], edges=(0, 50, 100)).ravel()
    array([0.75, 0.  ])
    """
    stack, values = np.asarray(maps), np.asarray(scores)
    if stack.ndim != 3 or values.shape != stack.shape[:1]:
        raise ArgumentError(
            f"maps has shape {stack.shape} and scores {values.shape}: give maps (n, H, W) and one score each (n,)."
        )
    empty, bins = np.full(stack.shape[1:], np.nan), agg_att_bins(values, edges)
    return np.stack([stack[index].mean(axis=0, dtype=np.float64) if len(index) else empty for index in bins])
