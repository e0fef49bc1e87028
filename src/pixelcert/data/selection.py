"""Selection: the photographs and grids of a study, written down so that everyone works on the same ones."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from ..digest import sha256
from ..errors import ArgumentError, ImageError
from ..files import write_atomically
from ..image import load_image
from .folder import locate
from .grid import Grid

KIND = "pixelcert selection"
VERSION = 1
ABOUT = (
    "The photographs of a study. The first `images` of `photographs` are its images. Every grid has the photographs "
    "`cells` (counted from 0, laid from left to right, then from top to bottom) and the target of its cell `cell`. "
    "`digest` is the SHA-256 of a file."
)


@dataclass(frozen=True)
class Settings:
    """What was asked for; `filters` maps the names of the models that had to agree to the SHA-256 of their weights."""

    seed: int
    confidence: float
    images: int | None
    grids: int
    m: int
    filters: Mapping[str, str]


@dataclass(frozen=True)
class Chosen:
    """A photograph that passed.

    `target` is its label if it is `labelled`, else the class that all filters agree on, or None without filters.
    `confidences` are the filters' in the target, by name.
    """

    file: str
    digest: str
    target: int | None
    labelled: bool
    confidences: Mapping[str, float]


@dataclass(frozen=True)
class Selection:
    """What was chosen, of which `examined` photographs, of which so many `passed`; and the files left out, with why.

    `photographs` are the images, the first `images` of them, and then those that are in grids alone.
    """

    settings: Settings
    photographs: tuple[Chosen, ...]
    images: int
    grids: tuple[Grid, ...]
    examined: int
    passed: int
    unreadable: Mapping[str, str]

    def __post_init__(self) -> None:
        count, size = len(self.photographs), self.settings.m**2
        if not 0 <= self.images <= count:
            raise ArgumentError(f"images={self.images} with {count} photographs: it is how many of them are images.")
        for grid in self.grids:
            if len(grid.cells) != size or not 0 <= grid.cell < size or not set(grid.cells) <= set(range(count)):
                raise ArgumentError(
                    f"grids has {grid}: give m² = {size} indices of the {count} photographs, and one of the cells."
                )

    def save(self, path: str | Path) -> Path:
        """Write a JSON file that people can read; equal selections make equal files."""
        return write_atomically(path, _to_text(_sealed(asdict(self))).encode())

    @classmethod
    def load(cls, path: str | Path) -> Selection:
        """The selection that was saved at `path`."""
        content = _read_content(Path(path))
        content["settings"] = Settings(**content["settings"])
        content["photographs"] = tuple(Chosen(**chosen) for chosen in content["photographs"])
        content["grids"] = tuple(Grid(tuple(grid["cells"]), grid["cell"]) for grid in content["grids"])
        return cls(**content)


def read_chosen(folder: str | Path, chosen: Chosen, size: int | None = 224) -> Tensor:
    """A chosen photograph as (3, size, size) in [0, 1], provided that its file is still the same."""
    data = read_file(locate(folder), chosen.file)
    if (digest := sha256(data)) != chosen.digest:
        raise ArgumentError(
            f"{chosen.file} in folder={folder} has changed since it was chosen (SHA-256 {digest[:12]}…, then "
            f"{chosen.digest[:12]}…): put the old file back, or choose again."
        )
    return decode(data, chosen.file, size)


def read_file(folder: Path, file: str) -> bytes:
    try:
        return (folder / file).read_bytes()
    except OSError as error:
        raise ImageError(f"{file} cannot be read ({error.strerror}): check that the folder still has it.") from error


def decode(data: bytes, file: str, size: int | None) -> Tensor:
    """The bytes of an image file as (3, size, size); `file` names it in messages."""
    content = io.BytesIO(data)
    content.name = file
    return load_image(content, size)


def _sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """`content` under its kind and version, and with a checksum at the end."""
    headed = {"kind": KIND, "version": VERSION, "about": ABOUT, **content}
    return {**headed, "checksum": sha256(_to_text(headed).encode())}


def _read_content(path: Path) -> dict[str, Any]:
    """What was saved, exactly: only then does the checksum agree."""
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise ArgumentError(f"{path} cannot be read ({error.strerror}): check the path.") from error
    except ValueError as error:
        raise ArgumentError(f"{path} is damaged, cut short, or no JSON file ({error}): choose again.") from error
    if not isinstance(content, dict) or content.get("kind") != KIND:
        raise ArgumentError(f"{path} is not a {KIND}: give a file that Selection.save wrote.")
    version = content.get("version")
    if not isinstance(version, int) or version > VERSION:
        raise ArgumentError(
            f"{path} has layout version {version!r} and this pixelcert reads up to {VERSION}: upgrade pixelcert."
        )
    checksum = content.pop("checksum", None)
    if checksum != sha256(_to_text(content).encode()):
        raise ArgumentError(f"{path} was changed or damaged: its contents do not match their checksum. Choose again.")
    return {name: value for name, value in content.items() if name not in ("kind", "version", "about")}


def _to_text(content: Mapping[str, Any]) -> str:
    return json.dumps(content, indent=1)
