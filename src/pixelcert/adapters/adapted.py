"""Adapted: a foreign explanation as an explainer, made repeatable, and leaving its network as it was."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..basics.files import PLAIN, plain
from ..basics.messages import ArgumentError
from ..explainer import NO_MODEL, Explainer, Explanation, NoModel
from ..models import Classifier

Call = Callable[[Tensor, Tensor], Explanation]  # of images in pixel space and their targets


@dataclass(eq=False)
class Adapted(Explainer):
    """An explainer made of a foreign explanation.

    A certificate needs a deterministic function of one image. An explanation that draws random numbers from the
    global generators is made one: every image is explained by itself, with the generators at `seed`.
    """

    run: Call = field(repr=False)
    name: str
    params: Mapping[str, Any]
    model: Classifier | NoModel = NO_MODEL
    layer: str = ""
    seed: int = 0
    passes: int = 1
    _random: bool = field(default=False, init=False, repr=False)  # seen to draw random numbers

    def __post_init__(self) -> None:
        if self.seed:  # whether it matters is not known before the first image
            self.params = {**self.params, "seed": self.seed}

    def explain(self, images: Tensor, targets: Tensor) -> Explanation:
        """Maps and, where there is a model, logits of images (B, C, H, W) in pixel space, for one target each."""
        if not self._random:
            answer, self._random = self._run(images, targets)
            if len(images) == 1 or not self._random:
                return answer
        alone = [self._run(images[i : i + 1], targets[i : i + 1])[0] for i in range(len(images))]
        logits = [answer.logits for answer in alone if answer.logits is not None]
        return Explanation(torch.cat([answer.maps for answer in alone]), torch.cat(logits) if logits else None)

    @torch.enable_grad()
    def _run(self, images: Tensor, targets: Tensor) -> tuple[Explanation, bool]:
        """The answer, and whether random numbers were drawn for it."""
        untouched = as_found(self.model.net) if isinstance(self.model, Classifier) else nullcontext()
        with untouched, repeatable(self.seed) as drawn:
            maps, logits = self.run(images, targets)
        return Explanation(maps.detach(), None if logits is None else logits.detach()), drawn()


def check_model(model: object) -> None:
    if not isinstance(model, Classifier):
        raise ArgumentError(f"model is {type(model).__name__}: give pixelcert.Classifier(net, mean=…, std=…).")


def inputs_of(model: Classifier, network: object, holder: str) -> Callable[[Tensor], Tensor]:
    """Turns images in pixel space into what `network`, which the foreign `holder` explains, expects to see.

    That is the normalised image for the classifier's own network, and the pixels themselves for the classifier. No
    other network will do: its normalisation is not known.
    """
    check_model(model)
    if network is model:
        return torch.clone
    if network is model.net:
        return lambda images: model.split("input").features(images)  # refuses a network in training mode
    what = type(network).__name__ if not hasattr(network, "__qualname__") else network.__qualname__
    raise ArgumentError(
        f"{holder} explains {what}, which is not the network of model={model.name}: make it with model.net, or make "
        f"the Classifier of the network that it explains."
    )


def logits_of(model: Classifier, images: Tensor) -> Tensor:
    """The logits by one more run, for explanations that do not hand theirs out."""
    with torch.no_grad():
        return model(images)


_HOOKS = (
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_backward_hooks",
    "_backward_pre_hooks",
)


@contextmanager
def as_found(net: nn.Module) -> Iterator[None]:
    """Afterwards `net` has its old submodules, hooks, modes, gradients and `requires_grad`, also after an error.

    Hooks that an object registered before, when it was made, are part of what was found. Values of parameters are not
    watched, since that would take a copy of the network.
    """
    modules = [(module, module.training, dict(module._modules), _hooks(module)) for module in net.modules()]
    parameters = [(parameter, parameter.requires_grad, parameter.grad) for parameter in net.parameters()]
    for parameter, _, _ in parameters:
        parameter.grad = None  # what is added to a gradient must not be added to the one that was found
    try:
        yield
    finally:
        for module, training, children, hooks in modules:
            module.training = training
            module._modules.update(children)
            for kind, known in hooks.items():
                registered = getattr(module, kind)
                for key in registered.keys() - known:
                    del registered[key]
        for parameter, requires_grad, gradient in parameters:
            parameter.requires_grad_(requires_grad)
            parameter.grad = gradient


def _hooks(module: nn.Module) -> dict[str, set[int]]:
    return {kind: set(getattr(module, kind)) for kind in _HOOKS}


@contextmanager
def repeatable(seed: int) -> Iterator[Callable[[], bool]]:
    """The global generators of torch, NumPy and Python at `seed`, and back where they were afterwards.

    Gives a function that tells whether any of them was used inside. Generators that an object keeps for itself are
    out of reach.
    """
    found = _states()
    for generator in _torch_generators():
        generator.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)
    start, used = _states(), False
    try:
        yield lambda: used
    finally:
        end = _states()  # more than at the start, if CUDA came into use
        used = len(end) > len(start) or not all(_same(one, other) for one, other in zip(start, end, strict=True))
        _restore(found)


def _torch_generators() -> list[torch.Generator]:
    return [torch.default_generator, *torch.cuda.default_generators]  # the latter are none until CUDA is in use


def _states() -> list[Any]:
    """Where Python's, NumPy's and torch's generators are."""
    return [random.getstate(), np.random.get_state(), *(one.get_state() for one in _torch_generators())]


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    return all(np.array_equal(mine, theirs) for mine, theirs in zip(one, other, strict=True))


def _restore(states: list[Any]) -> None:
    python, numpy, *torches = states
    random.setstate(python)
    np.random.set_state(numpy)
    for generator, state in zip(_torch_generators(), torches, strict=False):
        generator.set_state(state)


def own_settings(thing: object, besides: Collection[str] = ()) -> dict[str, Any]:
    """The public attributes of an object that are numbers, names or tuples of them."""
    public = {name: value for name, value in vars(thing).items() if not name.startswith("_") and value is not None}
    kept = {name: value for name, value in public.items() if name not in besides}
    return {name: plain(value) for name, value in kept.items() if isinstance(value, (*PLAIN, tuple))}


def function_settings(function: Any) -> tuple[str, dict[str, Any]]:
    """The name of a function, with that of its package, and what `functools.partial` has fixed of it."""
    if not isinstance(function, partial):
        package = (getattr(function, "__module__", None) or "__main__").partition(".")[0]  # exec leaves it None
        return str(plain(function)) if package == "__main__" else f"{package}.{plain(function)}", {}
    name, inner = function_settings(function.func)
    fixed = {str(index): value for index, value in enumerate(function.args)} | function.keywords
    return name, inner | {key: plain(value) for key, value in fixed.items()}


def layer_names(net: nn.Module, layers: Collection[Any], holder: str) -> str:
    """The names that modules have in `net`."""
    names = {id(module): name for name, module in net.named_modules()}
    if any(id(layer) not in names for layer in layers):
        raise ArgumentError(f"{holder} explains a layer that is not in the network of model: make it with model.net.")
    return ", ".join(names[id(layer)] for layer in layers)
