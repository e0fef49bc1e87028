"""Certificate: what the votes prove. Each pixel is robustly in the top K % (1), robustly outside (0), or abstains."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import statistics
from .basics.messages import ArgumentError, PixelcertWarning
from .plan import ALPHA, TAU, check_levels
from .statistics import Correction
from .votes import Votes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .metrics.robustness import Shares


ABSTAIN = -1


class Claim(NamedTuple):
    """What was claimed at once: with `votes_needed`, the chance that any of `hypotheses` is falsely rejected is α."""

    alpha: float
    hypotheses: int
    votes_needed: int


class Prediction(NamedTuple):
    """The model's most frequent answer under noise, and whether it provably stays the majority within the radius."""

    answer: int
    votes: int
    claim: Claim | None  # None where n is too small to certify it beside the pixels
    certified: bool


class Thresholds(NamedTuple):
    """What certifies at one τ, known before any vote is looked at."""

    steps: list[tuple[int, int]]  # (votes needed, the most open pixels for which they are enough), fewest first
    prediction: int | None  # votes that certify the class; None where it is not tested


@dataclass(frozen=True, eq=False, repr=False)
class Certificate:
    """Labels with a guarantee. With probability at least 1 - `alpha` over the noise, the following is true.

    For every pixel labelled 1 or 0 in ``labels[K]``, and every perturbation δ of ℓ2 norm below `radius`, the label
    remains the majority label: at x + δ + noise the pixel is in (or outside) the top K % with probability above
    one half. The same holds for `prediction`, if certified. This is promised for the labels of each level apart,
    together with the prediction; with ``correction="joint"`` for all levels together; for `overlay` for all levels
    together; and with ``correction="none"`` only for a single pixel chosen before looking.

    It is *not* promised that pixels which abstain will, or that certified pixels would be certified again at x + δ.
    """

    votes: Votes
    tau: float
    alpha: float
    correction: Correction
    labels: Mapping[float, NDArray[np.int8]]  # level → (H, W) of 1, 0, ABSTAIN
    claims: Mapping[float, Claim]  # level → what its labels were tested with
    overlay: NDArray[np.float32]  # (H, W): the smallest level at which a pixel is certified 1; 0 for none
    overlay_claim: Claim
    prediction: Prediction | None

    def __repr__(self) -> str:
        shares = ", ".join(f"{self.percent_certified(level):.1f} % at K = {level}" for level in self.levels)
        return f"Certificate({shares}; R = {statistics.rounded_down(self.radius)}, τ = {self.tau}, α = {self.alpha})"

    @property
    def levels(self) -> tuple[float, ...]:
        return tuple(self.labels)

    @property
    def radius_on_grid(self) -> float:
        """R = σ·Φ⁻¹(τ), rounded down: for images and perturbations on the noise's grid of step 2⁻²⁰."""
        return statistics.radius(self.votes.plan.sigma, self.tau)

    @property
    def radius(self) -> float:
        """R for every image, on the grid or not: σ·Φ⁻¹(τ) - √d·2⁻²⁰, in the units of pixels in [0, 1]."""
        return self.votes.radius_at(self.tau)

    @property
    def space(self) -> str:
        """Where changes are measured: the values of the image as the model takes it, before its normalisation."""
        return space_in_words(self.votes)

    @property
    def confidence(self) -> str:
        """1 - α in percent, exactly: no α is printed as certainty."""
        return confidence_in_words(self.alpha)

    @property
    def promise(self) -> str:
        """What is guaranteed, in one sentence."""
        return promise_in_words(self.votes, self.alpha, self.correction, statistics.rounded_down(self.radius))

    def smoothed(self, level: float) -> NDArray[np.float64]:
        """SS, the smoothed sparsified map: the share of samples with the pixel in the top K %, (H, W)."""
        return self.votes.smoothed(level)

    def shares(self, level: float) -> Shares:
        """Percent of pixels certified 1, certified 0 and abstained."""
        from .metrics.robustness import shares

        return shares(self._labels_at(level))

    def percent_certified(self, level: float) -> float:
        """The paper's %certified: percent of pixels that do not abstain."""
        from .metrics.robustness import percent_certified

        return percent_certified(self._labels_at(level))

    def _labels_at(self, level: float) -> NDArray[np.int8]:
        if level not in self.labels:
            known = ", ".join(map(str, self.levels))
            raise ArgumentError(f"level {level} is not in the certificate: choose one of {known}.")
        return self.labels[level]

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from .report.notebook import certificate_html

        return certificate_html(self)

    def plot(self, path: str | Path | None = None) -> Figure:
        """A matplotlib figure of everything certified, written to `path` if given."""
        from .figures.panels import certificate_panel
        from .figures.registry import check_picture

        if path is not None:
            check_picture(path)
        figure = certificate_panel(self)
        if path is not None:
            figure.savefig(path)
        return figure


def certify_votes(
    votes: Votes,
    tau: float = TAU,
    alpha: float = ALPHA,
    *,
    levels: float | Sequence[float] | None = None,
    correction: Correction | None = None,
) -> Certificate:
    """The certificate that `votes` support; see `pixelcert.statistics` for the corrections.

    The default is Holm's, or "reference" for votes that were sampled with the reference preset.
    """
    votes.require_complete()
    correction = correction or statistics.default_correction(votes.plan)
    statistics.check_feasible(votes.plan, tau, alpha, votes.pixels, correction)
    alpha_prediction = _prediction_share(votes, tau, alpha, correction)
    alpha_pixels = alpha - alpha_prediction

    chosen = sorted(votes.plan.levels if levels is None else check_levels(levels), reverse=True)
    counts = {level: _testable_counts(votes, level, correction) for level in chosen}
    claims = {level: _claim(votes, *counts[level], tau, alpha_pixels, correction) for level in chosen}
    labels = {level: _label(*counts[level], claims[level].votes_needed) for level in chosen}
    overlay_claim = (
        _overlay_claim(votes, tau, alpha_pixels) if correction in ("holm", "bonferroni") else claims[chosen[0]]
    )
    overlay = np.zeros(votes.size, dtype=np.float32)
    for level in chosen:  # smaller levels come later and win
        np.copyto(overlay, level, where=counts[level][0] >= overlay_claim.votes_needed)
    overlay.setflags(write=False)
    prediction = None if correction == "reference" else _certify_prediction(votes, tau, alpha_prediction)

    frozen_labels, frozen_claims = MappingProxyType(labels), MappingProxyType(claims)
    certificate = Certificate(
        votes, tau, alpha, correction, frozen_labels, frozen_claims, overlay, overlay_claim, prediction
    )
    if certificate.radius == 0:
        message = f"tau={tau} certifies a radius of 0, which promises nothing: raise tau."
        warnings.warn(message, PixelcertWarning, stacklevel=3)
    return certificate


def space_in_words(votes: Votes) -> str:
    height, width = votes.size
    return f"{height} × {width} × {votes.channels} values in [0, 1]"


def confidence_in_words(alpha: float) -> str:
    return f"{(100 * (1 - Decimal(str(alpha)))).normalize():f} %"


def promise_in_words(votes: Votes, alpha: float, correction: Correction, radius: str) -> str:
    """What a certificate of these votes guarantees within `radius`, in one sentence."""
    if correction == "none":
        return "Not corrected for many pixels, for study only: over a map these labels carry no confidence."
    scope = "for all levels together" if correction == "joint" else "for each level apart"
    return (
        f"With confidence {confidence_in_words(alpha)}, {scope}: a certified pixel keeps its majority label, in or "
        f"outside the top K %, under every change below R = {radius} in ℓ2 of the image's {space_in_words(votes)}."
    )


def thresholds(votes: Votes, tau: float, alpha: float, correction: Correction) -> Thresholds:
    """By which rules `certify_votes` would label these votes: of their plan, size and kind, whatever they say."""
    statistics.check_feasible(votes.plan, tau, alpha, votes.pixels, correction)
    share = _prediction_share(votes, tau, alpha, correction)
    tested = statistics.tested_samples(votes.plan, correction)
    return Thresholds(
        statistics.steps(tested, tau, alpha - share, votes.pixels, correction),
        statistics.prediction_votes_needed(votes.plan.n, tau, share) if share > 0 else None,
    )


def _testable_counts(votes: Votes, level: float, correction: Correction) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Votes that may be tested for 1 and for 0. Labels guessed from the first samples are tested on the others."""
    index, guess = votes.index(level), votes.plan.guess
    ones, zeros = votes.ones[index], votes.zeros[index]
    if correction != "reference" or votes.guess_ones is None:
        return ones, zeros
    guess_ones = votes.guess_ones[index]
    guessed_one = 2 * guess_ones > guess
    return np.where(guessed_one, ones - guess_ones, 0), np.where(guessed_one, 0, zeros - (guess - guess_ones))


def _claim(
    votes: Votes,
    ones: NDArray[np.int32],
    zeros: NDArray[np.int32],
    tau: float,
    alpha: float,
    correction: Correction,
) -> Claim:
    n, pixels = statistics.tested_samples(votes.plan, correction), votes.pixels
    if correction == "holm":
        k = statistics.step_down(np.maximum(ones, zeros), n, tau, alpha)
    else:
        k = statistics.votes_needed(n, tau, alpha, pixels, correction)
    assert k is not None, "infeasible tests were refused"
    return Claim(alpha, {"joint": 2 * pixels, "none": 1}.get(correction, pixels), k)


def _overlay_claim(votes: Votes, tau: float, alpha: float) -> Claim:
    """Claims of 1 at all levels together, which have a threshold of their own."""
    k = statistics.overlay_votes_needed(votes.plan.n, tau, alpha, votes.pixels)
    assert k is not None, "it is no larger than that of a level, which is feasible"
    return Claim(alpha, votes.pixels, k)


def _label(ones: NDArray[np.int32], zeros: NDArray[np.int32], k: int) -> NDArray[np.int8]:
    one, zero = ones >= k, zeros >= k
    labels: NDArray[np.int8] = one.view(np.int8) + ABSTAIN * (~(one | zero)).view(np.int8)
    labels.setflags(write=False)
    return labels


def _prediction_share(votes: Votes, tau: float, alpha: float, correction: Correction) -> float:
    """What the prediction takes of α, as one more hypothesis beside the pixels.

    Nothing if it cannot be certified, or if the pixels could not be any more: at the fewest samples that do.
    """
    if votes.predictions is None or correction == "reference":
        return 0.0
    share = alpha / (votes.pixels + 1)
    possible = statistics.prediction_votes_needed(votes.plan.n, tau, share)
    leaves_enough = statistics.votes_needed(votes.plan.n, tau, alpha - share, votes.pixels, correction)
    return share if possible and leaves_enough else 0.0


def _certify_prediction(votes: Votes, tau: float, alpha: float) -> Prediction | None:
    if votes.predictions is None:
        return None
    answer = int(votes.predictions.argmax())
    count = int(votes.predictions[answer])
    k = statistics.prediction_votes_needed(votes.plan.n, tau, alpha) if alpha > 0 else None
    if k is None:
        return Prediction(answer, count, None, False)
    return Prediction(answer, count, Claim(alpha, 1, k), count >= k)
