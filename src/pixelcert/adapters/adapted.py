"""Adapted: a foreign explanation as an explainer, made repeatable, and leaving its network as it was."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..errors import ArgumentError
from ..explainer import Explanation
from ..models import Classifier
from .as_found import as_found
from .repeatable import repeatable

Run = Callable[[Tensor, Tensor], Explanation]  # of images in pixel space and their targets


@dataclass(eq=False)
class Adapted:
    """An explainer made of a foreign explanation.

    A certificate needs a deterministic function of one image. An explanation that draws random numbers from the
    global generators is made one: every image is explained by itself, with the generators at `seed`.
    """

    run: Run = field(repr=False)
    name: str
    params: Mapping[str, Any]
    model: Classifier | None = None
    layer: str = ""
    seed: int = 0
    forwards: int = 1
    _random: bool = field(default=False, init=False, repr=False)  # seen to draw random numbers

    def __post_init__(self) -> None:
        if self.seed:  # whether it matters is not known before the first image
            self.params = {**self.params, "seed": self.seed}

    def __call__(self, images: Tensor, targets: Tensor) -> Tensor:
        """Attribution maps, one per image, as the foreign explanation gives them."""
        return self.explain(images, targets).maps

    def explain(self, images: Tensor, targets: Tensor) -> Explanation:
        """Maps and, where there is a model, logits of images (B, C, H, W) in pixel space, for one target each."""
        if not self._random:
            answer, self._random = self._run(images, targets)
            if len(images) == 1 or not self._random:
                return answer
        alone = [self._run(images[i : i + 1], targets[i : i + 1])[0] for i in range(len(images))]
        logits = [answer.logits for answer in alone if answer.logits is not None]
        return Explanation(torch.cat([answer.maps for answer in alone]), torch.cat(logits) if logits else None)

    @torch.enable_grad()
    def _run(self, images: Tensor, targets: Tensor) -> tuple[Explanation, bool]:
        """The answer, and whether random numbers were drawn for it."""
        untouched = nullcontext() if self.model is None else as_found(self.model.net)
        with untouched, repeatable(self.seed) as drawn:
            maps, logits = self.run(images, targets)
        return Explanation(maps.detach(), None if logits is None else logits.detach()), drawn()


def check_model(model: object) -> None:
    if not isinstance(model, Classifier):
        raise ArgumentError(f"model is {type(model).__name__}: give pixelcert.Classifier(net, mean=…, std=…).")


def inputs_of(model: Classifier, network: object, holder: str) -> Callable[[Tensor], Tensor]:
    """Turns images in pixel space into what `network`, which the foreign `holder` explains, expects to see.

    That is the normalised image for the classifier's own network, and the pixels themselves for the classifier. No
    other network will do: its normalisation is not known.
    """
    check_model(model)
    if network is model:
        return torch.clone
    if network is model.net:
        return lambda images: model.split("input").features(images)  # refuses a network in training mode
    what = type(network).__name__ if not hasattr(network, "__qualname__") else network.__qualname__
    raise ArgumentError(
        f"{holder} explains {what}, which is not the network of model={model.name}: make it with model.net, or make "
        f"the Classifier of the network that it explains."
    )


def logits_of(model: Classifier, images: Tensor) -> Tensor:
    """The logits by one more run, for explanations that do not hand theirs out."""
    with torch.no_grad():
        return model(images)
