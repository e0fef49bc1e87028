"""Plan: what is fixed before the first noisy sample is drawn, and so never chosen by looking at the votes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, get_args

from .basics.messages import ArgumentError

# The paper's defaults.
SIGMA = 0.15
N = 100
LEVELS: tuple[float, ...] = (50, 25, 10, 5)
TAU = 0.75
ALPHA = 0.001

LATTICE = 2.0**-20  # the step of the grid on which image and noise lie (see pixelcert.noise)
LARGEST_NORMAL = math.sqrt(2 * 53 * math.log(2))  # 8.57: what 53 random bits reach; float32 randn stops at 5.77
LARGEST_SIGMA = 15 / LARGEST_NORMAL  # |x + ε| stays below 16, where float32 still holds every point of the grid

Sign = Literal["signed", "absolute", "positive"]
Rule = Literal["rank", "percentile"]
Preset = Literal["default", "reference"]

PRESETS: dict[str, dict[str, Any]] = {
    "default": {"sign": "signed", "rule": "rank", "guess": 0},
    "reference": {"sign": "absolute", "rule": "percentile", "guess": 10},
}


def lattice_slack(pixels: int, channels: int = 3) -> float:
    """What a radius loses because images off the noise's grid are snapped to it: √d · 2⁻²⁰."""
    return math.sqrt(channels * pixels) * LATTICE


@dataclass(frozen=True)
class Plan:
    """How samples are drawn and how a map becomes votes.

    `sign` says what is ranked: the values as they are, their magnitudes, or their positive parts.
    `rule` says what the top K % are (see `pixelcert.ranking`): ``"rank"`` is the paper's equation,
    ``"percentile"`` the published code's. `guess` samples, the first ones, are also counted apart, for the
    published test that spends them on guessing each pixel's label.
    """

    sigma: float = SIGMA
    n: int = N
    levels: tuple[float, ...] = LEVELS
    seed: int = 0
    sign: Sign = "signed"
    rule: Rule = "rank"
    guess: int = 0

    def __post_init__(self) -> None:
        for argument, example in {"sigma": SIGMA, "n": N, "seed": 0}.items():
            check_number(argument, getattr(self, argument), example)
        if not (math.isfinite(self.sigma) and 0 < self.sigma <= LARGEST_SIGMA):
            raise ArgumentError(
                f"sigma={self.sigma} is outside (0, {LARGEST_SIGMA:.2f}]: it is the noise's standard deviation "
                f"for pixels in [0, 1], such as 0.15."
            )
        if not 1 <= self.n < 2**31 or self.n != int(self.n):
            raise ArgumentError(f"n={self.n} is not a number of samples: use a whole number such as 100.")
        if not -(2**63) <= self.seed < 2**63 or self.seed != int(self.seed):
            raise ArgumentError(f"seed={self.seed} is not a whole number of 64 bits: use one such as 0.")
        if self.guess != 0 and not (isinstance(self.guess, int) and 0 < self.guess <= self.n):
            raise ArgumentError(f"guess={self.guess!r} is not a number of samples up to n={self.n}: use 0 or 10.")
        check_choice("sign", self.sign, Sign)
        check_choice("rule", self.rule, Rule)
        plain = {"sigma": float(self.sigma), "n": int(self.n), "seed": int(self.seed)}
        for name, value in {**plain, "levels": check_levels(self.levels)}.items():
            object.__setattr__(self, name, value)

    @classmethod
    def make(cls, *, preset: Preset = "default", sign: Sign | None = None, **settings: Any) -> Plan:
        """A plan from a preset's ranking rules and the given settings; `sign` overrides the preset's."""
        check_choice("preset", preset, Preset)
        rules = PRESETS[preset] if sign is None else {**PRESETS[preset], "sign": sign}
        return cls(**rules, **settings)


def check_levels(levels: float | Sequence[float]) -> tuple[float, ...]:
    """Levels as a tuple of distinct percentages strictly between 0 and 100, whole ones as `int`; one may stand alone.

    >>> check_levels((50, 12.5)), check_levels(20.0)
    ((50, 12.5), (20,))
    """
    levels = tuple(levels) if isinstance(levels, Iterable) and not isinstance(levels, str) else (levels,)
    if not levels:
        raise ArgumentError("levels is empty: name at least one K in percent, such as levels=(50, 10).")
    for level in levels:
        check_number("levels", level, 50)
        if not 0 < level < 100:
            raise ArgumentError(f"levels holds {level}: every K is a percentage strictly between 0 and 100.")
    if len(set(levels)) < len(levels):
        raise ArgumentError(f"levels={levels} names a K twice: name each level once.")
    return tuple(int(level) if level == int(level) else float(level) for level in levels)


def check_number(argument: str, value: object, example: float) -> None:
    """Refuse what is no number, such as a string that looks like one; an array or tensor of one number is."""
    if not isinstance(value, Real) and getattr(value, "ndim", None) != 0:
        raise ArgumentError(f"{argument}={value!r} is of type {type(value).__name__}: give a number such as {example}.")


def check_choice(argument: str, value: str, choices: object) -> None:
    """Refuse a `value` that is not one of the strings of the Literal type `choices`."""
    if value not in get_args(choices):
        raise ArgumentError(f"{argument}={value!r} is not known: choose one of {', '.join(get_args(choices))}.")
