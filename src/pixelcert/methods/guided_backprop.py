"""Guided Backpropagation: the gradient along paths of positive evidence."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from ..explainer import Explanation
from ..models.split import as_maps
from .base import Method
from .gradient import layer_gradient


@dataclass(frozen=True)
class GuidedBackprop(Method):
    """|∂ logit / ∂ A| with every ReLU passing only positive gradients back, summed over the channels.

    Activations other than ReLU and ReLU6, `clamp` among them, keep their own gradients, so it is Gradient on networks
    without them (ViT).
    """

    name = "gb"
    title = "Guided Backprop"
    short = "GB"
    family = "backpropagation"
    layers = ("input", "final", "*")
    cost = "1 forward, 1 backward"
    citation = "Springenberg et al., 2015"
    only_calls = False

    def explain(self, images: Tensor, targets: Tensor) -> Explanation:
        linear = self.model.linear_head(self.layer)  # has no ReLU behind the layer
        with nullcontext() if linear else _GuidedReLUs():
            _, gradient, logits = layer_gradient(self.model, self.layer, images, targets)
        return Explanation(as_maps(gradient, images).abs().sum(dim=1), logits)


class _Guided(torch.autograd.Function):
    """A clamp that passes back only the positive part of the gradient, where it did not clamp."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, ceiling: float) -> Tensor:
        clamped = values.clamp(0, ceiling)
        ctx.save_for_backward(clamped)
        ctx.ceiling = ceiling
        return clamped

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (clamped,) = ctx.saved_tensors
        passed = torch.where(clamped > 0, gradient, 0).clamp_min_(0)
        return (passed if ctx.ceiling == torch.inf else passed.masked_fill_(clamped >= ctx.ceiling, 0)), None


_RELUS = {F.relu, F.relu_, torch.relu, torch.relu_, Tensor.relu, Tensor.relu_}


class _GuidedReLUs(TorchFunctionMode):
    """While active, every ReLU is guided, whether a module or a call, in place or reused; the network is untouched."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        ceiling = _ceiling(func, args, kwargs)
        if ceiling is None:
            return func(*args, **kwargs)
        values = args[0] if args else kwargs["input"]
        if not _in_place(func, args, kwargs):
            return _Guided.apply(values, ceiling)  # type: ignore[no-untyped-call]
        return values.copy_(_Guided.apply(values.clone(), ceiling))  # type: ignore[no-untyped-call]


def _in_place(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether others see the clamped values: the network may read the same tensor again."""
    position = {F.relu: 1, F.relu6: 1, F.hardtanh: 3}.get(func)
    asked = position is not None and len(args) > position and args[position]
    return bool(asked or kwargs.get("inplace") or func in (F.relu_, torch.relu_, Tensor.relu_))


def _ceiling(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> float | None:
    """Where a ReLU clamps from above; None for other functions. ReLU6 is a `hardtanh` from 0 to 6."""
    if func in _RELUS:
        return torch.inf
    if func is F.relu6:
        return 6.0
    bounds = {**dict(zip(("input", "min_val", "max_val"), args, strict=False)), **kwargs}
    return float(bounds.get("max_val", 1.0)) if func is F.hardtanh and bounds.get("min_val", -1.0) == 0 else None
