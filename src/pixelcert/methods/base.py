"""Method: the base of the attribution methods. Made once, with a model, a layer and parameters; called often."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..basics.locks import one_at_a_time
from ..basics.messages import ArgumentError
from ..explainer import Explainer, Tuning
from ..models import Classifier
from ..models.heads import LinearHead, linear_head
from ..models.splitting import feature_maps
from ..models.tracing import SWITCHED_OFF
from ..models.variants import tuned

Formula = Callable[[Tensor, Tensor], Tensor]  # features A and slopes ∂ logit / ∂ A (B, C, h, w) → maps (B, h, w)

_NEAR = 2  # pixels; for Guided Backprop and LRP on ResNet-18, most of the slope of a pixel's vote is within


def before_linear_head(formula: Formula) -> Any:
    """Make the property `formula` of a method whose formula holds only before a linear head; it is None elsewhere."""
    return property(lambda method: formula if method.linear_head else None)


@dataclass(frozen=True)
class Method(Explainer):
    """An explainer of `model` at `layer`.

    A subclass describes itself in the class variables, declares its parameters as dataclass fields with defaults, and
    defines `explain`.
    """

    title: ClassVar[str]
    short: ClassVar[str]  # as the paper spells it
    family: ClassVar[str]  # backpropagation, activation or perturbation
    look: ClassVar[tuple[str, str]]  # colour and marker in charts
    layers: ClassVar[tuple[str, ...]] = ("input", "final", "*")  # its own default first; "*" stands for any module
    cost: ClassVar[str]  # runs of the network per image, in words
    citation: ClassVar[str]
    meanings: ClassVar[Mapping[str, str]] = MappingProxyType({})  # of defaults that need an explanation
    guided: ClassVar[bool] = False  # its ReLUs pass back only positive gradients
    untried: ClassVar[tuple[str, ...]] = ("crops", "fused crops")  # steps of surgery that others ask for at its layer
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
        """Refuse a parameter's value; for subclasses that check theirs in `__post_init__`."""
        if not sound:
            raise ArgumentError(f"{self.name}: {parameter}={getattr(self, parameter)} is not valid: {remedy}.")

    def tuned(self, tuning: Tuning) -> Method:
        """Return the same method on a copy of its model made for speed; see `pixelcert.models.variants`."""
        dtype, compiled = torch.bfloat16 if tuning.precision == "bfloat16" else None, tuning.compile is True
        fused = not self._why_not_fused(compiled)
        model = tuned(self.model, dtype, layer=self.place, compiled=compiled, fused=fused)
        return model.recall(self, lambda: replace(self, model=model))

    @property
    def place(self) -> str:
        """The layer at which the network is split."""
        return self.layer

    @property
    def linear_head(self) -> LinearHead | None:
        """The head behind the layer, if it is only average pooling and one linear layer: then it need not be run."""
        return linear_head(self.model, self.layer)

    def run_once(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the layer's features, the same laid out as maps, and the logits; a linear head is not run."""
        body, head = self.model.split(self.layer)
        features = body(images)
        maps = feature_maps(features, images)
        return features, maps, linear.logits(features) if (linear := self.linear_head) else head(features)

    @property
    def examined(self) -> set[Hashable]:
        """The batches that were checked, remembered until the network changes: a method here keeps nothing."""
        key = ("examined", type(self), self.layer, *self.params.values())
        return self.model.recall(key, set[Hashable], values=True)

    @property
    def surgery(self) -> dict[str, str]:
        """The steps of surgery on the network, done or with the reason why not."""
        self.find_shortcuts()
        with one_at_a_time:  # another thread may add a step
            steps = dict(self.model.surgery(self.place))
        done = {name: str(step) for name, step in steps.items() if name not in self.untried}
        if self.model.is_copy and not self.model.fused:
            done["fused"] = f"no ({self._why_not_fused(self.model.compiled)})"
        return done

    def find_shortcuts(self) -> None:
        """Find shortcuts that save passes of the network, so that their steps are on record before the first image."""
        if "head" not in self.untried:
            _ = self.linear_head

    def _why_not_fused(self, compiled: bool) -> str:
        if compiled:
            return "compiled instead"
        if not self.fusable:
            return f"{self.name} changes the network as it runs"
        if not self.model.trace:
            return SWITCHED_OFF
        return "" if self.model.device.type == "cuda" else "not an NVIDIA GPU"

    @property
    def bears_bfloat16(self) -> bool:
        return True

    # ── For attacks, which differentiate a formula in place of the method ─────────────────────────────────────────────

    @property
    def reach(self) -> int | None:
        return _NEAR if self.layer == "input" else None

    @property
    def formula(self) -> Formula | None:
        """A formula for maps that rank pixels as this method does; None without one."""
        return None

    def points(self, count: int) -> list[tuple[float, float]]:
        """Return points and weights on the way from zero to the features, where the formula's slopes are taken."""
        return [(1.0, 1.0)]

    def covers(self, side: int) -> tuple[int, int]:
        """Return side and stride of the windows that share one value, on maps with sides of `side` pixels."""
        return 1, 1

    # ── Parameters ────────────────────────────────────────────────────────────────────────────────────────────────────

    @classmethod
    def parameters(cls) -> dict[str, Any]:
        """Names and default values of the method's own parameters."""
        return {field.name: field.default for field in fields(cls) if field.name not in ("model", "layer")}

    @classmethod
    def check_parameters(cls, params: Mapping[str, Any]) -> None:
        """Refuse parameters that the method does not have, and values of another type than their defaults'."""
        known = cls.parameters()
        if unknown := ", ".join(sorted(params.keys() - known.keys())):
            raise ArgumentError(
                f"{cls.name} has no parameter {unknown}: its parameters are {', '.join(known) or 'none'}."
            )
        for name, value in params.items():
            expected = type(known[name])
            if type(value) is not expected and (type(value), expected) != (int, float):
                example = "true or false" if expected is bool else f"one of type {expected.__name__}"
                raise ArgumentError(f"{name}={value!r} is of type {type(value).__name__}: give {example}.")

    @property
    def params(self) -> dict[str, Any]:
        """The parameters as set."""
        return {name: getattr(self, name) for name in self.parameters()}
