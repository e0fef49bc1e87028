"""Summary: what became of the pixels of many images, attacked one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from .outcome import CHANGES, GROUPS, Attempt, Group, Outcome, Toll

_DIGITS = 9  # multiples of R that differ by rounding alone are one

Judged = tuple[Outcome, Attempt]
T = TypeVar("T")


class Attacked(NamedTuple):
    """What outcomes must have in common for their pixels to be added up."""

    model: str
    method: str
    layer: str
    level: float


@dataclass(frozen=True)
class Case:
    """One kind of change of one size, on all images that it was made on."""

    change: str
    multiple: float | None  # of R; None where certificates differ in it
    radius: float | None  # None where they differ in it
    images: int
    tolls: Mapping[Group, Toll]

    def as_dict(self) -> dict[str, Any]:
        return {
            "change": self.change,
            "multiple": self.multiple,
            "radius": self.radius,
            "images": self.images,
            "groups": {group: toll.as_dict() for group, toll in self.tolls.items()},
        }


@dataclass(frozen=True)
class Summary:
    """All outcomes about one explanation, added up: a row for every size and change."""

    attacked: Attacked
    images: int
    pixels: Mapping[Group, int]
    rows: tuple[Case, ...]

    def as_dict(self) -> dict[str, Any]:
        rows = [row.as_dict() for row in self.rows]
        return {**self.attacked._asdict(), "images": self.images, "pixels": dict(self.pixels), "rows": rows}


def summarise(outcomes: Iterable[Outcome]) -> list[Summary]:
    """Add outcomes up, one summary for every explanation, in the order in which they come.

    What is proven of each outcome is right with its own confidence 1 - α, so all sums over m outcomes are right
    together with confidence 1 - mα.
    """
    alike = _grouped(outcomes, _attacked)
    return [_summary(attacked, found) for attacked, found in alike.items()]


def _attacked(outcome: Outcome) -> Attacked:
    source = outcome.certificate.votes.provenance
    return Attacked(source.model, source.method, source.layer, outcome.level)


def _summary(attacked: Attacked, outcomes: Sequence[Outcome]) -> Summary:
    judged = [(outcome, attempt) for outcome in outcomes for attempt in outcome.attempts]
    size = _multiple if _same_multiples(outcomes) else _radius
    kinds = _grouped(judged, lambda one: (size(one), CHANGES.index(one[1].change)))
    pixels = {group: sum(int(one.members(group).sum()) for one in outcomes) for group in GROUPS}
    return Summary(attacked, _images(outcomes), pixels, tuple(_row(kinds[kind]) for kind in sorted(kinds)))


def _row(judged: Sequence[Judged]) -> Case:
    tolls = {group: _total([outcome.toll(attempt, group) for outcome, attempt in judged]) for group in GROUPS}
    images = _images([outcome for outcome, _ in judged])
    return Case(judged[0][1].change, _common(map(_multiple, judged)), _common(map(_radius, judged)), images, tolls)


def _total(tolls: Sequence[Toll]) -> Toll:
    abstains = [one.abstains for one in tolls if one.abstains is not None]
    return Toll(
        sum(one.pixels for one in tolls),
        sum(one.flipped for one in tolls),
        sum(one.provably for one in tolls),
        sum(abstains) if abstains else None,
    )


def _images(outcomes: Iterable[Outcome]) -> int:
    return len({outcome.certificate.votes.provenance.image for outcome in outcomes})


# ── Sizes ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _same_multiples(outcomes: Sequence[Outcome]) -> bool:
    """Whether all were attacked at the same multiples of their R, which is what certificates of several R share.

    Where they were not, as at given radii, they share radii.
    """
    found = {frozenset(_multiple((one, attempt)) for attempt in one.attempts) for one in outcomes}
    return len(found) == 1 and None not in found.pop()


def _multiple(judged: Judged) -> float | None:
    outcome, attempt = judged
    certified = outcome.certificate.radius
    return round(attempt.radius / certified, _DIGITS) if certified else None


def _radius(judged: Judged) -> float:
    return judged[1].radius


# ── Groups ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _grouped(things: Iterable[T], by: Callable[[T], Any]) -> dict[Any, list[T]]:
    """In the order of their first members."""
    found: dict[Any, list[T]] = {}
    for thing in things:
        found.setdefault(by(thing), []).append(thing)
    return found


def _common(values: Iterable[T]) -> T | None:
    """The value that all have."""
    first, *others = dict.fromkeys(values)
    return None if others else first
