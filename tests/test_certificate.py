import dataclasses
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom, norm

import pixelcert as pc
from pixelcert import statistics
from pixelcert.certificate import confidence_in_words

SOURCE = pc.Provenance("test", {}, "", "", "", "", "", 0, {}, "cpu", "float32", 1, False, {})


def votes_of(*ones, n=100, levels=(50,), sigma=0.15, **more):
    """Votes of one row of pixels per level, every vote that is not for 1 being for 0."""
    counts = np.array(ones, dtype=np.int32)[:, None, :]
    return pc.Votes(pc.Plan(sigma=sigma, n=n, levels=levels, seed=0), SOURCE, 3, n, counts, n - counts, **more)


def test_labels_follow_the_votes_needed():
    k = statistics.votes_needed(100, 0.75, 0.001, 5)
    certificate = votes_of([100, k, k - 1, 100 - k, 50]).certify(correction="bonferroni")
    assert certificate.labels[50].tolist() == [[1, 1, pc.ABSTAIN, 0, pc.ABSTAIN]]
    assert certificate.claims[50].votes_needed == k


@pytest.mark.parametrize("alpha", [1e-16, 1e-17, 1e-29, 3e-57, 1e-200, 0.05, 0.3, np.float32(0.05)])
def test_printed_confidence_is_exact_and_never_reaches_certainty(alpha):
    """Rounded to 28 digits, 1 - 1e-29 was printed as 100 %."""
    said = confidence_in_words(alpha)
    assert said.endswith(" %")
    assert Fraction(said.removesuffix(" %")) == 100 * (1 - Fraction(str(float(alpha)))) < 100


def test_numbers_of_a_certificate_are_the_floats_that_were_given():
    """With float32 the thresholds were computed in float32: 924 of 1000 votes where 952 are needed."""
    given = votes_of([952, 924], n=1000).certify(np.float32(0.9), np.float32(1e-12))
    plain = votes_of([952, 924], n=1000).certify(float(np.float32(0.9)), float(np.float32(1e-12)))
    assert given.claims == plain.claims
    assert repr(given) == repr(plain)
    assert (given.tau, type(given.tau), type(given.alpha)) == (0.8999999761581421, float, float)
    radii = votes_of([952, 924], n=1000).radius_map(50, np.float32(0.001))
    assert radii.tolist() == votes_of([952, 924], n=1000).radius_map(50, float(np.float32(0.001))).tolist()
    assert radii.dtype == np.float64


def test_smallest_alpha_still_certifies_and_tests_no_prediction_with_less():
    votes = votes_of([5000, 0], n=5000, predictions=np.array([5000], dtype=np.int32))
    certificate = votes.certify(0.75, 1e-200)
    assert certificate.labels[50].tolist() == [[1, 0]]
    assert certificate.prediction is not None
    assert certificate.prediction.claim is None
    assert votes.certify(0.75, 1e-199).prediction.claim is not None


def test_undecided_votes_count_for_neither_label():
    ones = np.full((1, 1, 3), 90, dtype=np.int32)
    zeros = np.zeros_like(ones)
    certificate = pc.Votes(pc.Plan(n=100, levels=(50,), seed=0), SOURCE, 3, 100, zeros, zeros).certify()
    assert (certificate.labels[50] == pc.ABSTAIN).all()
    certificate = pc.Votes(pc.Plan(n=100, levels=(50,), seed=0), SOURCE, 3, 100, ones, zeros).certify()
    assert set(certificate.labels[50].flatten()) <= {1, pc.ABSTAIN}


def test_votes_and_certificates_tell_themselves_in_one_line():
    votes = votes_of([100, 100, 0, 50])
    assert repr(votes) == "Votes(test: 100 of 100 samples at σ = 0.15, levels 50)"
    assert repr(votes.certify()) == "Certificate(75.0 % at K = 50; R = 0.1011, τ = 0.75, α = 0.001)"


def test_shares_add_up():
    shares = votes_of([100, 100, 0, 50]).certify().shares(50)
    assert shares == pc.Shares(ones=50, zeros=25, abstained=25)
    assert votes_of([100, 100, 0, 50]).certify().percent_certified(50) == 75


def test_overlay_shows_the_smallest_certified_level():
    certificate = votes_of([100, 100, 0, 100], [100, 0, 0, 60], levels=(50, 10)).certify()
    assert certificate.overlay.tolist() == [[10, 50, 0, 50]]
    assert certificate.levels == (50, 10)


def test_overlay_holds_for_all_levels_together_even_where_holm_steps_down():
    """Holm certifies 95 votes at one level once most pixels are; over all levels only 96 will do."""
    ones = np.r_[np.full(45000, 100), np.full(5176, 95)]
    certificate = votes_of(ones, levels=(50,)).certify()
    assert (certificate.labels[50] == 1).all()
    assert (certificate.overlay == 50).sum() == 45000
    assert statistics.overlay_votes_needed(100, 0.75, 0.001, 50176) == 96


def test_smoothed_map_is_the_share_of_ones():
    certificate = votes_of([100, 30, 0]).certify()
    assert certificate.smoothed(50).tolist() == [[1.0, 0.3, 0.0]]


@pytest.mark.parametrize(("sigma", "radius"), [(0.15, 0.10), (0.25, 0.17), (0.33, 0.22)])
def test_radius_is_the_papers(sigma, radius):
    certificate = votes_of([100], sigma=sigma).certify()
    assert certificate.radius_on_lattice == pytest.approx(sigma * norm.ppf(0.75), rel=1e-8)
    assert certificate.radius_on_lattice < sigma * norm.ppf(0.75)
    assert round(certificate.radius, 2) == radius


def test_radius_gives_up_what_snapping_to_the_grid_may_cost():
    votes = votes_of(np.full(50176, 100))
    certificate = votes.certify()
    assert certificate.radius_on_lattice - certificate.radius == pytest.approx(np.sqrt(3 * 50176) * 2**-20)
    assert round(certificate.radius_on_lattice - certificate.radius, 5) == 0.00037
    by_count = statistics.radius_by_count(100, 0.15, 0.001, 50176)
    assert votes.radius_map(50).max() == pytest.approx(by_count[-1] - np.sqrt(3 * 50176) * 2**-20)


def test_radius_map_grows_with_agreement_and_is_zero_without():
    radii = votes_of([100, 97, 90, 50, 10, 0]).radius_map(50)[0]
    assert radii[0] > radii[1] > radii[2] > radii[3] == 0
    assert radii[0] == radii[5]
    assert radii[2] == radii[4]


def test_radius_map_over_all_levels_is_smaller():
    votes = votes_of([100], [100], levels=(50, 10))
    assert votes.radius_map(50, joint=True)[0, 0] < votes.radius_map(50)[0, 0]


def test_corrections_are_ordered_from_bold_to_careful():
    ones = np.r_[np.full(40000, 100), np.arange(86, 100), np.full(10162, 50)]
    certified = {
        name: votes_of(ones).certify(correction=name).percent_certified(50)
        for name in ("none", "holm", "bonferroni", "joint")
    }
    assert certified["none"] > certified["holm"] >= certified["bonferroni"] > certified["joint"]


def test_prediction_is_certified_beside_the_pixels():
    counts = np.array([100, 0, 0], dtype=np.int32)
    certificate = votes_of([100] * 100, predictions=counts).certify()
    needed = statistics.prediction_votes_needed(100, 0.75, 0.001 / 101)
    assert certificate.prediction == pc.Prediction(0, 100, pc.Claim(0.001 / 101, 1, needed), True)
    few = votes_of([100] * 100, predictions=np.array([5, needed - 1, 96 - needed], dtype=np.int32)).certify()
    assert few.prediction == pc.Prediction(1, needed - 1, pc.Claim(0.001 / 101, 1, needed), False)
    assert votes_of([100]).certify().prediction is None


def test_prediction_takes_its_share_of_alpha_from_the_pixels():
    n, pixels = 100, 1
    without = votes_of([0], n=n).certify(0.75, 0.0007, correction="bonferroni").claims[50].votes_needed
    beside = votes_of([0], n=n, predictions=np.array([n], dtype=np.int32))
    with_prediction = beside.certify(0.75, 0.0007, correction="bonferroni").claims[50].votes_needed
    assert with_prediction == statistics.votes_needed(n, 0.75, 0.00035, pixels) > without


def test_the_fewest_feasible_samples_certify_even_when_the_prediction_cannot_be():
    predictions = np.array([62], dtype=np.int32)
    certificate = votes_of(np.full(50176, 62), n=62, predictions=predictions).certify()
    assert certificate.percent_certified(50) == 100
    assert certificate.prediction == pc.Prediction(0, 62, None, False)


def test_reference_preset_is_the_published_test():
    """Guess from ten samples, then a one-sided binomial test of the others at α/N, against a direct version."""
    rng = np.random.default_rng(0)
    bits = rng.random((100, 400)) < rng.choice([0.02, 0.5, 0.9, 0.97, 1.0], 400)
    plan = pc.Plan(n=100, levels=(50,), sign="absolute", rule="percentile", guess=10, seed=0)
    ones = bits.sum(0).astype(np.int32)[None, None]
    guess_ones = bits[:10].sum(0).astype(np.int32)[None, None]
    certificate = pc.Votes(plan, SOURCE, 3, 100, ones, 100 - ones, guess_ones).certify()
    expected = []
    for pixel in bits.T:
        guess = pixel[:10].sum() > 5
        p_value = binom.sf((pixel[10:] == guess).sum() - 1, 90, 0.75)
        expected.append(int(guess) if p_value <= 0.001 / 400 else pc.ABSTAIN)
    assert certificate.correction == "reference"
    assert certificate.labels[50].flatten().tolist() == expected
    assert {1, 0, pc.ABSTAIN} == set(expected)


def test_our_test_certifies_more_from_the_same_votes_than_the_reference():
    plan = pc.Plan(n=100, levels=(50,), sign="absolute", rule="percentile", guess=10, seed=0)
    ones = np.full((1, 224, 224), 96, dtype=np.int32)
    guess_ones = np.full_like(ones, 9)
    votes = pc.Votes(plan, SOURCE, 3, 100, ones, 100 - ones, guess_ones)
    assert votes.certify().percent_certified(50) == 0
    assert votes.certify(correction="holm").percent_certified(50) == 100


def test_levels_may_be_chosen_afterwards():
    votes = votes_of([100], [0], [0], levels=(50, 10, 5))
    assert votes.certify(levels=(10,)).levels == (10,)
    with pytest.raises(pc.ArgumentError, match="level 25 is not available: choose one of 50, 10, 5"):
        votes.certify(levels=(25,))


def test_levels_that_are_not_in_the_certificate_are_refused():
    certificate = votes_of([100], [0], [0], levels=(50, 10, 5)).certify(levels=(50, 5))
    for share in (certificate.percent_certified, certificate.shares):
        for level in (33, 10):
            with pytest.raises(pc.ArgumentError, match=f"level {level} is not available: choose one of 50, 5"):
                share(level)


def test_impossible_requests_are_refused():
    votes = votes_of(np.full(50176, 100))
    with pytest.raises(pc.InfeasibleError, match=r"tau=0\.9.*at least 169"):
        votes.certify(tau=0.9)
    with pytest.raises(pc.ArgumentError, match='preset="reference"'):
        votes.certify(correction="reference")
    with pytest.raises(pc.ArgumentError, match="correction='simes'"):
        votes.certify(correction="simes")
    with pytest.raises(pc.ArgumentError, match="alpha=2"):
        votes.radius_map(50, alpha=2)


def test_a_certificate_cannot_be_changed():
    certificate = votes_of([100]).certify()
    with pytest.raises(dataclasses.FrozenInstanceError):
        certificate.tau = 0.5
    with pytest.raises(TypeError):
        certificate.labels[50] = None
    with pytest.raises(ValueError, match="read-only"):
        certificate.labels[50][0, 0] = 0
    with pytest.raises(ValueError, match="read-only"):
        certificate.overlay[0, 0] = 0


def test_a_radius_of_zero_is_said_to_promise_nothing():
    with pytest.warns(pc.PixelcertWarning, match="radius of 0"):
        votes_of([100]).certify(tau=0.5)


@pytest.mark.parametrize(("correction", "words"), [
    ("holm", "for each level apart"), ("joint", "for all levels together"), ("none", "for study only"),
])  # fmt: skip
def test_the_promise_says_for_what_it_holds(correction, words):
    promise = votes_of([100]).certify(correction=correction).promise
    assert words in promise
    assert ("99.9 %" in promise) == (correction != "none")


@pytest.mark.parametrize(("correction", "words"), [
    ("holm", 'All 2 levels together hold a false label with a chance of up to 0.2 %; the correction "joint" promises'),
    ("bonferroni", "up to 0.2 %"), ("joint", ""), ("none", ""),
])  # fmt: skip
def test_the_cost_of_reading_several_levels_is_said_with_the_remedy(correction, words):
    counts = np.full((2, 1, 40), 100, dtype=np.int32)
    plan = pc.Plan(n=100, levels=(50, 25), seed=0)
    votes = pc.Votes(plan, SOURCE, 3, 100, counts, 100 - counts)
    assert words in (together := votes.certify(correction=correction).together)
    assert bool(together) == bool(words)
    assert votes.certify(correction=correction, levels=25).together == ""
    assert "up to 100 %" in votes.certify(0.6, 0.9).together


def test_the_promise_says_in_which_space_the_radius_holds():
    counts = np.full((1, 2, 3), 100, dtype=np.int32)
    certificate = pc.Votes(pc.Plan(n=100, levels=(50,), seed=0), SOURCE, 5, 100, counts, 100 - counts).certify()
    assert certificate.space == "2 × 3 × 5 values in [0, 1]"
    assert certificate.promise.endswith("below R = 0.1011 in ℓ2 of the image's 2 × 3 × 5 values in [0, 1].")


def test_each_claim_tells_its_alpha_and_number_of_hypotheses():
    votes = votes_of([100] * 99, predictions=np.array([100], dtype=np.int32))
    holm, joint = votes.certify(), votes.certify(correction="joint")
    assert holm.claims[50][:2] == pytest.approx((0.00099, 99))
    assert holm.overlay_claim[:2] == pytest.approx((0.00099, 99))
    assert holm.prediction.claim[:2] == pytest.approx((0.00001, 1))
    assert joint.claims[50][:2] == pytest.approx((0.00099, 198))
