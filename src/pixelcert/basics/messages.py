"""Errors, warnings, progress callbacks and checks of arguments: what pixelcert says to its caller."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from fractions import Fraction
from numbers import Integral, Real
from typing import Any, get_args

Progress = Callable[[int, int], None]  # (done, planned), as often as there is news
Track = Callable[[str], Progress]  # a callback for each of several things, by name


class PixelcertError(ValueError):
    """Base of every error that pixelcert raises on purpose."""


class ArgumentError(PixelcertError):
    """An argument is outside the range in which a certificate has a meaning."""


class InfeasibleError(PixelcertError):
    """No number of votes could certify a pixel under this plan and criterion."""


class IncompleteVotesError(PixelcertError):
    """Fewer samples are counted than were planned; a fixed-n test must not be read early."""


class ImageError(PixelcertError):
    """An image cannot be certified as it is."""


class ExplainerError(PixelcertError):
    """An explainer returned something other than one finite map per image."""


class ModelError(PixelcertError):
    """A model could not be loaded, split or run."""


class VotesFileError(PixelcertError):
    """A votes file is damaged, foreign, or written by a newer version."""


class DiskFullError(PixelcertError):
    """The disk has no room for the next result. Everything finished before is safe."""


class PixelcertWarning(UserWarning):
    """Something that is allowed, but that a user should know about."""


@contextmanager
def naming(subject: object) -> Iterator[None]:
    """Put `subject` before the message of an error, such as one of several files."""
    try:
        yield
    except PixelcertError as error:
        raise type(error)(f"{subject}: {error}") from error


# ── Checks of arguments ───────────────────────────────────────────────────────────────────────────────────────────────


_EXACT = (Integral, Fraction, Decimal)


def check_number(argument: str, value: Any, example: float) -> int | float:
    """Return `value` as one of Python's own numbers; refuse a string, a bool, or several numbers.

    Every number is converted here once: float32 and tensors would compute the rest of the way in lower precision.
    """
    number = value.item() if getattr(value, "ndim", None) == 0 else value  # of an array or a tensor
    if isinstance(number, bool) or not isinstance(number, (Real, Decimal)):
        raise ArgumentError(f"{argument}={value!r} is of type {type(value).__name__}: give a number such as {example}.")
    try:
        return int(number) if isinstance(number, _EXACT) and number % 1 == 0 else float(number)
    except (ValueError, ArithmeticError):  # no float can hold it
        return math.nan


def check_whole(argument: str, value: Any, least: int = 0, most: int = 2**63 - 1, example: int | None = None) -> int:
    """Return `value` as an int; refuse anything but a whole number from `least` to `most`."""
    example = max(1, least) if example is None else example
    number = math.nan if isinstance(value, bool) else check_number(argument, value, example)
    if not (least <= number <= most and number == int(number)):
        upper = "" if most == 2**63 - 1 else f" to {most}"
        raise ArgumentError(
            f"{argument}={value!r} is not a whole number from {least}{upper}: use one such as {example}."
        )
    return int(number)


def check_seed(seed: Any, argument: str = "seed") -> int:
    """Return a seed as an int of 64 bits."""
    return check_whole(argument, seed, -(2**63), example=0)


def check_range(argument: str, value: Any, inside: Callable[[Any], bool], words: str, example: float) -> float:
    """Return `value` as a float; refuse anything but a number that is then inside the range that `words` describe."""
    number = check_number(argument, value, example)
    if not inside(number):
        raise ArgumentError(f"{argument}={number} is outside {words}; use a value such as {example}.")
    return float(number)


def check_share(argument: str, value: Any, example: float) -> float:
    """Return `value` as a float; refuse anything but a number in [0, 1]."""
    return check_range(argument, value, lambda share: 0 <= share <= 1, "[0, 1]: it is a share", example)


def check_choice(argument: str, value: object, choices: object) -> None:
    """Refuse a `value` that is not one of the strings of the Literal type `choices`."""
    if value not in get_args(choices):
        raise ArgumentError(f"{argument}={value!r} is not known: choose one of {', '.join(get_args(choices))}.")


def check_target(target: Any, classes: int | None) -> int:
    """Return a class index as an int; refuse anything but a whole number from 0 and, if known, below `classes`."""
    try:
        number = check_whole("target", target)
    except ArgumentError:
        number = -1
    if number < 0:
        raise ArgumentError(
            f"target={target!r} is not a class index: use a whole number from 0; model.class_index(name) finds it."
        )
    if classes is not None and number >= classes:
        raise ArgumentError(f"target={number} is out of range: the model has classes 0 to {classes - 1}.")
    return number


def check_logits(logits: Any, images: int, whose: str) -> None:
    """Refuse logits of any shape but (images, classes)."""
    shape = tuple(getattr(logits, "shape", ()))
    if len(shape) != 2 or shape[0] != images:
        got = f"logits of shape {shape}" if shape else type(logits).__name__
        raise ExplainerError(f"{whose} returned {got} for {images} images: return logits ({images}, classes).")
