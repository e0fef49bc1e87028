"""Figures: one function each, from certificates to matplotlib figures."""

from .panel import certificate_panel as certificate_panel
