"""Votes: the result of sampling, as counts per level and pixel, and the provenance that says where they came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from . import statistics
from .basics.files import plain, read_arrays, write_arrays
from .basics.messages import ArgumentError, IncompleteVotesError, Progress, VotesFileError, check_whole
from .plan import ALPHA, TAU, Correction, Criterion, Plan

if TYPE_CHECKING:
    from .certificate import Certificate
    from .explainer import Explains


ALGORITHM = "0.1.0"  # of pixelcert itself: raised only when the same plan gives other votes, never by a release
COMPUTING = ("pixelcert", "torch", "torchvision")  # the libraries that compute votes


@cache
def _versions() -> Mapping[str, str]:
    """Return the versions of the libraries that votes depend on, read once because that takes milliseconds."""
    return {"pixelcert": ALGORITHM, **{name: version(name) for name in ("torch", "torchvision", "numpy")}}


def title_of(method: str, layer: str, model: str = "") -> str:
    """Name an explainer in words, without the parts that are empty."""
    return " ".join(filter(None, (method, layer and f"at {layer}", model and f"of {model}")))


@dataclass(frozen=True)
class Provenance:
    """The explained image, the explainer, and the machine that computed it."""

    method: str
    params: Mapping[str, Any]
    layer: str
    model: str
    weights: str  # SHA-256 of the parameters, "" where the explainer is a black box
    image: str  # SHA-256 of the image as certified
    image_name: str
    target: int
    class_names: Mapping[str, str]  # by index, of the target and of the classes that the model answered
    device: str
    precision: str
    batch_size: int
    compiled: bool = False
    versions: Mapping[str, str] = field(default_factory=_versions)
    surgery: Mapping[str, str] | None = None  # what was done to the network, and why not; None: unknown (before 0.2.0)
    batches: Sequence[Sequence[int]] | None = None  # (from sample, batch size), a pair for each size; None: unknown

    def __post_init__(self) -> None:
        """Store values in the form that a file returns, so that votes can be compared before and after saving."""
        for name in ("params", "surgery", "batches"):
            object.__setattr__(self, name, plain(getattr(self, name)))

    @property
    def title(self) -> str:
        """Name the explainer in words: method, layer and model, as far as they are known."""
        return title_of(self.method, self.layer, self.model)

    @property
    def image_title(self) -> str:
        return self.image_name or "image"

    @property
    def target_name(self) -> str:
        return self.class_name(self.target)

    def class_name(self, index: int) -> str:
        """Name a class in words, where the model named its classes."""
        return self.class_names.get(str(index)) or f"class {index}"

    def differences(self, other: Provenance) -> list[str]:
        """List in words why the two explainers are different functions. Names and batch sizes may differ.

        Another device or precision rounds differently, so it is another function; another version of a library may
        compute something else altogether. A black box is known by its name only. Surgery is compared step by step, as
        far as both record it.
        """
        names = ("method", "params", "layer", "model", "weights", "image", "target", "device", "precision")
        pairs = [(name, getattr(self, name), getattr(other, name)) for name in names]
        pairs += [(name, self.versions.get(name), other.versions.get(name)) for name in COMPUTING]
        mine, theirs = self.surgery or {}, other.surgery or {}
        pairs += [(step, mine[step], theirs[step]) for step in mine if step in theirs]
        return [f"{name} was {before!r}, now {now!r}" for name, before, now in pairs if before != now]


def count_type(n: int) -> np.dtype[Any]:
    """Return the smallest type that holds every count up to n: one byte for n = 100."""
    return np.min_scalar_type(n)


KIND, VERSION = "pixelcert votes", 1
_ARRAYS = ("ones", "zeros", "guess_ones", "predictions", "photo")


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

    def __post_init__(self) -> None:
        shape = (len(self.plan.levels), *self.ones.shape[1:])
        if self.ones.ndim != 3 or self.ones.shape != shape or self.zeros.shape != shape:
            raise ArgumentError(
                f"ones {self.ones.shape} and zeros {self.zeros.shape} do not hold one count per pixel for each "
                f"of the {len(self.plan.levels)} levels: both are (levels, H, W)."
            )
        low = min(self.ones.min(), self.zeros.min())
        if not 0 <= self.counted <= self.plan.n or low < 0 or (self.ones + self.zeros).max() > self.counted:
            raise ArgumentError(f"ones and zeros hold more votes than the {self.counted} samples counted.")
        self._check_extras()
        for name in _ARRAYS:
            if (array := getattr(self, name)) is not None and array.flags.writeable:
                frozen = array.copy()  # the caller's own stays as it is
                frozen.setflags(write=False)
                object.__setattr__(self, name, frozen)

    def __repr__(self) -> str:
        plan, levels = self.plan, ", ".join(map(str, self.plan.levels))
        drawn = f"{self.counted} of {plan.n} samples at σ = {plan.sigma}, levels {levels}"
        return f"Votes({self.provenance.title}: {drawn})"

    def _check_extras(self) -> None:
        guess = min(self.plan.guess, self.counted)
        if self.plan.guess and self.guess_ones is None:
            raise ArgumentError(f"guess_ones is missing: the plan guesses labels from {self.plan.guess} samples.")
        if (g := self.guess_ones) is not None and (g.shape != self.ones.shape or g.min() < 0 or g.max() > guess):
            raise ArgumentError(f"guess_ones does not hold counts up to {guess} of shape {self.ones.shape}.")
        if (p := self.predictions) is not None and (p.ndim != 1 or p.min() < 0 or p.sum() > self.counted):
            raise ArgumentError(f"predictions are not (classes,) answers to {self.counted} samples.")
        if self.photo is not None and self.photo.shape != (*self.size, 3):
            raise ArgumentError(f"photo has shape {self.photo.shape}: it is (H, W, 3) of the same image.")
        check_whole("channels", self.channels, 1, example=3)

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
        """Write one `.safetensors` file, atomically. Equal votes make equal files."""
        header = {
            "about": "ones and zeros: per level of plan.levels and pixel, how many of the counted noisy samples had "
            "the pixel in the top K percent of the attribution map, and outside it.",
            "plan": asdict(self.plan),
            "provenance": asdict(self.provenance),
            "channels": self.channels,
            "counted": self.counted,
        }
        small = count_type(self.plan.n)
        arrays = {name: array for name in _ARRAYS if (array := getattr(self, name)) is not None}
        arrays = {name: array if name == "photo" else array.astype(small) for name, array in arrays.items()}
        return write_arrays(path, KIND, VERSION, header, arrays)

    @classmethod
    def load(cls, path: str | Path) -> Votes:
        """Read what `save` wrote."""
        header, arrays = read_arrays(path, KIND, VERSION)
        counts: dict[str, Any] = {name: array.astype(np.int32) for name, array in arrays.items() if name != "photo"}
        try:
            known = {field.name for field in fields(Provenance)}
            provenance = Provenance(**{name: value for name, value in header["provenance"].items() if name in known})
            shown = arrays.get("photo")
            return cls(Plan(**header["plan"]), provenance, header["channels"], header["counted"], **counts, photo=shown)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise VotesFileError(f"{path} has a damaged header ({error}): sample again.") from error
