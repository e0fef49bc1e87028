"""Gradient: how strongly the target's logit reacts to each pixel."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..explainer import Explanation
from .base import Method, target_logits


@dataclass(frozen=True)
class Grad(Method):
    """|∂ logit / ∂ x|, summed over the channels of the normalised image."""

    name = "grad"
    title = "Gradient"
    family = "backpropagation"
    layers = ("input",)
    citation = "Simonyan, Vedaldi, Zisserman, 2014"

    @torch.enable_grad()
    def explain(self, images: Tensor, targets: Tensor) -> Explanation:
        features, head = self.model.split(self.layer)
        inputs = features(images).requires_grad_()
        logits = head(inputs)
        (gradient,) = torch.autograd.grad(target_logits(logits, targets).sum(), inputs)
        return Explanation(gradient.abs().sum(dim=1), logits.detach())
