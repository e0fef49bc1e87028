"""zennit: a composite, such as ``EpsilonPlusFlat()``, or an attributor, such as ``Gradient(net, composite)``."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from ..basics.messages import ArgumentError
from ..explainer import Explanation
from ..models import Classifier
from .adapted import Adapted, check_model, inputs_of, params_of


def from_zennit(explanation: Any, model: Classifier, *, name: str | None = None, seed: int = 0) -> Adapted:
    """Make an explainer of a zennit composite or attributor: relevance of the input, from a one-hot start per target.

    zennit registers the composite before each batch and removes it afterwards. A composite does not show the parameters
    of its rules. If you compare several, put them into `name`, so that the provenance records them.

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
    composite = attributor.composite
    kind = f"zennit.{type(attributor).__name__}({'' if composite is None else type(composite).__name__})"
    prepare = inputs_of(model, attributor.model, name or kind)
    by_score = any(base.__name__ == "Occlusion" for base in type(attributor).__mro__)

    def call(images: Tensor, targets: Tensor) -> Explanation:
        def start(output: Tensor) -> Tensor:
            one_hot = F.one_hot(targets, output.shape[1]).to(output.dtype)
            return one_hot * output if by_score else one_hot  # zennit's Occlusion sums what this returns

        logits, relevance = attributor(prepare(images), start)
        return Explanation(relevance.sum(dim=1), logits)

    params = params_of(attributor, ("create_graph", "retain_graph"))
    params |= {} if composite is None else {"canonizers": composite.canonizers}
    return Adapted(call, name or kind, params, model, "input", seed)
