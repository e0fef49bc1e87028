"""Campaign: all attacks on one certificate, from the checks at the door to the outcome."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .. import statistics
from ..basics.messages import ArgumentError, Progress
from ..certificate import Certificate
from ..explainer import Explainer, Explains, Precision, Tuning, as_explainer, describe
from ..image import check_image, image_hash
from ..noise import snap
from ..plan import ABSTAIN, ALPHA, TAU, Correction
from ..sampling.sample import Subject, sample_each
from ..votes import Votes
from .aim import Aim, check_pixel, choose_level
from .descent import Ball, Effort, descend
from .gradients import Gradient, Pathwise, Stein, Surrogate, reach_of, surrogate_of
from .outcome import Attempt, Outcome, Pixel, labels_before

MULTIPLES = (1, 2, 4, 8)  # of the certified radius
_BELOW = 0.999  # what is within a radius: a certificate promises nothing on the sphere itself


def attack(
    votes: Votes,
    explainer: Explains,
    image: Tensor | NDArray[np.floating],
    *,
    tau: float = TAU,
    alpha: float = ALPHA,
    correction: Correction | None = None,
    **settings: Any,
) -> Outcome:
    """Attack what `votes` certify; `settings` are those of `attack_certificate`."""
    return attack_certificate(votes.certify(tau, alpha, correction=correction), explainer, image, **settings)


def attack_certificate(
    certificate: Certificate,
    explainer: Explains,
    image: Tensor | NDArray[np.floating],
    *,
    level: float | None = None,
    pixel: Pixel | None = None,
    radii: Sequence[float] | None = None,
    progress: Progress | None = None,
    **effort: Any,
) -> Outcome:
    """Try to flip pixels of the smoothed map by moving the image, and count with fresh noise how many did.

    At each radius two perturbations are made, one against the certified pixels and one against those that abstain, and
    a random one of the same size to compare with. Inside the certified radius no certified pixel may lose its majority,
    whatever is tried.

    Args:
        certificate: what is attacked. `explainer` and `image` are those that it is about, and are checked.
        level: K in percent; by default the middle one.
        pixel: row and column, from 0, of a pixel that is attacked alone; by default all are attacked together.
        radii: ℓ2 norms that the perturbations stay just below, in units of pixels in [0, 1]; by default R, 2R, 4R, 8R.
        progress: called with (noisy copies explained, planned) as they are done.
        effort: steps, draws, samples, gradient, seed and batch_size, those of `Effort`.
    """
    campaign = prepare(certificate, explainer, image, level=level, pixel=pixel, radii=radii, effort=Effort(**effort))
    return campaign.run(progress or (lambda done, planned: None))


def prepare(
    certificate: Certificate,
    explainer: Explains,
    image: Tensor | NDArray[np.floating],
    *,
    level: float | None = None,
    pixel: Pixel | None = None,
    radii: Sequence[float] | None = None,
    effort: Effort,
) -> Campaign:
    """The attacks that `attack_certificate` makes, checked and not begun."""
    explainer = as_explainer(explainer)
    campaign = Campaign(
        certificate,
        choose_level(certificate, level),
        explainer,
        _check_same(certificate.votes, explainer, image),
        _check_radii(certificate, radii),
        effort,
        check_pixel(certificate, pixel),
    )
    campaign.check()
    return campaign


# ── At the door ───────────────────────────────────────────────────────────────────────────────────────────────────


def _check_radii(certificate: Certificate, radii: Sequence[float] | None) -> tuple[float, ...]:
    """`radii` in ascending order; multiples of the certified one by default."""
    if radii is None:
        if certificate.radius == 0:
            raise ArgumentError(
                f"tau={certificate.tau} certifies a radius of 0: raise tau, or give radii to attack at."
            )
        return tuple(factor * certificate.radius for factor in MULTIPLES)
    if not radii:
        raise ArgumentError("radii is empty: give at least one, or leave it out.")
    for radius in radii:
        if not 0 < radius < math.inf:
            raise ArgumentError(f"radii holds {radius}, which is not above 0: give ℓ2 norms such as 0.1.")
    return tuple(sorted(set(radii)))


def _check_same(votes: Votes, explainer: Explainer, image: Tensor | NDArray[np.floating]) -> Tensor:
    """`image` on the noise's grid and the explainer's device; refused if it or the explainer is not the votes' own."""
    checked = check_image(image, explainer.model.channels)
    source, clean = votes.provenance, snap(checked.cpu())
    now = replace(source, **describe(explainer), image=image_hash(clean))  # on whatever machine
    if changed := source.differences(now):
        raise ArgumentError(
            f"these votes are about something else: {'; '.join(changed)}. Give the model, weights, method and image "
            f"that they were sampled with."
        )
    return clean.to(explainer.model.device or checked.device)


# ── The attacks ───────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Campaign:
    """What is attacked, where and how."""

    certificate: Certificate
    level: float
    explainer: Explainer
    clean: Tensor  # (C, H, W), on the noise's grid
    radii: tuple[float, ...]
    effort: Effort
    pixel: Pixel | None = None  # attacked alone

    def check(self) -> None:
        """Refuse what could only end in nothing: no pixels, no gradient, or too few samples to prove a flip."""
        if not self._aims:
            whose = "no pixel has a" if self.pixel is None else "pixel {}, {} has no".format(*self.pixel)
            raise ArgumentError(f"at level {self.level} {whose} majority: there is nothing to flip.")
        if self._surrogate is None and self.effort.gradient == "pathwise":
            raise ArgumentError(
                f"gradient='pathwise' needs maps that can be differentiated, and those of "
                f"{self.certificate.votes.provenance.method} cannot: use gradient='stein'."
            )
        pixels = int((self._labels != ABSTAIN).sum())
        hypotheses, alpha = pixels * (1 + len(self.radii) * (1 + len(self._aims))), self.certificate.alpha
        if statistics.votes_against_needed(self.effort.samples, 0.5, alpha, hypotheses) > self.effort.samples:
            fewest = statistics.smallest_n(0.5, alpha, hypotheses, "reference")  # one-sided, for so many pixels
            raise ArgumentError(
                f"samples={self.effort.samples} cannot prove a flip of one in {hypotheses} pixels counted, even if "
                f"all agree: use {fewest} or more."
            )

    def run(self, progress: Progress) -> Outcome:
        work = _Work(self._planned, progress)
        attempts = [self._judge("none", 0.0, torch.zeros_like(self.clean), work)]
        found = dict.fromkeys(self._aims, torch.zeros_like(self.clean))
        for radius in self.radii:
            ball = Ball(self.clean, _BELOW * radius)
            attempts.append(self._judge("random", radius, ball.random(self.effort.seed), work))
            for change in self._aims:
                found[change] = self._descend(change, ball, found[change], work)
                attempts.append(self._judge(change, radius, found[change], work))
        name = next(iter(self._gradients.values())).name
        settings = (self.effort.samples, name, self.effort.seed)
        return Outcome(self.certificate, self.level, *settings, tuple(attempts), self.pixel)

    def _descend(self, change: str, ball: Ball, before: Tensor, work: _Work) -> Tensor:
        """From what was found at a smaller radius, stretched to this one."""
        return descend(
            self._aims[change],
            ball,
            self._gradients[change],
            self.explainer,
            self._target,
            start=ball.stretch(before),
            steps=self.effort.steps,
            draws=self.effort.draws,
            seed=self._noise_seeds[0],
            report=work.add,
        )

    def _judge(self, change: str, radius: float, delta: Tensor, work: _Work) -> Attempt:
        """Fresh votes of the image moved by `delta`, counted exactly as the certificate's were."""
        moved = snap(self.clean + delta)
        rules, seed = self.certificate.votes.plan, self._noise_seeds[1]
        plan = replace(rules, n=self.effort.samples, levels=(self.level,), seed=seed, guess=0)
        subject = Subject(moved, self._target, progress=work.watch)
        tuning = Tuning(self.effort.batch_size, self._precision)
        votes = next(sample_each(plan, self.explainer, [subject], tuning))
        work.add(self.effort.samples)
        applied = (moved - self.clean).cpu().numpy()  # exact: both are on the grid
        return Attempt(change, radius, applied, votes.ones[0], votes.zeros[0])

    @property
    def _target(self) -> int:
        return self.certificate.votes.provenance.target

    @property
    def _precision(self) -> Precision:
        """The certificate's own, for it is about the function as it was computed; a black box is left as it is."""
        own: Any = self.certificate.votes.provenance.precision
        return own if self.explainer.tunable and own in get_args(Precision) else "auto"

    @property
    def _noise_seeds(self) -> tuple[int, int]:
        return self.effort.noise_seeds(self.certificate.votes.plan.seed)

    @cached_property
    def _labels(self) -> NDArray[np.int8]:
        return labels_before(self.certificate, self.level, self.pixel)

    @cached_property
    def _aims(self) -> dict[str, Aim]:
        """What each attack is made against; one without pixels is left out."""
        certified = self.certificate.labels[self.level] != ABSTAIN
        chosen = {"certified": certified, "abstaining": ~certified}
        labels = {name: np.where(members, self._labels, ABSTAIN).flatten() for name, members in chosen.items()}
        return {
            name: Aim(torch.from_numpy(flat).to(self.clean.device), self.level, self.certificate.votes.plan)
            for name, flat in labels.items()
            if (flat != ABSTAIN).any()
        }

    @cached_property
    def _surrogate(self) -> Surrogate | None:
        """None where votes are the better guide: at the input the slopes of surrogates are mostly noise."""
        near = reach_of(self.explainer) is not None
        if self.effort.gradient == "stein" or (self.effort.gradient == "auto" and near):
            return None
        return surrogate_of(self.explainer, self.clean, self._target)

    @cached_property
    def _gradients(self) -> dict[str, Gradient]:
        return {name: self._gradient(aim) for name, aim in self._aims.items()}

    def _gradient(self, aim: Aim) -> Gradient:
        if self._surrogate is not None:
            return Pathwise(aim, self._surrogate)
        return Stein(aim, self.explainer, self._target, reach_of(self.explainer))

    @property
    def _planned(self) -> int:
        """Noisy copies to be explained, those of the gradients included."""
        attacks = [self.effort.steps * self.effort.draws * (1 + one.passes) for one in self._gradients.values()]
        judged = self.effort.samples * (1 + len(attacks))
        return self.effort.samples + len(self.radii) * (sum(attacks) + judged)


class _Work:
    """How far the campaign has come, told to `progress`."""

    def __init__(self, planned: int, progress: Progress) -> None:
        self._planned, self._progress, self._done = planned, progress, 0

    def add(self, copies: int) -> None:
        self._done += copies
        self._progress(self._done, self._planned)

    def watch(self, counted: int, planned: int) -> None:
        """Samples counted within a piece of work that is not added yet."""
        self._progress(self._done + counted, self._planned)
