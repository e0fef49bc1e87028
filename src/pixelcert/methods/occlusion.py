"""Occlusion: the fall of the logit when a window is covered, with the first layers run on crops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..explainer import Explanation
from ..models.cropping import LocalParts, Reach, local_parts
from .base import Method, before_linear_head
from .gradient import copies_at_once, product, target_logits, widen
from .rise import masked_logits


@dataclass(frozen=True)
class Occlusion(Method):
    """The fall of the target's logit, averaged over the windows that cover each position.

    A window is set to zero in the layer's own space. By default its side and stride are 16 and 8 at the input, 5 and 2
    at other layers.
    """

    name = "occlusion"
    title = "Occlusion"
    short = "Occlusion"
    family = "perturbation"
    look = ("#b55183", "s")
    cost = "1 forward per window (729 at 224 × 224), the first layers on crops, and 1 more; 1 before a linear head"
    citation = "Zeiler, Fergus, 2014"
    meanings = MappingProxyType(
        {"window": "16 at the input, 5 at other layers", "stride": "8 at the input, 2 at other layers"}
    )
    untried = ()
    compilable = False
    reach = None  # a window holds many pixels
    formula = before_linear_head(product)  # the fall to first order

    window: int = 0  # 0: the layer's own, as in `meanings`
    stride: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(self.window >= 0, "window", "use 1 or more, or 0 for the layer's own")
        self.require(self.stride >= 0, "stride", "use 1 or more, or 0 for the layer's own")
        self.require(self._stride() <= self._window(), "stride", f"use at most the window's side, {self._window()}")

    @property
    def passes(self) -> int:
        if self.linear_head:
            return 1
        return len(self._spans(self.model.size)) ** 2 if self.layer == "input" else 16

    def covers(self, side: int) -> tuple[int, int]:
        return min(side, self._window()), self._stride()

    def find_shortcuts(self) -> None:
        super().find_shortcuts()
        if not self.linear_head:
            local_parts(self.model, self.layer)

    @property
    def surgery(self) -> dict[str, str]:
        return {**super().surgery, **self._uncropped}

    @cached_property
    def _uncropped(self) -> dict[str, str]:
        """The size of the maps last explained, and why no crop was run there, as a step of surgery."""
        return {}

    @torch.no_grad()
    def explain(self, images: Tensor, targets: Tensor) -> Explanation:
        features, maps, logits = self.run_once(images)
        height, width = maps.shape[2:]
        rows, columns = self._spans(height), self._spans(width)
        down, across = _held(rows, height, maps.device), _held(columns, width, maps.device)
        local = None if self.linear_head else local_parts(self.model, self.layer)
        stages, why = _stages(local, features, rows, columns) if local and local.parts else ([], "")
        self._uncropped.clear()
        if why:
            self._uncropped[f"crops at {height} × {width}"] = f"no ({why})"
        hidden = hidden_logits(self, features, down, across, stages)
        scores = torch.cat([target_logits(some, targets) for some in hidden], dim=1)
        falls = widen(target_logits(logits, targets)[:, None] - scores).view(-1, len(rows), len(columns))
        down, across = down.to(falls), across.to(falls)
        covered = down.sum(dim=0)[:, None] * across.sum(dim=0)
        return Explanation(down.T @ falls @ across / covered, logits)

    def _spans(self, side: int) -> Spans:
        """Return the first and the last place of each window along one side. The last window is cut at the edge."""
        begins = range(0, max(1, side - self._window() + self._stride()), self._stride())
        return [(begin, min(begin + self._window(), side) - 1) for begin in begins]

    def _window(self) -> int:
        return self.window or (16 if self.layer == "input" else 5)

    def _stride(self) -> int:
        return self.stride or (8 if self.layer == "input" else 2)


Spans = list[tuple[int, int]]  # of places along one side of a map: the first and the last of each

_SMALL = 0.5  # the share of a map up to which a crop is quicker to run


def hidden_logits(
    method: Method, features: Tensor, down: Tensor, across: Tensor, stages: list[_Stage]
) -> Iterator[Tensor]:
    """Yield logits (B, m, classes) of the features with one window set to zero each, row by row of windows, in chunks.

    `down` and `across` are True for the places that each row and each column of windows holds. Without stages the head
    runs on whole features.
    """
    size = down.shape[1], across.shape[1]
    down, across = _for_each_window(down, across)

    def masks(start: int, stop: int) -> Tensor:
        return ~(down[start:stop, None, :, None] & across[start:stop, None, None, :])

    if not stages:
        yield from (logits for _, logits in masked_logits(method, features, size, len(down), masks))
        return
    step = copies_at_once(features)
    for windows in (slice(start, start + step) for start in range(0, len(down), step)):
        yield _run(stages, down[windows], across[windows], windows)


def _run(stages: list[_Stage], down: Tensor, across: Tensor, windows: slice) -> Tensor:
    """Run the stages one after the other; each passes only the changed places on to the next."""
    crop = stages[0].crop
    hidden = down.gather(1, crop.down[windows])[:, :, None] & across.gather(1, crop.across[windows])[:, None, :]
    inputs = stages[0].inputs(windows).masked_fill_(hidden[..., None], 0)
    for stage, following in pairwise(stages):
        change = stage.answer(inputs)[stage.outgoing.places(windows)]
        inputs = following.inputs(windows)
        inputs[following.incoming.places(windows)] = change
    return stages[-1].answer(inputs)


def _held(spans: Spans, places: int, device: torch.device) -> Tensor:
    """Return True for the places that each span holds: (spans, places)."""
    ends, place = torch.tensor(spans, device=device)[:, :, None], torch.arange(places, device=device)
    return (ends[:, 0] <= place) & (place <= ends[:, 1])


def _for_each_window(rows: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
    """Repeat the values of each row and of each column of windows for each window, row by row."""
    return rows.repeat_interleave(len(columns), dim=0), columns.repeat(len(rows), 1)


class _Squares(NamedTuple):
    """Squares of a map, one for each window and all of one size, as the places that they hold."""

    down: Tensor  # (windows, height)
    across: Tensor  # (windows, width)

    @classmethod
    def of(cls, rows: Spans, columns: Spans, device: torch.device) -> _Squares:
        """Make squares from the spans of each row and of each column of windows; each set has one length."""
        places = ([range(first, last + 1) for first, last in spans] for spans in (rows, columns))
        return cls(*_for_each_window(*(torch.tensor(each, device=device) for each in places)))

    def places(self, windows: slice) -> tuple[Any, ...]:
        """Return the index of some windows' squares in maps (B, m, h, w, C), one map for each window."""
        down, across = self.down[windows], self.across[windows]
        each = torch.arange(len(down), device=down.device)
        return slice(None), each[:, None, None], down[:, :, None], across[:, None, :]

    def seen_from(self, other: _Squares, stride: int = 1) -> _Squares:
        """Return the same squares, counted from where other squares begin, on a map `stride` times as fine."""
        return _Squares(self.down - other.down[:, :1] // stride, self.across - other.across[:, :1] // stride)


class _Stage(NamedTuple):
    """A part of the network, run for windows. Its maps are (B, m, h, w, C), one for each image and window."""

    run: Callable[..., Tensor]
    layout: torch.memory_format  # of its input
    unchanged: Tensor  # its input with nothing hidden: (B, h, w, C)
    crop: _Squares  # the part of its input that it runs on
    incoming: _Squares  # the change made by the stage before, in the crop
    outgoing: _Squares  # its own change, in its answer to the crop

    def inputs(self, windows: slice) -> Tensor:
        """Return the crops with nothing hidden."""
        down, across = self.crop.down[windows], self.crop.across[windows]
        if (down.shape[1], across.shape[1]) == self.unchanged.shape[1:3]:
            return self.unchanged[:, None].repeat_interleave(len(down), dim=1)
        return self.unchanged[:, down[:, :, None], across[:, None, :]]

    def answer(self, inputs: Tensor) -> Tensor:
        """Return maps, or logits (B, m, classes)."""
        answer = self.run(inputs.flatten(0, 1).movedim(-1, 1).contiguous(memory_format=self.layout))
        return answer.unflatten(0, inputs.shape[:2]).movedim(2, -1)  # type: ignore[no-untyped-call, no-any-return]


def _stages(local: LocalParts, features: Tensor, rows: Spans, columns: Spans) -> tuple[list[_Stage], str]:
    """Return stages for the local parts that save work, and one for the rest; or no stages and the reason."""
    stages: list[_Stage] = []
    device, change, why = features.device, None, "its features are no maps"
    layout = torch.contiguous_format if features.is_contiguous() else torch.channels_last
    for part in local.parts if features.ndim == 4 else ():
        height, width = features.shape[2:]
        answer = part.run(features.clone())  # it may work in place
        if (height, width) != tuple(part.reach.stride * side for side in answer.shape[2:]):
            why = "the stride does not divide the map, so crops would not meet the same places"
            break
        (down, rows), (across, columns) = _along(part.reach, height, rows), _along(part.reach, width, columns)
        crop, changed = _Squares.of(down, across, device), _Squares.of(rows, columns, device)
        if crop.down.shape[1] * crop.across.shape[1] > _SMALL * height * width:
            why = "they would hold most of the map"
            break
        incoming = (change or crop).seen_from(crop)
        outgoing = changed.seen_from(crop, part.reach.stride)
        stages.append(_Stage(part.run, layout, features.movedim(1, -1), crop, incoming, outgoing))
        features, change = answer, changed
    if change:
        why, (height, width) = "", features.shape[2:]
        whole = _Squares.of([(0, height - 1)] * len(rows), [(0, width - 1)] * len(columns), device)
        rest = LocalParts(local.parts[len(stages) :], local.rest)
        stages.append(_Stage(rest.run, layout, features.movedim(1, -1), whole, change, whole))
    return stages, why


def _along(reach: Reach, places: int, changed: Spans) -> tuple[Spans, Spans]:
    """Return the crops that a part must run on when places change, and the changed places of its answer.

    Both are spans of one length each. A crop begins and ends at multiples of the stride. If it ends inside the map, no
    place of the answer that is asked for depends on anything beyond; if it ends with the map, both are padded alike.
    """
    answered = places // reach.stride
    answers = _of_one_length([reach.changed(*span) for span in changed], answered)
    needed = [reach.needed(*span) for span in answers]
    crops = _of_one_length([(first // reach.stride, last // reach.stride) for first, last in needed], answered)
    return [(first * reach.stride, (last + 1) * reach.stride - 1) for first, last in crops], answers


def _of_one_length(spans: Spans, places: int) -> Spans:
    """Cut spans to the places 0 … `places` - 1, then lengthen all to the longest."""
    cut = [(max(first, 0), min(last, places - 1)) for first, last in spans]
    length = max(1, *(last - first + 1 for first, last in cut))
    begins = [min(first, places - length) for first, _ in cut]
    return [(begin, begin + length - 1) for begin in begins]
