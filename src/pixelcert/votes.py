"""Votes: the result of sampling, as counts per level and pixel, checked as they are made and saved in one file."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import statistics
from .basics.files import read_arrays, write_arrays
from .basics.messages import ArgumentError, IncompleteVotesError, Progress, VotesFileError, check_whole
from .plan import ALPHA, TAU, Correction, Criterion, Plan, check_levels_fit, ones_at
from .provenance import ALGORITHM as ALGORITHM
from .provenance import Provenance as Provenance
from .provenance import title_of as title_of

if TYPE_CHECKING:
    from .certificate import Certificate
    from .explainer import Explains


def count_type(n: int) -> np.dtype[Any]:
    """Return the smallest type that holds every count up to n: one byte for n = 100."""
    return np.min_scalar_type(n)


def _as_counts(name: str, counts: ArrayLike, most: int) -> NDArray[np.int32]:
    """Return counts as an array that nobody can write to; refuse all but whole numbers from 0 to `most`."""
    array = np.asarray(counts)
    if array.dtype.kind not in "iu":
        raise ArgumentError(f"{name} has values of type {array.dtype}: give counts, which are whole numbers.")
    if array.size == 0:
        raise ArgumentError(f"{name} has shape {array.shape}: give at least one count.")
    if not 0 <= array.min() <= array.max() <= most:  # in its own type: a conversion could wrap around
        raise ArgumentError(f"{name} holds votes from {array.min()} to {array.max()}, of {most} samples that count.")
    return _frozen(array.astype(np.int32, copy=False))


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array that nobody can write to; the caller's own stays as it is."""
    frozen = array.copy() if array.flags.writeable or array.base is not None else array  # a base may be writeable
    frozen.setflags(write=False)
    return frozen


MOST_CHANNELS = 2**16


@dataclass(frozen=True, eq=False, repr=False)
class Votes:
    """Counts of the first `counted` of the `plan.n` planned samples. A frozen value: nothing changes it.

    Per level of `plan.levels`, `ones` and `zeros` say how often each pixel was in the top K % and outside it; a
    sample in which it was tied at the threshold or NaN adds to neither.
    """

    plan: Plan
    provenance: Provenance
    channels: int
    counted: int
    ones: NDArray[np.int32]  # (levels, H, W)
    zeros: NDArray[np.int32]  # (levels, H, W)
    guess_ones: NDArray[np.int32] | None = None  # (levels, H, W), of the first `plan.guess` samples
    predictions: NDArray[np.int32] | None = None  # (classes,), how often each class was the model's answer
    photo: NDArray[np.uint8] | None = None  # (H, W, 3), for pictures only
    more: Mapping[str, NDArray[Any]] = field(default_factory=dict)  # of a later pixelcert, kept for the next file

    def __post_init__(self) -> None:
        """Refuse counts that samples cannot give. Counts may be simulated: only files must come from rankings."""
        if self.plan.seed is None:
            raise ArgumentError("plan has no seed, so nobody could draw the noise of these votes again: give it one.")
        counted = check_whole("counted", self.counted, 0, self.plan.n, example=self.plan.n)
        channels = check_whole("channels", self.channels, 1, MOST_CHANNELS, example=3)
        vars(self).update(counted=counted, channels=channels)  # assignment is frozen
        shape = (len(self.plan.levels), *np.shape(self.ones)[1:])
        if len(shape) != 3 or np.shape(self.ones) != shape or np.shape(self.zeros) != shape:
            raise ArgumentError(
                f"ones {np.shape(self.ones)} and zeros {np.shape(self.zeros)} do not hold one count per pixel for each "
                f"of the {len(self.plan.levels)} levels: both are (levels, H, W)."
            )
        ones, zeros = _as_counts("ones", self.ones, counted), _as_counts("zeros", self.zeros, counted)
        if (zeros > counted - ones).any():
            raise ArgumentError(f"ones and zeros together hold more votes than the {counted} samples counted.")
        photo, more = self.photo, {name: _frozen(np.asarray(array)) for name, array in self.more.items()}
        if shadowed := more.keys() & {*_COUNTS, "photo"}:
            raise ArgumentError(f"more holds {', '.join(sorted(shadowed))}: give these as votes' own arrays.")
        if photo is not None and (photo.shape != (*shape[1:], 3) or photo.dtype != np.uint8):
            raise ArgumentError(f"photo is {photo.dtype} {photo.shape}: give uint8 (H, W, 3) of the same image.")
        extras = {"guess_ones": self._check_guesses(ones), "predictions": self._check_predictions()}
        photo = None if photo is None else _frozen(photo)
        vars(self).update(ones=ones, zeros=zeros, **extras, photo=photo, more=more)

    def __repr__(self) -> str:
        plan, levels = self.plan, ", ".join(map(str, self.plan.levels))
        drawn = f"{self.counted} of {plan.n} samples at σ = {plan.sigma}, levels {levels}"
        return f"Votes({self.provenance.title}: {drawn})"

    def _check_guesses(self, ones: NDArray[np.int32]) -> NDArray[np.int32] | None:
        guess = min(self.plan.guess, self.counted)
        if self.guess_ones is None:
            if self.plan.guess:
                raise ArgumentError(f"guess_ones is missing: the plan guesses labels from {self.plan.guess} samples.")
            return None
        guesses = _as_counts("guess_ones", self.guess_ones, guess)
        if guesses.shape != ones.shape:
            raise ArgumentError(f"guess_ones has shape {guesses.shape}: give that of ones, {ones.shape}.")
        if (guesses > ones).any() or (ones - guesses > self.counted - guess).any():
            raise ArgumentError(f"guess_ones are not the part of ones that the first {guess} samples gave.")
        return guesses

    def _check_predictions(self) -> NDArray[np.int32] | None:
        if self.predictions is None:
            return None
        answers = _as_counts("predictions", self.predictions, self.counted)
        if answers.ndim != 1 or answers.sum(dtype=np.int64) > self.counted:
            raise ArgumentError(f"predictions are not (classes,) answers to {self.counted} samples.")
        return answers

    def check_ranked(self) -> None:
        """Refuse counts that no ranking gives: top sets that are not nested, or larger than K %."""
        plan, guess = self.plan, min(self.plan.guess, self.counted)
        check_levels_fit(plan.levels, self.pixels, plan.rule)
        ascending = sorted(range(len(plan.levels)), key=plan.levels.__getitem__)
        of_samples = [(self.ones, self.zeros, self.counted)]
        of_samples += [] if self.guess_ones is None else [(self.guess_ones, guess - self.guess_ones, guess)]
        for ones, zeros, samples in of_samples:
            for low, high in pairwise(ascending):
                if (ones[low] > ones[high]).any() or (zeros[low] < zeros[high]).any():
                    raise ArgumentError(
                        f"votes at K = {plan.levels[low]} and {plan.levels[high]} are of top sets that are not nested."
                    )
            for place, level in enumerate(plan.levels):
                inside = samples * (size := ones_at(level, self.pixels, plan.rule))
                outside = samples * (self.pixels - (size if plan.rule == "rank" else 0))  # "percentile" ties are out
                if ones[place].sum(dtype=np.int64) > inside:
                    raise ArgumentError(f"ones at K = {level} are more than {samples} samples of {size} pixels hold.")
                if zeros is self.zeros and zeros[place].sum(dtype=np.int64) > outside:
                    raise ArgumentError(f"zeros at K = {level} are more than {samples} samples leave outside the top.")

    # ── What they say ─────────────────────────────────────────────────────────────────────────────────────────

    @property
    def complete(self) -> bool:
        return self.counted == self.plan.n

    @property
    def size(self) -> tuple[int, int]:
        """(H, W) of the image and of every map."""
        return self.ones.shape[1], self.ones.shape[2]

    @property
    def pixels(self) -> int:
        return self.size[0] * self.size[1]

    def index(self, level: float) -> int:
        """Return the place of `level` in the counts."""
        return self.plan.levels.index(self.plan.level(level))

    def smoothed(self, level: float) -> NDArray[np.float64]:
        """Return SS, the smoothed sparsified map: each pixel's share of samples in the top K %, (H, W)."""
        share: NDArray[np.float64] = self.ones[self.index(level)] / max(self.counted, 1)
        return share

    def require_complete(self) -> None:
        if not self.complete:
            raise IncompleteVotesError(
                f"{self.counted} of the {self.plan.n} planned samples are counted, and a fixed-n test must not be "
                f"read early: finish them with votes.resume(explainer, image) or `pixelcert certify --resume`."
            )

    def certify(
        self,
        tau: float = TAU,
        alpha: float = ALPHA,
        *,
        levels: float | Sequence[float] | None = None,
        correction: Correction | None = None,
    ) -> Certificate:
        """Label every pixel 1, 0 or ABSTAIN; see `pixelcert.certificate.certify_votes`."""
        from .certificate import certify_votes

        return certify_votes(self, Criterion(tau, alpha, correction), levels)

    def radius_at(self, tau: float) -> float:
        """Return R for every image, on the lattice or not: σ·Φ⁻¹(τ) - √d·2⁻²⁰, in the units of pixels in [0, 1]."""
        return statistics.certified_radius(statistics.radius(self.plan.sigma, tau), self.pixels, self.channels)

    def radius_map(self, level: float, alpha: float = ALPHA, *, joint: bool = False) -> NDArray[np.float64]:
        """Return the radius within which each pixel provably keeps its majority label at `level`: (H, W), 0 for none.

        With probability at least 1 - alpha over the noise, every value is right, for all pixels and all τ together (2N
        hypotheses); `joint` extends this to all L sampled levels (2NL).
        """
        self.require_complete()
        alpha = Criterion(alpha=alpha).alpha
        votes = np.maximum(self.ones[self.index(level)], self.zeros[self.index(level)])
        levels = len(self.plan.levels) if joint else 1
        by_count = statistics.radius_by_count(self.plan.n, self.plan.sigma, alpha, self.pixels, levels)
        return statistics.certified_radius(by_count[votes], self.pixels, self.channels)

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows."""
        from .report.notebook import votes_html

        return votes_html(self)

    # ── Going on ──────────────────────────────────────────────────────────────────────────────────────────────

    def resume(
        self, explainer: Explains, image: Any, *, batch_size: int | None = None, progress: Progress | None = None
    ) -> Votes:
        """Count the planned samples that are missing; see `pixelcert.sampling.sample.resume`."""
        from .sampling.sample import resume

        return resume(self, explainer, image, batch_size=batch_size, progress=progress)

    # ── Files ─────────────────────────────────────────────────────────────────────────────────────────────────

    def save(self, path: str | Path) -> Path:
        """Write one `.safetensors` file (docs/votes-file.md), atomically. Equal votes make equal files."""
        header = {
            "about": "ones and zeros: per level of plan.levels and pixel, how many of the counted noisy samples had "
            "the pixel in the top K percent of the attribution map, and outside it.",
            "plan": plan_as_dict(self.plan),
            "provenance": self.provenance.as_dict(),
            "channels": self.channels,
            "counted": self.counted,
        }
        small = count_type(self.plan.n)
        counts = {name: array for name in _COUNTS if (array := getattr(self, name)) is not None}
        arrays = {name: array.astype(small) for name, array in counts.items()}
        photo = {} if self.photo is None else {"photo": self.photo}
        return write_arrays(path, KIND, VERSION, header, {**self.more, **arrays, **photo})

    @classmethod
    def load(cls, path: str | Path) -> Votes:
        """Read what `save` wrote. Its checksum shows damage only, so everything is checked as if anyone had made it."""
        header, arrays = read_arrays(path, KIND, VERSION)
        try:
            _refuse_newer("", header, _HEADER)
            _refuse_newer("provenance.", {name: header["provenance"].get(name) for name in _CHANGING}, ())
            plan, provenance = plan_of(header), Provenance.of(header["provenance"])
            channels, counted = (_whole(header, name) for name in ("channels", "counted"))
            known = {name: array for name, array in arrays.items() if name in (*_COUNTS, "photo")}
            more = {name: array for name, array in arrays.items() if name not in known}
            votes = cls(plan, provenance, channels, counted, **known, more=more)
            votes.check_ranked()
        except _NewerError as error:
            raise VotesFileError(f"{path} was written by a newer pixelcert ({error}): upgrade pixelcert.") from error
        except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            raise VotesFileError(f"{path} has a damaged header or counts ({error}): sample again.") from error
        return votes


# ── The layout of a file, docs/votes-file.md ──────────────────────────────────────────────────────────────────────────

KIND, VERSION = "pixelcert votes", 2
_COUNTS = ("ones", "zeros", "guess_ones", "predictions")
_HEADER = ("kind", "version", "about", "plan", "provenance", "channels", "counted")
_CHANGING = ("denoiser", "threat")  # what a provenance may name some day that changes what labels mean
_FIRST = ("sigma", "n", "levels", "seed", "sign", "rule", "guess")  # in the plan of every version


class _NewerError(ValueError):
    """A header says something that changes what labels mean, and that this pixelcert does not know."""


def plan_as_dict(plan: Plan) -> dict[str, Any]:
    """Return a plan for JSON. The seed is text: JavaScript loses digits of whole numbers above 2⁵³."""
    return {**asdict(plan), "seed": str(plan.seed)}


def plan_of(header: Mapping[str, Any]) -> Plan:
    """Return the plan that a header holds. In version 1 the seed is a number; what was added later may be absent."""
    names = [one.name for one in fields(Plan)]
    _refuse_newer("plan.", header["plan"], names)
    given = {"streams": False, **{name: value for name, value in header["plan"].items() if value is not None}}
    if missing := [name for name in _FIRST if name not in given]:
        raise ArgumentError(f"plan lacks {', '.join(missing)}")
    if header["version"] > 1:
        if not re.fullmatch(r"0|-?[1-9][0-9]{0,19}", str(given["seed"])) or not isinstance(given["seed"], str):
            raise ArgumentError(f"seed={given['seed']!r} is not the text of a whole number")
        given["seed"] = int(given["seed"])
    whole = {name: _whole(given, name) for name in ("n", "seed", "guess")}
    for name, kind in {"levels": list, "streams": bool}.items():
        if not isinstance(given[name], kind):
            raise ArgumentError(f"{name}={given[name]!r} is not of type {kind.__name__}")
    return Plan(**{**given, **whole})


def _refuse_newer(part: str, found: Mapping[str, Any], known: Collection[str]) -> None:
    """Refuse names that are not known and have a value: to ignore them would change what is certified."""
    if newer := sorted(f"{part}{name}" for name, value in found.items() if name not in known and value is not None):
        raise _NewerError(", ".join(newer))


def _whole(found: Mapping[str, Any], name: str) -> int:
    """Return a whole number of a header; refuse 1.0 and true."""
    if type(value := found[name]) is not int:
        raise ArgumentError(f"{name}={value!r} is no whole number")
    return value
