"""Variants of a network: copies tuned for speed, classifiers for grids, ReLUs replaced."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from ..basics.machine import tf32
from ..basics.messages import ArgumentError, ModelError, PixelcertWarning
from .classifier import Classifier
from .cropping import LocalParts
from .folding import fold_modules, fuse
from .heads import fixed_pool, slide_head
from .inspection import any_image, close
from .splitting import Split

# How far a copy's logits may be from those of the network, as a share of the largest.
_SAME = 1e-3
_ROUNDED = 0.05


class TunedClassifier(Classifier):
    """A classifier on its own copy of a network. Nobody else changes it, so nothing in it is checked again."""

    _watched = False
    compiled: bool
    fused: bool
    _dtype: torch.dtype | None
    _first_convolution: Tensor | None

    @classmethod
    def of(
        cls, model: Classifier, net: nn.Module, dtype: torch.dtype | None, compiled: bool, fused: bool
    ) -> TunedClassifier:
        tuned = model.around(net, model.name, model.size, cls)
        tuned._dtype, tuned.compiled, tuned.fused = dtype, compiled, fused
        tuned._first_convolution = model.first_convolution
        return tuned

    def normalise(self, images: Tensor) -> Tensor:
        """In the format asked for: the network's first parameters may be those of its last layer."""
        normalised = super().normalise(images)
        return normalised if self._dtype is None else normalised.to(self._dtype)

    @property
    def first_convolution(self) -> Tensor | None:
        """The kernels before folding."""
        return self._first_convolution

    def _check_modules(self) -> None:
        pass

    def _split(self, layer: str, change: Callable[[nn.Module], nn.Module] = lambda part: part) -> Split:
        plain = super()._split(layer, change)
        if self.compiled:
            return Split(*map(_compiled, plain))
        if self.fused and self._agree(plain, fused := super()._split(layer, fuse), _ROUNDED):
            return fused
        return plain

    def _local_parts(self, layer: str) -> LocalParts:
        plain = super()._local_parts(layer)
        if self.compiled:
            return plain.each(torch.compile)
        if not (self.fused and plain.parts):
            return plain
        features, fused = self.split(layer).features, plain.each(fuse)
        return fused if self._agree(Split(features, plain.run), Split(features, fused.run), _ROUNDED) else plain


def tuned(
    model: Classifier,
    dtype: torch.dtype | None = None,
    *,
    layer: str = "input",
    compiled: bool = False,
    fused: bool = False,
) -> Classifier:
    """A copy of `model` for splitting at `layer`, made once, and again when the network changes.

    It computes in `dtype`, by default the model's own, except for the last linear layer: in the model's own format that
    costs nothing, and classes that are close stay apart. `fused` joins convolutions with their ReLUs, on NVIDIA's GPUs
    and for whoever only calls the network.
    """
    key = ("tuned", dtype, layer, compiled, fused)
    return model.recall(key, lambda: _tune(model, dtype, layer, compiled, fused), values=True)


def _tune(model: Classifier, dtype: torch.dtype | None, layer: str, compiled: bool, fused: bool) -> Classifier:
    inputs = model.normalise(any_image(model.channels, model.size, model.device))
    try:
        net = _folded(model.net, inputs, model.final if layer == "final" else layer)
    except (RuntimeError, TypeError) as error:  # by `copy.deepcopy`: kept activations, locks, TorchScript
        if dtype is None and not compiled:
            return model
        reason = str(error).partition(".")[0]
        raise ModelError(
            f"{model.name} cannot be copied ({reason}), as another precision and compiling need: use "
            f"precision='float32' and compile=False."
        ) from error
    if dtype is not None:
        _convert(net, dtype, inputs)
        _try_out(net, inputs.to(dtype), model.name)
    tuned = TunedClassifier.of(model, net, dtype, compiled, fused)
    tuned._layout = _choose_layout(net, inputs.to(dtype or inputs.dtype))
    return tuned


@torch.no_grad()
def _choose_layout(net: nn.Module, inputs: Tensor) -> torch.memory_format:
    """Channels-last for `net` and its images; the usual layout where it views features as rows, which needs that."""
    for layout in (torch.channels_last, torch.contiguous_format):
        net.to(memory_format=layout)  # type: ignore[call-overload]
        try:
            net(inputs.clone(memory_format=layout))
        except Exception:  # whatever its code raises
            continue
        break
    return layout


def _compiled(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Compiled under code of its own: of functions that share theirs, torch compiles the first few alone."""
    if isinstance(function, FunctionType):
        code, about = function.__code__.replace(), (function.__globals__, function.__name__, function.__defaults__)
        function = FunctionType(code, *about, function.__closure__)
    compiled: Callable[[Tensor], Tensor] = torch.compile(function)
    return compiled


@tf32(allowed=False)  # whose rounding would hide whether the two are the same
@torch.no_grad()
def _folded(net: nn.Module, inputs: Tensor, layer: str) -> nn.Module:
    """A copy of `net` with its batch norms folded and nothing in place; just a copy where that changes what it answers.

    Guided Backprop would have to copy what a ReLU does in place, and to work in place saves the others nothing.
    """
    folded = copy.deepcopy(net).requires_grad_(False)
    for module in folded.modules():
        if getattr(module, "inplace", False) is True:
            setattr(module, "inplace", False)  # noqa: B010 — a module's attributes have no types
    try:
        fold_modules(folded, inputs.clone(), layer)
        expected, answer = (_logits(each(inputs.clone())) for each in (net, folded))
        if close(answer, expected, _SAME):
            return folded
    except torch.OutOfMemoryError:
        raise
    except Exception:  # the network's code may look for the batch norms that are gone, or for images of another size
        pass
    return copy.deepcopy(net).requires_grad_(False)


def _convert(net: nn.Module, dtype: torch.dtype, inputs: Tensor) -> None:
    """All of `net` in `dtype` but the linear layer that makes the logits, in place."""
    last = _last_linear(net, inputs)
    kept = None if last is None else copy.deepcopy(last)
    net.to(dtype)
    if last is not None and kept is not None:
        own = kept.weight.dtype
        last.to(own).load_state_dict(kept.state_dict())
        last.register_forward_pre_hook(lambda module, given: (given[0].to(own),))


@torch.no_grad()
def _try_out(net: nn.Module, inputs: Tensor, name: str) -> None:
    try:
        net(inputs)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        raise ModelError(f"{name} cannot compute in {inputs.dtype} ({reason}): use precision='float32'.") from error


@torch.no_grad()
def _last_linear(net: nn.Module, inputs: Tensor) -> nn.Linear | None:
    """The linear layer whose only answer is the network's own."""
    answers: list[tuple[nn.Linear, Tensor]] = []  # kept, so that their memory is not used again

    def remember(module: Any, given: Any, answer: Any) -> None:
        answers.append((module, answer))

    hooks = [module.register_forward_hook(remember) for module in net.modules() if isinstance(module, nn.Linear)]
    try:
        logits = _logits(net(inputs.clone()))
    finally:
        for hook in hooks:
            hook.remove()
    called = [module for module, _ in answers]
    makers = (module for module, answer in answers if answer.data_ptr() == logits.data_ptr())
    return next((module for module in makers if called.count(module) == 1), None)


def _logits(answer: Any) -> Tensor:
    logits: Tensor = getattr(answer, "logits", answer)  # as Hugging Face's models answer
    return logits


def for_grid(model: Classifier, size: int) -> Classifier:
    """The classifier for grids of size × size; its own `size` says how large an image it takes.

    - A network that takes any size (global pooling): the same network.
    - One whose fully connected head has weights for each position (VGG, AlexNet): it slides over the features, and
      its logits are averaged. The parameters are those of `model`, not copies.
    - One that takes no other size (ViT): `model` itself, with a `size` other than the one asked for. Resize grids to it
      by `resize_image` before anything else.

    What a network takes is found by trying, once for each size.
    """
    if size < 1:
        raise ArgumentError(f"size={size} is not a number of pixels: use one such as {2 * model.size}.")
    return model.recall(("grid", size), lambda: _find(model, size))


def _find(model: Classifier, size: int) -> Classifier:
    if (error := _refusal(model)) is not None:
        raise ModelError(
            f"{model.name} cannot take images of {model.size} × {model.size}, said to be its own size ({error}): give "
            f"Classifier(…, size=SIDE) the side that it was made for."
        ) from error
    if size == model.size:
        return model
    sliding = _slide(model, size) if size > model.size else None
    larger = sliding or model.around(model.net, model.name, size, Classifier)
    return larger if _refusal(larger) is None else model


def _slide(model: Classifier, size: int) -> Classifier | None:
    """With its head sliding; None where it has no head of a fixed size, or a warning where that cannot slide."""
    pool = fixed_pool(model.net)
    if pool is None:
        return None
    net = slide_head(model.net, pool, model.normalise(_blank(model)))
    if net is None:
        warnings.warn(
            f"{model.name} has a head of a fixed size behind {pool!r} that cannot slide: features of larger images are "
            f"pooled to that size.",
            PixelcertWarning,
            stacklevel=7,
        )
        return None
    # Another name, because at this size it is another function than the plain network: their votes must not mix.
    return model.around(net, f"{model.name}, sliding head", size, Classifier)


def _refusal(model: Classifier) -> Exception | None:
    """What `model` says against an image of its size."""
    try:
        with torch.inference_mode():
            model(_blank(model))
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, AssertionError, ValueError, IndexError) as error:  # shapes, assertions, tables of positions
        return error
    return None


def _blank(model: Classifier) -> torch.Tensor:
    return torch.zeros(1, model.channels, model.size, model.size, device=model.device)


_RELUS = {F.relu, F.relu_, torch.relu, torch.relu_, Tensor.relu, Tensor.relu_}
_IN_PLACE = {F.relu_, torch.relu_, Tensor.relu_}


class EveryReLU(TorchFunctionMode):
    """While active, every ReLU and ReLU6 is ``stand_in(values, ceiling)``, a module or a call, in place or reused.

    The network is untouched. The ceiling is where ReLU6 clamps from above, ∞ for ReLU.
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
    """Where a ReLU clamps from above; None for other functions. ReLU6 is a `hardtanh` from 0 to 6."""
    if func in _RELUS:
        return math.inf
    if func is F.relu6:
        return 6.0
    bounds = {**dict(zip(("input", "min_val", "max_val"), args, strict=False)), **kwargs}
    return float(bounds.get("max_val", 1.0)) if func is F.hardtanh and bounds.get("min_val", -1.0) == 0 else None


def _in_place(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether others see the new values: the network may read the same tensor again."""
    position = {F.relu: 1, F.relu6: 1, F.hardtanh: 3}.get(func)
    asked = position is not None and len(args) > position and args[position]
    return bool(asked or kwargs.get("inplace") or func in _IN_PLACE)
