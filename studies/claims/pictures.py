"""Appendices E and G: what the paper sees in its pictures, in numbers."""

from __future__ import annotations

from collections.abc import Iterator

from .judgement import Found, Part, claim
from .wording import ACTIVATION, BACKPROPAGATION, PERTURBATION, SIGMAS, listed, of_all, path, title


@claim("E", "At the input of the backpropagation methods only LRP, Grad and GB certify pixels as 1 at any R.")
def who_certifies_ones(found: Found) -> Iterator[Part]:
    shares = {name: [found.radii.ones(name, "input", sigma=sigma) for sigma in SIGMAS] for name in BACKPROPAGATION}
    told = "; ".join(f"{title(name)} {path(values)} %" for name, values in shares.items())
    silent = {title(name): max(shares[name]) < 1 for name in ("ixg", "intgrad")}
    yield Part("IxG and IntGrad below 1 % of the pixels, K = 50", silent, told)
    cases = {title(name): min(shares[name]) >= 1 for name in ("lrp", "grad", "gb")}
    yield Part("LRP, Grad and GB above", cases)


@claim("E", "Activation and perturbation methods keep their certified maps as R grows.")
def maps_kept_as_radius_grows(found: Found) -> Iterator[Part]:
    names = (*ACTIVATION, *PERTURBATION)
    shares = {name: [found.radii.ones(name, "final", sigma=sigma) for sigma in SIGMAS] for name in names}
    cases = {title(name): values[-1] > values[0] / 2 for name, values in shares.items()}
    told = "; ".join(f"{title(name)} {path(values)} %" for name, values in shares.items())
    yield Part("at σ = 0.33 more than half of the pixels certified 1 at 0.15, final layer", cases, told)


@claim("G", "At the input activation methods abstain from almost the whole grid.")
def activation_abstains_on_grids(found: Found) -> Iterator[Part]:
    shares = of_all(found.main.certified, "input", ACTIVATION, scene="grid")
    yield Part(
        "certified below 10 %", {title(name): share < 10 for name, share in shares.items()}, listed(shares) + " %"
    )


@claim("G", "At the final layer Grad and GB certify every pixel as 0.")
def constant_maps_certify_zeros(found: Found) -> Iterator[Part]:
    shares = of_all(found.main.zeros, "final", ("grad", "gb"), scene="grid")
    yield Part("above 99 %", {title(name): share > 99 for name, share in shares.items()}, listed(shares) + " %")


CLAIMS = (
    who_certifies_ones,
    maps_kept_as_radius_grows,
    activation_abstains_on_grids,
    constant_maps_certify_zeros,
)
