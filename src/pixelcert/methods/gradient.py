"""Gradient and Input × Gradient, and the gradient at a layer that most methods begin with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..explainer import Explanation, sum_channels
from ..models import Classifier
from ..models.heads import linear_head
from ..models.splitting import feature_maps
from .base import Formula, Method


class LayerGradient(NamedTuple):
    """Features of a layer and the gradient of each image's target there, both in float32 or better."""

    features: Tensor  # (B, C, h, w), or tokens (B, T, C)
    gradient: Tensor  # like the features
    logits: Tensor  # (B, classes)


def layer_gradient(model: Classifier, layer: str, images: Tensor, targets: Tensor) -> LayerGradient:
    """Run the network once, and its head backwards; a linear head is not run, its gradient is known."""
    features, head = model.split(layer)
    with torch.no_grad():
        activations = features(images)
    if linear := linear_head(model, layer):
        weights = linear.weight[targets] / activations[0, 0].numel()
        return LayerGradient(
            widen(activations), weights[:, :, None, None].expand_as(activations), linear.logits(activations).detach()
        )
    with torch.enable_grad():
        activations.requires_grad_()
        logits = head(activations)
        (gradient,) = torch.autograd.grad(target_logits(logits, targets).sum(), activations)
    return LayerGradient(widen(activations.detach()), widen(gradient), logits.detach())


def explain_by(formula: Formula, method: Method, images: Tensor, targets: Tensor, relu: bool = False) -> Explanation:
    """Explain by a formula in the features and gradients of the method's layer, laid out as maps."""
    features, gradient, logits = layer_gradient(method.model, method.layer, images, targets)
    maps = formula(feature_maps(features, images), feature_maps(gradient, images))
    return Explanation(maps.relu() if relu else maps, logits)


def widen(values: Tensor) -> Tensor:
    """Return values in float32 or better, as maps are made: in 8 bits many pixels would be tied."""
    return values if values.dtype == torch.float64 else values.float()


def target_logits(logits: Tensor, targets: Tensor) -> Tensor:
    """Return each image's logit (B, …) of its own target, out of logits (B, …, classes)."""
    chosen = targets.view(-1, *[1] * (logits.ndim - 1)).expand(*logits.shape[:-1], 1)
    return logits.gather(-1, chosen)[..., 0]


# ── Formulas. Attacks use them without the ReLU at the end of a map, which has no slope where it is zero. ─────────────


def magnitude(features: Tensor, slopes: Tensor) -> Tensor:
    return slopes.abs().sum(dim=1)


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
    layers = ("input", "final", "*")
    cost = "1 forward, 1 backward"
    citation = "Simonyan, Vedaldi, Zisserman, 2014"

    @property
    def formula(self) -> Formula:
        return magnitude

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
    layers = ("input", "final", "*")
    cost = "1 forward, 1 backward"
    citation = "Shrikumar et al., 2016"

    @property
    def formula(self) -> Formula:
        return product

    def explain(self, images: Tensor, targets: Tensor) -> Explanation:
        return explain_by(product, self, images, targets)
