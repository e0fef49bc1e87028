"""Counts: votes while they are being counted, on the device where the maps are."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .explainer import Explainer, class_names
from .plan import Plan
from .ranking import count_votes
from .votes import Votes


@dataclass(frozen=True)
class Counts:
    """Votes on the device. Adding makes a new value, so an interruption never sees half a batch counted."""

    counted: int
    ones: Tensor  # (levels, H·W) int32
    zeros: Tensor
    guess_ones: Tensor
    predictions: Tensor | None  # (classes,) int32

    @classmethod
    def of(cls, votes: Votes, device: torch.device) -> Counts:
        shape = (len(votes.plan.levels), votes.pixels)

        def put(array: NDArray[np.int32] | None) -> Tensor:
            if array is None or votes.counted == 0:
                return torch.zeros(shape, dtype=torch.int32, device=device)
            return torch.tensor(array.reshape(shape), device=device)

        classes = None if votes.predictions is None else torch.tensor(votes.predictions, device=device)
        return cls(votes.counted, put(votes.ones), put(votes.zeros), put(votes.guess_ones), classes)

    def plus(self, maps: Tensor, logits: Tensor | None, plan: Plan) -> Counts:
        """These counts and those of a batch of maps (B, H, W)."""
        flat = maps.flatten(1)
        ones, zeros = count_votes(flat, plan.levels, plan.sign, plan.rule)
        guess_ones = self.guess_ones
        if (guessing := flat[: max(0, plan.guess - self.counted)]).numel():
            guess_ones = guess_ones + count_votes(guessing, plan.levels, plan.sign, plan.rule)[0]
        predictions = self.predictions
        if logits is not None:
            answers = _count_answers(logits)
            predictions = answers if predictions is None else predictions + answers
        return Counts(self.counted + len(maps), self.ones + ones, self.zeros + zeros, guess_ones, predictions)

    def on_host(self) -> Counts:
        """These counts on their way to the CPU; an accelerator copies them when it comes to it."""
        fetched = (self.ones, self.zeros, self.guess_ones, self.predictions)
        return Counts(self.counted, *(None if x is None else x.to("cpu", non_blocking=True) for x in fetched))  # type: ignore[arg-type]

    def to_votes(self, votes: Votes, explainer: Explainer, batch_size: int) -> Votes:
        def fetch(counts: Tensor) -> NDArray[np.int32]:
            array: NDArray[np.int32] = counts.cpu().numpy().reshape(-1, *votes.size)
            return array

        predictions = None if self.predictions is None else self.predictions.cpu().numpy()
        answered = () if predictions is None else np.flatnonzero(predictions).tolist()
        names = class_names(explainer, [votes.provenance.target, *answered])
        return replace(
            votes,
            provenance=replace(votes.provenance, batch_size=batch_size, class_names=names),
            counted=self.counted,
            ones=fetch(self.ones),
            zeros=fetch(self.zeros),
            guess_ones=fetch(self.guess_ones) if votes.plan.guess else None,
            predictions=predictions,
        )


def _count_answers(logits: Tensor) -> Tensor:
    """How often each class is the answer: (classes,). Ties for the first place and NaN answer nothing."""
    first, second = logits.topk(2, dim=1).values.unbind(1) if logits.shape[1] > 1 else (logits[:, 0], -torch.inf)
    classes = logits.shape[1]
    answers = torch.where(first > second, logits.argmax(dim=1), classes)
    counts = torch.zeros(classes + 1, dtype=torch.int32, device=logits.device)
    # Not by `bincount`, which waits for the device.
    return counts.scatter_add_(0, answers, torch.ones_like(answers, dtype=torch.int32))[:classes]
