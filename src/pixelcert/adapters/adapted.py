"""Adapted: a foreign explanation as an explainer that is repeatable and leaves its network as it was."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from ..basics.files import PLAIN, plain, sha256
from ..basics.generators import moved, put_back, seed_all, states
from ..basics.messages import ArgumentError, PixelcertWarning
from ..explainer import NO_MODEL, RANDOM, Explainer, Explanation, NoModel
from ..models import Classifier

Call = Callable[[Tensor, Tensor], Explanation]  # of images in pixel space and their targets


class Adapted(Explainer):
    """An explainer made of a foreign explanation.

    A certificate needs a deterministic function of one image. An explanation that draws random numbers from the global
    generators becomes one here: each image is explained by itself, with the generators at a seed made of its pixels and
    of `seed`. So different images get different random numbers, and the same image always the same ones.
    """

    params: Mapping[str, Any] = MappingProxyType({})
    passes: int = 1

    def __init__(
        self,
        call: Call,
        name: str,
        params: Mapping[str, Any],
        model: Classifier | NoModel = NO_MODEL,
        layer: str = "",
        seed: int = 0,
        passes: int = 1,
    ) -> None:
        self._call, self._seed, self._random = call, seed, False  # random: it has drawn random numbers
        self.name, self.model, self.layer, self.passes = name, model, layer, passes
        self.params = plain({**params, **({"seed": seed} if seed else {})})  # only a run shows if it matters

    def __repr__(self) -> str:
        return f"Adapted({self.name}, {self.params}, layer={self.layer!r}, model={self.model!r})"

    def explain(self, images: Tensor, targets: Tensor) -> Explanation:
        """Return maps and, where there is a model, logits of images (B, C, H, W), for one target each."""
        if not self._random:
            answer, self._random = self._explain(images, targets, self._seed)
            if not self._random:
                return answer
            warnings.warn(
                f"{self.name} draws random numbers: each image is explained by itself, with a seed made of its pixels.",
                PixelcertWarning,
                stacklevel=2,
            )
        seeds = [int(sha256(image.cpu().numpy(), str(self._seed).encode())[:15], 16) for image in images.contiguous()]
        each = zip(images[:, None], targets[:, None], seeds, strict=True)
        single = [self._explain(image, target, seed)[0] for image, target, seed in each]
        logits = [answer.logits for answer in single if answer.logits is not None]
        return Explanation(torch.cat([answer.maps for answer in single]), torch.cat(logits) if logits else None)

    @property
    def surgery(self) -> Mapping[str, str]:
        """The change made to an explanation that draws random numbers."""
        return {RANDOM: "seeded for each image"} if self._random else {}

    def _explain(self, images: Tensor, targets: Tensor, seed: int) -> tuple[Explanation, bool]:
        """Return the answer to a batch, and True if random numbers were drawn for it."""
        untouched = as_found(self.model.net) if isinstance(self.model, Classifier) else nullcontext()
        with repeatable(seed) as drawn, torch.enable_grad(), untouched:  # the first lets one thread in at a time
            maps, logits = self._call(images, targets)
        if logits is None and isinstance(self.model, Classifier):  # the library returns none: one more pass
            with torch.no_grad():
                logits = self.model(images)
        return Explanation(maps.detach(), None if logits is None else logits.detach()), drawn()


# ── At the door ───────────────────────────────────────────────────────────────────────────────────────────────────────


def check_model(model: object) -> Classifier:
    """Return the model; refuse anything but a classifier."""
    if not isinstance(model, Classifier):
        given = "missing" if model is None else type(model).__name__
        raise ArgumentError(
            f"model is {given}: give pixelcert.Classifier(net, mean=…, std=…), which knows how images are normalised."
        )
    return model


def check_arguments(name: str, arguments: Collection[str], own: Collection[str]) -> None:
    """Refuse arguments that pixelcert gives by itself."""
    if given := [argument for argument in own if argument in arguments]:
        raise ArgumentError(f"{name} was given {', '.join(given)}: leave it out, because pixelcert gives it.")


def inputs_of(model: Classifier, network: object, holder: str) -> Callable[[Tensor], Tensor]:
    """Return a function that turns images in pixel space into the inputs of `network`, which `holder` explains.

    The classifier's own network gets normalised images, and the classifier itself gets pixels. Another network is
    refused, because its normalisation is not known.
    """
    check_model(model)
    if network is model:
        return torch.clone
    if network is model.net:
        return lambda images: model.split("input").features(images)  # refuses a network in training mode
    other = getattr(network, "__qualname__", type(network).__name__)
    raise ArgumentError(
        f"{holder} explains {other}, which is not the network of model={model.name}: make it with model.net, or make "
        f"the Classifier of the network that it explains."
    )


def layer_names(net: nn.Module, layers: Collection[Any], holder: str) -> str:
    """Return the names that modules have in `net`."""
    names = {id(module): name for name, module in net.named_modules()}
    if any(id(layer) not in names for layer in layers):
        raise ArgumentError(f"{holder} explains a layer that is not in the network of model: make it with model.net.")
    return ", ".join(names[id(layer)] for layer in layers)


# ── Parameters ────────────────────────────────────────────────────────────────────────────────────────────────────────


def params_of(thing: object, besides: Collection[str] = ()) -> dict[str, Any]:
    """Return the public attributes of an object that are numbers, names or tuples."""
    public = {name: value for name, value in vars(thing).items() if not name.startswith("_") and value is not None}
    return {name: value for name, value in public.items() if name not in besides and isinstance(value, (*PLAIN, tuple))}


def name_and_params(function: Any) -> tuple[str, dict[str, Any]]:
    """Return the name of a function, with that of its package, and the arguments that `functools.partial` has fixed."""
    if isinstance(function, partial):
        name, inner = name_and_params(function.func)
        return name, inner | {str(index): value for index, value in enumerate(function.args)} | function.keywords
    package = (getattr(function, "__module__", None) or "__main__").partition(".")[0]  # exec leaves it None
    return str(plain(function)) if package == "__main__" else f"{package}.{plain(function)}", {}


# ── Nothing left behind ───────────────────────────────────────────────────────────────────────────────────────────────

_HOOKS = [name for name in vars(nn.Module()) if "_hooks" in name]


@contextmanager
def as_found(net: nn.Module) -> Iterator[None]:
    """Restore the submodules, hooks, modes, gradients and `requires_grad` of `net` when the block ends.

    Hooks that an object registered earlier, when it was made, stay. Values of parameters are not restored, because that
    would take a copy of the network.
    """
    modules = [
        (module, module.training, dict(module._modules), {kind: set(getattr(module, kind)) for kind in _HOOKS})
        for module in net.modules()
    ]
    parameters = [(parameter, parameter.requires_grad, parameter.grad) for parameter in net.parameters()]
    net.zero_grad(set_to_none=True)  # so that nothing is added to the gradient that was found
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


@contextmanager
def repeatable(seed: int) -> Iterator[Callable[[], bool]]:
    """Set the global generators of torch, NumPy and Python to `seed`, and put them back afterwards.

    The function that it yields returns True if any of them was used inside. It cannot see generators that an object
    keeps for itself.
    """
    with put_back():
        seed_all(seed)
        start, used = states(), False
        try:
            yield lambda: used
        finally:
            used = moved(start, states())
