"""ReLUs made smooth while a block runs, so that gradients of gradients say something.

The gradient of a ReLU network is constant in pieces: its own slope is zero almost everywhere, and an attack on a
gradient map has nothing to climb. Softplus in place of ReLU gives it a slope (Dombrowski et al., 2019; Ghorbani et al.,
2019). The network itself is untouched, and is never judged by this stand-in.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

SHARPNESS = 10.0  # of softplus: log(1 + exp(s·x)) / s

_RELUS = {F.relu, F.relu_, torch.relu, torch.relu_, Tensor.relu, Tensor.relu_}
_IN_PLACE = {F.relu_, torch.relu_, Tensor.relu_}


class SmoothReLUs(TorchFunctionMode):
    """While active, ReLU and ReLU6 are smooth, in modules and calls alike; `guided` ones pass back positive parts."""

    def __init__(self, guided: bool = False) -> None:
        super().__init__()
        self._guided = guided

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if (ceiling := _ceiling(func, args, kwargs)) is None:
            return func(*args, **kwargs)
        values: Tensor = args[0] if args else kwargs["input"]
        if not _in_place(func, args, kwargs):
            return self._smooth(values, ceiling)
        return values.copy_(self._smooth(values.clone(), ceiling))

    def _smooth(self, values: Tensor, ceiling: float) -> Tensor:
        if self._guided:
            return _Guided.apply(values, ceiling)  # type: ignore[no-any-return, no-untyped-call]
        return _softplus(values, ceiling)


class _Guided(torch.autograd.Function):
    """Softplus whose gradient passes back its positive part alone. Its own slope is torch's to find."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, ceiling: float) -> Tensor:
        ctx.save_for_backward(values)
        ctx.ceiling = ceiling
        return _softplus(values, ceiling)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (values,) = ctx.saved_tensors
        gate = torch.sigmoid(SHARPNESS * values)
        if ctx.ceiling < math.inf:
            gate = gate - torch.sigmoid(SHARPNESS * (values - ctx.ceiling))
        return gradient.clamp_min(0) * gate, None


def _softplus(values: Tensor, ceiling: float) -> Tensor:
    smooth = F.softplus(values, SHARPNESS)
    return smooth - F.softplus(values - ceiling, SHARPNESS) if ceiling < math.inf else smooth


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
