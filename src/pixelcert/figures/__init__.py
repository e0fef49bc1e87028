"""Figures: one function each, from certificates and studies to matplotlib figures.

`__init__.pyi` is the table of contents. Each name is imported when it is first used.
"""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
