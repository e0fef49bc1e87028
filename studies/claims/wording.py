"""The methods, layers and noise levels that claims are about, and how values of methods are ordered and told."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise, product
from typing import Any

from pixelcert.errors import ArgumentError

import pixelcert as pc

from ..evidence import Evidence

LAYERS = ("input", "final")
SIGMAS = (0.15, 0.25, 0.33)
FAMILIES = {
    family: tuple(name for name, method in pc.METHODS.items() if method.family == family)
    for family in ("backpropagation", "activation", "perturbation")
}
BACKPROPAGATION, ACTIVATION, PERTURBATION = FAMILIES.values()
CELLS = tuple(product(pc.METHODS, LAYERS))
CONSTANT = (("gb", "final"), ("grad", "final"))  # the same everywhere, since average pooling follows the layer
VARYING = tuple(cell for cell in CELLS if cell not in CONSTANT)
NEAR_PERFECT = 0.9


def of_all(
    measure: Callable[..., float], layer: str, methods: Iterable[str] = tuple(pc.METHODS), **at: Any
) -> dict[str, float]:
    """A measure of each method."""
    return {name: measure(name, layer, **at) for name in methods}


def measured(
    measure: Callable[..., float], layer: str, methods: Iterable[str] = tuple(pc.METHODS), **at: Any
) -> dict[str, float]:
    """A measure of each method of which it was taken."""
    found = {}
    for name in methods:
        with suppress(ArgumentError):
            found[name] = measure(name, layer, **at)
    return found


def balance(evidence: Evidence, method: str, layer: str, level: float = 30) -> float:
    """The harmonic mean of the certified share and of Certified GridPG: high where both are."""
    share, place = (of(method, layer, level=level) for of in (evidence.certified, evidence.localisation))
    if math.isnan(place) or share + place == 0:
        return 0.0
    return 2 * (share / 100) * place / (share / 100 + place)


def ahead(values: Mapping[str, float], *names: str) -> dict[str, bool]:
    """For each of these methods, whether its value is above those of all others."""
    others = max((_worth(value) for name, value in values.items() if name not in names), default=-math.inf)
    return {title(name): _worth(values[name]) > others for name in names}


def ranked(values: Mapping[str, float]) -> list[str]:
    """Methods from the highest value to the lowest; what is undefined comes last."""
    return sorted(values, key=lambda name: _worth(values[name]), reverse=True)


def _worth(value: float) -> float:
    return -math.inf if math.isnan(value) else value


def falls(values: Sequence[float]) -> bool:
    """Whether each value is below the one before."""
    return all(later < earlier for earlier, later in pairwise(values))


# ── In words ──────────────────────────────────────────────────────────────────────────────────────────────────────


def title(method: str) -> str:
    return pc.METHODS[method].short


def cell_name(cell: tuple[str, str]) -> str:
    return f"{title(cell[0])} {cell[1]}"


def listed(values: Mapping[str, float], digits: int = 1, first: int = 12) -> str:
    """Methods with their values, the highest first."""
    return ", ".join(f"{title(name)} {number(values[name], digits)}" for name in ranked(values)[:first])


def path(values: Iterable[float], digits: int = 1) -> str:
    """Values one after the other, as something changes."""
    return " → ".join(number(value, digits) for value in values)


def number(value: float, digits: int) -> str:
    return "undefined" if math.isnan(value) else f"{value:.{digits}f}"
