"""Certificate: what the votes prove. Each pixel is robustly in the top K % (1), robustly outside (0), or abstains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import statistics
from .plan import ALPHA, TAU, check_levels
from .statistics import Correction
from .votes import Votes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ABSTAIN = -1


class Shares(NamedTuple):
    """Percent of all pixels with each label; they sum to 100."""

    ones: float
    zeros: float
    abstained: float


class Prediction(NamedTuple):
    """The model's most frequent answer under noise, and whether it provably stays the majority within the radius."""

    target: int
    votes: int
    votes_needed: int | None  # None where n is too small to certify it beside the pixels
    certified: bool


@dataclass(frozen=True, eq=False)
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
    votes_needed: Mapping[float, int]  # level → how many votes made a label
    overlay: NDArray[np.float32]  # (H, W): the smallest level at which a pixel is certified 1; 0 for none
    prediction: Prediction | None

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
        return max(0.0, self.radius_on_grid - self.votes.grid_slack)

    @property
    def confidence(self) -> str:
        """1 - α in percent, exactly: no α is printed as certainty."""
        return f"{(100 * (1 - Decimal(str(self.alpha)))).normalize():f} %"

    def smoothed(self, level: float) -> NDArray[np.float64]:
        """SS, the smoothed sparsified map: the share of samples with the pixel in the top K %, (H, W)."""
        return self.votes.smoothed(level)

    def shares(self, level: float) -> Shares:
        """Percent of pixels certified 1, certified 0 and abstained."""
        labels = self.labels[level]
        return Shares(*(100 * float((labels == label).mean()) for label in (1, 0, ABSTAIN)))

    def percent_certified(self, level: float) -> float:
        """The paper's %certified: percent of pixels that do not abstain."""
        return 100 * float((self.labels[level] != ABSTAIN).mean())

    def plot(self, path: str | Path | None = None) -> Figure:
        """A matplotlib figure of everything certified, written to `path` if given."""
        from .figures.panel import certificate_panel

        figure = certificate_panel(self)
        if path is not None:
            figure.savefig(path)
        return figure


def certify_votes(
    votes: Votes,
    tau: float = TAU,
    alpha: float = ALPHA,
    *,
    levels: Sequence[float] | None = None,
    correction: Correction | None = None,
) -> Certificate:
    """The certificate that `votes` support; see `pixelcert.statistics` for the corrections.

    The default is Holm's, or "reference" for votes that were sampled with the reference preset.
    """
    votes.require_complete()
    plan = votes.plan
    correction = statistics.choose_correction(plan, tau, alpha, votes.pixels, correction)
    guess = plan.guess if correction == "reference" else 0
    alpha_prediction = _prediction_share(votes, tau, alpha, correction)
    alpha_pixels = alpha - alpha_prediction

    labels: dict[float, NDArray[np.int8]] = {}
    needed: dict[float, int] = {}
    overlay = np.zeros(votes.size, dtype=np.float32)
    for level in sorted(plan.levels if levels is None else check_levels(levels), reverse=True):
        ones, zeros = _testable_counts(votes, votes.index(level), guess)
        k = _votes_needed(np.maximum(ones, zeros), plan.n - guess, tau, alpha_pixels, correction)
        needed[level] = k
        labels[level] = np.where(ones >= k, 1, np.where(zeros >= k, 0, ABSTAIN)).astype(np.int8)
        if correction in ("holm", "bonferroni"):  # a claim over all levels has a threshold of its own
            k = _possible(statistics.overlay_votes_needed(plan.n, tau, alpha_pixels, votes.pixels))
        overlay[ones >= k] = level  # smaller levels come later and win
        labels[level].setflags(write=False)
    overlay.setflags(write=False)
    prediction = None if correction == "reference" else _certify_prediction(votes, tau, alpha_prediction)
    frozen_labels, frozen_needed = MappingProxyType(labels), MappingProxyType(needed)
    return Certificate(votes, tau, alpha, correction, frozen_labels, frozen_needed, overlay, prediction)


def _testable_counts(votes: Votes, level: int, guess: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Votes that may be tested for 1 and for 0. Labels guessed from the first samples are tested on the others."""
    ones, zeros = votes.ones[level], votes.zeros[level]
    if guess == 0 or votes.guess_ones is None:
        return ones, zeros
    guess_ones = votes.guess_ones[level]
    guessed_one = 2 * guess_ones > guess
    return np.where(guessed_one, ones - guess_ones, 0), np.where(guessed_one, 0, zeros - (guess - guess_ones))


def _votes_needed(strongest: NDArray[np.int32], n: int, tau: float, alpha: float, correction: Correction) -> int:
    if correction == "holm":
        return _possible(statistics.step_down(strongest, n, tau, alpha))
    return _possible(statistics.votes_needed(n, tau, alpha, strongest.size, correction))


def _possible(k: int | None) -> int:
    assert k is not None, "infeasible tests are refused before"
    return k


def _prediction_share(votes: Votes, tau: float, alpha: float, correction: Correction) -> float:
    """What the prediction takes of α, as one more hypothesis beside the pixels.

    Nothing if it cannot be certified, or if the pixels could not be any more: at the fewest samples that do.
    """
    share = alpha / (votes.pixels + 1)
    if votes.predictions is None or correction == "reference":
        return 0.0
    possible = statistics.prediction_votes_needed(votes.plan.n, tau, share)
    leaves_enough = statistics.votes_needed(votes.plan.n, tau, alpha - share, votes.pixels, correction)
    return share if possible and leaves_enough else 0.0


def _certify_prediction(votes: Votes, tau: float, alpha: float) -> Prediction | None:
    if votes.predictions is None:
        return None
    top = int(votes.predictions.argmax())
    count = int(votes.predictions[top])
    k = statistics.prediction_votes_needed(votes.plan.n, tau, alpha) if alpha > 0 else None
    return Prediction(top, count, k, k is not None and count >= k)
