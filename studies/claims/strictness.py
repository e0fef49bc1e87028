"""Appendices C and D: the effect of τ, and GridPG without noise."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import fmean

import pixelcert as pc

from .judgement import Found, Part, claim
from .wording import (
    ACTIVATION,
    BACKPROPAGATION,
    CELLS,
    CONSTANT,
    VARYING,
    ahead,
    cell_name,
    listed,
    of_all,
    path,
    title,
)


@claim("C", "A larger τ lowers %certified of all methods, except Grad and GB at the final layer.")
def tau_lowers_share(found: Found) -> Iterator[Part]:
    taus = (0.6, 0.65, 0.7, 0.75, 0.8)
    shares = {cell: [found.main.certified(*cell, tau=tau) for tau in taus] for cell in CELLS}
    means = [fmean(shares[cell][index] for cell in VARYING) for index in range(len(taus))]
    cases = {cell_name(cell): shares[cell][-1] < shares[cell][0] for cell in VARYING}
    yield Part("less at τ = 0.8 than at 0.6", cases, f"mean {path(means)} %")
    cases = {cell_name(cell): max(shares[cell]) - min(shares[cell]) <= 1 for cell in sorted(CONSTANT)}
    yield Part("Grad and GB at the final layer stay within a point", cases)


@claim("C", "At τ = 0.95, nothing is certified with 100 samples.")
def nothing_at_highest_tau(found: Found) -> Iterator[Part]:
    shares = {cell: found.main.certified(*cell, tau=0.95) for cell in CELLS}
    yield Part("0 % certified", {cell_name(cell): share == 0 for cell, share in shares.items()})


@claim("C", "From τ = 0.6 to 0.75, all methods localise better, except activation methods at the input.")
def tau_sharpens(found: Found) -> Iterator[Part]:
    cells = [cell for cell in VARYING if not (cell[0] in ACTIVATION and cell[1] == "input")]
    loose, strict = ({cell: found.main.localisation(*cell, tau=tau) for cell in cells} for tau in (0.6, 0.75))
    known = [cell for cell in cells if not math.isnan(loose[cell]) and not math.isnan(strict[cell])]
    means = (fmean(of[cell] for cell in known) for of in (loose, strict))
    cases = {cell_name(cell): strict[cell] > loose[cell] for cell in known}
    yield Part("higher Certified GridPG at 0.75", cases, f"mean {path(means, 3)}")


@claim("D", "At the input, LRP does best in GridPG and Certified GridPG together.")
def lrp_best_in_both(found: Found) -> Iterator[Part]:
    both = {name: min(found.main.grid_pg(name, "input"), found.main.localisation(name, "input")) for name in pc.METHODS}
    yield Part("highest by the lower of the two scores", ahead(both, "lrp"), listed(both, 2, 5))


@claim("D", "At the input, backpropagation and activation methods localise better when certified.")
def certified_localises_better_at_input(found: Found) -> Iterator[Part]:
    gains = {
        name: found.main.localisation(name, "input") - found.main.grid_pg(name, "input")
        for name in (*BACKPROPAGATION, *ACTIVATION)
    }
    cases = {title(name): gain > 0 for name, gain in gains.items()}
    yield Part("Certified GridPG above GridPG", cases, listed(gains, 2))


@claim("D", "At the final layer, only RISE localises better when certified, and all others stay about equal.")
def rise_alone_gains_at_final_layer(found: Found) -> Iterator[Part]:
    gains = {
        name: found.main.localisation(name, "final") - found.main.grid_pg(name, "final")
        for name in pc.METHODS
        if (name, "final") not in CONSTANT
    }
    yield Part("RISE gains more than 0.05", {"": gains["rise"] > 0.05}, listed(gains, 2))
    others = {title(name): abs(gain) <= 0.05 for name, gain in gains.items() if name != "rise"}
    yield Part("the others stay within 0.05", others)


@claim("D", "At the final layer, Grad-CAM is the best in both GridPG and Certified GridPG.")
def grad_cam_best_in_both(found: Found) -> Iterator[Part]:
    scores = {
        "GridPG": of_all(found.main.grid_pg, "final"),
        "Certified GridPG": of_all(found.main.localisation, "final"),
    }
    cases = {name: all(ahead(of, "grad_cam").values()) for name, of in scores.items()}
    yield Part("Grad-CAM first", cases, "; ".join(f"{name}: {listed(of, 2, 4)}" for name, of in scores.items()))


CLAIMS = (
    tau_lowers_share,
    nothing_at_highest_tau,
    tau_sharpens,
    lrp_best_in_both,
    certified_localises_better_at_input,
    rise_alone_gains_at_final_layer,
    grad_cam_best_in_both,
)
