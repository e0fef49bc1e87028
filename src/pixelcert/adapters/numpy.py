"""NumPy: any function of an array of images, with or without a network inside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import ExplainerError
from ..explainer import Explanation
from .adapted import Adapted
from .settings import function_settings, plain


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
        return Explanation(as_maps(function(as_array(images), **kwargs), name, images))

    return Adapted(run, name, fixed | {key: plain(value) for key, value in kwargs.items()}, seed=seed)


def as_array(values: Tensor) -> NDArray[Any]:
    """A copy, since a function may work in place."""
    array: NDArray[Any] = values.detach().cpu().numpy().copy()
    return array


def as_maps(answer: Any, name: str, images: Tensor) -> Tensor:
    """The array that a function returned, beside the images."""
    try:
        return torch.tensor(np.asarray(answer), device=images.device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ExplainerError(
            f"{name} returned {type(answer).__name__}, which is no array of numbers ({error}): return maps (B, H, W)."
        ) from error
