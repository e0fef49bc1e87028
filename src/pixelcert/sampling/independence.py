"""Independence: a few more calls, which show whether a map depends on more than its own image.

The proof of a certificate needs independent votes. They are not independent if a map depends on the other images of its
batch, on earlier calls, or on random numbers that images share. So the first and last image of a batch, and one between
that nobody knows beforehand, are explained once more, each by itself, and the first of them again after all samples of
its image. The very first call is about a copy that is not counted. No check sees everything: docs/guarantee.md says
what these do not see.
"""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Hashable
from typing import NamedTuple

import torch
from torch import Tensor

from ..basics.generators import moved, put_back, seed_all, states
from ..basics.messages import ExplainerError, PixelcertWarning
from ..explainer import Explainer, Explanation, Tuning, explain
from ..noise import noisy
from ..plan import Plan
from ..ranking import Ranking, answers_of
from .precision import rounding

_EXACT = ("float32", "float64")
_ROUNDED, _ROUNDED_LOW = 0.01, 0.05  # the share of votes that rounding may change, in these formats and in others
_ELSEWHERE = 2**59 - 55  # a state of the generators that no explainer leaves behind
_OWN = "pixelcert.methods."  # where classes are defined that keep nothing between calls
_LOST = "so votes would not be independent"


class DependenceError(ExplainerError):
    """An explainer whose votes are not independent. None of them is worth keeping."""


class Rows(NamedTuple):
    """Some images of a batch, copied before the explainer sees them, and then what it answered, copied at once."""

    plan: Plan
    size: int  # of the batch
    places: list[int]  # in the batch
    images: Tensor
    targets: Tensor
    maps: Tensor = torch.empty(0)  # (rows, H, W), once answered
    answers: Tensor | None = None  # (rows,), the predicted classes

    def answered(self, maps: Tensor, answers: Tensor | None = None) -> Rows:
        """Copy the rows' maps out of the batch's, because an explainer may write its next maps over them."""
        return self._replace(maps=maps[self.places], answers=None if answers is None else answers[self.places])


class Independence:
    """The checks of one explainer in one run of the loop."""

    def __init__(self, explainer: Explainer, tuning: Tuning) -> None:
        self._explainer, self._tuning = explainer, tuning
        self._copies = (tuning.batch_size or 1) if tuning.compile is True else 1  # a network is compiled for its batch
        self._begun, self._passed = frozenset[Hashable](), frozenset[Hashable]()  # kinds of batches: seen, and checked
        self._witness: Rows | None = None  # the first image that was explained by itself
        self._called = False

    def rows(self, images: Tensor, targets: Tensor, plan: Plan, begins: bool) -> Rows | None:
        """Copy three rows if an image begins in this batch, the last if only the batch size is new; else None."""
        kind, known, examined = _kind(len(images), images), self._begun, self._examined
        self._begun = known | {kind}
        if kind in (examined or ()) or (kind in known and (examined is not None or not begins)):
            return None
        size = len(images)
        places = sorted({0, _between(size), size - 1}) if begins or not known else [size - 1]
        return Rows(plan, size, places, images[places], targets[places])

    def call_first(self, clean: Tensor, target: Tensor, plan: Plan, key: int) -> None:
        """Explain a copy that is never counted, so that state from the first call is not made of votes."""
        if not self._called:
            (copy,) = noisy(clean, plan.sigma, key, range(plan.n, plan.n + 1))
            with put_back(), rounding(self._tuning, copy.device):
                self._explain_one(copy, target)
        self._called = True

    def begin_again(self) -> None:
        """Check the next batch like the first: memory ran out, so no kind of batch is known to have been explained."""
        self._begun = frozenset()

    def check(self, rows: Rows) -> None:
        """Refuse an explainer whose maps of these rows differ between their batch and single calls."""
        with put_back(), rounding(self._tuning, rows.images.device):
            alone, drew = self._explain_alone(rows)
            maps = alone.maps
            suspects = [row for row in range(len(maps)) if self._differ(rows.plan, rows.maps[row], maps[row])]
            if drew and self._ignores_the_image(rows, maps[0]):
                raise DependenceError(
                    f"the explainer draws the same random numbers for every image, and its maps depend on nothing "
                    f"else, {_LOST}: make the seed from the image."
                )
            if suspects and not self._is_rounding(rows, suspects, maps):
                raise DependenceError(self._cause(rows, suspects[0]))
            self._check_answers(rows, alone)
        if drew:
            told = "the explainer draws random numbers, the same for equal images: the certificate is about these."
            warnings.warn(told, PixelcertWarning, stacklevel=5)
        self._witness = self._witness or rows._replace(size=1, places=[0], maps=maps[:1], answers=None)
        self._passed |= {_kind(rows.size, rows.images)}

    def check_again(self) -> None:
        """Refuse an explainer whose map of the first row has changed after all samples."""
        if (first := self._witness) is None:
            return
        with put_back(), rounding(self._tuning, first.images.device):
            if self._differ(first.plan, first.maps[0], self._explain_one(first.images[0], first.targets[0])):
                raise DependenceError(self._cause(first, 0))
        if (examined := self._examined) is not None:  # so the images that follow need no check
            examined.update(self._passed)
            self._witness = None

    @property
    def _examined(self) -> set[Hashable] | None:
        """The batches in which a method was checked; None for all that users define, also from methods."""
        return self._explainer.examined if type(self._explainer).__module__.startswith(_OWN) else None

    def _check_answers(self, rows: Rows, alone: Rows) -> None:
        """Refuse an explainer whose answer to a row is another by itself, and also among other images."""
        if rows.answers is None or alone.answers is None or self._tuning.precision not in _EXACT:
            return
        for row in (rows.answers != alone.answers).nonzero().flatten().tolist():
            again = _answers(self._explain_among_others(rows, row))
            if again is None or again[rows.places[row]] != rows.answers[row]:  # else it is the rounding of that batch
                raise DependenceError(
                    f"the explainer's logits of an image depend on the rest of the batch, on earlier calls or on "
                    f"random numbers, {_LOST}: compute each image's logits from it alone, or return maps only."
                )

    def _explain_alone(self, rows: Rows) -> tuple[Rows, bool]:
        """Explain each row by itself, the last row first; return True with it if random numbers were drawn."""
        seed_all(_ELSEWHERE)
        before = states()
        each = zip(rows.images.flip(0), rows.targets.flip(0), strict=True)
        maps, answers = zip(*(self._explain_and_answer(image, target) for image, target in each), strict=True)
        told = None if None in answers else torch.stack(answers[::-1])
        return rows._replace(maps=torch.stack(maps[::-1]), answers=told), moved(before, states())

    def _explain_and_answer(self, image: Tensor, target: Tensor) -> tuple[Tensor, Tensor | None]:
        """Explain an image by itself, and copy the map (H, W), because an explainer may use its memory again."""
        images, targets = image.repeat(self._copies, 1, 1, 1), target.repeat(self._copies)
        explanation = explain(self._explainer, images, targets)
        answers = _answers(explanation)
        return explanation.maps[0].clone(), None if answers is None else answers[0]

    def _explain_one(self, image: Tensor, target: Tensor) -> Tensor:
        """Return the map (H, W) of an image by itself."""
        return self._explain_and_answer(image, target)[0]

    def _ignores_the_image(self, rows: Rows, own: Tensor) -> bool:
        """Return True if another image has the first row's map too, and it is not constant."""
        other = self._explain_one(_other(rows.images[0]), rows.targets[0])
        return bool((other == own).all() and own.min() < own.max())

    def _is_rounding(self, rows: Rows, suspects: list[int], alone: Tensor) -> bool:
        """Return True if only the size of the batch, and the place in it, make the difference.

        A large difference is not rounding. Only in a low precision may rounding turn a method's whole map around.
        Then the map must stay the same to the last bit when the other images change.
        """
        if rows.size == 1:
            return False
        row = suspects[-1]
        among_others = self._explain_among_others(rows, row).maps[rows.places[row]]
        if any(_votes_differ(rows.plan, rows.maps[suspect], alone[suspect], 1) for suspect in suspects):
            low = self._explainer.tunable and self._tuning.precision not in _EXACT
            return low and torch.equal(rows.maps[row].nan_to_num(), among_others.nan_to_num())
        return not self._differ(rows.plan, rows.maps[row], among_others)

    def _explain_among_others(self, rows: Rows, row: int) -> Explanation:
        """Explain a row in its place among other images: kernels round by the place and by the size of the batch."""
        place, image = rows.places[row], rows.images[row]
        images, targets = _other(image).repeat(rows.size, 1, 1, 1), rows.targets[row].repeat(rows.size)
        images[place] = image
        return explain(self._explainer, images, targets)

    def _differ(self, plan: Plan, one: Tensor, other: Tensor) -> bool:
        """Return True if two maps (H, W) of an image differ by more than rounding."""
        exact = self._tuning.precision in _EXACT
        if _votes_differ(plan, one, other, _ROUNDED if exact else _ROUNDED_LOW):
            return True
        return exact and one.device.type == "cpu" and _values_differ(one, other)  # some GPU kernels add in any order

    def _cause(self, rows: Rows, row: int) -> str:
        """Say why an image has several maps, and what helps."""

        def after(seed: int) -> Tensor:
            seed_all(seed)
            return self._explain_one(rows.images[row], rows.targets[row])

        first, again, other = after(1), after(1), after(2)
        if self._differ(rows.plan, first, again):
            return (
                f"the explainer's map of an image changes from call to call, {_LOST}: keep nothing between calls, and "
                f"set a seed anew for each image if it draws random numbers."
            )
        if self._differ(rows.plan, first, other):
            return (
                f"the explainer draws random numbers, and images share their generator, {_LOST}: set a seed anew for "
                f"each image inside the explainer, or wrap it with pixelcert.adapt."
            )
        if rows.size == 1:
            return f"the explainer's map of an image depends on earlier calls, {_LOST}: keep nothing between calls."
        return (
            f"the explainer's map of an image depends on the rest of the batch or on earlier calls, {_LOST}: explain "
            f"each image by itself and keep nothing (is a network in training mode? call eval()), or use batch_size=1."
        )


def _kind(size: int, images: Tensor) -> Hashable:
    """Return what a batch has in common with others of its size and shape."""
    return (size, *images.shape[1:])


def _answers(explanation: Explanation) -> Tensor | None:
    """Return the predicted classes (B,), if the explainer has logits."""
    return None if explanation.logits is None else answers_of(explanation.logits)


def _between(size: int) -> int:
    """Draw a place between the first and the last, which no explainer can know beforehand."""
    return 1 + secrets.randbelow(size - 2) if size > 2 else 0


def _other(image: Tensor) -> Tensor:
    """Return another image of the same kind: the mirror image."""
    return image.flip(-1)


def _votes_differ(plan: Plan, one: Tensor, other: Tensor, share: float) -> bool:
    """Return True if two maps (H, W) differ in more than this share of votes, or half as much as unrelated maps."""
    each = (Ranking.of(maps.flatten()[None], plan.levels, plan.sign, plan.rule).count() for maps in (one, other))
    first, second = each  # (2, levels, N)
    pixels, changed = first.shape[2], (first != second).sum(dim=2)
    top = torch.minimum(first[0].sum(dim=1), second[0].sum(dim=1))
    unrelated = 2 * top * (pixels - top) / pixels  # so many votes differ between two random maps
    return bool(((changed > share * pixels) | ((top >= 8) & (changed > unrelated / 2))).any())


def _values_differ(one: Tensor, other: Tensor) -> bool:
    """Return True if two maps differ by more than the rounding of a CPU, also if a few values hide all others."""
    if any(not torch.equal(test(one), test(other)) for test in (torch.isnan, torch.isposinf, torch.isneginf)):
        return True
    first, second = (maps[maps.isfinite()].double() for maps in (one, other))
    if not len(first):
        return False
    low, high = first.kthvalue(1 + len(first) // 100)[0], first.kthvalue(len(first) - len(first) // 100)[0]
    return _apart(first, second) or _apart(first.clamp(low, high), second.clamp(low, high))


def _apart(first: Tensor, second: Tensor) -> bool:
    """Return True if values differ by more than a share of their spread and size."""
    apart, size, spread = (first - second).norm(), first.norm(), (first - first.mean()).norm()
    return bool(apart > 1e-4 * spread + 1e-6 * size)
