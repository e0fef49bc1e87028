"""What the model answers when one window of a layer is hidden: the work of Occlusion.

A window changes little of what the first layers answer. Where what follows the layer begins with local parts, these run
on crops around the windows, and what lies outside is taken from the image with nothing hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..explainer import images_per_batch
from ..models import Classifier
from ..models.local_parts import LocalParts, Reach
from .masking import masked_logits

Spans = list[tuple[int, int]]  # of places along one side of a map: the first and the last of each

_SMALL = 0.5  # the share of a map up to which it is quicker to run a crop of it


def hidden_logits(
    model: Classifier, layer: str, features: Tensor, size: tuple[int, int], rows: Spans, columns: Spans
) -> Iterator[Tensor]:
    """Logits (B, m, classes) of the features with one window set to zero each, row by row of windows, in chunks.

    `size` is the height and width of the features as maps.
    """
    device, wide = features.device, torch.promote_types(features.dtype, torch.float32)
    down, across = covers(rows, size[0], device), covers(columns, size[1], device)

    def masks(start: int, stop: int) -> Tensor:
        row, column = _rows_and_columns(start, stop, len(columns), device)
        return 1 - (down[row][:, :, None] & across[column][:, None, :]).to(wide)

    count = len(rows) * len(columns)
    if not (stages := _stages(model.local_parts(layer), features, rows, columns)):
        yield from (logits for _, logits in masked_logits(model, layer, features, count, masks))
        return
    step = max(1, images_per_batch(device, features[0].numel()) // len(features))
    for start in range(0, count, step):
        stop = min(start + step, count)
        yield _run(stages, masks(start, stop), _rows_and_columns(start, stop, len(columns), device))


def _run(stages: list[_Stage], masks: Tensor, windows: tuple[Tensor, Tensor]) -> Tensor:
    """From stage to stage goes the change alone; around it nothing is hidden."""
    inputs = stages[0].inputs(windows)
    inputs *= stages[0].crop.within(masks[None, ..., None], windows).to(inputs.dtype)
    for stage, following in pairwise(stages):
        change = stage.outgoing.within(stage.answer(inputs), windows)
        inputs = following.inputs(windows)
        inputs[following.incoming.places(windows)] = change
    return stages[-1].answer(inputs)


def covers(spans: Spans, places: int, device: torch.device) -> Tensor:
    """Which places each of them holds: (spans, places)."""
    first, last = torch.tensor(spans, device=device).T[:, :, None]
    place = torch.arange(places, device=device)
    covered: Tensor = (place >= first) & (place <= last)
    return covered


def _rows_and_columns(start: int, stop: int, across: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Of windows number `start` … `stop` - 1, with so many of them side by side."""
    number = torch.arange(start, stop, device=device)
    return number // across, number % across


class _Squares(NamedTuple):
    """Squares of a map, one for each window: their size, and where they begin for each row and column of windows."""

    height: int
    width: int
    rows: Tensor
    columns: Tensor

    def places(self, windows: tuple[Tensor, Tensor]) -> tuple[Any, ...]:
        """Of the squares of some windows, in maps of their own: (B, m, h, w, …)."""
        row, column = windows
        down = self.rows[row][:, None] + torch.arange(self.height, device=row.device)
        across = self.columns[column][:, None] + torch.arange(self.width, device=row.device)
        each = torch.arange(len(row), device=row.device)
        return slice(None), each[:, None, None], down[:, :, None], across[:, None, :]

    def within(self, maps: Tensor, windows: tuple[Tensor, Tensor]) -> Tensor:
        """The squares of maps (B, m, h, w, …), one for each window."""
        squares: Tensor = maps[self.places(windows)]
        return squares

    def of(self, maps: Tensor, windows: tuple[Tensor, Tensor]) -> Tensor:
        """The squares of maps (B, h, w, …) that all windows share: (B, m, …)."""
        if (self.height, self.width) == maps.shape[1:3]:
            return maps[:, None].repeat_interleave(len(windows[0]), dim=1)
        _, _, down, across = self.places(windows)
        return maps[:, down, across]

    def seen_from(self, other: _Squares, stride: int = 1) -> _Squares:
        """The same, counted from where other squares begin, on a map `stride` times as fine."""
        return self._replace(rows=self.rows - other.rows // stride, columns=self.columns - other.columns // stride)


class _Stage(NamedTuple):
    """A part of the network, made for windows. Maps are (B, m, h, w, C) here: one for each image and window."""

    run: Callable[..., Tensor]
    unchanged: Tensor  # what it takes with nothing hidden: (B, h, w, C)
    crop: _Squares  # what it runs on
    incoming: _Squares  # where in the crop the change lies that the stage before made
    outgoing: _Squares  # where in its answer to the crop its own change lies

    def inputs(self, windows: tuple[Tensor, Tensor]) -> Tensor:
        """The crops with nothing hidden."""
        return self.crop.of(self.unchanged, windows)

    def answer(self, inputs: Tensor) -> Tensor:
        answer = self.run(inputs.flatten(0, 1).movedim(-1, 1))
        answer = answer.view(*inputs.shape[:2], *answer.shape[1:])
        return answer.movedim(2, -1) if answer.ndim == 5 else answer


def _stages(local: LocalParts, features: Tensor, rows: Spans, columns: Spans) -> list[_Stage]:
    """The local parts that are worth it, and last all that comes behind them."""
    stages: list[_Stage] = []
    change = _squares(rows, columns, features.device)
    for part in local.parts if features.ndim == 4 else ():
        height, width = features.shape[2:]
        answer = part.run(features.clone())  # it may work in place
        if (height, width) != tuple(part.reach.stride * side for side in answer.shape[2:]):
            break  # crops would not meet the same places
        (down, rows), (across, columns) = (
            _along(part.reach, places, spans) for places, spans in ((height, rows), (width, columns))
        )
        crop = _squares(down, across, features.device)
        if crop.height * crop.width > _SMALL * height * width:
            break
        changed = _squares(rows, columns, features.device)
        stages.append(
            _Stage(
                part.run,
                features.movedim(1, -1),
                crop,
                change.seen_from(crop),
                changed.seen_from(crop, part.reach.stride),
            )
        )
        features, change = answer, changed
    if stages:
        height, width = features.shape[2:]
        whole = _squares([(0, height - 1)] * len(rows), [(0, width - 1)] * len(columns), features.device)
        rest = LocalParts(local.parts[len(stages) :], local.rest)
        stages.append(_Stage(rest.run, features.movedim(1, -1), whole, change, whole))
    return stages


def _squares(rows: Spans, columns: Spans, device: torch.device) -> _Squares:
    """From spans of one length each."""
    begins = (torch.tensor([first for first, _ in spans], device=device) for spans in (rows, columns))
    return _Squares(rows[0][1] - rows[0][0] + 1, columns[0][1] - columns[0][0] + 1, *begins)


def _along(reach: Reach, places: int, changed: Spans) -> tuple[Spans, Spans]:
    """What a part must run on when places change, and what then changes in its answer: spans of one length each.

    A crop begins and ends at multiples of the stride. Where it ends inside the map, no place of the answer that is
    asked for depends on what lies beyond; where it ends with the map, both are padded alike.
    """
    answered = places // reach.stride
    spans = [(max(first, 0), min(last, answered - 1)) for first, last in (reach.changed(*span) for span in changed)]
    answers = _of_one_length(spans, answered)
    needed = [reach.needed(*span) for span in answers]
    strides = [(max(first, 0) // reach.stride, min(last, places - 1) // reach.stride) for first, last in needed]
    crops = _of_one_length(strides, answered)
    return [(first * reach.stride, (last + 1) * reach.stride - 1) for first, last in crops], answers


def _of_one_length(spans: Spans, places: int) -> Spans:
    """Spans that hold these, as long as the longest, among so many places."""
    length = max(1, *(last - first + 1 for first, last in spans))
    begins = [min(first, places - length) for first, _ in spans]
    return [(begin, begin + length - 1) for begin in begins]
