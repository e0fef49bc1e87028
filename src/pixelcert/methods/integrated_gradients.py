"""Integrated Gradients: gradients averaged along the straight way from a baseline."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..explainer import Explanation
from ..models.splitting import feature_maps
from .base import Method
from .gradient import copies_at_once, explain_by, product, target_logits, widen


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
        with torch.no_grad():
            features, _, logits = self.run_once(images)
        head = self.model.split(self.layer).head
        total, way = torch.zeros_like(widen(features)), self.points(self.steps)
        step = copies_at_once(features)
        for some in (way[start : start + step] for start in range(0, self.steps, step)):
            points = torch.cat([node * features for node, _ in some]).requires_grad_()
            with torch.enable_grad():
                reached = target_logits(head(points), targets.repeat(len(some)))
                (gradients,) = torch.autograd.grad(reached.sum(), points)
            for (_, weight), gradient in zip(some, gradients.view(-1, *features.shape), strict=True):
                total.add_(gradient, alpha=weight)
        return Explanation(feature_maps(features * total, images).sum(dim=1), logits)
