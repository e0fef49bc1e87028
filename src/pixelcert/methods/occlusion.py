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
from .hiding import covers, hidden_logits


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
    cost = "1 forward per window (729 at 224 × 224), the first layers on crops, and 1 more; 1 before a linear head"
    citation = "Zeiler, Fergus, 2014"
    runs_crops = True

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
        linear = self.model.linear_head(self.layer)
        logits = linear.logits(features) if linear else head(features)
        rows, columns = self._spans(height), self._spans(width)
        hidden = hidden_logits(self.model, self.layer, features, (height, width), rows, columns)
        scores = torch.cat([target_logits(some, targets) for some in hidden], dim=1)
        falls = widen(target_logits(logits, targets)[:, None] - scores).view(-1, len(rows), len(columns))
        down, across = covers(rows, height, falls.device).to(falls), covers(columns, width, falls.device).to(falls)
        covered = down.sum(dim=0)[:, None] * across.sum(dim=0)[None]
        return Explanation(down.T @ falls @ across / covered, logits)

    def _windows(self, side: int) -> int:
        """How many windows lie along one side."""
        return max(0, ceil((side - self._window()) / self._stride())) + 1

    def _spans(self, side: int) -> list[tuple[int, int]]:
        """The first and the last place of each window along one side. The last window is cut at the edge."""
        begins = range(0, self._windows(side) * self._stride(), self._stride())
        return [(begin, min(begin + self._window(), side) - 1) for begin in begins]

    def _window(self) -> int:
        return self.window or (16 if self.layer == "input" else 5)

    def _stride(self) -> int:
        return self.stride or (8 if self.layer == "input" else 2)
