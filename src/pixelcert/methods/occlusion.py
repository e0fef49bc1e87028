"""Occlusion: how far the logit falls when a window is covered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..basics.machine import images_per_batch
from ..explainer import Explanation
from ..models import Classifier
from ..models.cropping import LocalParts, Reach
from ..models.splitting import feature_maps
from .base import Method
from .gradient import target_logits, widen
from .rise import masked_logits


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
    compilable = False

    window: int = 0  # 0: 16 at the input, 5 elsewhere
    stride: int = 0  # 0: 8 at the input, 2 elsewhere

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(self.window >= 0, "window", "use 1 or more, or 0 for the layer's own")
        self.require(self.stride >= 0, "stride", "use 1 or more, or 0 for the layer's own")
        self.require(self._stride() <= self._window(), "stride", f"use at most the window's side, {self._window()}")

    @property
    def passes(self) -> int:
        if self.model.linear_head(self.layer):
            return 1
        return self._windows(self.model.size) ** 2 if self.layer == "input" else 16

    @torch.no_grad()
    def explain(self, images: Tensor, targets: Tensor) -> Explanation:
        body, head = self.model.split(self.layer)
        features = body(images)
        height, width = feature_maps(features, images).shape[2:]
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


Spans = list[tuple[int, int]]  # of places along one side of a map: the first and the last of each

_SMALL = 0.5  # the share of a map up to which it is quicker to run a crop of it


def hidden_logits(
    model: Classifier, layer: str, features: Tensor, size: tuple[int, int], rows: Spans, columns: Spans
) -> Iterator[Tensor]:
    """Logits (B, m, classes) of the features with one window set to zero each, row by row of windows, in chunks.

    `size` is the height and width of the features as maps.
    """
    device, wide = features.device, torch.promote_types(features.dtype, torch.float32)
    down, across = _for_each_window(covers(rows, size[0], device), covers(columns, size[1], device))

    def masks(start: int, stop: int) -> Tensor:
        return 1 - (down[start:stop, :, None] & across[start:stop, None, :]).to(wide)

    stages = [] if model.linear_head(layer) else _stages(model.local_parts(layer), features, rows, columns)
    if not stages:
        yield from (logits for _, logits in masked_logits(model, layer, features, len(down), masks))
        return
    step = max(1, images_per_batch(device, features[0].numel()) // len(features))
    for start in range(0, len(down), step):
        windows = slice(start, start + step)
        yield _run(stages, down[windows], across[windows], windows)


def _run(stages: list[_Stage], down: Tensor, across: Tensor, windows: slice) -> Tensor:
    """From stage to stage goes the change alone; around it nothing is hidden."""
    crop = stages[0].crop
    hidden = down.gather(1, crop.down[windows])[:, :, None] & across.gather(1, crop.across[windows])[:, None, :]
    inputs = stages[0].inputs(windows).masked_fill_(hidden[..., None], 0)
    for stage, following in pairwise(stages):
        change = stage.answer(inputs)[stage.outgoing.places(windows)]
        inputs = following.inputs(windows)
        inputs[following.incoming.places(windows)] = change
    return stages[-1].answer(inputs)


def covers(spans: Spans, places: int, device: torch.device) -> Tensor:
    """Which places each of them holds: (spans, places)."""
    first, last = torch.tensor(spans, device=device).T[:, :, None]
    place = torch.arange(places, device=device)
    covered: Tensor = (place >= first) & (place <= last)
    return covered


def _for_each_window(rows: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
    """What holds of each row and of each column of windows, for each window, row by row."""
    return rows.repeat_interleave(len(columns), dim=0), columns.repeat(len(rows), 1)


class _Squares(NamedTuple):
    """Squares of a map, all of one size, one for each window: the places they hold."""

    down: Tensor  # (windows, height)
    across: Tensor  # (windows, width)

    @classmethod
    def of(cls, rows: Spans, columns: Spans, device: torch.device) -> _Squares:
        """From the spans of each row and of each column of windows, of one length each."""
        rows_of, columns_of = (
            torch.tensor([range(first, last + 1) for first, last in spans], device=device) for spans in (rows, columns)
        )
        return cls(*_for_each_window(rows_of, columns_of))

    def places(self, windows: slice) -> tuple[Any, ...]:
        """The index of some windows' squares in maps (B, m, h, w, C), one map for each window."""
        down, across = self.down[windows], self.across[windows]
        each = torch.arange(len(down), device=down.device)
        return slice(None), each[:, None, None], down[:, :, None], across[:, None, :]

    def seen_from(self, other: _Squares, stride: int = 1) -> _Squares:
        """The same, counted from where other squares begin, on a map `stride` times as fine."""
        return _Squares(self.down - other.down[:, :1] // stride, self.across - other.across[:, :1] // stride)


class _Stage(NamedTuple):
    """A part of the network, made for windows. Maps are (B, m, h, w, C) here: one for each image and window."""

    run: Callable[..., Tensor]
    layout: torch.memory_format  # that it takes
    unchanged: Tensor  # what it takes with nothing hidden: (B, h, w, C)
    crop: _Squares  # what it runs on
    incoming: _Squares  # where in the crop the change lies that the stage before made
    outgoing: _Squares  # where in its answer to the crop its own change lies

    def inputs(self, windows: slice) -> Tensor:
        """The crops with nothing hidden."""
        down, across = self.crop.down[windows], self.crop.across[windows]
        if (down.shape[1], across.shape[1]) == self.unchanged.shape[1:3]:
            return self.unchanged[:, None].repeat_interleave(len(down), dim=1)
        return self.unchanged[:, down[:, :, None], across[:, None, :]]

    def answer(self, inputs: Tensor) -> Tensor:
        """Maps, or logits (B, m, classes)."""
        answer = self.run(inputs.flatten(0, 1).movedim(-1, 1).contiguous(memory_format=self.layout))
        return answer.unflatten(0, inputs.shape[:2]).movedim(2, -1)  # type: ignore[no-untyped-call, no-any-return]


def _stages(local: LocalParts, features: Tensor, rows: Spans, columns: Spans) -> list[_Stage]:
    """The local parts that are worth it, and last all that comes behind them; nothing where none is."""
    stages: list[_Stage] = []
    device, change = features.device, None
    layout = torch.contiguous_format if features.is_contiguous() else torch.channels_last
    for part in local.parts if features.ndim == 4 else ():
        height, width = features.shape[2:]
        answer = part.run(features.clone())  # it may work in place
        if (height, width) != tuple(part.reach.stride * side for side in answer.shape[2:]):
            break  # crops would not meet the same places
        (down, rows), (across, columns) = _along(part.reach, height, rows), _along(part.reach, width, columns)
        crop, changed = _Squares.of(down, across, device), _Squares.of(rows, columns, device)
        if crop.down.shape[1] * crop.across.shape[1] > _SMALL * height * width:
            break
        incoming = (change or crop).seen_from(crop)
        outgoing = changed.seen_from(crop, part.reach.stride)
        stages.append(_Stage(part.run, layout, features.movedim(1, -1), crop, incoming, outgoing))
        features, change = answer, changed
    if change:
        height, width = features.shape[2:]
        whole = _Squares.of([(0, height - 1)] * len(rows), [(0, width - 1)] * len(columns), device)
        rest = LocalParts(local.parts[len(stages) :], local.rest)
        stages.append(_Stage(rest.run, layout, features.movedim(1, -1), whole, change, whole))
    return stages


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
