"""Section 5.5: what deleting certified pixels does to the model's confidence."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from statistics import fmean

import pixelcert as pc

from ..evidence import Evidence
from .judgement import Found, Part, claim
from .wording import LAYERS, ahead, listed, measured, of_all, path, ranked, title


def drops(evidence: Evidence, layer: str) -> dict[str, float]:
    """Return the confidence that each method loses in the first deletion step, at K = 5 %."""
    return {name: evidence.confidence(name, layer, None) - evidence.confidence(name, layer, 5) for name in pc.METHODS}


@claim("5.5", "At the input, LRP and RISE lose the most confidence with the first deletion, and Grad-CAM the least.")
def first_deletion_at_input(found: Found) -> Iterator[Part]:
    lost = drops(found.main, "input")
    yield Part("LRP and RISE lose the most", ahead(lost, "lrp", "rise"), listed(lost, 3))
    least = [name for name in lost if lost[name] <= lost["grad_cam"]]
    yield Part(
        "no method loses less than Grad-CAM",
        {"": min(lost.values()) >= lost["grad_cam"]},
        f"these lose as little: {', '.join(map(title, least))}",
    )


@claim("5.5", "LRP and RISE have the highest Certified GridPG at the input, on every network.")
def faithful_methods_localise_best(found: Found) -> Iterator[Part]:
    for (network, of), level in product(found.networks.items(), (50, 30, 10)):
        places = measured(of.localisation, "input", level=level)
        if {"lrp", "rise"} <= set(places):
            yield Part(f"{network}, K = {level}: the first two", ahead(places, "lrp", "rise"), listed(places, 2, 4))


@claim(
    "5.5",
    "At the final layer, most methods flip the prediction at the first step, and are more faithful than at the input.",
)
def first_deletion_at_final_layer(found: Found) -> Iterator[Part]:
    left = {name: found.main.confidence(name, "final", 5) for name in pc.METHODS}
    told = {title(name): value < 0.5 for name, value in left.items()}
    yield Part("mean confidence below 0.5 after the first step", told, listed(left, 2), most=True)
    areas = {layer: of_all(found.main.deletion_area, layer) for layer in LAYERS}
    cases = {title(name): areas["final"][name] < areas["input"][name] for name in pc.METHODS}
    means = (fmean(areas[layer].values()) for layer in LAYERS)
    yield Part("smaller area under the curve at the final layer", cases, f"mean {path(means, 3)}", most=True)


@claim("5.5", "At the final layer, GB and Grad lose confidence steeply although they localise like chance.")
def constant_maps_lose_confidence(found: Found) -> Iterator[Part]:
    lost = {name: drops(found.main, "final")[name] for name in ("grad", "gb")}
    yield Part(
        "more than half of the confidence is lost",
        {title(n): value > 0.5 for n, value in lost.items()},
        listed(lost, 2),
    )


@claim("5.5, box", "LRP and RISE balance robustness, localisation and faithfulness best.")
def best_in_all_three(found: Found) -> Iterator[Part]:
    ranks: dict[str, list[int]] = {name: [] for name in pc.METHODS}
    for layer in LAYERS:
        shares, places = (of_all(of, layer, level=30) for of in (found.main.certified, found.main.localisation))
        areas = {name: -found.main.deletion_area(name, layer) for name in pc.METHODS}
        for order in map(ranked, (shares, places, areas)):
            for rank, name in enumerate(order, 1):
                ranks[name].append(rank)
    means = {name: fmean(own) for name, own in ranks.items()}
    told = ", ".join(f"{title(name)} {means[name]:.1f}" for name in sorted(means, key=means.__getitem__)[:5])
    cases = ahead({name: -mean for name, mean in means.items()}, "lrp", "rise")
    yield Part("the two best mean ranks of three metrics at both layers, K = 30", cases, told)


CLAIMS = (
    first_deletion_at_input,
    faithful_methods_localise_best,
    first_deletion_at_final_layer,
    constant_maps_lose_confidence,
    best_in_all_three,
)
