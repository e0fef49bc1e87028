"""Scene: what one job looks at, a photograph or a grid of them, known by the digests of its files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..data import Chosen, Selection


@dataclass(frozen=True)
class Scene:
    """One photograph, or `side` × `side` of them of which number `cell` is explained."""

    name: str
    photographs: tuple[Chosen, ...]
    side: int = 1
    cell: int = 0

    @property
    def kind(self) -> str:
        return "image" if self.side == 1 else "grid"

    @property
    def explained(self) -> Chosen:
        """The photograph whose class is explained."""
        return self.photographs[self.cell]


def scenes(selection: Selection) -> Iterator[Scene]:
    """The study's images, then its grids."""
    for chosen in selection.photographs[: selection.images]:
        yield Scene(chosen.file, (chosen,))
    for number, grid in enumerate(selection.grids):
        cells = tuple(selection.photographs[index] for index in grid.cells)
        yield Scene(f"grid {number}", cells, selection.settings.m, grid.cell)
