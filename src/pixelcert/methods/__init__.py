"""Attribution methods, one idea per file. A new one is a subclass of `Method` and a line in `METHODS`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ..errors import ArgumentError
from ..models import Classifier
from .base import Method as Method
from .grad import Grad
from .grad_cam import GradCAM

METHODS: Mapping[str, type[Method]] = MappingProxyType({kind.name: kind for kind in (Grad, GradCAM)})


def method(name: str, model: Classifier, layer: str | None = None, **params: Any) -> Method:
    """The explainer called `name` for `model`, at `layer` (by default the method's own), with its parameters.

    >>> sorted(METHODS)
    ['grad', 'grad_cam']
    """
    if name not in METHODS:
        raise ArgumentError(f"method {name!r} is not known: choose one of {', '.join(METHODS)}.")
    kind = METHODS[name]
    if unknown := params.keys() - kind.parameters().keys():
        known = ", ".join(kind.parameters()) or "none"
        raise ArgumentError(f"{name} has no parameter {', '.join(sorted(unknown))}: its parameters are {known}.")
    return kind(model=model, layer=layer or kind.layers[0], **params)
