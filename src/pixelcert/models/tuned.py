"""Tuned classifiers: copies made for speed, the same function up to rounding.

Batch norms are folded into convolutions, memory is laid out channels-last, the arithmetic is in another number format
where that is asked for, and the halves of the network are compiled where it pays. The certificate is about the function
as it is computed, so none of this touches its soundness; what was used is in the votes' provenance.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import ModelError
from ..tf32 import tf32
from .batch_norm_folding import fold_modules
from .classifier import Classifier
from .fused_convolution import fuse
from .local_parts import LocalParts
from .split import Split
from .trial import any_image, close

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
