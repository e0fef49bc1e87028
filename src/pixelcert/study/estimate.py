"""Estimates before a run: network runs, disk, and time per job from a short calibration on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..explainer import choose_batch_size, explain
from ..methods import Method
from ..noise import noisy, snap
from ..ranking import count_votes
from ..tuning import choose_tuning, rounding, tune
from .job import Cell, Job
from .store import bytes_of_votes
from .worker import Worker

_SHORT = 32  # network runs per image above which a method is not timed itself, but the network behind its layer
_SAMPLES = {"cpu": 2}  # noisy images timed at once; an accelerator is timed on its own batch
_ROUNDS = 3  # the first warms up; the quickest counts, for others may use the machine


@dataclass(frozen=True)
class Estimate:
    """What the jobs of one cell cost."""

    jobs: int  # still to be done
    sampled: int  # how often maps are made for them; presets share theirs
    forwards: int  # runs of the network, for all of them
    bytes: int  # of votes, for all of them
    seconds: float | None  # each time; None where it was not measured
    refused: str = ""  # why the method cannot explain this model, if it cannot


def estimate(
    jobs: Sequence[Job], worker: Worker, calibrate: bool = True, progress: Callable[[int, int], None] | None = None
) -> dict[Cell, Estimate]:
    """The cost of every cell of `jobs`, in the order of the jobs."""
    by_cell: dict[Cell, list[Job]] = {}
    for job in jobs:
        by_cell.setdefault(job.cell, []).append(job)
    found = {}
    speeds: dict[tuple[str, int, str], float] = {}
    for cell, members in by_cell.items():
        found[cell] = _estimate_cell(members, worker, calibrate, speeds)
        if progress is not None:
            progress(len(found), len(by_cell))
    return found


def _estimate_cell(
    jobs: Sequence[Job], worker: Worker, calibrate: bool, speeds: dict[tuple[str, int, str], float]
) -> Estimate:
    job, space = jobs[0], sum(map(bytes_of_votes, jobs))
    sampled = len({(job.scene.kind, job.scene.name, job.plan.sigma) for job in jobs})
    try:
        explainer = worker.explainer(job)
        runs = max(1, explainer.forwards)
        per_sample = _seconds_per_sample(job, worker, explainer, runs, speeds) if calibrate else None
    except Exception as error:  # a method that fails here will fail as a job, and is listed with its cause
        return Estimate(len(jobs), sampled, 0, space, None, f"{type(error).__name__}: {error}")
    # The clean map of a grid is one more explanation; deletion is about as much for an image.
    seconds = None if per_sample is None else per_sample * (job.plan.n + 1)
    return Estimate(len(jobs), sampled, runs * job.plan.n * sampled, space, seconds)


def _seconds_per_sample(
    job: Job, worker: Worker, explainer: Method, runs: int, speeds: dict[tuple[str, int, str], float]
) -> float:
    clean = snap(worker.image(job).to(explainer.model.device))
    plan, device = job.plan, clean.device
    tuning = choose_tuning(explainer, device, worker.precision, False, 0)
    fast = tune(explainer, tuning)
    if runs <= _SHORT:
        indices = range(_samples(clean, choose_batch_size(explainer, device, clean.numel())))

        def count(clean: Tensor) -> object:
            maps = explain(fast, noisy(clean, plan.sigma, plan.seed, indices), 0).maps
            return count_votes(maps.flatten(1), plan.levels, plan.sign, plan.rule)

        with rounding(tuning, device):
            return _time(count, clean) / len(indices)
    place = (job.model.label, job.size, job.layer)
    if place not in speeds:
        features, head = fast.model.split(job.layer)  # type: ignore[attr-defined]
        with torch.inference_mode(), rounding(tuning, device):
            given = features(noisy(clean, plan.sigma, plan.seed, range(_samples(clean, 128))))
            speeds[place] = _time(head, given) / len(given)
    return runs * speeds[place]


def _time(work: Callable[[Tensor], object], given: Tensor) -> float:
    """Seconds that `work` takes."""
    seconds = []
    for _ in range(_ROUNDS):
        _wait_for(given.device)
        started = time.perf_counter()
        work(given)
        _wait_for(given.device)
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def _samples(clean: Tensor, batch: int) -> int:
    return min(batch, _SAMPLES.get(clean.device.type, batch))


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
