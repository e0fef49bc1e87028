"""What this machine has for building kernels at run time."""

from __future__ import annotations

import os
import shutil
from functools import cache
from importlib.util import find_spec

import torch


def can_run_triton(device: torch.device) -> bool:
    """Whether our own GPU kernels can be built for `device`; without them torch's functions do the same, slower."""
    return device.type == "cuda" and not missing_for_compiling(device)


def missing_for_compiling(device: torch.device) -> str:
    """What `torch.compile` lacks for `device` and the remedy, in words; "" if nothing."""
    return _missing(device.type == "cuda")


@cache
def _missing(triton: bool) -> str:
    if triton and find_spec("triton") is None:
        return "compiling for this GPU needs Triton: pip install triton"
    compilers = (os.environ.get("CC"), os.environ.get("CXX"), "cc", "gcc", "clang", "c++", "g++")
    if not any(shutil.which(name) for name in compilers if name):
        return "compiling needs a C compiler: install one, such as gcc"
    return ""
