"""Study files to start from."""

from __future__ import annotations

from importlib.resources import files

from ...basics.messages import ArgumentError

NAMES = ("demo", "paper")


def template(name: str) -> bytes:
    """The text of a study file."""
    if name not in NAMES:
        raise ArgumentError(f"preset {name!r} is not known: choose one of {', '.join(NAMES)}.")
    return (files(__name__) / f"{name}.toml").read_bytes()
