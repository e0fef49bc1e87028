"""Layer-CAM: activations weighted place by place with their positive gradients."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..explainer import Explanation
from ..models.split import as_maps
from .base import Method
from .gradient import layer_gradient


@dataclass(frozen=True)
class LayerCAM(Method):
    """ReLU(Σ_c ReLU(∂ logit / ∂ A_c) · A_c), at every position by itself."""

    name = "layer_cam"
    title = "Layer-CAM"
    short = "Layer-CAM"
    family = "activation"
    layers = ("final", "input", "*")
    cost = "1 forward, 1 backward of the head; 1 forward before a linear head"
    citation = "Jiang et al., 2021"

    relu: bool = True

    def explain(self, images: Tensor, targets: Tensor) -> Explanation:
        features, gradient, logits = layer_gradient(self.model, self.layer, images, targets)
        maps = (as_maps(gradient, images).relu() * as_maps(features, images)).sum(dim=1)
        return Explanation(maps.relu() if self.relu else maps, logits)
