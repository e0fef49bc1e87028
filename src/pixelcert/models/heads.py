"""Heads of networks: one linear layer behind average pooling, and fully connected heads that slide."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from ..basics.messages import ModelError
from .inspection import Tolerance, in_words, why_unlike
from .splitting import traced_halves
from .tracing import Windows, split_at, trace

if TYPE_CHECKING:
    from .classifier import Classifier

_POOLS = (nn.AdaptiveAvgPool2d, Windows)
_PASSES = (nn.Dropout, nn.Flatten, nn.Identity)
_BETWEEN = (nn.ReLU, nn.MaxPool2d, nn.AvgPool2d)
_FUNCTIONS = {
    "adaptive_avg_pool2d", "clone", "dropout", "flatten", "getitem", "mean", "relu", "reshape", "size", "view",
}  # fmt: skip
_NOT_PLAIN = "more than pooling, ReLUs and linear layers follows"


@dataclass(frozen=True)
class LinearHead:
    """A head of pooling and one layer: logits = W · mean(A) + b, with A the features (B, C, h, w)."""

    layer: nn.Linear

    @property
    def weight(self) -> Tensor:
        """Return W: (classes, C)."""
        return self.layer.weight.detach()

    def logits(self, features: Tensor) -> Tensor:
        """Return the logits (B, classes) of features (B, C, h, w)."""
        return F.linear(features.mean(dim=(2, 3), dtype=self.weight.dtype), self.weight, self.layer.bias)

    def slope(self, features: Tensor, targets: Tensor | int) -> Tensor:
        """Return the slope of each target's logit at every position, by channel: (…, C, 1, 1)."""
        return (self.weight[targets] / features[0, 0].numel())[..., None, None]

    def evidence(self, features: Tensor) -> Tensor:
        """Return each position's part in every logit (B, classes, h, w); with the bias they sum to the logit."""
        return torch.einsum("kc,bchw->bkhw", self.weight, features.to(self.weight)) / features[0, 0].numel()


def linear_head(model: Classifier, layer: str) -> LinearHead | None:
    """Return the head after `layer`, if it is only average pooling and one linear layer."""

    def find() -> LinearHead | None:
        halves = traced_halves(model, layer)
        found = find_linear_head(halves[1]) if halves else "the network is split by hooks"
        if isinstance(found, str):
            model.surgery(layer).note("head", "run", found)
            return None
        model.surgery(layer).note("head", "linear")
        return found

    return None if layer == "input" else model.recall(("linear head", layer), find, values=True)


def linear_layers(model: Classifier, layer: str) -> list[nn.Linear] | str:
    """Return the linear layers after `layer`, in order; the reason if more than ReLUs and pooling is between them."""
    if (halves := traced_halves(model, layer)) is None:
        return model.surgery(layer)["split"].why
    return model.recall(("linear layers", layer), lambda: _plain_layers(halves[1])) or _NOT_PLAIN


def find_linear_head(head: fx.GraphModule) -> LinearHead | str:
    """Return the head's only linear layer, if there is only pooling and reshaping besides; the reason otherwise."""
    if len(layers := _plain_layers(head)) != 1:
        return f"{len(layers)} linear layers follow" if layers else _NOT_PLAIN
    found = LinearHead(layers[0])
    if found.weight.is_meta:
        return "untried: the meta device holds no values"
    for size in ((7, 7), (3, 5)):  # negative features too: a layer between may clip or square
        generator = torch.Generator().manual_seed(0)
        features = torch.randn(4, found.weight.shape[1], *size, generator=generator).to(found.weight)
        if why := why_unlike(head, found.logits, features, Tolerance.REORDERED):
            return why
    return found


def _plain_layers(head: fx.GraphModule) -> list[nn.Linear]:
    """Return the linear layers of a head that has only ReLUs and pooling between them, in order; [] for other heads."""
    nodes = head.graph.nodes
    modules = [head.get_submodule(str(node.target)) for node in nodes if node.op == "call_module"]
    calls = (node.target for node in nodes if node.op in ("call_function", "call_method"))
    plain = all(isinstance(module, (nn.Linear, *_POOLS, *_PASSES, *_BETWEEN)) for module in modules) and all(
        (call if isinstance(call, str) else getattr(call, "__name__", "")) in _FUNCTIONS for call in calls
    )
    return [module for module in modules if isinstance(module, nn.Linear)] if plain else []


def fixed_pools(net: nn.Module) -> list[str]:
    """Return the names of the modules that pool features of any size to several positions."""
    pools = [(name, module) for name, module in net.named_modules() if isinstance(module, nn.AdaptiveAvgPool2d)]
    return [name for name, pool in pools if max(_pooled_size(pool)) > 1]


def slide_head(net: nn.Module, pool: str, inputs: Tensor) -> fx.GraphModule | str:
    """Return `net` with everything behind its module `pool` sliding, or the reason why it cannot slide.

    It has the modules of `net` itself, under their names, except that `Windows` replace `pool`. `inputs` is a batch as
    in training: its features before `pool` are as large as the windows.
    """
    try:
        plain = split_at(net, pool)
    except ModelError as error:  # the pool is not called, or bypassed
        return in_words(error)
    if isinstance(plain, Exception):
        return in_words(plain)
    own, head = net.get_submodule(pool), plain[1]
    # Stacks of convolutions stay in one piece, so that they can still be named as layers.
    sliding = trace(net, lambda _, module: own not in (parts := set(module.modules())) and _has_convolution(parts))
    if isinstance(sliding, Exception):
        return in_words(sliding)
    if not (layers := _plain_layers(head)):
        return _NOT_PLAIN
    features = _features(net, pool, inputs)
    height, width = features.shape[2:]
    rows, columns = _pooled_size(own)
    windows = Windows((height, width), (rows or height, columns or width))
    _slide(sliding, pool, layers[0])
    sliding.set_submodule(pool, windows)
    slid = split_at(sliding, pool)
    if isinstance(slid, Exception):
        return in_words(slid)
    # Examples of windows have negative features too, which ReLUs clip.
    shape = windows(features).shape[2:]
    examples = torch.randn(2, 3, *shape, generator=torch.Generator().manual_seed(0)).to(features)

    def averaged(windows: Tensor) -> Tensor:
        logits: Tensor = head(windows.flatten(0, 1))
        return logits.view(2, 3, -1).mean(dim=1)

    return why_unlike(averaged, slid[1], examples, Tolerance.REWRITTEN) or sliding


def _has_convolution(modules: Iterable[nn.Module]) -> bool:
    return any(isinstance(module, nn.Conv2d) for module in modules)


def _slide(net: fx.GraphModule, pool: str, linear: nn.Linear) -> None:
    """Let linear layers and ReLUs take (B, P, inputs) instead of (B, inputs), by changing only input and output.

    Everything between pooling and the first linear layer is left out, because it should only flatten.
    """
    calls = [node for node in net.graph.nodes if node.op == "call_module"]
    windows = next(node for node in calls if node.target == pool)
    first = next(node for node in calls if net.get_submodule(str(node.target)) is linear)
    with net.graph.inserting_before(first):
        first.args = (net.graph.call_method("flatten", (windows, 2)),)
    output = next(node for node in net.graph.nodes if node.op == "output")
    with net.graph.inserting_before(output):
        output.args = (net.graph.call_method("mean", (output.args[0], 1)),)
    net.graph.eliminate_dead_code()
    net.recompile()


def _features(net: nn.Module, pool: str, inputs: Tensor) -> Tensor:
    """Return the input of `pool`."""
    seen: list[Tensor] = []
    with torch.no_grad(), net.get_submodule(pool).register_forward_pre_hook(lambda _, args: seen.append(args[0])):
        net(inputs)
    return seen[0]


def _pooled_size(pool: nn.Module) -> tuple[int, int]:
    """Return the rows and columns that adaptive pooling leaves; 0 where it keeps those of the features."""
    size: Any = pool.output_size
    rows, columns = size if isinstance(size, tuple) else (size, size)
    return rows or 0, columns or 0
