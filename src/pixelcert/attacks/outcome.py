"""Outcome: what became of a certificate's pixels when its image was attacked, counted anew with fresh noise."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import statistics
from ..basics.files import write_arrays
from ..certificate import Certificate
from ..plan import ABSTAIN

if TYPE_CHECKING:
    from matplotlib.figure import Figure


KIND, VERSION = "pixelcert attack", 1

Group = Literal["certified in", "certified out", "abstaining"]
Pixel = tuple[int, int]  # row and column, from 0
CERTIFIED: tuple[Group, ...] = ("certified in", "certified out")
GROUPS: tuple[Group, ...] = (*CERTIFIED, "abstaining")
CHANGES = ("none", "random", "certified", "abstaining")  # the last two are made against pixels of that kind


class Toll(NamedTuple):
    """What became of one group of pixels."""

    pixels: int
    flipped: int  # at most half of the fresh votes are for the label
    provably: int  # so few that the label has lost its majority, whatever the fresh noise was, but for a chance of α
    abstains: int | None = None  # so few that its share is below τ, by a test of its own; None for pixels not certified

    @property
    def percent(self) -> float:
        return 100 * self.flipped / self.pixels if self.pixels else 0.0

    def as_dict(self) -> dict[str, Any]:
        return {**self._asdict(), "percent": self.percent}


@dataclass(frozen=True, eq=False)
class Attempt:
    """A perturbation, and fresh votes of the image that it makes."""

    change: str  # one of CHANGES
    radius: float  # the limit it was made within
    delta: NDArray[np.float32]  # (C, H, W), as it was applied
    ones: NDArray[np.int32]  # (H, W)
    zeros: NDArray[np.int32]

    @property
    def norm(self) -> float:
        return float(np.linalg.norm(self.delta.astype(np.float64)))


@dataclass(frozen=True, eq=False, repr=False)
class Outcome:
    """All attempts on one level of a certificate.

    "Flipped" is an estimate: at most half of `samples` fresh votes are for the pixel's label. A pixel whose true share
    is just above one half is there by chance almost every second time, so flips at no change at all are the measure of
    how many to expect. "Provably" is a claim: by the exact binomial test, the fresh votes are too few for any share of
    one half or more, for all pixels of all attempts together, with confidence 1 - α.

    "Abstains" is a claim about certified pixels, too: the fresh votes are too few for any share of τ or more. The map
    with abstentions then shows the label no more, even where it keeps its majority, which is all that is certified. It
    is a family of hypotheses of its own, of all certified pixels under all attempts, with an α of its own.
    """

    certificate: Certificate
    level: float
    samples: int
    gradient: str  # "pathwise" or "stein"
    seed: int
    attempts: tuple[Attempt, ...]
    pixel: Pixel | None = None  # if one alone was attacked: no other is counted

    def __repr__(self) -> str:
        return f"Outcome({self.verdict})"

    @property
    def labels(self) -> NDArray[np.int8]:
        """What there is to flip: certified labels, and majority labels where the certificate abstains, (H, W)."""
        return labels_before(self.certificate, self.level, self.pixel)

    @property
    def certified(self) -> NDArray[np.int8]:
        """Those of them that are certified, ABSTAIN elsewhere, (H, W)."""
        return _alone(self.certificate.labels[self.level], self.pixel)

    def members(self, group: Group) -> NDArray[np.bool_]:
        """Which pixels are in a group, (H, W). One that abstains without any majority has nothing to flip."""
        certified = self.certified
        chosen: NDArray[np.bool_] = {
            "certified in": certified == 1,
            "certified out": certified == 0,
            "abstaining": (certified == ABSTAIN) & (self.labels != ABSTAIN),
        }[group]
        return chosen

    def flipped(self, attempt: Attempt) -> NDArray[np.bool_]:
        """Pixels for whose label at most half of the fresh votes are, (H, W)."""
        return 2 * self._keeping(attempt) <= self.samples

    def provably_flipped(self, attempt: Attempt) -> NDArray[np.bool_]:
        """Pixels for whose label so few votes are that it has no majority, with confidence 1 - α for all together."""
        return self._keeping(attempt) <= self.samples - self.votes_against_needed

    def provably_abstains(self, attempt: Attempt) -> NDArray[np.bool_]:
        """Certified pixels for whose label so few votes are that its share is below τ, (H, W).

        With confidence 1 - α for all together. Inside the radius the map with abstentions abstains there; beyond it may
        also have flipped.
        """
        certified: NDArray[np.bool_] = self.certified != ABSTAIN
        return certified & (self._keeping(attempt) <= self.samples - self.votes_against_needed_to_abstain)

    @property
    def votes_against_needed(self) -> int:
        """Of `samples` votes, how many against a label prove that it has lost its majority: exact, and corrected."""
        return self._votes_against_needed(0.5, self.labels)

    @property
    def votes_against_needed_to_abstain(self) -> int:
        """How many prove that a certified label's share is below τ."""
        return self._votes_against_needed(self.certificate.tau, self.certified)

    def _votes_against_needed(self, share: float, labels: NDArray[np.int8]) -> int:
        """For every label under every attempt."""
        hypotheses = int((labels != ABSTAIN).sum()) * len(self.attempts)
        return statistics.votes_against_needed(self.samples, share, self.certificate.alpha, max(1, hypotheses))

    def toll(self, attempt: Attempt, group: Group) -> Toll:
        members = self.members(group)

        def count(chosen: NDArray[np.bool_]) -> int:
            return int((chosen & members).sum())

        abstains = count(self.provably_abstains(attempt)) if group in CERTIFIED else None
        return Toll(count(members), count(self.flipped(attempt)), count(self.provably_flipped(attempt)), abstains)

    def inside(self, attempt: Attempt) -> bool:
        """Whether the certificate promises anything about this attempt."""
        return attempt.norm < self.certificate.radius_on_lattice

    @property
    def broken(self) -> int:
        """Certified pixels of which the certificate is provably wrong.

        They flipped inside the radius, under any attempt, or their share is below τ without any change.
        """
        broken = np.zeros(self.certificate.votes.size, dtype=bool)
        for attempt in filter(self.inside, self.attempts):
            broken |= self.provably_flipped(attempt)
            if attempt.change == "none":
                broken |= self.provably_abstains(attempt)
        return int((broken & (self.certified != ABSTAIN)).sum())

    @property
    def verdict(self) -> str:
        """What this says of the certificate, in one sentence."""
        radius = f"R = {statistics.rounded_down(self.certificate.radius)}"
        if self.broken:
            below = f"were below τ = {self.certificate.tau:g} to begin with"
            lost = f"{self.broken} certified pixels provably lost their majority inside {radius}, or {below}"
            if self.certificate.correction == "none":
                return f"BROKEN: {lost}. Without a correction, α is the chance of each pixel alone to be false."
            chance = f"{3 * self.certificate.alpha:g}"  # of the certificate, and of two families of tests
            return f"BROKEN: {lost}. A sound certificate and a true test lead here with probability {chance} at most."
        if (self.certified == ABSTAIN).all():
            return f"nothing certified: no pixel here is promised anything inside {radius}."
        if not any(map(self.inside, self.attempts[1:])):
            return f"not tried: no attempt was inside {radius}, and nothing is promised beyond."
        return f"holds: no certified pixel provably lost its majority inside {radius}."

    # ── Going on ──────────────────────────────────────────────────────────────────────────────────────────────

    def plot(self, path: str | Path | None = None) -> Figure:
        """A matplotlib figure of the attacks, written to `path` if given."""
        from ..figures.panels import attack_panel
        from ..figures.registry import plotted

        return plotted(lambda: attack_panel(self), path)

    def save(self, path: str | Path) -> Path:
        """Write one `.safetensors` file: every δ, the fresh votes under it, and what is said of them in the header."""
        arrays: dict[str, NDArray[Any]] = {"labels": self.labels}
        for index, attempt in enumerate(self.attempts):
            named = {"delta": attempt.delta, "ones": attempt.ones, "zeros": attempt.zeros}
            arrays |= {f"{name}.{index}": array for name, array in named.items()}
        about = "delta.i: what was added to the image in attempts[i]; ones.i and zeros.i: fresh votes of each pixel."
        return write_arrays(path, KIND, VERSION, {"about": about, **self.as_dict()}, arrays)

    def as_dict(self) -> dict[str, Any]:
        """Everything but the arrays, for JSON."""
        certificate = self.certificate
        return {
            "verdict": self.verdict,
            "broken": self.broken,
            "level": self.level,
            "radius": certificate.radius,
            "tau": certificate.tau,
            "alpha": certificate.alpha,
            "correction": certificate.correction,
            "samples": self.samples,
            "votes_against_needed": self.votes_against_needed,
            "votes_against_needed_to_abstain": self.votes_against_needed_to_abstain,
            "gradient": self.gradient,
            "seed": self.seed,
            "pixel": self.pixel,
            "attempts": [self._attempt_as_dict(attempt) for attempt in self.attempts],
            "plan": asdict(certificate.votes.plan),
            "provenance": asdict(certificate.votes.provenance),
        }

    def _attempt_as_dict(self, attempt: Attempt) -> dict[str, Any]:
        return {
            "change": attempt.change,
            "radius": attempt.radius,
            "norm": attempt.norm,
            "inside": self.inside(attempt),
            "groups": {group: self.toll(attempt, group).as_dict() for group in GROUPS},
        }

    def _keeping(self, attempt: Attempt) -> NDArray[np.int32]:
        """Fresh votes for each pixel's label, (H, W); all of them where there is none."""
        labels = self.labels
        kept: NDArray[np.int32] = np.select([labels == 1, labels == 0], [attempt.ones, attempt.zeros], self.samples)
        return kept


def labels_before(certificate: Certificate, level: float, pixel: Pixel | None = None) -> NDArray[np.int8]:
    """Certified labels; where it abstains the majority of its votes, ABSTAIN where there is none: (H, W).

    Of one pixel alone if it is given.
    """
    votes, certified = certificate.votes, certificate.labels[level]
    ones, zeros = votes.ones[votes.index(level)], votes.zeros[votes.index(level)]
    majority = np.select([2 * ones > votes.counted, 2 * zeros > votes.counted], [1, 0], ABSTAIN)
    return _alone(np.where(certified == ABSTAIN, majority, certified).astype(np.int8), pixel)


def _alone(labels: NDArray[np.int8], pixel: Pixel | None) -> NDArray[np.int8]:
    """Labels with ABSTAIN at all other pixels; as they are if none is named."""
    if pixel is None:
        return labels
    alone = np.full_like(labels, ABSTAIN)
    alone[pixel] = labels[pixel]
    return alone
