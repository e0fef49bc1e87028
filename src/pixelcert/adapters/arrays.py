"""NumPy arrays: functions of images only, and Quantus-style functions of model, images and targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..basics.messages import ExplainerError
from ..explainer import NO_MODEL, Explanation
from ..models import Classifier
from .adapted import Adapted, check_model, name_and_params


def from_numpy(function: Callable[..., Any], *, name: str | None = None, seed: int = 0, **kwargs: Any) -> Adapted:
    """Make an explainer of a `function` from images (B, C, H, W), pixels in [0, 1] plus noise, to maps (B, H, W).

    It is a black box: it chooses the class that it explains, and normalises the images. Maps may be coarser than the
    images. If they have channels (B, C, H, W), these are summed.

    Args:
        kwargs: passed to the function.
        seed: for functions that draw random numbers from the global generators of torch, NumPy or Python.
    """
    return _adapted(function, None, name, seed, kwargs)


def from_quantus(
    explain_func: Callable[..., Any], model: Classifier, *, name: str | None = None, seed: int = 0, **kwargs: Any
) -> Adapted:
    """Make an explainer of a Quantus-style function, which gets ``model.net``, normalised images and class indices.

    Args:
        kwargs: passed to the function, as Quantus does with ``explain_func_kwargs``.
        seed: for functions that draw random numbers from the global generators of torch, NumPy or Python.
    """
    return _adapted(explain_func, check_model(model), name, seed, kwargs)


def _adapted(
    function: Callable[..., Any], model: Classifier | None, name: str | None, seed: int, kwargs: Mapping[str, Any]
) -> Adapted:
    own_name, fixed = name_and_params(function)
    name = name or own_name

    def call(images: Tensor, targets: Tensor) -> Explanation:
        if model is None:
            answer = function(_as_array(images), **kwargs)
        else:
            inputs = model.split("input").features(images)  # refuses a network in training mode
            answer = function(model.net, _as_array(inputs), _as_array(targets), **kwargs)
        try:
            return Explanation(torch.tensor(np.asarray(answer), device=images.device))
        except (TypeError, ValueError, RuntimeError) as error:
            returned = type(answer).__name__
            raise ExplainerError(
                f"{name} returned {returned}, which is no array of numbers ({error}): return maps (B, H, W)."
            ) from error

    return Adapted(call, name, {**fixed, **kwargs}, model or NO_MODEL, seed=seed)


def _as_array(values: Tensor) -> NDArray[Any]:
    """Copy a tensor to an array, because a function may work in place."""
    array: NDArray[Any] = values.detach().cpu().numpy().copy()
    return array
