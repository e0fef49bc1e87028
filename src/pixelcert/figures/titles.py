"""Titles: how figures spell methods, models and radii, and the caption that states what a figure shows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, product

from ..methods import METHODS
from ..statistics import rounded_down
from ..study.findings import Findings as Findings
from ..study.findings import UnavailableError as UnavailableError
from ..study.findings import View
from ..study.job import Job
from .palette import FAMILIES
from .tiles import Heading

MODEL_TITLES = {
    "resnet18": "ResNet-18",
    "resnet50": "ResNet-50",
    "resnet152": "ResNet-152",
    "wide_resnet50_2": "W-ResNet-50-2",
    "vgg11": "VGG-11",
    "vit_b_16": "ViT-B/16",
    "efficientnet_lite0": "EfficientNet-Lite0",
}


def method_title(name: str) -> str:
    """Spell a method as the paper does; a variant keeps its own name."""
    return METHODS[name].short if name in METHODS else name


def model_title(name: str) -> str:
    return MODEL_TITLES.get(name, name)


def layer_title(layer: str) -> str:
    """Spell a layer.

    >>> layer_title("final"), layer_title("layer3")
    ('final layer', 'layer3')
    """
    return f"{layer} layer" if layer in ("input", "final") else layer


def radius_title(radius: float) -> str:
    """Round a radius down, so that it is never printed too large.

    >>> radius_title(0.16862)
    'R = 0.168'
    """
    return f"R = {rounded_down(radius, 3)}"


def of_model(view: View) -> str:
    """Return the end of a title: the model if the figure shows only one, else nothing."""
    return f", {model_title(view.model)}" if len(view.models) == 1 else ""


def method_headings(view: View, methods: Iterable[str]) -> list[Heading]:
    """Return a heading for each method, grouped by family."""
    families = {method: view.findings.family(method) for method in methods}
    return [Heading(method_title(method), family, FAMILIES[family]) for method, family in families.items()]


def require_several(view: View, name: str) -> None:
    """Refuse a study with only one value of sigma, tau or levels, along which a figure is drawn."""
    values = getattr(view.settings, name)
    if len(values) < 2:
        said = {
            "sigma": "one σ ({}), and R varies with it: name more in sigma.",
            "tau": "one τ ({}): name more in tau; they cost no sampling.",
            "levels": "one K ({} %): name more in levels.",
        }
        raise UnavailableError(f"the study has {said[name].format(values[0])}")


def caption(
    view: View,
    series: Iterable[Sequence[Job]],
    *,
    sigma: Sequence[float] = (),
    tau: Sequence[float] = (),
    level: Sequence[float] = (),
    scenes: str = "",
    note: str = "",
) -> str:
    """State the settings in one line: the view's own σ, τ and K unless a figure shows several.

    `series` are all that the figure shows; models, radii and the number of scenes are read from them.
    """
    series = list(series)
    jobs = list(chain(*series))
    sigmas, taus, levels = sigma or (view.sigma,), tau or (view.tau,), level or (view.level,)
    radii = sorted(view.findings.radius(jobs, *pair) for pair in product(sigmas, taus))
    facts = [
        ", ".join(dict.fromkeys(model_title(job.model.name) for job in jobs)),
        f"σ = {_list(sigmas)}",
        f"n = {view.n}",
        f"τ = {_list(taus)}",
        f"R = {', '.join(rounded_down(radius, 3) for radius in radii)}",
        f"K = {_list(levels)} %",
        *_out_of_reach(view, {job.size for job in jobs}, taus),
        f"α = {view.settings.alpha} ({view.correction})",
        f"{view.preset} preset",
        scenes or ", ".join(filter(None, (_count(view, series, kind) for kind in ("image", "grid")))),
    ]
    stated = "   ".join(fact.replace(" ", "\N{NO-BREAK SPACE}") for fact in facts if fact)  # a fact stays in one line
    return f"{stated}\n{note}" if note else stated


def _out_of_reach(view: View, sizes: set[int], taus: Iterable[float]) -> list[str]:
    """Name each τ that n cannot reach, where everything abstains, and the n that would reach it."""
    said = []
    for tau in taus:
        needed = {size: view.fewest_samples(tau, size) for size in sorted(sizes)}
        if short := {size: fewest for size, fewest in needed.items() if fewest is not None}:
            where = "" if len(short) == len(needed) else f" at {', '.join(f'{size} × {size}' for size in short)} pixels"
            said.append(f"τ = {tau} out of reach{where}: n ≥ {max(short.values())}")
    return said


def _list(numbers: Iterable[float]) -> str:
    return ", ".join(map(str, numbers))


def _count(view: View, series: Iterable[Sequence[Job]], kind: str) -> str:
    """Count the images or grids behind each value; a range where some are not finished."""
    of_kind = [jobs for jobs in series if jobs and jobs[0].scene.kind == kind]
    if not of_kind:
        return ""
    planned = max(map(len, of_kind))
    finished = [view.findings.finished(jobs) for jobs in of_kind]
    least, most = min(finished), max(finished)
    some = f"{planned}" if least == most == planned else f"{most} of {planned}"
    return f"{'' if least == most else f'{least} to '}{some} {kind}{'s' if planned != 1 else ''}"
