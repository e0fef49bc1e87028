from .findings import Findings as Findings
from .findings import Setting as Setting
from .findings import UnavailableError as UnavailableError
from .gallery import certificate_gallery as certificate_gallery
from .panel import certificate_panel as certificate_panel
from .registry import FIGURES as FIGURES
from .registry import draw as draw
from .registry import save as save
