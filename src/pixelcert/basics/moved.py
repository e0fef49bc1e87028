"""Import paths of 0.1.0 that its documentation showed: they work until 0.3.0, with a warning."""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

MOVED = {
    "pixelcert.data": "pixelcert.photographs",
    "pixelcert.errors": "pixelcert.basics.messages",
    "pixelcert.models.embedded": "pixelcert.models.loading",
    "pixelcert.models.grid": "pixelcert.models.variants",
    "pixelcert.models.torchvision_import": "pixelcert.models.loading",
}


class _OldName(MetaPathFinder, Loader):
    """Finds a module, and those below it, under its old name. It gives the module itself, not a copy."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(fullname, _OldName()) if _new_name(fullname) else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        new = _new_name(spec.name)
        warnings.warn(f"{spec.name} is now {new}; the old path works until 0.3.0.", FutureWarning, stacklevel=2)
        module = import_module(new)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Give the module its own spec back; it was run when it was imported under its new name."""
        module.__spec__ = self._spec


def _new_name(name: str) -> str:
    """Return the new name of a module that moved, alone or with its package; "" if it has not moved."""
    return next((new + name[len(old) :] for old, new in MOVED.items() if f"{name}.".startswith(f"{old}.")), "")


def answer_to_old_names() -> None:
    """Let the old import paths find the new modules. Other finders would make a copy of a module in an old package."""
    sys.meta_path.insert(0, _OldName())
