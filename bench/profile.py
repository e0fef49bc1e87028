"""Time of a certificate by stage, and by kernel on a GPU.

python -m bench.profile [--model resnet18] [--cells grad:input lrp:input …]
"""

from __future__ import annotations

import argparse
import warnings

import torch
from torch.profiler import ProfilerActivity, profile

import pixelcert as pc
from pixelcert.explainer import Tuning, explain
from pixelcert.noise import noisy, snap
from pixelcert.plan import Plan
from pixelcert.ranking import count_votes
from pixelcert.sampling.precision import rounding, settle
from pixelcert.sampling.sample import Subject, sample_each

from .machine import head, machine_in_words, row, say, seconds, wait_for

LEVELS = (50, 25, 5)


def stages(explainer: pc.Method, image: torch.Tensor, n: int) -> None:
    """Print the milliseconds per certificate of n samples: of each stage by itself, and of the whole."""
    device = explainer.model.device
    tuning, _ = settle(explainer, Tuning(compile=False), device, image.numel())
    fast, clean = explainer.tuned(tuning), snap(image).to(device)
    batch = min(n, tuning.batch_size or n)
    images = noisy(clean, 0.15, 0, range(batch))
    with rounding(tuning, device):
        maps = explain(fast, images, 3).maps.flatten(1)
        noise = seconds(lambda: noisy(clean, 0.15, 0, range(batch)), device) * n / batch
        explaining = seconds(lambda: explain(fast, images, 3), device) * n / batch
        ranking = seconds(lambda: count_votes(maps, LEVELS), device) * n / batch
    plan = Plan(n=n, levels=LEVELS)
    votes = next(sample_each(plan, explainer, [Subject(image, 3)]))
    certifying = seconds(votes.certify, device) if n >= 100 else 0.0
    whole = seconds(lambda: next(sample_each(plan, explainer, [Subject(image, 3)])), device) + certifying
    overhead = (noise + ranking) / explaining
    shown = (f"{1e3 * value:.2f} ms" for value in (noise, explaining, ranking, certifying, whole))
    row(explainer.title, explainer.layer, *shown, f"{overhead:.1%}")


def kernels(explainer: pc.Method, image: torch.Tensor, n: int, most: int = 10) -> None:
    """Print the kernels that take most of a certificate's time on the GPU."""
    plan, subjects = Plan(n=n, levels=LEVELS), [Subject(image, 3)] * 8
    list(sample_each(plan, explainer, subjects))
    with profile(activities=[ProfilerActivity.CUDA]) as trace:
        list(sample_each(plan, explainer, subjects))
        wait_for(explainer.model.device)
    found = [event for event in trace.key_averages() if event.self_device_time_total > 0]
    found.sort(key=lambda event: -event.self_device_time_total)
    total = sum(event.self_device_time_total for event in found)
    say(f"\n{explainer.title}, {explainer.layer}: {total / 1e3 / len(subjects):.2f} ms in kernels\n")
    head("kernel", "share", "calls")
    for event in found[:most]:
        name = event.key.replace("|", " ")[:90]
        row(f"`{name}`", f"{event.self_device_time_total / total:.0%}", f"{event.count / len(subjects):.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("-n", type=int)
    parser.add_argument(
        "--cells", nargs="*", default=["grad:input", "gb:input", "lrp:input", "cam:final", "rise:final"]
    )
    options = parser.parse_args()
    warnings.simplefilter("ignore", pc.PixelcertWarning)
    model = pc.load_model(options.model, weights=None)
    n = options.n or (100 if model.device.type == "cuda" else 16)
    image = torch.rand(3, model.size, model.size, generator=torch.Generator().manual_seed(0))
    explainers = [pc.method(name, model, layer) for name, _, layer in (cell.partition(":") for cell in options.cells)]
    say(f"{machine_in_words(model.device)}; {options.model}, n = {n}, levels 50 / 25 / 5\n")
    head("method", "layer", "noise", "explainer", "ranking and counting", "certifying", "whole", "overhead")
    for explainer in explainers:
        stages(explainer, image, n)
    if model.device.type == "cuda":
        for explainer in explainers:
            kernels(explainer, image, n)


if __name__ == "__main__":
    main()
