"""Independence: what a few more calls can see of maps that do not depend on their own image only.

The proof of a certificate needs independent votes. They are not independent if a map depends on the other images of its
batch, on earlier calls, or on random numbers that images share. Before the first votes are believed, the first, middle
and last image of a batch are explained once more, each by itself; after the last votes the first of them again. Only
what is more than rounding counts. No check sees everything: see docs/guarantee.md.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..basics.generators import moved, put_back, seed_all, states
from ..basics.messages import ExplainerError, PixelcertWarning
from ..explainer import Explainer, Tuning, explain
from ..plan import Plan
from ..ranking import Ranking
from .precision import rounding

ROUNDING = 0.01  # the share of votes up to which two maps differ by rounding only


class DependenceError(ExplainerError):
    """An explainer whose votes are not independent. None of them is worth keeping."""


class Rows(NamedTuple):
    """The first, middle and last image of a batch, as they were before the explainer saw them."""

    plan: Plan
    places: list[int]  # in the batch
    images: Tensor
    targets: Tensor
    size: int  # of the batch

    def votes(self, maps: Tensor) -> Tensor:
        """Return the votes (2, levels, N) of one map (1, H, W)."""
        return Ranking.of(maps.flatten(1), self.plan.levels, self.plan.sign, self.plan.rule).count()


class Independence:
    """The checks of one explainer in one run of the loop."""

    def __init__(self, explainer: Explainer, tuning: Tuning) -> None:
        self._explainer, self._tuning = explainer, tuning
        self._sizes: set[int] = set()  # of the batches that were checked
        self._witness: tuple[Rows, Tensor] | None = None  # an image, and its votes when it was explained by itself

    def rows(self, images: Tensor, targets: Tensor, plan: Plan, begins: bool) -> Rows | None:
        """Copy the rows to check, if a batch begins an image or has a new size; None if no check is due."""
        size = len(images)
        if self._key(images, plan) in self._explainer.examined or (size in self._sizes and not begins):
            return None
        places = sorted({0, size // 2, size - 1})
        return Rows(plan, places, images[places], targets[places], size)

    def check(self, rows: Rows, votes: Sequence[Tensor]) -> None:
        """Refuse an explainer whose `votes` for these rows in their batch are others than for each row by itself."""
        with put_back(), rounding(self._tuning, rows.images.device):
            before = states()
            maps = [self._map(rows, row) for row in reversed(range(len(rows.places)))][::-1]
            if rows.size == 1:  # let another image come between
                self._map(rows._replace(images=rows.images.flip(-1)), 0)
                maps = [self._map(rows, 0)]
            alone, random = list(map(rows.votes, maps)), moved(before, states())
            suspects = [row for row, own in enumerate(alone) if differ(own, votes[row])]
            if suspects and (rows.size == 1 or self._differ_in_equal_batches(rows, votes)):
                raise DependenceError(self._cause(rows, suspects[0]))
        alike = len(maps) > 1 and bool(alone[0].any()) and all(torch.equal(one, maps[0]) for one in maps)
        if alike and random:
            raise DependenceError(
                "the explainer draws the same random numbers for every image, and its map depends on nothing else: "
                "make their seed from the image, or wrap the explainer with pixelcert.adapt."
            )
        if alike or random:
            what = "returned the same map for different images" if alike else "draws random numbers, which it seeds"
            warnings.warn(f"the explainer {what}: the certificate is about that.", PixelcertWarning, stacklevel=6)
        self._sizes.add(rows.size)
        self._explainer.examined.add(self._key(rows.images, rows.plan, rows.size))
        self._witness = Rows(rows.plan, [0], rows.images[:1], rows.targets[:1], 1), alone[0]

    def check_again(self) -> None:
        """Refuse an explainer that answers otherwise after the samples of an image than before."""
        if self._witness is None:
            return
        rows, before = self._witness
        with put_back(), rounding(self._tuning, rows.images.device):
            if differ(rows.votes(self._map(rows, 0)), before):
                raise DependenceError(self._cause(rows, 0))
        if self._explainer.examined:  # kept by the explainer, so one check serves all images
            self._witness = None

    @staticmethod
    def _key(images: Tensor, plan: Plan, size: int | None = None) -> Hashable:
        return (size or len(images), *images.shape[1:], *plan.levels)

    def _map(self, rows: Rows, row: int) -> Tensor:
        """Explain a row by itself, and copy the map, because an explainer may use its memory again."""
        own = slice(row, row + 1)
        return explain(self._explainer, rows.images[own].clone(), rows.targets[own].clone()).maps.clone()

    def _differ_in_equal_batches(self, rows: Rows, votes: Sequence[Tensor]) -> bool:
        """Compare the rows in batches of the same size, where rounding is the same, among other images.

        One batch has the last image in front and the first behind, the other only copies of the image between.
        """
        last, half = len(rows.places) - 1, rows.size // 2
        batches = [[last] * (rows.size - half) + [0] * half, [last // 2] * rows.size]
        if last == 1:  # of two images, the first of these would hold both as before
            batches = [[0] * rows.size, [1] * rows.size]
        for order in batches:
            maps = explain(self._explainer, rows.images[order], rows.targets[order]).maps.clone()
            places = {row: order.index(row) for row in order}
            if any(differ(rows.votes(maps[place : place + 1]), votes[row]) for row, place in places.items()):
                return True
        return False

    def _cause(self, rows: Rows, row: int) -> str:
        """Say why an image has several maps, and what helps."""

        def after(seed: int) -> Tensor:
            seed_all(seed)
            return rows.votes(self._map(rows, row))

        first, again, other = after(1), after(1), after(2)
        lost = "so votes would not be independent"
        if differ(first, again):
            return (
                f"the explainer's map of an image changes from call to call, {lost}: keep nothing between calls, and "
                f"seed random numbers of its own anew for each image."
            )
        if differ(first, other):
            return (
                f"the explainer draws random numbers, and images share their generator, {lost}: set a seed anew for "
                f"each image inside the explainer, or wrap it with pixelcert.adapt."
            )
        if rows.size == 1:
            return f"the explainer's map of an image depends on earlier calls, {lost}: keep nothing between calls."
        return (
            f"the explainer's map of an image depends on the rest of the batch or on earlier calls, {lost}: explain "
            f"each image by itself and keep nothing (is a network in training mode? call eval()), or use batch_size=1."
        )


def differ(one: Tensor, other: Tensor) -> bool:
    """Return True if votes (2, levels, N) for two maps differ by more than rounding, at any level."""
    pixels, changed = one.shape[2], (one != other).sum(dim=2)  # (2, levels)
    top = torch.minimum(one[0].sum(dim=1), other[0].sum(dim=1))
    small = torch.minimum(top, pixels - top)  # the top set, or the rest
    return bool(((changed > ROUNDING * pixels) | ((small >= 8) & (changed > small / 2))).any())
