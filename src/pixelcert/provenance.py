"""Provenance: where votes came from. Nothing here changes what they mean; it lets anyone find them again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from typing import Any

COMPUTING = ("pixelcert", "torch", "torchvision")  # what votes are made by
LIBRARIES = (*COMPUTING, "numpy")


@cache
def _versions() -> Mapping[str, str]:
    return {name: version(name) for name in LIBRARIES}  # reads the disk: milliseconds, once


@dataclass(frozen=True)
class Provenance:
    """What was explained, by what, and on which machine."""

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
    compiled: bool = False  # whether the network was
    versions: Mapping[str, str] = field(default_factory=lambda: dict(_versions()))

    def __post_init__(self) -> None:
        """Parameters as a file gives them back, so that votes can be compared before and after saving."""
        object.__setattr__(self, "params", json.loads(json.dumps(dict(self.params), default=repr)))

    @property
    def target_name(self) -> str:
        return self.class_name(self.target)

    def class_name(self, index: int) -> str:
        """A class in words, where the model named its classes."""
        return self.class_names.get(str(index)) or f"class {index}"

    def differences(self, other: Provenance) -> list[str]:
        """What makes the two explain by different functions, in words. Names and batch sizes may differ.

        Other devices and precisions round differently, and so are other functions; other versions of the libraries may
        compute something else altogether. A black box is known by its name alone.
        """
        names = ("method", "params", "layer", "model", "weights", "image", "target", "device", "precision")
        pairs = [(name, getattr(self, name), getattr(other, name)) for name in names]
        pairs += [(name, self.versions.get(name), other.versions.get(name)) for name in COMPUTING]
        return [f"{name} was {mine!r}, now {theirs!r}" for name, mine, theirs in pairs if mine != theirs]
