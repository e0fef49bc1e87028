"""Importing torchvision where its compiled operators cannot load.

The torchvision wheel on PyPI is built against a CUDA torch. Beside a CPU-only torch its operators do not load, and
``import torchvision`` stops with "operator torchvision::nms does not exist", because it registers shapes for two of
them. Classifiers and transforms use none. Declaring the two operators, without a body, lets the import pass.
"""

from __future__ import annotations

import sys
from types import ModuleType

import torch

from ..errors import ModelError

_MISSING = "operator torchvision::nms does not exist"
_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


def torchvision_models() -> ModuleType:
    """``torchvision.models``, whichever build of torch is beside it."""
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
            del sys.modules[name]  # what the failed import left behind
        for operator in ("nms", "qnms"):
            torch.library.define(f"torchvision::{operator}", _SCHEMA)
        import torchvision
    models: ModuleType = torchvision.models
    return models
