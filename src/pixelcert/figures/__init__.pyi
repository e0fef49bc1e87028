from .panels import certificate_gallery as certificate_gallery
from .panels import certificate_panel as certificate_panel
from .registry import FIGURES as FIGURES
from .registry import draw as draw
from .sheet import save as save
from .titles import Findings as Findings
from .titles import UnavailableError as UnavailableError
