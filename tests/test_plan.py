"""Plans and criteria: refused when they are made, and named levels found."""

from __future__ import annotations

import pytest

import pixelcert as pc
from pixelcert.plan import Plan


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"n": 0}, "n=0 is not a whole number from 1"),
        ({"n": 2.5}, "n=2.5 is not a whole number"),
        ({"n": "100"}, "n='100' is of type str: give a number such as 100"),
        ({"n": True}, "n=True is not a whole number"),
        ({"seed": 2**63}, "seed=9223372036854775808 is not a whole number"),
        ({"seed": 0.5}, "seed=0.5 is not a whole number"),
        ({"sigma": 0}, "sigma=0 is outside"),
        ({"sigma": float("nan")}, "sigma=nan is outside"),
        ({"guess": 101}, "guess=101 is not a whole number from 0 to 100"),
        ({"levels": ()}, "levels is empty"),
        ({"levels": (50, 50.0)}, "names a K twice"),
        ({"levels": (100,)}, "strictly between 0 and 100"),
        ({"sign": "both"}, "sign='both' is not known: choose one of signed, absolute, positive"),
        ({"rule": "best"}, "rule='best' is not known"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(given, said):
    with pytest.raises(pc.ArgumentError, match=said.replace("(", r"\(")):
        Plan(**given)


def test_seeds_may_have_any_64_bits():
    assert Plan(seed=-(2**63)).seed == -(2**63)
    assert Plan(seed=2**63 - 1).seed == 2**63 - 1


def test_whole_numbers_become_ints():
    plan = Plan(n=100.0, levels=(50.0, 12.5))  # type: ignore[arg-type]
    assert (type(plan.n), plan.levels) == (int, (50, 12.5))
    assert type(plan.levels[0]) is int


@pytest.mark.parametrize(
    ("levels", "middle"),
    [((50, 25, 10, 5), 25), ((5, 50, 25), 25), ((50,), 50), ((10, 50), 50), ((50, 25, 10, 5, 1), 10)],
)
def test_the_middle_level_is_taken_by_default(levels, middle):
    assert Plan(levels=levels).level() == middle


def test_a_level_is_found_by_its_value_and_refused_if_it_was_not_sampled():
    level = Plan(levels=(50, 10)).level(10.0)
    assert (level, type(level)) == (10, int)
    with pytest.raises(pc.ArgumentError, match="level 20 is not available: choose one of 50, 10"):
        Plan(levels=(50, 10)).level(20)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"tau": 0.49}, "tau=0.49 is outside"),
        ({"tau": 1.0}, "tau=1.0 is outside"),
        ({"tau": "0.75"}, "tau='0.75' is of type str"),
        ({"alpha": 0.0}, "alpha=0.0 is outside"),
        ({"alpha": 1.0}, "alpha=1.0 is outside"),
        ({"correction": "hochberg"}, "correction='hochberg' is not known"),
    ],
)
def test_a_criterion_is_checked_when_it_is_made(given, said):
    with pytest.raises(pc.ArgumentError, match=said):
        pc.Criterion(**given)


def test_the_correction_is_holms_or_the_published_one_for_votes_that_guess():
    assert pc.Criterion().correction_for(Plan()) == "holm"
    assert pc.Criterion().correction_for(Plan.make(preset="reference")) == "reference"
    assert pc.Criterion(correction="joint").for_plan(Plan()).correction == "joint"
    with pytest.raises(pc.ArgumentError, match="needs votes that were sampled with preset"):
        pc.Criterion(correction="reference").correction_for(Plan())
