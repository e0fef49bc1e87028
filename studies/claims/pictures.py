"""Appendices E and G: claims about the paper's pictures, in numbers."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

import pixelcert as pc

from ..evidence import RANDOM
from .judgement import Found, Part, claim
from .wording import ACTIVATION, BACKPROPAGATION, SIGMAS, VARYING, ahead, cell_name, listed, of_all, path, title

# The paper shows activation methods at the final layer, and all others at the input.
SHOWN = tuple((name, "final" if name in ACTIVATION else "input") for name in pc.METHODS)


@claim("E", "At the input, only LRP, Grad and GB of the backpropagation methods certify pixels as 1 at any R.")
def who_certifies_ones(found: Found) -> Iterator[Part]:
    shares = {name: [found.radii.ones(name, "input", sigma=sigma) for sigma in SIGMAS] for name in BACKPROPAGATION}
    told = "; ".join(f"{title(name)} {path(values, 2)} %" for name, values in shares.items())
    silent = {title(name): max(shares[name]) < 0.25 for name in ("ixg", "intgrad")}
    yield Part("IxG and IntGrad below 0.25 % of the pixels, K = 50", silent, told)
    cases = {title(name): min(shares[name]) >= 0.25 for name in ("lrp", "grad", "gb")}
    yield Part("LRP, Grad and GB at least 0.25 %", cases)


@claim("E", "A larger R certifies fewer pixels as 1, for all methods.")
def radius_costs_ones(found: Found) -> Iterator[Part]:
    shares = {(name, layer): [found.radii.ones(name, layer, sigma=s) for s in SIGMAS] for name, layer in SHOWN}
    cases = {cell_name(cell): values[-1] < values[0] for cell, values in shares.items()}
    yield Part(
        "fewer at σ = 0.33 than at 0.15", cases, f"mean {path(map(fmean, zip(*shares.values(), strict=True)))} %"
    )


@claim("E", "Activation and perturbation methods keep their certified maps as R grows.")
def maps_kept_as_radius_grows(found: Found) -> Iterator[Part]:
    cells = [(name, layer) for name, layer in SHOWN if name not in BACKPROPAGATION]
    shares = {cell: [found.radii.ones(*cell, sigma=sigma) for sigma in SIGMAS] for cell in cells}
    cases = {cell_name(cell): values[-1] > values[0] / 2 for cell, values in shares.items()}
    told = "; ".join(f"{cell_name(cell)} {path(values)} %" for cell, values in shares.items())
    yield Part("at σ = 0.33 more than half of the pixels certified 1 at 0.15", cases, told)


@claim("G", "Among backpropagation methods on grids at the input, LRP localises best, followed by Grad.")
def lrp_then_grad_on_grids(found: Found) -> Iterator[Part]:
    places = of_all(found.main.localisation, "input", BACKPROPAGATION)
    yield Part("LRP first", ahead(places, "lrp"), listed(places, 2))
    yield Part("Grad next", ahead({name: place for name, place in places.items() if name != "lrp"}, "grad"))


@claim(
    "G",
    "On grids at the input, IxG and IntGrad certify very few pixels as 1, and GB certifies pixels of every cell alike.",
)
def few_or_everywhere_on_grids(found: Found) -> Iterator[Part]:
    shares = of_all(found.main.ones, "input", ("ixg", "intgrad"), scene="grid")
    yield Part("below 1 %", {title(name): share < 1 for name, share in shares.items()}, listed(shares, 2) + " %")
    place = found.main.localisation("gb", "input")
    yield Part("GB within 0.1 of 0.25 in Certified GridPG", {"": abs(place - RANDOM) < 0.1}, f"{place:.2f}")


@claim("G", "At the input, activation methods abstain on almost the whole grid.")
def activation_abstains_on_grids(found: Found) -> Iterator[Part]:
    shares = of_all(found.main.certified, "input", ACTIVATION, scene="grid")
    yield Part(
        "certified below 10 %", {title(name): share < 10 for name, share in shares.items()}, listed(shares) + " %"
    )


@claim("G", "At the final layer, Grad and GB certify every pixel as 0.")
def constant_maps_certify_zeros(found: Found) -> Iterator[Part]:
    shares = of_all(found.main.zeros, "final", ("grad", "gb"), scene="grid")
    yield Part("above 99 %", {title(name): share > 99 for name, share in shares.items()}, listed(shares) + " %")


@claim("G", "All other methods localise considerably better at the final layer than at the input.")
def grids_better_at_final_layer(found: Found) -> Iterator[Part]:
    names = [name for name, layer in VARYING if layer == "final"]
    near, far = (of_all(found.main.localisation, layer, names) for layer in ("final", "input"))
    gains = {name: near[name] - far[name] for name in names}
    cases = {title(name): gain > 0.1 for name, gain in gains.items()}
    yield Part("Certified GridPG higher by 0.1, K = 50", cases, listed(gains, 2))


CLAIMS = (
    who_certifies_ones,
    radius_costs_ones,
    maps_kept_as_radius_grows,
    lrp_then_grad_on_grids,
    few_or_everywhere_on_grids,
    activation_abstains_on_grids,
    constant_maps_certify_zeros,
    grids_better_at_final_layer,
)
