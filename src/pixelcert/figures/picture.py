"""Picture files: which kinds there are, known by the ends of their names."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from ..errors import ArgumentError


def check_picture(path: str | Path) -> None:
    """Refuse a name that does not say which kind of picture it is, before any is drawn."""
    known = Figure().canvas.get_supported_filetypes()
    if Path(path).suffix.removeprefix(".").lower() not in known:
        raise ArgumentError(f"path={path} does not say which kind of picture it is: end it in .png, .pdf or .svg.")
