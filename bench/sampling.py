"""What sampling costs beside the explainer, how its memory grows with n, and what the batch size changes.

Run with `make bench`. Times are given as ratios measured side by side, because machines are noisy.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

import pixelcert as pc
from pixelcert.models.embedded import photographs
from pixelcert.noise import noisy, snap
from pixelcert.ranking import count_votes

LEVELS = (50, 25, 10, 5)
BATCH = 16
METHODS = ("grad", "grad_cam")  # with and without a backward through the whole network
console = Console()


def median_seconds(work: Callable[[], object], repeats: int = 7) -> float:
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def overhead(model: pc.Classifier, image: torch.Tensor, target: int) -> None:
    """Noise, ranking and counting as a share of the explainer's own time, for one batch."""
    clean, targets = snap(image.to(model.device)), torch.full((BATCH,), target, device=model.device)
    images = noisy(clean, 0.15, 0, range(BATCH))
    table = Table("method", "noise", "ranking and counting", "together", title="share of the explainer's own time")
    for name in METHODS:
        explainer = pc.method(name, model)
        maps = torch.rand(BATCH, image.shape[1] * image.shape[2], device=model.device)
        bare = median_seconds(lambda explainer=explainer: explainer(images, targets))  # type: ignore[misc]
        noise = median_seconds(lambda: noisy(clean, 0.15, 0, range(BATCH))) / bare
        ranking = median_seconds(lambda maps=maps: count_votes(maps, LEVELS)) / bare  # type: ignore[misc]
        table.add_row(name, f"{noise:.1%}", f"{ranking:.1%}", f"{noise + ranking:.1%}")
    console.print(table)


def memory() -> None:
    """Peak resident memory of a whole process that samples n copies with Grad-CAM."""
    table = Table("n", "peak memory", title="peak memory of the process")
    for n in (50, 200, 1000):
        script = f"import bench.sampling as b; b.peak({n})"
        output = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
        table.add_row(str(n), f"{int(output) / 1024:.0f} MiB")
    console.print(table)


def peak(n: int) -> None:
    model = pc.load_model("efficientnet_lite0", device="cpu")
    pc.sample(pc.method("grad_cam", model), torch.full((3, 224, 224), 0.5), 967, n=n, tau=None)
    status = Path("/proc/self/status").read_text()  # getrusage would count what the parent process held
    sys.stdout.write(status.partition("VmHWM:")[2].split()[0])


def batch_dependence(model: pc.Classifier, image: torch.Tensor, target: int) -> None:
    """With a real network the batch size changes the order of sums, and so the last bits of a map."""
    table = Table("method", "batch sizes", "votes that differ", "labels that differ", title="n = 100, all levels")
    for name in METHODS:
        explainer = pc.method(name, model)
        whole = pc.sample(explainer, image, target, levels=LEVELS, batch_size=BATCH)
        for size in (1, 7, 32):
            other = pc.sample(explainer, image, target, levels=LEVELS, batch_size=size)
            votes = abs(whole.ones - other.ones).sum() / (whole.ones.size * whole.counted)
            one, two = whole.certify(), other.certify()
            labels = sum((one.labels[k] != two.labels[k]).mean() for k in LEVELS) / len(LEVELS)
            table.add_row(name, f"{BATCH} and {size}", f"{votes:.2e}", f"{labels:.2e}")
    console.print(table)


if __name__ == "__main__":
    classifier = pc.load_model("efficientnet_lite0")
    photo = pc.load_image(photographs()[0])
    top, _ = classifier.predict(photo)
    console.print(f"pixelcert {pc.__version__}, torch {torch.__version__}, {classifier}, batch {BATCH}")
    overhead(classifier, photo, top)
    memory()
    batch_dependence(classifier, photo, top)
