"""Growth of time and memory with n, levels, image size, batch and masks, with random weights.

python -m bench.scaling [--model resnet18]
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import torch

import pixelcert as pc
from pixelcert.explainer import Tuning
from pixelcert.plan import Plan
from pixelcert.sampling.precision import choose_batch_size
from pixelcert.sampling.sample import Subject, sample_each

from .machine import head, machine_in_words, peak_memory, row, say, seconds


def measure(explainer: pc.Method, size: int = 224, batch_size: int | None = None, **settings: Any) -> tuple[str, str]:
    """Return the time and peak memory of one certificate's sampling."""
    device = explainer.model.device
    plan = Plan(**settings)
    subject = Subject(torch.rand(3, size, size, generator=torch.Generator().manual_seed(0)), 3)

    def work() -> object:
        return next(sample_each(plan, explainer, [subject], Tuning(batch_size, compile=False)))

    memory = peak_memory(work, device)  # also warms up
    took = seconds(work, device, repeats=3 if device.type == "cuda" else 1, warm=0)
    return (f"{1e3 * took:.1f} ms" if took < 1 else f"{took:.2f} s"), f"{memory:.2f} GB"


def table(title: str, name: str, values: dict[str, tuple[str, str]]) -> None:
    say(f"\n{title}\n")
    head(name, *values)
    row("time", *(time for time, _ in values.values()))
    row("peak memory", *(memory for _, memory in values.values()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet18")
    options = parser.parse_args()
    warnings.simplefilter("ignore", pc.PixelcertWarning)
    model = pc.load_model(options.model, weights=None)
    large = model.device.type == "cuda"
    n = 100 if large else 16
    grad, rise = pc.method("grad", model, "input"), pc.method("rise", model, "input")
    say(f"{machine_in_words(model.device)}; {options.model}")
    say("Gradient at the input, except in the table of RISE's masks")

    counts = (50, 100, 200, 400, 1000) if large else (8, 16, 32)
    table("Samples", "n", {str(count): measure(grad, n=count) for count in counts})
    many = {"1": (50,), "4": (50, 25, 10, 5), "16": tuple(range(3, 51, 3)), "49": tuple(range(1, 50))}
    table(f"Levels, n = {n}", "levels", {name: measure(grad, n=n, levels=levels) for name, levels in many.items()})
    sizes = (112, 224, 336, 448) if large else (112, 224)
    table(f"Image size, n = {n}", "side", {str(size): measure(grad, size, n=n) for size in sizes})
    chosen = choose_batch_size(grad, model.device, 3 * 224 * 224)
    batches = (8, 32, 64, 128, 256, 512) if large else (1, 4, 16)
    samples = 512 if large else 16
    table(
        f"Batch, n = {samples}; by default {chosen}",
        "batch",
        {str(size): measure(grad, batch_size=size, n=samples) for size in batches},
    )
    masks = (250, 500, 1000, 2000) if large else (8, 16, 32)
    few = 20 if large else 2
    methods = {str(count): pc.method("rise", model, rise.layer, masks=count) for count in masks}
    table(f"RISE's masks, n = {few}", "masks", {name: measure(method, n=few) for name, method in methods.items()})


if __name__ == "__main__":
    main()
