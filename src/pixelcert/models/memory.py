"""Memory: what was found out about a network, forgotten when the network changes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, TypeVar

import torch
from torch import nn

T = TypeVar("T")
_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)


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
    return one is other or (type(one) is type(other) and isinstance(one, _PLAIN) and bool(one == other))
