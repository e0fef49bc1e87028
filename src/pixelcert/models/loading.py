"""Loading models by name: torchvision's classifiers, the embedded one, and a user's own ``package.module:function``."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from ..errors import ModelError
from . import embedded
from .classifier import IMAGENET_MEAN, IMAGENET_STD, Classifier
from .torchvision_import import torchvision_models

PAPER_MODELS = ("resnet18", "wide_resnet50_2", "resnet152", "vgg11", "vit_b_16")


def load_model(
    name: str, weights: str | Path | None = "DEFAULT", device: torch.device | str | None = None
) -> Classifier:
    """A classifier by name.

    Args:
        name: one of torchvision's classifiers ("resnet18", "vit_b_16", …), the embedded "efficientnet_lite0", or
            "package.module:function" for a function without arguments that returns a `Classifier`.
        weights: "DEFAULT" for torchvision's own (downloaded once), the path of a `.safetensors` or `.pth` state dict
            (no pickled code is run), or None for random weights. The embedded model brings its own.
        device: where to put it; a GPU if there is one.
    """
    if weights != "DEFAULT" and (":" in name or name == embedded.NAME):
        raise ModelError(f"weights={weights} cannot be given: {name} brings its own.")
    if ":" in name:
        model = _from_function(name)
    elif name == embedded.NAME:
        model = embedded.load_embedded()
    else:
        model = _from_torchvision(name, weights)
    return model.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))


def model_names() -> list[str]:
    """Every name that `load_model` knows, the paper's five first."""
    models = torchvision_models()
    others = [name for name in models.list_models(module=models) if name not in PAPER_MODELS]
    return [embedded.NAME, *PAPER_MODELS, *others]


def _from_torchvision(name: str, weights: str | Path | None) -> Classifier:
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
                f"file, or weights=None for random ones."
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
    )


def _load_weights(net: nn.Module, path: Path) -> None:
    state = _read_state_dict(path)
    try:
        net.load_state_dict(state)
    except RuntimeError as error:
        raise ModelError(
            f"weights={path} are not those of {type(net).__name__}: give a file of this model's. {str(error)[:400]} …"
        ) from error


def _read_state_dict(path: Path) -> dict[str, Tensor]:
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise ModelError(f"weights={path} does not exist: check the path.") from error
    except Exception as error:  # what is no checkpoint makes torch raise anything
        raise ModelError(
            f"weights={path} cannot be read as a plain state dict ({type(error).__name__}): pickled objects are never "
            f"loaded, since that runs code. Save it with torch.save(net.state_dict(), path) or safetensors."
        ) from error
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise ModelError(f"weights={path} is a checkpoint, not a state dict: save net.state_dict() alone.")
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
