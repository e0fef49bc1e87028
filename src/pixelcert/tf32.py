"""TF32: whether NVIDIA's GPUs may round what goes into float32 convolutions and products, for the whole process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch


class _Switch(NamedTuple):
    """torch has two for each, and refuses to read the older one after the newer one was used."""

    older: Any  # has allow_tf32
    newer: Any  # has fp32_precision

    def read(self) -> bool | str:
        try:
            return bool(self.older.allow_tf32)
        except RuntimeError:
            return str(self.newer.fp32_precision)

    def write(self, value: bool | str) -> None:
        if isinstance(value, bool):
            self.older.allow_tf32 = value
        else:
            self.newer.fp32_precision = value


def _switches() -> tuple[_Switch, _Switch]:
    cudnn, products = torch.backends.cudnn, torch.backends.cuda.matmul
    return _Switch(cudnn, getattr(cudnn, "conv", None)), _Switch(products, products)


def tf32_allowed() -> tuple[bool, bool]:
    """For convolutions, and for products."""
    convolutions, products = (switch.read() in (True, "tf32") for switch in _switches())
    return convolutions, products


@contextmanager
def tf32(allowed: bool) -> Iterator[None]:
    """While active, it is allowed for both, or for neither."""
    before = [(switch, switch.read()) for switch in _switches()]
    try:
        for switch, value in before:
            switch.write(allowed if isinstance(value, bool) else "tf32" if allowed else "ieee")
        yield
    finally:
        for switch, value in before:
            switch.write(value)
