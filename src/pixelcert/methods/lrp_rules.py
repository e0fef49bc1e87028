"""The rules of Layer-wise Relevance Propagation, as gradients.

Let R = x · ∂ for every tensor x of a network. A rule shares R_y among the inputs of a layer y(x) in proportion to their
part in z(x): that is the gradient of z · y/z with y/z held constant. `Rules` gives every function of a network its own
value and that gradient; then one backward pass through the network is all of LRP.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from inspect import signature
from types import SimpleNamespace
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from ..basics.messages import ModelError
from ..models.folding import Folding

STABILISER = 1e-6  # for rules without an ε of their own: zennit's value

# y = x · c element by element, with c held constant: all relevance passes. ReLU and its leaky forms, sums, means,
# maxima and reshapes need no entry, because their gradient does the same; softmax keeps its gradient too.
_PASSING = (
    "gelu silu mish hardswish hardsigmoid sigmoid tanh elu selu celu softplus softsign relu6 hardtanh clamp clip "
    "rms_norm normalize"
)
_PRODUCTS = "mul multiply rmul matmul rmatmul bmm einsum"
_QUOTIENTS = "div divide true_divide truediv"
# Functions whose answers are at least 0: always, or if their inputs are.
_NONNEGATIVE = ("relu", "relu6", "sigmoid", "hardsigmoid", "softmax")
_STAYS_NONNEGATIVE = (
    "max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "adaptive_max_pool2d", "mean", "cat", "flatten", "reshape",
    "view", "permute", "transpose", "contiguous", "clone", "dropout", "to", "float",
)  # fmt: skip
_WITHOUT_RULE = (
    "conv1d conv3d conv_transpose1d conv_transpose2d conv_transpose3d bilinear addmm addbmm baddbmm group_norm "
    "instance_norm local_response_norm exp log pow square sqrt rsqrt reciprocal rdiv rtruediv sin cos prod norm "
    "cosine_similarity"
)


class Box(NamedTuple):
    """An image's pixels, and the lowest and highest that they could be: (B, C, H, W) each."""

    pixels: Tensor
    low: Tensor
    high: Tensor


class Rules(TorchFunctionMode):
    """A block in which functions have the gradients that LRP asks for. Made for one run of a network.

    Args:
        epsilon: of the ε-rule, for linear layers.
        folding: batch norms to merge into their convolutions.
        box: the pixels and their bounds, for a run that begins with pixels: their convolution has the z^B-rule.
    """

    def __init__(self, epsilon: float, folding: Folding, box: Box | None = None) -> None:
        super().__init__()
        self._epsilon, self._folding = epsilon, folding
        self._boxes = {} if box is None else {id(box.pixels): box}
        # By id. The tensors are kept alive, because Python uses the ids of deleted ones again.
        self._nonnegative: dict[int, Tensor] = {}
        self._rules: dict[str, Callable[..., Any]] = {
            "conv2d": self._convolution,
            "batch_norm": self._batch_norm,
            "linear": self._linear,
            "layer_norm": _layer_norm,
            "scaled_dot_product_attention": _attention,
            "multi_head_attention_forward": self._multi_head_attention,
            **dict.fromkeys(_PASSING.split(), _pass_on),
            **dict.fromkeys(_PRODUCTS.split(), _product),
            **dict.fromkeys(_QUOTIENTS.split(), _quotient),
            **dict.fromkeys(_WITHOUT_RULE.split(), _refuse),
        }

    def __exit__(self, *stopped: Any) -> None:
        super().__exit__(*stopped)  # type: ignore[no-untyped-call]
        self._boxes.clear()  # the rules refer to themselves and would keep these until Python's collector runs
        self._nonnegative.clear()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        args = (kwargs.pop("input"), *args) if "input" in kwargs else args
        # Parameters become constants, so that only tensors that depend on the explained layer require a gradient.
        args, kwargs = _replace((args, kwargs), lambda x: x.detach() if isinstance(x, nn.Parameter) else x)
        depending = [x for x in _tensors((*args, *kwargs.values())) if x.requires_grad]
        name = getattr(func, "__name__", "")
        plain = name.removeprefix("__i").strip("_")  # mul, for mul_, __mul__ and __imul__ alike
        in_place = name.startswith("__i") or (name.endswith("_") and not name.endswith("__"))
        rule = self._rules.get(plain) if depending else None
        if rule is None:
            output = func(*args, **kwargs)
        elif kwargs.pop("inplace", False) or in_place:
            func = getattr(Tensor, plain, None) or getattr(F, plain) if in_place else func
            output = args[0].copy_(rule(func, *args, **kwargs))
        else:
            output = rule(func, *args, **kwargs)
        self._follow_sign(plain, args, kwargs, output)
        if plain not in ("conv2d", "linear") and depending and all(id(x) in self._boxes for x in depending):
            self._follow_box(func, args, kwargs, output)
        return output

    def _follow_sign(self, name: str, args: Any, kwargs: Any, output: Any) -> None:
        """Remember the activations that cannot be negative, for which the z⁺-rule is half the work.

        To look at their values would mean to wait for the device.
        """
        given = [id(x) in self._nonnegative for x in _tensors((*args, *kwargs.values()))]
        if args and isinstance(args[0], Tensor) and (output is None or output is args[0]):  # it worked in place
            changed = args[0].untyped_storage().data_ptr()
            views = [key for key, x in self._nonnegative.items() if x.untyped_storage().data_ptr() == changed]
            for key in views:
                del self._nonnegative[key]
        if isinstance(output, Tensor) and _cannot_be_negative(name, args, kwargs, given=all(given)):
            self._nonnegative[id(output)] = output

    def _follow_box(self, func: Any, args: Any, kwargs: Any, output: Any) -> None:
        """Apply to the box whatever the network applies to the pixels before the first convolution, such as padding."""
        if isinstance(output, Tensor):
            low = _apply(func, args, kwargs, lambda x: self._boxes[id(x)].low if id(x) in self._boxes else x)
            high = _apply(func, args, kwargs, lambda x: self._boxes[id(x)].high if id(x) in self._boxes else x)
            self._boxes[id(output)] = Box(output, low, high)

    def _convolution(
        self, func: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None = None, *options: Any, **named: Any
    ) -> Tensor:
        """Share by z⁺, in proportion to a⁺w⁺ + a⁻w⁻, or by z^B, in proportion to aw - low·w⁺ - high·w⁻."""

        def convolve(x: Tensor, w: Tensor, b: Tensor | None = None) -> Any:
            return func(x, w, b, *options, **named)

        weight, bias = self._folding.convolutions.get(weight.data_ptr(), (weight, bias))
        positive, negative = weight.clamp(min=0), weight.clamp(max=0)
        with torch.no_grad():
            y = convolve(inputs, weight, bias)
        if box := self._boxes.get(id(inputs)):
            if inputs.shape[1] == weight.shape[1]:  # without groups: one convolution of all channels
                terms, weights = torch.cat([inputs, *box[1:]], dim=1), torch.cat([weight, -positive, -negative], dim=1)
                return _share(convolve(terms, weights), y)
            return _share(convolve(inputs, weight) - convolve(box.low, positive) - convolve(box.high, negative), y)
        bias = None if bias is None else bias.clamp(min=0)  # a neuron that is always on
        if id(inputs) in self._nonnegative:
            return _share(convolve(inputs, positive, bias), y)  # the same at half the work
        return _share(convolve(inputs.clamp(min=0), positive, bias) + convolve(inputs.clamp(max=0), negative), y)

    def _batch_norm(self, func: Any, inputs: Tensor, running_mean: Tensor | None, *args: Any, **kwargs: Any) -> Any:
        if running_mean is not None and running_mean.data_ptr() in self._folding.batch_norms:
            return inputs
        return func(inputs, running_mean, *args, **kwargs)

    def _linear(self, func: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        y: Tensor = func(inputs, weight, bias)
        return _share(y, y, self._epsilon)

    def _multi_head_attention(self, func: Any, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
        bound = signature(func).bind(*args, **kwargs)
        bound.apply_defaults()
        given = SimpleNamespace(**bound.arguments)
        inputs = (given.query, given.key, given.value)  # (tokens, B, channels)
        extra = (given.bias_k, given.key_padding_mask, given.attn_mask, given.static_k, given.static_v)
        separate = given.in_proj_weight is None or given.query.ndim != 3
        if separate or given.add_zero_attn or any(one is not None for one in extra):
            _refuse(func, what=" with masks, extra keys, separate projections or no batch")
        weights = given.in_proj_weight.chunk(3)
        biases = (None,) * 3 if given.in_proj_bias is None else given.in_proj_bias.chunk(3)
        projected = map(partial(self._linear, F.linear), inputs, weights, biases)
        q, k, v = (x.view(*x.shape[:2], given.num_heads, -1).permute(1, 2, 0, 3) for x in projected)
        mixed = _attention(F.scaled_dot_product_attention, q, k, v).permute(2, 0, 1, 3).flatten(2)
        output = self._linear(F.linear, mixed, given.out_proj_weight, given.out_proj_bias)
        if not given.need_weights:
            return output, None
        attention = (q @ k.transpose(2, 3) / q.shape[-1] ** 0.5).softmax(dim=-1).detach()
        return output, attention.mean(dim=1) if given.average_attn_weights else attention


class _Carry(torch.autograd.Function):
    """A function with the value y and the gradient of z · factor."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, y: Tensor, factor: Tensor) -> Tensor:
        ctx.save_for_backward(factor)
        return y.clone()  # the network may change it in place

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (factor,) = ctx.saved_tensors
        return gradient * factor, None, None


def _carry(z: Tensor, y: Tensor, factor: Tensor) -> Tensor:
    output: Tensor = _Carry.apply(z, y.detach(), factor.detach())  # type: ignore[no-untyped-call]
    return output


def _share(z: Tensor, y: Tensor, epsilon: float = STABILISER) -> Tensor:
    """Return y with its relevance shared in proportion to the terms of z: R_i = z_i R_y / (z + ε sign(z))."""
    whole = z.detach()
    return _carry(z, y, y.detach() / (whole + torch.copysign(whole.new_full((), epsilon), whole)))


def _scale(x: Tensor, factor: float) -> Tensor:
    """Return x with only this factor of its relevance."""
    return _carry(x, x, x.new_full((), factor)) if x.requires_grad and factor != 1 else x


def _pass_on(func: Any, inputs: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    with torch.no_grad():
        y = func(inputs, *args, **kwargs)
    return _share(inputs, y)


def _product(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Give equal shares to all factors that depend on the explained layer."""
    share = 1 / sum(x.requires_grad for x in _tensors((*args, *kwargs.values())))
    return _apply(func, args, kwargs, lambda x: _scale(x, share))


def _quotient(func: Any, dividend: Any, other: Any, **kwargs: Any) -> Any:
    """Give everything to the dividend, because a divisor that depends on the input only normalises."""
    return func(dividend, other.detach() if isinstance(other, Tensor) else other, **kwargs)


def _cannot_be_negative(name: str, args: Any, kwargs: Any, given: bool) -> bool:
    """Return True if a function's answer is known to be at least 0; `given` says whether its tensors are."""
    if name in ("hardtanh", "clamp"):
        bound = kwargs.get("min_val", kwargs.get("min", args[1] if len(args) > 1 else None))
        return isinstance(bound, (int, float)) and bound >= 0
    if name == "add":  # of tensors only, without a factor
        return given and not kwargs and all(isinstance(x, Tensor) for x in args)
    if name == "pad":  # with zeros
        return given and len(args) == 2 and not kwargs.get("value")
    return name in _NONNEGATIVE or (name in _STAYS_NONNEGATIVE and given)


def _layer_norm(
    func: Any,
    inputs: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *cudnn: bool,
) -> Tensor:
    """Subtract the mean as a linear map, and divide by a constant."""
    dims = tuple(range(-len(normalized_shape), 0))
    centred = inputs - inputs.mean(dim=dims, keepdim=True)
    y = centred * (centred.detach().square().mean(dim=dims, keepdim=True) + eps).rsqrt()
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def _attention(func: Any, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Give half to the values; by softmax's gradient, a quarter each to queries and keys."""
    attends, compares = query.requires_grad or key.requires_grad, query.requires_grad and key.requires_grad
    share = (0.5 if value.requires_grad else 1.0) * (0.5 if compares else 1.0)
    value = _scale(value, 0.5 if attends else 1.0)
    output: Tensor = func(_scale(query, share), _scale(key, share), value, *args, **kwargs)
    return output


def _refuse(func: Any, *args: Any, what: str = "", **kwargs: Any) -> NoReturn:
    name = getattr(func, "__name__", str(func)).strip("_")
    raise ModelError(
        f"lrp has no rule for {name}{what}: build the layer from functions that have one (conv2d, linear, layer_norm, "
        f"rms_norm, scaled_dot_product_attention, the usual activations), or use another method."
    )


def _replace(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Return `value` with `change` applied to the tensors in it."""
    if isinstance(value, Tensor):
        return change(value)
    if type(value) is dict:
        return {key: _replace(item, change) for key, item in value.items()}
    return type(value)(_replace(item, change) for item in value) if type(value) in (tuple, list) else value


def _apply(func: Any, args: Any, kwargs: Any, change: Callable[[Tensor], Tensor]) -> Any:
    args, kwargs = _replace((args, kwargs), change)
    return func(*args, **kwargs)


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif type(value) in (tuple, list):
            yield from _tensors(value)
