"""Figures: one function each, from certificates to matplotlib figures."""

from .gallery import certificate_gallery as certificate_gallery
from .panel import certificate_panel as certificate_panel
