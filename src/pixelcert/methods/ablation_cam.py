"""Ablation-CAM: activation maps, weighted by the fall of the logit without them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ..explainer import Explanation
from ..models.inspection import any_image
from ..models.splitting import feature_maps
from .base import Method
from .gradient import target_logits
from .rise import masked_logits


@dataclass(frozen=True)
class AblationCAM(Method):
    """ReLU(Σ_c w_c A_c), with w_c = (y - y_c) / y: the target's logit y, and y_c with channel c set to zero.

    In a transformer the channel is set to zero in the patches, and the class token is kept. A negative logit
    changes the sign of all weights, as in the definition; a logit of exactly zero counts as one.
    """

    name = "ablation_cam"
    title = "Ablation-CAM"
    short = "Ablation-CAM"
    family = "activation"
    look = ("#e8780c", "X")
    layers = ("final", "input", "*")
    cost = "1 forward, 1 run of the head per channel; 1 forward before a linear head"
    citation = "Desai, Ramaswamy, 2020"

    relu: bool = True

    @property
    def passes(self) -> int:
        return 1 if self.linear_head else 1 + self._channels

    @cached_property
    @torch.no_grad()
    def _channels(self) -> int:
        """The number of maps at the layer, by a trial."""
        image = any_image(self.model)
        return feature_maps(self.model.split(self.layer).features(image), image).shape[1]

    @staticmethod
    def formula(features: Tensor, slopes: Tensor) -> Tensor:
        """Weight channels by the falls, to first order; this is exact before a linear head."""
        return ((slopes * features).sum(dim=(2, 3), keepdim=True) * features).sum(dim=1)

    @torch.no_grad()
    def explain(self, images: Tensor, targets: Tensor) -> Explanation:
        features, maps, logits = self.run_once(images)
        whole = target_logits(logits, targets)[:, None]
        if linear := self.linear_head:
            drops = linear.weight[targets] * maps.mean(dim=(2, 3), dtype=linear.weight.dtype)
        else:
            channels = maps.shape[1]
            keep = 1 - torch.eye(channels, device=features.device)[:, :, None, None]
            ablated = masked_logits(self, features, maps.shape[2:], channels, lambda start, stop: keep[start:stop])
            drops = whole - torch.cat([target_logits(some, targets) for _, some in ablated], dim=1)
        weights = drops / whole.where(whole != 0, 1)
        combined = (weights[:, :, None, None] * maps).sum(dim=1)
        return Explanation(combined.relu() if self.relu else combined, logits)
