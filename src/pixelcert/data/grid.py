"""Grids: m × m photographs of distinct classes in one image, on which a good explanation finds the right cell.

Cells are numbered from left to right, then from top to bottom.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..errors import ArgumentError
from .streams import shuffled


@dataclass(frozen=True)
class Grid:
    """Which photographs make a grid (`cells`: indices, in the order of the cells), and the `cell` to be explained."""

    cells: tuple[int, ...]
    cell: int


def compose_grid(images: Sequence[Tensor], m: int) -> Tensor:
    """One image (C, m·h, m·w) of m² images (C, h, w), from left to right, then from top to bottom.

    >>> compose_grid([torch.full((1, 1, 2), float(value)) for value in range(4)], m=2)
    tensor([[[0., 0., 1., 1.],
             [2., 2., 3., 3.]]])
    """
    if m < 1 or len(images) != m * m:
        raise ArgumentError(f"m={m} with {len(images)} images: give m² images, such as four for m=2.")
    shapes = sorted({tuple(image.shape) for image in images})
    if len(shapes) > 1 or len(shapes[0]) != 3:
        raise ArgumentError(f"images have the shapes {shapes}: give all of them as (C, h, w), cut to one size.")
    rows = [torch.cat(list(images[start : start + m]), dim=2) for start in range(0, m * m, m)]
    return torch.cat(rows, dim=1)


class Seats:
    """Photographs on their way into grids: each takes a cell of the first grid that lacks its class.

    Photographs come in random order, so that the grids are random too, and nothing that comes later moves them: with
    more grids, or more photographs, the first grids stay as they are. Each photograph is in one grid at most, as long
    as there are enough; `fill` uses them again when there are no more.
    """

    def __init__(self, grids: int, m: int) -> None:
        self._size = m * m
        self._grids: list[dict[int, int]] = [{} for _ in range(grids)]  # photograph by class, in order of arrival
        self._open = list(self._grids)
        self._targets: dict[int, int] = {}  # class by photograph

    @property
    def full(self) -> bool:
        return not self._open

    @property
    def classes(self) -> int:
        """How many distinct classes have come."""
        return len(set(self._targets.values()))

    def add(self, photograph: int, target: int) -> None:
        """Seat a photograph, given by its number, of class `target`."""
        self._targets[photograph] = target
        grid = next((grid for grid in self._open if target not in grid), None)
        if grid is not None:
            grid[target] = photograph
            if len(grid) == self._size:
                self._open = [other for other in self._open if other is not grid]

    def fill(self, shuffles: np.random.PCG64) -> None:
        """Complete the grids with photographs used before: every round deals each once, in a new random order.

        There have to be as many classes as a grid has cells.
        """
        deck: list[int] = []
        everyone = list(self._targets)
        for grid in self._open:
            while len(grid) < self._size:
                if all(self._targets[photograph] in grid for photograph in deck):
                    deck = [everyone[index] for index in shuffled(shuffles, len(everyone))]
                photograph = next(one for one in deck if self._targets[one] not in grid)
                deck.remove(photograph)
                grid[self._targets[photograph]] = photograph
        self._open = []

    def cells(self) -> list[tuple[int, ...]]:
        """The photographs of every grid, by their numbers, in the order in which they came."""
        return [tuple(grid.values()) for grid in self._grids]
