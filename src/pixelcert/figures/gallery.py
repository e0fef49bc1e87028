"""The picture of many certificates: one row per method, smoothed map and overlay at each layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray

from ..certificate import Certificate
from .palette import level_colours, paint_overlay

_PANEL, _GAP, _LEFT, _TOP, _BOTTOM = 1.5, 0.06, 1.45, 0.32, 0.34  # inches


def certificate_gallery(rows: Mapping[str, Sequence[Certificate]]) -> Figure:
    """`rows` of certificates under their names, each drawn as its smoothed map (at the largest K) and its overlay."""
    columns = 2 * max(len(certificates) for certificates in rows.values())
    width = _LEFT + columns * (_PANEL + _GAP)
    height = _TOP + len(rows) * (_PANEL + _GAP) + _BOTTOM
    figure = Figure(figsize=(width, height), dpi=160)
    for row, (name, certificates) in enumerate(rows.items()):
        bottom = height - _TOP - (row + 1) * (_PANEL + _GAP)
        figure.text(0.1 / width, (bottom + _PANEL / 2) / height, name, fontsize=8.5, va="center", parse_math=False)
        for index, certificate in enumerate(certificates):
            for half, (picture, title) in enumerate(_pictures(certificate)):
                left = _LEFT + (2 * index + half) * (_PANEL + _GAP)
                axes = figure.add_axes((left / width, bottom / height, _PANEL / width, _PANEL / height))
                axes.imshow(picture, cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")
                axes.set(xticks=[], yticks=[])
                if row == 0:
                    axes.set_title(title, fontsize=7.5)
                for spine in axes.spines.values():
                    spine.set(color="#dddddd", linewidth=0.6)
    _write_legend(figure, next(iter(rows.values()))[0])
    return figure


def _pictures(certificate: Certificate) -> list[tuple[NDArray[np.float64], str]]:
    layer, top = certificate.votes.provenance.layer, certificate.levels[0]
    overlay = paint_overlay(certificate.overlay, level_colours(certificate.levels), certificate.votes.photo)
    return [(certificate.smoothed(top), f"{layer}: smoothed, K = {top} %"), (overlay, f"{layer}: certified")]


def _write_legend(figure: Figure, certificate: Certificate) -> None:
    colours = level_colours(certificate.levels)
    patches = [Patch(facecolor=colour, label=f"certified in the top {level} %") for level, colour in colours.items()]
    figure.legend(handles=patches, loc="lower left", ncols=len(patches), fontsize=7.5, frameon=False)
