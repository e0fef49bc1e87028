"""Appendix B and section 5.4: what holds on every network. The last claims are of networks that were not run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import wraps

import pixelcert as pc
from pixelcert.errors import ArgumentError

from ..evidence import RANDOM, Evidence
from .judgement import Found, Part, claim
from .wording import (
    ACTIVATION,
    BACKPROPAGATION,
    CELLS,
    CONSTANT,
    PERTURBATION,
    ahead,
    balance,
    cell_name,
    listed,
    of_all,
    title,
)


def on_each_network(parts: Callable[[str, Evidence], Iterator[Part]]) -> Callable[[Found], Iterator[Part]]:
    """A rule for all other networks from one for each; those whose study lacks what it looks at are left out."""

    def on_all(found: Found) -> Iterator[Part]:
        for network, of in found.others.items():
            with suppress(ArgumentError):
                yield from list(parts(network, of))

    return wraps(parts)(on_all)


@claim("B", "On every network a smaller K certifies fewer pixels as 1.")
@on_each_network
def level_on_every_network(network: str, of: Evidence) -> Iterator[Part]:
    cases = {cell_name(cell): of.ones(*cell, level=10) < of.ones(*cell, level=50) for cell in CELLS}
    yield Part(f"{network}: fewer at K = 10 than at 50", cases)


@claim("B", "On every network LRP and RISE are the most robust at the input.")
@on_each_network
def most_robust_on_every_network(network: str, of: Evidence) -> Iterator[Part]:
    yield _first_two(network, of, "input", "lrp", "rise")


@claim("B", "On every convolutional network Grad and GB are the most robust at the final layer.")
@on_each_network
def constant_maps_on_every_network(network: str, of: Evidence) -> Iterator[Part]:
    yield _first_two(network, of, "final", "grad", "gb")


def _first_two(network: str, of: Evidence, layer: str, *names: str) -> Part:
    shares = of_all(of.certified, layer)
    return Part(f"{network}: the first two", ahead(shares, *names), listed(shares, 1, 4) + " %")


@claim("B", "At the input backpropagation and perturbation localise on every network but VGG-11, activation on none.")
@on_each_network
def localised_on_every_network(network: str, of: Evidence) -> Iterator[Part]:
    places = of_all(of.localisation, "input")
    able = {title(name): places[name] > RANDOM for name in (*BACKPROPAGATION, *PERTURBATION)}
    unable = {title(name): places[name] < RANDOM for name in ACTIVATION if not math.isnan(places[name])}
    yield Part(f"{network}: backpropagation and perturbation above 0.25", able, listed(places, 2))
    yield Part(f"{network}: activation below", unable)


@claim("B", "On every network the final layer localises better than the input, except Grad and GB.")
@on_each_network
def final_layer_on_every_network(network: str, of: Evidence) -> Iterator[Part]:
    names = [name for name in pc.METHODS if (name, "final") not in CONSTANT]
    near, far = (of_all(of.localisation, layer, names) for layer in ("final", "input"))
    known = [name for name in names if not math.isnan(near[name]) and not math.isnan(far[name])]
    cases = {title(name): near[name] > far[name] for name in known}
    yield Part(f"{network}: better at the final layer", cases)


@claim("5.4", "On every network RISE and LRP have the best trade-off at the input.")
@on_each_network
def best_balance_on_every_network(network: str, of: Evidence) -> Iterator[Part]:
    balances = {name: balance(of, name, "input") for name in pc.METHODS}
    cases = ahead(balances, "rise", "lrp")
    yield Part(f"{network}: first two by the harmonic mean, K = 30", cases, listed(balances, 2, 4))


@claim("B, 5.4", "On ViT-B/16 RISE alone stays robust and localised, and activation methods fail.")
def vision_transformer(found: Found) -> Iterator[Part]:
    yield from ()


@claim("B", "On VGG-11 no method localises well at the input.")
def vgg(found: Found) -> Iterator[Part]:
    yield from ()


CLAIMS = (
    level_on_every_network,
    most_robust_on_every_network,
    constant_maps_on_every_network,
    localised_on_every_network,
    final_layer_on_every_network,
    best_balance_on_every_network,
    vision_transformer,
    vgg,
)
