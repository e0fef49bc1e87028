"""Another function in place of every ReLU while a block runs, for methods that change how ReLUs pass gradients back."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

_RELUS = {F.relu, F.relu_, torch.relu, torch.relu_, Tensor.relu, Tensor.relu_}
_IN_PLACE = {F.relu_, torch.relu_, Tensor.relu_}


class EveryReLU(TorchFunctionMode):
    """While active, every ReLU and ReLU6 is ``stand_in(values, ceiling)``, a module or a call, in place or reused.

    The network is untouched. The ceiling is where ReLU6 clamps from above, ∞ for ReLU.
    """

    def __init__(self, stand_in: Callable[[Tensor, float], Tensor]) -> None:
        super().__init__()
        self._stand_in = stand_in

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if (ceiling := _ceiling(func, args, kwargs)) is None:
            return func(*args, **kwargs)
        values: Tensor = args[0] if args else kwargs["input"]
        if not _in_place(func, args, kwargs):
            return self._stand_in(values, ceiling)
        return values.copy_(self._stand_in(values.clone(), ceiling))


def _ceiling(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> float | None:
    """Where a ReLU clamps from above; None for other functions. ReLU6 is a `hardtanh` from 0 to 6."""
    if func in _RELUS:
        return math.inf
    if func is F.relu6:
        return 6.0
    bounds = {**dict(zip(("input", "min_val", "max_val"), args, strict=False)), **kwargs}
    return float(bounds.get("max_val", 1.0)) if func is F.hardtanh and bounds.get("min_val", -1.0) == 0 else None


def _in_place(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether others see the new values: the network may read the same tensor again."""
    position = {F.relu: 1, F.relu6: 1, F.hardtanh: 3}.get(func)
    asked = position is not None and len(args) > position and args[position]
    return bool(asked or kwargs.get("inplace") or func in _IN_PLACE)
