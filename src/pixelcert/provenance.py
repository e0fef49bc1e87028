"""Provenance: the image, the explainer and the machine that votes come from, checked as it is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from importlib.metadata import version
from typing import Any

from .basics.files import plain
from .basics.messages import ArgumentError, check_target, check_whole

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
    origin: Mapping[str, str] | None = None  # the model and weights that `load_model` was given; None: made otherwise
    processor: str | None = None  # what decides how a CPU rounds; None: unknown
    more: Mapping[str, Any] = field(default_factory=dict)  # what a later pixelcert recorded, kept for the next file

    def __post_init__(self) -> None:
        """Store values in the form that a file returns, so that votes can be compared before and after saving."""
        made = {name: plain(getattr(self, name)) for name in ("params", "surgery", "batches", "origin", "more")}
        made["target"] = check_target(self.target, None)
        made["batch_size"] = check_whole("batch_size", self.batch_size, 1, example=16)
        vars(self).update(made)  # assignment is frozen
        for name in _TEXTS:
            if not isinstance(value := getattr(self, name), str) and (name, value) != ("processor", None):
                raise ArgumentError(f"{name}={value!r} is of type {type(value).__name__}: give text.")
        if not isinstance(self.compiled, bool):
            raise ArgumentError(f"compiled={self.compiled!r} is neither True nor False: use one of them.")
        if not isinstance(self.params, Mapping) or not isinstance(self.more, Mapping):
            raise ArgumentError(f"params={self.params!r} is not a mapping: give parameters by name.")
        if shadowed := self.more.keys() & _NAMES:
            raise ArgumentError(f"more holds {', '.join(sorted(shadowed))}: give these by their own names.")
        for name in ("class_names", "versions", "surgery", "origin"):
            _check_texts(name, getattr(self, name) or {})
        _check_batches(self.batches or [])

    def as_dict(self) -> dict[str, Any]:
        """Return all that is recorded, by name, for JSON."""
        return {**{name: getattr(self, name) for name in _NAMES}, **self.more}

    @classmethod
    def of(cls, recorded: Mapping[str, Any]) -> Provenance:
        """Return the provenance that `as_dict` gave; names that are not known here are kept in `more`."""
        for name in ("target", "batch_size"):
            if type(recorded[name]) is not int:  # not 1.0, nor true
                raise ArgumentError(f"{name}={recorded[name]!r} is no whole number: give one such as 1.")
        known = {name: value for name, value in recorded.items() if name in _NAMES}
        return cls(**known, more={name: value for name, value in recorded.items() if name not in _NAMES})

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


_NAMES = {one.name: None for one in fields(Provenance) if one.name != "more"}.keys()
_TEXTS = ("method", "layer", "model", "weights", "image", "image_name", "device", "precision", "processor")


def _check_texts(name: str, value: Any) -> None:
    """Refuse anything but texts by name."""
    if not isinstance(value, Mapping) or not all(isinstance(text, str) for pair in value.items() for text in pair):
        raise ArgumentError(f"{name}={value!r} are not texts by name: give a mapping from text to text.")


def _check_batches(batches: Any) -> None:
    """Refuse anything but pairs of a sample's index and a batch size."""
    if not isinstance(batches, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in batches):
        raise ArgumentError(f"batches={batches!r} are not pairs: give (from sample, batch size) for each size.")
    for first, size in batches:
        check_whole("batches", first)
        check_whole("batches", size, 1)
