"""Gradients: which way to move an image so that pixels lose their labels under noise. Two estimators.

A pixel's share of votes is p(x) = E[v(x + ε)], v its vote. Of a weighted sum of shares, Σ w_i p_i,

- `Pathwise` differentiates a soft vote of a surrogate map, E[∇ v(x + ε)]: precise, where there is a surrogate;
- `Stein` needs votes alone, E[v(x + ε)·ε] / σ² by Stein's lemma: for any black box, and far noisier.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from ..explainer import Explainer, explain
from .aim import Aim
from .surrogate import Surrogate

_CELLS = 14  # a side: Stein's estimate has one number per cell and channel


class Gradient(Protocol):
    """Estimates where a weighted sum of shares falls fastest."""

    name: ClassVar[str]
    passes: ClassVar[int]  # what a step costs per noisy copy, in explanations

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

    The estimate's error grows with the number of values that are estimated, so it is averaged over cells of the image,
    about 14 to a side. What is lost is the part of the slope that changes within a cell.
    """

    name: ClassVar[str] = "stein"
    passes: ClassVar[int] = 1

    aim: Aim
    explainer: Explainer
    target: int

    def descent(self, moved: Tensor, images: Tensor, maps: Tensor, weights: Tensor) -> Tensor:
        noise = images - moved
        mirrored = explain(self.explainer, moved - noise, self.target).maps
        gains = self._scores(maps, weights) - self._scores(mirrored, weights)
        slope = torch.einsum("b,bchw->chw", gains, noise) / (2 * len(images) * self.aim.plan.sigma**2)
        return -_averaged_over_cells(slope)

    def _scores(self, maps: Tensor, weights: Tensor) -> Tensor:
        """The weighted votes for the labels in each map: (B,)."""
        return torch.stack([weights @ self.aim.keeping(one[None]).to(weights) for one in maps])


def gradient_for(aim: Aim, surrogate: Surrogate | None, explainer: Explainer, target: int) -> Gradient:
    """The better estimator that there is."""
    return Stein(aim, explainer, target) if surrogate is None else Pathwise(aim, surrogate)


def _averaged_over_cells(slope: Tensor) -> Tensor:
    height, width = slope.shape[1:]
    cell = max(1, min(height, width) // _CELLS)
    means = F.avg_pool2d(slope[None], cell, ceil_mode=True)
    return F.interpolate(means, scale_factor=cell)[0, :, :height, :width]
