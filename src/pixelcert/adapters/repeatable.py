"""Making what draws random numbers repeatable, and noticing that it does."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


@contextmanager
def repeatable(seed: int) -> Iterator[Callable[[], bool]]:
    """The global generators of torch, NumPy and Python at `seed`, and back where they were afterwards.

    Gives a function that tells whether any of them was used inside. Generators that an object keeps for itself are
    out of reach.
    """
    found = _states()
    for generator in _torch_generators():
        generator.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)
    start, used = _states(), False
    try:
        yield lambda: used
    finally:
        end = _states()  # more than at the start, if CUDA came into use
        used = len(end) > len(start) or not all(_same(one, other) for one, other in zip(start, end, strict=True))
        _restore(found)


def _torch_generators() -> list[torch.Generator]:
    return [torch.default_generator, *torch.cuda.default_generators]  # the latter are none until CUDA is in use


def _states() -> list[Any]:
    """Where Python's, NumPy's and torch's generators are."""
    return [random.getstate(), np.random.get_state(), *(one.get_state() for one in _torch_generators())]


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    return all(np.array_equal(mine, theirs) for mine, theirs in zip(one, other, strict=True))


def _restore(states: list[Any]) -> None:
    python, numpy, *torches = states
    random.setstate(python)
    np.random.set_state(numpy)
    for generator, state in zip(_torch_generators(), torches, strict=False):
        generator.set_state(state)
