import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pixelcert.ranking import Ranking, count_votes, ones_at

NAN = float("nan")
values = st.sampled_from([-2.0, -1.0, 0.0, 0.5, 1.0, 3.0, float("inf"), -float("inf")])


def votes_of(row, level, **rules):
    ones, zeros = count_votes(torch.tensor([row], dtype=torch.float32), (level,), **rules)
    return ones[0].tolist(), zeros[0].tolist()


def slow_votes(row, level):
    """Vote by the definition: a pixel is in (or out) if it is so for every order of ties and every value of NaN."""
    size, finite = ones_at(level, len(row)), [v for v in row if v == v]
    nans = len(row) - len(finite)
    ones = [int(v == v and sum(w >= v for w in finite) + nans <= size) for v in row]
    zeros = [int(v == v and sum(w > v for w in finite) >= size) for v in row]
    return ones, zeros


@given(st.lists(st.one_of(values, st.just(NAN)), min_size=2, max_size=12), st.integers(1, 99))
def test_votes_follow_the_definition_with_ties_and_nan(row, level):
    ones, zeros = votes_of(row, level)
    slow_ones, slow_zeros = slow_votes(row, level)
    if ones_at(level, len(row)) == len(row):
        slow_ones = [int(v == v and v > -float("inf")) for v in row]  # nothing is outside
    assert (ones, zeros) == (slow_ones, slow_zeros)


@pytest.mark.parametrize(("level", "pixels", "rank", "percentile"), [
    (50, 50176, 25089, 25088), (25, 50176, 12545, 12544), (10, 50176, 5018, 5018), (5, 50176, 2509, 2509),
    (2.5, 1000, 26, 25), (0.1, 1000, 2, 1), (30, 10, 4, 3), (29.999999999999996, 10, 3, 3),
])  # fmt: skip
def test_number_of_ones_is_exact(level, pixels, rank, percentile):
    assert ones_at(level, pixels) == rank
    assert ones_at(level, pixels, "percentile") == percentile


@pytest.mark.parametrize("rule", ["rank", "percentile"])
@pytest.mark.parametrize("level", [1, 5, 25, 50, 90])
def test_a_map_without_ties_gets_that_many_ones_and_the_rest_zeros(level, rule):
    maps = torch.randperm(997).float()[None]
    ones, zeros = count_votes(maps, (level,), rule=rule)
    assert ones.sum() == ones_at(level, 997, rule)
    assert torch.equal(ones + zeros, torch.ones_like(ones))
    assert maps[0][ones[0] == 1].min() > maps[0][zeros[0] == 1].max()


@pytest.mark.parametrize("sign", ["signed", "absolute", "positive"])
def test_a_constant_map_votes_for_nothing(sign):
    for constant in (0.0, 2.5, -1.0):
        ones, zeros = count_votes(torch.full((3, 64), constant), (50, 5), sign)
        assert ones.sum() == zeros.sum() == 0


def test_a_map_of_nan_votes_for_nothing():
    for rule in ("rank", "percentile"):
        ones, zeros = count_votes(torch.full((2, 64), NAN), (50, 5), rule=rule)
        assert ones.sum() == zeros.sum() == 0


def test_ties_at_the_threshold_vote_for_neither_class():
    assert votes_of([5.0, 0.0, 0.0, 0.0], 50) == ([1, 0, 0, 0], [0, 0, 0, 0])  # relu left one positive
    assert votes_of([5.0, 4.0, 4.0, 0.0], 25) == ([1, 0, 0, 0], [0, 0, 0, 1])  # 2 ones wanted, 3 candidates


def test_a_clipped_map_abstains_among_the_clipped():
    ones, zeros = votes_of([1.0] * 6 + [0.5, 0.4, 0.3, 0.2], 30)
    assert ones == [0] * 10
    assert zeros == [0] * 6 + [1] * 4


def test_nan_makes_the_others_vote_only_when_sure():
    assert votes_of([9.0, 8.0, NAN, 1.0], 25) == ([1, 0, 0, 0], [0, 0, 0, 1])


def test_sign_says_what_is_ranked():
    row = [-9.0, 3.0, -1.0, 0.5]
    assert votes_of(row, 25) == ([0, 1, 0, 1], [1, 0, 1, 0])
    assert votes_of(row, 25, sign="absolute") == ([1, 1, 0, 0], [0, 0, 1, 1])
    assert votes_of(row, 25, sign="positive") == ([0, 1, 0, 1], [1, 0, 1, 0])
    assert votes_of(row, 50, sign="positive") == ([0, 1, 0, 1], [0, 0, 0, 0])  # the negatives are tied at 0


@given(st.lists(values.filter(np.isfinite), min_size=2, max_size=30), st.integers(1, 99))
def test_percentile_rule_is_strictly_above_numpys_percentile(row, level):
    row = [abs(v) for v in row]
    threshold = np.percentile(row, 100 - level)
    ones, zeros = votes_of(row, level, rule="percentile", sign="absolute")
    assert ones == [int(v > threshold + 1e-12) for v in row]
    assert zeros == [1 - one for one in ones]


def test_levels_are_nested():
    maps = torch.randn(20, 300).round(decimals=1)  # many ties
    ones, zeros = count_votes(maps, (50, 25, 10, 5))
    assert bool((ones[:-1] >= ones[1:]).all())
    assert bool((zeros[:-1] <= zeros[1:]).all())


def test_batch_counts_are_the_sum_of_single_counts():
    maps = torch.randn(9, 100).round(decimals=1)
    whole = count_votes(maps, (50, 10))
    singles = [count_votes(one[None], (50, 10)) for one in maps]
    for i in range(2):
        assert torch.equal(whole[i], sum(single[i] for single in singles))


@pytest.mark.parametrize("rule", ["rank", "percentile"])
@pytest.mark.parametrize("sign", ["signed", "absolute", "positive"])
@pytest.mark.parametrize("rows", [slice(0, 9), slice(0, 1), slice(3, 7), slice(8, 9), slice(4, 4)])
def test_counts_of_some_rows_are_those_of_these_maps_alone(rows, sign, rule):
    maps = torch.randn(9, 100, generator=torch.Generator().manual_seed(0)).round(decimals=1)
    maps[3, :10] = NAN
    maps[5] = NAN
    maps[6] = 1.0
    counted = Ranking.of(maps, (50, 10, 5), sign, rule).count(rows)
    expected = count_votes(maps[rows], (50, 10, 5), sign, rule)
    assert counted.dtype == torch.int32
    assert torch.equal(counted, expected)


def test_counts_may_be_asked_for_again_and_leave_the_maps_as_they_are():
    maps = torch.randn(4, 50)
    before = maps.clone()
    ranking = Ranking.of(maps, (50,), "absolute", "rank")
    parts = ranking.count(slice(0, 1)) + ranking.count(slice(1, 4))
    assert torch.equal(parts, ranking.count())
    assert torch.equal(maps, before)


@pytest.mark.parametrize("rule", ["rank", "percentile"])
@pytest.mark.parametrize("pixels", [3, 40, 1001])
def test_many_levels_are_counted_as_each_alone(rule, pixels):
    """Few levels use a partition, many use a sort."""
    maps = torch.randn(7, pixels, generator=torch.Generator().manual_seed(0))
    maps[1] = maps[1].round()
    maps[2] = 0
    levels = [5, 10, 20, 25, 30, 35, 40, 45, 50, 60, 65]
    ones, zeros = count_votes(maps, levels, rule=rule)
    for place, level in enumerate(levels):
        one, zero = count_votes(maps, (level,), rule=rule)
        assert torch.equal(one[0], ones[place])
        assert torch.equal(zero[0], zeros[place])
