"""Attacks on certificates: they flip what may flip, cannot flip what may not, and catch certificates that lie."""

from __future__ import annotations

import dataclasses
import re
from fractions import Fraction
from functools import partial
from math import comb
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch
from attack_world import IMAGE, SIGMA, Distances, Votes, margins
from scipy.stats import norm
from small_networks import SIZE, small_model

import pixelcert as pc
from pixelcert.attacks import attack_certificate, campaign, choose_pixels
from pixelcert.attacks.campaign import Campaign
from pixelcert.attacks.descent import Effort
from pixelcert.attacks.judge import GROUPS, Attempt, Judge, labels_before
from pixelcert.attacks.outcome import Outcome
from pixelcert.basics.files import read_arrays
from pixelcert.certificate import Certificate
from pixelcert.noise import key_of, noisy
from pixelcert.sampling.sample import Subject, sample_each
from pixelcert.statistics import votes_against_needed

LEVEL, FRAGILE, BARELY = Distances.level, [0, 32], [1, 33]  # pixels and their mirrors, see `margins`
QUICK = Effort(steps=12, draws=48, samples=1500)


def certify(world: Distances | Votes, n: int = 1000) -> Certificate:
    votes = pc.sample(world, IMAGE, 0, sigma=SIGMA, n=n, levels=(LEVEL,), batch_size=250)
    return votes.certify(tau=0.75, alpha=0.001)


def claiming(certificate: Certificate, **other: Any) -> Certificate:
    """Claim another τ (and so another radius), α or correction for the same labels."""
    return dataclasses.replace(certificate, criterion=dataclasses.replace(certificate.criterion, **other))


@pytest.fixture(scope="session")
def certificate() -> Certificate:
    return certify(Distances(margins()))


@pytest.fixture(scope="session")
def outcome(certificate) -> Outcome:
    return attack_certificate(certificate, Distances(margins()), IMAGE, QUICK)


def find(outcome: Outcome, change: str, multiple: float) -> Attempt:
    wanted = multiple * outcome.certificate.radius
    (found,) = (one for one in outcome.attempts if one.change == change and np.isclose(one.radius, wanted))
    return found


def flipped(outcome: Outcome, attempt: Attempt) -> list[int]:
    return np.flatnonzero(outcome.judge.provably_flipped(attempt)).tolist()


# ── A sound certificate ───────────────────────────────────────────────────────────────────────────────────────────


def test_the_world_has_both_certified_and_abstaining_pixels(certificate):
    labels = certificate.labels[LEVEL].flatten()
    assert np.flatnonzero(labels == pc.ABSTAIN).tolist() == FRAGILE
    assert (labels[1:32] == 1).all()
    assert (labels[33:] == 0).all()


def test_an_uncertified_pixel_is_flipped_inside_the_radius_and_not_by_chance(outcome):
    assert flipped(outcome, find(outcome, "abstaining", 1)) == FRAGILE
    assert flipped(outcome, outcome.attempts[0]) == []
    assert flipped(outcome, find(outcome, "random", 1)) == []


def test_flips_are_those_of_the_closed_form(outcome):
    """A pixel has lost its majority only if the image has moved beyond its boundary."""
    world = Distances(margins())
    for attempt in outcome.attempts:
        left = world.margins(IMAGE + torch.from_numpy(attempt.delta))
        provably, estimated = (
            test(attempt).flatten() for test in (outcome.judge.provably_flipped, outcome.judge.flipped)
        )
        assert (left[provably] < 0).all()
        assert not estimated[left > 0.03].any()
        assert provably[left < -0.05].all()


def test_certified_pixels_hold_inside_the_radius_and_fall_beyond(outcome):
    assert outcome.broken == 0
    assert outcome.verdict.startswith("holds")
    inside = [one for one in outcome.attempts if outcome.inside(one)]
    assert {one.change for one in inside} == {"none", "random", "certified", "abstaining"}
    for attempt in inside:
        assert outcome.toll(attempt, "certified in")[:3] == (31, 0, 0)
        assert outcome.toll(attempt, "certified out")[:3] == (31, 0, 0)
    assert set(flipped(outcome, find(outcome, "certified", 4))) >= set(BARELY)


def test_a_certified_pixel_may_come_to_abstain_inside_the_radius(outcome):
    """What the published theorem rules out: only the majority is kept, not the map with abstentions."""
    attempt, world = find(outcome, "certified", 1), Distances(margins())
    assert outcome.inside(attempt)
    shares = norm.cdf(world.margins(IMAGE + torch.from_numpy(attempt.delta)) / SIGMA)
    assert (shares[BARELY] > 0.5).all()
    assert (shares[BARELY] < outcome.certificate.tau).all()
    assert np.flatnonzero(outcome.judge.provably_abstains(attempt)).tolist() == BARELY
    assert not outcome.judge.provably_flipped(attempt).flatten()[BARELY].any()


def test_abstentions_are_those_of_the_closed_form(outcome):
    """A pixel's share at x + δ is Φ(its distance to its boundary / σ)."""
    world, certified = Distances(margins()), outcome.certificate.labels[LEVEL].flatten() != pc.ABSTAIN
    for attempt in outcome.attempts:
        shares = norm.cdf(world.margins(IMAGE + torch.from_numpy(attempt.delta)) / SIGMA)
        abstains = outcome.judge.provably_abstains(attempt).flatten()
        assert (shares[abstains] < outcome.certificate.tau).all()
        assert abstains[certified & (shares < outcome.certificate.tau - 0.1)].all()
        assert not abstains[~certified].any()


def test_the_attack_goes_nearly_as_far_as_any_could(outcome):
    """The shortest way against one pixel is straight along its own direction."""
    world, attempt = Distances(margins()), find(outcome, "abstaining", 1)
    moved = world.margins(IMAGE) - world.margins(IMAGE + torch.from_numpy(attempt.delta))
    assert moved[FRAGILE].min() > 0.9 * outcome.certificate.radius


@pytest.mark.parametrize(
    ("layer", "asked", "taken", "reach"),
    [("input", "auto", "stein", 2), ("input", "pathwise", "pathwise", None), ("final", "auto", "pathwise", None)],
)
def test_at_the_input_votes_lead_the_way_unless_surrogates_are_asked_for(layer, asked, taken, reach):
    explainer = pc.method("ixg", small_model("resnet"), layer)
    image = torch.rand(3, 64, 64, generator=torch.Generator().manual_seed(0))
    votes = pc.sample(explainer, image, 3, n=30, levels=(50,), tau=None)
    prepared = Campaign(votes.certify(tau=0.55), explainer, image, Effort(samples=60, gradient=asked))
    for descent in prepared.descents.values():
        assert descent.gradient.name == taken
        assert getattr(descent.gradient, "reach", None) == reach


def test_a_single_pixel_is_flipped_as_soon_as_any_change_can(certificate):
    """Its boundary is 0.04 away, so a well-aimed change twice as long is proven. No other pixel is counted."""
    single = attack_certificate(certificate, Distances(margins()), IMAGE, QUICK, pixel=(0, 0), radii=(0.035, 0.08))
    assert [one.change for one in single.attempts] == ["none", "random", "abstaining", "random", "abstaining"]
    before, after = single.attempts[2], single.attempts[4]
    assert flipped(single, after) == [0]
    assert flipped(single, before) == []
    assert single.toll(after, "abstaining")[:3] == (1, 1, 1)
    assert single.toll(after, "certified in").pixels == single.toll(after, "certified out").pixels == 0
    assert single.judge.votes_against_needed == votes_against_needed(QUICK.samples, 0.5, 0.001, 5)  # hypotheses
    assert single.as_dict()["pixel"] == (0, 0)
    assert single.verdict.startswith("nothing certified: no pixel here is promised anything inside R = ")


def test_a_single_certified_pixel_holds_inside_the_radius_and_falls_beyond(certificate):
    single = attack_certificate(certificate, Distances(margins()), IMAGE, QUICK, pixel=(0, 1), radii=(0.1, 0.25))
    inside, beyond = (one for one in single.attempts if one.change == "certified")
    assert single.inside(inside)
    assert single.broken == 0
    assert (flipped(single, inside), flipped(single, beyond)) == ([], [1])
    assert single.judge.votes_against_needed_to_abstain == votes_against_needed(QUICK.samples, 0.75, 0.001, 5)
    lying = claiming(certificate, tau=0.97)  # and so R = 0.28, where the pixel's boundary is 0.17 away
    caught = attack_certificate(lying, Distances(margins()), IMAGE, QUICK, pixel=(0, 1), radii=(0.25,))
    assert caught.broken == 1


def test_pixels_are_the_weakest_certified_and_any_that_abstain(make_votes):
    ones = np.full((4, 5), 500)  # of 1000: no majority
    ones[0], ones[1] = [999, 960, 980, 970, 1000], [600, 700, 650, 560, 530]
    votes = make_votes((50,), (4, 5), 1000, ones=ones[None])
    certificate = votes.certify()
    chosen = choose_pixels(certificate, None, 2)
    assert chosen[:2] == [(0, 1), (0, 3)]
    assert {row for row, _ in chosen[2:]} == {1}
    assert len(set(chosen)) == 4
    assert chosen == choose_pixels(certificate, None, 2)
    assert sorted(choose_pixels(certificate, None, 100)) == [(row, column) for row in (0, 1) for column in range(5)]
    drawn = {tuple(choose_pixels(certificate, None, 2, seed)[2:]) for seed in range(20)}
    assert len(drawn) > 5


def test_pixels_that_are_not_there_are_refused(certificate, make_votes):
    with pytest.raises(pc.ArgumentError, match=r"pixel 8, 0 is not in a map of 8 × 8"):
        attack_certificate(certificate, Distances(margins()), IMAGE, pixel=(8, 0))
    with pytest.raises(pc.ArgumentError, match=r"pixel 0, -1 is not in a map"):
        attack_certificate(certificate, Distances(margins()), IMAGE, pixel=(0, -1))
    with pytest.raises(pc.ArgumentError, match=r"pixels=0 is not a whole number from 1"):
        choose_pixels(certificate, None, 0)
    undecided = make_votes((50,), (4, 5), 1000, ones=np.full((1, 4, 5), 500)).certify()
    with pytest.raises(pc.ArgumentError, match="at level 50 no pixel has a majority"):
        choose_pixels(undecided, None, 1)


def test_perturbations_are_small_and_leave_an_image(outcome):
    for attempt in outcome.attempts:
        assert attempt.norm <= attempt.radius
        moved = IMAGE.numpy() + attempt.delta
        assert 0 <= moved.min() <= moved.max() <= 1
    assert find(outcome, "random", 1).norm == pytest.approx(find(outcome, "certified", 1).norm, rel=1e-3)


def test_black_boxes_are_attacked_by_votes_only():
    world = Votes(margins())
    found = attack_certificate(certify(world), world, IMAGE, Effort(steps=8, draws=32, samples=800), radii=[0.1])
    assert found.gradient == "stein"
    assert flipped(found, found.attempts[-1]) == FRAGILE
    assert found.broken == 0


@pytest.mark.parametrize(
    "rules", [{"rule": "percentile"}, {"rule": "percentile", "guess": 10}, {"sign": "absolute"}, {"sign": "positive"}]
)
def test_votes_are_counted_anew_by_the_rules_they_were_counted_by(rules, monkeypatch):
    world, real, plans = Distances(margins()), campaign.sample_each, []
    plan = pc.Plan(sigma=SIGMA, n=500, levels=(LEVEL,), seed=0, **rules)
    (votes,) = sample_each(plan, world, [Subject(IMAGE, 0)])

    def watched(given: pc.Plan, *rest: Any, **settings: Any) -> Any:
        plans.append(given)
        return real(given, *rest, **settings)

    monkeypatch.setattr(campaign, "sample_each", watched)
    found = pc.attack(votes, world, IMAGE, radii=[0.1], steps=5, draws=16, samples=800)
    assert found.broken == 0
    assert plans
    for fresh in plans:
        assert dataclasses.replace(fresh, n=500, seed=0, streams=True, guess=plan.guess) == plan


def test_equal_seeds_make_equal_attacks(certificate):
    def run(seed: int) -> Outcome:
        effort = Effort(steps=3, draws=4, samples=100, seed=seed)
        return attack_certificate(certificate, Distances(margins()), IMAGE, effort, radii=[0.1])

    one, same, other = run(1), run(1), run(2)
    for mine, theirs in zip(one.attempts, same.attempts, strict=True):
        np.testing.assert_array_equal(mine.delta, theirs.delta)
        np.testing.assert_array_equal(mine.ones, theirs.ones)
    assert not np.array_equal(one.attempts[0].ones, other.attempts[0].ones)
    assert not np.array_equal(one.attempts[2].delta, other.attempts[2].delta)


@pytest.mark.parametrize("seed", [0, 7, -3, 2**63 - 1, -(2**63)])
@pytest.mark.parametrize("streams", [True, False])
def test_noise_is_never_that_of_the_certificate(seed, streams, monkeypatch):
    """Even if both have the same seed, the attack, its judge and the certificate draw noise of three keys."""
    world, keys = Distances(margins()), []
    plan = pc.Plan(sigma=SIGMA, n=500, levels=(LEVEL,), seed=seed, streams=streams)
    (votes,) = sample_each(plan, world, [Subject(IMAGE, 0)])

    def watched(clean: Any, sigma: float, key: int, *rest: Any, **named: Any) -> Any:
        keys.append(key)
        return noisy(clean, sigma, key, *rest, **named)

    monkeypatch.setattr("pixelcert.sampling.loop.noisy", watched)
    pc.attack(votes, world, IMAGE, radii=[0.1], steps=2, draws=4, samples=100, seed=seed)
    assert len({*keys}) == 2
    assert key_of(plan, votes.provenance.image) not in keys


def test_an_unstated_seed_is_drawn_and_recorded(certificate, monkeypatch):
    monkeypatch.setattr("pixelcert.plan.secrets.randbits", lambda bits: 2**bits - 1)
    effort = Effort(steps=2, draws=4, samples=100)
    outcome = attack_certificate(certificate, Distances(margins()), IMAGE, effort, radii=[0.1])
    assert outcome.seed == 2**63 - 1
    assert outcome.as_dict()["seed"] == str(2**63 - 1)  # JavaScript would round the number


def test_progress_ends_where_it_was_planned_to(certificate):
    seen: list[tuple[int, int]] = []
    effort = Effort(steps=3, draws=4, samples=100)
    report = lambda done, planned: seen.append((done, planned))  # noqa: E731
    attack_certificate(certificate, Distances(margins()), IMAGE, effort, radii=[0.1, 0.2], progress=report)
    done, planned = zip(*seen, strict=True)
    assert list(done) == sorted(done)
    assert set(planned) == {done[-1]}


# ── Certificates that lie ─────────────────────────────────────────────────────────────────────────────────────────


def test_labels_from_too_low_a_threshold_are_caught(certificate):
    """As if a bare majority of the votes were enough."""
    lies = MappingProxyType({LEVEL: labels_before(certificate, LEVEL)})
    lying = dataclasses.replace(certificate, labels=lies)
    found = attack_certificate(lying, Distances(margins()), IMAGE, QUICK, radii=[certificate.radius])
    assert found.broken == len(FRAGILE)
    assert found.verdict.startswith("BROKEN: 2 certified pixels")
    assert found.verdict.endswith("with probability 0.003 at most.")
    uncorrected = dataclasses.replace(found, certificate=claiming(lying, correction="none"))
    assert uncorrected.verdict.endswith("α is the chance of each single pixel to be false.")


def test_shares_below_tau_to_begin_with_are_caught(certificate):
    """As if 600 of 1000 votes were enough for τ = 0.75. Under a change below the radius, that is all right."""
    ones = np.where(certificate.labels[LEVEL] == 1, 600, 400).flatten()
    found = judged(certificate, ones, 1000)
    assert found.broken == 62
    moved = dataclasses.replace(found.attempts[0], change="certified")
    assert dataclasses.replace(found, attempts=(moved,)).broken == 0


def test_a_radius_that_is_too_large_is_caught(certificate):
    lying = claiming(certificate, tau=0.97)
    found = attack_certificate(lying, Distances(margins()), IMAGE, QUICK, radii=[lying.radius])
    assert found.broken >= len(BARELY)


# ── What is claimed of flips ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("share", [0.5, 0.6, 0.75, 0.9])
@pytest.mark.parametrize(("samples", "alpha", "hypotheses"), [(100, 0.001, 64), (150, 0.05, 50176), (40, 0.01, 1)])
def test_proof_takes_the_fewest_votes_that_are_enough(samples, share, alpha, hypotheses):
    """In whole numbers: how likely so few votes are for a label of just this share, over all hypotheses."""
    exact = Fraction(share)

    def chance(against: int) -> Fraction:
        few = range(samples - against + 1)
        return sum(comb(samples, k) * exact**k * (1 - exact) ** (samples - k) for k in few) * hypotheses

    needed = votes_against_needed(samples, share, alpha, hypotheses)
    assert chance(needed) <= Fraction(alpha) < chance(needed - 1)


def test_a_smaller_share_takes_more_votes_against_it():
    needed = [votes_against_needed(1000, share, 0.001, 1) for share in (0.5, 0.75, 0.9)]
    assert needed == sorted(needed, reverse=True)
    for share, votes in zip((0.5, 0.75, 0.9), needed, strict=True):
        assert 0 < votes - 1000 * (1 - share) < 60, "just above what a label of this share expects"


def test_too_few_samples_prove_nothing():
    assert votes_against_needed(10, 0.5, 0.001, 1000) == 11


def test_samples_that_can_prove_a_flip_can_prove_an_abstention():
    """So the check at the door asks only for the first."""
    for tau in (0.5, 0.6, 0.75, 0.99):
        assert votes_against_needed(30, tau, 0.001, 1000) <= votes_against_needed(30, 0.5, 0.001, 1000) <= 30


def counted(ones: np.ndarray, samples: int) -> Attempt:
    ones = ones.astype(np.int32).reshape(8, 8)
    return Attempt("none", 0.0, np.zeros((1, 8, 8), np.float32), ones, samples - ones)


def judged(certificate: Certificate, ones: np.ndarray, samples: int) -> Outcome:
    return Outcome(certificate, LEVEL, samples, "stein", 0, (counted(ones, samples),))


def judge_of(certificate: Certificate, samples: int, attempts: int) -> Judge:
    labels = certificate.labels[LEVEL]
    return Judge(labels_before(certificate, LEVEL), labels, certificate.criterion, samples, attempts)


def test_chance_flips_half_of_the_undecided_pixels_and_proves_almost_none(certificate):
    """Votes of pixels whose share is exactly one half: an estimate errs half of the time, a proof with chance α."""
    random, runs, samples = np.random.default_rng(0), 2000, 301
    judge, plain, false = judge_of(claiming(certificate, alpha=0.05), samples, 1), 0, 0
    for _ in range(runs):
        attempt = counted(random.binomial(samples, 0.5, 64), samples)
        plain += int(judge.flipped(attempt).sum())
        false += bool(judge.provably_flipped(attempt).any())
    assert plain / (64 * runs) == pytest.approx(0.5, abs=0.01)
    assert false / runs <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / runs)
    assert false > 0, "so conservative that it could not prove anything"


def kept(certificate: Certificate, samples: int, *rounds: np.ndarray) -> Outcome:
    """An attempt for each of `rounds`, the votes (64,) for every pixel's label."""
    ones = labels_before(certificate, LEVEL).flatten() == 1
    attempts = tuple(counted(np.where(ones, votes, samples - votes), samples) for votes in rounds)
    return Outcome(certificate, LEVEL, samples, "stein", 0, attempts)


def test_chance_almost_never_proves_an_abstention(certificate):
    """Shares of exactly τ do not lie below it: over eight attempts together, a proof errs with chance α."""
    random, runs, samples = np.random.default_rng(0), 1000, 301
    judge, false = judge_of(claiming(certificate, alpha=0.05), samples, 8), 0
    ones = labels_before(certificate, LEVEL).flatten() == 1
    for _ in range(runs):
        rounds = random.binomial(samples, certificate.tau, (8, 64))
        attempts = (counted(np.where(ones, votes, samples - votes), samples) for votes in rounds)
        false += any(judge.provably_abstains(attempt).any() for attempt in attempts)
    assert false / runs <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / runs)
    assert false > 0, "so conservative that it could not prove anything"


def test_abstentions_are_tested_apart_from_flips(certificate):
    """Certified pixels under every attempt, at the whole α; those that abstain have nothing to lose."""
    labels = certificate.labels[LEVEL].copy()
    labels[:, 2:] = pc.ABSTAIN
    sparse = dataclasses.replace(certificate, labels=MappingProxyType({LEVEL: labels}))
    certified, all_labels = int((labels != pc.ABSTAIN).sum()), 64
    found = kept(sparse, 200, *np.full((3, 64), 150))
    assert found.judge.votes_against_needed == votes_against_needed(200, 0.5, sparse.alpha, 3 * all_labels)
    assert found.judge.votes_against_needed_to_abstain == votes_against_needed(200, 0.75, sparse.alpha, 3 * certified)
    assert found.judge.votes_against_needed_to_abstain < votes_against_needed(200, 0.75, sparse.alpha, 3 * all_labels)
    assert found.as_dict()["votes_against_needed_to_abstain"] == found.judge.votes_against_needed_to_abstain


def test_every_group_has_its_own_toll(certificate):
    votes = np.full(64, 1000)
    votes[1:4] = 600  # certified in, and a majority still
    votes[4:6] = 100  # certified in, flipped
    votes[40:47] = 600  # certified out
    votes[FRAGILE] = 600, 400
    found = kept(certificate, 1000, votes)
    tolls = {group: found.toll(found.attempts[0], group) for group in GROUPS}
    assert tolls == {"certified in": (31, 2, 2, 5), "certified out": (31, 0, 0, 7), "abstaining": (2, 1, 1, None)}


def test_an_abstention_takes_just_so_many_votes(certificate):
    votes = np.full(64, 1000)
    needed = kept(certificate, 1000, votes).judge.votes_against_needed_to_abstain
    votes[1], votes[2] = 1000 - needed, 1001 - needed
    found = kept(certificate, 1000, votes)
    assert np.flatnonzero(found.judge.provably_abstains(found.attempts[0])).tolist() == [1]


def test_exactly_half_of_the_votes_are_no_majority(certificate):
    found = judged(certificate, np.full(64, 50), 100)
    assert sum(found.toll(found.attempts[0], group).flipped for group in GROUPS) == 64


def test_votes_for_neither_class_count_against_the_label(certificate):
    """Ties and NaN vote for neither; the certificate promises votes for the label."""
    none = np.zeros((8, 8), np.int32)
    attempt = Attempt("none", 0.0, np.zeros((1, 8, 8), np.float32), none, none)
    found = Outcome(certificate, LEVEL, 100, "stein", 0, (attempt,))
    assert found.broken == 62
    assert found.judge.provably_abstains(attempt).sum() == 62


def test_pixels_without_a_majority_are_not_attacked(make_votes):
    ones = np.full((1, 6, 8), 50)
    ones[0, 0] = 100
    votes = make_votes((50,), (6, 8), ones=ones, zeros=100 - ones)
    labels = labels_before(votes.certify(), 50)
    assert (labels[0] == 1).all()
    assert (labels[1:] == pc.ABSTAIN).all()


# ── At the door ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"radii": [0.1, 0.0]}, r"radii holds 0\.0, which is not above 0"),
        ({"radii": [float("nan")]}, "radii holds nan"),
        ({"radii": []}, "radii is empty"),
        ({"level": 10}, "level 10 is not available: choose one of 49"),
        ({"steps": 0}, "steps=0 is not a whole number from 1"),
        ({"draws": 1}, "draws=1 .* from 2"),
        ({"samples": 15}, "samples=15 cannot refute one of .* use 20 or more"),
        ({"gradient": "steepest"}, "gradient='steepest' is not known: choose one of auto, pathwise, stein"),
        ({"seed": 2**63}, "seed=9223372036854775808 is not a whole number from -9223372036854775808"),
    ],
)
def test_senseless_settings_are_refused_before_any_work(certificate, settings, message, monkeypatch):
    monkeypatch.setattr(campaign, "sample_each", lambda *_, **__: pytest.fail("sampling began"))
    with pytest.raises(pc.ArgumentError, match=message):
        pc.attack(certificate.votes, Distances(margins()), IMAGE, **settings)


def test_the_fewest_samples_named_are_enough(certificate):
    with pytest.raises(pc.ArgumentError) as refusal:
        Campaign(certificate, Distances(margins()), IMAGE, Effort(samples=5))
    fewest = int(re.search(r"use (\d+) or more", str(refusal.value))[1])
    Campaign(certificate, Distances(margins()), IMAGE, Effort(samples=fewest))
    with pytest.raises(pc.ArgumentError):
        Campaign(certificate, Distances(margins()), IMAGE, Effort(samples=fewest - 1))


def test_another_image_or_explainer_is_refused(certificate):
    with pytest.raises(pc.ArgumentError, match="these votes are about something else: image was"):
        attack_certificate(certificate, Distances(margins()), IMAGE + 0.01)
    with pytest.raises(pc.ArgumentError, match="method was 'Distances', now 'Votes'"):
        attack_certificate(certificate, Votes(margins()), IMAGE)


def test_a_level_that_was_sampled_but_not_certified_is_refused(make_votes):
    certificate = make_votes((50, 10)).certify(levels=(50,))
    with pytest.raises(pc.ArgumentError, match="level 10 is not available: choose one of 50"):
        attack_certificate(certificate, Distances(margins()), IMAGE, level=10)


def test_a_black_box_has_no_path_to_follow():
    world = Votes(margins())
    with pytest.raises(pc.ArgumentError, match="gradient='pathwise' needs maps that can be differentiated"):
        attack_certificate(certify(world), world, IMAGE, Effort(gradient="pathwise"))


def test_unfinished_votes_are_refused(certificate):
    half = dataclasses.replace(certificate.votes, plan=dataclasses.replace(certificate.votes.plan, n=2000))
    with pytest.raises(pc.IncompleteVotesError):
        pc.attack(half, Distances(margins()), IMAGE)


def test_a_radius_of_zero_has_no_multiples(certificate):
    flat = claiming(certificate, tau=0.5)
    with pytest.raises(pc.ArgumentError, match=r"tau=0\.5 certifies a radius of 0"):
        attack_certificate(flat, Distances(margins()), IMAGE)


# ── Files, pictures, docs ─────────────────────────────────────────────────────────────────────────────────────────


def test_saved_outcomes_hold_every_perturbation_and_what_is_said_of_it(outcome, tmp_path):
    header, arrays = read_arrays(outcome.save(tmp_path / "attack.safetensors"), "pixelcert attack", 1)
    assert header["verdict"] == outcome.verdict
    assert len(header["attempts"]) == len(outcome.attempts)
    for index, attempt in enumerate(outcome.attempts):
        np.testing.assert_array_equal(arrays[f"delta.{index}"], attempt.delta)
        np.testing.assert_array_equal(arrays[f"ones.{index}"], attempt.ones)
        for group in GROUPS:
            toll = outcome.toll(attempt, group)
            stored = header["attempts"][index]["groups"][group]
            assert stored == {**toll._asdict(), "percent": toll.percent}


def test_the_picture_paints_flips_where_they_are(outcome, tmp_path):
    from pixelcert.figures.panels import PROVEN

    figure = outcome.plot(tmp_path / "attack.png")
    pictures = [np.asarray(axes.images[0].get_array()) for axes in figure.axes]
    red = [np.flatnonzero((picture == PROVEN).all(axis=2)).tolist() for picture in pictures]
    expected = [flipped(outcome, attempt) for attempt in outcome.attempts]
    assert sorted(filter(None, red)) == sorted(filter(None, expected))
    assert (tmp_path / "attack.png").stat().st_size > 10_000


def test_estimated_flips_are_not_painted_as_proven_ones(outcome, tmp_path):
    """With half of the fresh votes, every label counts as flipped, and none provably."""
    from pixelcert.figures.panels import PROVEN

    halves = np.full_like(outcome.attempts[0].ones, outcome.samples // 2)
    undecided = tuple(dataclasses.replace(attempt, ones=halves, zeros=halves) for attempt in outcome.attempts)
    found = dataclasses.replace(outcome, attempts=undecided)
    assert all(found.judge.flipped(attempt).any() for attempt in undecided)
    assert not any(found.judge.provably_flipped(attempt).any() for attempt in undecided)
    figure = found.plot(tmp_path / "attack.png")
    pictures = [np.asarray(axes.images[0].get_array()) for axes in figure.axes]
    assert not any((picture == PROVEN).all(axis=2).any() for picture in pictures)


def test_examples_of_the_docs_run(tmp_path, monkeypatch):
    """On a small network and photographs of its size."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pc, "load_model", lambda name: small_model("vgg"))
    monkeypatch.setattr(pc, "load_image", partial(pc.load_image, size=SIZE))
    page = (Path(__file__).parents[1] / "docs" / "attack.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {}
    exec(compile(example, "attack.md", "exec"), names)
    assert isinstance(names["outcome"], Outcome)
    assert not names["outcome"].broken
    assert {path.name for path in tmp_path.iterdir()} == {"attack.png", "attack.safetensors"}
