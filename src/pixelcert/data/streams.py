"""Random streams of one seed, each for a purpose of its own, so that none depends on how much another was used.

All numbers come straight from PCG64, whose stream NumPy promises to keep; what `Generator` makes of it may change.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np


class Purpose(IntEnum):
    ORDER = 0  # in which photographs are examined
    CELLS = 1  # which cell of a grid is explained
    REUSE = 2  # which photographs come again when there are too few for the grids


def stream(seed: int, purpose: Purpose) -> np.random.PCG64:
    return np.random.PCG64([seed % 2**64, int(purpose)])


def shuffled(bits: np.random.PCG64, count: int) -> list[int]:
    """0 to count - 1 in random order: sorted by random keys of 64 bits."""
    return [int(index) for index in np.argsort(bits.random_raw(count), kind="stable")]


def drawn(bits: np.random.PCG64, count: int, below: int) -> list[int]:
    """`count` random numbers from 0 to below - 1; of 64 bits, so that the remainder favours none noticeably."""
    return [int(number) % below for number in bits.random_raw(count)]
