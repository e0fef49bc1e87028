"""Section 5.4: robustness and localisation together."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import fmean, median

import pixelcert as pc

from ..evidence import RANDOM
from .judgement import Found, Part, claim
from .wording import (
    ACTIVATION,
    BACKPROPAGATION,
    LAYERS,
    PERTURBATION,
    ahead,
    balance,
    listed,
    measured,
    of_all,
    path,
    title,
)


@claim("5.4", "RISE and LRP have the best trade-off at the input.")
def best_balance_at_input(found: Found) -> Iterator[Part]:
    balances = {name: balance(found.main, name, "input") for name in pc.METHODS}
    yield Part(
        "the first two by the harmonic mean of %certified and Certified GridPG, K = 30",
        ahead(balances, "rise", "lrp"),
        listed(balances, 2, 5),
    )


@claim("5.4", "At the input, Grad, GB and IntGrad localise best and certify almost nothing.")
def localised_but_fragile(found: Found) -> Iterator[Part]:
    names = ("grad", "gb", "intgrad")
    for network, of in found.networks.items():
        places = measured(of.localisation, "input", level=30)
        shares = measured(of.certified, "input", names, level=30)
        if set(names) <= set(places):
            yield Part(f"{network}: the highest Certified GridPG, K = 30", ahead(places, *names), listed(places, 2, 6))
            small = {title(name): share < 5 for name, share in shares.items()}
            yield Part(f"{network}: certified below 5 %", small, listed(shares) + " %")


@claim("5.4", "Activation methods do badly in robustness and localisation at the input.")
def activation_bad_in_both(found: Found) -> Iterator[Part]:
    shares = of_all(found.main.certified, "input", level=30)
    places = of_all(found.main.localisation, "input", level=30)
    known = [place for place in places.values() if not math.isnan(place)]
    low_share = {title(name): shares[name] < median(shares.values()) for name in ACTIVATION}
    low_place = {title(name): places[name] < median(known) for name in ACTIVATION if not math.isnan(places[name])}
    yield Part("%certified below the median, K = 30", low_share, listed({n: shares[n] for n in ACTIVATION}) + " %")
    yield Part("Certified GridPG below the median", low_place, listed({n: places[n] for n in ACTIVATION}, 2))


@claim(
    "5.4",
    "At the final layer, RISE balances best, beside Occlusion and activation methods; Grad and GB are the most robust "
    "and localise like chance.",
)
def best_balance_at_final_layer(found: Found) -> Iterator[Part]:
    balances = {name: balance(found.main, name, "final") for name in pc.METHODS}
    yield Part("RISE first by the harmonic mean, K = 30", ahead(balances, "rise"), listed(balances, 3, 3))
    rivals = max(balances[name] for name in BACKPROPAGATION)
    cases = {title(name): balances[name] > rivals for name in (*PERTURBATION, *ACTIVATION)}
    yield Part("above all of backpropagation", cases, listed(balances, 2))
    shares = of_all(found.main.certified, "final", level=30)
    yield Part("Grad and GB certify the most", ahead(shares, "grad", "gb"), listed(shares) + " %")
    places = of_all(found.main.localisation, "final", ("grad", "gb"), level=30)
    cases = {title(name): abs(place - RANDOM) < 0.05 for name, place in places.items()}
    yield Part("Grad and GB within 0.05 of 0.25 in Certified GridPG", cases, listed(places, 2))


@claim("5.4", "The trade-off is better at the final layer.")
def final_layer_balances_better(found: Found) -> Iterator[Part]:
    at = {layer: {name: balance(found.main, name, layer) for name in pc.METHODS} for layer in LAYERS}
    cases = {title(name): at["final"][name] > at["input"][name] for name in pc.METHODS}
    means = (fmean(at[layer].values()) for layer in LAYERS)
    yield Part("higher harmonic mean at the final layer, K = 30", cases, f"mean {path(means, 2)}", most=True)


CLAIMS = (
    best_balance_at_input,
    localised_but_fragile,
    activation_bad_in_both,
    best_balance_at_final_layer,
    final_layer_balances_better,
)
