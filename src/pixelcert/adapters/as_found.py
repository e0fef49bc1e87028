"""Leaving a network as it was found, whatever a foreign explanation does to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

_HOOKS = (
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_backward_hooks",
    "_backward_pre_hooks",
)


@contextmanager
def as_found(net: nn.Module) -> Iterator[None]:
    """Afterwards `net` has its old submodules, hooks, modes, gradients and `requires_grad`, also after an error.

    Hooks that an object registered before, when it was made, are part of what was found. Values of parameters are not
    watched, since that would take a copy of the network.
    """
    modules = [(module, module.training, dict(module._modules), _hooks(module)) for module in net.modules()]
    parameters = [(parameter, parameter.requires_grad, parameter.grad) for parameter in net.parameters()]
    for parameter, _, _ in parameters:
        parameter.grad = None  # what is added to a gradient must not be added to the one that was found
    try:
        yield
    finally:
        for module, training, children, hooks in modules:
            module.training = training
            module._modules.update(children)
            for kind, known in hooks.items():
                registered = getattr(module, kind)
                for key in registered.keys() - known:
                    del registered[key]
        for parameter, requires_grad, gradient in parameters:
            parameter.requires_grad_(requires_grad)
            parameter.grad = gradient


def _hooks(module: nn.Module) -> dict[str, set[int]]:
    return {kind: set(getattr(module, kind)) for kind in _HOOKS}
