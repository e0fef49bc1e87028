"""Adapters: explanations of other libraries as explainers that can be certified, one short file per library.

None of those libraries is imported here: an adapter works with the object that it is given.
"""

from .adapt import adapt as adapt
from .adapted import Adapted as Adapted
from .captum import from_captum as from_captum
from .grad_cam import from_grad_cam as from_grad_cam
from .numpy import from_numpy as from_numpy
from .quantus import from_quantus as from_quantus
from .torchcam import from_torchcam as from_torchcam
from .zennit import from_zennit as from_zennit
