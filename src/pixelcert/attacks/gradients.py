"""Gradients: which way to move an image so that pixels lose their labels under noise. Two estimators.

A pixel's share of votes is p(x) = E[v(x + ε)], v its vote. Of a weighted sum of shares, Σ w_i p_i,

- `Pathwise` differentiates a soft vote of a surrogate map, E[∇ v(x + ε)]: precise, where there is a good surrogate;
- `Stein` needs votes alone, E[v(x + ε)·ε] / σ² by Stein's lemma: for any black box, and far noisier, but less so where
  a pixel's vote depends on what is near it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from ..explainer import Explainer, explain
from ..methods import Method
from .aim import Aim
from .surrogate import Surrogate

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
