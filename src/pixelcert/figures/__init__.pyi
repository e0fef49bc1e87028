from .panels import certificate_gallery as certificate_gallery
from .panels import certificate_panel as certificate_panel
from .registry import FIGURES as FIGURES
from .registry import draw as draw
from .registry import save as save
