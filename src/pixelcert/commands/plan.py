"""Outlook: what a plan can certify, before any sample is drawn."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import get_args

from scipy.special import ndtr

from .. import statistics
from ..basics.messages import ArgumentError
from ..plan import PRESETS, TAU, Plan, lattice_slack
from ..statistics import Correction

CORRECTIONS: tuple[Correction, ...] = get_args(Correction)
GUESS: int = PRESETS["reference"]["guess"]


@dataclass(frozen=True)
class Limits:
    """Limits of n samples on a width × height image of three channels."""

    n: int
    tau: float
    sigma: float
    alpha: float
    width: int
    height: int
    radius: float  # of every certified pixel
    smallest_n: int  # for this τ
    largest_tau: float  # for this n
    largest_radius: float  # of every pixel certified at that τ
    radius_map_limit: float  # of a pixel in a radius map, when all n votes agree; below the others, see make_outlook
    votes_needed: dict[str, int | None]  # by correction; "reference" counts the votes that follow its guess


def find_limits(
    n: int | None,
    tau: float | None,
    radius: float | None,
    sigma: float,
    alpha: float,
    width: int,
    height: int,
) -> Limits:
    """Fill in what is not given: τ from the radius or the largest that n allows, n as the fewest that τ needs.

    A radius map may stay below the radius: it claims every τ at once, also where both labels are as likely to be
    claimed falsely, and so tests each with α/2. One τ that is fixed before takes nearly all of α for one of them.
    """
    pixels = width * height
    statistics.check_alpha(alpha)
    plan = Plan(sigma=sigma, n=1 if n is None else n)
    if tau is not None and radius is not None:
        raise ArgumentError(f"tau={tau} and radius={radius} each give the other: name one of them.")
    if radius is not None:
        tau = float(ndtr((radius + lattice_slack(pixels)) * (1 + 1e-6) / plan.sigma))
        if not radius >= 0 or tau >= 1 - 1e-9:
            raise ArgumentError(f"radius={radius} is out of reach at sigma={sigma}: raise sigma or lower the radius.")
    if tau is None:
        tau = TAU if n is None else statistics.largest_tau(n, alpha, pixels) or 0.5
    statistics.check_tau(tau)
    n = n if n is not None else statistics.smallest_n(tau, alpha, pixels)
    statistics.check_feasible(replace(plan, n=n), tau, alpha, pixels, "holm")
    needed: dict[str, int | None] = {
        correction: statistics.votes_needed(n - GUESS * (correction == "reference"), tau, alpha, pixels, correction)
        for correction in CORRECTIONS
    }
    largest_tau = max(tau, statistics.largest_tau(n, alpha, pixels) or 0.5)  # which rounds down, and τ is feasible
    return Limits(
        n=n,
        tau=tau,
        sigma=sigma,
        alpha=alpha,
        width=width,
        height=height,
        radius=statistics.certified_radius(statistics.radius(sigma, tau), pixels),
        smallest_n=statistics.smallest_n(tau, alpha, pixels),
        largest_tau=largest_tau,
        largest_radius=statistics.certified_radius(statistics.radius(sigma, largest_tau), pixels),
        radius_map_limit=statistics.certified_radius(statistics.unanimous_radius(n, sigma, alpha, pixels), pixels),
        votes_needed={**needed, "prediction": statistics.prediction_votes_needed(n, tau, alpha / (pixels + 1))},
    )
