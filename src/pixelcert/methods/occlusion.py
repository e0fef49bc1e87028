"""Occlusion: how far the logit falls when a window is covered."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import torch
from torch import Tensor

from ..explainer import Explanation
from ..models.split import as_maps
from .base import Method
from .gradient import target_logits, widen
from .masking import for_each_masked


@dataclass(frozen=True)
class Occlusion(Method):
    """The fall of the target's logit, averaged over the windows that cover each position.

    A window is set to zero in the layer's own space. Its side and stride are 16 and 8 at the input, 5 and 2 at other
    layers, unless given.
    """

    name = "occlusion"
    title = "Occlusion"
    short = "Occlusion"
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
        return self._windows(self.model.size) ** 2 if self.layer == "input" else 16

    @torch.no_grad()
    def explain(self, images: Tensor, targets: Tensor) -> Explanation:
        body, head = self.model.split(self.layer)
        features = body(images)
        height, width = as_maps(features, images).shape[2:]
        total = widen(features.new_zeros(len(images), height * width))
        rows, columns = (self._covers(side, total.device).to(total.dtype) for side in (height, width))
        linear = self.model.linear_head(self.layer)
        logits = linear.logits(features) if linear else head(features)
        unmasked = target_logits(logits, targets)

        def masks(start: int, stop: int) -> Tensor:
            index = torch.arange(start, stop, device=features.device)
            return 1 - rows[index // len(columns)][:, :, None] * columns[index % len(columns)][:, None, :]

        def use(chunk: Tensor, masked: Tensor) -> None:
            scores = masked.gather(2, targets[:, None, None].expand(-1, len(chunk), 1))[:, :, 0]
            total.addmm_((unmasked[:, None] - scores).to(total.dtype), 1 - chunk.flatten(1))

        for_each_masked(self.model, self.layer, features, len(rows) * len(columns), masks, use)
        covered = rows.sum(dim=0)[:, None] * columns.sum(dim=0)[None]
        return Explanation((total / covered.flatten()).view(-1, height, width), logits)

    def _windows(self, side: int) -> int:
        """How many windows lie along one side."""
        return max(0, ceil((side - self._window()) / self._stride())) + 1

    def _covers(self, side: int, device: torch.device) -> Tensor:
        """Which positions each window covers along one side: (windows, side). The last is cut at the edge."""
        corners = self._stride() * torch.arange(self._windows(side), device=device)[:, None]
        positions = torch.arange(side, device=device)
        return (positions >= corners) & (positions < corners + self._window())

    def _window(self) -> int:
        return self.window or (16 if self.layer == "input" else 5)

    def _stride(self) -> int:
        return self.stride or (8 if self.layer == "input" else 2)
