"""Guided Backpropagation: the gradient along paths of positive evidence."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..explainer import Explanation
from ..models.variants import EveryReLU
from .gradient import Grad


@dataclass(frozen=True)
class GuidedBackprop(Grad):
    """|∂ logit / ∂ A|, summed over the channels, where every ReLU passes back only positive gradients.

    Activations other than ReLU and ReLU6 (`clamp` too) keep their own gradients, so on networks without ReLUs (ViT) it
    is the same as Gradient.
    """

    name = "gb"
    title = "Guided Backprop"
    short = "GB"
    look = ("#74b8e8", "s")
    citation = "Springenberg et al., 2015"
    fusable = False
    compilable = False
    guided = True

    def explain(self, images: Tensor, targets: Tensor) -> Explanation:
        linear = self.linear_head  # has no ReLU behind the layer
        with nullcontext() if linear else EveryReLU(_Guided.apply):
            return super().explain(images, targets)


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
