"""The machine: devices, compilers, and TF32 on NVIDIA's GPUs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch

from .messages import ArgumentError


def check_device(device: str | None) -> None:
    """Refuse a device that cannot hold a number and give it back, before a network is loaded for it."""
    if not device:
        return
    try:
        torch.zeros(1, device=device).item()
    except Exception as error:  # torch raises anything for devices that it knows by name alone
        reason = str(error).partition("\n")[0]
        raise ArgumentError(f"device={device} cannot be used ({reason}): leave it out, or use cpu.") from error


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


class _Switch(NamedTuple):
    """torch has two for each, and refuses to read the older one after the newer one was used."""

    older: Any  # has allow_tf32
    newer: Any  # has fp32_precision

    def read(self) -> bool | str:
        try:
            return bool(self.older.allow_tf32)
        except RuntimeError:
            return str(self.newer.fp32_precision)

    def write(self, value: bool | str) -> None:
        if isinstance(value, bool):
            self.older.allow_tf32 = value
        else:
            self.newer.fp32_precision = value


def _switches() -> tuple[_Switch, _Switch]:
    cudnn, products = torch.backends.cudnn, torch.backends.cuda.matmul
    return _Switch(cudnn, getattr(cudnn, "conv", None)), _Switch(products, products)


def tf32_allowed() -> tuple[bool, bool]:
    """For convolutions, and for products."""
    convolutions, products = (switch.read() in (True, "tf32") for switch in _switches())
    return convolutions, products


@contextmanager
def tf32(allowed: bool) -> Iterator[None]:
    """While active, it is allowed for both, or for neither."""
    before = [(switch, switch.read()) for switch in _switches()]
    try:
        for switch, value in before:
            switch.write(allowed if isinstance(value, bool) else "tf32" if allowed else "ieee")
        yield
    finally:
        for switch, value in before:
            switch.write(value)
