"""Selection: the photographs and grids of a study, written down so that everyone works on the same ones."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..basics.files import sha256, write_atomically
from ..basics.messages import ArgumentError, ImageError
from ..image import load_image
from .folder import locate


class Purpose(IntEnum):
    ORDER = 0  # in which photographs are examined
    CELLS = 1  # which cell of a grid is explained
    REUSE = 2  # which photographs come again when there are too few for the grids


def stream(seed: int, purpose: Purpose) -> np.random.PCG64:
    return np.random.PCG64([seed % 2**64, int(purpose)])


def shuffled(bits: np.random.PCG64, count: int) -> list[int]:
    """0 to count - 1 in random order: sorted by random keys of 64 bits."""
    return [int(index) for index in np.argsort(bits.random_raw(count), kind="stable")]


def drawn(bits: np.random.PCG64, count: int, below: int) -> list[int]:
    """`count` random numbers from 0 to below - 1; of 64 bits, so that the remainder favours none noticeably."""
    return [int(number) % below for number in bits.random_raw(count)]


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


KIND = "pixelcert selection"
VERSION = 1
ABOUT = (
    "The photographs of a study. The first `images` of `photographs` are its images. Every grid has the photographs "
    "`cells` (counted from 0, laid from left to right, then from top to bottom) and the target of its cell `cell`. "
    "`digest` is the SHA-256 of a file."
)


@dataclass(frozen=True)
class Request:
    """What was asked for; `filters` maps the names of the models that had to agree to the SHA-256 of their weights."""

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
    `confidences` are the filters' in the target, by name.
    """

    file: str
    digest: str
    target: int | None
    labelled: bool
    confidences: Mapping[str, float]


@dataclass(frozen=True)
class Selection:
    """What was chosen, of which `examined` photographs, of which so many `passed`; and the files left out, with why.

    `photographs` are the images, the first `images` of them, and then those that are in grids alone.
    """

    settings: Request
    photographs: tuple[Chosen, ...]
    images: int
    grids: tuple[Grid, ...]
    examined: int
    passed: int
    unreadable: Mapping[str, str]

    def __post_init__(self) -> None:
        count, size = len(self.photographs), self.settings.m**2
        if not 0 <= self.images <= count:
            raise ArgumentError(f"images={self.images} with {count} photographs: it is how many of them are images.")
        for grid in self.grids:
            if len(grid.cells) != size or not 0 <= grid.cell < size or not set(grid.cells) <= set(range(count)):
                raise ArgumentError(
                    f"grids has {grid}: give m² = {size} indices of the {count} photographs, and one of the cells."
                )

    def save(self, path: str | Path) -> Path:
        """Write a JSON file that people can read; equal selections make equal files."""
        return write_atomically(path, _to_text(_sealed(asdict(self))).encode())

    @classmethod
    def load(cls, path: str | Path) -> Selection:
        """The selection that was saved at `path`."""
        content = _read_content(Path(path))
        content["settings"] = Request(**content["settings"])
        content["photographs"] = tuple(Chosen(**chosen) for chosen in content["photographs"])
        content["grids"] = tuple(Grid(tuple(grid["cells"]), grid["cell"]) for grid in content["grids"])
        return cls(**content)


def read_chosen(folder: str | Path, chosen: Chosen, size: int | None = 224) -> Tensor:
    """A chosen photograph as (3, size, size) in [0, 1], provided that its file is still the same."""
    data = read_file(locate(folder), chosen.file)
    if (digest := sha256(data)) != chosen.digest:
        raise ArgumentError(
            f"{chosen.file} in folder={folder} has changed since it was chosen (SHA-256 {digest[:12]}…, then "
            f"{chosen.digest[:12]}…): put the old file back, or choose again."
        )
    return decode(data, chosen.file, size)


def read_file(folder: Path, file: str) -> bytes:
    try:
        return (folder / file).read_bytes()
    except OSError as error:
        raise ImageError(f"{file} cannot be read ({error.strerror}): check that the folder still has it.") from error


def decode(data: bytes, file: str, size: int | None) -> Tensor:
    """The bytes of an image file as (3, size, size); `file` names it in messages."""
    content = io.BytesIO(data)
    content.name = file
    return load_image(content, size)


def _sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """`content` under its kind and version, and with a checksum at the end."""
    headed = {"kind": KIND, "version": VERSION, "about": ABOUT, **content}
    return {**headed, "checksum": sha256(_to_text(headed).encode())}


def _read_content(path: Path) -> dict[str, Any]:
    """What was saved, exactly: only then does the checksum agree."""
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise ArgumentError(f"{path} cannot be read ({error.strerror}): check the path.") from error
    except ValueError as error:
        raise ArgumentError(f"{path} is damaged, cut short, or no JSON file ({error}): choose again.") from error
    if not isinstance(content, dict) or content.get("kind") != KIND:
        raise ArgumentError(f"{path} is not a {KIND}: give a file that Selection.save wrote.")
    version = content.get("version")
    if not isinstance(version, int) or version > VERSION:
        raise ArgumentError(
            f"{path} has layout version {version!r} and this pixelcert reads up to {VERSION}: upgrade pixelcert."
        )
    checksum = content.pop("checksum", None)
    if checksum != sha256(_to_text(content).encode()):
        raise ArgumentError(f"{path} was changed or damaged: its contents do not match their checksum. Choose again.")
    return {name: value for name, value in content.items() if name not in ("kind", "version", "about")}


def _to_text(content: Mapping[str, Any]) -> str:
    return json.dumps(content, indent=1)
