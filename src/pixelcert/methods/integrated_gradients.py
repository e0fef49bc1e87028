"""Integrated Gradients: gradients averaged along the straight way from a black image."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..basics.machine import images_per_batch
from ..explainer import Explanation
from ..models.splitting import feature_maps
from .base import Method
from .gradient import layer_gradient, target_logits, widen


@dataclass(frozen=True)
class IntegratedGradients(Method):
    """A · ∫₀¹ ∂ logit / ∂ A at αA dα, by Gauss and Legendre's rule, summed over the channels.

    The baseline is zero in the layer's own space: for "input" the normalised image, that is the mean colour.
    """

    name = "intgrad"
    title = "Integrated Gradients"
    short = "IntGrad"
    family = "backpropagation"
    layers = ("input", "final", "*")
    cost = "steps forwards and backwards, and 1 forward more; 1 forward before a linear head"
    citation = "Sundararajan, Taly, Yan, 2017"

    steps: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(self.steps >= 1, "steps", "use 1 or more")

    @property
    def passes(self) -> int:
        return 1 if self.model.linear_head(self.layer) else self.steps

    def explain(self, images: Tensor, targets: Tensor) -> Explanation:
        if self.model.linear_head(self.layer):  # the gradient is the same all along the way
            features, gradient, logits = layer_gradient(self.model, self.layer, images, targets)
            return Explanation(feature_maps(features * gradient, images).sum(dim=1), logits)
        body, head = self.model.split(self.layer)
        with torch.no_grad():
            features = body(images)
            logits = head(features)
        total = torch.zeros_like(widen(features))
        nodes, weights = np.polynomial.legendre.leggauss(self.steps)
        step = max(1, images_per_batch(features.device, features[0].numel()) // len(features))
        for start in range(0, self.steps, step):  # as many points of the way at once as fill the device
            some = slice(start, start + step)
            points = torch.cat([float(node + 1) / 2 * features for node in nodes[some]]).requires_grad_()
            with torch.enable_grad():
                reached = target_logits(head(points), targets.repeat(len(points) // len(features)))
                (gradients,) = torch.autograd.grad(reached.sum(), points)
            for weight, gradient in zip(weights[some], gradients.view(-1, *features.shape), strict=True):
                total.add_(gradient, alpha=float(weight) / 2)
        return Explanation(feature_maps(features * total, images).sum(dim=1), logits)
