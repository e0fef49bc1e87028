"""Judgement of claims: their parts, the cases in which each part should hold, and the verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..evidence import Evidence


@dataclass(frozen=True)
class Found:
    """Evidence by the rules of one preset.

    `main` is ResNet-18 at the paper's σ, `radii` is a part of that at all three σ, `others` are the other networks.
    """

    main: Evidence
    radii: Evidence
    others: Mapping[str, Evidence] = field(default_factory=dict)

    @property
    def networks(self) -> dict[str, Evidence]:
        return {"resnet18": self.main, **self.others}


@dataclass(frozen=True)
class Part:
    """Part of a claim: one statement, the cases in which it should hold, and the measured numbers."""

    says: str
    cases: Mapping[str, bool]
    numbers: str = ""
    most: bool = False  # the statement is about most cases, not about all

    @property
    def held(self) -> int:
        return sum(self.cases.values())

    @property
    def holds(self) -> bool:
        """True if the part holds in enough of its cases; a part without cases does not hold."""
        if not self.cases:
            return False
        return 2 * self.held > len(self.cases) if self.most else self.held == len(self.cases)

    @property
    def finding(self) -> str:
        """Count of the cases that hold, names of those that fail if they are few, and the numbers."""
        if not self.cases:
            return "undefined everywhere"
        wrong = [case for case, right in self.cases.items() if not right]
        told = f"{self.held} of {len(self.cases)}" if len(self.cases) > 1 else "no" if wrong else "yes"
        if len(self.cases) > 1 and 0 < len(wrong) <= 4:
            told += f", not {', '.join(wrong)}"
        return f"{told} ({self.numbers})" if self.numbers else told


@dataclass(frozen=True)
class Claim:
    """Sentence of the paper in our words, its section, and the rule that judges it."""

    where: str
    says: str
    parts: Callable[[Found], Iterable[Part]]


def claim(where: str, says: str) -> Callable[[Callable[[Found], Iterable[Part]]], Claim]:
    """Turn the decorated rule into a claim."""
    return lambda parts: Claim(where, says, parts)


def verdict(parts: Sequence[Part]) -> str:
    """Return the verdict on the parts of a claim.

    Confirmed: every part holds. Not: none holds, not even in half of its cases. Partly: everything between.
    """
    if not parts:
        return "not tested"
    if all(part.holds for part in parts):
        return "confirmed"
    if any(part.holds or 2 * part.held >= max(1, len(part.cases)) for part in parts):
        return "partly"
    return "not"
