"""Statistics: exact binomial thresholds, corrections, radii and feasibility. Pure functions, no torch.

Notation: N pixels, n noisy samples, p_i the probability that pixel i has a label under noise, X_i ~ Bin(n, p_i)
its votes. "Certified" means p_i > τ with simultaneous confidence 1 - α; the smoothed map's majority label then
stays the same for every perturbation of ℓ2 norm below σ·Φ⁻¹(τ). Pixels may depend on one another in any way.

Corrections, for claiming many labels at once:

- ``"holm"``: all pixels of one level, two-sided, stepping down: pixels already certified stop counting.
- ``"bonferroni"``: the same without stepping down.
- ``"joint"``: all pixels of any number of levels together.
- ``"reference"``: the published code's test, which guesses each label from `guess` samples and tests the others.
- ``"none"``: one pixel chosen before looking. For study only: over a whole map, α does not hold.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from decimal import ROUND_FLOOR, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaincinv, ndtri

from .basics.messages import ArgumentError, InfeasibleError, check_range
from .plan import ALPHA, LEAST_ALPHA, TAU, Correction, Criterion, Plan, lattice_slack

Radius = TypeVar("Radius", float, NDArray[np.float64])

_SLACK = 1 + 1e-9  # far above the error of the special functions: rounding may cost a certificate, never grant one
_LEAST_PART = LEAST_ALPHA * 1e-30  # of α for each of at most 10³⁰ claims; tails underflow near 1e-300


# ── Tails and thresholds ──────────────────────────────────────────────────────────────────────────────────────────


def tail(k: int, n: int, p: float) -> float:
    """Return P(X ≥ k) for X ~ Bin(n, p), as the regularised incomplete beta function: no sum, no cancellation.

    >>> round(tail(3, 4, 0.5), 4)
    0.3125
    """
    if k <= 0:
        return 1.0
    return _tail(int(k), int(n), float(p)) if k <= n else 0.0


@lru_cache(2**16)
def _tail(k: int, n: int, p: float) -> float:
    """Return `tail` of Python's own numbers only: equal keys of another precision would share its cache."""
    return float(betainc(k, n - k + 1, p))


def threshold(n: int, tau: float, alpha: float, ways: float, flips: float = 0) -> int | None:
    """Return the smallest k > n/2 with ``ways·P_τ(X ≥ k) + flips·P_τ(X ≤ n-k) ≤ alpha``; None if no k will do.

    `ways` counts the pixels that might gather k votes at p = τ, `flips` those that might gather k votes for the
    opposite of a true label.
    """
    n, tau, alpha = int(n), _probability("tau", tau), _part_of(alpha)
    majority = n // 2 + 1
    k = majority + bisect_left(range(majority, n + 1), True, key=lambda k: _risk(k, n, tau, ways, flips) <= alpha)
    return k if k <= n else None


def _risk(k: int, n: int, tau: float, ways: float, flips: float) -> float:
    """Return ``ways·P_τ(X ≥ k) + flips·P_τ(X ≤ n-k)``, rounded up. It falls as k grows."""
    return (ways * tail(k, n, tau) + flips * tail(k, n, 1 - tau)) * _SLACK


def _probability(name: str, value: float) -> float:
    """Return a number as a float, once: what follows is computed in that precision. Refuse all outside (0, 1)."""
    return check_range(name, value, lambda number: 0 < number < 1, "(0, 1): it is a probability", TAU)


def _part_of(alpha: float) -> float:
    """Return a part of α as a float; refuse one below which tails underflow to 0 and would prove anything."""
    words = f"[{_LEAST_PART}, 1): tails of smaller chances cannot be computed"
    return check_range("alpha", alpha, lambda number: _LEAST_PART <= number < 1, words, ALPHA)


def votes_against_needed(samples: int, share: float, alpha: float, hypotheses: int) -> int:
    """Return the fewest votes against a label that disprove a true share of `share` or more; `samples` + 1 if none do.

    A label of true share p has X ~ Bin(samples, 1 - p) votes against it. Among all p ≥ `share`, many votes against it
    are likeliest at `share` itself. So k votes are a proof if hypotheses·P(X ≥ k) ≤ alpha there. That is Bonferroni's
    correction: pixels and attempts may depend on one another in any way.

    >>> [votes_against_needed(1000, share, 0.001, 13 * 224 * 224) for share in (0.5, 0.75)]
    [594, 335]
    """
    samples, agree, alpha = int(samples), 1 - float(share), _part_of(alpha)
    return bisect_left(range(samples + 1), True, key=lambda k: _risk(k, samples, agree, hypotheses, 0) <= alpha)


def votes_needed(n: int, tau: float, alpha: float, pixels: int, correction: Correction = "bonferroni") -> int | None:
    """Return how many of n votes certify a label (under "holm", before the first step); None if n is too few.

    >>> votes_needed(100, 0.75, 0.001, 224 * 224), votes_needed(100, 0.75, 0.001, 224 * 224, "joint")
    (96, 97)
    """
    ways = hypotheses_of(correction, pixels)
    return threshold(n, tau, alpha, ways, flips=0 if correction in ("joint", "reference") else ways)


def hypotheses_of(correction: Correction, pixels: int) -> int:
    """Return how many false claims share α. Under "joint" these are two per pixel, however many levels there are.

    Top-K sets are nested: a false 1 at any K implies one at the largest K with p ≤ τ, and a false 0 likewise.
    """
    return {"joint": 2 * int(pixels), "none": 1}.get(correction, int(pixels))


def step_down(votes: NDArray[np.integer], n: int, tau: float, alpha: float) -> int | None:
    """Return Holm's threshold for pixels whose larger counts are `votes`. Valid under any dependence between them.

    With r labels certified, the other N - r are tested with ``(N-r)·P_τ(X ≥ k) + N·P_τ(X ≤ n-k) ≤ alpha``; the
    second term stays whole because a certified label may still have the wrong sign.
    """
    pixels = votes.size
    k = votes_needed(n, tau, alpha, pixels, "holm")
    certified = 0
    while k is not None and certified < (now := int((votes >= k).sum())) < pixels:
        certified = now
        k = threshold(n, tau, alpha, ways=pixels - certified, flips=pixels)
    return k


def steps(n: int, tau: float, alpha: float, pixels: int, correction: Correction) -> list[tuple[int, int]]:
    """Return every threshold that a test may use, fewest votes first, each with the most open pixels it is enough for.

    Only "holm" has more than one. With this table a page in a browser steps down with whole numbers only: with r labels
    certified, the next threshold is the first that is enough for N - r. The table is empty if n is too few.

    >>> steps(100, 0.75, 0.001, 224 * 224, "holm")[-2:]
    [(95, 8546), (96, 50176)]
    """
    n, tau, alpha, pixels = int(n), float(tau), float(alpha), int(pixels)
    if (most := votes_needed(n, tau, alpha, pixels, correction)) is None:
        return []
    fewest = threshold(n, tau, alpha, ways=1, flips=pixels) if correction == "holm" else most
    assert fewest is not None, "one open pixel needs no more votes than all"
    return [(k, _most_ways(k, n, tau, alpha, pixels)) for k in range(fewest, most)] + [(most, pixels)]


def _most_ways(k: int, n: int, tau: float, alpha: float, pixels: int) -> int:
    """Return the most pixels for which k votes are enough; at least one."""
    return 1 + bisect_left(range(2, pixels + 1), True, key=lambda ways: _risk(k, n, tau, ways, pixels) > alpha)


def overlay_votes_needed(n: int, tau: float, alpha: float, pixels: int) -> int | None:
    """Return the votes for label 1 at all levels together, when no 0 is claimed. Sets are nested: one way a pixel."""
    return threshold(n, tau, alpha, ways=pixels)


def alpha_of_prediction(alpha: float, pixels: int) -> float:
    """Return the prediction's part of α: it is one more hypothesis beside the pixels."""
    return float(alpha) / (int(pixels) + 1)


def prediction_votes_needed(n: int, tau: float, alpha: float) -> int | None:
    """Return the votes that certify the model's most frequent class, with no samples spent on guessing it.

    Over classes of probability at most τ that sum to 1, ΣP(X_c ≥ k) ≤ P_τ(X ≥ k) / τ.
    """
    return threshold(n, tau, alpha, ways=1 / _probability("tau", tau))


# ── Radii ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def radius(sigma: float, probability: float) -> float:
    """Return σ·Φ⁻¹(p), rounded down; 0 where p ≤ 1/2.

    >>> round(radius(0.15, 0.75), 4)
    0.1012
    """
    return max(0.0, float(sigma) * float(ndtri(float(probability))) / _SLACK)


def radius_by_count(n: int, sigma: float, alpha: float, pixels: int, levels: int = 1) -> NDArray[np.float64]:
    """Return the radius of a pixel with 0…n votes for its majority label, for all τ at once: (n + 1,).

    From Clopper and Pearson's lower bound on p, two-sided, over all pixels and levels.
    """
    return np.concatenate(
        ([0.0], _radii(np.arange(1, int(n) + 1), int(n), sigma, float(alpha) / (2 * int(pixels) * int(levels))))
    )


def unanimous_radius(n: int, sigma: float, alpha: float, pixels: int) -> float:
    """Return the largest of `radius_by_count`: that of a pixel on which all n votes agree."""
    return float(_radii(np.array([int(n)]), int(n), sigma, float(alpha) / (2 * int(pixels)))[0])


def _radii(counts: NDArray[np.integer], n: int, sigma: float, alpha: float) -> NDArray[np.float64]:
    """Return the radii for counts of one or more votes, every bound at confidence 1 - alpha."""
    bounds = betaincinv(counts.astype(np.float64), n - counts + 1.0, _part_of(alpha)) / _SLACK
    radii: NDArray[np.float64] = np.maximum(0.0, float(sigma) * ndtri(bounds) / _SLACK)
    return radii


def certified_radius(on_lattice: Radius, pixels: int, channels: int = 3) -> Radius:
    """Turn a radius for images on the lattice into one for every image: subtract how far snapping may move an image.

    >>> round(certified_radius(radius(0.15, 0.75), 224 * 224), 4)
    0.1008
    """
    slack = lattice_slack(pixels, channels)
    if not isinstance(on_lattice, np.ndarray):
        return max(0.0, float(on_lattice) - slack)
    return np.maximum(0.0, on_lattice.astype(np.float64) - slack)


def rounded_down(value: float, digits: int = 4) -> str:
    """Return a number rounded down, so that it is never printed too large. Decimals hold every float exactly.

    >>> rounded_down(0.10089)
    '0.1008'
    """
    return f"{Decimal(float(value)).quantize(Decimal(1).scaleb(-digits), ROUND_FLOOR):f}"


def outward(exact: Fraction, bound: float) -> float:
    """Return an end of an interval as a float, never farther from `bound` than the exact number is.

    >>> outward(Fraction(2, 3), 0) < Fraction(2, 3) < outward(Fraction(2, 3), 1)
    True
    """
    value = float(exact)
    inward = Fraction(value) > exact if bound <= exact else Fraction(value) < exact
    return math.nextafter(value, bound) if inward else value


# ── Feasibility ───────────────────────────────────────────────────────────────────────────────────────────────────


def smallest_n(tau: float, alpha: float, pixels: int, correction: Correction = "bonferroni") -> int:
    """Return the fewest samples with which any pixel can be certified.

    >>> [smallest_n(tau, 0.001, 224 * 224) for tau in (0.75, 0.9, 0.95)]
    [62, 169, 346]
    """

    def possible(n: int) -> bool:
        return votes_needed(n, tau, alpha, pixels, correction) is not None

    enough = 1
    while not possible(enough):
        enough *= 2
    return bisect_left(range(enough), True, lo=enough // 2, key=possible)


def largest_tau(n: int, alpha: float, pixels: int, correction: Correction = "bonferroni") -> float | None:
    """Return the largest τ, rounded down to four decimals, at which n unanimous votes certify; None if none does."""

    def impossible(tenthousandths: int) -> bool:
        return votes_needed(n, tenthousandths / 10000, alpha, pixels, correction) is None

    possible = bisect_left(range(5000, 10000), True, key=impossible)
    return (4999 + possible) / 10000 if possible else None


def tested_samples(plan: Plan, criterion: Criterion) -> int:
    """Return how many samples are tested: all, or those that follow the published test's guess."""
    return plan.n - plan.guess if criterion.correction_for(plan) == "reference" else plan.n


def fewest_samples(plan: Plan, criterion: Criterion, pixels: int) -> int | None:
    """Return the fewest samples that could certify any of so many pixels, if the plan has too few; else None."""
    tau, alpha, correction = criterion.tau, criterion.alpha, criterion.correction_for(plan)
    tested = tested_samples(plan, criterion)
    if votes_needed(tested, tau, alpha, pixels, correction) is not None:
        return None
    return smallest_n(tau, alpha, pixels, correction) + plan.n - tested


def check_refutable(samples: int, share: float, alpha: float, hypotheses: int) -> None:
    """Refuse so few fresh samples that they cannot refute one of many labels, even if all speak against it."""
    if votes_against_needed(samples, share, alpha, hypotheses) > samples:
        fewest = smallest_n(1 - share, alpha, hypotheses, "reference")  # one-sided
        raise ArgumentError(
            f"samples={samples} cannot refute one of {hypotheses} labels, even if all speak against it: use {fewest} "
            f"or more."
        )


def check_feasible(plan: Plan, criterion: Criterion, pixels: int) -> None:
    """Refuse a test that these votes cannot pass, even if all agree. It looks at no votes: call it before sampling."""
    if (needed := fewest_samples(plan, criterion, pixels)) is None:
        return
    alpha, correction = criterion.alpha, criterion.correction_for(plan)
    best = largest_tau(tested_samples(plan, criterion), alpha, pixels, correction)
    other = f", or lower tau to {best} at most" if best else ""
    raise InfeasibleError(
        f"n={plan.n} samples cannot certify any of {pixels} pixels at tau={criterion.tau}, alpha={alpha}, "
        f"correction={correction!r}, even if all agree: raise n to at least {needed}{other}."
    )
