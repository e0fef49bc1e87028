"""Certificate: what the votes prove. Each pixel is robustly in the top K % (1), robustly outside (0), or abstains."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Context, Decimal, localcontext
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import statistics
from .basics.messages import InfeasibleError, PixelcertWarning
from .metrics.robustness import Shares, percent_certified, shares
from .plan import ABSTAIN, LEAST_ALPHA, Correction, Criterion
from .votes import Votes

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Claim(NamedTuple):
    """Labels claimed at once: with `votes_needed`, α bounds the chance that any of `hypotheses` is falsely rejected."""

    alpha: float
    hypotheses: int
    votes_needed: int


class Prediction(NamedTuple):
    """The model's most frequent answer under noise; if certified, it stays the majority within the radius."""

    answer: int
    votes: int
    claim: Claim | None  # None where n is too small to certify it beside the pixels
    certified: bool


@dataclass(frozen=True, eq=False, repr=False)
class Certificate:
    """Labels with a guarantee. With probability at least 1 - `alpha` over the noise, the following is true.

    For every pixel labelled 1 or 0 in ``labels[K]``, and every perturbation δ of ℓ2 norm below `radius`, the label
    remains the majority label: at x + δ + noise the pixel is in (or outside) the top K % with probability above
    one half. The same holds for `prediction`, if certified.

    The promise is for the labels of each level separately, together with the prediction. With ``correction="joint"``,
    and for `overlay`, it is for all levels together. With ``correction="none"`` it is only for a single pixel chosen
    before looking.

    It is *not* promised that abstaining pixels abstain again at x + δ, or that certified pixels are certified again.
    """

    votes: Votes
    criterion: Criterion  # with its correction named
    labels: Mapping[float, NDArray[np.int8]]  # level → (H, W) of 1, 0, ABSTAIN
    claims: Mapping[float, Claim]  # level → what its labels were tested with
    overlay: NDArray[np.float32]  # (H, W): the smallest level at which a pixel is certified 1; 0 for none
    overlay_claim: Claim
    prediction: Prediction | None

    def __repr__(self) -> str:
        shares = ", ".join(f"{self.percent_certified(level):.1f} % at K = {level}" for level in self.levels)
        return f"Certificate({shares}; R = {statistics.rounded_down(self.radius)}, τ = {self.tau}, α = {self.alpha})"

    @property
    def tau(self) -> float:
        return self.criterion.tau

    @property
    def alpha(self) -> float:
        return self.criterion.alpha

    @property
    def correction(self) -> Correction:
        return self.criterion.correction_for(self.votes.plan)

    @property
    def levels(self) -> tuple[float, ...]:
        return tuple(self.labels)

    @property
    def radius_on_lattice(self) -> float:
        """R = σ·Φ⁻¹(τ), rounded down: for images and perturbations on the noise's lattice of step 2⁻²⁰."""
        return statistics.radius(self.votes.plan.sigma, self.tau)

    @property
    def radius(self) -> float:
        """R for every image, on the lattice or not: σ·Φ⁻¹(τ) - √d·2⁻²⁰, in the units of pixels in [0, 1]."""
        return self.votes.radius_at(self.tau)

    @property
    def space(self) -> str:
        """The space in which changes are measured: the image as the model takes it, before its normalisation."""
        return space_in_words(self.votes)

    @property
    def confidence(self) -> str:
        """1 - α in percent, exactly: no α is printed as certainty."""
        return confidence_in_words(self.alpha)

    @property
    def promise(self) -> str:
        """The guarantee, in one sentence."""
        return promise_in_words(self.votes, self.criterion, statistics.rounded_down(self.radius))

    @property
    def together(self) -> str:
        """The cost of reading several levels at once, in one sentence; "" where it is part of the promise."""
        return together_in_words(self.criterion, len(self.levels))

    def smoothed(self, level: float) -> NDArray[np.float64]:
        """Return SS, the smoothed sparsified map: each pixel's share of samples in the top K %, (H, W)."""
        return self.votes.smoothed(level)

    def shares(self, level: float) -> Shares:
        """Return the percent of pixels certified 1, certified 0 and abstained."""
        return shares(self.labels[self.level(level)])

    def percent_certified(self, level: float) -> float:
        """Return the paper's %certified: the percent of pixels that do not abstain."""
        return percent_certified(self.labels[self.level(level)])

    @property
    def order(self) -> NDArray[np.int64]:
        """The certified maps' own ordering: flat indices of every pixel certified 1, most important first.

        Pixels are sorted by the smallest K at which they are certified 1. Among equals, more votes for 1 at that K come
        first, and then the smaller index.

        >>> import pixelcert as pc, torch
        >>> image = torch.tensor([[[0.6, 0.1, 0.3, 0.9]]])
        >>> brightness = lambda images, targets: images[:, 0]
        >>> pc.certify(brightness, image, 0, sigma=0.01, levels=(50, 20)).order  # the top 3 and the top 1
        array([3, 0, 2])
        """
        level_of, votes_of = np.full(self.votes.size, np.inf), np.zeros(self.votes.size, dtype=np.int64)
        for level in sorted(self.labels, reverse=True):  # smaller levels come later and win
            ones = self.labels[level] == 1
            level_of[ones] = level
            votes_of[ones] = self.votes.ones[self.votes.index(level)][ones]
        order = np.lexsort((-votes_of.ravel(), level_of.ravel()))  # the last key counts first; a stable sort
        return order[: int(np.isfinite(level_of).sum())]

    def level(self, asked: float | None = None) -> float:
        """Return the certified level that equals `asked`; the middle one by default."""
        return replace(self.votes.plan, levels=self.levels).level(asked)

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows."""
        from .report.notebook import certificate_html

        return certificate_html(self)

    def plot(self, path: str | Path | None = None) -> Figure:
        """Draw everything certified as a matplotlib figure, written to `path` if given."""
        from .figures.panels import certificate_panel
        from .figures.sheet import plotted

        return plotted(lambda: certificate_panel(self), path)


def certify_votes(votes: Votes, criterion: Criterion, levels: float | Sequence[float] | None = None) -> Certificate:
    """Return the certificate that `votes` support; see `pixelcert.statistics` for the corrections."""
    votes.require_complete()
    criterion = criterion.for_plan(votes.plan)
    on_pixels, on_prediction = _share_alpha(votes, criterion)
    chosen = votes.plan.descending(levels)
    counts = {level: _testable_counts(votes, level, criterion) for level in chosen}
    claims = {level: _claim(votes, *counts[level], on_pixels) for level in chosen}
    labels = {level: _label(*counts[level], claims[level].votes_needed) for level in chosen}
    overlay_claim = _overlay_claim(votes, on_pixels, claims[chosen[0]])
    overlay = np.zeros(votes.size, dtype=np.float32)
    for level in chosen:  # smaller levels come later and win
        np.copyto(overlay, level, where=counts[level][0] >= overlay_claim.votes_needed)
    overlay.setflags(write=False)
    prediction = None if criterion.correction == "reference" else _certify_prediction(votes, on_prediction)
    if votes.radius_at(criterion.tau) == 0:
        message = f"tau={criterion.tau} certifies a radius of 0, which promises nothing: raise tau."
        warnings.warn(message, PixelcertWarning, stacklevel=3)
    frozen = MappingProxyType(labels), MappingProxyType(claims)
    return Certificate(votes, criterion, *frozen, overlay, overlay_claim, prediction)


class CertifiedMaps(NamedTuple):
    """The maps that votes certify. Without a certificate, all pixels abstain."""

    votes: Votes
    labels: Mapping[float, NDArray[np.int8]]
    overlay: NDArray[np.float32]
    certificate: Certificate | None


def certify_or_abstain(votes: Votes, criterion: Criterion) -> CertifiedMaps:
    """Return the certified maps, without a certificate if even unanimous votes could not certify a pixel."""
    try:
        made = certify_votes(votes, criterion)
    except InfeasibleError:
        nothing = np.full(votes.size, ABSTAIN, np.int8)
        labels = dict.fromkeys(votes.plan.levels, nothing)
        return CertifiedMaps(votes, labels, np.zeros(votes.size, np.float32), None)
    return CertifiedMaps(votes, made.labels, made.overlay, made)


def space_in_words(votes: Votes) -> str:
    height, width = votes.size
    return f"{height} × {width} × {votes.channels} values in [0, 1]"


def confidence_in_words(alpha: float) -> str:
    """Say 1 - α in percent, with every digit: rounded to a few, it would become 100 %.

    >>> confidence_in_words(0.001), confidence_in_words(1e-29)
    ('99.9 %', '99.999999999999999999999999999 %')
    """
    with localcontext(Context(prec=400)):  # more than the digits of any α that `Criterion` accepts
        return f"{(100 * (1 - Decimal(str(float(alpha))))).normalize():f} %"


def promise_in_words(votes: Votes, criterion: Criterion, radius: str) -> str:
    """Say in one sentence what a certificate of these votes guarantees within `radius`."""
    if criterion.correction == "none":
        return "Not corrected for many pixels, for study only: over a map these labels carry no confidence."
    scope = "for all levels together" if criterion.correction == "joint" else "for each level apart"
    return (
        f"With confidence {confidence_in_words(criterion.alpha)}, {scope}: a certified pixel keeps its majority "
        f"label, in or outside the top K %, under every change below R = {radius} in ℓ2 of the image's "
        f"{space_in_words(votes)}."
    )


def together_in_words(criterion: Criterion, levels: int) -> str:
    """Say what reading several levels at once costs, and which correction includes that."""
    if levels == 1 or criterion.correction in ("joint", "none"):
        return ""
    chance = min(Decimal(1), levels * Decimal(str(criterion.alpha)))
    return (
        f"All {levels} levels together hold a false label with a chance of up to {(100 * chance).normalize():f} %; the "
        f'correction "joint" promises them all at once.'
    )


def thresholds(votes: Votes, criterion: Criterion) -> tuple[list[tuple[int, int]], int | None]:
    """Return the vote thresholds that `certify_votes` uses; they depend on plan and size, not on the counts.

    The first part is `statistics.steps`. The second is the votes that certify the class, or None if it is not tested.
    """
    on_pixels, on_prediction = _share_alpha(votes, criterion)
    tested, correction = statistics.tested_samples(votes.plan, criterion), criterion.correction_for(votes.plan)
    steps = statistics.steps(tested, criterion.tau, on_pixels.alpha, votes.pixels, correction)
    return steps, on_prediction and on_prediction.votes_needed


def _testable_counts(votes: Votes, level: float, criterion: Criterion) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the votes to test for 1 and for 0; "reference" guesses labels first and tests the later samples."""
    index, guess = votes.index(level), votes.plan.guess
    ones, zeros = votes.ones[index], votes.zeros[index]
    if criterion.correction != "reference" or votes.guess_ones is None:
        return ones, zeros
    guess_ones = votes.guess_ones[index]
    guessed_one = 2 * guess_ones > guess
    return np.where(guessed_one, ones - guess_ones, 0), np.where(guessed_one, 0, zeros - (guess - guess_ones))


def _claim(votes: Votes, ones: NDArray[np.int32], zeros: NDArray[np.int32], criterion: Criterion) -> Claim:
    n, correction = statistics.tested_samples(votes.plan, criterion), criterion.correction_for(votes.plan)
    if correction == "holm":
        k = statistics.step_down(np.maximum(ones, zeros), n, criterion.tau, criterion.alpha)
    else:
        k = statistics.votes_needed(n, criterion.tau, criterion.alpha, votes.pixels, correction)
    assert k is not None, "infeasible tests were refused"
    return Claim(criterion.alpha, statistics.hypotheses_of(correction, votes.pixels), k)


def _overlay_claim(votes: Votes, criterion: Criterion, of_level: Claim) -> Claim:
    """Return the claim of 1 at all levels together. It has its own threshold if α is for a single level."""
    if criterion.correction not in ("holm", "bonferroni"):
        return of_level
    k = statistics.overlay_votes_needed(votes.plan.n, criterion.tau, criterion.alpha, votes.pixels)
    assert k is not None, "the overlay needs no more votes than a level, which is feasible"
    return Claim(criterion.alpha, votes.pixels, k)


def _label(ones: NDArray[np.int32], zeros: NDArray[np.int32], k: int) -> NDArray[np.int8]:
    labels = np.where(ones >= k, np.int8(1), np.where(zeros >= k, np.int8(0), np.int8(ABSTAIN)))
    labels.setflags(write=False)
    return labels


def _share_alpha(votes: Votes, criterion: Criterion) -> tuple[Criterion, Claim | None]:
    """Return the criterion with the pixels' part of α, and the prediction's claim, which is one more hypothesis.

    The claim is None if no votes could prove it, or if its part of α would leave too little to certify any pixel.
    """
    plan, tau, correction = votes.plan, criterion.tau, criterion.correction_for(votes.plan)
    statistics.check_feasible(plan, criterion, votes.pixels)
    if votes.predictions is None or correction == "reference":
        return criterion, None
    own = statistics.alpha_of_prediction(criterion.alpha, votes.pixels)
    k, rest = statistics.prediction_votes_needed(plan.n, tau, own), criterion.alpha - own
    if k is None or rest < LEAST_ALPHA or statistics.votes_needed(plan.n, tau, rest, votes.pixels, correction) is None:
        return criterion, None
    return replace(criterion, alpha=rest), Claim(own, hypotheses=1, votes_needed=k)


def _certify_prediction(votes: Votes, claim: Claim | None) -> Prediction | None:
    if votes.predictions is None:
        return None
    answer = int(votes.predictions.argmax())
    count = int(votes.predictions[answer])
    return Prediction(answer, count, claim, certified=claim is not None and count >= claim.votes_needed)
