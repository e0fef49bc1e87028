"""Grad-CAM: the layer's activation maps, weighted by their mean gradients."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..explainer import Explanation
from ..models.split import as_maps
from .base import Method
from .gradient import layer_gradient


@dataclass(frozen=True)
class GradCAM(Method):
    """ReLU(Σ_c w_c A_c), with w_c the spatial mean of ∂ logit / ∂ A_c.

    The ReLU makes all negative evidence equal to zero, and pixels tied at the threshold vote for neither class, so
    where less than K % of the map is positive the rest abstains. ``relu=False`` ranks the negative evidence too.
    """

    name = "grad_cam"
    title = "Grad-CAM"
    short = "Grad-CAM"
    family = "activation"
    layers = ("final", "input", "*")
    cost = "1 forward, 1 backward of the head; 1 forward before a linear head"
    citation = "Selvaraju et al., 2017"

    relu: bool = True

    def explain(self, images: Tensor, targets: Tensor) -> Explanation:
        features, gradient, logits = layer_gradient(self.model, self.layer, images, targets)
        weights = as_maps(gradient, images).mean(dim=(2, 3), keepdim=True)
        maps = (weights * as_maps(features, images)).sum(dim=1)
        return Explanation(maps.relu() if self.relu else maps, logits)
