"""Section 5.3: certified pixels in the right cell of a grid."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import fmean

import pixelcert as pc

from ..evidence import RANDOM
from .judgement import Found, Part, claim
from .wording import (
    ACTIVATION,
    AT,
    BACKPROPAGATION,
    CELLS,
    CONSTANT,
    FAMILIES,
    LAYERS,
    NEAR_PERFECT,
    PERTURBATION,
    SIGMAS,
    ahead,
    cell_name,
    falls,
    listed,
    of_all,
    path,
    title,
)


@claim("5.3", "A larger R raises the variance of Certified GridPG, and RISE varies least.")
def radius_raises_variance(found: Found) -> Iterator[Part]:
    def spread(method: str, layer: str, sigma: float) -> float:
        value = found.radii.mean("certified_grid_pg", method, layer, scene="grid", sigma=sigma).spread
        return math.nan if value is None else value

    spreads = {cell: [spread(*cell, sigma=sigma) for sigma in SIGMAS] for cell in CELLS}
    known = {cell: values for cell, values in spreads.items() if not any(map(math.isnan, values))}
    yield Part(
        "larger spread at σ = 0.33 than at 0.15",
        {cell_name(cell): values[-1] > values[0] for cell, values in known.items()},
        f"mean {path((fmean(values[index] for values in known.values()) for index in range(3)), 3)}",
        most=True,
    )
    for layer in LAYERS:
        means = {name: found.main.mean("certified_grid_pg", name, layer, scene="grid") for name in pc.METHODS}
        whole = {
            name: mean.spread for name, mean in means.items() if mean.spread is not None and mean.defined == mean.count
        }
        steady = ahead({name: -spread for name, spread in whole.items()}, "rise")
        yield Part(f"RISE varies least {AT[layer]}, among methods with a score on every grid", steady, listed(whole, 3))


@claim("5.3", "Activation methods localise worse than chance at the input.")
def activation_worse_than_chance(found: Found) -> Iterator[Part]:
    by_level = {f"K = {k}": of_all(found.main.localisation, "input", ACTIVATION, level=k) for k in (50, 30, 10)}
    by_radius = {f"σ = {s}": of_all(found.radii.localisation, "input", ACTIVATION, sigma=s) for s in SIGMAS[1:]}
    for says, places in {**by_level, **by_radius}.items():
        cases = {title(name): place < RANDOM for name, place in places.items() if not math.isnan(place)}
        yield Part(f"below 0.25 at {says}", cases, listed(places, 2))


@claim("5.3", "LRP, RISE and Occlusion localise almost perfectly at K = 10 %.")
def almost_perfect_at_small_level(found: Found) -> Iterator[Part]:
    for layer in LAYERS:
        places = of_all(found.main.localisation, layer, ("lrp", "rise", "occlusion"), level=10)
        cases = {title(name): place >= NEAR_PERFECT for name, place in places.items()}
        yield Part(f"at least 0.9 {AT[layer]}", cases, listed(places, 3))


@claim("5.3", "Perturbation methods localise best as R grows or K shrinks, at both layers.")
def perturbation_localises_best(found: Found) -> Iterator[Part]:
    for layer in LAYERS:
        larger = of_all(found.radii.localisation, layer, sigma=0.33)
        smaller = of_all(found.main.localisation, layer, level=10)
        for says, places in (("σ = 0.33", larger), ("K = 10", smaller)):
            known = {n: place for n, place in places.items() if (n, layer) not in CONSTANT and not math.isnan(place)}
            means = {
                family: fmean([known[name] for name in names if name in known] or [0.0])
                for family, names in FAMILIES.items()
            }
            told = ", ".join(f"{family} {mean:.2f}" for family, mean in means.items())
            yield Part(f"{says}, {AT[layer]}", {"": max(means, key=means.__getitem__) == "perturbation"}, told)


@claim(
    "5.3", "Among backpropagation methods at the input, Grad localises best, then IxG, IntGrad and LRP, and GB worst."
)
def order_of_backpropagation(found: Found) -> Iterator[Part]:
    places = of_all(found.main.localisation, "input", BACKPROPAGATION)
    yield Part("Grad first", ahead(places, "grad"), listed(places, 2))
    yield Part("GB last", ahead({name: -place for name, place in places.items()}, "gb"))
    between = [places[name] for name in ("ixg", "intgrad", "lrp")]
    yield Part("IxG, IntGrad, LRP in this order", {"": falls(between)})


@claim("5.3", "At the final layer, Grad and GB certify much and localise like chance.")
def constant_maps_localise_like_chance(found: Found) -> Iterator[Part]:
    shares = of_all(found.main.certified, "final", ("grad", "gb"))
    places = of_all(found.main.localisation, "final", ("grad", "gb"))
    yield Part("certified above 90 %", {title(n): share > 90 for n, share in shares.items()}, listed(shares) + " %")
    cases = {title(name): abs(place - RANDOM) < 0.05 for name, place in places.items()}
    yield Part("within 0.05 of 0.25", cases, listed(places, 2))


@claim(
    "5.3",
    "At the final layer, a larger R brings activation methods below chance, except CAM and Grad-CAM, which are best.",
)
def radius_below_chance(found: Found) -> Iterator[Part]:
    places = of_all(found.radii.localisation, "final", ACTIVATION, sigma=0.33)
    others = ("grad_cam_pp", "ablation_cam", "layer_cam")
    yield Part("below 0.25 at σ = 0.33", {title(n): places[n] < RANDOM for n in others}, listed(places, 2))
    yield Part("CAM and Grad-CAM first", ahead(places, "cam", "grad_cam"))


@claim(
    "5.3",
    "At the final layer, methods localise better at a smaller K; CAM and Grad-CAM are almost perfect at K = 10 %.",
)
def level_sharpens_final_layer(found: Found) -> Iterator[Part]:
    names = [name for name in pc.METHODS if (name, "final") not in CONSTANT]
    wide, narrow = (of_all(found.main.localisation, "final", names, level=level) for level in (50, 10))
    cases = {title(name): narrow[name] > wide[name] for name in names}
    yield Part("better at K = 10 than at 50", cases, f"mean {path((fmean(wide.values()), fmean(narrow.values())), 2)}")
    best = {title(name): narrow[name] >= NEAR_PERFECT for name in ("cam", "grad_cam")}
    yield Part("CAM and Grad-CAM at least 0.9", best, listed({name: narrow[name] for name in ("cam", "grad_cam")}, 2))


@claim("5.3", "RISE and Occlusion localise about equally well at both layers.")
def perturbation_methods_alike(found: Found) -> Iterator[Part]:
    for level in (50, 10):
        places = {layer: of_all(found.main.localisation, layer, PERTURBATION, level=level) for layer in LAYERS}
        yield Part(
            f"within 0.1 of each other at K = {level}",
            {layer: abs(here["rise"] - here["occlusion"]) <= 0.1 for layer, here in places.items()},
            "; ".join(f"{layer}: {listed(here, 2)}" for layer, here in places.items()),
        )


@claim("5.3", "At the input, RISE and Occlusion localise better as K shrinks, and RISE is almost perfect at K = 10 %.")
def level_sharpens_perturbation(found: Found) -> Iterator[Part]:
    places = {name: [found.main.localisation(name, "input", level=k) for k in (50, 30, 10)] for name in PERTURBATION}
    told = "; ".join(f"{title(name)} {path(values, 2)}" for name, values in places.items())
    yield Part("better at K = 10 than at 50", {title(n): values[-1] > values[0] for n, values in places.items()}, told)
    yield Part("RISE at least 0.9", {"": places["rise"][-1] >= NEAR_PERFECT})


@claim(
    "5.3, box",
    "LRP, RISE and Occlusion localise best across settings; at the final layer, all but Grad and GB do well.",
)
def localise_best(found: Found) -> Iterator[Part]:
    for level in (50, 30, 10):
        places = of_all(found.main.localisation, "input", level=level)
        cases = ahead(places, "lrp", "rise", "occlusion")
        yield Part(f"above all others at the input, K = {level}", cases, listed(places, 2, 4))
    names = [name for name in pc.METHODS if (name, "final") not in CONSTANT]
    places = of_all(found.main.localisation, "final", names)
    yield Part(
        "above 0.5 at the final layer", {title(n): place > 0.5 for n, place in places.items()}, listed(places, 2)
    )


CLAIMS = (
    radius_raises_variance,
    activation_worse_than_chance,
    almost_perfect_at_small_level,
    perturbation_localises_best,
    order_of_backpropagation,
    constant_maps_localise_like_chance,
    radius_below_chance,
    level_sharpens_final_layer,
    perturbation_methods_alike,
    level_sharpens_perturbation,
    localise_best,
)
