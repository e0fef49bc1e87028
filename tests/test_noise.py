import math

import pytest
import torch
from scipy import stats

from pixelcert.noise import key_of, noisy, snap, standard_normal, stream
from pixelcert.plan import LARGEST_NORMAL, LARGEST_SIGMA, LATTICE, Plan

IMAGE = snap(torch.rand(3, 17, 13, generator=torch.Generator().manual_seed(0)))


@pytest.mark.parametrize("batch_size", [1, 7, 32, 100])
def test_noise_is_bit_identical_whatever_the_batch_size(batch_size):
    whole = noisy(IMAGE, 0.15, key=3, indices=range(100))
    parts = [
        noisy(IMAGE, 0.15, key=3, indices=range(start, min(start + batch_size, 100)))
        for start in range(0, 100, batch_size)
    ]
    assert torch.equal(torch.cat(parts), whole)


def test_noise_does_not_depend_on_how_it_is_chunked():
    image = snap(torch.rand(3, 120, 120))  # 43 200 values: three samples a chunk
    whole = noisy(image, 0.15, key=0, indices=range(8))
    assert torch.equal(whole, torch.cat([noisy(image, 0.15, key=0, indices=[i]) for i in range(8)]))


def test_seed_and_index_each_change_the_noise():
    base = standard_normal(0, [5], 1000, "cpu")
    assert not torch.equal(base, standard_normal(1, [5], 1000, "cpu"))
    assert not torch.equal(base, standard_normal(0, [6], 1000, "cpu"))
    assert torch.equal(base, standard_normal(0, [5], 1000, "cpu"))


@pytest.mark.parametrize("seed", [-(2**63), -1, 0, 2**63 - 1])
def test_every_64_bit_seed_works(seed):
    assert standard_normal(seed, [0, 10**9], 7, "cpu").shape == (2, 7)


def test_seed_purpose_and_image_each_have_a_stream_of_their_own():
    keys = [
        stream(seed, purpose, image)
        for seed in (0, 1, -1, 2**63 - 1, -(2**63))
        for purpose in ("pixels", "attack", "judgement", "verification")
        for image in ("ab", "ac", "")
    ]
    assert len({*keys}) == len(keys)
    assert all(-(2**63) <= key < 2**63 for key in keys)
    draws = torch.cat([standard_normal(key, [0, 1], 2000, "cpu") for key in keys])
    correlations = torch.corrcoef(draws) - torch.eye(len(draws))
    assert correlations.abs().max() < 6 / math.sqrt(2000)


def test_streams_are_those_of_the_first_release_that_had_them():
    """Or votes could not be resumed, nor verified."""
    assert stream(0, "pixels", "ab") == 6675538444627854035
    assert key_of(Plan(seed=0), "ab") == 6675538444627854035
    assert key_of(Plan(seed=5, streams=False), "ab") == 5  # as 0.1.0 drew it, whatever the image


def test_sum_of_image_and_noise_is_exact_in_float32():
    images = noisy(IMAGE, 1.7, key=0, indices=range(200))
    noise = images.double() - IMAGE.double()
    for values in (images.double(), noise):
        assert torch.equal((values / LATTICE).round() * LATTICE, values)
    exact = standard_normal(0, range(200), IMAGE.numel(), "cpu").view_as(noise) * 1.7
    assert (noise - exact).abs().max() <= LATTICE / 2


def test_snap_moves_by_at_most_half_a_step_and_only_once():
    image = torch.rand(3, 50, 50, dtype=torch.float64)
    assert (snap(image).double() - image).abs().max() <= LATTICE / 2
    assert torch.equal(snap(snap(image)), snap(image))


def test_shifting_the_image_along_the_grid_shifts_every_sample_with_it():
    shift = 12345 * LATTICE
    moved = noisy(IMAGE * 0.5 + shift, 0.15, key=0, indices=range(20))
    assert torch.equal(moved - shift, noisy(IMAGE * 0.5, 0.15, key=0, indices=range(20)))


def test_variates_are_standard_normal():
    values = standard_normal(7, range(40), 50_000, "cpu")
    flat = values.flatten().numpy()
    assert stats.kstest(flat, "norm").pvalue > 1e-3
    assert abs(flat.mean()) < 4 / math.sqrt(flat.size)
    assert abs(flat.var() - 1) < 4 * math.sqrt(2 / flat.size)
    assert abs(stats.kurtosis(flat)) < 4 * math.sqrt(24 / flat.size)
    for z in (3, 4, 4.5):  # tails, where float32 generators are coarse
        expected = flat.size * 2 * stats.norm.sf(z)
        assert abs((abs(flat) > z).sum() - expected) < 5 * math.sqrt(expected)


def test_samples_and_pixels_are_uncorrelated():
    samples = standard_normal(0, range(200), 4000, "cpu")
    between_samples = torch.corrcoef(samples)
    off_diagonal = between_samples[~torch.eye(200, dtype=torch.bool)] * math.sqrt(4000)
    assert off_diagonal.abs().max() < 5.5
    for lag in (1, 2, 2000):  # neighbours, and the two halves that Box and Muller's pairs make
        assert abs((samples[:, lag:] * samples[:, :-lag]).mean()) < 5 / math.sqrt(200 * (4000 - lag))
    squares = samples.square() - 1  # the pairs share a radius: their squares must not show it
    assert abs((squares[:, 2000:] * squares[:, :-2000]).mean()) < 5 * 2 / math.sqrt(200 * 2000)


def test_far_tail_is_reachable():
    assert LARGEST_NORMAL > 8.5
    assert LARGEST_SIGMA * LARGEST_NORMAL + 1 <= 16
