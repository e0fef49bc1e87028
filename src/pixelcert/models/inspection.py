"""Inspect a network: its structure in words, a memory that sees changes, trials, and a record of surgery."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping
from enum import Enum
from functools import partial
from types import BuiltinFunctionType, FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from ..basics.locks import one_at_a_time
from ..basics.machine import out_of_memory
from ..basics.messages import ModelError, PixelcertWarning

if TYPE_CHECKING:
    from .classifier import Classifier

# ── Structure ─────────────────────────────────────────────────────────────────────────────────────────────────────────

_NAMED_VALUES = (bool, int, float, complex, str, bytes, type(None), torch.dtype)


def structure(net: nn.Module) -> str:
    """Return one line per module: its name, its class, and its arguments that differ from the default."""
    modules = net.named_modules(remove_duplicate=False)
    return "\n".join(f"{name}: {_kind(module)}({_arguments(module)})" for name, module in modules)


def _kind(module: nn.Module) -> str:
    return str(getattr(module, "original_name", type(module).__name__))  # TorchScript keeps the class's name there


def _arguments(module: nn.Module) -> str:
    """Name the arguments that a module was made with, as far as it keeps them under the same names."""
    own = vars(module)
    words = {name: (_words(own[name]), default) for name, default in _defaults(type(module)).items() if name in own}
    return ", ".join(f"{name}={value}" for name, (value, default) in sorted(words.items()) if value != default)


def _defaults(kind: type[nn.Module]) -> dict[str, str]:
    """Return the arguments that a module of this kind can be made with, and their defaults."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        made = vars(base).get("__init__")
        if isinstance(made, FunctionType):
            found |= {name: _words(each.default) for name, each in inspect.signature(made).parameters.items()}
    return found


def _words(value: Any) -> str:
    """Write plain values, collections of them, functions and classes in words; everything else as ""."""
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


# ── Memory ────────────────────────────────────────────────────────────────────────────────────────────────────────────

T = TypeVar("T")
_COMPARED_VALUES = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)


class Memory:
    """Answers that are kept until a network changes.

    It sees modules, parameters, buffers, hooks and plain attributes that are added, removed or changed, and parameters
    and buffers that are written in place. It does not see writes through ``.data``, or changes of code or inside other
    objects that a module holds. Tensors that are plain attributes are not watched: modules keep activations there.
    """

    def __init__(self, net: nn.Module, watched: bool = True) -> None:
        self._net, self._watched = net, watched
        self._structure: list[Any] = []
        self._values: list[Any] = []
        self._of_structure: dict[Hashable, Any] = {}
        self._of_values: dict[Hashable, Any] = {}

    def recall(self, key: Hashable, find: Callable[[], T], *, values: bool = False) -> T:
        """Return the answer to `key`, found anew if the network changed. With `values`, it depends on tensors too."""
        with one_at_a_time:
            if self._watched:
                self._refresh()
            known = self._of_values if values else self._of_structure
            if key not in known:
                known[key] = find()
            answer: T = known[key]
            return answer

    def clear(self) -> None:
        with one_at_a_time:
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
        # Hold the objects themselves, because a new object may have the address of a deleted one.
        self._structure, self._values = structure, values


def _parts(module: nn.Module) -> Iterator[Any]:
    """Yield everything that makes a module, down to values that can be compared."""
    yield module
    for name, value in vars(module).items():
        yield name
        watched = name in ("_parameters", "_buffers")
        yield from (leaf for leaf in _leaves(value) if watched or not isinstance(leaf, torch.Tensor))


def _leaves(value: Any) -> Iterator[Any]:
    """Yield the keys and values in dictionaries and lists, however deep."""
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


# ── Trials ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Tolerance(float, Enum):
    """The distance up to which logits count as the same, as a share of the largest."""

    SAME = 1e-4  # by the same arithmetic
    REORDERED = 1e-3  # the same terms, added in another order
    REWRITTEN = 1e-2  # the same function, by other operations
    ROUNDED = 5e-2  # by numbers of 16 bits, or rounded to TF32


def any_image(model: Classifier, height: int | None = None, width: int | None = None) -> Tensor:
    """Return one image of noise for `model`, always the same; of its own size by default."""
    size = (height or model.size, width or model.size)
    return torch.rand(1, model.channels, *size, generator=torch.Generator().manual_seed(0)).to(model.device)


def own_answer(model: Classifier) -> Tensor | Exception:
    """Return the logits of `model` for an image of its own size, or its error, with a warning the first time."""

    def find() -> Tensor | Exception:
        answer = try_out(model, any_image(model))
        if isinstance(answer, Exception) and not model.is_copy:
            warnings.warn(
                f"{model.name} raises an error on an image of its own size, {model.size} × {model.size} "
                f"({in_words(answer)}), so changes to it cannot be tested: give Classifier(…, size=SIDE) the side "
                f"that it was made for.",
                PixelcertWarning,
                stacklevel=9,
            )
        return answer

    return model.recall("own answer", find, values=True)


def logits_of(answer: Any, whose: str = "the network") -> Tensor:
    """Return the logits (B, classes) of a network's answer, bare or in an object as Hugging Face's models give it."""
    logits = getattr(answer, "logits", answer)
    if not isinstance(logits, Tensor) or logits.ndim != 2:
        what = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ModelError(f"{whose} returned {what}: wrap it in a module that returns only logits (B, classes).")
    return logits


@torch.no_grad()
def try_out(network: Callable[[Tensor], Any], inputs: Tensor) -> Tensor | Exception:
    """Return the logits of `network`, or its error, unless memory ran out: that error is raised."""
    try:
        return logits_of(network(inputs.clone()))
    except Exception as error:  # the network's own code may raise anything
        if out_of_memory(error):
            raise
        return error


def agree(answer: Tensor, expected: Tensor, tolerance: Tolerance) -> bool:
    """Return True if two networks gave the same logits, up to rounding."""
    if answer.shape != expected.shape:
        return False
    answer, expected = answer.float(), expected.float()
    return torch.allclose(answer, expected, rtol=0, atol=tolerance * float(expected.abs().max()), equal_nan=True)


def why_unlike(
    network: Callable[[Tensor], Any], other: Callable[[Tensor], Any], inputs: Tensor, tolerance: Tolerance
) -> str:
    """Return why `other` cannot stand in for `network`, tried on `inputs`; "" if it can."""
    expected, answer = try_out(network, inputs), try_out(other, inputs)
    if isinstance(expected, Exception):
        return f"untried: {in_words(expected)}"
    if isinstance(answer, Exception):
        return in_words(answer)
    return "" if agree(answer, expected, tolerance) else "it would answer otherwise"


def in_words(error: Exception) -> str:
    """Return an error's first line, without addresses, so that it is the same in every run."""
    line = str(error).partition("\n")[0][:200] or type(error).__name__
    return re.sub(r"0x[0-9a-fA-F]+", "0x…", line)


# ── The record of surgery ─────────────────────────────────────────────────────────────────────────────────────────────


class Step(NamedTuple):
    """One attempt at surgery on a network."""

    name: str
    done: str  # "no" where it failed
    why: str = ""

    def __str__(self) -> str:
        return f"{self.done} ({self.why})" if self.why else self.done


class Surgery(dict[str, Step]):
    """The attempts at surgery on one network for one layer, by name."""

    def note(self, name: str, done: str, why: str = "") -> None:
        self[name] = Step(name, done, why)
