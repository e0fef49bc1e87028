"""Certify image explanations pixel by pixel: which pixels can be trusted, within a radius.

    import pixelcert as pc

    model = pc.load_model("resnet18")
    explainer = pc.method("grad", model)
    votes = pc.sample(explainer, image, target, sigma=0.15, n=100, levels=(50, 25, 10, 5))
    certificate = votes.certify(tau=0.75, alpha=0.001)

The table of contents is `__init__.pyi`; each name is imported when it is first used, so that the command line
answers at once.
"""

from importlib.metadata import version as _version

import lazy_loader as _lazy

from .basics.moved import answer_to_old_names as _answer_to_old_names

__version__ = _version("pixelcert")
__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
_answer_to_old_names()
