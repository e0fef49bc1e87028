"""Registry: the figures by name, each drawn by one function from a view of a study.

It imports nothing heavy, so that the command line lists the names at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ..basics.messages import ArgumentError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..study.findings import Findings, View
    from ..study.study import Study


FORMATS = ("pdf", "png")  # of the command


@dataclass(frozen=True)
class Entry:
    """A figure: the line that describes it, and the function that draws it."""

    about: str
    module: str
    function: str

    def draw(self, view: View) -> Figure:
        from .sheet import styled

        figure: Callable[[View], Figure] = getattr(import_module(f".{self.module}", __package__), self.function)
        return styled(figure)(view)


FIGURES: Mapping[str, Entry] = MappingProxyType(
    {
        "teaser": Entry("explanation, explanations under noise, certified overlay", "maps", "teaser"),
        "maps": Entry(
            "certified maps at every K, smoothed map and overlay, selected methods", "maps", "certified_maps"
        ),
        "overlays": Entry("certified overlays of all methods over many images", "maps", "overlays"),
        "grids": Entry("certified overlays on grids, the target cell outlined", "maps", "grid_overlays"),
        "bars-radius": Entry("%certified against R: one, zero, abstain", "bars", "certified_by_radius"),
        "bars-level": Entry("%certified against K: one, zero, abstain", "bars", "certified_by_level"),
        "boxes-radius": Entry("Certified GridPG against R, with the random baseline", "bars", "localisation_by_radius"),
        "boxes-level": Entry("Certified GridPG against K, with the random baseline", "bars", "localisation_by_level"),
        "tradeoff": Entry("%certified and Certified GridPG of every method, all models", "charts", "tradeoff"),
        "deletion": Entry("confidence while certified pixels are deleted", "charts", "deletion_curves"),
        "tau": Entry("%certified and Certified GridPG against τ", "charts", "effect_of_tau"),
        "gridpg": Entry("GridPG of the clean map and Certified GridPG", "charts", "grid_pg_scatter"),
        "matrix": Entry("one image under all methods, every K and R", "maps", "level_radius_matrix"),
        "vit-maps": Entry("certified maps of all methods on a vision transformer", "maps", "vit_maps"),
        "vit-overlays": Entry("certified overlays of all methods on a vision transformer", "maps", "vit_overlays"),
        "aggatt-examples": Entry("AggAtt: a grid of each bin, by method and layer", "aggatt", "aggatt_examples"),
        "aggatt-means": Entry("AggAtt: mean maps of each bin, across K and R", "aggatt", "aggatt_means"),
    }
)


def entry(name: str) -> Entry:
    if name not in FIGURES:
        raise ArgumentError(f"figure {name!r} is not known: choose one of {', '.join(FIGURES)}, or all.")
    return FIGURES[name]


def draw(study: Study | Findings, name: str, **asked: Any) -> Figure:
    """Draw the figure called `name`, of a study.

        figure = draw(pc.Study.open("study.toml"), "tradeoff", sigma=0.25, level=10)

    `asked` is what `Findings.at` takes: model, layer, methods, image, sigma, n, preset, tau and level.
    """
    from ..study.findings import Findings

    findings = study if isinstance(study, Findings) else Findings(study)
    return entry(name).draw(findings.at(**asked))
