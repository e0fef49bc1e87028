"""Appendix B and section 5.4: what holds on every network. The last claims are of networks that were not run."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pixelcert as pc

from ..evidence import RANDOM
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


@claim("B", "On every network a smaller K certifies fewer pixels as 1.")
def level_on_every_network(found: Found) -> Iterator[Part]:
    for network, of in found.others.items():
        cases = {cell_name(cell): of.ones(*cell, level=10) < of.ones(*cell, level=50) for cell in CELLS}
        yield Part(f"{network}: fewer at K = 10 than at 50", cases)


@claim("B", "On every network LRP and RISE are the most robust at the input.")
def most_robust_on_every_network(found: Found) -> Iterator[Part]:
    return _first_two(found, "input", "lrp", "rise")


@claim("B", "On every convolutional network Grad and GB are the most robust at the final layer.")
def constant_maps_on_every_network(found: Found) -> Iterator[Part]:
    return _first_two(found, "final", "grad", "gb")


def _first_two(found: Found, layer: str, *names: str) -> Iterator[Part]:
    for network, of in found.others.items():
        shares = of_all(of.certified, layer)
        yield Part(f"{network}: the first two", ahead(shares, *names), listed(shares, 1, 4) + " %")


@claim("B", "At the input backpropagation and perturbation localise on every network but VGG-11, activation on none.")
def localised_on_every_network(found: Found) -> Iterator[Part]:
    for network, of in found.others.items():
        places = of_all(of.localisation, "input")
        able = {title(name): places[name] > RANDOM for name in (*BACKPROPAGATION, *PERTURBATION)}
        unable = {title(name): places[name] < RANDOM for name in ACTIVATION if not math.isnan(places[name])}
        yield Part(f"{network}: backpropagation and perturbation above 0.25", able, listed(places, 2))
        yield Part(f"{network}: activation below", unable)


@claim("B", "On every network the final layer localises better than the input, except Grad and GB.")
def final_layer_on_every_network(found: Found) -> Iterator[Part]:
    names = [name for name in pc.METHODS if (name, "final") not in CONSTANT]
    for network, of in found.others.items():
        near, far = (of_all(of.localisation, layer, names) for layer in ("final", "input"))
        known = [name for name in names if not math.isnan(near[name]) and not math.isnan(far[name])]
        cases = {title(name): near[name] > far[name] for name in known}
        yield Part(f"{network}: better at the final layer", cases)


@claim("5.4", "On every network RISE and LRP have the best trade-off at the input.")
def best_balance_on_every_network(found: Found) -> Iterator[Part]:
    for network, of in found.others.items():
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
