"""Tuning: the number format that an explainer is sampled in, whether it is compiled, and the explainer that has both.

A certificate is about the function as it is computed, so a lower precision is as sound as a higher one: it is another,
slightly different explainer, and the votes' provenance says which. docs/performance.md has the measured effects that
"auto" goes by.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, get_args

import torch

from ..basics.machine import missing_for_compiling, tf32
from ..basics.messages import ArgumentError, ModelError
from ..explainer import Explainer, own_precision
from ..plan import check_choice
from ..votes import Provenance

Precision = Literal["auto", "float32", "tf32", "bfloat16"]
Compile = bool | Literal["auto"]

_LONG = 4_000_000  # network runs of 224 × 224 pixels from which compiling saves more time than it takes


class Tuning(NamedTuple):
    """How an explainer is computed."""

    precision: str  # "float32", "tf32", "bfloat16", or what a black box or a model of another format computes in
    compiled: bool = False


def choose_tuning(
    explainer: Explainer, device: torch.device, precision: Precision, compile: Compile, runs: float
) -> Tuning:
    """What "auto" stands for, and a refusal of what cannot be had, with so many `runs` on 224 × 224 pixels ahead.

    - precision "auto": bfloat16 on GPUs that have it, where the method bears it; float32 elsewhere; a black box, and a
      model that is not in float32, are left as they are.
    - compile "auto": on a GPU with Triton and a C compiler, for methods that can be compiled, when the wait pays.
    """
    check_choice("precision", precision, Precision)
    if compile not in (True, False, "auto"):
        raise ArgumentError(f'compile={compile!r} is not known: use True, False or "auto".')
    tunable = hasattr(explainer, "tuned")
    return Tuning(
        _choose_precision(explainer, device, precision, tunable),
        _choose_compile(explainer, device, compile, tunable, runs),
    )


def tuning_of(source: Provenance, explainer: Explainer, device: torch.device) -> Tuning:
    """How votes of `source` were computed, as far as the explainer can be told; a black box is as it is."""
    own = own_precision(explainer, device)
    known = source.precision in get_args(Precision) and (_is_single(own) or own == source.precision)
    return Tuning(source.precision, source.compiled) if known and hasattr(explainer, "tuned") else Tuning(own)


def tune(explainer: Explainer, tuning: Tuning) -> Explainer:
    """The explainer that computes so; a black box stays what it is."""
    if not hasattr(explainer, "tuned"):
        return explainer
    tuned: Explainer = explainer.tuned(torch.bfloat16 if tuning.precision == "bfloat16" else None, tuning.compiled)
    return tuned


@contextmanager
def rounding(tuning: Tuning, device: torch.device) -> Iterator[None]:
    """While active, a GPU repeats itself exactly, and rounds float32 to TF32 for all tunings but "float32".

    These are settings of the whole process: sample from one thread at a time.
    """
    if device.type != "cuda" or tuning.precision not in ("float32", "tf32", "bfloat16"):
        yield
        return
    cudnn = torch.backends.cudnn
    before, cudnn.deterministic = cudnn.deterministic, True
    try:
        with tf32(allowed=tuning.precision != "float32"):
            yield
    finally:
        cudnn.deterministic = before


def _choose_precision(explainer: Any, device: torch.device, precision: Precision, tunable: bool) -> str:
    own = own_precision(explainer, device)
    single = _is_single(own)
    if precision == "auto":
        if not (tunable and single):
            return own
        faster = _has_bfloat16(device) and explainer.bears_bfloat16 and _computes_in_bfloat16(explainer)
        return "bfloat16" if faster else "float32"
    if precision == "tf32" and device.type != "cuda":
        raise ArgumentError(f"precision='tf32' is a format of NVIDIA's GPUs, and this is {device}: use float32.")
    if not single and own != precision:
        raise ArgumentError(f"precision={precision!r} is for networks in float32, and this is {own}: use auto.")
    if precision == "bfloat16" and not tunable:
        raise ArgumentError("precision='bfloat16' cannot be given to a black box: cast its network, and use auto.")
    return precision


def _choose_compile(explainer: Any, device: torch.device, compile: Compile, tunable: bool, runs: float) -> bool:
    pays = device.type == "cuda" and runs >= _LONG and not getattr(explainer, "runs_crops", False)
    if compile is False or (compile == "auto" and not pays):
        return False
    problem = ""
    if not tunable:
        problem = "a black box cannot be compiled from outside: compile its network yourself"
    elif not explainer.only_calls:
        problem = f"{explainer.name} changes functions of the network as it runs, which a compiler does not see"
    else:
        problem = missing_for_compiling(device)
    if problem and compile is True:
        raise ArgumentError(f'compile=True: {problem}, or use "auto".')
    return not problem


def _computes_in_bfloat16(explainer: Any) -> bool:
    """Whether its network does, by trying; the copy that is made for it is kept."""
    try:
        explainer.tuned(torch.bfloat16, False)
    except ModelError:
        return False
    return True


def _is_single(own: str) -> bool:
    """Whether a model's own precision is float32, however torch may round that on a GPU."""
    return own.startswith("float32") and "autocast" not in own


def _has_bfloat16(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)
