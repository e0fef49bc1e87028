"""Plans and criteria: refused when they are made, and named levels found."""

from __future__ import annotations

import json
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch

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


NUMBERS = {
    "np.float32": np.float32, "np.float64": np.float64, "0-dim array": lambda value: np.array(value, np.float32),
    "tensor": torch.tensor, "Fraction": Fraction, "Decimal": Decimal,
}  # fmt: skip


@pytest.mark.parametrize("kind", NUMBERS)
def test_numbers_become_pythons_own_and_keep_their_value(kind):
    """What is printed and saved is the number that was computed with: a float32 0.05 is 0.05000000074505806."""
    number = NUMBERS[kind]
    criterion = pc.Criterion(number(0.8), number(0.05))
    assert [type(value) for value in (criterion.tau, criterion.alpha)] == [float, float]
    assert (criterion.tau, criterion.alpha) == (float(number(0.8)), float(number(0.05)))
    plan = Plan(sigma=number(0.15), levels=(number(12.6), number(50.0)))
    assert (type(plan.sigma), plan.sigma) == (float, float(number(0.15)))
    assert [type(level) for level in plan.levels] == [float, int]
    assert plan.levels[0] == plan.level(number(12.6)) == float(number(12.6))
    assert (plan.level(number(50.0)), type(plan.level(number(50.0)))) == (50, int)
    assert Plan(levels=number(50.0)).levels == (50,)
    json.dumps([vars(plan), vars(criterion)])


@pytest.mark.parametrize("whole", [np.int64(90), np.uint8(90), np.float32(90), torch.tensor(90), Decimal(90), 90.0])
def test_whole_numbers_become_ints_of_python(whole):
    plan = Plan(n=whole, seed=whole, guess=whole)
    assert [(type(value), value) for value in (plan.n, plan.seed, plan.guess)] == 3 * [(int, 90)]


def test_a_seed_beyond_floats_is_kept_exactly():
    assert Plan(seed=Decimal(2**60 + 1)).seed == 2**60 + 1  # type: ignore[arg-type]
    assert Plan(seed=np.uint64(2**62 + 1)).seed == 2**62 + 1  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "value", [True, np.bool_(True), torch.tensor(True), "0.75", None, 1j, [0.75], np.array([0.75])]
)
@pytest.mark.parametrize("argument", ["tau", "alpha", "sigma", "levels"])
def test_what_is_no_number_is_refused(argument, value):
    if argument == "levels":
        value = (value,)
    with pytest.raises(pc.ArgumentError, match=f"{argument}=.*give a number such as"):
        (Plan if argument in ("sigma", "levels") else pc.Criterion)(**{argument: value})


@pytest.mark.parametrize("value", [float("nan"), np.float32("inf"), Decimal("sNaN"), Decimal("-Infinity"), 10**400])
@pytest.mark.parametrize("argument", ["tau", "alpha", "sigma", "levels", "n", "seed"])
def test_what_is_no_finite_number_is_refused(argument, value):
    with pytest.raises(pc.ArgumentError, match=argument):
        (pc.Criterion if argument in ("tau", "alpha") else Plan)(**{argument: value})


@pytest.mark.parametrize("alpha", [1e-201, 1e-250, 5e-324, Decimal("1e-250"), np.float64(1e-300)])
def test_an_alpha_that_floats_cannot_share_among_pixels_is_refused(alpha):
    with pytest.raises(pc.ArgumentError, match=r"alpha=.* is below 1e-200.*use one such as 0\.001"):
        pc.Criterion(alpha=alpha)
    assert pc.Criterion(alpha=1e-200).alpha == 1e-200


@pytest.mark.parametrize("asked", ["10", True, float("nan"), (10,)])
def test_a_level_that_is_no_number_is_refused(asked):
    with pytest.raises(pc.ArgumentError, match="level"):
        Plan(levels=(50, 10)).level(asked)


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
