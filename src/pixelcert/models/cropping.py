"""Crop: find the first parts of a network, where a place of the answer depends only on places nearby.

When a window of the image changes, most of the answer of these parts stays the same. They can be run on a crop with the
change and its surroundings; everything else is known from the unchanged image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, fx, nn

from .folding import ADDITIONS, RELUS, Fusing, is_unchanged
from .inspection import Tolerance, any_image, in_words, why_unlike
from .splitting import Split, plain_split, traced_halves
from .tracing import SWITCHED_OFF, cut_at, trace

if TYPE_CHECKING:
    from .classifier import Classifier

_POINTWISE = (nn.BatchNorm2d, nn.ELU, nn.GELU, nn.Hardswish, nn.Identity, nn.LeakyReLU, nn.ReLU, nn.ReLU6, nn.SiLU)
_WINDOWED = (nn.AvgPool2d, nn.Conv2d, nn.MaxPool2d)


class Reach(NamedTuple):
    """Place j of the answer depends on places j · stride - before … j · stride + after, along each side."""

    stride: int = 1
    before: int = 0
    after: int = 0

    def then(self, kernel: int, stride: int, padding: int, dilation: int) -> Reach:
        """Return the reach with a convolution or pooling behind it."""
        ahead = dilation * (kernel - 1) - padding
        return Reach(self.stride * stride, self.before + self.stride * padding, self.after + self.stride * ahead)

    def changed(self, first: int, last: int) -> tuple[int, int]:
        """Return the first and the last place of the answer that depend on places `first` … `last`."""
        return -((self.after - first) // self.stride), (last + self.before) // self.stride

    def needed(self, first: int, last: int) -> tuple[int, int]:
        """Return the first and the last place that places `first` … `last` of the answer depend on."""
        return first * self.stride - self.before, last * self.stride + self.after


class LocalPart(NamedTuple):
    """A part of a network, and how far its places depend on each other."""

    run: Callable[..., Tensor]
    reach: Reach


class LocalParts(NamedTuple):
    """A network as a row of local parts, maybe none, and a rest."""

    parts: tuple[LocalPart, ...]
    rest: Callable[..., Tensor]

    def run(self, inputs: Tensor) -> Tensor:
        """Return the network's answer."""
        for part in self.parts:
            inputs = part.run(inputs)
        return self.rest(inputs)

    def each(self, change: Callable[[Any], Any]) -> LocalParts:
        """Return the same with every part changed."""
        return LocalParts(tuple(LocalPart(change(part.run), part.reach) for part in self.parts), change(self.rest))


def local_parts(model: Classifier, layer: str) -> LocalParts:
    """Return `model` after `layer` as a row of local parts and a rest, compiled or fused as `model` is."""
    return model.recall(("local parts", layer), lambda: _find(model, layer))


def _find(model: Classifier, layer: str) -> LocalParts:
    whole = plain_split(model, layer)  # as modules compute it: a fused or compiled split rounds otherwise
    found = _try_parts(model, layer, whole)
    if isinstance(found, str):
        model.surgery(layer).note("crops", "no", found)
        return LocalParts((), whole.head)
    model.surgery(layer).note("crops", f"{len(found.parts)} parts")
    if model.compiled:
        return found.each(torch.compile)
    if not model.fused:
        return found
    features, change = model.split(layer).features, Fusing()
    fused = found.each(change)
    one, other = Split(features, found.run), Split(features, fused.run)
    why = change.why_not or why_unlike(one.run, other.run, any_image(model), Tolerance.ROUNDED)
    model.surgery(layer).note("fused crops", "no" if why else "yes", why)
    return found if why else fused


def _try_parts(model: Classifier, layer: str, whole: Split) -> LocalParts | str:
    """Return the local parts after `layer`, or why there are none."""
    if not model.trace:
        return SWITCHED_OFF
    halves = traced_halves(model, layer)
    if layer != "input" and halves is None:
        return "the network is split by hooks"
    found = find_local_parts(halves[1] if halves else model.net)
    if isinstance(found, Exception):
        return f"it cannot be traced: {in_words(found)}"
    if not found.parts:
        return "no part of it is known to be local"
    return why_unlike(whole.run, Split(whole.features, found.run).run, any_image(model), Tolerance.SAME) or found


def find_local_parts(net: nn.Module) -> LocalParts | Exception:
    """Return the local parts that `net` begins with, one per resolution, and the rest; or why it cannot be traced."""
    parts: list[LocalPart] = []
    rest = trace(net)
    if isinstance(rest, Exception):
        return rest
    while cut := _end_of_first_part(rest):
        node, reach = cut
        part, rest = cut_at(rest, node)
        parts.append(LocalPart(part, reach))
    return LocalParts(tuple(parts), rest)


def _end_of_first_part(net: fx.GraphModule) -> tuple[fx.Node, Reach] | None:
    """Return the last node of the first resolution through which everything later must pass, and its reach."""
    waists = [(node, reach) for node, reach in _waists(net) if node.op in ("call_module", "call_function")]
    for (node, reach), (_, following) in pairwise(waists):
        if reach.stride != following.stride:
            return node, reach
    return waists[-1] if waists else None


def _waists(net: fx.GraphModule) -> Iterator[tuple[fx.Node, Reach]]:
    """Yield the nodes through which everything later must pass, with their reach, as long as that is local."""
    nodes = list(net.graph.nodes)
    place = {node: index for index, node in enumerate(nodes)}
    reaches: dict[fx.Node, Reach] = {}
    open_until = 0  # index of the last node that uses an earlier one
    for index, node in enumerate(nodes):
        reach = Reach() if index == 0 else _reach(node, net, reaches)
        if reach is None:
            return
        reaches[node] = reach
        if open_until <= index:
            yield node, reach
        open_until = max([open_until, *(place[user] for user in node.users)])


def _reach(node: fx.Node, net: fx.GraphModule, known: dict[fx.Node, Reach]) -> Reach | None:
    """Return how far a node depends on the network's input; None if that is not known to be local."""
    if not node.args or any(not isinstance(each, fx.Node) or each not in known for each in node.args):
        return None
    reaches = [known[each] for each in node.args if isinstance(each, fx.Node)]
    if node.op == "call_method":
        return reaches[0] if node.target == "clone" else None
    if node.op == "call_module" and len(reaches) == 1 and not node.kwargs:
        return _through(net.get_submodule(str(node.target)), reaches[0])
    if node.op == "call_function" and not node.kwargs.keys() - {"inplace"}:
        return _through_function(node.target, reaches)
    return None


def _through_function(function: Any, reaches: list[Reach]) -> Reach | None:
    if function in RELUS:
        return reaches[0]
    if function in ADDITIONS and len({reach.stride for reach in reaches}) == 1:
        return Reach(reaches[0].stride, max(r.before for r in reaches), max(r.after for r in reaches))
    return None


def _through(module: nn.Module, reach: Reach) -> Reach | None:
    """Return the reach behind a module; None if it is not one of torch's own, unchanged."""
    if not is_unchanged(module):
        return None
    if type(module) in _POINTWISE:
        return reach
    made, special = vars(module), ("ceil_mode", "return_indices")
    if type(module) not in _WINDOWED or made.get("padding_mode", "zeros") != "zeros" or any(map(made.get, special)):
        return None
    sides = [_on_both_sides(made.get(name, 1)) for name in ("kernel_size", "stride", "padding", "dilation")]
    numbers = [number for number in sides if number is not None]
    return reach.then(*numbers) if len(numbers) == len(sides) else None


def _on_both_sides(option: Any) -> int | None:
    """Return an option that is the same along both sides as a number."""
    if isinstance(option, tuple):
        return option[0] if len(set(option)) == 1 else None
    return option if isinstance(option, int) else None
