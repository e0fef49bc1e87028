"""Speed of a study with two workers of a Ray cluster against one worker, on this machine.

Run with `python -m bench.study`. Two runs do the same jobs from the start, one after the other, with one thread per
worker. The time is from the first finished job to the last, without starting Ray.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

import pixelcert as pc
from pixelcert.study.cluster import Cluster
from pixelcert.study.runner import Tally

STUDY = """
models = ["efficientnet_lite0"]
methods = ["grad", "gb", "ixg", "lrp", "grad_cam", "layer_cam"]
layers = ["input"]
sigma = 0.15
n = 64
tau = 0.6
images.folder = "embedded"
model.efficientnet_lite0.size = 112
"""


def seconds_with(workers: int, file: Path, folder: Path) -> tuple[float, int]:
    """Return the seconds of a run while all its workers work, and the jobs done in that time."""
    moments: list[tuple[float, int]] = []

    def watch(tally: Tally) -> None:
        if tally.workers == workers and tally.finished:
            moments.append((time.monotonic(), tally.finished))

    pc.Study.open(file, folder).run(device="cpu", cluster=Cluster("local", workers=workers), watch=watch)
    (first, before), (last, after) = moments[0], moments[-1]
    return last - first, after - before


def main() -> None:
    table = Table("workers", "jobs", "seconds", "jobs a minute", title="One study on Ray workers of one thread")
    rates = []
    with tempfile.TemporaryDirectory() as base:
        file = Path(base) / "study.toml"
        file.write_text(STUDY)
        for workers in (1, 2):
            seconds, jobs = seconds_with(workers, file, Path(base) / f"{workers}")
            rates.append(60 * jobs / seconds)
            table.add_row(str(workers), str(jobs), f"{seconds:.1f}", f"{rates[-1]:.1f}")
    console = Console()
    console.print(table)
    console.print(f"Two workers are {rates[1] / rates[0]:.2f} times as fast as one.")


if __name__ == "__main__":
    main()
