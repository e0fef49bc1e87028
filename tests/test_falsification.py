"""Checks that a wrong certifier does not pass, and proof that each check can fail.

Each check measures the library against a world where the truth is known exactly. Then each known fault is put into
the library, and its check must fail.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.stats import norm

import pixelcert as pc
from pixelcert import ranking, statistics
from pixelcert.explainer import BlackBox
from pixelcert.sampling import loop
from pixelcert.sampling import sample as sampling

SIGMA, TAU, ALPHA = 0.15, 0.75, 0.05
R = SIGMA * norm.ppf(TAU)
BASE = torch.full((1, 8, 8), 0.5)
DIRECTIONS = torch.linalg.qr(torch.randn(64, 64, generator=torch.Generator().manual_seed(1)).double())[0][:32]


class HalfSpaces:
    """Pixel i < 32 is in the top half iff w_i·x > c_i, and pixel i + 32 iff it is not: p_i = Φ(margin_i / σ) exactly.

    The w_i are orthonormal and every map has 32 ones, so K = 49 asks for exactly these and nothing is tied.
    """

    level = 49

    def __init__(self, margin: float) -> None:
        self.offsets = DIRECTIONS @ BASE.double().flatten() - margin

    def __call__(self, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        inside = (images.double().flatten(1) @ DIRECTIONS.T > self.offsets).double() * 2 - 1
        return torch.cat([inside, -inside], dim=1).view(-1, 8, 8)

    def margins(self, image: torch.Tensor) -> np.ndarray:
        """Signed distance of every pixel to the boundary where its majority label changes: (64,)."""
        distance = (DIRECTIONS @ image.double().flatten() - self.offsets).numpy()
        return np.concatenate([distance, -distance])


def half_space_labels(world: HalfSpaces, n: int, seed: int) -> tuple[pc.Certificate, np.ndarray]:
    votes = pc.sample(world, BASE, 0, sigma=SIGMA, n=n, levels=(world.level,), seed=seed, alpha=ALPHA)
    certificate = votes.certify(TAU, ALPHA)
    return certificate, certificate.labels[world.level].flatten()


# ── The checks ────────────────────────────────────────────────────────────────────────────────────────────────────


def check_false_certificates_are_rare() -> None:
    """Just inside R no pixel may be certified, so every certificate is false; at most a share α of the runs has one."""
    world, runs = HalfSpaces(margin=R * (1 - 1e-3)), 300
    false = sum(bool((half_space_labels(world, 100, seed)[1] != pc.ABSTAIN).any()) for seed in range(runs))
    assert false / runs <= ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / runs)


def check_certified_majority_survives_the_radius() -> None:
    """At margin 1.3 R nearly all is certified; moved towards the boundary by the radius, every majority must hold."""
    world = HalfSpaces(margin=1.3 * R)
    certificate, labels = half_space_labels(world, 2000, seed=0)
    certified = labels != pc.ABSTAIN
    assert certified.mean() > 0.9, "too little is certified for the check to say anything"
    step = certificate.radius_on_lattice * (1 - 1e-6)
    for pixel in np.flatnonzero(certified):
        towards = DIRECTIONS[pixel % 32] * (-1 if pixel < 32 else 1) * (1 if labels[pixel] == 1 else -1)
        moved = BASE.double() + step * towards.view(1, 8, 8)
        probability = norm.cdf(world.margins(moved)[pixel] / SIGMA)
        assert (probability > 0.5) == (labels[pixel] == 1)


def check_votes_depend_on_the_noisy_images_alone() -> None:
    """Two clean images, the same noisy copies: the votes must be the same."""
    copies = torch.rand(100, 1, 8, 8, generator=torch.Generator().manual_seed(2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "noisy", lambda image, sigma, seed, indices, out: out.copy_(copies[list(indices)]))
        one, other = (pc.sample(lambda x, t: x[:, 0] ** 2, image, 0) for image in (BASE, BASE * 0.2))
    assert np.array_equal(one.ones, other.ones)
    assert np.array_equal(one.zeros, other.zeros)


def check_ties_certify_nothing() -> None:
    """Half of the map is tied at the threshold: whatever n is, those pixels must abstain."""

    def tied(images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        maps = torch.zeros(len(images), 8, 8)
        maps[:, 0] = 1.0
        return maps

    labels = pc.certify(tied, BASE, 0, levels=(50,)).labels[50]
    assert (labels[0] == 1).all()
    assert (labels[1:] == pc.ABSTAIN).all()


def check_family_wise_error_of_every_correction() -> None:
    """Worst cases by simulation: all p = τ; half alternatives; nested levels at 1 - τ and τ together."""
    rng = np.random.default_rng(0)
    n, pixels, runs = 110, 200, 1500  # where thresholds lie close to α, so that a missing factor shows
    limit = 0.1 + 3 * math.sqrt(0.1 * 0.9 / runs)
    for alternatives in (0, pixels // 2):
        p = np.r_[np.full(alternatives, 0.97), np.full(pixels - alternatives, TAU)]
        false = 0
        for ones in rng.binomial(n, p, size=(runs, pixels)):
            labels = votes_from(ones[None], n).certify(TAU, 0.1).labels[50].flatten()
            false += bool((labels[alternatives:] != pc.ABSTAIN).any())
        assert false / runs <= limit, f"holm, {alternatives} alternatives"

    false = 0
    for low in rng.binomial(n, 1 - TAU, size=(runs, pixels)):
        high = low + rng.binomial(n - low, (2 * TAU - 1) / TAU)
        certificate = votes_from(np.stack([high, low]), n, levels=(50, 10)).certify(TAU, 0.1, correction="joint")
        false += any((labels != pc.ABSTAIN).any() for labels in certificate.labels.values())
    assert false / runs <= limit, "joint"


def check_wrong_signs_are_rare_where_holm_steps_down() -> None:
    """τ = 1/2, nearly all pixels certified and ten undecided at p = 1/2: either label of those is false."""
    rng = np.random.default_rng(6)
    n, pixels, runs = 110, 200, 1500
    p = np.r_[np.full(pixels - 10, 0.99), np.full(10, 0.5)]
    false = 0
    for ones in rng.binomial(n, p, size=(runs, pixels)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", pc.PixelcertWarning)  # τ = 1/2 has a radius of 0, and says so
            labels = votes_from(ones[None], n).certify(0.5, 0.1).labels[50].flatten()
        false += bool((labels[-10:] != pc.ABSTAIN).any())
    assert false / runs <= 0.1 + 3 * math.sqrt(0.1 * 0.9 / runs)


def check_family_wise_error_of_the_overlay() -> None:
    """Two nested levels, p = τ at the larger and just below at the smaller: any overlay is false."""
    rng = np.random.default_rng(5)
    n, pixels, runs = 110, 200, 1500
    false = 0
    for high in rng.binomial(n, TAU, size=(runs, pixels)):
        low = rng.binomial(high, 0.99)
        votes = votes_from(np.stack([high, low]), n, levels=(50, 10))
        false += bool(votes.certify(TAU, 0.1).overlay.any())
    assert false / runs <= 0.1 + 3 * math.sqrt(0.1 * 0.9 / runs)


def check_family_wise_error_of_the_radius_map() -> None:
    """p = 1/2 everywhere: any positive radius is false, at one level, and at any of six independent ones."""
    rng = np.random.default_rng(1)
    runs, n = 1500, 60
    for levels in ((50,), (50, 25, 10, 5, 2, 1)):
        false = 0
        for ones in rng.binomial(n, 0.5, (runs, len(levels), 100)):
            votes = votes_from(ones, n, levels)
            false += any((votes.radius_map(level, 0.1, joint=len(levels) > 1) > 0).any() for level in levels)
        assert false / runs <= 0.1 + 3 * math.sqrt(0.1 * 0.9 / runs)


def check_votes_follow_the_true_probabilities() -> None:
    """h_i = x_i: the chance to rank in the top K % is known, so σ, the ranking and the counting can be held to it."""
    image, level, n = rank_image(), 25, 4000
    votes = pc.sample(lambda images, targets: images[:, 0], image, 0, sigma=SIGMA, n=n, levels=(level,))
    truth = rank_probabilities(image.flatten().numpy(), ranking.ones_at(level, image.numel()))
    error = (votes.ones[0].flatten() / n - truth) / np.sqrt(truth * (1 - truth) / n + 1e-9)
    assert np.abs(error).max() < 4.5
    assert np.square(error).mean() < 1.6


def rank_image() -> torch.Tensor:
    return torch.linspace(0.2, 0.8, 36).view(1, 6, 6)


def rank_probabilities(x: np.ndarray, size: int) -> np.ndarray:
    """P(x_i + ε_i is among the `size` largest): Poisson's binomial law of the others, integrated over ε_i."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(120)
    result = []
    for i in range(len(x)):
        above = norm.sf((x[i] + SIGMA * nodes[:, None] - np.delete(x, i)) / SIGMA)  # (nodes, others)
        law = np.zeros((len(nodes), size))  # P(exactly j of the others are above), j < size
        law[:, 0] = 1
        for chance in above.T:
            law[:, 1:] = law[:, 1:] * (1 - chance[:, None]) + law[:, :-1] * chance[:, None]
            law[:, 0] *= 1 - chance
        result.append((weights / weights.sum()) @ law.sum(axis=1))
    return np.array(result)


def check_prediction_errors_are_rare() -> None:
    """Two classes, the first at p = τ exactly: certifying it is false."""
    rng = np.random.default_rng(3)
    runs, n, pixels = 3000, 60, 1
    false = 0
    for first in rng.binomial(n, TAU, runs):
        votes = votes_from(np.zeros((1, pixels)), n)
        votes = dataclasses.replace(votes, predictions=np.array([first, n - first], dtype=np.int32))
        prediction = votes.certify(TAU, 0.2).prediction
        assert prediction is not None
        false += prediction.certified
    share = 0.2 / (pixels + 1)  # of α, for one hypothesis beside one pixel
    assert false / runs <= share + 3 * math.sqrt(share * (1 - share) / runs)


def votes_from(ones: np.ndarray, n: int, levels: tuple[float, ...] = (50,)) -> pc.Votes:
    """Votes with the given counts (levels, pixels), every other vote being for 0."""
    ones = ones.astype(np.int32).reshape(len(levels), 1, -1)
    source = pc.Provenance("test", {}, "", "", "", "", "", 0, {}, "cpu", "float32", 1, False, {})
    return pc.Votes(pc.Plan(n=n, levels=levels, seed=0), source, 1, n, ones, n - ones)


CHECKS = [
    check_false_certificates_are_rare,
    check_certified_majority_survives_the_radius,
    check_votes_depend_on_the_noisy_images_alone,
    check_ties_certify_nothing,
    check_family_wise_error_of_every_correction,
    check_wrong_signs_are_rare_where_holm_steps_down,
    check_family_wise_error_of_the_overlay,
    check_family_wise_error_of_the_radius_map,
    check_votes_follow_the_true_probabilities,
    check_prediction_errors_are_rare,
]


@pytest.mark.parametrize("check", CHECKS)
def test_the_library_passes(check: Callable[[], None]) -> None:
    check()


def test_probabilities_move_no_faster_than_the_theorem_says() -> None:
    """|σ·ΔΦ⁻¹(p)| ≤ ‖δ‖ for every pixel, in random directions and in each pixel's own worst one."""
    x, size = rank_image().flatten().numpy().astype(float), 10
    rng = np.random.default_rng(4)
    before = SIGMA * norm.ppf(rank_probabilities(x, size))
    worst = np.full((3, 36), 1 / 36) - np.eye(36)[[5, 20, 30]]
    for delta in (*rng.normal(size=(5, 36)), *worst):
        delta *= 0.1 / np.linalg.norm(delta)
        after = SIGMA * norm.ppf(rank_probabilities(x + delta, size))
        assert np.abs(after - before).max() <= 0.1 + 1e-9


def test_certified_ranks_hold_at_the_edge_of_the_ball() -> None:
    """Certify h_i = x_i, then move inside the radius against each certified pixel: its majority must hold, exactly."""
    image, level, n = rank_image(), 25, 400
    votes = pc.sample(lambda images, targets: images[:, 0], image, 0, sigma=SIGMA, n=n, levels=(level,), seed=1)
    certificate = votes.certify(TAU, ALPHA)
    labels, radii = certificate.labels[level].flatten(), votes.radius_map(level, ALPHA).flatten()
    x, size = image.flatten().numpy().astype(float), ranking.ones_at(level, 36)
    assert (labels == 1).sum() >= 2
    assert (labels == 0).sum() >= 10
    for pixel in np.flatnonzero(labels != pc.ABSTAIN):
        against = (np.full(36, 1 / 36) - np.eye(36)[pixel]) * (1 if labels[pixel] == 1 else -1)
        for radius in (certificate.radius, radii[pixel]):
            moved = rank_probabilities(x + radius * against / np.linalg.norm(against), size)[pixel]
            assert (moved > 0.5) == (labels[pixel] == 1)


# ── The faults ────────────────────────────────────────────────────────────────────────────────────────────────────


def no_multiplicity_correction(patch: pytest.MonkeyPatch) -> None:
    real = statistics.threshold
    patch.setattr(statistics, "threshold", lambda n, tau, alpha, ways, flips=0: real(n, tau, alpha, 1, min(flips, 1)))


def wrong_number_of_trials(patch: pytest.MonkeyPatch) -> None:
    real = statistics.threshold
    patch.setattr(statistics, "threshold", lambda n, *rest, **named: real(n - 10, *rest, **named))


def plug_in_estimate(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(statistics, "threshold", lambda n, tau, *rest, **named: math.floor(n * tau) + 1)


def plug_in_radius(patch: pytest.MonkeyPatch) -> None:
    def plug_in(n: int, sigma: float, alpha: float, pixels: int, levels: int = 1) -> np.ndarray:
        return np.array([statistics.radius(sigma, min(count / n, 1 - 1e-9)) for count in range(n + 1)])

    patch.setattr(statistics, "radius_by_count", plug_in)


def radius_times_1_35(patch: pytest.MonkeyPatch) -> None:
    real = statistics.radius
    patch.setattr(statistics, "radius", lambda sigma, probability: 1.35 * real(sigma, probability))


def clean_image_leakage(patch: pytest.MonkeyPatch) -> None:
    """What the published code does: divide by a percentile of the clean map, and clip."""
    real = sampling.count_each

    def leaky(runs, explainer, *rest):
        (run,) = runs
        scale = explainer(run.clean[None], None).abs().quantile(0.99)
        return real([run], BlackBox(lambda images, targets: (explainer(images, targets) / scale).clamp(-1, 1)), *rest)

    patch.setattr(sampling, "count_each", leaky)


def ties_counted_as_ones(patch: pytest.MonkeyPatch) -> None:
    real = ranking.Ranking.of

    def with_ties(maps, *how):
        order = maps.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
        return real(-order.to(maps.dtype), *how)

    patch.setattr(ranking.Ranking, "of", with_ties)


def joint_claims_tested_apart(patch: pytest.MonkeyPatch) -> None:
    real = statistics.votes_needed

    def apart(n, tau, alpha, pixels, correction="bonferroni"):
        return real(n, tau, alpha, pixels, "reference" if correction == "joint" else correction)

    patch.setattr(statistics, "votes_needed", apart)


def a_quarter_of_the_hypotheses_in_the_radius_map(patch: pytest.MonkeyPatch) -> None:
    real = statistics.radius_by_count
    patch.setattr(statistics, "radius_by_count", lambda n, s, a, pixels, levels=1: real(n, s, a, pixels // 4, levels))


def levels_forgotten_in_the_radius_map(patch: pytest.MonkeyPatch) -> None:
    real = statistics.radius_by_count
    patch.setattr(statistics, "radius_by_count", lambda n, s, a, pixels, levels=1: real(n, s, a, pixels, 1))


def overlay_without_correction(patch: pytest.MonkeyPatch) -> None:
    real = statistics.overlay_votes_needed
    patch.setattr(statistics, "overlay_votes_needed", lambda n, tau, alpha, pixels: real(n, tau, alpha, 1))


def sign_guard_forgotten_in_the_steps(patch: pytest.MonkeyPatch) -> None:
    real = statistics.threshold

    def forgetful(n, tau, alpha, ways, flips=0):
        return real(n, tau, alpha, ways, flips if flips == ways else 0)

    patch.setattr(statistics, "threshold", forgetful)


def prediction_without_its_factor(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(statistics, "prediction_votes_needed", lambda n, tau, alpha: math.floor(n * tau) + 1)


def noise_too_small(patch: pytest.MonkeyPatch) -> None:
    real = loop.noisy
    patch.setattr(loop, "noisy", lambda image, sigma, *rest, out: real(image, sigma * 0.9, *rest, out))


FAULTS = [
    (no_multiplicity_correction, check_false_certificates_are_rare),
    (no_multiplicity_correction, check_family_wise_error_of_every_correction),
    (wrong_number_of_trials, check_false_certificates_are_rare),
    (plug_in_estimate, check_false_certificates_are_rare),
    (plug_in_radius, check_family_wise_error_of_the_radius_map),
    (radius_times_1_35, check_certified_majority_survives_the_radius),
    (clean_image_leakage, check_votes_depend_on_the_noisy_images_alone),
    (ties_counted_as_ones, check_ties_certify_nothing),
    (joint_claims_tested_apart, check_family_wise_error_of_every_correction),
    (a_quarter_of_the_hypotheses_in_the_radius_map, check_family_wise_error_of_the_radius_map),
    (levels_forgotten_in_the_radius_map, check_family_wise_error_of_the_radius_map),
    (sign_guard_forgotten_in_the_steps, check_wrong_signs_are_rare_where_holm_steps_down),
    (overlay_without_correction, check_family_wise_error_of_the_overlay),
    (noise_too_small, check_votes_follow_the_true_probabilities),
    (prediction_without_its_factor, check_prediction_errors_are_rare),
]


@pytest.mark.parametrize(("fault", "check"), FAULTS)
def test_each_fault_is_caught(
    fault: Callable[[pytest.MonkeyPatch], None], check: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    with pytest.raises(AssertionError):
        check()
