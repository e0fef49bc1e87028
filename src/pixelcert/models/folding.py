"""Fold batch norms into convolutions, and fuse convolutions with their ReLUs."""

from __future__ import annotations

import operator
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from ..basics.messages import PixelcertWarning


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


ADDITIONS = (operator.add, operator.iadd, torch.add)
RELUS = (F.relu, torch.relu)


class FusedConvolution(nn.Module):
    """relu(convolution(inputs) + other); in one kernel where no gradient is asked for, which that has not."""

    def __init__(self, convolution: nn.Conv2d) -> None:
        super().__init__()
        self.convolution = convolution

    def forward(self, inputs: Tensor, other: Tensor | None = None) -> Tensor:
        own = self.convolution
        if torch.is_grad_enabled() and (inputs.requires_grad or (other is not None and other.requires_grad)):
            answer: Tensor = own(inputs)
            return F.relu(answer if other is None else answer + other)
        return convolve_add_relu(inputs, own.weight, other, own.bias, (own.stride, own.padding, own.dilation))


def convolve_add_relu(inputs: Tensor, weight: Tensor, other: Tensor | None, bias: Any, options: Any) -> Tensor:
    """cuDNN's kernel; `options` are stride, padding and dilation."""
    if other is None:
        return torch.cudnn_convolution_relu(inputs, weight, bias, *options, 1)  # type: ignore[call-arg]
    return torch.cudnn_convolution_add_relu(inputs, weight, other, 1.0, bias, *options, 1)  # type: ignore[call-arg]


def fuse(net: nn.Module) -> nn.Module:
    """`net` with what can be fused; the same module where nothing can, or where it cannot be traced."""
    try:
        traced = fx.symbolic_trace(net)
    except Exception:  # tracing runs the network's own code on symbols, and that may raise anything
        return net
    found = 0
    for relu in [node for node in traced.graph.nodes if _is_relu(node, traced)]:
        if (chain := _chain(relu, traced)) is None:
            continue
        convolution, inputs, replaced = chain
        found += 1
        traced.add_submodule(f"fused_{found}", FusedConvolution(convolution))
        with traced.graph.inserting_before(relu):
            fused = traced.graph.call_module(f"fused_{found}", inputs)
        relu.replace_all_uses_with(fused)
        for node in replaced:
            traced.graph.erase_node(node)
    traced.recompile()
    return traced if found else net


def _chain(relu: fx.Node, net: fx.GraphModule) -> tuple[nn.Conv2d, tuple[Any, ...], list[fx.Node]] | None:
    """The convolution before a ReLU, what both take, and the nodes between, last first; None without one."""
    between, node = _skip_identities(relu.args[0], net)
    if (convolution := _convolution(node, net)) is not None:
        return convolution, (node.args[0],), [relu, *between, node]
    if node.op == "call_function" and node.target in ADDITIONS and len(node.users) == 1 and not node.kwargs:
        for one, other in (node.args, node.args[::-1]):
            more, source = _skip_identities(one, net)
            convolution = _convolution(source, net)
            if convolution is not None and isinstance(other, fx.Node) and other is not one:
                return convolution, (source.args[0], other), [relu, *between, node, *more, source]
    return None


def _skip_identities(node: Any, net: fx.GraphModule) -> tuple[list[fx.Node], Any]:
    """Modules that do nothing, such as batch norms that were folded, and what lies before them."""
    skipped = []
    while _module(node, net, nn.Identity) is not None and len(node.users) == 1:
        skipped.append(node)
        node = node.args[0]
    return skipped, node


def _convolution(node: Any, net: fx.GraphModule) -> nn.Conv2d | None:
    """The module called, if it is a convolution that cuDNN can fuse and only one node reads."""
    found = _module(node, net, nn.Conv2d)
    if found is None or len(node.users) != 1 or found.bias is None:
        return None
    return found if found.padding_mode == "zeros" and not isinstance(found.padding, str) and found.groups == 1 else None


def _is_relu(node: fx.Node, net: fx.GraphModule) -> bool:
    if node.op == "call_function" and node.target in RELUS:
        return not node.kwargs.get("inplace") and len(node.args) == 1
    found = _module(node, net, nn.ReLU)
    return found is not None and not found.inplace


def _module(node: Any, net: fx.GraphModule, kind: type[nn.Module]) -> Any:
    """The module that a node calls, if it is of just this kind and as it came: no hooks, nothing of its own."""
    if not isinstance(node, fx.Node) or node.op != "call_module" or len(node.args) != 1 or node.kwargs:
        return None
    module = net.get_submodule(str(node.target))
    return module if type(module) is kind and is_as_it_came(module) else None


def is_as_it_came(module: nn.Module) -> bool:
    """Whether a module computes what its class does: it has no hooks and was not patched."""
    patched = vars(module).keys() & {"forward", "_conv_forward"}
    return not (module._forward_hooks or module._forward_pre_hooks or patched)
