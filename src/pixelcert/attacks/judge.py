"""Judge: the labels under attack, and the exact tests of fresh votes against them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import statistics
from ..certificate import Certificate
from ..plan import ABSTAIN, Criterion

Group = Literal["certified in", "certified out", "abstaining"]
Pixel = tuple[int, int]  # row and column, from 0
CERTIFIED: tuple[Group, ...] = ("certified in", "certified out")
GROUPS: tuple[Group, ...] = (*CERTIFIED, "abstaining")


@dataclass(frozen=True, eq=False)
class Attempt:
    """A perturbation, and fresh votes of the image that it makes."""

    change: str  # one of pixelcert.attacks.outcome.CHANGES
    radius: float  # the limit it was made within
    delta: NDArray[np.float32]  # (C, H, W), as it was applied
    ones: NDArray[np.int32]  # (H, W)
    zeros: NDArray[np.int32]

    @property
    def norm(self) -> float:
        return float(np.linalg.norm(self.delta.astype(np.float64)))


class Toll(NamedTuple):
    """The counts of one group of pixels under one attempt."""

    pixels: int
    flipped: int  # at most half of the fresh votes are for the label
    provably: int  # so few votes that the label has lost its majority, with confidence 1 - α
    abstains: int | None = None  # so few that its share is below τ, by a second test; None for pixels not certified

    @property
    def percent(self) -> float:
        return 100 * self.flipped / self.pixels if self.pixels else 0.0

    def as_dict(self) -> dict[str, Any]:
        return {**self._asdict(), "percent": self.percent}


@dataclass(frozen=True, eq=False)
class Judge:
    """Tests of fresh votes, corrected for all labels under all attempts.

    "Flipped" is an estimate: at most half of `samples` fresh votes are for the pixel's label. If a pixel's true share
    is just above one half, that happens by chance almost every second time, so compare with the flips at no change.
    "Provably" is a claim: by the exact binomial test, the fresh votes are too few for any share of one half or more,
    for all pixels of all attempts together, with confidence 1 - α.

    "Abstains" is a claim, too, about certified pixels: the fresh votes are too few for any share of τ or more. The map
    with abstentions then no longer shows the label, even if the label keeps its majority. Only the majority is
    certified. These hypotheses, of all certified pixels under all attempts, have an α of their own.
    """

    labels: NDArray[np.int8]  # (H, W) that may flip: certified ones, and majorities where the certificate abstains
    certified: NDArray[np.int8]  # (H, W) of those that are certified, ABSTAIN elsewhere
    criterion: Criterion
    samples: int  # fresh votes of each attempt
    attempts: int

    def members(self, group: Group) -> NDArray[np.bool_]:
        """Find the pixels of a group, (H, W). One that abstains without any majority has nothing to flip."""
        wanted = {"certified in": 1, "certified out": 0, "abstaining": ABSTAIN}[group]
        chosen: NDArray[np.bool_] = (self.certified == wanted) & (self.labels != ABSTAIN)
        return chosen

    def flipped(self, attempt: Attempt) -> NDArray[np.bool_]:
        """Find the pixels whose label got at most half of the fresh votes, (H, W)."""
        return 2 * self._kept(attempt) <= self.samples

    def provably_flipped(self, attempt: Attempt) -> NDArray[np.bool_]:
        """Find the pixels whose label got so few votes that it has lost its majority, (H, W)."""
        return self._kept(attempt) <= self.samples - self.votes_against_needed

    def provably_abstains(self, attempt: Attempt) -> NDArray[np.bool_]:
        """Find the certified pixels whose label got so few votes that its share is below τ, (H, W).

        Inside the radius, the map with abstentions abstains there; beyond it, it may also have flipped.
        """
        certified: NDArray[np.bool_] = self.certified != ABSTAIN
        return certified & (self._kept(attempt) <= self.samples - self.votes_against_needed_to_abstain)

    @cached_property
    def votes_against_needed(self) -> int:
        """The fewest votes against a label that prove that it has lost its majority."""
        return self._votes_against_needed(0.5, self.labels)

    @cached_property
    def votes_against_needed_to_abstain(self) -> int:
        """The fewest votes against a certified label that prove that its share is below τ."""
        return self._votes_against_needed(self.criterion.tau, self.certified)

    def _votes_against_needed(self, share: float, labels: NDArray[np.int8]) -> int:
        hypotheses = max(1, int((labels != ABSTAIN).sum()) * self.attempts)
        return statistics.votes_against_needed(self.samples, share, self.criterion.alpha, hypotheses)

    def _kept(self, attempt: Attempt) -> NDArray[np.int32]:
        """Return the fresh votes for each pixel's label, (H, W); all samples where a pixel has no label."""
        return np.select([self.labels == 1, self.labels == 0], [attempt.ones, attempt.zeros], self.samples)


def labels_before(certificate: Certificate, level: float, pixel: Pixel | None = None) -> NDArray[np.int8]:
    """Return certified labels, elsewhere the majority of the votes, and ABSTAIN where there is none: (H, W).

    If a pixel is given, all others are ABSTAIN.
    """
    votes, certified = certificate.votes, certificate.labels[level]
    ones, zeros = votes.ones[votes.index(level)], votes.zeros[votes.index(level)]
    majority = np.select([2 * ones > votes.counted, 2 * zeros > votes.counted], [1, 0], ABSTAIN)
    return only(np.where(certified == ABSTAIN, majority, certified).astype(np.int8), pixel)


def only(labels: NDArray[np.int8], pixel: Pixel | None) -> NDArray[np.int8]:
    """Return labels with ABSTAIN at all pixels but one; as they are if none is named."""
    if pixel is None:
        return labels
    single = np.full_like(labels, ABSTAIN)
    single[pixel] = labels[pixel]
    return single
