"""ReLUs made smooth while a block runs, so that gradients of gradients say something.

The gradient of a ReLU network is constant in pieces: its own slope is zero almost everywhere, and an attack on a
gradient map has nothing to climb. Softplus in place of ReLU gives it a slope (Dombrowski et al., 2019; Ghorbani et al.,
2019). The network itself is untouched, and is never judged by this stand-in.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..models.relus import EveryReLU

SHARPNESS = 10.0  # of softplus: log(1 + exp(s·x)) / s


def smooth_relus(guided: bool = False) -> EveryReLU:
    """While active, ReLU and ReLU6 are smooth; `guided` ones pass back positive parts."""
    return EveryReLU(_Guided.apply if guided else _softplus)


class _Guided(torch.autograd.Function):
    """Softplus whose gradient passes back its positive part alone. Its own slope is torch's to find."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, ceiling: float) -> Tensor:
        ctx.save_for_backward(values)
        ctx.ceiling = ceiling
        return _softplus(values, ceiling)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (values,) = ctx.saved_tensors
        gate = torch.sigmoid(SHARPNESS * values)
        if ctx.ceiling < math.inf:
            gate = gate - torch.sigmoid(SHARPNESS * (values - ctx.ceiling))
        return gradient.clamp_min(0) * gate, None


def _softplus(values: Tensor, ceiling: float) -> Tensor:
    smooth = F.softplus(values, SHARPNESS)
    return smooth - F.softplus(values - ceiling, SHARPNESS) if ceiling < math.inf else smooth
