"""Masks: the pixels that are deleted at each step, from labels or from an order."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..basics.messages import ArgumentError
from .robustness import check_labels


def deletion_masks(labels: Mapping[float, ArrayLike]) -> NDArray[np.bool_]:
    """Return the pixels to delete at each step: (levels, H, W), from the smallest K up.

    `labels` maps each K to its labels (H, W). A step holds the pixels certified 1 at its own K or at a smaller one, so
    no deleted pixel comes back where a larger K abstains.

    >>> deletion_masks({50: [[1, -1, 1]], 10: [[-1, 1, 0]]}).astype(int)
    array([[[0, 1, 0]],
    <BLANKLINE>
           [[1, 1, 1]]])
    """
    if not labels:
        raise ArgumentError("labels is empty: give the labels of at least one level, such as certificate.labels.")
    steps = [check_labels(labels[level], f"labels[{level}]") == 1 for level in sorted(labels)]
    if len(shapes := {step.shape for step in steps}) > 1:
        raise ArgumentError(f"labels has maps of shapes {sorted(shapes)}: give the levels of one image.")
    return np.logical_or.accumulate(np.stack(steps))


def order_masks(order: ArrayLike, size: tuple[int, int], percents: Sequence[float]) -> NDArray[np.bool_]:
    """Return the pixels to delete if each step takes a given percentage of the image: (percents, H, W).

    A step of p percent takes the first ⌊p N / 100⌋ pixels of `order`, or all of them if there are fewer. `order` holds
    flat indices into an image of `size` (H, W), and N is the number of all its pixels.

    >>> order_masks([2, 0, 1], (1, 4), (25, 50, 100)).astype(int)
    array([[[0, 0, 1, 0]],
    <BLANKLINE>
           [[1, 0, 1, 0]],
    <BLANKLINE>
           [[1, 1, 1, 0]]])
    """
    if min(size) < 1:
        raise ArgumentError(f"size={size} holds no pixels: give the image's (H, W).")
    pixels = math.prod(size)
    indices = _check_order(np.asarray(order), pixels)
    masks = np.zeros((len(percents), pixels), dtype=np.bool_)
    for mask, percent in zip(masks, percents, strict=True):
        if not 0 <= percent <= 100:
            raise ArgumentError(f"percents holds {percent}: every step deletes from 0 to 100 percent of the image.")
        mask[indices[: math.floor(Fraction(str(percent)) * pixels / 100)]] = True
    return masks.reshape(len(percents), *size)


def _check_order(order: NDArray[np.generic], pixels: int) -> NDArray[np.int64]:
    """Return `order` as integers; refuse anything but distinct indices of so many pixels."""
    if order.size == 0:  # nothing is certified; an empty list is of floats
        return np.zeros(0, dtype=np.int64)
    if order.ndim != 1 or not np.issubdtype(order.dtype, np.integer):
        raise ArgumentError(f"order is {order.dtype} of shape {order.shape}: give flat pixel indices as integers (P,).")
    if order.min() < 0 or order.max() >= pixels:
        raise ArgumentError(f"order holds indices from {order.min()} to {order.max()}: size has 0 to {pixels - 1}.")
    if len(np.unique(order)) < len(order):
        raise ArgumentError("order names a pixel twice: name each pixel once.")
    return order.astype(np.int64)
