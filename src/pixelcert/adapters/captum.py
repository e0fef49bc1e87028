"""Captum: attribution objects, such as ``Saliency(net)`` or ``LayerGradCam(net, layer)``."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from math import prod
from typing import Any

from torch import Tensor

from ..basics.messages import ArgumentError, ExplainerError
from ..explainer import Explanation
from ..models import Classifier
from .adapted import Adapted, check_arguments, inputs_of, layer_names, params_of

_GIVEN = ("inputs", "target")  # by pixelcert, for every noisy image
_MIXING = ("FeaturePermutation", "LayerFeaturePermutation")
_SAMPLES = ("n_steps", "nt_samples", "n_samples", "perturbations_per_eval")  # all of them in memory at once


def from_captum(
    attribution: Any, model: Classifier, *, name: str | None = None, seed: int = 0, **kwargs: Any
) -> Adapted:
    """Make an explainer of a Captum `attribution` of ``model.net``, or of `model` itself, which takes pixels.

    Args:
        kwargs: passed to its ``attribute``; pixelcert gives inputs and target. Baselines are in the space of the
            network's input: for ``model.net`` a black image is ``model.normalise(torch.zeros(1, 3, 224, 224))``.
        seed: for attributions that draw random numbers (``NoiseTunnel``, ``GradientShap``, ``Lime`` …).
    """
    inner = getattr(attribution, "attribution_method", attribution)  # of a NoiseTunnel
    kind = type(attribution).__name__ + (f"({type(inner).__name__})" if inner is not attribution else "")
    name = name or f"captum.{kind}"
    if kind in _MIXING:
        raise ArgumentError(f"{name} mixes the images of a batch, so votes would not be independent: use Occlusion.")
    prepare = inputs_of(model, attribution.forward_func, name)
    parameters = inspect.signature(attribution.attribute).parameters
    takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    check_arguments(name, kwargs, (*_GIVEN, "return_convergence_delta"))
    if (unknown := kwargs.keys() - parameters.keys()) and not takes_any:
        known = ", ".join(key for key in parameters if key not in _GIVEN)
        raise ArgumentError(f"{name} does not take {', '.join(sorted(unknown))}: its arguments are {known}.")
    needed = [key for key, one in parameters.items() if one.default is one.empty and one.kind is not one.VAR_KEYWORD]
    if missing := [key for key in needed if key not in kwargs and key not in _GIVEN]:
        raise ArgumentError(f"{name} needs {', '.join(missing)}: give it by name, as you would to attribute().")
    targeted = "target" in parameters or takes_any  # a neuron's attribution takes no target

    def call(images: Tensor, targets: Tensor) -> Explanation:
        target = {"target": targets} if targeted else {}
        inputs = prepare(images).requires_grad_()  # a layer of frozen parameters has no gradient otherwise
        return Explanation(_one_map(attribution.attribute(inputs, **target, **kwargs), name))

    params = params_of(inner) | kwargs
    if hasattr(inner, "_multiply_by_inputs"):
        params["multiply_by_inputs"] = inner.multiplies_by_inputs
    return Adapted(call, name, params, model, _layer_of(inner, model, name), seed, _count_passes(parameters, kwargs))


def _layer_of(attribution: Any, model: Classifier, name: str) -> str:
    layer = getattr(attribution, "layer", None)
    if layer is None or type(attribution).__name__.startswith("Neuron"):  # those are maps of the input
        return "input"
    return layer_names(model.net, layer if isinstance(layer, list) else [layer], name)


def _one_map(maps: Any, name: str) -> Tensor:
    maps = maps[0] if isinstance(maps, (tuple, list)) and len(maps) == 1 else maps
    if not isinstance(maps, Tensor) or maps.ndim != 4:  # tokens (B, T, C) would pass for maps (B, H, W)
        returned = tuple(maps.shape) if isinstance(maps, Tensor) else f"{len(maps)} results"
        raise ExplainerError(f"{name} returned {returned}: choose one layer whose output is (B, C, H, W).")
    return maps


def _count_passes(parameters: Mapping[str, inspect.Parameter], kwargs: Mapping[str, Any]) -> int:
    """Count the inputs that an attribution makes of each image, all of them in one batch."""
    if kwargs.get("internal_batch_size") or kwargs.get("nt_samples_batch_size"):
        return 1
    counts = [kwargs.get(name, parameters[name].default) for name in _SAMPLES if name in parameters]
    baselines = kwargs.get("baselines")
    return int(prod(counts)) * (max(1, len(baselines)) if isinstance(baselines, Tensor) and baselines.ndim == 4 else 1)
