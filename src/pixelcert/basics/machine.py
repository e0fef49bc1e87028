"""The machine: devices, compilers, and TF32 on NVIDIA's GPUs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from errno import ENOMEM
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch

from .locks import one_at_a_time
from .messages import ArgumentError


def images_per_batch(device: torch.device, values: int) -> int:
    """Return how many inputs of `values` numbers each fill the device in one batch."""
    # A CPU's cache holds few inputs of 224 × 224 × 3, and a GPU needs many to be busy.
    return max(1, (16 if device.type == "cpu" else 256) * 3 * 224 * 224 // values)


def out_of_memory(error: BaseException) -> bool:
    """Return True for every way in which torch and Python say that memory ran out."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    if isinstance(error, OSError) and error.errno == ENOMEM:  # of a file that is mapped
        return True
    phrases = ("can't allocate memory", "not enough memory", "out of memory", "ALLOC_FAILED")  # CPU, MPS, cuDNN, cuBLAS
    return any(phrase in str(error) for phrase in phrases)


def device_name(device: torch.device) -> str:
    """Return the name of a GPU's model, or the type of any other device."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def processor(device: torch.device) -> str:
    """Return what decides how a CPU rounds, besides the libraries: its instructions and the number of threads.

    Other devices round as their name says, so for them it is "".
    """
    if device.type != "cpu":
        return ""
    return f"{torch.backends.cpu.get_cpu_capability()}, {torch.get_num_threads()} threads"


def check_device(device: str | None) -> None:
    """Refuse a device that cannot be used, before a network is loaded for it."""
    try:
        torch.zeros(1, device=device or None).item()
    except Exception as error:  # torch raises anything for devices that it knows by name only
        raise ArgumentError(why_unusable(device, error)) from error


def why_unusable(device: object, error: Exception) -> str:
    """Say that a device raised this error."""
    return f"device={device} cannot be used ({str(error).partition(chr(10))[0]}): leave it out, or use cpu."


def why_not_triton(device: torch.device) -> str:
    """Return why pixelcert's GPU kernels cannot be built, "" if they can; torch then gives the same results, slower."""
    return missing_for_compiling(device) if device.type == "cuda" else "not an NVIDIA GPU"


def can_run_triton(device: torch.device) -> bool:
    return not why_not_triton(device)


@cache
def missing_for_compiling(device: torch.device) -> str:
    """Return what `torch.compile` lacks for `device`, with the remedy; "" if nothing."""
    if device.type == "cuda" and find_spec("triton") is None:
        return "compiling for this GPU needs Triton: pip install triton"
    compilers = (os.environ.get("CC"), os.environ.get("CXX"), "cc", "gcc", "clang", "c++", "g++")
    if not any(shutil.which(name) for name in compilers if name):
        return "compiling needs a C compiler: install one, such as gcc"
    return ""


def _switch(older: Any, newer: Any) -> tuple[Any, str]:
    """Return owner and name of the switch to read: torch refuses the older one once the newer was used."""
    try:
        bool(older.allow_tf32)
    except RuntimeError:
        return newer, "fp32_precision"
    return older, "allow_tf32"


def _switches() -> tuple[tuple[Any, str], tuple[Any, str]]:
    cudnn, products = torch.backends.cudnn, torch.backends.cuda.matmul
    return _switch(cudnn, getattr(cudnn, "conv", None)), _switch(products, products)


def tf32_allowed() -> tuple[bool, ...]:
    """Return two flags: TF32 is allowed for convolutions, and for matrix products."""
    return tuple(getattr(*switch) in (True, "tf32") for switch in _switches())


@contextmanager
def tf32(allowed: bool) -> Iterator[None]:
    """Allow or forbid TF32 for convolutions and matrix products inside the block, which one thread enters at a time."""
    values = {"allow_tf32": allowed, "fp32_precision": "tf32" if allowed else "ieee"}
    with one_at_a_time:
        before = [(*switch, getattr(*switch)) for switch in _switches()]
        try:
            for owner, name, _ in before:
                setattr(owner, name, values[name])
            yield
        finally:
            for switch in before:
                setattr(*switch)
