"""Trace a network into a graph, and cut the graph in two."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable
from typing import Any

from torch import Tensor, fx, nn
from torch.nn import functional as F

from ..basics.locks import one_at_a_time
from ..basics.machine import out_of_memory
from ..basics.messages import ModelError

SWITCHED_OFF = "tracing is switched off"  # by Classifier(…, trace=False)

_EXITS = {  # attributes of tensors by which values leave torch
    *("numpy", "tolist", "data_ptr", "storage", "untyped_storage", "__array__", "__array_interface__"),
    *("__array_struct__", "__cuda_array_interface__", "__dlpack__", "__dlpack_device__"),
}


class Windows(nn.Module):
    """Adaptive average pooling of every window by itself: (B, C, H, W) → (B, P, C, *pooled).

    The P windows have the size `window` and lie one step apart, in rows from left to right.
    """

    def __init__(self, window: tuple[int, int], pooled: tuple[int, int]) -> None:
        super().__init__()
        self.window, self.pooled = window, pooled

    def forward(self, features: Tensor) -> Tensor:
        height, width = self.window
        # These are views until they are put side by side. That is as quick as a convolution with the head's weights,
        # and needs no second copy of them.
        windows = features.unfold(2, height, 1).unfold(3, width, 1)  # (B, C, rows, columns, height, width)
        windows = windows.permute(0, 2, 3, 1, 4, 5).flatten(1, 2)
        if self.pooled == self.window:
            return windows
        return F.adaptive_avg_pool2d(windows.flatten(0, 1), self.pooled).view(*windows.shape[:3], *self.pooled)

    def extra_repr(self) -> str:
        return f"window={self.window}, pooled={self.pooled}"


class _Symbol(fx.Proxy):
    """A tensor without values, which refuses to leave torch: foreign code may crash Python when it gets a symbol."""

    def __getattr__(self, name: str) -> Any:
        if name in _EXITS:
            raise fx.proxy.TraceError(f"{name} hands values to code outside torch")
        return _SymbolAttribute(self, name)


class _SymbolAttribute(_Symbol, fx.proxy.Attribute):
    """An attribute of a symbol, such as its shape or one of its methods."""


class _Tracing:
    """A flag that is true only in the thread that traces."""

    def __init__(self) -> None:
        self._thread: int | None = threading.get_ident()

    def __bool__(self) -> bool:
        return self._thread == threading.get_ident()

    def end(self) -> None:
        self._thread = None


class _Tracer(fx.Tracer):
    """A tracer that keeps chosen modules in one piece, and leaves other threads alone.

    While torch traces, it replaces `__call__` and `__getattr__` of all modules in all threads; the replacements ask the
    tracer what to do. It is made for one trace.
    """

    def __init__(self, whole: Callable[[str, nn.Module], bool]) -> None:
        super().__init__()
        self._whole = whole
        self._tracing = _Tracing()

    def trace(self, root: Any, concrete_args: dict[str, Any] | None = None) -> fx.Graph:
        try:
            return super().trace(root, concrete_args)
        finally:
            self._tracing.end()  # a trace of the user's own may put our replacements back: now they do nothing

    def create_args_for_root(self, *args: Any, **kwargs: Any) -> Any:
        # By this flag, which torch has just set for all threads, compiled functions refuse to run.
        fx._symbolic_trace._is_fx_tracing_flag = self._tracing  # type: ignore[assignment]
        return super().create_args_for_root(*args, **kwargs)

    def call_module(self, m: nn.Module, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        return super().call_module(m, forward, args, kwargs) if self._tracing else forward(*args, **kwargs)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        return super().getattr(attr, attr_val, parameter_proxy_cache) if self._tracing else attr_val

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return _Symbol(node, self)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        whole = isinstance(m, Windows) or self._whole(module_qualified_name, m)
        return whole or super().is_leaf_module(m, module_qualified_name)


def trace(
    net: nn.Module, whole: Callable[[str, nn.Module], bool] = lambda name, module: False
) -> fx.GraphModule | Exception:
    """Return `net` as a graph, or the error why it cannot be traced.

    torch's own modules, `Windows`, and modules for which `whole` is true stay one node each.
    """
    if next(net.children(), None) is None:
        return ModelError("it has no modules inside")  # there is nothing to find, and its code may be anything
    try:
        with one_at_a_time:  # two traces would put each other's replacements back
            graph = _Tracer(whole).trace(net)
            return _as_module(net, graph)
    except Exception as error:  # tracing runs the network's own code on symbols, and that may raise anything
        if out_of_memory(error):
            raise
        return error


def _as_module(net: nn.Module, graph: fx.Graph) -> fx.GraphModule:
    """Return a graph of `net` as a module. What torch adds to hold parameters gets the mode of `net`, too."""
    module, known = fx.GraphModule(net, graph, type(net).__name__), set(net.modules())
    for added in set(module.modules()) - known:
        added.training = net.training
    return module


def check_layer(net: nn.Module, layer: str) -> None:
    """Refuse a name that no module of `net` has."""
    modules = dict(net.named_modules())
    if layer not in modules:
        near = [name for name in modules if name.split(".")[0] == layer.split(".")[0]][:8]
        near = near or [name for name, _ in net.named_children()]
        raise ModelError(f"layer={layer!r} is not a module of {type(net).__name__}: it has {', '.join(near)}.")


def split_at(net: nn.Module, layer: str) -> tuple[fx.GraphModule, fx.GraphModule] | Exception:
    """Return `net` up to the last call of module `layer`, and the rest; the error if it cannot be traced."""
    check_layer(net, layer)
    traced = trace(net, lambda name, _: name == layer)
    if isinstance(traced, Exception):
        return traced
    calls = [node for node in traced.graph.nodes if node.op == "call_module" and node.target == layer]
    if not calls:
        raise ModelError(f"layer={layer!r} is a module that {type(net).__name__} never calls: name one that it does.")
    return cut_at(traced, calls[-1])


def cut_at(net: fx.GraphModule, cut: fx.Node) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Return a network up to and including a node of its graph, and the rest of it."""
    return _as_module(net, _before(net.graph, cut)), _as_module(net, _after(net, cut))


def _before(graph: fx.Graph, cut: fx.Node) -> fx.Graph:
    before = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    needed = _ancestors(cut)
    for node in graph.nodes:
        if node in needed:
            copies[node] = before.node_copy(node, copies.__getitem__)
    before.output(copies[cut])
    return before


def _after(net: fx.GraphModule, cut: fx.Node) -> fx.Graph:
    graph, after = net.graph, fx.Graph()
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
    """Return `end` and everything it needs; nodes that are `given` need nothing."""
    found: set[fx.Node] = set()
    queue = [end]
    while queue:
        node = queue.pop()
        if node not in found:
            found.add(node)
            queue.extend(() if given(node) else node.all_input_nodes)
    return found


def _descendants(graph: fx.Graph, start: fx.Node) -> set[fx.Node]:
    """Return everything that depends on `start`."""
    found = {start}
    for node in graph.nodes:
        if not found.isdisjoint(node.all_input_nodes):
            found.add(node)
    return found - {start}


def _is_batch_size(node: fx.Node) -> bool:
    """Recognise ``x.size(0)`` and ``x.shape[0]``: before the layer they equal the features' own."""
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
