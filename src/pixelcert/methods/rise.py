"""RISE: random masks, weighted by what the model still sees through them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F

from ..explainer import Explanation
from ..models.split import as_maps
from .base import Method
from .masking import for_each_masked


@dataclass(frozen=True)
class RISE(Method):
    """Σ_m p(target | A · mask_m) · mask_m / (masks · probability).

    Masks are grids of `cells` × `cells` that are on with `probability`, upsampled bilinearly to one cell more than the
    layer's maps and shifted at random by up to one cell. They are a function of `mask_seed` alone, the same for every
    image, so the explainer is deterministic.
    """

    name = "rise"
    title = "RISE"
    family = "perturbation"
    layers = ("input", "final", "*")
    cost = "1 forward per mask and 1 more; 1 forward before a linear head"
    citation = "Petsiuk, Das, Saenko, 2018"

    masks: int = 6000
    cells: int = 6
    probability: float = 0.1
    mask_seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(self.masks >= 1, "masks", "use 1 or more")
        self.require(self.cells >= 1, "cells", "use 1 or more")
        self.require(0 < self.probability < 1, "probability", "use a number between 0 and 1")
        self.require(0 <= self.mask_seed < 2**63, "mask_seed", "use a whole number from 0")

    @property
    def forwards(self) -> int:
        return 1 if self.model.linear_head(self.layer) else self.masks

    @torch.no_grad()
    def explain(self, images: Tensor, targets: Tensor) -> Explanation:
        body, head = self.model.split(self.layer)
        features = body(images)
        height, width = as_maps(features, images).shape[2:]
        total = features.new_zeros(len(images), height * width)

        def masks(start: int, stop: int) -> Tensor:
            return self.masks_of(height, width, start, stop).to(features)

        def use(chunk: Tensor, logits: Tensor) -> None:
            chosen = targets[:, None, None].expand(-1, len(chunk), 1)
            total.addmm_(logits.softmax(dim=2).gather(2, chosen)[:, :, 0], chunk.flatten(1))

        for_each_masked(self.model, self.layer, features, self.masks, masks, use)
        linear = self.model.linear_head(self.layer)
        logits = linear.logits(features) if linear else head(features)
        return Explanation(total.view(-1, height, width) / (self.masks * self.probability), logits)

    def masks_of(self, height: int, width: int, start: int = 0, stop: int | None = None) -> Tensor:
        """Masks number `start` … `stop` - 1, made from their small grids: (m, height, width), on the model's device."""
        grids, shifts = (values[start:stop].to(self.model.device) for values in self._grids)
        rows, columns = (self._interpolation(side, shifts[:, axis]) for axis, side in enumerate((height, width)))
        return rows @ grids @ columns.transpose(1, 2)

    @cached_property
    def _grids(self) -> tuple[Tensor, Tensor]:
        """On and off cells (masks, cells, cells), and shifts as shares of a cell (masks, 2)."""
        generator = torch.Generator().manual_seed(self.mask_seed)
        grids = torch.rand(self.masks, self.cells, self.cells, generator=generator) < self.probability
        shifts = torch.rand(self.masks, 2, generator=generator)
        return grids.float(), shifts

    def _interpolation(self, side: int, shifts: Tensor) -> Tensor:
        """The weight of every cell at every position along one side, for each mask's shift: (m, side, cells)."""
        cell = -(-side // self.cells)
        upsampled = F.interpolate(torch.eye(self.cells)[None], size=(self.cells + 1) * cell, mode="linear")[0].T
        start = (shifts * cell).long()
        positions = start[:, None] + torch.arange(side, device=shifts.device)
        return upsampled.to(shifts)[positions]
