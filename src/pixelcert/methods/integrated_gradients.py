"""Integrated Gradients: gradients averaged along the straight way from a black image."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..explainer import Explanation
from ..models.split import as_maps
from .base import Method
from .gradient import layer_gradient, target_logits


@dataclass(frozen=True)
class IntegratedGradients(Method):
    """A · ∫₀¹ ∂ logit / ∂ A at αA dα, by Gauss and Legendre's rule, summed over the channels.

    The baseline is zero in the layer's own space: for "input" the normalised image, that is the mean colour.
    """

    name = "intgrad"
    title = "Integrated Gradients"
    family = "backpropagation"
    layers = ("input", "final", "*")
    cost = "steps forwards and backwards, and 1 forward more; 1 forward before a linear head"
    citation = "Sundararajan, Taly, Yan, 2017"

    steps: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(self.steps >= 1, "steps", "use 1 or more")

    @property
    def forwards(self) -> int:
        return 1 if self.model.linear_head(self.layer) else self.steps

    def explain(self, images: Tensor, targets: Tensor) -> Explanation:
        if self.model.linear_head(self.layer):  # the gradient is the same all along the way
            features, gradient, logits = layer_gradient(self.model, self.layer, images, targets)
            return Explanation(as_maps(features * gradient, images).sum(dim=1), logits)
        body, head = self.model.split(self.layer)
        with torch.no_grad():
            features = body(images)
            logits = head(features)
        nodes, weights = np.polynomial.legendre.leggauss(self.steps)
        total = torch.zeros_like(features)
        with torch.enable_grad():
            for node, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
                point = (float(node) * features).requires_grad_()
                (gradient,) = torch.autograd.grad(target_logits(head(point), targets).sum(), point)
                total += float(weight) * gradient
        return Explanation(as_maps(features * total, images).sum(dim=1), logits)
