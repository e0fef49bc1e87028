"""Section 5.2: the share of certified pixels."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from statistics import fmean, median

import pixelcert as pc

from .judgement import Found, Part, claim
from .wording import (
    ACTIVATION,
    AT,
    BACKPROPAGATION,
    CELLS,
    CONSTANT,
    LAYERS,
    PERTURBATION,
    SIGMAS,
    VARYING,
    ahead,
    cell_name,
    falls,
    listed,
    of_all,
    path,
    title,
)


@claim(
    "5.2", "A larger R, through a larger σ, lowers %certified of most methods, except Grad and GB at the final layer."
)
def radius_lowers_share(found: Found) -> Iterator[Part]:
    shares = {cell: [found.radii.certified(*cell, sigma=sigma) for sigma in SIGMAS] for cell in CELLS}
    means = [fmean(shares[cell][index] for cell in VARYING) for index in range(len(SIGMAS))]
    yield Part(
        "%certified falls with each larger σ",
        {cell_name(cell): falls(shares[cell]) for cell in VARYING},
        f"mean {path(means)} %",
        most=True,
    )
    yield Part(
        "Grad and GB at the final layer stay within a point",
        {cell_name(cell): max(shares[cell]) - min(shares[cell]) <= 1 for cell in sorted(CONSTANT)},
        "; ".join(f"{cell_name(cell)} {path(shares[cell])} %" for cell in sorted(CONSTANT)),
    )


@claim("5.2", "A smaller K moves certified pixels from 1 to 0.")
def level_moves_ones_to_zeros(found: Found) -> Iterator[Part]:
    levels = (50, 30, 10)
    ones = {cell: [found.main.ones(*cell, level=level) for level in levels] for cell in VARYING}
    zeros = {cell: [found.main.zeros(*cell, level=level) for level in levels] for cell in VARYING}
    for says, shares, sign in (("fewer certified 1 at K = 10 than at 50", ones, 1), ("more certified 0", zeros, -1)):
        yield Part(
            says,
            {cell_name(cell): sign * values[0] > sign * values[-1] for cell, values in shares.items()},
            f"mean {path(fmean(values[index] for values in shares.values()) for index in range(3))} %",
        )


@claim("5.2", "Methods certify more pixels as 1 at the final layer than at the input.")
def final_layer_has_more_ones(found: Found) -> Iterator[Part]:
    at = {layer: of_all(found.main.ones, layer) for layer in LAYERS}
    yield Part(
        "more at the final layer",
        {title(name): at["final"][name] > at["input"][name] for name in pc.METHODS},
        f"mean {path(fmean(at[layer].values()) for layer in LAYERS)} %",
        most=True,
    )


@claim("5.2", "LRP is the most robust backpropagation method at the input, and the second of all after RISE.")
def lrp_second_to_rise(found: Found) -> Iterator[Part]:
    shares = of_all(found.main.certified, "input")
    yield Part("RISE first", ahead(shares, "rise"), listed(shares) + " %")
    yield Part("LRP next", ahead({name: share for name, share in shares.items() if name != "rise"}, "lrp"))


@claim("5.2", "The other backpropagation methods certify almost nothing at the input.")
def other_backpropagation_certifies_nothing(found: Found) -> Iterator[Part]:
    shares = of_all(found.main.certified, "input", [name for name in BACKPROPAGATION if name != "lrp"])
    yield Part("below 5 %", {title(name): share < 5 for name, share in shares.items()}, listed(shares) + " %")


@claim(
    "5.2",
    "At the final layer, activation methods certify more than backpropagation as R grows, except for Grad and GB.",
)
def activation_above_backpropagation(found: Found) -> Iterator[Part]:
    for sigma in SIGMAS[1:]:
        shares = of_all(found.radii.certified, "final", sigma=sigma)
        rivals = [name for name in BACKPROPAGATION if (name, "final") not in CONSTANT]
        yield Part(
            f"σ = {sigma}: above each of {', '.join(map(title, rivals))}",
            {title(name): shares[name] > max(shares[rival] for rival in rivals) for name in ACTIVATION},
            listed({name: shares[name] for name in (*ACTIVATION, *rivals)}) + " %",
        )


@claim("5.2", "At the final layer, Grad-CAM++ and Layer-CAM certify more than the other activation methods.")
def best_of_activation(found: Found) -> Iterator[Part]:
    shares = of_all(found.main.certified, "final", ACTIVATION)
    others = max(share for name, share in shares.items() if name not in ("grad_cam_pp", "layer_cam"))
    cases = {title(name): shares[name] > others for name in ("grad_cam_pp", "layer_cam")}
    yield Part("above the others", cases, listed(shares) + " %")


@claim("5.2", "RISE certifies the most at the input, at every R.")
def rise_first_at_every_radius(found: Found) -> Iterator[Part]:
    shares = {sigma: of_all(found.radii.certified, "input", sigma=sigma) for sigma in SIGMAS}
    yield Part(
        "RISE first",
        {f"σ = {sigma}": all(ahead(here, "rise").values()) for sigma, here in shares.items()},
        "; ".join(f"σ = {sigma}: {listed(here, first=2)} %" for sigma, here in shares.items()),
    )


@claim("5.2", "RISE certifies much at both layers, Occlusion only at the final layer.")
def occlusion_at_final_layer_alone(found: Found) -> Iterator[Part]:
    shares = {layer: of_all(found.main.certified, layer) for layer in LAYERS}
    above = {name: [shares[at][name] > median(shares[at].values()) for at in LAYERS] for name in PERTURBATION}
    for says, name, expected in (
        ("RISE above the median of the methods at both layers", "rise", (True, True)),
        ("Occlusion above it only at the final layer", "occlusion", (False, True)),
    ):
        cases = {layer: here == wanted for layer, here, wanted in zip(LAYERS, above[name], expected, strict=True)}
        yield Part(says, cases, path(shares[layer][name] for layer in LAYERS) + " %")


@claim(
    "5.2, box", "RISE and LRP are the most robust across settings, and all methods are more robust at the final layer."
)
def most_robust(found: Found) -> Iterator[Part]:
    for layer in LAYERS:
        names, cases = [name for name in pc.METHODS if (name, layer) not in CONSTANT], {}
        for sigma, level in product(SIGMAS, (50, 30, 10)):
            shares = of_all(found.radii.certified, layer, names, sigma=sigma, level=level)
            cases[f"σ = {sigma}, K = {level}"] = all(ahead(shares, "rise", "lrp").values())
        exceptions = ", except for Grad and GB" if len(names) < len(pc.METHODS) else ""
        yield Part(f"RISE and LRP first {AT[layer]}{exceptions}", cases)
    at = {layer: of_all(found.main.certified, layer) for layer in LAYERS}
    yield Part(
        "more at the final layer",
        {title(name): at["final"][name] > at["input"][name] for name in pc.METHODS},
    )


CLAIMS = (
    radius_lowers_share,
    level_moves_ones_to_zeros,
    final_layer_has_more_ones,
    lrp_second_to_rise,
    other_backpropagation_certifies_nothing,
    activation_above_backpropagation,
    best_of_activation,
    rise_first_at_every_radius,
    occlusion_at_final_layer_alone,
    most_robust,
)
