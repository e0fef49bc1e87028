"""Grad-CAM, Grad-CAM++ and Layer-CAM: activation maps weighted by gradients."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..explainer import Explanation
from .base import Method
from .gradient import explain_by, weighted


@dataclass(frozen=True)
class GradCAM(Method):
    """ReLU(Σ_c w_c A_c), with w_c the spatial mean of ∂ logit / ∂ A_c.

    The ReLU sets all negative evidence to zero, and pixels tied at the threshold vote for neither label. So if less
    than K % of the map is positive, the rest abstains. ``relu=False`` ranks the negative evidence too.
    """

    name = "grad_cam"
    title = "Grad-CAM"
    short = "Grad-CAM"
    family = "activation"
    look = ("#7a2a00", "s")
    layers = ("final", "input", "*")
    cost = "1 forward, 1 backward of the head; 1 forward before a linear head"
    citation = "Selvaraju et al., 2017"
    formula = staticmethod(weighted)

    relu: bool = True

    def explain(self, images: Tensor, targets: Tensor) -> Explanation:
        maps, logits = explain_by(self.formula, self, images, targets)
        return Explanation(maps.relu() if self.relu else maps, logits)


@dataclass(frozen=True)
class GradCAMPlusPlus(GradCAM):
    """ReLU(Σ_c w_c A_c), with w_c = Σ α_c ReLU(g_c), α_c = 1 / (2 + g_c Σ A_c) and g_c = ∂ logit / ∂ A_c.

    If the sum of a map is negative, as at the input, α_c can change its sign; at its pole it counts as 0.
    """

    name = "grad_cam_pp"
    title = "Grad-CAM++"
    short = "Grad-CAM++"
    look = ("#c04a00", "P")
    citation = "Chattopadhay et al., 2018"

    @property
    def bears_bfloat16(self) -> bool:
        """False at the input, where α_c is near its pole."""
        return self.layer != "input"

    @staticmethod
    def formula(features: Tensor, slopes: Tensor) -> Tensor:
        alphas = (1 / (2 + slopes * features.sum(dim=(2, 3), keepdim=True))).nan_to_num(0, 0, 0)
        return ((alphas * slopes.relu()).sum(dim=(2, 3), keepdim=True) * features).sum(dim=1)


@dataclass(frozen=True)
class LayerCAM(GradCAM):
    """ReLU(Σ_c ReLU(∂ logit / ∂ A_c) · A_c), position by position."""

    name = "layer_cam"
    title = "Layer-CAM"
    short = "Layer-CAM"
    look = ("#f9a83c", "^")
    citation = "Jiang et al., 2021"

    @staticmethod
    def formula(features: Tensor, slopes: Tensor) -> Tensor:
        return (slopes.relu() * features).sum(dim=1)
