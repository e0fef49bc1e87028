"""Surrogates: maps that can be differentiated in the image, for explainers whose own cannot.

Every attribution method is written once more, as a formula in a layer's features A and the slopes G of the target's
logit there, with both kept in the graph. Some formulas are the method itself, others its first-order twin. An attack
takes nothing but directions from them: whether a pixel has flipped is asked of the explainer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..explainer import Explainer, upsample
from ..methods import Method
from ..models.split import as_maps
from .smooth_relu import smooth_relus

Surrogate = Callable[[Tensor], Tensor]  # images (B, C, H, W) → maps (B, H, W) in the graph
Formula = Callable[[Tensor, Tensor], Tensor]  # features A and slopes G (B, C, h, w) → maps (B, h, w)

_STEPS = 4  # of the way that Integrated Gradients goes: each costs a second derivative


def surrogate_of(explainer: Explainer, image: Tensor, target: int) -> Surrogate | None:
    """What to differentiate for this explainer: its formula, or itself if its maps stay in the graph; else None."""
    if isinstance(explainer, Method):
        formula = FORMULAS.get(explainer.name)
        if explainer.name in _BEFORE_LINEAR_HEADS and not explainer.model.linear_head(explainer.layer):
            formula = None
        return formula and _OfFeatures(explainer, target, formula)
    own = _Own(explainer, target)
    return own if own.differentiable(image) else None


@dataclass(frozen=True)
class _Own:
    """The explainer's maps as they are."""

    explainer: Explainer
    target: int

    def __call__(self, images: Tensor) -> Tensor:
        maps = self.explainer(images, torch.full((len(images),), self.target, device=images.device))
        return upsample(maps.sum(dim=1) if maps.ndim == 4 else maps, images)

    def differentiable(self, image: Tensor) -> bool:
        leaf = image[None].clone().requires_grad_()
        with torch.enable_grad():
            try:
                (slope,) = torch.autograd.grad(self(leaf).sum(), leaf, allow_unused=True)
            except RuntimeError:  # what torch says of maps outside its graph, and of images that leave it for NumPy
                return False
        return slope is not None


@dataclass(frozen=True)
class _OfFeatures:
    """A formula in the features and slopes of a method's layer."""

    method: Method
    target: int
    formula: Formula

    def __call__(self, images: Tensor) -> Tensor:
        features = self.method.model.split(self.method.layer).features(images)
        slopes = self._slopes(features)
        maps = self.formula(as_maps(features, images), as_maps(slopes, images))
        return upsample(_averaged_over(maps, *self._windows(min(maps.shape[1:]))), images)

    def _slopes(self, features: Tensor) -> Tensor:
        """∂ logit / ∂ A, in the graph; a constant before a linear head."""
        model, layer = self.method.model, self.method.layer
        if linear := model.linear_head(layer):
            weights = linear.weight[self.target] / features[0, 0].numel()
            return weights[None, :, None, None].expand_as(features)
        head = model.split(layer).head
        total = torch.zeros_like(features)
        # The fused kernels of attention have no second derivative.
        with smooth_relus(guided=self.method.name == "gb"), sdpa_kernel(SDPBackend.MATH):
            for node, weight in self._way():
                point = node * features
                (slope,) = torch.autograd.grad(head(point)[:, self.target].sum(), point, create_graph=True)
                total = total + weight * slope
        return total

    def _way(self) -> list[tuple[float, float]]:
        """Points and weights along the way from zero to the features: its end alone, but for Integrated Gradients."""
        if self.method.name != "intgrad":
            return [(1.0, 1.0)]
        nodes, weights = np.polynomial.legendre.leggauss(_STEPS)
        return [(float(node), float(weight)) for node, weight in zip((nodes + 1) / 2, weights / 2, strict=True)]

    def _windows(self, side: int) -> tuple[int, int]:
        """Side and stride of what the method covers at once, on maps of so many pixels a side; 1 and 1 for none."""
        params: Mapping[str, Any] = self.method.params
        if self.method.name == "occlusion":  # behind the input
            return min(side, params["window"] or 5), params["stride"] or 2
        return (-(-side // params["cells"]), 1) if self.method.name == "rise" else (1, 1)


def _averaged_over(maps: Tensor, window: int, stride: int) -> Tensor:
    """The sums of all windows, the last of which may be cut at the edge, averaged over those that cover each pixel."""
    if window == 1:
        return maps
    sums = F.avg_pool2d(maps[:, None], window, stride, ceil_mode=True, divisor_override=1)

    def handed_back(values: Tensor) -> Tensor:
        whole = F.conv_transpose2d(values, maps.new_ones(1, 1, window, window), stride=stride)
        return whole[:, 0, : maps.shape[1], : maps.shape[2]]

    return handed_back(sums) / handed_back(torch.ones_like(sums))


# ── The formulas ──────────────────────────────────────────────────────────────────────────────────────────────────
# ReLUs at the end of a map are left out: they keep the order of what is positive, and have no slope elsewhere.


def _magnitude(features: Tensor, slopes: Tensor) -> Tensor:
    return slopes.abs().sum(dim=1)


def _product(features: Tensor, slopes: Tensor) -> Tensor:
    return (features * slopes).sum(dim=1)


def _weighted(features: Tensor, slopes: Tensor) -> Tensor:
    """Channels weighted by their mean slopes."""
    return (slopes.mean(dim=(2, 3), keepdim=True) * features).sum(dim=1)


def _weighted_by_pixels(features: Tensor, slopes: Tensor) -> Tensor:
    """Grad-CAM++'s weights."""
    alphas = (1 / (2 + slopes * features.sum(dim=(2, 3), keepdim=True))).nan_to_num(0, 0, 0)
    return ((alphas * slopes.relu()).sum(dim=(2, 3), keepdim=True) * features).sum(dim=1)


def _weighted_by_falls(features: Tensor, slopes: Tensor) -> Tensor:
    """Channels weighted by what the logit loses without them, to first order; exact before a linear head."""
    return ((slopes * features).sum(dim=(2, 3), keepdim=True) * features).sum(dim=1)


def _positive_product(features: Tensor, slopes: Tensor) -> Tensor:
    return (slopes.relu() * features).sum(dim=1)


FORMULAS: Mapping[str, Formula] = MappingProxyType(
    {
        "grad": _magnitude,
        "gb": _magnitude,
        "intgrad": _product,
        "ixg": _product,
        "lrp": _product,
        "cam": _weighted,
        "grad_cam": _weighted,
        "grad_cam_pp": _weighted_by_pixels,
        "ablation_cam": _weighted_by_falls,
        "layer_cam": _positive_product,
        "rise": _product,  # to first order, averaged over cells
        "occlusion": _product,  # averaged over windows
    }
)
_BEFORE_LINEAR_HEADS = {"cam", "lrp", "occlusion", "rise"}  # elsewhere these formulas rank pixels in another order
