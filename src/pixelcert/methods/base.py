"""Method: what every attribution method has. Configured once, with a model, a layer and parameters; called often."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar

import torch

from ..basics.messages import ArgumentError
from ..explainer import Explainer, Tuning
from ..models import Classifier
from ..models.variants import tuned


@dataclass(frozen=True)
class Method(Explainer):
    """Base of the attribution methods: an explainer of `model` at `layer`.

    A subclass says what it is in the class variables, declares its parameters as dataclass fields with defaults, and
    defines `explain`.
    """

    title: ClassVar[str]
    short: ClassVar[str]  # as the paper spells it
    family: ClassVar[str]  # backpropagation, activation or perturbation
    layers: ClassVar[tuple[str, ...]]  # where it can explain, its own default first; "*" stands for any module
    cost: ClassVar[str]  # runs of the network per image, in words
    citation: ClassVar[str]
    batch_independent = True
    tunable = True
    fusable = True
    compilable = True

    model: Classifier
    layer: str

    def __post_init__(self) -> None:
        if not isinstance(self.model, Classifier):
            raise ArgumentError(f"model is {type(self.model).__name__}: give pixelcert.Classifier(net, mean=…, std=…).")
        self.check_parameters(self.params)
        if self.layer not in self.layers and ("*" not in self.layers or self.layer in ("input", "final")):
            choices = ", ".join("a module's name" if layer == "*" else repr(layer) for layer in self.layers)
            raise ArgumentError(f"{self.name} cannot explain layer={self.layer!r}: choose {choices}.")
        self.model.split(self.layer)  # refuses a layer that the model does not have

    def require(self, sound: bool, parameter: str, remedy: str) -> None:
        """Refuse a parameter's value, for subclasses that check theirs in `__post_init__`."""
        if not sound:
            raise ArgumentError(f"{self.name}: {parameter}={getattr(self, parameter)} makes no sense: {remedy}.")

    def tuned(self, tuning: Tuning) -> Method:
        """Return the same method on a copy of its model that was made for speed; see `pixelcert.models.variants`."""
        dtype, compiled = torch.bfloat16 if tuning.precision == "bfloat16" else None, tuning.compile is True
        fused = self.fusable and not compiled and self.model.device.type == "cuda"
        model = tuned(self.model, dtype, layer=self.layer, compiled=compiled, fused=fused)
        if (known := self._tuned.get((dtype, compiled))) is None or known.model is not model:
            known = self._tuned[dtype, compiled] = replace(self, model=model)
        return known

    @cached_property
    def _tuned(self) -> dict[tuple[torch.dtype | None, bool], Method]:
        return {}

    @property
    def bears_bfloat16(self) -> bool:
        return True

    @classmethod
    def parameters(cls) -> dict[str, Any]:
        """Names and default values of the method's own parameters."""
        own = (field for field in fields(cls) if field.name not in ("model", "layer"))
        return {field.name: field.default for field in own if field.default is not MISSING}

    @classmethod
    def check_parameters(cls, params: Mapping[str, Any]) -> None:
        """Refuse parameters that the method does not have, and values of another type than their defaults'."""
        known = cls.parameters()
        if unknown := ", ".join(sorted(params.keys() - known.keys())):
            raise ArgumentError(
                f"{cls.name} has no parameter {unknown}: its parameters are {', '.join(known) or 'none'}."
            )
        for name, value in params.items():
            _check_type(name, value, type(known[name]))

    @property
    def params(self) -> dict[str, Any]:
        """The parameters as set."""
        return {name: getattr(self, name) for name in self.parameters()}


def _check_type(parameter: str, value: object, expected: type) -> None:
    if type(value) is not expected and (type(value), expected) != (int, float):
        example = "true or false" if expected is bool else f"one of type {expected.__name__}"
        raise ArgumentError(f"{parameter}={value!r} is of type {type(value).__name__}: give {example}.")
