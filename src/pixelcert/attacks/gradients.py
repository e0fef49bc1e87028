"""Gradients: the directions in which to move an image so that pixels lose their labels under noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..basics.locks import one_at_a_time
from ..basics.machine import out_of_memory
from ..explainer import Explainer, Surrogate, at_full_size, explain, upsample
from ..methods import Method
from ..methods.base import Formula
from ..models.splitting import feature_maps
from ..models.variants import EveryReLU
from .aim import Aim

SHARPNESS = 10.0  # of softplus: log(1 + exp(s·x)) / s


def smooth_relus(guided: bool = False) -> EveryReLU:
    """Smooth ReLU and ReLU6 inside the block; `guided` ones pass back only positive parts."""
    return EveryReLU(_guided_softplus if guided else _softplus)


def _guided_softplus(values: Tensor, ceiling: float) -> Tensor:
    """Softplus that passes back only the positive part of a gradient."""
    smooth = _softplus(values, ceiling)
    if smooth.requires_grad:
        smooth.register_hook(lambda gradient: gradient.clamp_min(0))  # type: ignore[no-untyped-call]
    return smooth


def _softplus(values: Tensor, ceiling: float) -> Tensor:
    smooth = F.softplus(values, SHARPNESS)
    return smooth - F.softplus(values - ceiling, SHARPNESS) if ceiling < math.inf else smooth


_STEPS = 4  # on the way of Integrated Gradients: each costs a second derivative


def surrogate_of(explainer: Explainer, image: Tensor, target: int) -> Surrogate | None:
    """Return maps to differentiate: the explainer's surrogate, a method's formula, or maps that stay in the graph."""
    if told := explainer.surrogate(target):
        return told
    if isinstance(explainer, Method):
        return explainer.formula and partial(_maps_by_formula, explainer, explainer.formula, target)
    own = partial(_own_maps, explainer, target)
    return own if _has_slope(own, image) else None


def _own_maps(explainer: Explainer, target: int, images: Tensor) -> Tensor:
    """Return the explainer's maps as they are."""
    return at_full_size(explainer(images, torch.full((len(images),), target, device=images.device)), images)


def _has_slope(maps: Surrogate, image: Tensor) -> bool:
    """Return True if the maps have a slope in the image."""
    leaf = image[None].clone().requires_grad_()
    with one_at_a_time, torch.enable_grad():
        try:
            (slope,) = torch.autograd.grad(maps(leaf).sum(), leaf, allow_unused=True)
        except RuntimeError as error:  # the maps are outside the graph, or made with NumPy
            if out_of_memory(error):
                raise
            return False
    return slope is not None


def _maps_by_formula(method: Method, formula: Formula, target: int, images: Tensor) -> Tensor:
    """Apply a formula to the features and slopes of a method's layer."""
    features = method.model.split(method.layer).features(images)
    maps = formula(feature_maps(features, images), feature_maps(_slopes(method, target, features), images))
    return upsample(_averaged_over(maps, *method.covers(min(maps.shape[1:]))), images)


def _slopes(method: Method, target: int, features: Tensor) -> Tensor:
    """Return ∂ logit / ∂ A, in the graph; a constant before a linear head."""
    if linear := method.linear_head:
        return linear.slope(features, target).expand_as(features)
    head, total = method.model.split(method.layer).head, torch.zeros_like(features)
    # The fused kernels of attention have no second derivative.
    with smooth_relus(guided=method.guided), sdpa_kernel(SDPBackend.MATH):
        for node, weight in method.points(_STEPS):
            point = node * features
            (slope,) = torch.autograd.grad(head(point)[:, target].sum(), point, create_graph=True)
            total = total + weight * slope
    return total


def _averaged_over(maps: Tensor, window: int, stride: int) -> Tensor:
    """Average over each pixel the sums of the windows that cover it; the last window may be cut at the edge."""
    if window == 1:
        return maps
    sums = F.avg_pool2d(maps[:, None], window, stride, ceil_mode=True, divisor_override=1)

    def spread(values: Tensor) -> Tensor:
        whole = F.conv_transpose2d(values, maps.new_ones(1, 1, window, window), stride=stride)
        return whole[:, 0, : maps.shape[1], : maps.shape[2]]

    return spread(sums) / spread(torch.ones_like(sums))


_CELLS = 14  # a side: Stein's estimate has one number per cell and channel


@dataclass(frozen=True)
class Pathwise:
    """The slope of soft votes: sigmoids of the distance to the threshold of the top K %.

    Each pixel's sigmoid is as wide as the spread of its distance over the noisy copies. That is a kernel estimate of
    the share's slope: copies in which the pixel is near the threshold count most.
    """

    name: ClassVar[str] = "pathwise"
    passes: ClassVar[int] = 3  # the cost of a step per noisy copy, in explanations: a backward pass costs about two
    momentum: ClassVar[float] = 0.75  # from a few noisy copies slopes are mostly noise; their running sum is less so

    aim: Aim
    surrogate: Surrogate

    def descent(self, moved: Tensor, images: Tensor, maps: Tensor, weights: Tensor) -> Tensor:
        """Return the direction (C, H, W), of any length, in which the weighted sum of shares falls fastest.

        `images` (B, C, H, W) are noisy copies of `moved`, `maps` (B, H, W) their explanations, `weights` (N,).
        """
        with one_at_a_time, torch.enable_grad():
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
    """The slope from votes only: noise weighted with the votes that it made.

    Pairs ±ε cancel the part of the votes that does not depend on the noise. The error grows with the number of values
    that are estimated. If votes depend only on values up to `reach` pixels away, the slope of a value uses only the
    votes of pixels that near, and so avoids the errors of all others. Otherwise the slope is averaged over cells of the
    image, about 14 to a side; changes within a cell are lost.
    """

    name: ClassVar[str] = "stein"
    passes: ClassVar[int] = 1
    momentum: ClassVar[float] = 1.0  # every step counts, because each is so noisy

    aim: Aim
    explainer: Explainer
    target: int
    reach: int | None = None  # None: any pixel's vote may depend on any value

    def descent(self, moved: Tensor, images: Tensor, maps: Tensor, weights: Tensor) -> Tensor:
        """Return the direction (C, H, W), as `Pathwise.descent` does."""
        noise = images - moved
        mirrored = explain(self.explainer, moved - noise, self.target).maps
        gains = weights * (self._votes(maps) - self._votes(mirrored)).to(weights)
        scale = 2 * len(images) * self.aim.plan.sigma**2
        if self.reach is None:
            return -_averaged_over_cells(torch.einsum("b,bchw->chw", gains.sum(dim=1), noise) / scale)
        side, each = 2 * self.reach + 1, gains.view(len(images), 1, *images.shape[2:])
        near = F.avg_pool2d(each, side, stride=1, padding=self.reach, divisor_override=1)  # sums within reach
        return -(near * noise).sum(dim=0) / scale

    def _votes(self, maps: Tensor) -> Tensor:
        """Return the votes for the labels in each map: (B, N)."""
        return torch.stack([self.aim.keeping(one[None]) for one in maps])


def _averaged_over_cells(slope: Tensor) -> Tensor:
    height, width = slope.shape[1:]
    cell = max(1, min(height, width) // _CELLS)
    means = F.avg_pool2d(slope[None], cell, ceil_mode=True)
    return F.interpolate(means, scale_factor=cell)[0, :, :height, :width]


Gradient = Pathwise | Stein  # an estimate of the direction in which a weighted sum of shares falls fastest
