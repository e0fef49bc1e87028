"""Studies of a second: a tiny network, photographs of noise, and a study file of a few words."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn

import pixelcert as pc
from pixelcert.photographs import Chosen
from pixelcert.study.inventory import ModelFacts
from pixelcert.study.job import Job, Scene

SIZE = 24  # of the tiny model's images; 26 samples certify such an image at τ = 0.6, 38 at 0.7 and 47 at 0.75
N = 40
CLASSES = tuple(f"class {index}, of ten" for index in range(10))


class Net(nn.Module):
    """One convolution, pooling and `head`: for images of any size."""

    def __init__(self, *head: nn.Module) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 16, 5, padding=2), nn.Softplus())
        self.head = nn.Sequential(*head)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(images).mean(dim=(2, 3)))


def _classifier(name: str, *head: nn.Module) -> pc.Classifier:
    net = Net(*head)
    generator = torch.Generator().manual_seed(0)
    for parameter in net.parameters():
        nn.init.normal_(parameter, generator=generator)
    return pc.Classifier(net, mean=(0.5,) * 3, std=(0.25,) * 3, name=name, classes=CLASSES, size=SIZE)


# ── Models, for a study file's package.module:function ────────────────────────────────────────────────────────────


def tiny() -> pc.Classifier:
    return _classifier("tiny", nn.Linear(16, 10))


def crooked() -> pc.Classifier:
    """A model that CAM cannot explain, because its head is not linear."""
    return _classifier("crooked", nn.Linear(16, 12), nn.Tanh(), nn.Linear(12, 10))


def resnet() -> pc.Classifier:
    return _small("resnet")


def vgg() -> pc.Classifier:
    return _small("vgg")


def vit() -> pc.Classifier:
    return _small("vit")


def _small(name: str) -> pc.Classifier:
    from small_networks import small_model  # imports torchvision, which takes longer than a study

    return small_model(name)


# ── Photographs and study files ───────────────────────────────────────────────────────────────────────────────────


def photographs(folder: Path, labels: Sequence[int | None] = (3, 1, 4, 5), size: int = SIZE, seed: int = 0) -> Path:
    """Make a folder of photographs 0.png, 1.png, …, blots with sharp edges, and a labels.csv if all are labelled."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(len(labels)):
        random = np.random.default_rng([seed, number])
        blots = random.integers(0, 256, (6, 6, 3), dtype=np.uint8).repeat(-(-size // 6), 0).repeat(-(-size // 6), 1)
        Image.fromarray(np.ascontiguousarray(blots[:size, :size])).save(folder / f"{number}.png")
    if None not in labels:
        lines = [f"{number}.png,{label}" for number, label in enumerate(labels)]
        (folder / "labels.csv").write_text("\n".join(["file,label", *lines]) + "\n")
    return folder


SMALL: Mapping[str, Any] = {
    "models": ["tiny"],
    "methods": ["grad"],
    "layers": ["input"],
    "n": N,
    "levels": [50, 10],
    "tau": [0.6],
    "images": {"folder": "photos"},
    "model": {"tiny": {"model": "small_studies:tiny"}},
}


def toml(settings: Mapping[str, Any], table: str = "") -> str:
    """Write settings as TOML, where numbers, texts and lists look as in JSON."""
    plain = {name: value for name, value in settings.items() if not isinstance(value, Mapping)}
    lines = [f"{json.dumps(name)} = {json.dumps(value)}" for name, value in plain.items()]
    text = "\n".join([f"[{table}]" if table else "", *lines, ""])
    for name, value in settings.items():
        if isinstance(value, Mapping):
            text += toml(value, f"{table}.{json.dumps(name)}" if table else json.dumps(name))
    return text


def write_study(path: Path, **changes: Any) -> Path:
    """Write the small study's file, with changes; None leaves a key out."""
    settings = {name: value for name, value in {**SMALL, **changes}.items() if value is not None}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(toml(settings), encoding="utf-8")
    return path


def small_study(folder: Path, **changes: Any) -> pc.Study:
    """Make a study of four photographs in `folder`, and the photographs if they are not there yet."""
    if not (folder / "photos").exists():
        photographs(folder / "photos")
    return pc.Study.open(write_study(folder / "study.toml", **changes))


# ── Jobs that nobody does ─────────────────────────────────────────────────────────────────────────────────────────

FACTS = ModelFacts("mine", "resnet18", "ab" * 32, image_size=8, cell_size=8, grid_size=16)
PHOTOS = tuple(Chosen(f"{index}.png", f"{index:064x}", 100 + index, True, {}) for index in range(4))
IMAGE, GRID = Scene("0.png", PHOTOS[:1]), Scene("grid 0", PHOTOS, side=2, cell=1)
JOB = Job(FACTS, "few masks", "rise", {"masks": 3}, "input", "default", pc.Plan(n=30, levels=(50, 10), seed=0), GRID)


def job(**changes: Any) -> Job:
    """Return one job, on a grid unless told otherwise."""
    return replace(JOB, **changes)
