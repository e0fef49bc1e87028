"""Gradient and Input × Gradient, and explanations by the gradient at a layer, as most methods make them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..basics.machine import images_per_batch
from ..explainer import Explanation, sum_channels
from ..models.splitting import feature_maps
from .base import Formula, Method


def explain_by(formula: Formula, method: Method, images: Tensor, targets: Tensor) -> Explanation:
    """Explain by a formula in the features of the method's layer and the gradient of each image's target there.

    The network is run once, and its head backwards; a linear head is not run, because its gradient is known.
    """
    body, head = method.model.split(method.layer)
    with torch.no_grad():
        features = body(images)
    if linear := method.linear_head:
        logits = linear.logits(features)
        gradient = linear.slope(features, targets).expand_as(features)
    else:
        with torch.enable_grad():
            logits = head(features.requires_grad_())
            gradient = widen(torch.autograd.grad(target_logits(logits, targets).sum(), features)[0])
    maps = formula(feature_maps(widen(features.detach()), images), feature_maps(gradient, images))
    return Explanation(maps, logits.detach())


def widen(values: Tensor) -> Tensor:
    """Return values in float32 or better, as maps are made: in 8 bits many pixels would be tied."""
    return values if values.dtype == torch.float64 else values.float()


def copies_at_once(features: Tensor) -> int:
    """Return how many copies of a batch of features fill the device, so that they share one run of the head."""
    return max(1, images_per_batch(features.device, features[0].numel()) // len(features))


def target_logits(logits: Tensor, targets: Tensor) -> Tensor:
    """Return each image's logit (B, …) of its own target, out of logits (B, …, classes)."""
    chosen = targets.view(-1, *[1] * (logits.ndim - 1)).expand(*logits.shape[:-1], 1)
    return logits.gather(-1, chosen)[..., 0]


# ── Formulas. Attacks use them without the ReLU at the end of a map, which has no slope where it is zero. ─────────────


def product(features: Tensor, slopes: Tensor) -> Tensor:
    return (features * slopes).sum(dim=1)


def weighted(features: Tensor, slopes: Tensor) -> Tensor:
    """Weight channels by their mean slopes."""
    return (slopes.mean(dim=(2, 3), keepdim=True) * features).sum(dim=1)


@dataclass(frozen=True)
class Grad(Method):
    """|∂ logit / ∂ A|, summed over the channels of the normalised image or the layer.

    If only average pooling and a linear layer follow, it is the same everywhere, and nothing is certified.
    """

    name = "grad"
    title = "Gradient"
    short = "Grad"
    family = "backpropagation"
    look = ("#b3d9f2", "o")
    cost = "1 forward, 1 backward"
    citation = "Simonyan, Vedaldi, Zisserman, 2014"

    @staticmethod
    def formula(features: Tensor, slopes: Tensor) -> Tensor:
        return slopes.abs().sum(dim=1)

    def explain(self, images: Tensor, targets: Tensor) -> Explanation:
        return explain_by(lambda _, slopes: sum_channels(slopes.abs()), self, images, targets)


@dataclass(frozen=True)
class InputXGradient(Method):
    """A · ∂ logit / ∂ A, summed over the channels of the normalised image or the layer."""

    name = "ixg"
    title = "Input × Gradient"
    short = "IxG"
    family = "backpropagation"
    look = ("#1f5fa8", "v")
    cost = "1 forward, 1 backward"
    citation = "Shrikumar et al., 2016"
    formula = staticmethod(product)

    def explain(self, images: Tensor, targets: Tensor) -> Explanation:
        return explain_by(product, self, images, targets)
