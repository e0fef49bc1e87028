"""Gradients: the way to move an image so that pixels lose their labels under noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..explainer import Explainer, explain, upsample
from ..methods import Method
from ..models.splitting import feature_maps
from ..models.variants import EveryReLU
from .aim import Aim

SHARPNESS = 10.0  # of softplus: log(1 + exp(s·x)) / s


def smooth_relus(guided: bool = False) -> EveryReLU:
    """While active, ReLU and ReLU6 are smooth; `guided` ones pass back positive parts."""
    return EveryReLU(_Guided.apply if guided else _softplus)


class _Guided(torch.autograd.Function):
    """Softplus whose gradient passes back its positive part alone. Its own slope is torch's to find."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, ceiling: float) -> Tensor:
        ctx.save_for_backward(values)
        ctx.ceiling = ceiling
        return _softplus(values, ceiling)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (values,) = ctx.saved_tensors
        gate = torch.sigmoid(SHARPNESS * values)
        if ctx.ceiling < math.inf:
            gate = gate - torch.sigmoid(SHARPNESS * (values - ctx.ceiling))
        return gradient.clamp_min(0) * gate, None


def _softplus(values: Tensor, ceiling: float) -> Tensor:
    smooth = F.softplus(values, SHARPNESS)
    return smooth - F.softplus(values - ceiling, SHARPNESS) if ceiling < math.inf else smooth


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
        maps = self.formula(feature_maps(features, images), feature_maps(slopes, images))
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


_CELLS = 14  # a side: Stein's estimate has one number per cell and channel
_NEAR = 2  # pixels; of Guided Backprop and LRP on ResNet-18, most of the slope of a pixel's share is within
_ASK_WIDELY = {"rise", "occlusion"}  # by masks and windows of many pixels


class Gradient(Protocol):
    """Estimates where a weighted sum of shares falls fastest."""

    name: ClassVar[str]
    passes: ClassVar[int]  # what a step costs per noisy copy, in explanations
    momentum: ClassVar[float]  # from a few noisy copies slopes are mostly noise; their running sum is less so

    def descent(self, moved: Tensor, images: Tensor, maps: Tensor, weights: Tensor) -> Tensor:
        """The direction (C, H, W), of any length.

        `images` (B, C, H, W) are noisy copies of `moved`, `maps` (B, H, W) their explanations, `weights` (N,).
        """
        ...


@dataclass(frozen=True)
class Pathwise:
    """Through a soft vote: a sigmoid of the distance to the threshold of the top K %.

    The sigmoid is as wide as the distance varies from one noisy copy to another, pixel by pixel. That is a kernel
    estimate of the share's slope: copies in which the pixel is near the threshold count most.
    """

    name: ClassVar[str] = "pathwise"
    passes: ClassVar[int] = 3  # a backward pass costs about two
    momentum: ClassVar[float] = 0.75

    aim: Aim
    surrogate: Surrogate

    def descent(self, moved: Tensor, images: Tensor, maps: Tensor, weights: Tensor) -> Tensor:
        with torch.enable_grad():
            images = images.detach().requires_grad_()
            values = self.aim.ranked(self.surrogate(images))
            threshold = values.topk(self.aim.ones + 1, dim=1).values[:, -2:].mean(dim=1, keepdim=True)
            inside = torch.where(self.aim.labels == 1, 1.0, -1.0)
            margins = (values - threshold) * inside
            width = margins.detach().std(dim=0, correction=0)
            votes = torch.sigmoid(margins / width.clamp_min(torch.finfo(width.dtype).tiny))
            (slope,) = torch.autograd.grad((weights * votes).sum(), images)
        return -slope.mean(dim=0).nan_to_num(0, 0, 0)


@dataclass(frozen=True)
class Stein:
    """From votes alone: noise weighted with the votes that it made, in pairs ±ε that cancel what does not depend on it.

    The estimate's error grows with the number of values that are estimated. Where votes depend on what is near, up to
    `reach` pixels away, those of other pixels are left out of a value's slope, and the error of their noise with them.
    Otherwise the slope is averaged over cells of the image, about 14 to a side; what changes within a cell is lost.
    """

    name: ClassVar[str] = "stein"
    passes: ClassVar[int] = 1
    momentum: ClassVar[float] = 1.0  # every step counts, so noisy are they

    aim: Aim
    explainer: Explainer
    target: int
    reach: int | None = None  # None: any pixel's vote may depend on any value

    def descent(self, moved: Tensor, images: Tensor, maps: Tensor, weights: Tensor) -> Tensor:
        noise = images - moved
        mirrored = explain(self.explainer, moved - noise, self.target).maps
        gains = weights * (self._votes(maps) - self._votes(mirrored)).to(weights)
        scale = 2 * len(images) * self.aim.plan.sigma**2
        if self.reach is None:
            return -_averaged_over_cells(torch.einsum("b,bchw->chw", gains.sum(dim=1), noise) / scale)
        near = _sums_nearby(gains.view(len(images), 1, *images.shape[2:]), self.reach)
        return -(near * noise).sum(dim=0) / scale

    def _votes(self, maps: Tensor) -> Tensor:
        """The votes for the labels in each map: (B, N)."""
        return torch.stack([self.aim.keeping(one[None]) for one in maps])


def reach_of(explainer: Explainer) -> int | None:
    """How far from a pixel its vote depends on the image for the most part; None where that may be anywhere."""
    near = isinstance(explainer, Method) and explainer.layer == "input" and explainer.name not in _ASK_WIDELY
    return _NEAR if near else None


def _sums_nearby(values: Tensor, reach: int) -> Tensor:
    """Of each place in (B, 1, H, W), the sum over those up to `reach` away in both directions."""
    return F.avg_pool2d(values, 2 * reach + 1, stride=1, padding=reach, divisor_override=1)


def _averaged_over_cells(slope: Tensor) -> Tensor:
    height, width = slope.shape[1:]
    cell = max(1, min(height, width) // _CELLS)
    means = F.avg_pool2d(slope[None], cell, ceil_mode=True)
    return F.interpolate(means, scale_factor=cell)[0, :, :height, :width]
