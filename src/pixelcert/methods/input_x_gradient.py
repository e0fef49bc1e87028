"""Input × Gradient: what each pixel adds to the logit, to first order."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..explainer import Explanation
from ..models.split import as_maps
from .base import Method
from .gradient import layer_gradient


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
        return Explanation(as_maps(features * gradient, images).sum(dim=1), logits)
