"""Errors, warnings, progress callbacks and checks of arguments: what pixelcert says to its caller."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class PixelcertError(ValueError):
    """Base of every error that pixelcert raises on purpose."""


class ArgumentError(PixelcertError):
    """An argument is outside the range in which a certificate has a meaning."""


class InfeasibleError(PixelcertError):
    """No number of votes could certify a pixel with these settings, so sampling would be wasted."""


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
    """No room for the next result. Everything finished before is safe."""


class PixelcertWarning(UserWarning):
    """Something legal that a user would want to know about."""


@contextmanager
def naming(what: object) -> Iterator[None]:
    """Put before the message of an error what it is about, such as one of several files."""
    try:
        yield
    except PixelcertError as error:
        raise type(error)(f"{what}: {error}") from error


Progress = Callable[[int, int], None]  # (done, planned), as often as there is news
Track = Callable[[str], Progress]  # for each of several things, by name
