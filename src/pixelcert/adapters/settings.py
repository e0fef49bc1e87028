"""What can be told of a foreign object's settings: plain values that a file can hold and another process compares."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor, nn

from ..digest import sha256
from ..errors import ArgumentError

_PLAIN = (bool, int, float, str, type(None))


def plain(value: Any) -> Any:
    """`value` for the provenance: numbers and names as they are, arrays by their content, anything else by its name.

    Never by its `repr`, which may hold an address that changes from one process to the next.
    """
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (Tensor, np.ndarray)):
        array = np.asarray(value.detach().cpu().double() if isinstance(value, Tensor) else value)
        return f"{value.dtype} {array.shape} {sha256(array.tobytes())[:12]}"
    return getattr(value, "__qualname__", type(value).__qualname__)


def own_settings(thing: object, besides: Collection[str] = ()) -> dict[str, Any]:
    """The public attributes of an object that are numbers, names or tuples of them."""
    public = {name: value for name, value in vars(thing).items() if not name.startswith("_") and value is not None}
    kept = {name: value for name, value in public.items() if name not in besides}
    return {name: plain(value) for name, value in kept.items() if isinstance(value, (*_PLAIN, tuple))}


def function_settings(function: Any) -> tuple[str, dict[str, Any]]:
    """The name of a function, with that of its package, and what `functools.partial` has fixed of it."""
    if not isinstance(function, partial):
        package = (getattr(function, "__module__", None) or "__main__").partition(".")[0]  # exec leaves it None
        return str(plain(function)) if package == "__main__" else f"{package}.{plain(function)}", {}
    name, inner = function_settings(function.func)
    fixed = {str(index): value for index, value in enumerate(function.args)} | function.keywords
    return name, inner | {key: plain(value) for key, value in fixed.items()}


def layer_names(net: nn.Module, layers: Collection[Any], holder: str) -> str:
    """The names that modules have in `net`."""
    names = {id(module): name for name, module in net.named_modules()}
    if any(id(layer) not in names for layer in layers):
        raise ArgumentError(f"{holder} explains a layer that is not in the network of model: make it with model.net.")
    return ", ".join(names[id(layer)] for layer in layers)
