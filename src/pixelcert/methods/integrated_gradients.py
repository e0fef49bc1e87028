"""Integrated Gradients: gradients averaged along the straight way from a baseline."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..basics.machine import images_per_batch
from ..explainer import Explanation
from ..models.splitting import feature_maps
from .base import Method
from .gradient import explain_by, product, target_logits, widen


@dataclass(frozen=True)
class IntegratedGradients(Method):
    """A · ∫₀¹ ∂ logit / ∂ A at αA dα, by Gauss and Legendre's rule, summed over the channels.

    The baseline is zero in the layer's own space: at "input" the normalised image is zero, that is the mean colour.
    """

    name = "intgrad"
    title = "Integrated Gradients"
    short = "IntGrad"
    family = "backpropagation"
    look = ("#3b8fd0", "^")
    cost = "steps forwards and backwards, and 1 forward more; 1 forward before a linear head"
    citation = "Sundararajan, Taly, Yan, 2017"
    formula = staticmethod(product)

    steps: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(self.steps >= 1, "steps", "use 1 or more")

    @property
    def passes(self) -> int:
        return 1 if self.linear_head else self.steps

    def points(self, count: int) -> list[tuple[float, float]]:
        nodes, weights = np.polynomial.legendre.leggauss(count)
        return [(float(node + 1) / 2, float(weight) / 2) for node, weight in zip(nodes, weights, strict=True)]

    def explain(self, images: Tensor, targets: Tensor) -> Explanation:
        if self.linear_head:  # the gradient is the same all along the way
            return explain_by(product, self, images, targets)
        body, head = self.model.split(self.layer)
        with torch.no_grad():
            features = body(images)
            logits = head(features)
        total, nodes, weights = torch.zeros_like(widen(features)), *zip(*self.points(self.steps), strict=True)
        step = max(1, images_per_batch(features.device, features[0].numel()) // len(features))
        for start in range(0, self.steps, step):  # as many points of the way at once as fill the device
            some = slice(start, start + step)
            points = torch.cat([node * features for node in nodes[some]]).requires_grad_()
            with torch.enable_grad():
                reached = target_logits(head(points), targets.repeat(len(points) // len(features)))
                (gradients,) = torch.autograd.grad(reached.sum(), points)
            for weight, gradient in zip(weights[some], gradients.view(-1, *features.shape), strict=True):
                total.add_(gradient, alpha=weight)
        return Explanation(feature_maps(features * total, images).sum(dim=1), logits)
