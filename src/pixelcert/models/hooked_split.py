"""Splitting a network that cannot be traced: its layer is read, and replaced, by hooks while the whole network runs.

The head then costs a whole run. Where `torch.fx` can trace the network, `split_at` is used instead, and it does not.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..errors import ModelError


class HookedSplit:
    """`net` before and after the last call of the module named `layer`; it leaves no hook behind."""

    def __init__(self, net: nn.Module, layer: str) -> None:
        self._net, self._layer = net, layer
        self._module = net.get_submodule(layer)
        self._input: torch.Size | None = None  # of the images last seen, without the batch
        self._calls = 0
        self._checked = False

    def body(self, inputs: Tensor) -> Tensor:
        """Normalised images (B, C, H, W) → what the layer returns at its last call."""
        outputs: list[Any] = []
        with self._module.register_forward_hook(lambda module, args, output: outputs.append(_first(output))):
            answer = self._net(inputs)
        if not outputs or not isinstance(outputs[-1], Tensor):
            raise ModelError(
                f"layer={self._layer!r} returns no tensor when {type(self._net).__name__} runs: name another."
            )
        self._input, self._calls = inputs.shape[1:], len(outputs)
        self._check(outputs[-1], answer)
        return outputs[-1]

    def head(self, features: Tensor) -> Any:
        """The network's answer when the layer returns `features`, whatever the image is."""
        assert self._input is not None, "the body runs before the head"
        calls = 0

        def replace(module: nn.Module, args: Any, output: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls < self._calls:
                return output
            fresh = features.clone()  # what follows may work in place
            return fresh if isinstance(output, Tensor) else (fresh, *output[1:])

        with self._module.register_forward_hook(replace):
            return self._net(features.new_zeros(len(features), *self._input))

    def _check(self, features: Tensor, answer: Any) -> None:
        """Once: with a blank image the head must still give the answer, or it uses more than the layer."""
        if self._checked:
            return
        with torch.no_grad():
            again, expected = _logits(self.head(features)), _logits(answer)
        if not torch.allclose(again, expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max())):
            raise ModelError(
                f"layer={self._layer!r} is bypassed: what follows also uses the input. Name a later layer."
            )
        self._checked = True


def _first(output: Any) -> Any:
    """A layer's tensor, copied before what follows can change it in place."""
    tensor = output[0] if isinstance(output, (tuple, list)) else output
    return tensor.clone() if isinstance(tensor, Tensor) else tensor


def _logits(answer: Any) -> Tensor:
    logits: Tensor = getattr(answer, "logits", answer)
    return logits.detach()
