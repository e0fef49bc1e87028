"""The structure of a network in words: its modules and what they were made with, the same under every version of torch.

What a module prints of itself is not: a later torch may print more.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from enum import Enum
from functools import partial
from types import BuiltinFunctionType, FunctionType
from typing import Any

import numpy as np
import torch
from torch import nn

_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype)


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
    if isinstance(value, _PLAIN):
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
