"""Appendix B and section 5.4: claims about every network.

Each network is judged by the methods that were measured on it. The last two claims need networks that were not run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import fmean

import pixelcert as pc

from ..evidence import RANDOM, Evidence
from .judgement import Found, Part, claim
from .wording import (
    ACTIVATION,
    BACKPROPAGATION,
    FAMILIES,
    PERTURBATION,
    SIGMAS,
    VARYING,
    ahead,
    balance,
    cell_name,
    falls,
    listed,
    measured,
    path,
    title,
)

LEVELS = (50, 30, 10)


@claim("B", "A larger R certifies less on every other network, too.")
def radius_on_every_network(found: Found) -> Iterator[Part]:
    for network, of in found.others.items():
        shares = {}
        for name, layer in VARYING:
            at = [measured(of.certified, layer, (name,), sigma=sigma) for sigma in SIGMAS]
            if all(at):
                shares[name, layer] = [values[name] for values in at]
        if shares:
            means = path(map(fmean, zip(*shares.values(), strict=True)))
            cases = {cell_name(cell): falls(values) for cell, values in shares.items()}
            yield Part(f"{network}: %certified falls with each larger σ", cases, f"mean {means} %", most=True)


@claim("B", "On every network, a smaller K certifies fewer pixels as 1.")
def level_on_every_network(found: Found) -> Iterator[Part]:
    for network, of in found.networks.items():
        cases: dict[str, bool] = {}
        for name, layer in VARYING:
            wide, narrow = (measured(of.ones, layer, (name,), level=level) for level in (50, 10))
            cases |= {cell_name((name, layer)): narrow[name] < wide[name] for _ in wide}
        yield Part(f"{network}: fewer pixels certified 1 at K = 10 than at 50", cases)


@claim(
    "B", "On every network, LRP and RISE are the most robust at the input, and certify the most pixels as 1 at every K."
)
def most_robust_on_every_network(found: Found) -> Iterator[Part]:
    for network, of in found.networks.items():
        shares = measured(of.certified, "input")
        yield Part(f"{network}: first in %certified", ahead(shares, "lrp", "rise"), listed(shares, 1, 4) + " %")
        ones = {level: measured(of.ones, "input", level=level) for level in LEVELS}
        cases = {f"K = {level}": all(ahead(here, "lrp", "rise").values()) for level, here in ones.items()}
        told = "; ".join(f"K = {level}: {listed(here, 1, 3)} %" for level, here in ones.items())
        yield Part(f"{network}: first in pixels certified 1", cases, told)


@claim("B", "On every convolutional network, Grad and GB are the most robust at the final layer, and localise poorly.")
def constant_maps_on_every_network(found: Found) -> Iterator[Part]:
    for network, of in found.networks.items():
        shares = measured(of.certified, "final")
        yield Part(f"{network}: the first two", ahead(shares, "grad", "gb"), listed(shares, 1, 4) + " %")
        places = measured(of.localisation, "final", ("grad", "gb"))
        poor = {title(name): not place > RANDOM + 0.05 for name, place in places.items()}
        yield Part(f"{network}: Certified GridPG not above 0.3", poor, listed(places, 2))


@claim(
    "B",
    "At the input, backpropagation and perturbation methods localise on every network but VGG-11, and activation "
    "methods on none.",
)
def localised_on_every_network(found: Found) -> Iterator[Part]:
    for network, of in found.networks.items():
        places = measured(of.localisation, "input")
        known = {name: place for name, place in places.items() if not math.isnan(place)}
        able = {title(name): known[name] > RANDOM for name in (*BACKPROPAGATION, *PERTURBATION) if name in known}
        unable = {title(name): known[name] < RANDOM for name in ACTIVATION if name in known}
        yield Part(f"{network}: backpropagation and perturbation above 0.25", able, listed(places, 2))
        yield Part(f"{network}: activation below 0.25", unable)


@claim(
    "B",
    "On every network, the final layer generally localises better than the input, except for Grad and GB, and most "
    "of all for activation and perturbation methods.",
)
def final_layer_on_every_network(found: Found) -> Iterator[Part]:
    for network, of in found.networks.items():
        by_level = {level: _gains(of, level) for level in LEVELS}
        for level, gains in by_level.items():
            cases = {title(name): gain > 0 for name, gain in gains.items()}
            yield Part(f"{network}, K = {level}: better at the final layer", cases, listed(gains, 2), most=True)
        families = {family: [by_level[50][n] for n in names if n in by_level[50]] for family, names in FAMILIES.items()}
        means = {family: fmean(gains) for family, gains in families.items() if gains}
        told = ", ".join(f"{family} {mean:.2f}" for family, mean in means.items())
        least = means.pop("backpropagation", math.inf)
        more = {family: mean > least for family, mean in means.items()}
        yield Part(f"{network}, K = 50: gains more than backpropagation", more, told)


def _gains(of: Evidence, level: float) -> dict[str, float]:
    """Return the gain in Certified GridPG from the input to the final layer, where it is defined at both."""
    names = [name for name, layer in VARYING if layer == "final"]
    near, far = (measured(of.localisation, layer, names, level=level) for layer in ("final", "input"))
    gains = {name: near[name] - far[name] for name in near.keys() & far.keys()}
    return {name: gains[name] for name in names if name in gains and not math.isnan(gains[name])}


@claim("5.4", "On every network, RISE and LRP have the best trade-off at the input.")
def best_balance_on_every_network(found: Found) -> Iterator[Part]:
    for network, of in found.networks.items():
        places = measured(of.localisation, "input", level=30)
        balances = {name: balance(of, name, "input") for name in pc.METHODS if name in places}
        if {"rise", "lrp"} <= set(balances):
            cases = ahead(balances, "rise", "lrp")
            yield Part(f"{network}: the first two by the harmonic mean, K = 30", cases, listed(balances, 2, 4))


@claim(
    "B, 5.4",
    "On ViT-B/16, gradients certify little, only RISE stays robust and localised, and activation methods fail.",
)
def vision_transformer(found: Found) -> Iterator[Part]:
    yield from ()


@claim("B", "On VGG-11, no method localises well at the input.")
def vgg(found: Found) -> Iterator[Part]:
    yield from ()


CLAIMS = (
    radius_on_every_network,
    level_on_every_network,
    most_robust_on_every_network,
    constant_maps_on_every_network,
    localised_on_every_network,
    final_layer_on_every_network,
    best_balance_on_every_network,
    vision_transformer,
    vgg,
)
