"""Gradient: how strongly the target's logit reacts to each pixel."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..explainer import Explanation, sum_channels
from ..models.split import as_maps
from .base import Method
from .gradient import layer_gradient


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
        return Explanation(sum_channels(as_maps(gradient, images).abs()), logits)
