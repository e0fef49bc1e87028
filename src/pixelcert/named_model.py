"""A model as the options --model, --weights and --device name it."""

from __future__ import annotations

from pathlib import Path

from .device import check_device
from .errors import ArgumentError, ModelError
from .models import Classifier, load_model


def check_model_options(weights: str, device: str | None) -> None:
    """Refuse what no model can be loaded with, before any is."""
    check_device(device)
    if weights not in ("DEFAULT", "none") and not Path(weights).is_file():
        raise ArgumentError(f"--weights {weights} is not a file: check the path, or give DEFAULT or none.")


def load_named_model(name: str, weights: str, device: str | None) -> Classifier:
    """`load_model`, whose errors speak of the options."""
    try:
        return load_model(name, None if weights == "none" else weights, device)
    except ModelError as error:
        said = str(error).replace("weights=None", "--weights none").replace("weights=", "--weights ")
        raise ModelError(said) from error
