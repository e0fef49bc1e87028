"""Batch norms folded into the convolutions that feed them: beside the network, or in it.

One run on one image shows which convolution's output is a batch norm's input. `fold_batch_norms` leaves the network as
it is and gives the folded weights under the address of those they stand for, for whoever runs the network with them in
their place. `fold_modules` changes the network.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ..errors import PixelcertWarning


class Folding(NamedTuple):
    """What to use in place of the network's own convolutions, and which batch norms are then the identity."""

    convolutions: dict[int, tuple[Tensor, Tensor]]  # address of a weight → folded weight and bias
    batch_norms: frozenset[int]  # addresses of running means


def fold_batch_norms(network: Callable[[Tensor], Tensor], inputs: Tensor) -> tuple[Folding, Tensor]:
    """The folding of `network` as it runs on `inputs`, and what it answers.

    A pair is folded where the convolution's output goes to the batch norm and nowhere else, and where neither is used
    twice. The other batch norms stay, as affine layers, and a warning says so.
    """
    trace, answer = _trace(network, inputs)
    pairs = trace.pairs()
    if left := len(trace.batch_norms) - len(pairs):
        warnings.warn(
            f"{left} of {len(trace.batch_norms)} batch norms do not follow a convolution of their own and are "
            f"explained as affine layers: their shift takes part of the relevance.",
            PixelcertWarning,
            stacklevel=2,
        )
    convolutions = {convolution.weight.data_ptr(): _fold(convolution, norm) for convolution, norm in pairs}
    return Folding(convolutions, frozenset(norm.running_mean.data_ptr() for _, norm in pairs)), answer


def fold_modules(net: nn.Module, inputs: Tensor, layer: str = "") -> None:
    """Fold the pairs of plain modules of `net`, as it runs on `inputs`, in place.

    What the module `layer` returns stays the same: no batch norm behind it is folded into a convolution inside it.
    """
    # A subclass of a batch norm may do more than its name says, such as clip.
    names = {
        id(module.weight if isinstance(module, nn.Conv2d) else module.running_mean): name
        for name, module in net.named_modules()
        if isinstance(module, nn.Conv2d) or type(module) is nn.BatchNorm2d
    }
    for convolution, norm in _trace(net, inputs)[0].pairs():
        first, second = names.get(id(convolution.weight)), names.get(id(norm.running_mean))
        if first is None or second is None or (_inside(first, layer) and not _inside(second, layer)):
            continue
        weight, bias = _fold(convolution, norm)
        folded: Any = net.get_submodule(first)
        folded.weight, folded.bias = nn.Parameter(weight, False), nn.Parameter(bias, False)
        parent, _, own = second.rpartition(".")
        setattr(net.get_submodule(parent), own, nn.Identity())


def _inside(name: str, layer: str) -> bool:
    return name == layer or name.startswith(f"{layer}.")


def _trace(network: Callable[[Tensor], Tensor], inputs: Tensor) -> tuple[_Trace, Tensor]:
    with torch.no_grad(), _Trace() as trace:
        return trace, network(inputs)


class _Convolution(NamedTuple):
    """The arguments of `conv2d`."""

    inputs: Tensor
    weight: Tensor
    bias: Tensor | None = None
    stride: Any = 1
    padding: Any = 0
    dilation: Any = 1
    groups: int = 1


class _BatchNorm(NamedTuple):
    """The arguments of `batch_norm`."""

    inputs: Tensor
    running_mean: Any  # None where it keeps no statistics
    running_var: Any
    weight: Tensor | None = None
    bias: Tensor | None = None
    training: bool = False
    momentum: float = 0.1
    eps: float = 1e-5


class _Trace(TorchFunctionMode):
    """Sees every function that a network calls, and so which tensor goes where."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions: dict[int, _Convolution] = {}  # by the id of their output
        self.batch_norms: list[_BatchNorm] = []
        self._readers: Counter[int] = Counter()
        self._alive: list[object] = []  # since a tensor's id is its own only as long as it lives

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        args = (kwargs.pop("input"), *args) if "input" in kwargs else args
        output = func(*args, **kwargs)
        if isinstance(output, (Tensor, tuple, list)) and not isinstance(output, torch.Size):
            given = [*args, *kwargs.values()]
            nested = [item for value in given if isinstance(value, (list, tuple)) for item in value]
            self._readers.update({id(value) for value in given + nested if isinstance(value, Tensor)})
            self._alive.append((args, kwargs, output))
        name = getattr(func, "__name__", "")
        if name == "conv2d":
            self.convolutions[id(output)] = _Convolution(*args, **kwargs)
        elif name == "batch_norm":
            self.batch_norms.append(_BatchNorm(*args, **kwargs))
        return output

    def pairs(self) -> list[tuple[_Convolution, _BatchNorm]]:
        """Every batch norm that can be folded, behind its convolution."""
        fed = ((self.convolutions.get(id(norm.inputs)), norm) for norm in self.batch_norms)
        return [(convolution, norm) for convolution, norm in fed if convolution and self._may_fold(convolution, norm)]

    def _may_fold(self, convolution: _Convolution, norm: _BatchNorm) -> bool:
        if norm.training or norm.running_mean is None:  # it uses the image's own statistics
            return False
        weights = [other.weight.data_ptr() for other in self.convolutions.values()]
        return (
            isinstance(convolution.weight, nn.Parameter)  # weights made anew in every run have no lasting address
            and weights.count(convolution.weight.data_ptr()) == 1
            and sum(other.running_mean is norm.running_mean for other in self.batch_norms) == 1
            and self._readers[id(norm.inputs)] == 1
        )


@torch.no_grad()
def _fold(convolution: _Convolution, norm: _BatchNorm) -> tuple[Tensor, Tensor]:
    scale = (norm.running_var + norm.eps).rsqrt()
    scale = scale if norm.weight is None else scale * norm.weight
    shift = -norm.running_mean if convolution.bias is None else convolution.bias - norm.running_mean
    bias = shift * scale if norm.bias is None else shift * scale + norm.bias
    return (convolution.weight * scale.view(-1, 1, 1, 1)).detach(), bias.detach()
