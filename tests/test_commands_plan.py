"""`pixelcert plan`: the limits that it fills in, prints and refuses."""

import json
import math
from itertools import product
from statistics import NormalDist

import numpy as np
import pytest
from command_line import assert_refused, within

import pixelcert as pc
from pixelcert.plan import Criterion
from pixelcert.statistics import check_feasible, rounded_down


@pytest.mark.parametrize(("n", "tau", "radius"), list(product((None, 200), (None, 0.8), (None, 0.1))))
def test_plan_fills_in_what_is_not_given(pixelcert, n, tau, radius):
    given = {"-n": n, "--tau": tau, "--radius": radius}
    arguments = [part for name, value in given.items() if value is not None for part in (name, value)]
    run = pixelcert("plan", *arguments, "--json")
    if tau is not None and radius is not None:  # each gives the other
        assert_refused(run, "tau", "radius")
        return
    assert run.code == 0
    plan = json.loads(run.out)
    assert (plan["sigma"], plan["alpha"], plan["width"], plan["height"]) == (0.15, 0.001, 224, 224)
    if radius is not None:
        assert radius <= plan["radius"] < radius + 1e-4
    elif tau is not None:
        assert plan["tau"] == tau
    else:
        assert plan["tau"] == (0.75 if n is None else plan["largest_tau"])
    assert plan["n"] == (plan["smallest_n"] if n is None else n)
    assert plan["smallest_n"] <= plan["n"]
    assert plan["tau"] <= plan["largest_tau"]
    assert plan["n"] / 2 < plan["votes_needed"]["holm"] <= plan["n"]


def test_plan_knows_the_table_of_the_contract(pixelcert):
    plan = json.loads(pixelcert("plan", "-n", 100, "--tau", 0.75, "--json").out)
    expected = {"holm": 96, "bonferroni": 96, "joint": 97, "reference": 88, "none": 89}
    assert {name: plan["votes_needed"][name] for name in expected} == expected
    assert plan["smallest_n"] == 62


def test_plan_in_words(pixelcert):
    run = pixelcert("plan", "-n", 100, "--tau", 0.75)
    assert run.code == 0
    for words in ("n = 100", "τ = 0.75", "224 × 224", "R = 0.1008 (ℓ2, pixels in [0, 1])", "n ≥ 62", "96", "97"):
        assert words in run.out


def test_plan_takes_sigma_alpha_and_size(pixelcert):
    plan = json.loads(pixelcert("plan", "--sigma", 0.25, "--alpha", 0.01, "--size", "640x480", "--json").out)
    assert (plan["sigma"], plan["alpha"], plan["width"], plan["height"]) == (0.25, 0.01, 640, 480)
    assert plan["smallest_n"] == math.ceil(math.log(640 * 480 / 0.01) / math.log(1 / 0.75))
    assert plan["radius"] < 0.25 * 0.6745


def test_infeasible_plan_names_the_smallest_n(pixelcert):
    assert_refused(pixelcert("plan", "-n", 61, "--tau", 0.75), "n=61", "at least 62")
    assert_refused(pixelcert("plan", "-n", 100, "--radius", 0.3), "n=100", "raise n to at least")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("-n 0", ["n=0"]),
        ("-n -5", ["n=-5"]),
        ("--tau 0.4", ["tau=0.4"]),
        ("--tau 1", ["tau=1"]),
        ("--radius -1", ["radius=-1"]),
        ("--radius nan", ["radius=nan"]),
        ("--radius 9", ["radius=9", "sigma=0.15"]),
        ("--sigma 0", ["sigma=0"]),
        ("--alpha 1", ["alpha=1"]),
        ("--size 0", ["--size", "224"]),
        ("--size wide", ["--size", "wide", "640x480"]),
        ("--size 640x", ["--size", "640x"]),
    ],
)
def test_plan_that_makes_no_sense_is_refused(pixelcert, options, words):
    assert_refused(pixelcert("plan", *options.split()), *words)


@pytest.mark.parametrize("options", ["--tau 0.99999", "--tau 0.99985", "--tau 0.75", "-n 100", "--radius 0.2", "-n 27"])
def test_plan_allows_no_less_than_it_promises(pixelcert, options):
    plan = json.loads(pixelcert("plan", *options.split(), "--json").out)
    assert plan["tau"] <= plan["largest_tau"]
    assert plan["radius"] <= plan["largest_radius"] < plan["sigma"] * NormalDist().inv_cdf(plan["largest_tau"])
    check_feasible(pc.Plan(n=plan["n"]), Criterion(plan["largest_tau"], plan["alpha"], "holm"), 224**2)
    said = pixelcert("plan", *options.split()).out.splitlines()
    promised, allowed = (float(line.partition("R = ")[2].split()[0].rstrip(".")) for line in (said[1], said[2]))
    assert promised <= plan["radius"] < promised + 1e-4
    assert promised <= allowed <= plan["largest_radius"] < allowed + 1e-4
    tau = float(said[0].partition("τ = ")[2].split(",")[0])
    assert tau <= plan["tau"] < tau + 1e-4


def test_plan_promises_of_a_radius_map_what_one_can_reach(pixelcert, make_votes):
    plan = json.loads(pixelcert("plan", "-n", 100, "--size", "8x6", "--json").out)
    agreed = make_votes(ones=np.full((2, 6, 8), 100))
    assert plan["radius_map_limit"] == agreed.radius_map(50).max() < plan["radius"]
    said = " ".join(pixelcert("plan", "-n", 100, "--size", "8x6").out.split())
    assert f"its pixels reach {rounded_down(plan['radius_map_limit'])} at most" in said


def test_plan_of_millions_of_samples_is_answered_soon(pixelcert):
    with within(300):
        run = pixelcert("plan", "--tau", 0.99999, "--json")
    assert json.loads(run.out)["n"] == math.ceil(math.log(224**2 / 0.001) / math.log(1 / 0.99999))
