"""Names: how figures spell methods, models and settings, and the caption line that states what a figure shows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..methods import METHODS
from ..statistics import rounded_down
from ..study.findings import Findings, View
from ..study.job import Job

MODEL_TITLES = {
    "resnet18": "ResNet-18",
    "resnet50": "ResNet-50",
    "resnet152": "ResNet-152",
    "wide_resnet50_2": "W-ResNet-50-2",
    "vgg11": "VGG-11",
    "vit_b_16": "ViT-B/16",
    "efficientnet_lite0": "EfficientNet-Lite0",
}


def method_title(label: str) -> str:
    """As the paper spells it; a variant by its own name."""
    return METHODS[label].short if label in METHODS else label


def model_title(label: str) -> str:
    return MODEL_TITLES.get(label, label)


def layer_title(layer: str) -> str:
    """
    >>> layer_title("final"), layer_title("layer3")
    ('final layer', 'layer3')
    """
    return f"{layer} layer" if layer in ("input", "final") else layer


def radius_title(radius: float) -> str:
    """Rounded down, so that no promise grows by printing it.

    >>> radius_title(0.16862)
    'R = 0.168'
    """
    return f"R = {rounded_down(radius, 3)}"


def of_model(at: View) -> str:
    """What a title adds where a figure shows one model."""
    return f", {model_title(at.model)}" if len(at.models) == 1 else ""


def caption(
    findings: Findings,
    at: View,
    cells: Iterable[Sequence[Job]],
    *,
    sigma: Sequence[float] = (),
    tau: Sequence[float] = (),
    level: Sequence[float] = (),
    scenes: str | None = None,
    note: str = "",
) -> str:
    """One line that states the settings: the setting's own σ, τ and K unless a figure shows several.

    `cells` are all that the figure shows; models, radii and the number of scenes are read from them.
    """
    shown = [list(cell) for cell in cells]
    jobs = [job for cell in shown for job in cell]
    sigmas, taus, levels = sigma or (at.sigma,), tau or (at.tau,), level or (at.level,)
    radii = [findings.radius(jobs, one, another) for one in sigmas for another in taus]
    facts = [
        ", ".join(dict.fromkeys(model_title(job.model.label) for job in jobs)),
        f"σ = {_list(sigmas)}",
        f"n = {at.n}",
        f"τ = {_list(taus)}",
        f"R = {', '.join(rounded_down(one, 3) for one in sorted(radii))}",
        f"K = {_list(levels)} %",
        *_out_of_reach(findings, at, jobs, taus),
        f"α = {findings.settings.alpha:g} ({findings.correction(at)})",
        f"{at.preset} preset",
        scenes or _count(findings, shown),
    ]
    stated = "   ".join(fact.replace(" ", "\N{NO-BREAK SPACE}") for fact in facts if fact)  # a fact stays in one line
    return f"{stated}\n{note}" if note else stated


def _out_of_reach(findings: Findings, at: View, jobs: Sequence[Job], taus: Iterable[float]) -> list[str]:
    """Which τ the setting's n cannot reach, and the n that would: all of it abstains, which is not a measurement."""
    said = []
    for tau in taus:
        needed = {size: findings.fewest_samples(at, tau, size) for size in sorted({job.size for job in jobs})}
        if short := {size: fewest for size, fewest in needed.items() if fewest is not None}:
            where = "" if len(short) == len(needed) else f" at {', '.join(f'{size} × {size}' for size in short)} pixels"
            said.append(f"τ = {tau:g} out of reach{where}: n ≥ {max(short.values())}")
    return said


def _list(numbers: Iterable[float]) -> str:
    return ", ".join(f"{number:g}" for number in numbers)


def _count(findings: Findings, cells: Sequence[Sequence[Job]]) -> str:
    """How many images and grids stand behind each value; a range where some are not finished."""
    found = []
    for kind in ("image", "grid"):
        of_kind = [cell for cell in cells if cell and cell[0].scene.kind == kind]
        if of_kind:
            planned = max(len(cell) for cell in of_kind)
            finished = sorted({findings.finished(cell) for cell in of_kind})
            few = "" if finished == [planned] else f"{finished[0]} to " if len(finished) > 1 else f"{finished[0]} of "
            some = f"{few}{finished[-1]} of {planned}" if len(finished) > 1 else f"{few}{planned}"
            found.append(f"{some} {kind}{'s' if planned != 1 else ''}")
    return ", ".join(found)
