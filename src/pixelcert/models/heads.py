"""Heads of networks: one linear layer behind average pooling, and fully connected heads that slide."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from ..basics.messages import ModelError
from .inspection import close
from .splitting import Windows, split_at

_POOLS = (nn.AdaptiveAvgPool2d, Windows)
_PASSES = (nn.Dropout, nn.Flatten, nn.Identity)
_BETWEEN = (nn.ReLU, nn.MaxPool2d, nn.AvgPool2d)
_FUNCTIONS = {
    "adaptive_avg_pool2d", "clone", "dropout", "flatten", "getitem", "mean", "relu", "reshape", "size", "view",
}  # fmt: skip


@dataclass(frozen=True)
class LinearHead:
    """logits = W · mean(A) + b, with A the features (B, C, h, w)."""

    layer: nn.Linear

    @property
    def weight(self) -> Tensor:
        """W: (classes, C)."""
        return self.layer.weight.detach()

    def logits(self, features: Tensor) -> Tensor:
        """(B, C, h, w) → (B, classes)."""
        return F.linear(features.mean(dim=(2, 3), dtype=self.weight.dtype), self.weight, self.layer.bias)

    def evidence(self, features: Tensor) -> Tensor:
        """What every position adds to every logit, so that they sum to it but for the bias: (B, classes, h, w)."""
        return torch.einsum("kc,bchw->bkhw", self.weight, features.to(self.weight)) / features[0, 0].numel()


def linear_layers(head: fx.GraphModule) -> list[nn.Linear]:
    """The linear layers of a head that has none but ReLUs and pooling between them, in order; [] for other heads."""
    modules = _modules(head)
    calls = (node.target for node in head.graph.nodes if node.op in ("call_function", "call_method"))
    plain = all(isinstance(module, (nn.Linear, *_POOLS, *_PASSES, *_BETWEEN)) for module in modules) and all(
        (call if isinstance(call, str) else getattr(call, "__name__", "")) in _FUNCTIONS for call in calls
    )
    return [module for module in modules if isinstance(module, nn.Linear)] if plain else []


def find_linear_head(head: fx.GraphModule) -> LinearHead | None:
    """The head's only linear layer, if nothing but pooling and reshaping comes with it; None otherwise."""
    linear = linear_layers(head)
    if len(linear) != 1:
        return None
    found = LinearHead(linear[0])
    return found if _agrees(found, head) else None


def _modules(head: fx.GraphModule) -> list[nn.Module]:
    return [head.get_submodule(str(node.target)) for node in head.graph.nodes if node.op == "call_module"]


def _agrees(found: LinearHead, head: fx.GraphModule) -> bool:
    """Whether the head computes just this: what lies between may clip or square, so try negative features too."""
    weight = found.weight
    if weight.is_meta:  # has no values to try
        return False
    for size in ((7, 7), (3, 5)):
        generator = torch.Generator().manual_seed(0)
        features = torch.randn(4, weight.shape[1], *size, generator=generator).to(weight)
        with torch.no_grad():
            try:
                logits = head(features)
            except RuntimeError:
                return False
        if not isinstance(logits, Tensor) or not close(found.logits(features), logits, 1e-3):
            return False
    return True


def fixed_pool(net: nn.Module) -> str | None:
    """The name of the module that pools features of any size to several positions, if there is just one."""
    names = [
        name
        for name, module in net.named_modules()
        if isinstance(module, nn.AdaptiveAvgPool2d) and max(_pooled_size(module)) > 1
    ]
    return names[0] if len(names) == 1 else None


def slide_head(net: nn.Module, pool: str, inputs: Tensor) -> fx.GraphModule | None:
    """`net` with all behind its module `pool` sliding; None where that is more than linear layers and ReLUs.

    It has the modules of `net` itself, under their names, but for `pool`, which is replaced by `Windows`. `inputs` is
    a batch as the network was trained on: the features that `pool` has of it are as large as the windows.
    """
    try:
        plain = split_at(net, pool)
    except ModelError:  # the pool is not called, or bypassed
        return None
    layers = linear_layers(plain[1]) if plain else []
    if not plain or not layers:
        return None
    sliding = fx.GraphModule(net, _slide(net, pool, layers[0]), class_name=type(net).__name__)
    sliding.graph.eliminate_dead_code()
    sliding.recompile()
    features = _features(net, pool, inputs)
    height, width = features.shape[2:]
    rows, columns = _pooled_size(net.get_submodule(pool))
    windows = Windows((height, width), (rows or height, columns or width))
    sliding.set_submodule(pool, windows)
    slid = split_at(sliding, pool)
    assert slid is not None, "what was traced once is traced again"
    return sliding if _agree(slid[1], plain[1], windows(features)) else None


def _slide(net: nn.Module, pool: str, linear: nn.Linear) -> fx.Graph:
    """Linear layers and ReLUs take (B, P, inputs) as they take (B, inputs): only the way in and out is another.

    What lies between pooling and the first of them is left out: it should have done no more than flatten.
    """
    graph = _Tracer(net.get_submodule(pool)).trace(net)
    calls = [node for node in graph.nodes if node.op == "call_module"]
    windows = next(node for node in calls if node.target == pool)
    first = next(node for node in calls if net.get_submodule(str(node.target)) is linear)
    with graph.inserting_before(first):
        first.args = (graph.call_method("flatten", (windows, 2)),)
    output = next(node for node in graph.nodes if node.op == "output")
    with graph.inserting_before(output):
        output.args = (graph.call_method("mean", (output.args[0], 1)),)
    return graph


def _agree(slid: nn.Module, plain: nn.Module, windows: Tensor) -> bool:
    """Whether one head on windows is the mean of the other on each: tried on negative features too, which ReLUs clip.

    `windows` (1, P, C, h, w) are an example of them.
    """
    examples = torch.randn(2, 3, *windows.shape[2:], generator=torch.Generator().manual_seed(0)).to(windows)
    with torch.no_grad():
        try:
            actual, expected = slid(examples), plain(examples.flatten(0, 1)).unflatten(0, (2, 3)).mean(dim=1)
        except RuntimeError:  # shapes that do not fit
            return False
    return actual.shape == expected.shape and torch.allclose(
        actual, expected, rtol=0, atol=1e-2 * float(expected.abs().max())
    )


def _features(net: nn.Module, pool: str, inputs: Tensor) -> Tensor:
    """What goes into `pool`."""
    seen: list[Tensor] = []
    with torch.no_grad(), net.get_submodule(pool).register_forward_pre_hook(lambda _, args: seen.append(args[0])):
        net(inputs)
    return seen[0]


def _pooled_size(pool: nn.Module) -> tuple[int, int]:
    """Rows and columns that adaptive pooling leaves; 0 where it keeps those of the features."""
    size: Any = pool.output_size
    rows, columns = size if isinstance(size, tuple) else (size, size)
    return rows or 0, columns or 0


class _Tracer(fx.Tracer):
    """Keeps stacks of convolutions in one piece, so that they can still be named as layers."""

    def __init__(self, pool: nn.Module) -> None:
        super().__init__()
        self._pool = pool

    def is_leaf_module(self, module: nn.Module, qualified_name: str) -> bool:
        parts = list(module.modules())
        if self._pool not in parts and any(isinstance(part, nn.Conv2d) for part in parts):
            return True
        return super().is_leaf_module(module, qualified_name)
