"""`pixelcert plan`: the limits of a plan, before any sample is drawn."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from decimal import ROUND_DOWN, Decimal
from typing import Any, get_args

from rich.table import Table
from scipy.special import ndtr

from .. import statistics
from ..basics.messages import ArgumentError
from ..plan import PRESETS, TAU, Correction, Criterion, Plan, lattice_slack
from . import terminal

GUESS: int = PRESETS["reference"]["guess"]


def find_limits(
    n: int | None, tau: float | None, radius: float | None, sigma: float, alpha: float, size: tuple[int, int]
) -> dict[str, Any]:
    """Return the limits of n samples on an image of three channels, width × height pixels.

    If τ is None, it follows from the radius, or is the largest that n allows. If n is None, it is the fewest that τ
    needs.

    A radius map may stay below the radius. It claims every τ at once, so both labels of a pixel may be claimed falsely,
    and each is tested with α/2. A single τ fixed beforehand takes nearly all of α for one label.
    """
    pixels = math.prod(size)
    alpha, plan = Criterion(alpha=alpha).alpha, Plan(sigma=sigma, n=1 if n is None else n)
    sigma = plan.sigma
    if tau is not None and radius is not None:
        raise ArgumentError(f"tau={tau} and radius={radius} determine each other: give only one.")
    if radius is not None:
        tau = float(ndtr((radius + lattice_slack(pixels)) * (1 + 1e-6) / plan.sigma))
        if not radius >= 0 or tau >= 1 - 1e-9:
            raise ArgumentError(f"radius={radius} is out of reach at sigma={sigma}: raise sigma or lower the radius.")
    if tau is None:
        tau = TAU if n is None else statistics.largest_tau(n, alpha, pixels) or 0.5
    criterion = Criterion(tau, alpha, "holm")
    n = statistics.smallest_n(tau, alpha, pixels) if n is None else n
    statistics.check_feasible(replace(plan, n=n), criterion, pixels)
    largest_tau = max(tau, statistics.largest_tau(n, alpha, pixels) or 0.5)  # rounded down, while τ is feasible
    needed = {
        correction: statistics.votes_needed(n - GUESS * (correction == "reference"), tau, alpha, pixels, correction)
        for correction in get_args(Correction)  # "reference" counts the votes that follow its guess
    }
    asked = {"n": n, "tau": tau, "sigma": sigma, "alpha": alpha, "width": size[0], "height": size[1]}

    def reach(radius: float) -> float:
        return statistics.certified_radius(radius, pixels)

    return {
        **asked,
        "radius": reach(statistics.radius(sigma, tau)),  # of every certified pixel
        "smallest_n": statistics.smallest_n(tau, alpha, pixels),  # for this τ
        "largest_tau": largest_tau,  # for this n
        "largest_radius": reach(statistics.radius(sigma, largest_tau)),  # of every pixel certified at that τ
        "radius_map_limit": reach(statistics.unanimous_radius(n, sigma, alpha, pixels)),  # when all n votes agree
        "votes_needed": {**needed, "prediction": statistics.prediction_votes_needed(n, tau, alpha / (pixels + 1))},
    }


def parse_size(text: str) -> tuple[int, int]:
    """Return width and height of a size such as 224 or 640x480."""
    size = re.fullmatch(r"(0*[1-9]\d*)(?:x(0*[1-9]\d*))?", text)
    if size is None:
        raise ArgumentError(f"--size {text!r} is not a size: write 224 or 640x480.")
    return int(size[1]), int(size[2] or size[1])


def show(limits: dict[str, Any], as_json: bool) -> None:
    """Print what a plan can certify."""
    if as_json:
        terminal.print_json(limits)
        return
    radii = ("radius", "largest_radius", "radius_map_limit")
    said = limits | {name: statistics.rounded_down(limits[name]) for name in radii}
    said |= {name: _tau(limits[name]) for name in ("tau", "largest_tau")}
    for line in (
        "[bold]n = {n}[/] samples, σ = {sigma}, τ = {tau}, α = {alpha}, {width} × {height} pixels",
        "Every certified pixel holds within R = {radius} (ℓ2, pixels in [0, 1]).",
        "τ = {tau} needs n ≥ {smallest_n}; n = {n} allows τ ≤ {largest_tau}, with R = {largest_radius}.",
        "A radius map claims every τ at once, with half of α for each label: "
        "its pixels reach {radius_map_limit} at most.",
    ):
        terminal.out.print(line.format(**said))
    table = Table("claim", "votes needed")
    meanings = {
        "holm": "one level, all pixels (holm, first step; default)",
        "bonferroni": "one level, all pixels (bonferroni)",
        "joint": "all levels together (joint)",
        "reference": f"the published test, of {max(limits['n'] - GUESS, 0)} after its guess (reference)",
        "none": "one pixel chosen before looking (none; study only)",
        "prediction": "the predicted class, beside the pixels",
    }
    for claim, needed in limits["votes_needed"].items():
        table.add_row(meanings[claim], "impossible" if needed is None else f"{needed}")
    terminal.out.print(table)


def _tau(tau: float) -> str:
    """Return τ, rounded down to four decimals, or to more where those are all 9."""
    digits = max(4, 1 - math.floor(math.log10(1 - tau)))
    return f"{Decimal(str(tau)).quantize(Decimal(1).scaleb(-digits), ROUND_DOWN).normalize():f}"
