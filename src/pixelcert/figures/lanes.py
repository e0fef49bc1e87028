"""Lanes: what bars and boxes share. Methods down, by family, a lane for each R or K; a column per model and layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from ..study.job import Job
from .findings import Findings, Setting, UnavailableError
from .names import caption, layer_title, method_title, model_title, of_model, radius_title
from .page import HATCH, Page
from .palette import FAINT, FAMILIES, MISSING, SOFT

Axis = Literal["radius", "level"]

_LANE, _METHOD_GAP, _FAMILY_GAP = 0.125, 0.1, 0.16  # inches
_LABELS, _COLUMN_GAP, _TOP = 1.42, 0.3, 0.24
_WIDE = 6.6  # of all columns together, unless each would become too narrow
_NARROWEST = 1.25


@dataclass(frozen=True)
class Lane:
    """One bar or box: a method at one R or K."""

    method: str
    sigma: float
    level: float
    step: int  # which of the R or K it is
    label: str
    top: float  # inches below the first


@dataclass(frozen=True)
class Panel:
    """Axes of one model and layer; y is in inches down, x the figure's own."""

    axes: Axes
    model: str
    layer: str


@dataclass(frozen=True)
class Sheet:
    """A page with its panels, the lanes that each of them has, and the labels of the R or K."""

    page: Page
    panels: list[Panel]
    lanes: list[Lane]
    labels: list[str]


def _steps(findings: Findings, at: Setting, kind: str, axis: Axis) -> list[tuple[float, float, str]]:
    """(σ, K, label) of every lane of a method; refuses an axis along which the study has one value."""
    findings.require(kind)
    settings = findings.settings
    if axis == "level":
        if len(settings.levels) < 2:
            raise UnavailableError(f"the study has one K ({settings.levels[0]:g} %): name more in levels.")
        return [(at.sigma, level, f"K = {level:g} %") for level in sorted(settings.levels, reverse=True)]
    if len(settings.sigma) < 2:
        raise UnavailableError(
            f"the study has one σ ({settings.sigma[0]:g}), and R varies with it: name more in sigma."
        )
    # one label stands for every panel, so it is the smallest of their radii
    jobs = [
        job
        for model, layer in _places(at)
        for method in at.methods
        for sigma in settings.sigma
        for job in findings.cell(kind, model, method, layer, at, sigma)
    ]
    return [(sigma, at.level, radius_title(findings.radius(jobs, sigma, at.tau))) for sigma in sorted(settings.sigma)]


def lay_out(findings: Findings, at: Setting, kind: str, axis: Axis, measure: str, note: str) -> Sheet:
    """A page of a measure against R or K, its panels still without limits and lanes."""
    along = _steps(findings, at, kind, axis)
    lanes, height = _lay_lanes(findings, at, along)
    sigmas, levels = sorted({sigma for sigma, _, _ in along}), sorted({level for _, level, _ in along}, reverse=True)
    cells = [
        findings.cell(kind, model, lane.method, layer, at, lane.sigma) for lane in lanes for model, layer in _places(at)
    ]
    stated = caption(findings, at, cells, sigma=sigmas, level=levels, note=note)
    title = f"{measure} against {'the radius R' if axis == 'radius' else 'K'}{of_model(at)}"
    page, panels = _lay_page(findings, at, title, lanes, height, stated)
    return Sheet(page, panels, lanes, [label for _, _, label in along])


def _places(at: Setting) -> list[tuple[str, str]]:
    return [(model, layer) for model in at.models for layer in at.layers]


def _lay_lanes(findings: Findings, at: Setting, along: Sequence[tuple[float, float, str]]) -> tuple[list[Lane], float]:
    """Every lane from the top, and the height of all."""
    lanes, top = [], 0.0
    for number, methods in enumerate(findings.by_family(at.methods).values()):
        top += _FAMILY_GAP if number else 0.0
        for method in methods:
            for step, (sigma, level, label) in enumerate(along):
                lanes.append(Lane(method, sigma, level, step, label, top))
                top += _LANE
            top += _METHOD_GAP
    return lanes, top - _METHOD_GAP


def _lay_page(
    findings: Findings, at: Setting, title: str, lanes: Sequence[Lane], height: float, stated: str
) -> tuple[Page, list[Panel]]:
    """A page with a panel for each model and layer, the lanes' names at the left, and the families' in colour."""
    places = _places(at)
    width = max(_NARROWEST, _WIDE / len(places) - _COLUMN_GAP)
    full = _LABELS + len(places) * (width + _COLUMN_GAP)
    page = Page(title, full, _TOP + height + 0.5, stated, legend_lines=len(findings.by_family(at.methods)))
    panels = []
    for number, (model, layer) in enumerate(places):
        axes = page.axes(_LABELS + number * (width + _COLUMN_GAP), _TOP, width, height + 0.06)
        axes.set_ylim(height + 0.02, -0.04)
        axes.set_yticks([])
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        single = len(at.models) == 1
        name = layer_title(layer) if single else f"{model_title(model)}, {layer}"
        axes.set_title(name, fontsize=8 if single else 6.8, loc="left", pad=5)
        panels.append(Panel(axes, model, layer))
    _write_names(page, findings, lanes)
    return page, panels


def draw_lanes(
    findings: Findings,
    at: Setting,
    panel: Panel,
    lanes: Sequence[Lane],
    kind: str,
    draw: Callable[[Axes, Lane, list[Job], float], str],
) -> None:
    """`draw` every lane at its middle; where it answers with a word, the lane is hatched and says so."""
    for lane in lanes:
        cell = findings.cell(kind, panel.model, lane.method, panel.layer, at, lane.sigma)
        if why := draw(panel.axes, lane, cell, lane.top + _LANE / 2):
            _hatch(panel.axes, lane, why)


def thickness() -> float:
    """Of a bar or box, which leaves a little of its lane free."""
    return 0.82 * _LANE


def _hatch(axes: Axes, lane: Lane, why: str) -> None:
    left, right = axes.get_xlim()
    corner, size = (left, lane.top + 0.09 * _LANE), (right - left, thickness())
    axes.add_patch(Rectangle(corner, *size, facecolor=MISSING, edgecolor="#cfcfcf", hatch=HATCH, linewidth=0))
    box = {"facecolor": "white", "edgecolor": "none", "pad": 0.4, "alpha": 0.85}
    middle = lane.top + _LANE / 2
    axes.text((left + right) / 2, middle, why, fontsize=5, color=SOFT, ha="center", va="center", bbox=box)


def _write_names(page: Page, findings: Findings, lanes: Sequence[Lane]) -> None:
    for method in dict.fromkeys(lane.method for lane in lanes):
        own = [lane for lane in lanes if lane.method == method]
        middle = _TOP + 0.04 + (own[0].top + own[-1].top + _LANE) / 2
        colour = FAMILIES[findings.family(method)]
        page.text(0, middle, method_title(method), fontsize=7.5, color=colour, weight="bold", va="center")
        for lane in own:
            place = _TOP + 0.04 + lane.top + _LANE / 2
            page.text(_LABELS - 0.06, place, lane.label, fontsize=5.6, color=SOFT, ha="right", va="center")


def grid_lines(axes: Axes) -> None:
    axes.grid(axis="x", color=FAINT, linewidth=0.5, zorder=0)
    axes.set_axisbelow(True)
