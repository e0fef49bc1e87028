"""Guided Backpropagation: the gradient along paths of positive evidence."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..explainer import Explanation, sum_channels
from ..models.splitting import feature_maps
from ..models.variants import EveryReLU
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
    fusable = False
    compilable = False

    def explain(self, images: Tensor, targets: Tensor) -> Explanation:
        linear = self.model.linear_head(self.layer)  # has no ReLU behind the layer
        with nullcontext() if linear else EveryReLU(_Guided.apply):
            _, gradient, logits = layer_gradient(self.model, self.layer, images, targets)
        return Explanation(sum_channels(feature_maps(gradient, images).abs()), logits)


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
