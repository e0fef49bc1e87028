"""Machine description, time, memory and table rows for the benchmarks."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

import torch

import pixelcert as pc


def machine_in_words(device: torch.device) -> str:
    """Return the date, the kind of machine and the versions."""
    kind = torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    return f"{date.today()}, {kind}, torch {torch.__version__}, pixelcert {pc.__version__}"


def seconds(
    work: Callable[[], object], device: torch.device, repeats: int = 5, warm: int = 1, in_a_row: int = 1
) -> float:
    """Return the median time of `work`, run `in_a_row` times and including the device's own time.

    It is repeated less often if that would take longer than a second or two.
    """
    for _ in range(warm):
        work()
    times: list[float] = []
    while len(times) < repeats and sum(times) * in_a_row < 1.5:
        wait_for(device)
        start = time.perf_counter()
        for _ in range(in_a_row):
            work()
        wait_for(device)
        times.append((time.perf_counter() - start) / in_a_row)
    return statistics.median(times)


def wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def peak_memory(work: Callable[[], object], device: torch.device) -> float:
    """Return the peak memory of `work` in GB: the GPU's, or that of the whole process since it began."""
    if device.type != "cuda":
        work()
        status = Path("/proc/self/status").read_text()  # getrusage would count what the parent process held
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024 / 1e9
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    work()
    return torch.cuda.max_memory_allocated(device) / 1e9


def say(line: str = "") -> None:
    print(line, flush=True)


def row(*cells: object) -> None:
    """Print a row of a Markdown table."""
    say("| " + " | ".join(str(cell) for cell in cells) + " |")


def head(*cells: str) -> None:
    row(*cells)
    say("|" + "---|" * len(cells))
