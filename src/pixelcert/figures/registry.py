"""The figures by name, each drawn by one function from a study's findings, and written so that equal ones are equal.

Imports nothing heavy, so that the command line can list the names at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from io import BytesIO
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from ..basics.files import write_atomically
from ..basics.messages import ArgumentError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..study.findings import Findings, View
    from ..study.study import Study


FORMATS = ("pdf", "png")
# No dates and no versions of what wrote them.
_METADATA: dict[str, dict[str, None]] = {
    "pdf": {"CreationDate": None, "Producer": None, "Creator": None},
    "png": {"Software": None},
}


@dataclass(frozen=True)
class Entry:
    """A figure: what it shows, in a line, and the function that draws it."""

    about: str
    module: str
    function: str

    def draw(self, findings: Findings, at: View) -> Figure:
        return cast("Figure", getattr(import_module(f".{self.module}", __package__), self.function)(findings, at))


FIGURES: Mapping[str, Entry] = MappingProxyType(
    {
        "teaser": Entry("explanation, explanations under noise, certified overlay", "teaser", "teaser"),
        "maps": Entry(
            "certified maps at every K, smoothed map and overlay, selected methods", "maps", "certified_maps"
        ),
        "overlays": Entry("certified overlays of all methods over many images", "overlays", "overlays"),
        "grids": Entry("certified overlays on grids, the target cell outlined", "overlays", "grid_overlays"),
        "bars-radius": Entry("%certified against R: one, zero, abstain", "bars", "certified_by_radius"),
        "bars-level": Entry("%certified against K: one, zero, abstain", "bars", "certified_by_level"),
        "boxes-radius": Entry(
            "Certified GridPG against R, with the random baseline", "boxes", "localisation_by_radius"
        ),
        "boxes-level": Entry("Certified GridPG against K, with the random baseline", "boxes", "localisation_by_level"),
        "tradeoff": Entry("%certified and Certified GridPG of every method, all models", "scatter", "tradeoff"),
        "deletion": Entry("confidence while certified pixels are deleted", "curves", "deletion_curves"),
        "tau": Entry("%certified and Certified GridPG against τ", "curves", "effect_of_tau"),
        "gridpg": Entry("GridPG of the clean map and Certified GridPG", "scatter", "grid_pg_scatter"),
        "matrix": Entry("one image under all methods, every K and R", "maps", "level_radius_matrix"),
        "vit-maps": Entry("certified maps of all methods on a vision transformer", "maps", "vit_maps"),
        "vit-overlays": Entry("certified overlays of all methods on a vision transformer", "overlays", "vit_overlays"),
        "aggatt-examples": Entry("AggAtt: a grid of each bin, by method and layer", "aggatt", "aggatt_examples"),
        "aggatt-means": Entry("AggAtt: mean maps of each bin, across K and R", "aggatt", "aggatt_means"),
    }
)


def entry(name: str) -> Entry:
    if name not in FIGURES:
        raise ArgumentError(f"figure {name!r} is not known: choose one of {', '.join(FIGURES)}, or all.")
    return FIGURES[name]


def draw(study: Study | Findings, name: str, **asked: Any) -> Figure:
    """The figure called `name`, of a study.

        figure = draw(pc.Study.open("study.toml"), "tradeoff", sigma=0.25, level=10)

    What may be asked is what `Findings.at` takes: model, layer, methods, image, sigma, n, preset, tau and level.
    """
    from ..study.findings import Findings

    findings = study if isinstance(study, Findings) else Findings(study)
    return entry(name).draw(findings, findings.at(**asked))


def save(figure: Figure, path: str | Path) -> Path:
    """Write a figure in one step, as its suffix says. Equal figures make equal files."""
    import matplotlib

    from .sheet import STYLE

    path = Path(path)
    kind = path.suffix.removeprefix(".")
    if kind not in FORMATS:
        raise ArgumentError(f"{path} is neither PDF nor PNG: end its name in .pdf or .png.")
    data = BytesIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(data, format=kind, metadata=cast("dict[str, Any]", _METADATA[kind]))
    return write_atomically(path, data.getvalue())


def plotted(draw: Callable[[], Figure], path: str | Path | None) -> Figure:
    """Draw a figure, and write it if a path is given. Refuse a name that is no picture's before drawing."""
    from matplotlib.figure import Figure

    known = Figure().canvas.get_supported_filetypes()
    if path is not None and Path(path).suffix.removeprefix(".").lower() not in known:
        raise ArgumentError(f"path={path} does not say which kind of picture it is: end it in .png, .pdf or .svg.")
    figure = draw()
    if path is not None:
        figure.savefig(path)
    return figure
