"""Ablation-CAM: activation maps, weighted by the fall of the logit without them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ..basics.machine import images_per_batch
from ..explainer import Explanation
from ..models.inspection import any_image
from ..models.splitting import feature_maps
from .base import Method
from .gradient import target_logits


@dataclass(frozen=True)
class AblationCAM(Method):
    """ReLU(Σ_c w_c A_c), with w_c = (y - y_c) / y: the target's logit y, and y_c with channel c set to zero.

    In a transformer the channel is set to zero in the patches, and the class token is left alone. A negative logit
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
        """Weight channels by the falls to first order; exact before a linear head."""
        return ((slopes * features).sum(dim=(2, 3), keepdim=True) * features).sum(dim=1)

    @torch.no_grad()
    def explain(self, images: Tensor, targets: Tensor) -> Explanation:
        body, head = self.model.split(self.layer)
        features = body(images)
        maps = feature_maps(features, images)
        if linear := self.linear_head:
            logits = linear.logits(features)
            drops = linear.weight[targets] * maps.mean(dim=(2, 3), dtype=linear.weight.dtype)
        else:
            logits = head(features)
            drops = target_logits(logits, targets)[:, None] - self._ablated(features, maps, targets)
        whole = target_logits(logits, targets)[:, None]
        weights = drops / whole.where(whole != 0, 1)
        combined = (weights[:, :, None, None] * maps).sum(dim=1)
        return Explanation(combined.relu() if self.relu else combined, logits)

    def _ablated(self, features: Tensor, maps: Tensor, targets: Tensor) -> Tensor:
        """Return the targets' logits without each channel of the maps: (B, C)."""
        _, head = self.model.split(self.layer)
        batch, channels = maps.shape[:2]
        step = max(1, images_per_batch(features.device, features[0].numel()) // batch)
        prefix = features.shape[1] - maps[0, 0].numel() if features.ndim == 3 else 0  # tokens before the patches
        scores = []
        for chosen in torch.arange(channels, device=features.device).split(step):  # type: ignore[no-untyped-call]
            keep = torch.ones(len(chosen), channels, device=features.device, dtype=features.dtype)
            keep.scatter_(1, chosen[:, None], 0)
            if features.ndim == 4:
                ablated = features[:, None] * keep[None, :, :, None, None]
            else:
                patches = features[:, None, prefix:] * keep[None, :, None]
                tokens = features[:, None, :prefix].expand(-1, len(chosen), -1, -1)
                ablated = torch.cat([tokens, patches], dim=2)
            logits = head(ablated.flatten(0, 1))
            scores.append(target_logits(logits, targets.repeat_interleave(len(chosen))).view(batch, -1))
        return torch.cat(scores, dim=1)
