"""Small photographs of plain colours, in folders, and a network that tells the colours apart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import pixelcert as pc
from pixelcert.photographs import find_photographs

WNIDS = [f"n{1_000_000 + 37 * rank:08d}" for rank in range(1000)]  # in sorted order: the index is the rank
PALETTE = [[r, g, b] for r in (0, 127, 255) for g in (0, 127, 255) for b in (0, 255)]  # 18 classes of colours


def photo(path: Path, colour: Sequence[int] = (10, 200, 90), size: int = 8) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (size, size), tuple(colour)).save(path)
    return path


def write(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def found(folder: str | Path, **options: object) -> dict[str, int | None]:
    photographs = find_photographs(folder, **options)  # type: ignore[arg-type]
    assert [photograph.file for photograph in photographs] == sorted(photograph.file for photograph in photographs)
    return {photograph.file: photograph.target for photograph in photographs}


def refused(match: str) -> pytest.RaisesExc:
    return pytest.raises(pc.ArgumentError, match=match)


class ColourNet(nn.Module):
    """A network that predicts the colour nearest to the image's mean, the more surely the nearer it is."""

    def __init__(self, strength: float = 200) -> None:
        super().__init__()
        self.colours = nn.Parameter(torch.tensor(PALETTE) / 255)
        self.strength = strength

    def forward(self, images: Tensor) -> Tensor:
        return -self.strength * (images.mean(dim=(2, 3))[:, None] - self.colours).square().sum(dim=2)


def colour_model(name: str = "colours", **options: float) -> pc.Classifier:
    return pc.Classifier(ColourNet(**options), (0, 0, 0), (1, 1, 1), name=name, size=8)
