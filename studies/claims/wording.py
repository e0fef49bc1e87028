"""Methods, layers and noise levels of the claims, and functions that order and print their values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise, product
from typing import Any

import pixelcert as pc
from pixelcert.basics.messages import ArgumentError

from ..evidence import Evidence

LAYERS = ("input", "final")
AT = {"input": "at the input", "final": "at the final layer"}
SIGMAS = (0.15, 0.25, 0.33)
FAMILIES = {
    family: tuple(name for name, method in pc.METHODS.items() if method.family == family)
    for family in ("backpropagation", "activation", "perturbation")
}
BACKPROPAGATION, ACTIVATION, PERTURBATION = FAMILIES.values()
CELLS = tuple(product(pc.METHODS, LAYERS))
CONSTANT = (("gb", "final"), ("grad", "final"))  # constant maps, because average pooling follows the layer
VARYING = tuple(cell for cell in CELLS if cell not in CONSTANT)
NEAR_PERFECT = 0.9


def of_all(
    measure: Callable[..., float], layer: str, methods: Iterable[str] = tuple(pc.METHODS), **at: Any
) -> dict[str, float]:
    """Return a measure of each method."""
    return {name: measure(name, layer, **at) for name in methods}


def measured(
    measure: Callable[..., float], layer: str, methods: Iterable[str] = tuple(pc.METHODS), **at: Any
) -> dict[str, float]:
    """Return a measure of each method that has it."""
    found = {}
    for name in methods:
        with suppress(ArgumentError):
            found[name] = measure(name, layer, **at)
    return found


def balance(evidence: Evidence, method: str, layer: str, level: float = 30) -> float:
    """Return the harmonic mean of the certified share and of Certified GridPG: high where both are high."""
    share, place = (of(method, layer, level=level) for of in (evidence.certified, evidence.localisation))
    if math.isnan(place) or share + place == 0:
        return 0.0
    return 2 * (share / 100) * place / (share / 100 + place)


def ahead(values: Mapping[str, float], *names: str) -> dict[str, bool]:
    """Map each of these methods to True if its value is above those of all other methods."""
    others = max((_worth(value) for name, value in values.items() if name not in names), default=-math.inf)
    return {title(name): _worth(values[name]) > others for name in names}


def ranked(values: Mapping[str, float]) -> list[str]:
    """Sort methods from the highest value to the lowest; undefined values come last."""
    return sorted(values, key=lambda name: _worth(values[name]), reverse=True)


def _worth(value: float) -> float:
    return -math.inf if math.isnan(value) else value


def falls(values: Sequence[float]) -> bool:
    """Return True if each value is below the one before."""
    return all(later < earlier for earlier, later in pairwise(values))


# ── In words ──────────────────────────────────────────────────────────────────────────────────────────────────────


def title(method: str) -> str:
    return pc.METHODS[method].short


def cell_name(cell: tuple[str, str]) -> str:
    return f"{title(cell[0])} {cell[1]}"


def listed(values: Mapping[str, float], digits: int = 1, first: int = 12) -> str:
    """List methods with their values, the highest first."""
    return ", ".join(f"{title(name)} {number(values[name], digits)}" for name in ranked(values)[:first])


def path(values: Iterable[float], digits: int = 1) -> str:
    """Join values by arrows, in the order in which something changes."""
    return " → ".join(number(value, digits) for value in values)


def number(value: float, digits: int) -> str:
    return "undefined" if math.isnan(value) else f"{value:.{digits}f}"
