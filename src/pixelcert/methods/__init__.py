"""Attribution methods, one idea per file. A new one is a subclass of `Method` and a name in `METHODS`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ..basics.messages import ArgumentError
from ..models import Classifier
from .ablation_cam import AblationCAM
from .base import Method as Method
from .cam import CAM
from .grad_cam import GradCAM, GradCAMPlusPlus, LayerCAM
from .gradient import Grad, InputXGradient
from .guided_backprop import GuidedBackprop
from .integrated_gradients import IntegratedGradients
from .lrp import LRP
from .occlusion import Occlusion
from .rise import RISE

_KINDS: tuple[type[Method], ...] = (  # family by family
    *(Grad, GuidedBackprop, IntegratedGradients, InputXGradient, LRP),
    *(CAM, GradCAM, GradCAMPlusPlus, AblationCAM, LayerCAM),
    *(RISE, Occlusion),
)
METHODS: Mapping[str, type[Method]] = MappingProxyType({kind.name: kind for kind in _KINDS})


def method(name: str, model: Classifier, layer: str | None = None, **params: Any) -> Method:
    """Make the explainer called `name` for `model`, at `layer` (by default the method's own), with its parameters.

    >>> len(METHODS)
    12
    """
    check_method(name, params)
    kind = METHODS[name]
    return kind(model=model, layer=layer or kind.layers[0], **params)


def check_method(name: str, params: Mapping[str, Any]) -> None:
    """Refuse a method and parameters that exist for no model."""
    if name not in METHODS:
        raise ArgumentError(f"method {name!r} is not known: choose one of {', '.join(METHODS)}.")
    METHODS[name].check_parameters(params)
