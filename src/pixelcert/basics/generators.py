"""Generators: the global random numbers of torch, NumPy and Python, put back after use."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import numpy as np
import torch

from .locks import one_at_a_time


def seed_all(seed: int) -> None:
    """Set every global generator to `seed`."""
    for generator in _of_torch():
        generator.manual_seed(seed % 2**64)
    np.random.seed(seed % 2**32)
    random.seed(seed % 2**64)  # it ignores a sign


def states() -> list[Any]:
    """Return the states of Python's, NumPy's and torch's generators, each as a tuple of values."""
    return [random.getstate(), np.random.get_state(), *((one.get_state(),) for one in _of_torch())]


def moved(before: list[Any], after: list[Any]) -> bool:
    """Return True if any generator was used between two states, or if CUDA was started."""
    return len(after) > len(before) or not all(map(np.array_equal, chain(*before), chain(*after)))


@contextmanager
def put_back() -> Iterator[None]:
    """Put the global generators back at the end of the block, which one thread enters at a time."""
    with one_at_a_time:
        python, numpy, *torches = states()
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
            for generator, (state,) in zip(_of_torch(), torches, strict=False):
                generator.set_state(state)


def _of_torch() -> list[torch.Generator]:
    return [torch.default_generator, *torch.cuda.default_generators]  # there are none of CUDA until it is used
