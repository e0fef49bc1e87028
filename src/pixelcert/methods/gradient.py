"""Gradient and Input × Gradient, and the gradient at a layer that most methods begin with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..explainer import Explanation, sum_channels
from ..models import Classifier
from ..models.splitting import feature_maps
from .base import Method


class LayerGradient(NamedTuple):
    """Features of a layer, and how each image's target reacts to them: in float32 or better, for sums and products."""

    features: Tensor  # (B, C, h, w), or tokens (B, T, C)
    gradient: Tensor  # like the features
    logits: Tensor  # (B, classes)


def layer_gradient(model: Classifier, layer: str, images: Tensor, targets: Tensor) -> LayerGradient:
    """One run of the network, and one backward through its head; none where the head is linear."""
    features, head = model.split(layer)
    with torch.no_grad():
        activations = features(images)
    if linear := model.linear_head(layer):
        weights = linear.weight[targets] / activations[0, 0].numel()
        return LayerGradient(
            widen(activations), weights[:, :, None, None].expand_as(activations), linear.logits(activations).detach()
        )
    with torch.enable_grad():
        activations.requires_grad_()
        logits = head(activations)
        (gradient,) = torch.autograd.grad(target_logits(logits, targets).sum(), activations)
    return LayerGradient(widen(activations.detach()), widen(gradient), logits.detach())


def widen(values: Tensor) -> Tensor:
    """At least in float32, where maps are made: 8 bits would tie many pixels."""
    return values if values.dtype == torch.float64 else values.float()


def target_logits(logits: Tensor, targets: Tensor) -> Tensor:
    """Each image's logits (B, …, classes) of its own target: (B, …)."""
    chosen = targets.view(-1, *[1] * (logits.ndim - 1)).expand(*logits.shape[:-1], 1)
    return logits.gather(-1, chosen)[..., 0]


@dataclass(frozen=True)
class Grad(Method):
    """|∂ logit / ∂ A|, summed over the channels of the normalised image or the layer.

    Behind a layer with average pooling and a linear layer alone it is the same everywhere, and nothing is certified.
    """

    name = "grad"
    title = "Gradient"
    short = "Grad"
    family = "backpropagation"
    layers = ("input", "final", "*")
    cost = "1 forward, 1 backward"
    citation = "Simonyan, Vedaldi, Zisserman, 2014"

    def explain(self, images: Tensor, targets: Tensor) -> Explanation:
        _, gradient, logits = layer_gradient(self.model, self.layer, images, targets)
        return Explanation(sum_channels(feature_maps(gradient, images).abs()), logits)


@dataclass(frozen=True)
class InputXGradient(Method):
    """A · ∂ logit / ∂ A, summed over the channels of the normalised image or the layer."""

    name = "ixg"
    title = "Input × Gradient"
    short = "IxG"
    family = "backpropagation"
    layers = ("input", "final", "*")
    cost = "1 forward, 1 backward"
    citation = "Shrikumar et al., 2016"

    def explain(self, images: Tensor, targets: Tensor) -> Explanation:
        features, gradient, logits = layer_gradient(self.model, self.layer, images, targets)
        return Explanation(feature_maps(features * gradient, images).sum(dim=1), logits)
