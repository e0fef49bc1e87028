"""Proof: how many fresh votes against a label show that its share is too small."""

from __future__ import annotations

from bisect import bisect_left

from ..statistics import tail

_SLACK = 1 + 1e-9  # far above the error of the special functions: rounding may cost a proof, never grant one


def votes_against_needed(samples: int, share: float, alpha: float, hypotheses: int) -> int:
    """The fewest votes against a label that no true share of `share` or more explains; `samples` + 1 if none do.

    A label of true share p has X ~ Bin(samples, 1 - p) votes against it, and of all p ≥ `share` many of them are
    likeliest at `share` itself. So k are a proof where hypotheses·P(X ≥ k) ≤ alpha there. That is Bonferroni's
    correction, under which pixels and attempts may depend on one another in any way.

    >>> [votes_against_needed(1000, share, 0.001, 13 * 224 * 224) for share in (0.5, 0.75)]
    [594, 335]
    """

    def enough(k: int) -> bool:
        return hypotheses * tail(k, samples, 1 - share) * _SLACK <= alpha

    return bisect_left(range(samples + 1), True, key=enough)
