"""Counts: votes while they are being counted, on the device where the maps are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .explainer import Explainer, class_names
from .plan import Plan
from .ranking import Ranking
from .votes import Votes


@dataclass(frozen=True)
class Counts:
    """Votes on the device. Adding makes a new value, so an interruption never sees half a batch counted."""

    counted: int
    votes: Tensor  # ones and zeros, (2, levels, H·W) int32
    guess_ones: Tensor | None  # (levels, H·W) int32, where the plan guesses
    predictions: Tensor | None  # (classes,) int32

    @classmethod
    def of(cls, votes: Votes, device: torch.device) -> Counts:
        def put(array: NDArray[np.int32]) -> Tensor:
            return torch.tensor(array.reshape(-1, votes.pixels), device=device)

        if votes.counted == 0:
            zeros = torch.zeros(2, len(votes.plan.levels), votes.pixels, dtype=torch.int32, device=device)
            return cls(0, zeros, zeros[0] if votes.plan.guess else None, None)
        classes = None if votes.predictions is None else torch.tensor(votes.predictions, device=device)
        guesses = None if votes.guess_ones is None else put(votes.guess_ones)
        return cls(votes.counted, torch.stack([put(votes.ones), put(votes.zeros)]), guesses, classes)

    def plus(self, ranking: Ranking, rows: slice, answers: Tensor | None, classes: int, plan: Plan) -> Counts:
        """These counts and those of some rows of a batch; `answers` (B,) are its classes, `classes` for none."""
        guess_ones = self.guess_ones
        if guess_ones is not None and (guessing := plan.guess - self.counted) > 0:
            first = slice(rows.start, min(rows.stop, rows.start + guessing))
            guess_ones = guess_ones + ranking.count(first)[0]
        predictions = self.predictions
        if answers is not None:
            found = count_answers(answers[rows], classes)
            predictions = found if predictions is None else predictions + found
        return Counts(self.counted + rows.stop - rows.start, self.votes + ranking.count(rows), guess_ones, predictions)

    def on_host(self) -> Counts:
        """These counts on their way to the CPU; an accelerator copies them when it comes to it."""

        def fetch(counts: Tensor | None) -> Any:
            return None if counts is None else counts.to("cpu", non_blocking=True)

        return Counts(self.counted, fetch(self.votes), fetch(self.guess_ones), fetch(self.predictions))

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
            ones=fetch(self.votes[0]),
            zeros=fetch(self.votes[1]),
            guess_ones=None if self.guess_ones is None else fetch(self.guess_ones),
            predictions=predictions,
        )


def answers_of(logits: Tensor) -> Tensor:
    """The class that is each image's answer: (B,). Ties for the first place and NaN answer the number of classes."""
    first, second = logits.topk(2, dim=1).values.unbind(1) if logits.shape[1] > 1 else (logits[:, 0], -torch.inf)
    return torch.where(first > second, logits.argmax(dim=1), logits.shape[1])


def count_answers(answers: Tensor, classes: int) -> Tensor:
    """How often each class is the answer: (classes,). Not by `bincount`, which waits for the device."""
    counts = torch.zeros(classes + 1, dtype=torch.int32, device=answers.device)
    return counts.scatter_add_(0, answers, torch.ones_like(answers, dtype=torch.int32))[:classes]
