"""Adapters: explanations of other libraries as explainers that can be certified.

None of those libraries is imported here: an adapter works with the object that it is given.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from ..basics.messages import ArgumentError
from ..models import Classifier
from .adapted import Adapted as Adapted
from .arrays import from_numpy as from_numpy
from .arrays import from_quantus as from_quantus
from .cams import from_grad_cam as from_grad_cam
from .cams import from_torchcam as from_torchcam
from .captum import from_captum as from_captum
from .zennit import from_zennit as from_zennit

# By the package that defines the object's class, so that no package needs to be imported, or even installed.
_ADAPTERS: Mapping[str, Callable[..., Adapted]] = MappingProxyType(
    {"captum": from_captum, "pytorch_grad_cam": from_grad_cam, "zennit": from_zennit, "torchcam": from_torchcam}
)
_ACCEPTED = (
    "a Captum attribution, a pytorch-grad-cam CAM, a zennit composite or attributor, a torch-cam extractor, a function "
    "(model, inputs, targets) → maps as Quantus has it, or a function (images) → maps, both of NumPy arrays"
)


def adapt(explanation: Any, model: Classifier | None = None, **settings: Any) -> Adapted:
    """The explainer that a foreign `explanation` amounts to; it must explain ``model.net``.

    Args:
        explanation: an object or function of another library, recognised by its class or its parameters.
        model: the classifier that knows how ``model.net`` wants its images normalised. A plain function of images
            takes none.
        settings: those of the adapter that fits (`from_captum`, `from_grad_cam`, `from_zennit`, `from_torchcam`,
            `from_quantus`, `from_numpy`), which hands on what is not its own to the explanation.
    """
    packages = [kind.__module__.partition(".")[0] for kind in type(explanation).__mro__]
    for package in packages:
        if package in _ADAPTERS:
            return _ADAPTERS[package](explanation, _require(model, explanation), **settings)
    arguments = _count_arguments(explanation, settings)
    if arguments == 3:
        return from_quantus(explanation, _require(model, explanation), **settings)
    if arguments == 1 and model is None:
        return from_numpy(explanation, **settings)
    raise ArgumentError(_refusal(explanation, arguments))


def _require(model: Classifier | None, explanation: Any) -> Classifier:
    if model is None:
        raise ArgumentError(
            f"model is missing: {_name(explanation)} explains a network, so give the pixelcert.Classifier around it, "
            f"which knows how images are normalised."
        )
    return model


def _count_arguments(explanation: Any, settings: Mapping[str, Any]) -> int | None:
    """How many arguments a function needs by position besides its settings; None for what is no function."""
    if inspect.isclass(explanation) or not callable(explanation):
        return None
    try:
        parameters = inspect.signature(explanation).parameters
    except ValueError:  # some compiled functions do not tell
        return None
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = (one for one in parameters.values() if one.kind in positional and one.default is one.empty)
    return sum(one.name not in settings for one in needed)


def _refusal(explanation: Any, arguments: int | None) -> str:
    if arguments == 1:
        return (
            f"{_name(explanation)} takes images alone, so it gets pixels in [0, 1] and needs no model: leave model out."
        )
    if arguments == 2:
        return (
            f"{_name(explanation)} takes two arguments: if they are (images, targets) and it returns a tensor, it is "
            f"an explainer already, so give it to pixelcert.sample as it is."
        )
    return f"{_name(explanation)} is not known: give {_ACCEPTED}."


def _name(explanation: Any) -> str:
    kind = explanation if hasattr(explanation, "__qualname__") else type(explanation)
    return f"{kind.__module__ or '__main__'}.{kind.__qualname__}"
