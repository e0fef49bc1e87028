"""Verify: sample somebody's votes again, with their seed and with a fresh one.

Whoever made a certificate chose the image, the explainer and the seed, and the checksum of a file is no signature. With
the recorded seed the same votes must come out. With a fresh seed every certified label must keep a share above τ. The
fresh copies are explained in a new process, one in each call and in shuffled order. This exposes many explainers whose
maps depend on their batch or on earlier calls. Nothing finds all of them, and nothing proves a certificate right.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from .. import statistics
from ..basics.messages import Progress, check_seed, check_share, check_whole
from ..certificate import Certificate, Prediction, certify_votes
from ..explainer import Explains, as_explainer
from ..noise import stream
from ..plan import ABSTAIN, ALPHA, TAU, Correction, Criterion, draw_seed
from ..ranking import Counts
from ..votes import Votes
from .checkpoint import check_same, image_of
from .fresh import Fresh, count, packed
from .independence import DependenceError
from .sample import Image, repeat

RISK = 0.001
_ROUNDED = 0.1  # the share of votes up to which another kind of machine may round otherwise; 0.06 was seen


@dataclass(frozen=True, eq=False, repr=False)
class Verification:
    """The result of sampling again: a certificate is refuted, or nothing was found that speaks against it."""

    certificate: Certificate
    again: Votes | None  # of the recorded seed; None if the explainer was refused
    fresh: Counts  # of the fresh seed
    seed: int  # the fresh one
    risk: float  # the chance that a true certificate is refuted
    same_process: str = ""  # why the fresh copies were not explained in a new process
    dependence: str = ""  # why no certificate can be about the explainer
    steady: bool = True  # the recorded seed gives the same votes twice on this machine

    def __repr__(self) -> str:
        return f"Verification({self.verdict})"

    # ── With the recorded seed ────────────────────────────────────────────────────────────────────────────────────────

    @property
    def differing(self) -> int:
        """The number of votes, among all levels and pixels, that did not come out again."""
        if self.again is None:
            return 0
        names = ("ones", "zeros", "guess_ones", "predictions")
        pairs = ((getattr(self.certificate.votes, name), getattr(self.again, name)) for name in names)
        return sum(_apart(one, other) for one, other in pairs)

    @property
    def mostly_lost(self) -> bool:
        """True if more votes differ than by rounding on any machine: of a level, or for the certified labels of one."""
        votes, again = self.certificate.votes, self.again
        if again is None:
            return False
        for level, labels in self.certificate.labels.items():
            place, sides = votes.index(level), ((votes.ones, again.ones, 1), (votes.zeros, again.zeros, 0))
            lost = [np.maximum(was[place].astype(int) - now[place], 0) for was, now, _ in sides]
            of_labels = sum(int(each[labels == side].sum()) for each, (*_, side) in zip(lost, sides, strict=True))
            certified = votes.counted * int((labels != ABSTAIN).sum())
            if sum(map(np.sum, lost)) > _ROUNDED * votes.counted * votes.pixels or of_labels > _ROUNDED * certified:
                return True
        return False

    @property
    def unlike(self) -> list[str]:
        """The differences between this machine and that of the votes, by which votes may differ in rounding."""
        if self.again is None:
            return []
        then, now = self.certificate.votes.provenance, self.again.provenance
        pairs = [(name, getattr(then, name), getattr(now, name)) for name in ("processor", "compiled", "batches")]
        return then.differences(now) + [f"{name} was {a}, now {b}" for name, a, b in pairs if a != b]

    # ── With a fresh seed ─────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def samples(self) -> int:
        return self.fresh.counted

    @property
    def checked(self) -> int:
        """The number of certified labels, of all levels, and of the prediction."""
        return _certified(self.certificate)

    @property
    def votes_against_needed(self) -> int:
        """The number of fresh votes against a label that refutes it."""
        tau, hypotheses = self.certificate.tau, _hypotheses(self.certificate)
        return statistics.votes_against_needed(self.samples, tau, self.risk, hypotheses)

    def refuted_labels(self, level: float) -> NDArray[np.bool_]:
        """Find the pixels whose label has a share below τ, (H, W)."""
        labels = self.certificate.labels[self.certificate.level(level)]
        ones, zeros = self.fresh.votes[:, self.certificate.votes.index(level)].view(2, *labels.shape).numpy()
        kept = np.select([labels == 1, labels == 0], [ones, zeros], self.samples)
        found: NDArray[np.bool_] = self.samples - kept >= self.votes_against_needed
        return found

    @property
    def prediction_refuted(self) -> bool:
        """True if the certified class is the model's answer to too few fresh copies."""
        if (told := _certified_prediction(self.certificate)) is None:
            return False
        found = self.fresh.predictions
        kept = int(found[told.answer]) if found is not None and told.answer < len(found) else 0
        return self.samples - kept >= self.votes_against_needed

    # ── Together ──────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def refuted(self) -> int:
        """The number of labels, with the prediction's, that fresh samples refute."""
        return sum(int(self.refuted_labels(level).sum()) for level in self.certificate.levels) + self.prediction_refuted

    @property
    def sound(self) -> bool:
        """True if nothing was found that speaks against the certificate."""
        return not (self.refuted or self.dependence or self.mostly_lost or self._edited)

    @property
    def _edited(self) -> bool:
        """True if votes differ although this machine, of the same kind, always gives the same ones."""
        return bool(self.differing and not self.unlike and self.steady)

    @property
    def verdict(self) -> str:
        """The judgement, in one or two sentences."""
        if self.dependence:
            return f"REFUTED: {self.dependence}"
        if self.refuted:
            return (
                f"REFUTED: {self.refuted} of {self.checked} certified labels have a share below τ = "
                f"{self.certificate.tau:g} in {self.samples} fresh copies. An honest label "
                f"map holds a false label with a probability of at most α = {self.certificate.alpha}."
            )
        if not self.sound:
            why = "more than rounding explains" if self.mostly_lost else "on a machine of the same kind"
            return f"REFUTED: {self.differing} votes do not come out again from the recorded seed, {why}."
        came = f"all but {self.differing} votes come" if self.differing else "the votes come"
        kept = f"all {self.checked} certified labels hold in {self.samples} fresh copies"
        held = kept if self.checked else "no label is certified"
        where = " They were explained in the same process." if self.same_process else ""
        return f"Nothing speaks against it: {came} out again, and {held}.{where} This is no proof that it is right."

    def as_dict(self) -> dict[str, Any]:
        """Return everything that JSON can hold."""
        levels = self.certificate.levels
        return {
            "sound": self.sound,
            "verdict": self.verdict,
            "dependence": self.dependence,
            "differing": self.differing,
            "steady": self.steady,
            "unlike": self.unlike,
            "checked": self.checked,
            "refuted": self.refuted,
            "refuted_labels": {str(level): int(self.refuted_labels(level).sum()) for level in levels},
            "prediction_refuted": self.prediction_refuted,
            "samples": self.samples,
            "seed": str(self.seed),
            "risk": self.risk,
            "votes_against_needed": self.votes_against_needed,
            "new_process": not self.same_process,
            **asdict(self.certificate.criterion),
        }


def verify(
    votes: Votes,
    explainer: Explains,
    image: Image | None = None,
    *,
    tau: float = TAU,
    alpha: float = ALPHA,
    correction: Correction | None = None,
    samples: int | None = None,
    seed: int | None = None,
    risk: float = RISK,
    progress: Progress | None = None,
) -> Verification:
    """Sample `votes` again, and say whether anything speaks against their certificate under τ, α and correction.

    Args:
        votes: the votes to check. They must be about this `explainer` and `image`; others are refused.
        image: by default the photograph in the votes, if it is exactly the one that was certified.
        samples: fresh copies, by default as many as the votes have.
        seed: of the fresh noise, by default drawn from the operating system. Give one only to repeat a verification.
        risk: the chance that a certificate is refuted although all its labels are true.
        progress: called with (noisy copies explained, planned).
    """
    certificate = certify_votes(votes, Criterion(tau, alpha, correction))
    return verify_certificate(certificate, explainer, image, samples, seed, risk, progress)


def verify_certificate(
    certificate: Certificate,
    explainer: Explains,
    image: Image | None = None,
    samples: int | None = None,
    seed: int | None = None,
    risk: float = RISK,
    progress: Progress | None = None,
) -> Verification:
    """Verify a certificate that was made of somebody's votes; see `verify`."""
    votes, report = certificate.votes, progress or (lambda done, planned: None)
    samples = _check_samples(certificate, samples, risk)
    explainer, given = as_explainer(explainer), image_of(votes) if image is None else image
    clean, total = check_same(votes, explainer, given), votes.plan.n + samples
    fresh_seed = draw_seed() if seed is None else check_seed(seed)
    key = stream(fresh_seed, "verification", votes.provenance.image)
    plan = replace(votes.plan, n=samples, guess=0)
    work = Fresh(explainer, clean, votes.provenance, plan, key, torch.get_num_threads())
    sent = packed(work)  # before any call, so that it remembers none
    try:
        again = repeat(votes, explainer, given, progress=lambda done, planned: report(done, total))
    except DependenceError as error:
        nothing = Counts.none(plan, votes.pixels, torch.device("cpu"))
        return Verification(certificate, None, nothing, fresh_seed, risk, dependence=str(error))

    def later(done: int) -> None:
        report(votes.plan.n + done, total)

    fresh, why = count(work, sent, later)
    found = Verification(certificate, again, fresh, fresh_seed, risk, why)
    if not found._edited:
        return found
    return replace(found, steady=_differ_nowhere(again, repeat(votes, explainer, given)))  # before it is refuted


def _check_samples(certificate: Certificate, samples: int | None, risk: float) -> int:
    """Return the number of fresh copies; refuse so few that they cannot refute a single label."""
    check_share("risk", risk, RISK)
    samples = certificate.votes.plan.n if samples is None else check_whole("samples", samples, 1, example=100)
    statistics.check_refutable(samples, certificate.tau, risk, _hypotheses(certificate))
    return samples


def _differ_nowhere(one: Votes, other: Votes) -> bool:
    return not (_apart(one.ones, other.ones) or _apart(one.zeros, other.zeros))


def _apart(one: NDArray[Any] | None, other: NDArray[Any] | None) -> int:
    """Count the votes by which two arrays differ; all of them if one is missing or of another size."""
    if one is not None and other is not None and one.shape == other.shape:
        return int(np.abs(one.astype(int) - other).sum())
    return sum(int(array.sum()) for array in (one, other) if array is not None)


def _certified_prediction(certificate: Certificate) -> Prediction | None:
    told = certificate.prediction
    return told if told is not None and told.certified else None


def _certified(certificate: Certificate) -> int:
    """Count the labels that a certificate claims, and its prediction."""
    labels = sum(int((labels != ABSTAIN).sum()) for labels in certificate.labels.values())
    return labels + (_certified_prediction(certificate) is not None)


def _hypotheses(certificate: Certificate) -> int:
    """Count what may be refuted by mistake; at least one, so that no test is without a threshold."""
    return max(1, _certified(certificate))
