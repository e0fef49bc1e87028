"""Training mode: find the networks that an explainer holds, and refuse those in training mode."""

from __future__ import annotations

import dis
import gc
from collections.abc import Iterator
from types import CellType, CodeType, FrameType, FunctionType, MappingProxyType, ModuleType, TracebackType
from typing import Any

from torch import Tensor, nn

from .messages import ModelError

_STEPS = 5  # from an explainer over functions and objects to a network
_MOST = 10_000  # things looked at, and things in one container: a larger one is data
_CALLED = ("__call__", "explain")  # methods that explain
_CONTAINERS = (dict, list, tuple, set, frozenset, CellType, MappingProxyType)
_ATOMS = (type(None), str, bytes, int, float, Tensor)
_PASSED_BY = (*_ATOMS, type, ModuleType, CodeType, FrameType, TracebackType)  # a module leads to everything


def refuse_training(holder: object) -> None:
    """Refuse a network in training mode, where images of a batch mix and dropout draws, wherever it is held."""
    for net in networks(holder):
        if any(module.training and _tells_modes_apart(module) for module in net.modules()):
            raise ModelError(
                f"{type(net).__name__} is in training mode, where images of a batch mix: call eval() on it."
            )


def networks(holder: Any) -> Iterator[nn.Module]:
    """Yield the networks that something is, or holds in attributes, closures, defaults and globals, nearest first.

    It asks the garbage collector for what a thing refers to, so no property, no `__getattr__` and no lazy container of
    somebody else runs.
    """
    seen, near = set[int](), list[Any]([holder])
    for _ in range(_STEPS + 1):
        further: list[Any] = []
        while near and len(seen) < _MOST:
            thing = near.pop()
            kind = type(thing)  # not isinstance, which asks the object itself
            if id(thing) in seen or issubclass(kind, _PASSED_BY):
                continue
            seen.add(id(thing))
            if issubclass(kind, nn.Module):
                yield thing
            elif issubclass(kind, _CONTAINERS):  # no step of their own
                near += _held_by(thing)
            else:
                further += _parts_of_function(thing) if kind is FunctionType else _parts_of_object(thing)
        near = further


def _held_by(thing: object) -> list[Any]:
    """Return what a thing refers to, unless that is too much to look at."""
    return held if len(held := gc.get_referents(thing)) <= _MOST else []


def _parts_of_object(thing: object) -> list[Any]:
    """Return what an object holds, and its methods that explain."""
    kinds = type(thing).__mro__
    return [*_held_by(thing), *(vars(kind)[name] for name in _CALLED for kind in kinds if name in vars(kind))]


def _parts_of_function(function: FunctionType) -> list[Any]:
    """Return what a function holds, and the globals that it reads: all globals would be too many."""
    own = (function.__closure__, function.__defaults__, function.__kwdefaults__, vars(function))
    return [*own, *(function.__globals__[name] for name in _globals_read(function.__code__, function.__globals__))]


def _globals_read(code: CodeType, known: dict[str, Any]) -> Iterator[str]:
    """Yield the names of globals that a function, or one inside it, reads."""
    for step in dis.get_instructions(code):
        if step.opname == "LOAD_GLOBAL" and step.argval in known:
            yield step.argval
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _globals_read(inner, known)


def _tells_modes_apart(module: nn.Module) -> bool:
    """Return True for modules that training mode may change: dropout, norms, and those with parameters."""
    apart = (nn.modules.dropout._DropoutNd, nn.modules.batchnorm._NormBase)
    return isinstance(module, apart) or any(True for _ in module.parameters(recurse=False))
