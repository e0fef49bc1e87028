"""Judgement: a claim in parts, the cases in which each part should hold, and the verdict that follows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..evidence import Evidence


@dataclass(frozen=True)
class Found:
    """The studies by the rules of one preset: ResNet-18 at the paper's σ, a part of it at all three, other networks."""

    main: Evidence
    radii: Evidence
    others: Mapping[str, Evidence] = field(default_factory=dict)

    @property
    def networks(self) -> dict[str, Evidence]:
        return {"resnet18": self.main, **self.others}


@dataclass(frozen=True)
class Part:
    """One thing that a claim says, the cases in which it should hold, and what was measured."""

    says: str
    cases: Mapping[str, bool]
    numbers: str = ""
    most: bool = False  # whether it is said of most cases, not of all

    @property
    def held(self) -> int:
        return sum(self.cases.values())

    @property
    def holds(self) -> bool:
        """Where there is no case to look at, nothing is confirmed."""
        if not self.cases:
            return False
        return 2 * self.held > len(self.cases) if self.most else self.held == len(self.cases)

    @property
    def finding(self) -> str:
        """In how many cases it holds, which are wrong where they are few, and the numbers."""
        if not self.cases:
            return "undefined everywhere"
        wrong = [case for case, right in self.cases.items() if not right]
        told = f"{self.held} of {len(self.cases)}" if len(self.cases) > 1 else "no" if wrong else "yes"
        if len(self.cases) > 1 and 0 < len(wrong) <= 4:
            told += f", not {', '.join(wrong)}"
        return f"{told} ({self.numbers})" if self.numbers else told


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper in our words, where it stands, and the rule that decides about it."""

    where: str
    says: str
    parts: Callable[[Found], Iterable[Part]]


def claim(where: str, says: str) -> Callable[[Callable[[Found], Iterable[Part]]], Claim]:
    """Make a claim of the rule that follows."""
    return lambda parts: Claim(where, says, parts)


def verdict(parts: Sequence[Part]) -> str:
    """Confirmed: every part holds. Not: none does, not even in half of its cases. Partly: everything between."""
    if not parts:
        return "not tested"
    if all(part.holds for part in parts):
        return "confirmed"
    if any(part.holds or 2 * part.held >= max(1, len(part.cases)) for part in parts):
        return "partly"
    return "not"
