"""RISE: random masks, weighted by the class's probability under each mask."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

from ..explainer import Explanation
from .base import Method, before_linear_head
from .gradient import copies_at_once, product, target_logits, widen

Masks = Callable[[int, int], Tensor]  # masks number start … stop - 1 of the layer's maps: (m, C or 1, h or 1, w or 1)


def masked_logits(
    method: Method, features: Tensor, size: Sequence[int], count: int, masks: Masks
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield masks, and logits (B, m, classes) of every image's features times every mask, chunk by chunk.

    `size` is the height and width of the features as maps. A batch holds as many pairs of mask and image as fill the
    device. A linear head is not run: its logits are one product of masks (m, 1, h, w) and evidence.
    """
    _, head = method.model.split(method.layer)
    linear, batch = method.linear_head, len(features)
    if linear:
        evidence = linear.evidence(features).flatten(2).transpose(1, 2)  # (B, h·w, classes)
        bias = 0 if linear.layer.bias is None else linear.layer.bias
        most = 2**24 if features.device.type == "cpu" else 2**27  # values at once
        step = max(1, most // max(batch * evidence.shape[2], evidence.shape[1]))
    else:
        step = copies_at_once(features)
    for start in range(0, count, step):
        chunk = masks(start, min(start + step, count))
        if linear:
            yield chunk, chunk.flatten(1).to(evidence) @ evidence + bias
        else:
            yield chunk, head(_apply(features, chunk.to(features.dtype), size)).view(batch, len(chunk), -1)


def _apply(features: Tensor, masks: Tensor, size: Sequence[int]) -> Tensor:
    """Return the features of every image under every mask (B·m, …). A transformer's class token is never masked."""
    if features.ndim == 3:
        patches = masks.expand(-1, -1, *size).flatten(2).transpose(1, 2)  # (m, h·w, C or 1)
        masks = F.pad(patches, (0, 0, features.shape[1] - patches.shape[1], 0), value=1)
    return (features[:, None] * masks).flatten(0, 1)


@dataclass(frozen=True)
class RISE(Method):
    """Σ_m p(target | A · mask_m) · mask_m / (masks · probability).

    Masks are grids of `cells` × `cells` that are on with `probability`, upsampled bilinearly to one cell more than the
    layer's maps and shifted at random by up to one cell. They depend only on `mask_seed` and are the same for every
    image, so the explainer is deterministic.
    """

    name = "rise"
    title = "RISE"
    short = "RISE"
    family = "perturbation"
    look = ("#4c2237", "o")
    cost = "1 forward per mask and 1 more; 1 forward before a linear head"
    citation = "Petsiuk, Das, Saenko, 2018"
    reach = None  # a mask's cell holds many pixels
    formula = before_linear_head(product)  # the map to first order

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
    def passes(self) -> int:
        return 1 if self.linear_head else self.masks

    def covers(self, side: int) -> tuple[int, int]:
        return -(-side // self.cells), 1

    @torch.no_grad()
    def explain(self, images: Tensor, targets: Tensor) -> Explanation:
        features, maps, logits = self.run_once(images)
        height, width = maps.shape[2:]
        total = widen(features.new_zeros(len(images), height * width))

        def masks(start: int, stop: int) -> Tensor:
            return self.masks_of(height, width, start, stop)[:, None]

        for chunk, some in masked_logits(self, features, (height, width), self.masks, masks):
            total.addmm_(target_logits(some.softmax(dim=2), targets).to(total), chunk.flatten(1).to(total))
        return Explanation(total.view(-1, height, width) / (self.masks * self.probability), logits)

    def masks_of(self, height: int, width: int, start: int = 0, stop: int | None = None) -> Tensor:
        """Make masks number `start` … `stop` - 1 from their small grids: (m, height, width), on the model's device."""
        drawn = _draw(self.masks, self.cells, self.probability, self.mask_seed, self.model.device)
        cells, shifts = (values[start:stop] for values in drawn)
        rows, columns = (self._interpolation(side, shifts[:, axis]) for axis, side in enumerate((height, width)))
        return rows @ cells @ columns.transpose(1, 2)

    def _interpolation(self, side: int, shifts: Tensor) -> Tensor:
        """Return the weight of every cell at every position along one side, for each mask's shift: (m, side, cells)."""
        cell = -(-side // self.cells)
        start = (shifts * cell).long()
        positions = start[:, None] + torch.arange(side, device=shifts.device)
        return _upsampling(self.cells, cell, shifts.device)[positions]


@lru_cache(8)
def _draw(masks: int, cells: int, probability: float, seed: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return on and off cells (masks, cells, cells), and shifts as shares of a cell (masks, 2)."""
    generator = torch.Generator().manual_seed(seed)
    on = torch.rand(masks, cells, cells, generator=generator) < probability
    return on.float().to(device), torch.rand(masks, 2, generator=generator).to(device)


@lru_cache(8)
def _upsampling(cells: int, size: int, device: torch.device) -> Tensor:
    """Return the weight of every cell at every position, along `cells` + 1 cells of `size` positions each."""
    upsampled = F.interpolate(torch.eye(cells)[None], size=(cells + 1) * size, mode="linear")
    return upsampled[0].T.to(device)
