"""Import paths of 0.1.0 that its documentation showed: they work until 0.3.0, with a warning."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

MOVED = {
    "pixelcert.data": "pixelcert.photographs",
    "pixelcert.errors": "pixelcert.basics.messages",
    "pixelcert.models.embedded": "pixelcert.models.loading",
    "pixelcert.models.grid": "pixelcert.models.variants",
    "pixelcert.models.torchvision_import": "pixelcert.models.loading",
}


class _Alias(Loader):
    """Loads a module under its old name: the module itself, not a copy."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        new = MOVED[spec.name]
        message = f"{spec.name} is now {new}; the old path goes in 0.3.0."
        warnings.warn(message, FutureWarning, stacklevel=2)
        module = import_module(new)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Give the module its own spec back; it was run when it was imported under its new name."""
        module.__spec__ = self._spec


class _Finder(MetaPathFinder):
    """Finds old names, after all other finders had their turn."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, _Alias()) if fullname in MOVED else None


def answer_to_old_names() -> None:
    """Let the old import paths find the new modules."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
