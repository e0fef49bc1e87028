"""Outcome: the effect of attacks on a certificate's pixels, counted with fresh noise."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .. import statistics
from ..basics.files import write_arrays
from ..certificate import Certificate
from ..plan import ABSTAIN
from ..votes import plan_as_dict
from .judge import CERTIFIED, GROUPS, Attempt, Group, Judge, Pixel, Toll, labels_before, only

if TYPE_CHECKING:
    from matplotlib.figure import Figure


KIND, VERSION = "pixelcert attack", 1

CHANGES = ("none", "random", "certified", "abstaining")  # the last two are made against pixels of that kind


@dataclass(frozen=True, eq=False, repr=False)
class Outcome:
    """All attempts on one level of a certificate; `judge` says what each of them proves."""

    certificate: Certificate
    level: float
    samples: int
    gradient: str  # "pathwise" or "stein"
    seed: int
    attempts: tuple[Attempt, ...]
    pixel: Pixel | None = None  # if only one was attacked: no other is counted

    def __repr__(self) -> str:
        return f"Outcome({self.verdict})"

    @cached_property
    def judge(self) -> Judge:
        """The labels under attack and their tests."""
        labels = labels_before(self.certificate, self.level, self.pixel)
        certified = only(self.certificate.labels[self.level], self.pixel)
        return Judge(labels, certified, self.certificate.criterion, self.samples, len(self.attempts))

    def toll(self, attempt: Attempt, group: Group) -> Toll:
        """Count the flipped and abstaining pixels of one group under an attempt."""
        judge, members = self.judge, self.judge.members(group)
        tests = (judge.flipped, judge.provably_flipped, judge.provably_abstains)
        flipped, provably, abstains = (int((test(attempt) & members).sum()) for test in tests)
        return Toll(int(members.sum()), flipped, provably, abstains if group in CERTIFIED else None)

    def inside(self, attempt: Attempt) -> bool:
        """Return True if the certificate promises anything about this attempt."""
        return attempt.norm < self.certificate.radius_on_lattice

    @property
    def broken(self) -> int:
        """The number of certified pixels for which the certificate is provably wrong.

        These pixels flipped inside the radius under some attempt, or their share is below τ without any change.
        """
        broken = np.zeros(self.certificate.votes.size, dtype=bool)
        for attempt in filter(self.inside, self.attempts):
            broken |= self.judge.provably_flipped(attempt)
            if attempt.change == "none":
                broken |= self.judge.provably_abstains(attempt)
        return int((broken & (self.judge.certified != ABSTAIN)).sum())

    @property
    def verdict(self) -> str:
        """The judgement of the certificate, in one sentence."""
        radius = f"R = {statistics.rounded_down(self.certificate.radius)}"
        if self.broken:
            below = f"were below τ = {self.certificate.tau} to begin with"
            lost = f"{self.broken} certified pixels provably lost their majority inside {radius}, or {below}"
            if self.certificate.correction == "none":
                return f"BROKEN: {lost}. Without a correction, α is the chance of each single pixel to be false."
            chance = float(3 * Decimal(str(self.certificate.alpha)))  # of the certificate, and two families of tests
            return f"BROKEN: {lost}. A sound certificate and a true test lead here with probability {chance} at most."
        if (self.judge.certified == ABSTAIN).all():
            return f"nothing certified: no pixel here is promised anything inside {radius}."
        if not any(map(self.inside, self.attempts[1:])):
            return f"not tried: no attempt was inside {radius}, and nothing is promised beyond."
        return f"holds: no certified pixel provably lost its majority inside {radius}."

    def plot(self, path: str | Path | None = None) -> Figure:
        """Draw the attacks as a matplotlib figure, written to `path` if given."""
        from ..figures.panels import attack_panel
        from ..figures.sheet import plotted

        return plotted(lambda: attack_panel(self), path)

    def save(self, path: str | Path) -> Path:
        """Write one `.safetensors` file: every δ, the fresh votes under it, and all other values in the header."""
        arrays: dict[str, NDArray[Any]] = {"labels": self.judge.labels}
        for index, attempt in enumerate(self.attempts):
            arrays |= {f"{name}.{index}": getattr(attempt, name) for name in ("delta", "ones", "zeros")}
        about = "delta.i: what was added to the image in attempts[i]; ones.i and zeros.i: fresh votes of each pixel."
        return write_arrays(path, KIND, VERSION, {"about": about, **self.as_dict()}, arrays)

    def as_dict(self) -> dict[str, Any]:
        """Return everything but the arrays, for JSON."""
        certificate = self.certificate
        attempts = [
            {
                "change": attempt.change,
                "radius": attempt.radius,
                "norm": attempt.norm,
                "inside": self.inside(attempt),
                "groups": {group: self.toll(attempt, group).as_dict() for group in GROUPS},
            }
            for attempt in self.attempts
        ]
        return {
            "verdict": self.verdict,
            "broken": self.broken,
            "level": self.level,
            "radius": certificate.radius,
            **asdict(certificate.criterion),
            "samples": self.samples,
            "votes_against_needed": self.judge.votes_against_needed,
            "votes_against_needed_to_abstain": self.judge.votes_against_needed_to_abstain,
            "gradient": self.gradient,
            "seed": str(self.seed),
            "pixel": self.pixel,
            "attempts": attempts,
            "plan": plan_as_dict(certificate.votes.plan),
            "provenance": certificate.votes.provenance.as_dict(),
        }
