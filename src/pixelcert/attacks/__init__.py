"""Attacks: perturbations made to flip the labels of a certificate, inside its radius and beyond.

The table of contents is `__init__.pyi`; each name is imported when it is first used.
"""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
