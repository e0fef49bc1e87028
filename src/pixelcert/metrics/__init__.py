"""Metrics: the robustness, localisation and faithfulness of certified maps. Pure functions of maps and labels.

The table of contents is `__init__.pyi`; each name is imported when it is first used, so that shares do not wait for
torch.
"""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
