"""zennit: a composite, such as ``EpsilonPlusFlat()``, or an attributor, such as ``Gradient(net, composite)``."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from ..basics.files import plain
from ..basics.messages import ArgumentError
from ..explainer import Explanation
from ..models import Classifier
from .adapted import Adapted, check_model, inputs_of, own_settings


def from_zennit(explanation: Any, model: Classifier, *, name: str | None = None, seed: int = 0) -> Adapted:
    """A zennit composite or attributor as an explainer: relevance of the input, from a one-hot start per target.

    The composite is registered for each batch and removed after it, so that the network stays as it is in between. A
    composite does not tell its rules' parameters: where you try several, put them in the `name`, for the provenance.

    Args:
        explanation: a composite, which is used with the attributor ``Gradient``, or an attributor of ``model.net``.
        seed: for attributors that draw random numbers (``SmoothGrad``).
    """
    check_model(model)
    attributor = explanation
    if hasattr(explanation, "module_map"):
        attributor = import_module("zennit.attribution").Gradient(model.net, explanation)
    if not hasattr(attributor, "attr_output_fn"):
        raise ArgumentError(f"{type(explanation).__name__} is no zennit composite or attributor: give one of them.")
    name = name or _name(attributor)
    prepare = inputs_of(model, attributor.model, name)
    by_score = any(kind.__name__ == "Occlusion" for kind in type(attributor).__mro__)

    def run(images: Tensor, targets: Tensor) -> Explanation:
        def start(output: Tensor) -> Tensor:
            one_hot = F.one_hot(targets, output.shape[1]).to(output.dtype)
            return one_hot * output if by_score else one_hot  # zennit's Occlusion sums up what is answered here

        logits, relevance = attributor(prepare(images), start)
        return Explanation(relevance.sum(dim=1), logits)

    params = own_settings(attributor, ("create_graph", "retain_graph"))
    if attributor.composite is not None:
        params["canonizers"] = plain(attributor.composite.canonizers)
    return Adapted(run, name, params, model, "input", seed)


def _name(attributor: Any) -> str:
    composite = "" if attributor.composite is None else type(attributor.composite).__name__
    return f"zennit.{type(attributor).__name__}({composite})"
