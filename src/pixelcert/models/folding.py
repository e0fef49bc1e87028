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
from .inspection import Step, in_words
from .tracing import trace


class Folding(NamedTuple):
    """Folded parameters to use in place of the network's own, and the batch norms that they make the identity."""

    convolutions: dict[int, tuple[Tensor, Tensor]]  # address of a weight → folded weight and bias
    batch_norms: frozenset[int]  # addresses of running means


def fold_batch_norms(network: Callable[[Tensor], Tensor], inputs: Tensor) -> tuple[Folding, Tensor]:
    """Return the folding of `network` as it runs on `inputs`, and its answer.

    A pair is folded if the convolution's output goes only to the batch norm, and if neither is used twice. The other
    batch norms stay as affine layers, with a warning.
    """
    record, answer = _record(network, inputs)
    pairs = record.pairs()
    if left := len(record.batch_norms) - len(pairs):
        warnings.warn(
            f"{left} of {len(record.batch_norms)} batch norms do not follow a convolution of their own and are "
            f"explained as affine layers: their shift takes part of the relevance.",
            PixelcertWarning,
            stacklevel=2,
        )
    convolutions = {convolution.weight.data_ptr(): _fold(convolution, norm) for convolution, norm in pairs}
    return Folding(convolutions, frozenset(norm.running_mean.data_ptr() for _, norm in pairs)), answer


def fold_modules(net: nn.Module, inputs: Tensor, layer: str = "") -> Step:
    """Fold pairs of plain modules of `net` in place, as it runs on `inputs`; say how many, and why not the others.

    The output of the module `layer` stays the same: no batch norm behind it is folded into a convolution inside it.
    """
    # A subclass of a batch norm may do more than its name says, such as clip.
    names = {
        id(module.weight if isinstance(module, nn.Conv2d) else module.running_mean): name
        for name, module in net.named_modules()
        if isinstance(module, nn.Conv2d) or type(module) is nn.BatchNorm2d
    }
    record = _record(net, inputs)[0]
    pairs, folded, parted = record.pairs(), 0, 0
    for convolution, norm in pairs:
        first, second = names.get(id(convolution.weight)), names.get(id(norm.running_mean))
        if first is None or second is None:
            continue
        if _inside(first, layer) and not _inside(second, layer):
            parted += 1
            continue
        weight, bias = _fold(convolution, norm)
        module: Any = net.get_submodule(first)
        module.weight, module.bias = nn.Parameter(weight, False), nn.Parameter(bias, False)
        net.set_submodule(second, nn.Identity())
        folded += 1
    runs = Counter(id(norm.running_mean) for norm in record.batch_norms)
    special = sum(count for norm, count in runs.items() if norm not in names or count > 1)
    alone = len(record.batch_norms) - folded - parted - special
    reasons = {
        "do not follow a plain convolution of their own": alone,
        "are not plain modules that run once": special,
        f"lie behind {layer}": parted,
    }
    why = ", ".join(f"{count} {reason}" for reason, count in reasons.items() if count)
    return Step("folded", f"{folded} of {len(record.batch_norms)}", why)


def _inside(name: str, layer: str) -> bool:
    return name == layer or name.startswith(f"{layer}.")


def _record(network: Callable[[Tensor], Tensor], inputs: Tensor) -> tuple[_Record, Tensor]:
    with torch.no_grad(), _Record() as record:
        return record, network(inputs)


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


class _Record(TorchFunctionMode):
    """A record of every function that a network calls, and of the tensors between them."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions: dict[int, _Convolution] = {}  # by the id of their output
        self.batch_norms: list[_BatchNorm] = []
        self._readers: Counter[int] = Counter()
        self._alive: list[object] = []  # Python uses the ids of deleted tensors again

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
        """Return every batch norm that can be folded, behind its convolution."""
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
    """relu(convolution(inputs) + other), in one kernel when no gradient is needed; the kernel has no backward pass."""

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
    """Run cuDNN's kernel; `options` are stride, padding and dilation."""
    if other is None:
        return torch.cudnn_convolution_relu(inputs, weight, bias, *options, 1)  # type: ignore[call-arg]
    return torch.cudnn_convolution_add_relu(inputs, weight, other, 1.0, bias, *options, 1)  # type: ignore[call-arg]


def fuse(net: nn.Module) -> tuple[nn.Module, str]:
    """Return `net` with its convolutions and ReLUs fused, and ""; `net` itself and the reason if none can be."""
    traced = trace(net)
    if isinstance(traced, Exception):
        return net, f"it cannot be traced: {in_words(traced)}"
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
    return (traced, "") if found else (net, "no convolution feeds only a ReLU")


class Fusing:
    """The change of a network's parts by `fuse`, with the reasons where it changed nothing."""

    def __init__(self) -> None:
        self._reasons: list[str] = []  # of each part; "" where something was fused

    def __call__(self, part: nn.Module) -> nn.Module:
        fused, why = fuse(part)
        self._reasons.append(why)
        return fused

    @property
    def why_not(self) -> str:
        """The reason why no part was fused; "" if one was."""
        if not self._reasons:
            return "the network is split by hooks"
        return self._reasons[-1] if all(self._reasons) else ""


def _chain(relu: fx.Node, net: fx.GraphModule) -> tuple[nn.Conv2d, tuple[Any, ...], list[fx.Node]] | None:
    """Return the convolution before a ReLU, the inputs of both, and the nodes between, last first; None without one."""
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
    """Return modules that do nothing, such as batch norms that were folded, and the node before them."""
    skipped = []
    while _module(node, net, nn.Identity) is not None and len(node.users) == 1:
        skipped.append(node)
        node = node.args[0]
    return skipped, node


def _convolution(node: Any, net: fx.GraphModule) -> nn.Conv2d | None:
    """Return the module called, if it is a convolution that cuDNN can fuse and only one node reads."""
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
    """Return the module that a node calls, if it is exactly of this kind and unchanged: no hooks, no patches."""
    if not isinstance(node, fx.Node) or node.op != "call_module" or len(node.args) != 1 or node.kwargs:
        return None
    module = net.get_submodule(str(node.target))
    return module if type(module) is kind and is_unchanged(module) else None


def is_unchanged(module: nn.Module) -> bool:
    """Return True for a module that computes what its class does: without hooks, and not patched."""
    patched = vars(module).keys() & {"forward", "_conv_forward"}
    return not (module._forward_hooks or module._forward_pre_hooks or patched)
