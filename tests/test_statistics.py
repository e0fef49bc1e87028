"""The statistical contract's tables, in exact rational arithmetic."""

import math
from decimal import Decimal
from fractions import Fraction
from functools import cache
from itertools import accumulate
from math import comb

import numpy as np
import pytest
import torch
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


# ── Plain numbers ─────────────────────────────────────────────────────────────────────────────────────────────────────

GIVEN = {
    "np.float32": np.float32, "np.float16": np.float16, "0-dim array": lambda value: np.array(value, np.float32),
    "float32 tensor": torch.tensor, "bfloat16 tensor": lambda value: torch.tensor(value, dtype=torch.bfloat16),
    "Fraction": Fraction, "Decimal": Decimal,
}  # fmt: skip


@pytest.mark.parametrize("kind", GIVEN)
@pytest.mark.parametrize("n", [100, 1000])
def test_thresholds_of_other_numbers_are_those_of_the_float_that_each_is(kind, n):
    """In float32 924 of 1000 votes certified where 952 are needed; a cache served that to those who gave floats."""
    for tau, alpha in ((0.9, 1e-12), (0.75, 0.001), (0.6, 0.05)):
        tau_given, alpha_given = GIVEN[kind](tau), GIVEN[kind](alpha)
        if 0 in (float(tau_given), float(alpha_given)):
            continue  # float16 has no 1e-12
        for correction in ("holm", "joint", "none"):
            expected = votes_needed(n, float(tau_given), float(alpha_given), N, correction)
            assert votes_needed(n, tau_given, alpha_given, N, correction) == expected
            assert votes_needed(n, float(tau_given), alpha_given, N, correction) == expected
            assert votes_needed(n, tau_given, float(alpha_given), N, correction) == expected


@pytest.mark.parametrize("kind", GIVEN)
def test_every_public_function_computes_in_floats(kind):
    """Each is called with the given numbers first, so that a cache of theirs would be found by the floats."""
    number = GIVEN[kind]
    tau, alpha, sigma, share = (number(value) for value in (0.8125, 0.0078125, 0.15, 0.75))
    calls = {
        "tail": lambda t, a, s, h: statistics.tail(90, 100, t),
        "threshold": lambda t, a, s, h: threshold(300, t, a, 7, 5),
        "against": lambda t, a, s, h: statistics.votes_against_needed(1000, h, a, N),
        "smallest_n": lambda t, a, s, h: smallest_n(t, a, N),
        "largest_tau": lambda t, a, s, h: largest_tau(100, a, N),
        "steps": lambda t, a, s, h: statistics.steps(100, t, a, N, "holm"),
        "step_down": lambda t, a, s, h: step_down(np.arange(60, 101), 100, t, a),
        "overlay": lambda t, a, s, h: statistics.overlay_votes_needed(100, t, a, N),
        "prediction": lambda t, a, s, h: statistics.prediction_votes_needed(100, t, a),
        "alpha_of_prediction": lambda t, a, s, h: statistics.alpha_of_prediction(a, N),
        "radius": lambda t, a, s, h: statistics.radius(s, t),
        "radius_by_count": lambda t, a, s, h: statistics.radius_by_count(50, s, a, N).tolist(),
        "unanimous_radius": lambda t, a, s, h: statistics.unanimous_radius(50, s, a, N),
        "certified_radius": lambda t, a, s, h: statistics.certified_radius(s, N),
    }
    plain = [float(value) for value in (tau, alpha, sigma, share)]
    for name, call in calls.items():
        statistics._tail.cache_clear()
        expected = call(*plain)
        statistics._tail.cache_clear()
        given = call(tau, alpha, sigma, share)
        assert given == expected == call(*plain), name
        assert isinstance(given, (int, float, list)), name


@pytest.mark.parametrize("k", range(92, 101))
def test_an_alpha_just_below_the_risk_is_not_rounded_up_to_it(k):
    """In float32 a risk and an α half a digit below it are equal."""
    risk = N * tail(k, 100, 0.75)
    alpha = np.float32(risk)
    if float(alpha) >= risk:
        alpha = np.nextafter(alpha, np.float32(0))
    assert threshold(100, 0.75, alpha, N) == threshold(100, 0.75, float(alpha), N) != k


def test_pixels_of_narrow_integers_do_not_wrap():
    assert votes_needed(100, 0.75, ALPHA, np.uint16(50176), "joint") == 97
    assert statistics.alpha_of_prediction(ALPHA, np.uint8(255)) == ALPHA / 256
    many = np.uint16(50176)
    assert statistics.unanimous_radius(100, 0.15, ALPHA, many) == statistics.unanimous_radius(100, 0.15, ALPHA, N)
    assert statistics.certified_radius(0.1, many, np.uint8(3)) == statistics.certified_radius(0.1, N)


def close_tail(k: int, n: int, p: Fraction) -> Fraction:
    """P(X ≥ k) in whole numbers of 2⁻¹⁸⁰⁰, which is right to more than 100 digits where the tail is above 1e-300."""
    hits, misses, unit = p.numerator, p.denominator - p.numerator, 1 << 1800
    term = (comb(n, k) * hits**k * misses ** (n - k) * unit) // p.denominator**n
    total = 0
    for i in range(k, n + 1):
        total += term
        if not term:
            break
        term = term * (n - i) * hits // ((i + 1) * misses)
    return Fraction(total, unit)


@pytest.mark.parametrize("n", [1000, 20_000, 100_000])
@pytest.mark.parametrize(("tau", "alpha"), [(0.75, 0.001), (0.5, 1e-200), (0.75, 1e-200), (0.9, 1e-29)])
@pytest.mark.parametrize("kind", [float, np.float32])
def test_thresholds_far_out_are_exact(n, tau, alpha, kind):
    alpha = float(alpha)  # float32 ends at 1e-45
    p, part = Fraction(float(kind(tau))), Fraction(alpha) / (2 * N)
    k = votes_needed(n, kind(tau), alpha, N, "joint")
    if k is None:
        assert close_tail(n, n, p) > part
        return
    assert close_tail(k, n, p) <= part < close_tail(k - 1, n, p)


@pytest.mark.parametrize("call", [
    lambda alpha: threshold(1000, 0.75, alpha, 1),
    lambda alpha: smallest_n(0.75, alpha, 100),
    lambda alpha: statistics.votes_against_needed(1000, 0.5, alpha, 1),
    lambda alpha: statistics.radius_by_count(1000, 0.15, alpha, 100),
    lambda alpha: statistics.unanimous_radius(1000, 0.15, alpha, 100),
])  # fmt: skip
@pytest.mark.parametrize("alpha", [0.0, 1e-300, -0.1, float("nan")])
def test_parts_of_alpha_whose_tails_underflow_are_refused(call, alpha):
    """A tail that underflows to 0 is below every α, and would prove anything."""
    with pytest.raises(pc.ArgumentError, match=r"alpha=.*use a value such as 0\.001"):
        call(alpha)


@pytest.mark.parametrize("tau", [0.0, 1.0, float("nan"), -1, 2])
def test_smallest_n_of_an_impossible_tau_is_refused_and_not_looked_for(tau):
    with pytest.raises(pc.ArgumentError, match=r"tau=.*\(0, 1\)"):
        smallest_n(tau, ALPHA, N)


@given(st.floats(0, 1e6), st.integers(0, 6))
def test_rounded_down_is_never_above_the_value_and_less_than_a_digit_below(value, digits):
    printed = Fraction(statistics.rounded_down(value, digits))
    assert printed <= Fraction(value) < printed + Fraction(1, 10**digits)


@given(st.integers(0, 10**6), st.integers(-3, 3))
def test_rounded_down_is_exact_beside_short_decimals(tenthousandths, ulps):
    value = tenthousandths / 10**4
    for _ in range(abs(ulps)):
        value = math.nextafter(value, math.inf if ulps > 0 else 0)
    assert Fraction(statistics.rounded_down(value)) <= Fraction(value)
