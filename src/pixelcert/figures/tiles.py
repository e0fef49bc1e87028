"""Tiles: small pictures in rows and columns with headings. Most figures of maps are such a mosaic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from ..votes import Votes
from .palette import ABSTAINED, SOFT, TARGET, ZERO, Colour, level_colours
from .sheet import Key, Sheet, frame, show_missing

_GAP, _GROUP_GAP, _LETTER = 0.05, 0.16, 0.068  # inches; a letter is one of a bold heading
_TITLE, _GROUP_TITLE = 0.17, 0.21  # heights of the headings of columns and of their groups


@dataclass(frozen=True)
class Heading:
    """The heading of a row or a column. Neighbours of one group stand close together, under the group's heading."""

    title: str
    group: str = ""
    colour: str = SOFT  # for the group's heading


@dataclass(frozen=True, eq=False)
class Tile:
    """One picture: (H, W, 3), or shades (H, W) from 0 (white) to 1 (black); None is drawn as missing."""

    picture: NDArray[Any] | None
    target: tuple[int, int] | None = None  # a grid's side and the number of its target cell, which is outlined
    why: str = "missing"
    cmap: str | Colormap = "gray_r"


Row = tuple[Heading, Sequence[Tile | None]]  # None where the mosaic stays empty


def mosaic(title: str, columns: Sequence[Heading], rows: Sequence[Row], caption: str, key: Key, size: float) -> Figure:
    """Draw rows of tiles, each `size` inches wide; places without a tile stay empty."""
    headings = [heading for heading, _ in rows]
    lefts, width = _places([column.group for column in columns], size, _LETTER)
    tops, height = _places([heading.group for heading in headings], size)
    group_width = _LETTER * max(len(heading.group) for heading in headings)
    margin = group_width + (0.1 if group_width else 0) + _LETTER * max(len(row.title) for row in headings) + 0.06
    top = _TITLE + (_GROUP_TITLE if any(column.group for column in columns) else 0)
    sheet = Sheet(title, margin + width, top + height, caption, key=key)
    for start, (heading, tiles) in zip(tops, rows, strict=True):
        middle = top + start + size / 2
        sheet.text(margin - 0.07, middle, heading.title, fontsize=7, ha="right", va="center", color=SOFT)
        for left, tile in zip(lefts, tiles, strict=True):
            if tile is not None:
                draw_tile(sheet.axes(margin + left, top + start, size, size), tile)
    for left, column in zip(lefts, columns, strict=True):
        sheet.text(margin + left + size / 2, top - 0.06, column.title, fontsize=7, ha="center", va="bottom")
    for heading, first, last in _groups(columns):
        sheet.text(margin + lefts[first], 0.08, heading.group, fontsize=7.5, weight="bold", color=heading.colour)
        sheet.line(margin + lefts[first], margin + lefts[last] + size, 0.115)
    for heading, first, last in _groups(headings):
        middle = top + (tops[first] + tops[last] + size) / 2
        sheet.text(0, middle, heading.group, fontsize=7.5, weight="bold", color=heading.colour, va="center")
    return sheet.figure


def draw_tile(axes: Axes, tile: Tile) -> None:
    """Draw a picture without ticks: pixel for pixel where it is enlarged, averaged where it is reduced."""
    if tile.picture is None:
        show_missing(axes, tile.why, fontsize=5.5)
        return
    axes.imshow(tile.picture, cmap=tile.cmap, vmin=0, vmax=1, interpolation="antialiased")
    frame(axes, 0.5)
    if tile.target is not None:
        side, cell = tile.target
        row, column = divmod(cell, side)
        tall, wide = tile.picture.shape[0] / side, tile.picture.shape[1] / side
        corner = (column * wide - 0.5, row * tall - 0.5)
        style: dict[str, Any] = {"edgecolor": TARGET, "linewidth": 1.4, "clip_on": False, "zorder": 5}
        axes.add_patch(Rectangle(corner, wide, tall, fill=False, **style))


def key_of_overlays(levels: Sequence[float]) -> dict[str, Colour]:
    """Name the colours of overlays."""
    return {f"certified in the top {level} %": colour for level, colour in level_colours(levels).items()}


def key_of_maps(levels: Sequence[float]) -> dict[str, Colour]:
    """Name the colours of certified maps."""
    return {**key_of_overlays(levels), "certified outside the top K %": ZERO, "abstains": ABSTAINED}


def photo_of(votes: Votes) -> NDArray[np.uint8]:
    """Return the photograph, or a pale picture if the votes were saved without one."""
    return np.full((*votes.size, 3), 245, np.uint8) if votes.photo is None else votes.photo


def _places(groups: Sequence[str], size: float, letter: float = 0.0) -> tuple[list[float], float]:
    """Return the start of each tile, with a wider gap between groups, and the end of the last one.

    A group takes at least the room of its name, at `letter` inches a letter.
    """
    places, end = list[float](), -_GROUP_GAP
    for group, members in groupby(groups):
        begun = end + _GROUP_GAP
        for number, _ in enumerate(members):
            places.append(end + _GAP if number else begun)
            end = places[-1] + size
        end = max(end, begun + letter * len(group))
    return places, end


def _groups(headings: Sequence[Heading]) -> list[tuple[Heading, int, int]]:
    """Return each named group's heading, first and last index."""
    members = [list(pairs) for _, pairs in groupby(enumerate(headings), key=lambda pair: pair[1].group)]
    return [(pairs[0][1], pairs[0][0], pairs[-1][0]) for pairs in members if pairs[0][1].group]
