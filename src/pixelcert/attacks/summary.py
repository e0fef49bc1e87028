"""Summary: the flipped pixels of many images, attacked one by one and added up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from .judge import GROUPS, Attempt, Group, Toll
from .outcome import CHANGES, Outcome

_DIGITS = 9  # multiples of R that differ only by rounding count as equal

Judged = tuple[Outcome, Attempt]
T = TypeVar("T")


class Attacked(NamedTuple):
    """The explanation and level that outcomes must share for their pixels to be added up."""

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
        values = dict(vars(self))
        tolls = values.pop("tolls")
        return {**values, "groups": {group: toll.as_dict() for group, toll in tolls.items()}}


@dataclass(frozen=True)
class Summary:
    """All outcomes about one explanation, added up: a case for every size and change."""

    attacked: Attacked
    images: int
    pixels: Mapping[Group, int]
    rows: tuple[Case, ...]

    def as_dict(self) -> dict[str, Any]:
        rows = [row.as_dict() for row in self.rows]
        return {**self.attacked._asdict(), "images": self.images, "pixels": dict(self.pixels), "rows": rows}


def summarise(outcomes: Iterable[Outcome]) -> list[Summary]:
    """Add outcomes up, one summary for every explanation, in the order in which they come.

    The proven counts of each outcome are right with its own confidence 1 - α. So all sums over m outcomes are right
    together with confidence 1 - mα.
    """
    return [_summarise_alike(attacked, found) for attacked, found in _grouped(outcomes, _attacked).items()]


def _attacked(outcome: Outcome) -> Attacked:
    source = outcome.certificate.votes.provenance
    return Attacked(source.model, source.method, source.layer, outcome.level)


def _summarise_alike(attacked: Attacked, outcomes: Sequence[Outcome]) -> Summary:
    judged = [(outcome, attempt) for outcome in outcomes for attempt in outcome.attempts]
    size = _multiple if _share_multiples(outcomes) else _radius
    kinds = _grouped(judged, lambda one: (size(one), CHANGES.index(one[1].change)))
    pixels = {group: sum(int(one.judge.members(group).sum()) for one in outcomes) for group in GROUPS}
    return Summary(attacked, _images(outcomes), pixels, tuple(_add_up(kinds[kind]) for kind in sorted(kinds)))


def _add_up(judged: Sequence[Judged]) -> Case:
    tolls = {group: _total([outcome.toll(attempt, group) for outcome, attempt in judged]) for group in GROUPS}
    images = _images([outcome for outcome, _ in judged])
    return Case(judged[0][1].change, _common(map(_multiple, judged)), _common(map(_radius, judged)), images, tolls)


def _total(tolls: Sequence[Toll]) -> Toll:
    pixels, flipped, provably, abstains = zip(*tolls, strict=True)
    return Toll(sum(pixels), sum(flipped), sum(provably), None if None in abstains else sum(abstains))


def _images(outcomes: Iterable[Outcome]) -> int:
    return len({outcome.certificate.votes.provenance.image for outcome in outcomes})


# ── Sizes ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _share_multiples(outcomes: Sequence[Outcome]) -> bool:
    """Return True if all were attacked at the same multiples of their own R, as they are by default.

    If the caller gave radii, certificates of several R share those radii instead.
    """
    found = {frozenset(_multiple((one, attempt)) for attempt in one.attempts) for one in outcomes}
    return len(found) == 1 and None not in found.pop()


def _multiple(judged: Judged) -> float | None:
    outcome, attempt = judged
    certified = outcome.certificate.radius
    return round(attempt.radius / certified, _DIGITS) if certified else None


def _radius(judged: Judged) -> float:
    return judged[1].radius


# ── Groups ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _grouped(things: Iterable[T], by: Callable[[T], Any]) -> dict[Any, list[T]]:
    """Group things by a key, in the order of their first members."""
    found: dict[Any, list[T]] = {}
    for thing in things:
        found.setdefault(by(thing), []).append(thing)
    return found


def _common(values: Iterable[T]) -> T | None:
    """Return the value that all have, or None."""
    first, *others = dict.fromkeys(values)
    return None if others else first
