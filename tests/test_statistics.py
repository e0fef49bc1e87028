"""The statistical contract's tables, in exact rational arithmetic."""

from fractions import Fraction
from functools import cache
from itertools import accumulate
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thoroughness import examples

import pixelcert as pc
from pixelcert import statistics
from pixelcert.statistics import largest_tau, smallest_n, step_down, tail, threshold, votes_needed

N = 224 * 224
ALPHA = 0.001


def exact_tail(k: int, n: int, p: str) -> Fraction:
    return exact_tails(n, p)[k]


@cache
def exact_tails(n: int, p: str) -> list[Fraction]:
    """P(X ≥ k) for k = 0 … n + 1, in whole numbers until the last division."""
    hits, of = Fraction(p).numerator, Fraction(p).denominator
    terms = [comb(n, i) * hits**i * (of - hits) ** (n - i) for i in range(n + 1)]
    sums = list(accumulate(reversed([*terms, 0])))
    return [Fraction(one, of**n) for one in reversed(sums)]


def exact_threshold(n: int, tau: str, alpha: Fraction, ways: int, flips: int) -> int | None:
    """The smallest k > n/2 by the definition, walking down from n."""
    other, best = str(1 - Fraction(tau)), None
    for k in range(n, n // 2, -1):
        if ways * exact_tail(k, n, tau) + flips * exact_tail(k, n, other) > alpha:
            break
        best = k
    return best


TABLE = [  # τ, n, no correction, reference, two-sided Bonferroni, α/2N
    ("0.60", 100, 76, 79, 86, 87),
    ("0.75", 100, 89, 88, 96, 97),
    ("0.75", 200, 169, 173, 182, 182),
    ("0.75", 1000, 793, 816, 824, 825),
    ("0.90", 100, 99, None, None, None),
    ("0.90", 200, 193, 190, 199, 200),
    ("0.95", 1000, 971, 974, 984, 985),
]


@pytest.mark.parametrize(("tau", "n", "none", "reference", "bonferroni", "joint"), TABLE)
def test_counts_needed(tau, n, none, reference, bonferroni, joint):
    alpha = Fraction("0.001")
    expected = {
        "none": (n, none, exact_threshold(n, tau, alpha, 1, 1)),
        "reference": (n - 10, reference, exact_threshold(n - 10, tau, alpha, N, 0)),
        "bonferroni": (n, bonferroni, exact_threshold(n, tau, alpha, N, N)),
        "holm": (n, bonferroni, exact_threshold(n, tau, alpha, N, N)),
        "joint": (n, joint, exact_threshold(n, tau, alpha, 2 * N, 0)),
    }
    for correction, (trials, table, exact) in expected.items():
        assert votes_needed(trials, float(tau), ALPHA, N, correction) == table == exact, correction


@given(st.integers(1, 60), st.sampled_from(["0.5", "0.6", "0.75", "0.9"]), st.integers(0, 60))
@settings(deadline=None)
def test_tail_is_the_binomial_sum(n, tau, k):
    k = min(k, n)
    assert tail(k, n, float(tau)) == pytest.approx(float(exact_tail(k, n, tau)), rel=1e-11)


def test_tail_is_accurate_far_out():
    assert tail(990, 1000, 0.25) == pytest.approx(float(exact_tail(990, 1000, "0.25")), rel=1e-9)


@given(
    st.integers(5, 80), st.sampled_from(["0.5", "0.6", "0.75"]), st.integers(1, 50), st.integers(0, 50),
    st.sampled_from(["0.001", "0.05"]),
)  # fmt: skip
@settings(deadline=None, max_examples=examples(60))
def test_threshold_is_the_smallest_that_will_do(n, tau, ways, flips, alpha):
    assert threshold(n, float(tau), float(alpha), ways, flips) == exact_threshold(n, tau, Fraction(alpha), ways, flips)


def slow_holm(votes, n, tau, alpha):
    """One pixel at a time, from the strongest, each at the level that those before it leave."""
    certified = 0
    for count in sorted(votes, reverse=True):
        ways = len(votes) - certified
        other = str(1 - Fraction(tau))
        cost = ways * exact_tail(count, n, tau) + len(votes) * exact_tail(count, n, other)
        if count <= n // 2 or cost > Fraction(alpha):
            break
        certified += 1
    return certified


@given(st.lists(st.integers(20, 40), min_size=1, max_size=30), st.sampled_from(["0.5", "0.6", "0.75"]))
@settings(deadline=None, max_examples=examples(60))
def test_step_down_certifies_what_holm_does(votes, tau):
    k = step_down(np.array(votes), 40, float(tau), 0.05)
    certified = 0 if k is None else sum(count >= k for count in votes)
    assert certified == slow_holm(votes, 40, tau, "0.05")


def test_step_down_gains_on_bonferroni_when_most_pixels_are_certified():
    votes = np.array([100] * 45000 + [95] * 5176)
    assert votes_needed(100, 0.75, ALPHA, votes.size) == 96
    assert step_down(votes, 100, 0.75, ALPHA) == 95


def test_step_down_keeps_its_guard_against_wrong_signs():
    """With τ = 1/2 and nearly all certified, the guard N·P_τ(X ≤ n-k) decides: without it 64 votes would do."""
    votes = np.array([100] * 990 + [69] * 5 + [66] * 5)
    k = step_down(votes, 100, 0.5, 0.05)
    assert k == exact_threshold(100, "0.5", Fraction("0.05"), 10, 1000) == 70
    assert exact_threshold(100, "0.5", Fraction("0.05"), 10, 0) == 64
    assert (votes >= k).sum() == slow_holm(votes.tolist(), 100, "0.5", "0.05") == 990


def test_smallest_n():
    assert [smallest_n(tau, ALPHA, N) for tau in (0.75, 0.9, 0.95)] == [62, 169, 346]


def test_largest_tau_is_feasible_and_the_next_is_not():
    best = largest_tau(100, ALPHA, N)
    assert votes_needed(100, best, ALPHA, N) is not None
    assert votes_needed(100, best + 1e-4, ALPHA, N) is None
    assert largest_tau(20, ALPHA, N) is None


def test_prediction_threshold_covers_all_classes_at_once():
    k = statistics.prediction_votes_needed(100, 0.75, ALPHA)
    assert exact_tail(k, 100, "0.75") <= Fraction("0.001") * Fraction("0.75") < exact_tail(k - 1, 100, "0.75")
    for split in ([0.75, 0.25], [0.5, 0.5], [0.34, 0.33, 0.33]):  # Σ P(X_c ≥ k) ≤ P_τ(X ≥ k) / τ
        assert sum(tail(k, 100, p) for p in split) <= tail(k, 100, 0.75) / 0.75


def test_radius_is_rounded_down_and_never_negative():
    from scipy.stats import norm

    for tau in (0.5, 0.6, 0.75, 0.9, 0.99):
        exact = 0.15 * norm.ppf(tau)
        assert exact * (1 - 2e-9) <= statistics.radius(0.15, tau) <= exact
    assert statistics.radius(0.15, 0.3) == 0


@pytest.mark.parametrize(("n", "largest"), [(100, 0.144), (200, 0.203), (1000, 0.314)])
def test_largest_radius_of_a_pixel(n, largest):
    radii = statistics.radius_by_count(n, 0.15, ALPHA, N)
    assert round(radii[-1], 3) == largest
    assert statistics.unanimous_radius(n, 0.15, ALPHA, N) == radii[-1]
    assert radii[n // 2] == 0
    assert bool((np.diff(radii) >= 0).all())


def test_radius_bound_is_clopper_and_pearsons():
    from scipy.stats import norm

    radii = statistics.radius_by_count(50, 1.0, 0.05, 10, levels=3)
    for count in (40, 45, 50):
        bound = norm.cdf(radii[count])
        assert float(exact_tail(count, 50, str(bound))) <= 0.05 / (2 * 10 * 3)
        assert float(exact_tail(count, 50, str(bound + 1e-6))) > 0.05 / (2 * 10 * 3)


def test_infeasible_settings_are_refused_with_both_remedies():
    with pytest.raises(pc.InfeasibleError, match=r"n=61 .*tau=0\.75.*at least 62, or lower tau to 0\.74"):
        statistics.check_feasible(pc.Plan(n=61), pc.Criterion(0.75, ALPHA, "holm"), N)
    with pytest.raises(pc.InfeasibleError, match=r"at least 27\."):
        statistics.check_feasible(pc.Plan(n=20), pc.Criterion(0.5, ALPHA, "holm"), N)
    with pytest.raises(pc.InfeasibleError, match="at least 72"):
        statistics.check_feasible(pc.Plan(n=62, guess=10), pc.Criterion(0.75, ALPHA, "reference"), N)
    statistics.check_feasible(pc.Plan(n=62), pc.Criterion(0.75, ALPHA, "holm"), N)


@pytest.mark.parametrize(("tau", "alpha", "correction", "named"), [
    (0.49, 0.001, "holm", "tau=0.49"), (1.0, 0.001, "holm", "tau=1.0"), (float("nan"), 0.001, "holm", "tau=nan"),
    (0.75, 0.0, "holm", "alpha=0.0"), (0.75, 1.0, "holm", "alpha=1.0"), (0.75, 0.001, "hochberg", "hochberg"),
])  # fmt: skip
def test_meaningless_tests_are_refused(tau, alpha, correction, named):
    with pytest.raises(pc.ArgumentError, match=named):
        statistics.check_feasible(pc.Plan(), pc.Criterion(tau, alpha, correction), 100)
