"""Time per certificate of every method at every layer, beside the bare network's, and peak memory.

    python -m bench.cells [--model resnet18] [--images 24] [--masks 1000] [--reference]

The bare network does the same number of runs forward and backward, in the same precision and layout and in batches of
the same size, on inputs that lie ready. `--reference` adds the published implementation's times and the geometric mean.
These times were measured on one NVIDIA H200 with ResNet-18, so compare them only there.
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

import pixelcert as pc
from pixelcert.basics.machine import images_per_batch
from pixelcert.explainer import Tuning
from pixelcert.plan import Plan
from pixelcert.sampling.precision import rounding, settle
from pixelcert.sampling.sample import Subject, sample_each

from .machine import head, machine_in_words, peak_memory, row, say, seconds

LEVELS = (50, 25, 5)
TARGET = 3
METHODS_OF_MANY = {"intgrad": "Integrated Gradients", "rise": "RISE", "occlusion": "Occlusion"}

# Seconds per certificate of the published code, sampling + certifying, at the input and at the final layer. One NVIDIA
# H200, ResNet-18, one image of 224 × 224, n = 100, three levels; RISE with 1000 masks.
REFERENCE = {
    "grad": (0.43 + 0.48, 0.14 + 0.19),
    "gb": (0.38 + 0.42, 0.14 + 0.20),
    "ixg": (0.32 + 0.44, 0.18 + 0.38),
    "intgrad": (2.56 + 0.55, 0.49 + 0.27),
    "lrp": (6.16 + 0.35, 1.19 + 0.24),
    "cam": (0.17 + 0.38, 0.16 + 0.22),
    "grad_cam": (0.26 + 0.37, 0.24 + 0.26),
    "grad_cam_pp": (0.29 + 0.39, 0.17 + 0.24),
    "ablation_cam": (0.27 + 0.35, 2.24 + 0.34),
    "layer_cam": (0.31 + 0.44, 0.16 + 0.31),
    "occlusion": (20.9 + 0.29, 0.19 + 0.29),
    "rise": (107.3 + 0.21, 23.1 + 0.27),
}


class Cell(NamedTuple):
    """Measurements of a method at a layer, per certificate."""

    explainer: pc.Method
    tuning: Tuning
    seconds: float  # in a row of images
    alone: float  # from one call to its answer
    bare: float  # the network's own
    memory: float  # GB


def measure(explainer: pc.Method, images: list[Tensor], n: int, precision: Any, compiled: Any) -> Cell:
    device = explainer.model.device
    plan = Plan(n=n, levels=LEVELS)
    subjects = [Subject(image, TARGET) for image in images]
    runs = n * explainer.passes * images[0].numel() / (3 * 224 * 224)
    asked = Tuning(None, precision, compiled)
    tuning, _ = settle(explainer, asked, device, images[0].numel(), runs * len(images))
    asked = replace(asked, compile=tuning.compile)

    def certify(some: list[Subject]) -> None:
        for votes in sample_each(plan, explainer, some, asked):
            votes.certify(tau=0.75 if n >= 64 else 0.5)  # what so few samples can certify

    slow = runs > 20_000 or device.type == "cpu"
    next(sample_each(plan, explainer, subjects, asked))  # copies of the model, kernels, checks of independence
    times: list[float] = []
    memory = peak_memory(lambda: times.append(seconds(lambda: certify(subjects), device, warm=0)), device)
    together = times[0] / len(subjects)
    alone = together if slow else seconds(lambda: certify(subjects[:1]), device, repeats=10)
    return Cell(explainer, tuning, together, alone, bare_seconds(explainer, tuning, images[0], n), memory)


def bare_seconds(explainer: pc.Method, tuning: Tuning, image: Tensor, n: int) -> float:
    """Return the time of the network's runs for n samples of this method, forward and backward, and nothing else."""
    device = explainer.model.device
    fast = explainer.tuned(tuning)
    body, network = fast.model.split(fast.layer)
    row_of = 8 if device.type == "cuda" else 1
    images = torch.rand(tuning.batch_size or 1, *image.shape, device=device)
    passes, backwards = runs_of_head(explainer)
    with rounding(tuning, device):
        with torch.no_grad():
            features = body(images)
            total = seconds(lambda: body(images), device, in_a_row=row_of) * n / len(images)
            full = images_per_batch(device, features[0].numel())
            ready = _enough(features, full)
            if passes:
                total += seconds(lambda: network(ready), device, in_a_row=row_of) * n * passes / full
        if backwards:
            total += seconds(lambda: _gradient(network, ready), device, in_a_row=row_of) * n * backwards / full
    return total


def _enough(features: Tensor, count: int) -> Tensor:
    """Repeat or cut features to `count` of them, and keep their layout."""
    some = features[torch.arange(count, device=features.device) % len(features)]
    return some.contiguous(memory_format=torch.channels_last) if features.ndim == 4 else some


def _gradient(network: Callable[[Tensor], Tensor], features: Tensor) -> Tensor:
    leaf = features.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(network(leaf)[:, TARGET].sum(), leaf)
    return gradient


def runs_of_head(explainer: pc.Method) -> tuple[float, float]:
    """Count the runs of the layers after this one per sample: without a gradient, and with one."""
    if explainer.linear_head:
        return 0, 0
    return {
        "cam": (1, 0),
        "intgrad": (1, explainer.params.get("steps", 0)),
        "lrp": (1, 1),
        "ablation_cam": (explainer.passes, 0),
        "rise": (1 + explainer.passes, 0),
        "occlusion": (1 + explainer.passes, 0),
    }.get(explainer.name, (0, 1))


def show_head(reference: bool) -> None:
    extra = ("published", "times as fast") if reference else ()
    head("method", "layer", "precision", "certificate", "alone", "bare network", "share", "peak memory", *extra)


def show(cell: Cell, reference: bool) -> None:
    """Print a row as soon as it is measured, because the whole table may take long."""
    explainer, tuning = cell.explainer, cell.tuning
    row(
        explainer.title,
        explainer.layer,
        tuning.precision + (", compiled" if tuning.compile else ""),
        *map(_time, (cell.seconds, cell.alone, cell.bare)),
        f"{cell.bare / cell.seconds:.0%}",
        f"{cell.memory:.2f} GB",
        *((f"{published(cell):.2f} s", f"{published(cell) / cell.seconds:.0f}") if reference else ()),
    )


def published(cell: Cell) -> float:
    return REFERENCE[cell.explainer.name][cell.explainer.layer == "final"]


def show_means(cells: list[Cell]) -> None:
    together, alone = [published(c) / c.seconds for c in cells], [published(c) / c.alone for c in cells]
    means = [math.exp(sum(map(math.log, ratios)) / len(ratios)) for ratios in (together, alone)]
    say(f"\nGeometric mean {means[0]:.0f} times as fast, at least {min(together):.0f}; one image alone {means[1]:.0f}.")


def _time(value: float) -> str:
    return f"{1e3 * value:.1f} ms" if value < 1 else f"{value:.2f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--weights", help="weights file; default: random weights, which are enough for times")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--images", type=int, help="images in a row; default: 24, on a CPU 1")
    parser.add_argument("--few", type=int, help="images in a row for methods with many runs; default: 8, on a CPU 1")
    parser.add_argument("-n", type=int, help="samples; default: 100, on a CPU 32")
    parser.add_argument("--masks", type=int, help="RISE's masks; default: 1000, on a CPU 16")
    parser.add_argument("--precision", default="auto")
    parser.add_argument(
        "--compile", choices=("auto", "yes", "no", "many"), default="auto", help="many: only methods with over 100 runs"
    )
    parser.add_argument("--methods", nargs="*", default=list(pc.METHODS))
    parser.add_argument("--layers", nargs="*", default=["input", "final"])
    parser.add_argument("--reference", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore", pc.PixelcertWarning)  # maps of random weights may be constant

    model = pc.load_model(options.model, weights=options.weights)
    gpu = model.device.type == "cuda"
    count, few = options.images or (24 if gpu else 1), options.few or (8 if gpu else 1)
    n, masks = options.n or (100 if gpu else 32), options.masks or (1000 if gpu else 16)
    params = {"rise": {"masks": masks}, "occlusion": {} if gpu else {"window": 56, "stride": 56}}
    choices: dict[str, Any] = {"auto": "auto", "yes": True, "no": False}
    generator = torch.Generator().manual_seed(0)
    images = [torch.rand(3, options.size, options.size, generator=generator) for _ in range(max(count, few))]
    say(f"{machine_in_words(model.device)}; {options.model}, {options.size}², n = {n}, levels 50 / 25 / 5\n")
    cells = []
    show_head(options.reference)
    for name in options.methods:
        for layer in options.layers:
            own = params.get(name, {}) if layer == "input" or name == "rise" else {}
            explainer = pc.method(name, model, layer, **own)
            some = images[: few if explainer.passes > 100 else count]
            compiled = choices.get(options.compile, explainer.passes > 100 and explainer.compilable)
            cells.append(measure(explainer, some, n, options.precision, compiled))
            show(cells[-1], options.reference)
    if options.reference:
        show_means(cells)
    runs = {cell.explainer.name: cell.explainer.passes for cell in cells if cell.explainer.layer == "input"}
    said = [f"{METHODS_OF_MANY[name]} {runs[name]}" for name in METHODS_OF_MANY if name in runs]
    say(f"\nRuns of the network per sample at the input: {', '.join(said)}." if said else "")


if __name__ == "__main__":
    main()
