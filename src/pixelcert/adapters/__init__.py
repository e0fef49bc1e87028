"""Adapters: explanations of other libraries as explainers that can be certified.

An adapter works with the object that it is given, and imports none of those libraries.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from ..basics.messages import ArgumentError
from ..models import Classifier
from .adapted import Adapted as Adapted
from .adapted import check_model
from .arrays import from_numpy as from_numpy
from .arrays import from_quantus as from_quantus
from .cams import from_grad_cam as from_grad_cam
from .cams import from_torchcam as from_torchcam
from .captum import from_captum as from_captum
from .zennit import from_zennit as from_zennit

# Keyed by the package of the object's class, so that no package needs to be imported, or even installed.
_ADAPTERS: Mapping[str, Callable[..., Adapted]] = MappingProxyType(
    {"captum": from_captum, "pytorch_grad_cam": from_grad_cam, "zennit": from_zennit, "torchcam": from_torchcam}
)

# By the number of arguments that a function needs.
_REFUSALS = {
    1: "takes images only, so it gets pixels in [0, 1] and needs no model: leave model out.",
    2: "takes two arguments: if they are (images, targets) and it returns a tensor, it is an explainer already, so "
    "give it to pixelcert.sample as it is.",
}
_UNKNOWN = (
    "is not known: give a Captum attribution, a pytorch-grad-cam CAM, a zennit composite or attributor, a torch-cam "
    "extractor, a function (model, inputs, targets) → maps as Quantus has it, or a function (images) → maps, both of "
    "NumPy arrays."
)


def adapt(explanation: Any, model: Classifier | None = None, **arguments: Any) -> Adapted:
    """Make an explainer of a foreign `explanation`; if it explains a network, that must be ``model.net``.

    Args:
        explanation: an object or function of another library, recognised by its class or its parameters.
        model: the classifier that knows how ``model.net`` wants its images normalised. Leave it out for a plain
            function of images.
        arguments: passed to the adapter that fits (`from_captum`, `from_grad_cam`, `from_zennit`, `from_torchcam`,
            `from_quantus`, `from_numpy`). It passes those that it does not know on to the explanation.
    """
    for package in (kind.__module__.partition(".")[0] for kind in type(explanation).__mro__):
        if package in _ADAPTERS:
            return _ADAPTERS[package](explanation, model, **arguments)
    needed = _count_needed(explanation, arguments)
    if needed == 3:
        return from_quantus(explanation, check_model(model), **arguments)
    if needed == 1 and model is None:
        return from_numpy(explanation, **arguments)
    kind = explanation if hasattr(explanation, "__qualname__") else type(explanation)
    name = f"{kind.__module__ or '__main__'}.{kind.__qualname__}"
    raise ArgumentError(f"{name} {_REFUSALS.get(needed, _UNKNOWN)}")


def _count_needed(explanation: Any, given: Mapping[str, Any]) -> int:
    """Count the arguments that a function needs by position besides the `given` ones; 0 if it is no function."""
    try:
        parameters = {} if inspect.isclass(explanation) else inspect.signature(explanation).parameters
    except (TypeError, ValueError):  # not callable, or compiled without a signature
        return 0
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = (one for one in parameters.values() if one.kind in positional and one.default is one.empty)
    return sum(one.name not in given for one in needed)
