"""Quantus: functions ``explain_func(model, inputs, targets, **kwargs)`` of NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from ..explainer import Explanation
from ..models import Classifier
from .adapted import Adapted, check_model, inputs_of, logits_of
from .numpy import as_array, as_maps
from .settings import function_settings, plain


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
        return Explanation(as_maps(answer, name, images), logits_of(model, images))

    return Adapted(run, name, fixed | {key: plain(value) for key, value in kwargs.items()}, model, "", seed)
