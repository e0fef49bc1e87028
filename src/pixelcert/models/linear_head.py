"""Heads that are global average pooling and one linear layer, as most convolutional networks have.

Their logits are linear in the features, so gradients, ablations and masks of the features need no run of the head.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from .trial import close
from .windows import Windows

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
