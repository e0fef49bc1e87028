"""Split a network at a layer: the part before runs once, the part after runs as often as a method needs."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from ..basics.messages import ModelError


class Windows(nn.Module):
    """Adaptive average pooling, of every window by itself: (B, C, H, W) → (B, P, C, *pooled).

    The P windows are `window` large, one step apart, in rows from left to right.
    """

    def __init__(self, window: tuple[int, int], pooled: tuple[int, int]) -> None:
        super().__init__()
        self.window, self.pooled = window, pooled

    def forward(self, features: Tensor) -> Tensor:
        height, width = self.window
        # Views until they are put side by side: as quick as a convolution with the head's weights, which would keep
        # them a second time, in an order of its own.
        windows = features.unfold(2, height, 1).unfold(3, width, 1)  # (B, C, rows, columns, height, width)
        windows = windows.permute(0, 2, 3, 1, 4, 5).flatten(1, 2)
        if self.pooled == self.window:
            return windows
        return F.adaptive_avg_pool2d(windows.flatten(0, 1), self.pooled).view(*windows.shape[:3], *self.pooled)

    def extra_repr(self) -> str:
        return f"window={self.window}, pooled={self.pooled}"


def final_layer(net: nn.Module) -> str:
    """The name of the module whose last output is the final spatial layer, for the architectures it knows.

    ResNet: the output of ``layer4``. VGG and AlexNet: the last ReLU of ``features``, before the pooling. ViT: what
    enters the last encoder block, since after it only the class token counts and nothing depends on the patches.
    EfficientNet-Lite: the activation after the head convolution. Other networks with a
    ``features`` stack (DenseNet, MobileNet, EfficientNet, ConvNeXt): its output.
    """
    modules = dict(net.named_modules())
    if "layer4" in modules:
        return "layer4"
    if "encoder.layers" in modules:
        blocks = [name for name, _ in modules["encoder.layers"].named_children()]
        if len(blocks) < 2:
            raise ModelError("a transformer of one block has no layer before its last: name one with final=NAME.")
        return f"encoder.layers.{blocks[-2]}"
    if "_conv_head" in modules and "_swish" in modules:
        return "_swish"
    if isinstance(features := modules.get("features"), nn.Sequential):
        if isinstance(features[-1], (nn.MaxPool2d, nn.AvgPool2d)):
            return f"features.{len(features) - 2}"
        return "permute" if "permute" in modules else "features"  # Swin's features have their channels last
    known = ", ".join(name for name, _ in net.named_children())
    raise ModelError(
        f"the final spatial layer of {type(net).__name__} is not known: name it with Classifier(…, final=NAME) or "
        f"layer=NAME. Its modules are {known}."
    )


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


def feature_maps(features: Tensor, images: Tensor) -> Tensor:
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


class HookedSplit:
    """`net` before and after the last call of the module named `layer`; it leaves no hook behind."""

    def __init__(self, net: nn.Module, layer: str) -> None:
        self._net, self._layer = net, layer
        self._module = net.get_submodule(layer)
        self._input: torch.Size | None = None  # of the images last seen, without the batch
        self._calls = 0
        self._checked = False

    def body(self, inputs: Tensor) -> Tensor:
        """Normalised images (B, C, H, W) → what the layer returns at its last call."""
        outputs: list[Any] = []
        with self._module.register_forward_hook(lambda module, args, output: outputs.append(_first(output))):
            answer = self._net(inputs)
        if not outputs or not isinstance(outputs[-1], Tensor):
            raise ModelError(
                f"layer={self._layer!r} returns no tensor when {type(self._net).__name__} runs: name another."
            )
        self._input, self._calls = inputs.shape[1:], len(outputs)
        self._check(outputs[-1], answer)
        return outputs[-1]

    def head(self, features: Tensor) -> Any:
        """The network's answer when the layer returns `features`, whatever the image is."""
        assert self._input is not None, "the body runs before the head"
        calls = 0

        def replace(module: nn.Module, args: Any, output: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls < self._calls:
                return output
            fresh = features.clone()  # what follows may work in place
            return fresh if isinstance(output, Tensor) else (fresh, *output[1:])

        with self._module.register_forward_hook(replace):
            return self._net(features.new_zeros(len(features), *self._input))

    def _check(self, features: Tensor, answer: Any) -> None:
        """Once: with a blank image the head must still give the answer, or it uses more than the layer."""
        if self._checked:
            return
        with torch.no_grad():
            again, expected = _logits(self.head(features)), _logits(answer)
        if not torch.allclose(again, expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max())):
            raise ModelError(
                f"layer={self._layer!r} is bypassed: what follows also uses the input. Name a later layer."
            )
        self._checked = True


def _first(output: Any) -> Any:
    """A layer's tensor, copied before what follows can change it in place."""
    tensor = output[0] if isinstance(output, (tuple, list)) else output
    return tensor.clone() if isinstance(tensor, Tensor) else tensor


def _logits(answer: Any) -> Tensor:
    logits: Tensor = getattr(answer, "logits", answer)
    return logits.detach()
