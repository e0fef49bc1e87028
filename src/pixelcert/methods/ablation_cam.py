"""Ablation-CAM: activation maps weighted by how far the logit falls without them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..explainer import Explanation, images_per_batch
from ..models.split import as_maps
from .base import Method
from .gradient import target_logits


@dataclass(frozen=True)
class AblationCAM(Method):
    """ReLU(Σ_c w_c A_c), with w_c = (y - y_c) / y: the target's logit y, and y_c with channel c set to zero."""

    name = "ablation_cam"
    title = "Ablation-CAM"
    family = "activation"
    layers = ("final", "input", "*")
    cost = "1 forward, 1 run of the head per channel; 1 forward before a linear head"
    citation = "Desai, Ramaswamy, 2020"

    relu: bool = True

    @torch.no_grad()
    def explain(self, images: Tensor, targets: Tensor) -> Explanation:
        body, head = self.model.split(self.layer)
        features = body(images)
        maps = as_maps(features)
        if linear := self.model.linear_head(self.layer):
            logits = linear.logits(features)
            drops = linear.weight[targets] * maps.mean(dim=(2, 3))
        else:
            logits = head(features)
            drops = target_logits(logits, targets)[:, None] - self._ablated(features, targets)
        weights = drops / target_logits(logits, targets)[:, None]
        combined = (weights[:, :, None, None] * maps).sum(dim=1)
        return Explanation(combined.relu() if self.relu else combined, logits)

    def _ablated(self, features: Tensor, targets: Tensor) -> Tensor:
        """The targets' logits without each channel: (B, C)."""
        _, head = self.model.split(self.layer)
        batch, channels = len(features), features.shape[1 if features.ndim == 4 else 2]
        step = max(1, images_per_batch(features.device, features[0].numel()) // batch)
        keep = 1 - torch.eye(channels, device=features.device, dtype=features.dtype)
        scores = []
        for start in range(0, channels, step):
            rows = keep[start : start + step]
            rows = rows[None, :, :, None, None] if features.ndim == 4 else rows[None, :, None, :]
            logits = head((features[:, None] * rows).flatten(0, 1))
            scores.append(target_logits(logits, targets.repeat_interleave(rows.shape[1])).view(batch, -1))
        return torch.cat(scores, dim=1)
