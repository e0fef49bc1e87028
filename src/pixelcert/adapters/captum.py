"""Captum: attribution objects, such as ``Saliency(net)`` or ``LayerGradCam(net, layer)``."""

from __future__ import annotations

import inspect
from math import prod
from typing import Any

from torch import Tensor

from ..basics.files import plain
from ..basics.messages import ArgumentError, ExplainerError
from ..explainer import Explanation
from ..models import Classifier
from .adapted import Adapted, inputs_of, layer_names, logits_of, own_settings

_GIVEN = ("inputs", "target")  # by pixelcert, for every noisy image
_MIXING = ("FeaturePermutation", "LayerFeaturePermutation")
_SAMPLES = ("n_steps", "nt_samples", "n_samples", "perturbations_per_eval")  # all of them in memory at once


def from_captum(
    attribution: Any, model: Classifier, *, name: str | None = None, seed: int = 0, **kwargs: Any
) -> Adapted:
    """A Captum `attribution` of ``model.net`` (or of `model` itself, then with respect to pixels) as an explainer.

    Args:
        kwargs: those of its ``attribute``, except inputs and target. Baselines are in the space of the network's
            input: for ``model.net`` a black image is ``model.normalise(torch.zeros(1, 3, 224, 224))``.
        seed: for attributions that draw random numbers (``NoiseTunnel``, ``GradientShap``, ``Lime`` …).
    """
    name = name or _name(attribution)
    if type(attribution).__name__ in _MIXING:
        raise ArgumentError(f"{name} mixes the images of a batch, so votes would not be independent: use Occlusion.")
    prepare = inputs_of(model, attribution.forward_func, name)
    parameters = inspect.signature(attribution.attribute).parameters
    _check_arguments(name, parameters, kwargs)
    targeted = "target" in parameters or _takes_any(parameters)
    layer = _layers(attribution, model, name)

    def run(images: Tensor, targets: Tensor) -> Explanation:
        target = {"target": targets} if targeted else {}  # a neuron's attribution has none
        inputs = prepare(images).requires_grad_()  # a layer of frozen parameters has no gradient otherwise
        maps = attribution.attribute(inputs, **target, **kwargs)
        return Explanation(_one_map(maps, name), logits_of(model, images))

    params = _settings(attribution) | {key: plain(value) for key, value in kwargs.items()}
    return Adapted(run, name, params, model, layer, seed, _forwards(parameters, kwargs))


def _inner(attribution: Any) -> Any:
    """What a NoiseTunnel is around."""
    return getattr(attribution, "attribution_method", attribution)


def _name(attribution: Any) -> str:
    inner = _inner(attribution)
    return f"captum.{type(attribution).__name__}" + (f"({type(inner).__name__})" if inner is not attribution else "")


def _settings(attribution: Any) -> dict[str, Any]:
    settings = own_settings(_inner(attribution))
    if hasattr(_inner(attribution), "_multiply_by_inputs"):
        settings["multiply_by_inputs"] = _inner(attribution).multiplies_by_inputs
    return settings


def _layers(attribution: Any, model: Classifier, name: str) -> str:
    layer = getattr(_inner(attribution), "layer", None)
    if layer is None or type(_inner(attribution)).__name__.startswith("Neuron"):  # those are maps of the input
        return "input"
    return layer_names(model.net, layer if isinstance(layer, list) else [layer], name)


def _check_arguments(name: str, parameters: Any, kwargs: dict[str, Any]) -> None:
    if ours := [key for key in (*_GIVEN, "return_convergence_delta") if kwargs.get(key) is not None]:
        raise ArgumentError(f"{name} was given {', '.join(ours)}: leave it out, pixelcert sees to it.")
    if (unknown := kwargs.keys() - parameters.keys()) and not _takes_any(parameters):
        known = ", ".join(key for key in parameters if key not in _GIVEN)
        raise ArgumentError(f"{name} does not take {', '.join(sorted(unknown))}: its arguments are {known}.")
    needed = [key for key, one in parameters.items() if one.default is one.empty and one.kind is not one.VAR_KEYWORD]
    if missing := [key for key in needed if key not in kwargs and key not in _GIVEN]:
        raise ArgumentError(f"{name} needs {', '.join(missing)}: give it by name, as to its attribute().")


def _takes_any(parameters: Any) -> bool:
    return any(one.kind is one.VAR_KEYWORD for one in parameters.values())


def _one_map(maps: Any, name: str) -> Tensor:
    maps = maps[0] if isinstance(maps, (tuple, list)) and len(maps) == 1 else maps
    if not isinstance(maps, Tensor) or maps.ndim != 4:  # tokens (B, T, C) would pass for maps (B, H, W)
        what = tuple(maps.shape) if isinstance(maps, Tensor) else f"{len(maps)} results"
        raise ExplainerError(f"{name} returned {what}: choose one layer whose output is (B, C, H, W).")
    return maps


def _forwards(parameters: Any, kwargs: dict[str, Any]) -> int:
    """By how much an attribution multiplies the batch that it is given."""
    if kwargs.get("internal_batch_size") or kwargs.get("nt_samples_batch_size"):
        return 1
    counts = [kwargs.get(name, parameters[name].default) for name in _SAMPLES if name in parameters]
    baselines = kwargs.get("baselines")
    return int(prod(counts)) * (max(1, len(baselines)) if isinstance(baselines, Tensor) and baselines.ndim == 4 else 1)
