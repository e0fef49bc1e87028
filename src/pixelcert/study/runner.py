"""Runner: a study on this machine, job after job, with a tally and estimates of time."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from ..explainer import Tuning, explain
from ..methods import Method
from ..noise import noisy, snap
from ..ranking import count_votes
from ..sampling.precision import rounding, settle
from .job import Job, JobKind
from .store import bytes_of_votes
from .worker import Ending, Worker


@dataclass
class Tally:
    """Counts what happens to the jobs of one run. Seconds come from this run alone."""

    totals: Counter[JobKind]  # all jobs, by cell
    waiting: Counter[JobKind]  # those still to be done
    workers: int = 1
    failures: dict[str, tuple[Job, str]] = field(default_factory=dict)  # by key
    notes: list[tuple[str, str]] = field(default_factory=list)  # jobs, and what the library warned of in them
    finished: int = 0  # in this run
    doing: str = ""
    memory: float | None = None  # peak of the GPU, GiB
    started: float = field(default_factory=time.monotonic)
    _seconds: dict[JobKind, list[float]] = field(default_factory=lambda: defaultdict(list))

    @classmethod
    def of(cls, jobs: Iterable[Job], todo: Iterable[Job]) -> Tally:
        return cls(Counter(job.cell for job in jobs), Counter(job.cell for job in todo))

    @property
    def total(self) -> int:
        return sum(self.totals.values())

    @property
    def done(self) -> int:
        """Jobs with an answer, from this run, an earlier one or another process."""
        return self.total - sum(self.waiting.values())

    def record(self, job: Job, ending: Ending) -> None:
        """Count what became of a job."""
        if ending.memory is not None:
            self.memory = max(ending.memory, self.memory or 0.0)
        if ending.what in ("done", "found"):
            self.finish(job, ending.seconds, ending.notes)
        elif ending.what != "busy":
            self.fail(job, ending.cause)

    def finish(self, job: Job, seconds: float | None, notes: Iterable[str] = ()) -> None:
        """A job is done, by this run in so many seconds or (None) by another process."""
        self.notes += [(str(job), note) for note in dict.fromkeys(notes)]
        self.waiting[job.cell] -= 1
        self.failures.pop(job.key, None)
        if seconds is not None:
            self.finished += 1
            self._seconds[job.cell].append(seconds)

    def fail(self, job: Job, cause: str) -> None:
        """A job failed; it still waits, for a later try."""
        self.failures[job.key] = (job, cause)

    def seconds_per_job(self, cell: JobKind) -> float | None:
        if seen := self._seconds.get(cell):
            return sum(seen) / len(seen)
        known = [sum(seen) / len(seen) for seen in self._seconds.values()]
        return sum(known) / len(known) if known else None

    @property
    def rate(self) -> float:
        """Jobs per second of this run."""
        return self.finished / max(time.monotonic() - self.started, 1e-9)

    @property
    def left(self) -> float | None:
        """Seconds until the last job is done; None before anything is known."""
        seconds = [(count, self.seconds_per_job(cell)) for cell, count in self.waiting.items() if count > 0]
        if any(each is None for _, each in seconds):
            return None
        return sum(count * each for count, each in seconds if each is not None) / self.workers


Watch = Callable[[Tally], None]  # called whenever something happened
_PAUSE = 0.5  # seconds between looks at jobs that other processes are doing


def run_jobs(jobs: Sequence[Job], worker: Worker, tally: Tally, watch: Watch, retries: int = 1) -> None:
    """Do every job that is not done. Failed ones are tried again at the end, `retries` times; none stops the others.

    Any number of processes may do this on one folder at once. Ctrl-C and a full disk end it, with all that was finished
    in the store.
    """
    todo = list(jobs)
    for _ in range(1 + retries):
        todo = _one_pass(todo, worker, tally, watch)
        if not todo:
            return


def _one_pass(jobs: Sequence[Job], worker: Worker, tally: Tally, watch: Watch) -> list[Job]:
    """Each job is done, by this process or another, or failed: the failed ones are returned."""
    failed: list[Job] = []
    waiting = list(jobs)
    while waiting:
        busy = []
        for job in waiting:
            tally.doing = str(job)
            watch(tally)
            ending = worker.attempt(job, partial(_show, job, tally, watch))
            tally.doing = ""
            if ending.what == "busy":
                busy.append(job)
            elif ending.what == "failed":
                failed.append(job)
            tally.record(job, ending)
            watch(tally)
        if busy and len(busy) == len(waiting):
            time.sleep(_PAUSE)
        waiting = busy
    return failed


def _show(job: Job, tally: Tally, watch: Watch, counted: int, planned: int) -> None:
    tally.doing = f"{job}: {counted} of {planned} samples"
    watch(tally)


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
) -> dict[JobKind, Estimate]:
    """The cost of every cell of `jobs`, in the order of the jobs."""
    by_cell: dict[JobKind, list[Job]] = {}
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
        runs = max(1, explainer.passes)
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
    tuning = settle(explainer, Tuning(precision=worker.precision, compile=False), device, clean.numel())
    fast = explainer.tuned(tuning)
    if runs <= _SHORT:
        indices = range(_samples(clean, tuning.batch_size or 1))

        def count(clean: Tensor) -> object:
            maps = explain(fast, noisy(clean, plan.sigma, plan.seed, indices), 0).maps
            return count_votes(maps.flatten(1), plan.levels, plan.sign, plan.rule)

        with rounding(tuning, device):
            return _time(count, clean) / len(indices)
    place = (job.model.label, job.size, job.layer)
    if place not in speeds:
        features, head = fast.model.split(job.layer)
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
