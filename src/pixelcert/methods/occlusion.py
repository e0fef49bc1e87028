"""Occlusion: how far the logit falls when a window is covered."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import torch
from torch import Tensor

from ..explainer import Explanation
from ..models.split import as_maps
from .base import Method
from .gradient import target_logits
from .masking import for_each_masked


@dataclass(frozen=True)
class Occlusion(Method):
    """The fall of the target's logit, averaged over the windows that cover each position.

    A window is set to zero in the layer's own space. Its side and stride are 16 and 8 at the input, 5 and 2 at other
    layers, unless given.
    """

    name = "occlusion"
    title = "Occlusion"
    family = "perturbation"
    layers = ("input", "final", "*")
    cost = "1 forward per window (729 at 224 × 224) and 1 more; 1 forward before a linear head"
    citation = "Zeiler, Fergus, 2014"

    window: int = 0  # 0: 16 at the input, 5 elsewhere
    stride: int = 0  # 0: 8 at the input, 2 elsewhere

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(self.window >= 0, "window", "use 1 or more, or 0 for the layer's own")
        self.require(self.stride >= 0, "stride", "use 1 or more, or 0 for the layer's own")
        self.require(self._stride() <= self._window(), "stride", f"use at most the window's side, {self._window()}")

    @property
    def forwards(self) -> int:
        if self.model.linear_head(self.layer):
            return 1
        return len(self._corners(self.model.size)) ** 2 if self.layer == "input" else 16

    @torch.no_grad()
    def explain(self, images: Tensor, targets: Tensor) -> Explanation:
        body, head = self.model.split(self.layer)
        features = body(images)
        height, width = as_maps(features, images).shape[2:]
        rows, columns = (self._covers(side).to(features) for side in (height, width))
        total = features.new_zeros(len(images), height * width)
        linear = self.model.linear_head(self.layer)
        logits = linear.logits(features) if linear else head(features)
        unmasked = target_logits(logits, targets)

        def masks(start: int, stop: int) -> Tensor:
            index = torch.arange(start, stop, device=features.device)
            return 1 - rows[index // len(columns)][:, :, None] * columns[index % len(columns)][:, None, :]

        def use(chunk: Tensor, masked: Tensor) -> None:
            scores = masked.gather(2, targets[:, None, None].expand(-1, len(chunk), 1))[:, :, 0]
            total.addmm_(unmasked[:, None] - scores, 1 - chunk.flatten(1))

        for_each_masked(self.model, self.layer, features, len(rows) * len(columns), masks, use)
        covered = rows.sum(dim=0)[:, None] * columns.sum(dim=0)[None]
        return Explanation((total / covered.flatten()).view(-1, height, width), logits)

    def _corners(self, side: int) -> list[int]:
        window, stride = self._window(), self._stride()
        return [stride * i for i in range(max(0, ceil((side - window) / stride)) + 1)]

    def _covers(self, side: int) -> Tensor:
        """Which positions each window covers along one side: (windows, side). The last is cut at the edge."""
        positions = torch.arange(side)
        return torch.stack([(positions >= c) & (positions < c + self._window()) for c in self._corners(side)])

    def _window(self) -> int:
        return self.window or (16 if self.layer == "input" else 5)

    def _stride(self) -> int:
        return self.stride or (8 if self.layer == "input" else 2)
