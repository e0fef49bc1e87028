"""Splitting a network at a layer: what comes before runs once, what comes after runs alone.

The network is traced with `torch.fx` and cut at the last call of the named module. Both halves share the network's
own modules and parameters; nothing is copied.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor, fx, nn

from ..errors import ModelError
from .windows import Windows


class Split(NamedTuple):
    """A classifier in two: ``logits = head(features(images))``."""

    features: Callable[[Tensor], Tensor]
    head: Callable[[Tensor], Tensor]


def split_at(net: nn.Module, layer: str) -> tuple[fx.GraphModule, fx.GraphModule] | None:
    """`net` up to and including the last call of module `layer`, and the rest of it; None if it cannot be traced."""
    graph = _trace(net, layer)
    if graph is None:
        return None
    calls = [node for node in graph.nodes if node.op == "call_module" and node.target == layer]
    if not calls:
        raise ModelError(f"layer={layer!r} is a module that {type(net).__name__} never calls: name one that it does.")
    return cut_at(net, graph, calls[-1])


def cut_at(net: nn.Module, graph: fx.Graph, cut: fx.Node) -> tuple[fx.GraphModule, fx.GraphModule]:
    """The graph of `net` up to and including a node, and the rest of it."""
    return fx.GraphModule(net, _before(graph, cut)), fx.GraphModule(net, _after(graph, cut, net))


def as_maps(features: Tensor, images: Tensor) -> Tensor:
    """Features of `images` (B, …, H, W) as maps (B, C, h, w), refused if they do not have the images' proportions.

    Tokens (B, T, C) lose the class token and others before the patches, and are laid out on the patches' grid.
    """
    height, width = images.shape[-2:]
    if features.ndim == 4 and abs(features.shape[2] * width - features.shape[3] * height) <= max(height, width):
        return features  # one row or column more or less comes from rounding at strides
    for prefix in (1, 0, 2) if features.ndim == 3 else ():
        patches = features.shape[1] - prefix
        rows = round((patches * height / width) ** 0.5)
        if rows > 0 and patches % rows == 0 and rows * width == patches // rows * height:
            return features[:, prefix:].transpose(1, 2).reshape(len(features), -1, rows, patches // rows)
    raise ModelError(
        f"features of shape {tuple(features.shape)} are no maps of images of {height} × {width}: choose a layer that "
        f"returns (B, C, h, w), or tokens (B, T, C) of a transformer."
    )


class _Tracer(fx.Tracer):
    """Keeps the layer to cut at in one piece, and windows, which are a kind of pooling."""

    def __init__(self, layer: str) -> None:
        super().__init__()
        self._layer = layer

    def is_leaf_module(self, module: nn.Module, qualified_name: str) -> bool:
        whole = qualified_name == self._layer or isinstance(module, Windows)
        return whole or super().is_leaf_module(module, qualified_name)


def _trace(net: nn.Module, layer: str) -> fx.Graph | None:
    if layer not in dict(net.named_modules()):
        near = [name for name in dict(net.named_modules()) if name.split(".")[0] == layer.split(".")[0]][:8]
        near = near or [name for name, _ in net.named_children()]
        raise ModelError(f"layer={layer!r} is not a module of {type(net).__name__}: it has {', '.join(near)}.")
    try:
        return _Tracer(layer).trace(net)
    except Exception:  # tracing runs the network's own code on symbols, and that may raise anything
        return None


def _before(graph: fx.Graph, cut: fx.Node) -> fx.Graph:
    before = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    needed = _ancestors(cut)
    for node in graph.nodes:
        if node in needed:
            copies[node] = before.node_copy(node, copies.__getitem__)
    before.output(copies[cut])
    return before


def _after(graph: fx.Graph, cut: fx.Node, net: nn.Module) -> fx.Graph:
    after = fx.Graph()
    features = after.placeholder("features")
    behind = _descendants(graph, cut)
    if any(_works_in_place(node, net) for node in behind):
        features = after.call_method("clone", (features,))
    batch_sizes = {node for node in graph.nodes if _is_batch_size(node) and node not in behind}
    output = next(node for node in graph.nodes if node.op == "output")
    needed = _ancestors(output, given=lambda node: node is cut or node in batch_sizes)
    copies: dict[fx.Node, Any] = {cut: features}
    for node in graph.nodes:
        if node in copies or node not in needed:
            continue
        if node in batch_sizes:
            copies[node] = after.call_method("size", (features, 0))
        elif node.op == "placeholder" and node.args:  # an option of the network's forward, at its default
            copies[node] = node.args[0]
        elif node.op == "placeholder":
            raise ModelError(f"layer={cut.target!r} is bypassed: what follows also uses the input. Name a later layer.")
        else:
            copies[node] = after.node_copy(node, copies.__getitem__)
    return after


def _ancestors(end: fx.Node, given: Callable[[fx.Node], bool] = lambda node: False) -> set[fx.Node]:
    """`end` and all that it needs; nodes that are `given` need nothing."""
    found: set[fx.Node] = set()
    queue = [end]
    while queue:
        node = queue.pop()
        if node not in found:
            found.add(node)
            queue.extend(() if given(node) else node.all_input_nodes)
    return found


def _descendants(graph: fx.Graph, start: fx.Node) -> set[fx.Node]:
    """All that depends on `start`."""
    found = {start}
    for node in graph.nodes:
        if not found.isdisjoint(node.all_input_nodes):
            found.add(node)
    return found - {start}


def _is_batch_size(node: fx.Node) -> bool:
    """``x.size(0)`` or ``x.shape[0]``, which before the layer is the same as the features' own."""
    if node.op == "call_method" and node.target == "size":
        return node.args[1:] == (0,)
    if node.op == "call_function" and node.target is operator.getitem and node.args[1] == 0:
        shape: Any = node.args[0]
        return (shape.op, shape.target) == ("call_method", "size") or (
            shape.op == "call_function" and shape.target is getattr and shape.args[1] == "shape"
        )
    return False


def _works_in_place(node: fx.Node, net: nn.Module) -> bool:
    if node.op == "call_module":
        return bool(getattr(net.get_submodule(str(node.target)), "inplace", False))
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return bool(node.kwargs.get("inplace")) or (name.endswith("_") and not name.endswith("__"))
