"""Robustness: the shares of a map's labels, and the paper's %certified."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..basics.messages import ArgumentError
from ..plan import ABSTAIN


class Shares(NamedTuple):
    """Percent of all pixels with each label; they sum to 100."""

    ones: float
    zeros: float
    abstained: float


def shares(labels: ArrayLike) -> Shares:
    """Return the percent of pixels certified 1, certified 0 and abstained, of `labels` (H, W).

    >>> shares([[1, 1], [0, -1]])
    Shares(ones=50.0, zeros=25.0, abstained=25.0)
    """
    labels = check_labels(labels)
    return Shares(*(100 * float((labels == label).mean()) for label in (1, 0, ABSTAIN)))


def percent_certified(labels: ArrayLike) -> float:
    """Return the paper's %certified: the percent of pixels of `labels` (H, W) that do not abstain.

    >>> percent_certified([[1, 1], [0, -1]])
    75.0
    """
    return 100 * float((check_labels(labels) != ABSTAIN).mean())


def check_labels(labels: ArrayLike, argument: str = "labels") -> NDArray[np.integer]:
    """Return `labels` as an array (H, W); refuse anything but 1, 0 and ABSTAIN."""
    array = np.asarray(labels)
    if array.ndim != 2 or array.size == 0:
        raise ArgumentError(f"{argument} has shape {array.shape}: give the labels of one map as (H, W).")
    if (others := array[~np.isin(array, (1, 0, ABSTAIN))]).size:
        raise ArgumentError(
            f"{argument} holds {others[0]}, which is not a label: give 1, 0 or ABSTAIN ({ABSTAIN}), as in "
            f"certificate.labels[K]."
        )
    return array
