"""The machine: devices, compilers, and TF32 on NVIDIA's GPUs."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch

from .messages import ArgumentError

# Images of 224 × 224 × 3 that go through a network at once: a CPU's cache holds few, a GPU is filled by many.
_BATCH = {"cpu": 16}
_BATCH_ACCELERATOR = 256


def images_per_batch(device: torch.device, values: int) -> int:
    """Return how many inputs of so many values each fill the device in one batch."""
    full = _BATCH.get(device.type, _BATCH_ACCELERATOR)
    return max(1, math.floor(full * 3 * 224 * 224 / values))


def out_of_memory(error: BaseException) -> bool:
    """Return True for every way in which torch and Python say that memory ran out."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    phrases = ("can't allocate memory", "not enough memory", "out of memory", "ALLOC_FAILED")  # CPU, MPS, cuDNN, cuBLAS
    return any(phrase in str(error) for phrase in phrases)


def device_name(device: torch.device) -> str:
    """Return the name of a GPU's model, or the type of any other device."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


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
    """Return True if our own GPU kernels can be built; without them torch's functions give the same, slower."""
    return device.type == "cuda" and not missing_for_compiling(device)


def missing_for_compiling(device: torch.device) -> str:
    """Return what `torch.compile` lacks for `device`, with the remedy; "" if nothing."""
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
    """One of torch's two switches for each; the older cannot be read once the newer was used."""

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
    """Return True or False for convolutions, and for matrix products."""
    convolutions, products = (switch.read() in (True, "tf32") for switch in _switches())
    return convolutions, products


@contextmanager
def tf32(allowed: bool) -> Iterator[None]:
    """Allow or forbid TF32 for convolutions and matrix products inside the block."""
    before = [(switch, switch.read()) for switch in _switches()]
    try:
        for switch, value in before:
            switch.write(allowed if isinstance(value, bool) else "tf32" if allowed else "ieee")
        yield
    finally:
        for switch, value in before:
            switch.write(value)
