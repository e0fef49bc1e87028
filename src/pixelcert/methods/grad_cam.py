"""Grad-CAM, Grad-CAM++ and Layer-CAM: activation maps weighted by gradients."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..explainer import Explanation
from ..models.splitting import feature_maps
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
        weights = feature_maps(gradient, images).mean(dim=(2, 3), keepdim=True)
        maps = (weights * feature_maps(features, images)).sum(dim=1)
        return Explanation(maps.relu() if self.relu else maps, logits)


@dataclass(frozen=True)
class GradCAMPlusPlus(Method):
    """ReLU(Σ_c w_c A_c), with w_c = Σ α_c ReLU(g_c), α_c = 1 / (2 + g_c Σ A_c) and g_c = ∂ logit / ∂ A_c.

    Where the sum of a map is negative, as it may be at the input, α_c can change its sign; at its pole it counts as 0.
    """

    name = "grad_cam_pp"
    title = "Grad-CAM++"
    short = "Grad-CAM++"
    family = "activation"
    layers = ("final", "input", "*")
    cost = "1 forward, 1 backward of the head; 1 forward before a linear head"
    citation = "Chattopadhay et al., 2018"

    relu: bool = True

    @property
    def bears_bfloat16(self) -> bool:
        """Not at the input, where α_c is near its pole."""
        return self.layer != "input"

    def explain(self, images: Tensor, targets: Tensor) -> Explanation:
        features, gradient, logits = layer_gradient(self.model, self.layer, images, targets)
        maps, gradients = feature_maps(features, images), feature_maps(gradient, images)
        alphas = (1 / (2 + gradients * maps.sum(dim=(2, 3), keepdim=True))).nan_to_num(0, 0, 0)
        weights = (alphas * gradients.relu()).sum(dim=(2, 3), keepdim=True)
        combined = (weights * maps).sum(dim=1)
        return Explanation(combined.relu() if self.relu else combined, logits)


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
        maps = (feature_maps(gradient, images).relu() * feature_maps(features, images)).sum(dim=1)
        return Explanation(maps.relu() if self.relu else maps, logits)
