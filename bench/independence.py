"""Cost of the checks of independence: a certificate with them and without, the first one and later ones.

    python -m bench.independence [--weights resnet18.safetensors]

Each pair of times is measured in turn, side by side: on a CPU, time of one thread, because other programs may be at
work. The last columns count the explanations that the checks ask for.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch

import pixelcert as pc
from pixelcert.explainer import explain
from pixelcert.sampling import independence

from .machine import head, machine_in_words, row, say, wait_for

METHODS: dict[str, dict[str, Any]] = {
    "grad": {"layer": "input"},
    "grad_cam": {"layer": "final"},
    "lrp": {"layer": "input"},
    "rise": {"layer": "final", "masks": 50},
}
Make = Callable[[], Any]  # makes an explainer on a network that was never certified


def makers(weights: str | None) -> dict[str, Make]:
    """Return a maker of each explainer."""

    def model() -> pc.Classifier:
        return pc.load_model("resnet18", weights=weights)

    def black_box() -> Callable[..., torch.Tensor]:
        net = model()
        return lambda images, targets: net.normalise(images).abs().sum(dim=1) + net(images)[:, :1, None]

    methods = {
        f"{pc.METHODS[name].title}, {given['layer']}": lambda name=name, given=given: pc.method(name, model(), **given)
        for name, given in METHODS.items()
    }
    return {**methods, "black box": black_box}


@contextmanager
def unchecked() -> Iterator[None]:
    """Switch the checks off inside the block."""
    with patch.object(independence.Independence, "rows", lambda *given: None):
        yield


def count_explanations(make: Make, certify: Callable[[Any], object]) -> tuple[int, int]:
    """Count the images that the checks explain for a first certificate and for a later one."""
    counts, explainer = [], make()
    for _ in range(2):
        with patch.object(independence, "explain", wraps=explain) as asked:
            certify(explainer)
        counts.append(sum(len(call.args[1]) for call in asked.call_args_list))
    return counts[0], counts[1]


def time_of(certify: Callable[[Any], object], explainer: Any, device: torch.device) -> float:
    clock = time.perf_counter if device.type == "cuda" else time.process_time
    wait_for(device)
    start = clock()
    certify(explainer)
    wait_for(device)
    return clock() - start


def measure(make: Make, certify: Callable[[Any], object], device: torch.device, repeats: int) -> list[str]:
    """Return the times of first and later certificates, checked and not, their ratios, and the explanations."""
    times: dict[str, list[float]] = {name: [] for name in ("first", "later", "first off", "later off")}
    for turn in range(repeats + 1):
        checked, plain = make(), make()
        for when in ("first", "later"):
            on = time_of(certify, checked, device)
            with unchecked():
                off = time_of(certify, plain, device)
            if turn:  # the first turn warms up the machine
                times[when].append(on)
                times[f"{when} off"].append(off)
    middle = {name: statistics.median(some) for name, some in times.items()}
    cells = []
    for when, explanations in zip(("first", "later"), count_explanations(make, certify), strict=True):
        on, off = middle[when], middle[f"{when} off"]
        cells += [f"{1e3 * off:.1f} ms", f"{1e3 * on:.1f} ms", f"{on / off:.2f}", str(explanations)]
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", help="a file of ResNet-18's weights; random weights by default")
    parser.add_argument("--repeats", type=int)
    options = parser.parse_args()
    warnings.simplefilter("ignore", pc.PixelcertWarning)
    device = pc.load_model("resnet18", weights=None).device
    if not (large := device.type == "cuda"):
        torch.set_num_threads(1)
    n, size, repeats = (100, None, options.repeats or 20) if large else (32, 16, options.repeats or 3)
    image = torch.rand(3, 224, 224, generator=torch.Generator().manual_seed(0))

    def certify(explainer: Any) -> object:
        return pc.sample(explainer, image.to(device), 3, n=n, batch_size=size, compile=False, tau=None)

    say(f"{machine_in_words(device)}; ResNet-18, n = {n}, batches of {size or n}\n")
    columns = ("unchecked", "checked", "ratio", "explanations")
    head("explainer", *(f"{when}, {column}" for when in ("first", "later") for column in columns))
    for name, make in makers(options.weights).items():
        row(name, *measure(make, certify, device, repeats))


if __name__ == "__main__":
    main()
