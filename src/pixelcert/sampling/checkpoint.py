"""Outputs: the files that a command will write, named and checked before it begins."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..basics.files import check_name
from ..basics.messages import ArgumentError
from ..plan import ALPHA, TAU, Plan, check_levels
from ..statistics import default_correction


def make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArgumentError(f"--out {out} cannot be a folder ({error.strerror}): name another.") from error


def check_own_names(files: Sequence[Path], what: str, remedy: str) -> None:
    """Refuse files of which two would be written under one name."""
    stems = [file.stem for file in files]
    if twice := sorted({stem for stem in stems if stems.count(stem) > 1}):
        raise ArgumentError(f"{what} share the name {', '.join(twice)} and would share a file: {remedy}.")


def votes_files(images: Sequence[Path], out: Path, method: str, layer: str) -> list[Path]:
    """Where each image's votes will go."""
    check_own_names(images, "images", "rename or run them apart")
    make_folder(out)
    files = [out / f"{path.stem}-{method}-{layer}.safetensors" for path in images]
    for file in files:
        check_name(partial_file(file))
    return files


def partial_file(file: Path) -> Path:
    """Where an interruption leaves the votes that will be in `file`."""
    return file.with_suffix(".partial.safetensors")


def picture_file(
    file: Path,
    plan: Plan,
    tau: float,
    alpha: float,
    levels: Sequence[float] | None = None,
    correction: str | None = None,
    out: Path | None = None,
) -> Path:
    """Where the picture of a certificate of the votes in `file` goes.

    Settings other than the defaults are in its name, so that it never takes the place of a picture at others.
    """
    chosen = sorted(plan.levels if levels is None else check_levels(levels), reverse=True)
    parts = [file.stem]
    parts += [f"tau{tau}"] if tau != TAU else []
    parts += [f"alpha{alpha}"] if alpha != ALPHA else []
    parts += [correction] if correction and correction != default_correction(plan) else []
    parts += [f"K{level}" for level in chosen] if chosen != sorted(plan.levels, reverse=True) else []
    picture = (out or file.parent) / f"{'-'.join(parts)}.png"
    check_name(picture)
    return picture
