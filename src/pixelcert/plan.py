"""Plan: the settings that are fixed before the first noisy sample, so that votes cannot influence them."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

from .basics.messages import ArgumentError, check_choice, check_number, check_range, check_seed, check_whole

# The paper's defaults.
SIGMA = 0.15
N = 100
LEVELS: tuple[float, ...] = (50, 25, 10, 5)
TAU = 0.75
ALPHA = 0.001

LEAST_ALPHA = 1e-200  # its parts, one for each of many pixels and levels, stay far above the smallest float of 1e-308

ABSTAIN = -1  # the label of a pixel that is neither certified 1 nor certified 0

LATTICE = 2.0**-20  # the step of the lattice on which image and noise lie (see pixelcert.noise)
LARGEST_NORMAL = math.sqrt(2 * 53 * math.log(2))  # 8.57, from 53 random bits; float32 randn stops at 5.77
LARGEST_SIGMA = 15 / LARGEST_NORMAL  # |x + ε| stays below 16, where float32 still holds every point of the lattice

Sign = Literal["signed", "absolute", "positive"]
Rule = Literal["rank", "percentile"]
Preset = Literal["default", "reference"]
Correction = Literal["holm", "bonferroni", "joint", "reference", "none"]

PRESETS: dict[str, dict[str, Any]] = {
    "default": {"sign": "signed", "rule": "rank", "guess": 0},
    "reference": {"sign": "absolute", "rule": "percentile", "guess": 10},
}


def lattice_slack(pixels: int, channels: int = 3) -> float:
    """Return by how much a radius shrinks because images are snapped to the lattice: √d · 2⁻²⁰."""
    return math.sqrt(int(channels) * int(pixels)) * LATTICE


@dataclass(frozen=True)
class Plan:
    """The way samples are drawn, and a map becomes votes.

    `sign` says what is ranked: the values as they are, their magnitudes, or their positive parts.
    `rule` says what the top K % are (see `pixelcert.ranking`): ``"rank"`` is the paper's equation,
    ``"percentile"`` the published code's. The first `guess` samples are also counted apart, for the
    published test, which spends them on guessing each pixel's label.

    `seed` is None until sampling begins; then it is drawn from the operating system. An image can be fitted to a seed
    that is known beforehand, so give one only to repeat a run. With `streams`, each image has noise of its own; plans
    of 0.1.0 have none.
    """

    sigma: float = SIGMA
    n: int = N
    levels: tuple[float, ...] = LEVELS
    seed: int | None = None
    sign: Sign = "signed"
    rule: Rule = "rank"
    guess: int = 0
    streams: bool = True

    def __post_init__(self) -> None:
        words = f"(0, {LARGEST_SIGMA:.2f}]: it is the noise's standard deviation for pixels in [0, 1]"
        sigma = check_range("sigma", self.sigma, lambda sigma: 0 < sigma <= LARGEST_SIGMA, words, SIGMA)
        n = check_whole("n", self.n, 1, 2**31 - 1, example=N)
        check_choice("sign", self.sign, Sign)
        check_choice("rule", self.rule, Rule)
        levels, seed = check_levels(self.levels), None if self.seed is None else check_seed(self.seed)
        guess = check_whole("guess", self.guess, 0, n, example=0)
        vars(self).update(sigma=sigma, n=n, levels=levels, seed=seed, guess=guess)  # assignment is frozen

    @classmethod
    def make(cls, *, preset: Preset = "default", sign: Sign | None = None, **drawn: Any) -> Plan:
        """Make a plan from a preset's ranking and what is `drawn`; `sign` overrides the preset's."""
        check_choice("preset", preset, Preset)
        ranked = PRESETS[preset] if sign is None else {**PRESETS[preset], "sign": sign}
        return cls(**ranked, **drawn)

    def drawn(self) -> Plan:
        """Return the plan with a seed: its own, or one that is drawn now. Call it when all else is fixed."""
        return replace(self, seed=draw_seed()) if self.seed is None else self

    def descending(self, levels: float | Sequence[float] | None = None) -> list[float]:
        """Return levels as asked, or all of them, the largest first."""
        return sorted(self.levels if levels is None else check_levels(levels), reverse=True)

    def level(self, asked: float | None = None) -> float:
        """Return the level that equals `asked`, refused if there is none; the middle one by default."""
        if asked is None:
            return sorted(self.levels)[len(self.levels) // 2]
        asked = check_number("level", asked, self.levels[0])
        if asked not in self.levels:
            known = ", ".join(map(str, self.levels))
            raise ArgumentError(f"level {str(asked).removesuffix('.0')} is not available: choose one of {known}.")
        return self.levels[self.levels.index(asked)]  # 10 where 10.0 was asked


def draw_seed() -> int:
    """Return 63 random bits from the operating system, which nobody can know beforehand."""
    return secrets.randbits(63)


@dataclass(frozen=True)
class Criterion:
    """The test of a certificate: the share that a label must exceed, the chance of any false claim, the correction.

    Fix it before looking at votes. None for the correction means Holm's, or the published test if the plan guesses
    labels.
    """

    tau: float = TAU
    alpha: float = ALPHA
    correction: Correction | None = None

    def __post_init__(self) -> None:
        words = "[0.5, 1): it is the probability a pixel's label must exceed"
        tau = check_range("tau", self.tau, lambda tau: 0.5 <= tau < 1, words, TAU)
        words = "(0, 1): it is the chance of any false claim"
        alpha = check_range("alpha", self.alpha, lambda alpha: 0 < alpha < 1, words, ALPHA)
        if alpha < LEAST_ALPHA:
            raise ArgumentError(
                f"alpha={alpha} is below {LEAST_ALPHA}, too small to be shared among pixels: use one such as {ALPHA}."
            )
        if self.correction is not None:
            check_choice("correction", self.correction, Correction)
        vars(self).update(tau=tau, alpha=alpha)  # assignment is frozen

    def correction_for(self, plan: Plan) -> Correction:
        """Return the correction as asked, or the plan's own; refuse one that the plan's votes cannot have."""
        if self.correction == "reference" and not plan.guess:
            raise ArgumentError('correction="reference" needs votes that were sampled with preset="reference".')
        return self.correction or ("reference" if plan.guess else "holm")

    def for_plan(self, plan: Plan) -> Criterion:
        """Return the same criterion with its correction named."""
        return replace(self, correction=self.correction_for(plan))


def check_levels(levels: float | Sequence[float]) -> tuple[float, ...]:
    """Return one or several levels as distinct percentages strictly between 0 and 100, whole ones as `int`.

    >>> check_levels((50, 12.5)), check_levels(20.0)
    ((50, 12.5), (20,))
    """
    single = not isinstance(levels, Iterable) or isinstance(levels, str) or getattr(levels, "ndim", 1) == 0
    numbers = tuple(check_number("levels", level, 50) for level in ((levels,) if single else levels))  # type: ignore[union-attr]
    if not numbers:
        raise ArgumentError("levels is empty: name at least one K in percent, such as levels=(50, 10).")
    for level in numbers:
        if not 0 < level < 100:
            raise ArgumentError(f"levels holds {level}: every K is a percentage strictly between 0 and 100.")
    if len(set(numbers)) < len(numbers):
        raise ArgumentError(f"levels={numbers} names a K twice: name each level once.")
    return tuple(int(level) if level == int(level) else level for level in numbers)


def ones_at(level: float, pixels: int, rule: Rule = "rank") -> int:
    """Return the size of the top `level` percent of so many pixels, in exact arithmetic.

    >>> ones_at(50, 224 * 224), ones_at(50, 224 * 224, "percentile")
    (25089, 25088)
    """
    share = Fraction(str(float(level))) / 100
    return math.floor(share * pixels) + 1 if rule == "rank" else math.ceil(share * (pixels - 1))


def check_levels_fit(levels: Sequence[float], pixels: int, rule: Rule) -> None:
    """Refuse levels at which the top K % is the whole map: even a constant map would be certified there."""
    if pixels < 2:
        raise ArgumentError(f"a map of {pixels} pixel cannot be ranked: give a larger image.")
    for level in levels:
        if ones_at(level, pixels, rule) >= pixels:
            raise ArgumentError(f"levels holds {level}, which is the whole map of {pixels} pixels: lower this K.")
