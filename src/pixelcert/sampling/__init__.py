"""Sampling: from an explainer and an image to votes."""
