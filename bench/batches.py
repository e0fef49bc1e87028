"""Effect of the batch size on votes and labels, and of n on the memory of a CPU process.

python -m bench.batches
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torch

import pixelcert as pc
from pixelcert.models.loading import photographs

from .machine import head, machine_in_words, row, say

LEVELS = (50, 25, 10, 5)
METHODS = ("grad", "grad_cam")  # with and without a backward through the whole network


def memory() -> None:
    """Print the peak resident memory of a whole process that samples n copies with Grad-CAM."""
    say("\nPeak memory of a process on the CPU, Grad-CAM\n")
    head("n", "peak memory")
    for n in (50, 200, 1000):
        script = f"import bench.batches as b; b.peak({n})"
        output = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
        row(n, f"{int(output) / 1024:.0f} MiB")


def peak(n: int) -> None:
    model = pc.load_model("efficientnet_lite0", device="cpu")
    pc.sample(pc.method("grad_cam", model), torch.full((3, 224, 224), 0.5), 967, n=n, tau=None)
    status = Path("/proc/self/status").read_text()  # getrusage would count what the parent process held
    sys.stdout.write(status.partition("VmHWM:")[2].split()[0])


def batch_dependence() -> None:
    """Print the share of votes and labels that the batch size changes.

    In a real network it changes the order of sums, and so the last bits of a map.
    """
    model = pc.load_model("efficientnet_lite0")
    image = pc.load_image(photographs()[0])
    target, _ = model.predict(image)
    say(f"\n{machine_in_words(model.device)}; {model.name}, n = 100, levels {LEVELS}\n")
    head("method", "batch sizes", "votes that differ", "labels that differ")
    for name in METHODS:
        explainer = pc.method(name, model)
        whole = pc.sample(explainer, image, target, levels=LEVELS, batch_size=16)
        for size in (1, 7, 32):
            other = pc.sample(explainer, image, target, levels=LEVELS, batch_size=size)
            votes = abs(whole.ones - other.ones).sum() / (whole.ones.size * whole.counted)
            one, two = whole.certify(), other.certify()
            labels = sum((one.labels[k] != two.labels[k]).mean() for k in LEVELS) / len(LEVELS)
            row(name, f"16 and {size}", f"{votes:.1e}", f"{labels:.1e}")


def main() -> None:
    batch_dependence()
    memory()


if __name__ == "__main__":
    main()
