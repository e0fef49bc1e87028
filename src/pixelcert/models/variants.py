"""Variants of a network: copies tuned for speed, classifiers for grids, ReLUs replaced."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from ..basics.machine import out_of_memory, tf32
from ..basics.messages import ModelError, PixelcertWarning, check_whole
from .classifier import Classifier
from .folding import fold_modules
from .heads import fixed_pools, slide_head
from .inspection import Step, Tolerance, any_image, in_words, own_answer, try_out, why_unlike
from .tracing import SWITCHED_OFF

# ── Copies tuned for speed ────────────────────────────────────────────────────────────────────────────────────────────


class TunedClassifier(Classifier):
    """A classifier on its own copy of a network. Nobody else changes the copy, so changes are not looked for."""

    is_copy = True

    def __init__(
        self,
        net: nn.Module,
        *,
        dtype: torch.dtype | None,
        layout: torch.memory_format,
        compiled: bool,
        fused: bool,
        first_convolution: Tensor | None,
        **arguments: Any,
    ) -> None:
        self.compiled, self.fused = compiled, fused
        self._dtype, self._layout, self._first_convolution = dtype, layout, first_convolution
        super().__init__(net, **arguments)

    def normalise(self, images: Tensor) -> Tensor:
        """Return the network's input in the copy's own format, which its first parameter need not have."""
        normalised = super().normalise(images).to(memory_format=self._layout)
        return normalised if self._dtype is None else normalised.to(self._dtype)

    @property
    def first_convolution(self) -> Tensor | None:
        """The kernels before folding."""
        return self._first_convolution


def tuned(
    model: Classifier,
    dtype: torch.dtype | None = None,
    *,
    layer: str = "input",
    compiled: bool = False,
    fused: bool = False,
) -> Classifier:
    """Return a copy of `model` for splitting at `layer`, made once, and again when the network changes.

    It computes in `dtype`, by default the model's own. The last linear layer keeps the model's own format, which costs
    nothing and keeps close classes apart. `fused` joins convolutions with their ReLUs, on NVIDIA's GPUs and for methods
    that only call the network.
    """
    key = ("tuned", dtype, layer, compiled, fused)
    return model.recall(key, lambda: _tune(model, dtype, layer, compiled, fused), values=True)


def _tune(model: Classifier, dtype: torch.dtype | None, layer: str, compiled: bool, fused: bool) -> Classifier:
    steps = [Step("copied", "yes")]
    try:
        net = copy.deepcopy(model.net).requires_grad_(False)
    except Exception as error:  # kept activations, locks and TorchScript raise various errors
        if out_of_memory(error):
            raise
        if dtype is None and not compiled:
            model.surgery(layer).note("copied", "no", in_words(error))
            return model
        raise ModelError(
            f"{model.name} cannot be copied ({in_words(error)}), but another precision or compiling needs a copy: use "
            f"precision='float32' and compile=False."
        ) from error
    inputs = model.normalise(any_image(model))
    net = _fold(net, model.net, inputs, model.final if layer == "final" else layer, steps)
    if dtype is not None:
        _convert(net, dtype, inputs, steps)
        inputs = inputs.to(dtype)
        if isinstance(answer := try_out(net, inputs), Exception):
            raise ModelError(
                f"{model.name} cannot compute in {dtype} ({in_words(answer)}): use precision='float32'."
            ) from answer
    layout = _choose_layout(model, net, inputs, steps)
    arguments, first = model.arguments(), model.first_convolution
    arguments["steps"] = (*arguments["steps"], *steps)
    return TunedClassifier(
        net, dtype=dtype, layout=layout, compiled=compiled, fused=fused, first_convolution=first, **arguments
    )


@tf32(allowed=False)  # its rounding would hide whether the two are the same
def _fold(net: nn.Module, original: nn.Module, inputs: Tensor, layer: str, steps: list[Step]) -> nn.Module:
    """Fold the batch norms of the copy `net`, with nothing in place; return a plain copy if its answer changes.

    Guided Backprop would need an extra copy for each ReLU in place, and other methods would gain nothing.
    """
    for module in net.modules():
        if getattr(module, "inplace", False) is True:
            setattr(module, "inplace", False)  # noqa: B010 — a module's attributes have no types
    try:
        folded = fold_modules(net, inputs.clone(), layer)
        why = why_unlike(original, net, inputs, Tolerance.REORDERED)
    except Exception as error:  # the network's own code may raise anything
        if out_of_memory(error):
            raise
        why = in_words(error)
    if why:
        steps.append(Step("folded", "no", why))
        return copy.deepcopy(original).requires_grad_(False)
    steps.append(folded)
    return net


def _convert(net: nn.Module, dtype: torch.dtype, inputs: Tensor, steps: list[Step]) -> None:
    """Convert all of `net` to `dtype` in place, except for the linear layer that makes the logits."""
    last = _last_linear(net, inputs)
    if not isinstance(last, nn.Linear):
        net.to(dtype)
        steps.append(Step("logits", str(dtype).removeprefix("torch."), last))
        return
    kept, own = copy.deepcopy(last), last.weight.dtype
    net.to(dtype)
    last.to(own).load_state_dict(kept.state_dict())
    last.register_forward_pre_hook(lambda module, given: (given[0].to(own),))
    steps.append(Step("logits", str(own).removeprefix("torch.")))


def _last_linear(net: nn.Module, inputs: Tensor) -> nn.Linear | str:
    """Return the linear layer whose only answer is the network's own, or why there is none."""
    answers: list[tuple[nn.Linear, Tensor]] = []  # kept, so that their memory is not used again

    def remember(module: Any, given: Any, answer: Any) -> None:
        answers.append((module, answer))

    hooks = [module.register_forward_hook(remember) for module in net.modules() if isinstance(module, nn.Linear)]
    logits = try_out(net, inputs)
    for hook in hooks:
        hook.remove()
    if isinstance(logits, Exception):
        return f"untried: {in_words(logits)}"
    called = [module for module, _ in answers]
    makers = (module for module, answer in answers if answer.data_ptr() == logits.data_ptr())
    return next((module for module in makers if called.count(module) == 1), "no linear layer that runs once makes them")


def _choose_layout(model: Classifier, net: nn.Module, inputs: Tensor, steps: list[Step]) -> torch.memory_format:
    """Put `net` into the channels-last layout, or the usual one if it views features as rows, which needs that."""
    reasons: list[str] = []
    for layout, name in ((torch.channels_last, "channels last"), (torch.contiguous_format, "usual")):
        net.to(memory_format=layout)  # type: ignore[call-overload]
        answer = try_out(net, inputs.clone(memory_format=layout))
        if not isinstance(answer, Exception):
            steps.append(Step("layout", name, "; ".join(reasons)))
            return layout
        reasons.append(f"{name}: {in_words(answer)}")
    if not isinstance(own := own_answer(model), Exception):
        raise ModelError(
            f"the copy of {model.name} fails in both memory layouts ({'; '.join(reasons)}): write its forward as a "
            f"function of its input and its parameters."
        )
    steps.append(Step("layout", "usual", f"untried: {in_words(own)}"))
    return layout


# ── Classifiers for grids ─────────────────────────────────────────────────────────────────────────────────────────────


def for_grid(model: Classifier, size: int) -> Classifier:
    """Return the classifier for grids of size × size; its own `size` says how large an image it takes.

    - A network that takes any size (global pooling): the same network.
    - One whose fully connected head has weights for each position (VGG, AlexNet): it slides over the features, and
      its logits are averaged. The parameters are those of `model`, not copies.
    - One that takes no other size (ViT): the same network, with a `size` other than the one asked for. Resize grids to
      it by `resize_image` before anything else.

    A trial for each size finds out which case it is.
    """
    check_whole("size", size, 1, example=2 * model.size)
    return model.recall(("grid", size), lambda: _find(model, size))


def _find(model: Classifier, size: int) -> Classifier:
    if isinstance(error := try_out(model, any_image(model)), Exception):
        raise ModelError(
            f"{model.name} cannot take images of {model.size} × {model.size}, which should be its own size "
            f"({in_words(error)}): give Classifier(…, size=SIDE) the side that it was made for."
        ) from error
    if size == model.size:
        return model
    larger = _slide(model, size) if size > model.size else _resized(model, size, Step("grid", "same network"))
    if isinstance(error := try_out(larger, any_image(larger)), Exception):
        return _resized(model, model.size, Step("grid", "resized", in_words(error)))
    return larger


def _resized(model: Classifier, size: int, step: Step, net: nn.Module | None = None) -> Classifier:
    """Return a classifier for another size, on the same network or on `net`; earlier steps stay on record."""
    arguments = model.arguments() | {"size": size}
    arguments["steps"] = (step, *arguments["steps"]) if step.done == "same network" else (*arguments["steps"], step)
    return Classifier(net or model.net, **arguments)


def _slid(model: Classifier, pools: list[str]) -> nn.Module | str:
    """Return the model's network with its head sliding, or the reason why it cannot slide."""
    if not model.trace:
        return SWITCHED_OFF
    if len(pools) > 1:
        return "it has several such heads"
    return slide_head(model.net, pools[0], model.normalise(any_image(model)))


def _slide(model: Classifier, size: int) -> Classifier:
    """Return the model with its head sliding; the same network if no head has a fixed size, or it cannot slide."""
    if not (pools := fixed_pools(model.net)):
        return _resized(model, size, Step("grid", "same network"))
    net = _slid(model, pools)
    if isinstance(net, str):
        warnings.warn(
            f"{model.name} has a head of a fixed size behind {' and '.join(map(repr, pools))} that cannot slide "
            f"({net}): features of larger images are pooled to that size.",
            PixelcertWarning,
            stacklevel=7,
        )
        return _resized(model, size, Step("grid", "same network", f"the head cannot slide: {net}"))
    # Another name, because at this size it is another function than the plain network: their votes must not mix.
    sliding = _resized(model, size, Step("grid", "sliding head"), net)
    sliding.name = f"{model.name}, sliding head"
    return sliding


# ── ReLUs replaced ────────────────────────────────────────────────────────────────────────────────────────────────────

_RELUS = {F.relu, F.relu_, torch.relu, torch.relu_, Tensor.relu, Tensor.relu_}
_IN_PLACE = {F.relu_, torch.relu_, Tensor.relu_}


class EveryReLU(TorchFunctionMode):
    """A block in which every ReLU and ReLU6 is ``stand_in(values, ceiling)``: modules and calls, in place or reused.

    The network is untouched. ReLU6 clamps at the ceiling; for ReLU it is ∞.
    """

    def __init__(self, stand_in: Callable[[Tensor, float], Tensor]) -> None:
        super().__init__()
        self._stand_in = stand_in

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if (ceiling := _ceiling(func, args, kwargs)) is None:
            return func(*args, **kwargs)
        values: Tensor = args[0] if args else kwargs["input"]
        if not _in_place(func, args, kwargs):
            return self._stand_in(values, ceiling)
        return values.copy_(self._stand_in(values.clone(), ceiling))


def _ceiling(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> float | None:
    """Return where a ReLU clamps from above; None for other functions. ReLU6 is a `hardtanh` from 0 to 6."""
    if func in _RELUS:
        return math.inf
    if func is F.relu6:
        return 6.0
    bounds = {**dict(zip(("input", "min_val", "max_val"), args, strict=False)), **kwargs}
    return float(bounds.get("max_val", 1.0)) if func is F.hardtanh and bounds.get("min_val", -1.0) == 0 else None


def _in_place(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return True if others see the new values: the network may read the same tensor again."""
    position = {F.relu: 1, F.relu6: 1, F.hardtanh: 3}.get(func)
    asked = position is not None and len(args) > position and args[position]
    return bool(asked or kwargs.get("inplace") or func in _IN_PLACE)
