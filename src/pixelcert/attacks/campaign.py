"""Campaign: all attacks on one certificate, from the checks at the door to the outcome."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .. import statistics
from ..basics.messages import ArgumentError, Progress, check_number, check_whole
from ..certificate import Certificate, certify_votes
from ..explainer import Explains, Precision, Tuning, as_explainer
from ..noise import snap, stream
from ..plan import ABSTAIN, ALPHA, TAU, Correction, Criterion
from ..sampling.checkpoint import check_same
from ..sampling.sample import Subject, sample_each
from ..votes import Votes
from .aim import Aim
from .descent import Ball, Choice, Descent, Effort
from .gradients import Gradient, Pathwise, Stein, surrogate_of
from .judge import Attempt, Pixel, labels_before
from .outcome import Outcome

MULTIPLES = (1, 2, 4, 8)  # of the certified radius
_BELOW = 0.999  # of a radius: a certificate promises nothing on the sphere itself
_USUAL = Effort()


def attack(
    votes: Votes,
    explainer: Explains,
    image: Tensor | NDArray[np.floating],
    *,
    tau: float = TAU,
    alpha: float = ALPHA,
    correction: Correction | None = None,
    level: float | None = None,
    pixel: Pixel | None = None,
    radii: Sequence[float] | None = None,
    progress: Progress | None = None,
    steps: int = Effort.steps,
    draws: int = Effort.draws,
    samples: int = Effort.samples,
    gradient: Choice = Effort.gradient,
    seed: int | None = Effort.seed,
    batch_size: int | None = None,
) -> Outcome:
    """Attack the certificate of `votes` under τ, α and correction; see `attack_certificate` and `Effort`."""
    certificate = certify_votes(votes, Criterion(tau, alpha, correction))
    effort = Effort(steps, draws, samples, gradient, seed, batch_size)
    return attack_certificate(
        certificate, explainer, image, effort, level=level, pixel=pixel, radii=radii, progress=progress
    )


def attack_certificate(
    certificate: Certificate,
    explainer: Explains,
    image: Tensor | NDArray[np.floating],
    effort: Effort = _USUAL,
    *,
    level: float | None = None,
    pixel: Pixel | None = None,
    radii: Sequence[float] | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Try to flip pixels of the smoothed map by moving the image, and count with fresh noise how many flipped.

    At each radius the attack makes two perturbations, one against the certified pixels and one against those that
    abstain, and compares them with a random one of the same size. Inside the certified radius no certified pixel may
    lose its majority, whatever is tried.

    Args:
        certificate: the one to attack. It must be about this `explainer` and `image`; this is checked.
        level: K in percent; by default the middle one.
        pixel: row and column, from 0, of the only pixel to attack; by default all are attacked together.
        radii: ℓ2 norms that the perturbations stay just below, in units of pixels in [0, 1]; by default R, 2R, 4R, 8R.
        progress: called with (noisy copies explained, planned) as they are done.
    """
    campaign = Campaign(certificate, explainer, image, effort, level=level, pixel=pixel, radii=radii)
    return campaign.run(progress)


# ── At the door ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _check_radii(certificate: Certificate, radii: Sequence[float] | None) -> tuple[float, ...]:
    """Return `radii` in ascending order; multiples of the certified one by default."""
    if radii is None and certificate.radius == 0:
        raise ArgumentError(f"tau={certificate.tau} certifies a radius of 0: raise tau, or give radii to attack at.")
    chosen = [factor * certificate.radius for factor in MULTIPLES] if radii is None else radii
    if not chosen:
        raise ArgumentError("radii is empty: give at least one, or leave it out.")
    numbers = {check_number("radii", radius, 0.1) for radius in chosen}
    for radius in numbers:
        if not 0 < radius < math.inf:
            raise ArgumentError(f"radii holds {radius}, which is not above 0: give ℓ2 norms such as 0.1.")
    return tuple(sorted(map(float, numbers)))


def _check_pixel(certificate: Certificate, pixel: Pixel | None) -> Pixel | None:
    """Return the pixel, if any; refuse one that is not in the map."""
    if pixel is None:
        return None
    (height, width) = certificate.votes.size
    row, column = (check_whole("pixel", place, -(2**31), example=0) for place in pixel)
    if not (0 <= row < height and 0 <= column < width):
        raise ArgumentError(f"pixel {row}, {column} is not in a map of {height} × {width}: count from 0, rows first.")
    return row, column


# ── The attacks ───────────────────────────────────────────────────────────────────────────────────────────────────────


class Campaign:
    """The attacks on one level of a certificate, checked when made and ready to run; see `attack_certificate`."""

    def __init__(
        self,
        certificate: Certificate,
        explainer: Explains,
        image: Tensor | NDArray[np.floating],
        effort: Effort = _USUAL,
        *,
        level: float | None = None,
        pixel: Pixel | None = None,
        radii: Sequence[float] | None = None,
    ) -> None:
        self.certificate, self.explainer, self.effort = certificate, as_explainer(explainer), effort.drawn()
        self.level = certificate.level(level)
        self.clean = check_same(certificate.votes, self.explainer, image)  # (C, H, W), on the lattice
        self.radii = _check_radii(certificate, radii)
        self.pixel = _check_pixel(certificate, pixel)  # the only one that is attacked
        self._target = certificate.votes.provenance.target
        self._seed, own = self.effort.seed or 0, certificate.votes.provenance.image
        self._judging_key, key = stream(self._seed, "judgement", own), stream(self._seed, "attack", own)
        labels = labels_before(certificate, self.level, self.pixel)
        aims, gradient = self._find_aims(labels), self._choose_gradient()
        self.descents = {
            change: Descent(gradient(aim), self.explainer, self._target, effort, key) for change, aim in aims.items()
        }
        self._check_samples(int((labels != ABSTAIN).sum()))

    def _find_aims(self, labels: NDArray[np.int8]) -> dict[str, Aim]:
        """Return one aim for each attack that has pixels; refuse if no attack has any."""
        certified, aims = self.certificate.labels[self.level] != ABSTAIN, {}
        for change, members in {"certified": certified, "abstaining": ~certified}.items():
            chosen = np.where(members, labels, ABSTAIN).flatten()
            if (chosen != ABSTAIN).any():
                on_device = torch.from_numpy(chosen).to(self.clean.device)
                aims[change] = Aim(on_device, self.level, self.certificate.votes.plan)
        if not aims:
            whose = "no pixel has a" if self.pixel is None else "pixel {}, {} has no".format(*self.pixel)
            raise ArgumentError(f"at level {self.level} {whose} majority: there is nothing to flip.")
        return aims

    def _choose_gradient(self) -> Callable[[Aim], Gradient]:
        """Return the gradient to follow; "auto" uses votes at the input, where surrogate slopes are mostly noise."""
        asked, reach = self.effort.gradient, self.explainer.reach
        if asked == "pathwise" or (asked == "auto" and reach is None):
            if surrogate := surrogate_of(self.explainer, self.clean, self._target):
                return partial(Pathwise, surrogate=surrogate)
            if asked == "pathwise":
                raise ArgumentError(
                    f"gradient='pathwise' needs maps that can be differentiated, and those of {self.explainer.name} "
                    f"cannot: use gradient='stein'."
                )
        return partial(Stein, explainer=self.explainer, target=self._target, reach=reach)

    def _check_samples(self, pixels: int) -> None:
        """Refuse too few samples to prove a single flip."""
        hypotheses, samples = pixels * (1 + len(self.radii) * (1 + len(self.descents))), self.effort.samples
        statistics.check_refutable(samples, 0.5, self.certificate.alpha, hypotheses)

    def run(self, progress: Progress | None = None) -> Outcome:
        """Make all perturbations, from small to large, and judge them."""
        samples = self.effort.samples
        each = samples * (1 + len(self.descents)) + sum(descent.copies for descent in self.descents.values())
        work = _Work(samples + len(self.radii) * each, progress or (lambda done, planned: None))
        attempts = [self._judge("none", 0.0, torch.zeros_like(self.clean), work)]
        found = dict.fromkeys(self.descents, torch.zeros_like(self.clean))
        for radius in self.radii:
            ball = Ball(self.clean, _BELOW * radius)
            attempts.append(self._judge("random", radius, ball.random(self._seed), work))
            for change, descent in self.descents.items():
                found[change] = descent.run(ball, found[change], work.add)
                attempts.append(self._judge(change, radius, found[change], work))
        gradient = next(iter(self.descents.values())).gradient.name
        return Outcome(self.certificate, self.level, samples, gradient, self._seed, tuple(attempts), self.pixel)

    def _judge(self, change: str, radius: float, delta: Tensor, work: _Work) -> Attempt:
        """Count fresh votes of the image moved by `delta`, exactly as the certificate's were counted."""
        moved, samples, source = snap(self.clean + delta), self.effort.samples, self.certificate.votes
        drawn = replace(source.plan, seed=self._judging_key, streams=False)  # the same noise for every attempt
        plan = replace(drawn, n=samples, levels=(self.level,), guess=0)
        # In the certificate's own precision, because it is about the function as computed; a black box stays as it is.
        own = source.provenance.precision
        known = self.explainer.tunable and own in get_args(Precision)
        tuning = Tuning(self.effort.batch_size, own if known else "auto")
        votes = next(sample_each(plan, self.explainer, [Subject(moved, self._target, progress=work.watch)], tuning))
        work.add(samples)
        applied = (moved - self.clean).cpu().numpy()  # exact: both are on the lattice
        return Attempt(change, radius, applied, votes.ones[0], votes.zeros[0])


class _Work:
    """The progress of a campaign, in noisy copies explained."""

    def __init__(self, planned: int, progress: Progress) -> None:
        self._planned, self._progress, self._done = planned, progress, 0

    def add(self, copies: int) -> None:
        self._done += copies
        self._progress(self._done, self._planned)

    def watch(self, counted: int, planned: int) -> None:
        """Report samples counted within a piece of work that is not added yet."""
        self._progress(self._done + counted, self._planned)
