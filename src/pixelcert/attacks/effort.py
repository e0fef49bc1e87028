"""Effort: how hard an attack tries, and how carefully it is judged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..errors import ArgumentError
from ..plan import check_choice

Choice = Literal["auto", "pathwise", "stein"]


@dataclass(frozen=True)
class Effort:
    """Settings of an attack.

    Each of `steps` explains `draws` noisy copies of the image where it stands and follows a gradient: "pathwise", of a
    differentiable surrogate of the map, or "stein", of votes alone; "auto" takes the first where there is one. Each
    perturbation is judged by `samples` fresh copies, `batch_size` at once. `seed` is the attack's.
    """

    steps: int = 30
    draws: int = 16
    samples: int = 1000
    gradient: Choice = "auto"
    seed: int = 0
    batch_size: int | None = None

    def __post_init__(self) -> None:
        for name, least in (("steps", 1), ("draws", 2), ("samples", 1)):
            if (value := getattr(self, name)) < least or value != int(value):
                raise ArgumentError(f"{name}={value} is not a number of {name}: use a whole number from {least}.")
        check_choice("gradient", self.gradient, Choice)
        if not 0 <= self.seed < 2**32 or self.seed != int(self.seed):
            raise ArgumentError(f"seed={self.seed} is not a whole number from 0 to {2**32 - 1}: use one such as 0.")

    def noise_seeds(self, certificate: int) -> tuple[int, int]:
        """Seeds of the attack's noise and of the noise that judges it, given the certificate's: three that differ."""
        away = 1 if certificate < 0 else -1  # towards zero, where no seed is out of range
        return certificate + away * (2 * self.seed + 1), certificate + away * (2 * self.seed + 2)
