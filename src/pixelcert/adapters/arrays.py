"""NumPy arrays: functions of images alone, and Quantus-style functions of model, images and targets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..basics.files import plain
from ..basics.messages import ExplainerError
from ..explainer import Explanation
from ..models import Classifier
from .adapted import Adapted, check_model, function_settings, inputs_of, logits_of


def from_numpy(function: Callable[..., Any], *, name: str | None = None, seed: int = 0, **kwargs: Any) -> Adapted:
    """A `function` from images (B, C, H, W), pixels in [0, 1] plus noise, to maps (B, H, W), as an explainer.

    It is a black box: the class that it explains is its own affair, and so is normalising. Maps may be coarser than
    the images, or have channels (B, C, H, W), which are summed.

    Args:
        kwargs: handed on to it.
        seed: for functions that draw random numbers from the global generators of torch or NumPy.
    """
    own_name, fixed = function_settings(function)
    name = name or own_name

    def run(images: Tensor, targets: Tensor) -> Explanation:
        return Explanation(to_tensor(function(as_array(images), **kwargs), name, images))

    return Adapted(run, name, fixed | {key: plain(value) for key, value in kwargs.items()}, seed=seed)


def as_array(values: Tensor) -> NDArray[Any]:
    """A copy, since a function may work in place."""
    array: NDArray[Any] = values.detach().cpu().numpy().copy()
    return array


def to_tensor(answer: Any, name: str, images: Tensor) -> Tensor:
    """The array that a function returned, beside the images."""
    try:
        return torch.tensor(np.asarray(answer), device=images.device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ExplainerError(
            f"{name} returned {type(answer).__name__}, which is no array of numbers ({error}): return maps (B, H, W)."
        ) from error


def from_quantus(
    explain_func: Callable[..., Any], model: Classifier, *, name: str | None = None, seed: int = 0, **kwargs: Any
) -> Adapted:
    """A Quantus-style `explain_func` as an explainer. It is given ``model.net``, normalised images and class indices.

    Args:
        kwargs: handed on to it, as Quantus does with ``explain_func_kwargs``.
        seed: for functions that draw random numbers from the global generators of torch or NumPy.
    """
    check_model(model)
    own_name, fixed = function_settings(explain_func)
    name = name or own_name
    prepare = inputs_of(model, model.net, name)

    def run(images: Tensor, targets: Tensor) -> Explanation:
        answer = explain_func(model.net, as_array(prepare(images)), as_array(targets), **kwargs)
        return Explanation(to_tensor(answer, name, images), logits_of(model, images))

    return Adapted(run, name, fixed | {key: plain(value) for key, value in kwargs.items()}, model, "", seed)
