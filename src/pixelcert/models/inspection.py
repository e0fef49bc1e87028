"""Inspect a network: its structure in words, a memory that sees changes, and trials that compare answers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterator, Mapping
from enum import Enum
from functools import partial
from types import BuiltinFunctionType, FunctionType
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

_NAMED_VALUES = (bool, int, float, complex, str, bytes, type(None), torch.dtype)


def structure(net: nn.Module) -> str:
    """One line for each module: its name, its class, and the settings of it that differ from the default."""
    modules = net.named_modules(remove_duplicate=False)
    return "\n".join(f"{name}: {_kind(module)}({_settings(module)})" for name, module in modules)


def _kind(module: nn.Module) -> str:
    return str(getattr(module, "original_name", type(module).__name__))  # as TorchScript keeps it


def _settings(module: nn.Module) -> str:
    """What the module was made with, as far as it keeps that under the same names."""
    own = vars(module)
    words = {name: (_words(own[name]), default) for name, default in _defaults(type(module)).items() if name in own}
    return ", ".join(f"{name}={value}" for name, (value, default) in sorted(words.items()) if value != default)


def _defaults(kind: type[nn.Module]) -> dict[str, str]:
    """The settings that a module of this kind can be made with, and their defaults."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        made = vars(base).get("__init__")
        if isinstance(made, FunctionType):
            found |= {name: _words(each.default) for name, each in inspect.signature(made).parameters.items()}
    return found


def _words(value: Any) -> str:
    """Plain values, collections of them, functions and classes by their names; empty for everything else."""
    if isinstance(value, _NAMED_VALUES):
        return repr(value)
    if isinstance(value, np.generic):
        return repr(value.item())
    if isinstance(value, Enum):
        return str(value)
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_words(key)}: {_words(item)}' for key, item in value.items())}}}"
    if isinstance(value, (list, tuple)):
        return f"({', '.join(map(_words, value))})"
    if isinstance(value, (set, frozenset)):
        return f"{{{', '.join(sorted(map(_words, value)))}}}"
    if isinstance(value, partial):
        return f"{_words(value.func)}{_words(value.args)}{_words(value.keywords)}"
    return value.__qualname__ if isinstance(value, (FunctionType, BuiltinFunctionType, type)) else ""


T = TypeVar("T")
_COMPARED_VALUES = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)


class Memory:
    """Answers that are kept for as long as a network stays as it is.

    It sees modules, parameters, buffers, hooks and plain attributes that come, go or change, and parameters and buffers
    that are written in place. It does not see what is written through ``.data``, nor changes inside other objects that
    a module holds, nor in code. Tensors that are plain attributes are not watched: modules keep activations there.
    """

    def __init__(self, net: nn.Module, watched: bool = True) -> None:
        self._net, self._watched = net, watched
        self._structure: list[Any] = []
        self._values: list[Any] = []
        self._of_structure: dict[Hashable, Any] = {}
        self._of_values: dict[Hashable, Any] = {}

    def recall(self, key: Hashable, find: Callable[[], T], *, values: bool = False) -> T:
        """What `key` asks for, found if it is not known. With `values`, it depends on what the tensors hold too."""
        if self._watched:
            self._refresh()
        known = self._of_values if values else self._of_structure
        if key not in known:
            known[key] = find()
        answer: T = known[key]
        return answer

    def clear(self) -> None:
        self._of_structure.clear()
        self._of_values.clear()

    def _refresh(self) -> None:
        structure = [part for module in self._net.modules() for part in _parts(module)]
        if len(structure) != len(self._structure) or not all(map(_same, structure, self._structure)):
            self.clear()
        tensors = (*self._net.parameters(), *self._net.buffers())
        values = [(tensor.data_ptr(), tensor._version, tensor.dtype, tensor.device) for tensor in tensors]
        if values != self._values:
            self._of_values.clear()
        # Held, not only named: what is gone could not be told from another object at its place in memory.
        self._structure, self._values = structure, values


def _parts(module: nn.Module) -> Iterator[Any]:
    """All that makes a module, down to what can be compared."""
    yield module
    for name, value in vars(module).items():
        yield name
        watched = name in ("_parameters", "_buffers")
        yield from (leaf for leaf in _leaves(value) if watched or not isinstance(leaf, torch.Tensor))


def _leaves(value: Any) -> Iterator[Any]:
    """What is in dictionaries and lists, with the keys."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield key
            yield from _leaves(item)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


def _same(one: Any, other: Any) -> bool:
    return one is other or (type(one) is type(other) and isinstance(one, _COMPARED_VALUES) and bool(one == other))


def any_image(channels: int, size: int, device: torch.device) -> Tensor:
    """One image of noise."""
    generator = torch.Generator().manual_seed(0)
    return torch.rand(1, channels, size, size, generator=generator).to(device)


def close(answer: Tensor, expected: Tensor, share: float) -> bool:
    """Whether logits are the same, up to a share of the largest."""
    return torch.allclose(answer, expected, rtol=0, atol=share * float(expected.abs().max()), equal_nan=True)
