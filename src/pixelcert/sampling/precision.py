"""Precision: settle how an explainer is computed: number format, compiling, batch size.

A certificate is about the function as it is computed, so a lower precision is as sound as a higher one: it is another,
slightly different explainer, and the votes' provenance says which. docs/performance.md has the measured effects behind
"auto".
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import compress
from typing import NamedTuple, get_args

import torch

from ..basics.machine import images_per_batch, missing_for_compiling, tf32, tf32_allowed, why_not_triton
from ..basics.messages import ArgumentError, ModelError
from ..explainer import Explainer, Precision, Tuning
from ..votes import Provenance

_LONG = 4_000_000  # passes of 224 × 224 pixels from which compiling saves more time than it takes
# Batches that one call of the explainer may take on an accelerator: few, so that progress shows and little is lost when
# the process ends. A CPU takes one.
_CALL = 64


class Settled(NamedTuple):
    """A tuning with nothing left open, and the faster ways that "auto" did not take, each with the reason."""

    tuning: Tuning
    steps: dict[str, str]  # for the provenance


def settle(explainer: Explainer, tuning: Tuning, device: torch.device, values: int, passes: float = 0) -> Settled:
    """Settle what `tuning` leaves open, and refuse settings that are not possible.

    - precision "auto": bfloat16 on GPUs that have it, where the method bears it; float32 elsewhere. A black box, and a
      model that is not in float32, are left as they are.
    - compile "auto": on a GPU with Triton and a C compiler, for methods that can be compiled, when the wait pays for so
      many `passes` of 224 × 224 pixels.
    - batch size: what fills the device with images of so many values.
    """
    tuning.check()
    precision, not_bfloat16 = _choose_precision(explainer, device, tuning.precision)
    not_compiled = _why_not_compiled(explainer, device, tuning, precision, passes)
    reasons = {"bfloat16": not_bfloat16, "compiled": not_compiled if tuning.compile == "auto" else ""}
    steps = {name: f"no ({why})" for name, why in reasons.items() if why}
    if why := why_not_triton(device):
        steps["kernels"] = f"torch ({why})"
    size = tuning.batch_size or choose_batch_size(explainer, device, values)
    return Settled(Tuning(size, precision, not not_compiled), steps)


def settle_as(source: Provenance, explainer: Explainer, device: torch.device, batch_size: int | None) -> Tuning:
    """Return the tuning with which votes of `source` were computed, as far as this machine has it.

    A black box keeps its own.
    """
    own, size = own_precision(explainer, device), batch_size or source.batch_size
    known = source.precision in get_args(Precision) and (_is_single(own) or own == source.precision)
    if known and explainer.tunable:
        return Tuning(size, source.precision, source.compiled and not missing_for_compiling(device))
    return Tuning(size, own, False)


def choose_batch_size(explainer: Explainer, device: torch.device, values: int) -> int:
    """Return how many noisy images of `values` numbers one call takes, given the passes that each needs."""
    full = images_per_batch(device, values)
    calls = 1 if device.type == "cpu" else _CALL
    return max(1, min(full, calls * full // max(1, explainer.passes)))


def own_precision(explainer: Explainer, device: torch.device) -> str:
    """Return the number format of the explainer's model as it is, and where torch may round it further."""
    dtype = explainer.model.precision
    in_tf32 = tf32_allowed() if device.type == "cuda" and dtype == "float32" else (False, False)
    rounded = (*in_tf32, torch.is_autocast_enabled(device.type))
    return ", ".join((dtype, *compress(("tf32 convolutions", "tf32 products", "autocast"), rounded)))


@contextmanager
def rounding(tuning: Tuning, device: torch.device) -> Iterator[None]:
    """Make a GPU's results repeatable, and round float32 to TF32 for all tunings but "float32", inside the block.

    These are settings of the whole process, so one thread enters the block at a time.
    """
    if device.type != "cuda" or tuning.precision not in ("float32", "tf32", "bfloat16"):
        yield
        return
    cudnn = torch.backends.cudnn
    with tf32(allowed=tuning.precision != "float32"):
        before, cudnn.deterministic = cudnn.deterministic, True
        try:
            yield
        finally:
            cudnn.deterministic = before


def _choose_precision(explainer: Explainer, device: torch.device, asked: str) -> tuple[str, str]:
    """Return the number format, and why "auto" did not take bfloat16 where it might have."""
    own = own_precision(explainer, device)
    single = _is_single(own)
    if asked == "auto" and explainer.tunable and single:
        why = _why_not_bfloat16(explainer, device)
        return "float32" if why else "bfloat16", why
    if asked == "auto":
        return own, ""
    if asked == "tf32" and device.type != "cuda":
        raise ArgumentError(f"precision='tf32' is a format of NVIDIA's GPUs, and this is {device}: use float32.")
    if not single and own != asked:
        raise ArgumentError(f"precision={asked!r} is for networks in float32, and this is {own}: use auto.")
    if asked == "bfloat16" and not explainer.tunable:
        raise ArgumentError("precision='bfloat16' cannot be given to a black box: cast its network, and use auto.")
    return asked, ""


def _why_not_bfloat16(explainer: Explainer, device: torch.device) -> str:
    """Return why "auto" stays with float32; "" if bfloat16 will do. The copy that is made to try it is kept."""
    if device.type != "cuda":
        return "not an NVIDIA GPU"
    if torch.cuda.get_device_capability(device) < (8, 0):
        return "the GPU has no bfloat16"
    if not explainer.bears_bfloat16:
        return "the method's certificates would change"
    return _why_not_tuned(explainer, Tuning(1, "bfloat16", False))


def _why_not_tuned(explainer: Explainer, tuning: Tuning) -> str:
    """Return why the network has no copy of this kind; "" if it has."""
    try:
        explainer.tuned(tuning)
    except ModelError as error:
        return str(error)
    return ""


def _why_not_compiled(explainer: Explainer, device: torch.device, asked: Tuning, precision: str, passes: float) -> str:
    """Return why the network is not compiled, "" if it is; refuse to compile where that is not possible."""
    if asked.compile is False:
        return "not asked for"
    if not explainer.tunable:
        problem = "a black box cannot be compiled from outside: compile its network yourself"
    elif not explainer.fusable:
        problem = f"{explainer.name} changes functions of the network as it runs, which a compiler does not see"
    else:
        problem = missing_for_compiling(device)
    if problem and asked.compile is True:
        raise ArgumentError(f'compile=True: {problem}, or use "auto".')
    if problem or asked.compile is True:
        return problem
    if device.type != "cuda":
        return "not an NVIDIA GPU"
    if not explainer.compilable:
        return f"{explainer.name} runs the network at many sizes"
    if passes < _LONG:
        return "the wait would not pay"
    return _why_not_tuned(explainer, Tuning(1, precision, True))


def _is_single(own: str) -> bool:
    """Return True if a model's own precision is float32, however torch may round that on a GPU."""
    return own.startswith("float32") and "autocast" not in own
