"""Selection: the photographs and grids of a study, saved so that everyone works on the same ones."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import IntEnum
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..basics.files import read_sealed, sha256, write_sealed
from ..basics.messages import ArgumentError, ImageError
from ..image import load_image
from .folder import locate


class Purpose(IntEnum):
    """The use of a stream of random numbers."""

    ORDER = 0  # the order in which photographs are examined
    CELLS = 1  # the cell of each grid that is explained
    REUSE = 2  # the photographs that come again when there are too few for the grids


def stream(seed: int, purpose: Purpose) -> np.random.PCG64:
    """Return the random bits of one purpose, which no other purpose shares."""
    return np.random.PCG64([seed % 2**64, int(purpose)])


def shuffled(bits: np.random.PCG64, count: int) -> list[int]:
    """Return 0 to count - 1 in random order: sorted by random keys of 64 bits."""
    return [int(index) for index in np.argsort(bits.random_raw(count), kind="stable")]


def drawn(bits: np.random.PCG64, count: int, below: int) -> list[int]:
    """Return `count` random numbers from 0 to below - 1. Remainders of 64 bits are even enough."""
    return [int(number) % below for number in bits.random_raw(count)]


@dataclass(frozen=True)
class Grid:
    """A grid of photographs: their indices in the order of the cells, and the `cell` to be explained."""

    cells: tuple[int, ...]
    cell: int


def compose_grid(images: Sequence[Tensor], m: int) -> Tensor:
    """Lay m² images (C, h, w) side by side as one (C, m·h, m·w), from left to right, then from top to bottom.

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
    """Photographs in the cells of grids: each takes a cell of the first grid that lacks its class.

    Photographs come in random order, so the grids are random too. No later photograph moves an earlier one: with more
    grids, or more photographs, the first grids stay as they are. Each photograph is in at most one grid until there
    are no more; then `fill` uses them again.
    """

    def __init__(self, grids: int, m: int) -> None:
        self._size = m * m
        self._grids: list[dict[int, int]] = [{} for _ in range(grids)]  # photograph by class, in order of arrival
        self._targets: list[int] = []  # classes of all photographs so far

    @property
    def full(self) -> bool:
        """True once every grid is complete."""
        return all(len(grid) == self._size for grid in self._grids)

    @property
    def classes(self) -> int:
        """The number of distinct classes so far."""
        return len(set(self._targets))

    def add(self, target: int) -> None:
        """Give the next photograph, which is of class `target`, a cell if a grid lacks its class."""
        self._targets.append(target)
        for grid in self._grids:
            if target not in grid and len(grid) < self._size:
                grid[target] = len(self._targets) - 1
                return

    def fill(self, shuffles: np.random.PCG64) -> None:
        """Complete the grids with photographs used before: every round uses each once, in a new random order.

        There must be at least as many classes as a grid has cells.
        """
        deck: list[int] = []
        for grid in self._grids:
            while len(grid) < self._size:
                if all(self._targets[photograph] in grid for photograph in deck):
                    deck = shuffled(shuffles, len(self._targets))
                photograph = next(one for one in deck if self._targets[one] not in grid)
                deck.remove(photograph)
                grid[self._targets[photograph]] = photograph

    def cells(self) -> list[tuple[int, ...]]:
        """Return the numbers of every grid's photographs, in the order in which they came."""
        return [tuple(grid.values()) for grid in self._grids]


KIND = "pixelcert selection"
VERSION = 1
ABOUT = (
    "The photographs of a study. The first `images` of `photographs` are its images. Every grid has the photographs "
    "`cells` (counted from 0, laid from left to right, then from top to bottom) and the target of its cell `cell`. "
    "`digest` is the SHA-256 of a file."
)


@dataclass(frozen=True)
class Request:
    """The arguments of `choose` behind a selection; `filters` maps model names to the SHA-256 of their weights."""

    seed: int
    confidence: float
    images: int | None
    grids: int
    m: int
    filters: Mapping[str, str]


@dataclass(frozen=True)
class Chosen:
    """A photograph that passed.

    `target` is its label if it is `labelled`, else the class that all filters agree on, or None without filters.
    `confidences` are those of the filters in the target, by name.
    """

    file: str
    digest: str
    target: int | None
    labelled: bool
    confidences: Mapping[str, float]


@dataclass(frozen=True)
class Selection:
    """The photographs and grids chosen for a request.

    The first `images` of the `photographs` are the images; the others are only in grids. `examined` photographs were
    looked at, `passed` of them passed, and `unreadable` maps files that were left out to the reason.
    """

    request: Request
    photographs: tuple[Chosen, ...]
    images: int
    grids: tuple[Grid, ...]
    examined: int
    passed: int
    unreadable: Mapping[str, str]

    def __post_init__(self) -> None:
        count, size = len(self.photographs), self.request.m**2
        if not 0 <= self.images <= count:
            raise ArgumentError(f"images={self.images} with {count} photographs: it is how many of them are images.")
        for grid in self.grids:
            if len(grid.cells) != size or not 0 <= grid.cell < size or not set(grid.cells) <= set(range(count)):
                raise ArgumentError(
                    f"grids has {grid}: give m² = {size} indices of the {count} photographs, and one of the cells."
                )

    def save(self, path: str | Path) -> Path:
        """Write a JSON file that people can read; equal selections make equal files."""
        content = asdict(self)
        return write_sealed(path, KIND, VERSION, {"about": ABOUT, "settings": content.pop("request"), **content})

    @classmethod
    def load(cls, path: str | Path) -> Selection:
        """Return the selection that was saved at `path`."""
        content = read_sealed(path, KIND, VERSION, "choose again")
        del content["about"]
        content["photographs"] = tuple(Chosen(**chosen) for chosen in content["photographs"])
        content["grids"] = tuple(Grid(tuple(grid["cells"]), grid["cell"]) for grid in content["grids"])
        return cls(Request(**content.pop("settings")), **content)


def read_chosen(folder: str | Path, chosen: Chosen, size: int | None = 224) -> Tensor:
    """Read a chosen photograph as (3, size, size) in [0, 1]; refuse a file that has changed."""
    data = read_file(locate(folder), chosen.file)
    if (digest := sha256(data)) != chosen.digest:
        raise ArgumentError(
            f"{chosen.file} in folder={folder} has changed since it was chosen (SHA-256 {chosen.digest[:12]}… then, "
            f"{digest[:12]}… now): put the old file back, or choose again."
        )
    return decode(data, chosen.file, size)


def read_file(folder: Path, file: str) -> bytes:
    """Return the bytes of a photograph; a file that cannot be read is an ImageError."""
    try:
        return (folder / file).read_bytes()
    except OSError as error:
        raise ImageError(f"{file} cannot be read ({error.strerror}): check that the folder still has it.") from error


def decode(data: bytes, file: str, size: int | None) -> Tensor:
    """Turn the bytes of an image file into (3, size, size); `file` names it in messages."""
    content = io.BytesIO(data)
    content.name = file
    return load_image(content, size)
