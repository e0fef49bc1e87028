"""Runner: a study on this machine, job after job, with a tally and estimates of time."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

import torch
from torch import Tensor

from ..basics.messages import Progress
from ..methods import Method
from ..noise import noisy, snap
from ..ranking import count_votes
from ..sampling.loop import explain_copies
from ..sampling.precision import rounding, settle
from .job import Job, JobKind
from .store import bytes_of_votes
from .worker import Ending, Materials, Worker


@dataclass
class Tally:
    """Counts what happens to the jobs of one run. Seconds are of this run only."""

    totals: Counter[JobKind]  # all jobs
    waiting: Counter[JobKind]  # those still to be done
    workers: int = 1
    failures: dict[str, tuple[Job, str]] = field(default_factory=dict)  # by key
    notes: list[tuple[str, str]] = field(default_factory=list)  # (job, what the library warned of in it)
    finished: int = 0  # in this run
    doing: str = ""
    memory: float | None = None  # peak of the GPU, GiB
    started: float = field(default_factory=time.monotonic)
    _seconds: dict[JobKind, list[float]] = field(default_factory=lambda: defaultdict(list))

    @classmethod
    def of(cls, jobs: Iterable[Job], todo: Iterable[Job]) -> Tally:
        return cls(Counter(job.kind for job in jobs), Counter(job.kind for job in todo))

    @property
    def total(self) -> int:
        return sum(self.totals.values())

    @property
    def done(self) -> int:
        """Jobs that are done, by this run, an earlier one or another process."""
        return self.total - sum(self.waiting.values())

    def record(self, job: Job, ending: Ending) -> None:
        """Count the end of an attempt. A failed job still waits, for a later try."""
        if ending.memory is not None:
            self.memory = max(ending.memory, self.memory or 0.0)
        if ending.what in ("failed", "died"):
            self.failures[job.key] = (job, ending.cause)
        if ending.what in ("done", "found"):
            self.notes += [(str(job), note) for note in dict.fromkeys(ending.notes)]
            self.waiting[job.kind] -= 1
            self.failures.pop(job.key, None)
        if ending.seconds is not None:
            self.finished += 1
            self._seconds[job.kind].append(ending.seconds)

    @property
    def rate(self) -> float:
        """Jobs per second of this run."""
        return self.finished / max(time.monotonic() - self.started, 1e-9)

    @property
    def left(self) -> float | None:
        """Estimated seconds left, from the mean of each kind of job, else of all kinds; None before one is done."""
        waiting = {kind: count for kind, count in self.waiting.items() if count > 0}
        means = {kind: fmean(seconds) for kind, seconds in self._seconds.items()}
        if waiting and not means:
            return None
        others = fmean(means.values()) if means else 0.0
        return sum(count * means.get(kind, others) for kind, count in waiting.items()) / self.workers


Watch = Callable[[Tally], None]  # called whenever something happened
_PAUSE = 0.5  # seconds between looks at jobs that other processes are doing


def run_jobs(jobs: Sequence[Job], worker: Worker, tally: Tally, watch: Watch, retries: int = 1) -> None:
    """Do every job that is not done, and try failed ones again at the end, `retries` times.

    A failed job does not stop the others. Any number of processes may do this on one folder at once. Ctrl-C and a full
    disk end the run; finished jobs are in the store.
    """
    todo = list(jobs)
    for _ in range(1 + retries):
        todo = _try_all(todo, worker, tally, watch)


def _try_all(jobs: Sequence[Job], worker: Worker, tally: Tally, watch: Watch) -> list[Job]:
    """Try each job until this process or another has done it, or it failed; return the failed ones."""
    failed: list[Job] = []
    waiting = list(jobs)
    while waiting:
        busy = []
        for job in waiting:

            def show(counted: int, planned: int, job: Job = job) -> None:
                tally.doing = f"{job}: {counted} of {planned} samples"
                watch(tally)

            tally.doing = str(job)
            watch(tally)
            ending = worker.attempt(job, show)
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


_SHORT = 32  # network passes per image; of methods with more only the network behind their layer is timed
_SAMPLES = {"cpu": 2}  # noisy images timed at once; an accelerator is timed on its own batch
_ROUNDS = 3  # the first warms up; the quickest counts, because others may use the machine


@dataclass(frozen=True)
class Estimate:
    """The cost of the jobs of one kind."""

    jobs: int  # still to be done
    sampled: int  # how often maps are made for them; presets share theirs
    passes: int  # of the network, for all of them
    bytes: int  # of votes, for all of them
    seconds: float | None  # for the maps of one scene; None where it was not measured
    refused: str = ""  # why the method cannot explain this model, if it cannot


def estimate(
    jobs: Sequence[Job], materials: Materials, calibrate: bool = True, progress: Progress | None = None
) -> dict[JobKind, Estimate]:
    """Return the cost of every kind of `jobs`, in the order of the jobs."""
    by_kind: dict[JobKind, list[Job]] = {}
    for job in jobs:
        by_kind.setdefault(job.kind, []).append(job)
    found = {}
    speeds: dict[tuple[str, int, str], float] = {}  # seconds per pass of the network behind a layer
    for kind, members in by_kind.items():
        found[kind] = _estimate_kind(members, materials, calibrate, speeds)
        if progress is not None:
            progress(len(found), len(by_kind))
    return found


def _estimate_kind(
    jobs: Sequence[Job], materials: Materials, calibrate: bool, speeds: dict[tuple[str, int, str], float]
) -> Estimate:
    job, space = jobs[0], sum(map(bytes_of_votes, jobs))
    sampled = len({(job.scene.kind, job.scene.name, job.plan.sigma) for job in jobs})
    try:
        explainer = materials.explainer(job)
        passes = max(1, explainer.passes)
        per_sample = _seconds_per_sample(job, materials, explainer, passes, speeds) if calibrate else None
    except Exception as error:  # a method that fails here will fail as a job, and is listed with its cause
        return Estimate(len(jobs), sampled, 0, space, None, f"{type(error).__name__}: {error}")
    # The clean map of a grid is one more explanation; deletion is about as much for an image.
    seconds = None if per_sample is None else per_sample * (job.plan.n + 1)
    return Estimate(len(jobs), sampled, passes * job.plan.n * sampled, space, seconds)


def _seconds_per_sample(
    job: Job, materials: Materials, explainer: Method, passes: int, speeds: dict[tuple[str, int, str], float]
) -> float:
    """Time some samples, or for a method of many passes the network behind its layer."""
    clean = snap(materials.image(job).to(explainer.model.device))
    plan, device = job.plan, clean.device
    tuning, _ = settle(explainer, replace(materials.settings.tuning, compile=False), device, clean.numel())
    fast = explainer.tuned(tuning)
    if passes <= _SHORT:
        samples = range(_samples(clean, tuning.batch_size or 1))

        def count(clean: Tensor) -> object:
            maps = explain_copies(fast, clean, 0, sigma=plan.sigma, key=0, samples=samples)[1].maps
            return count_votes(maps.flatten(1), plan.levels, plan.sign, plan.rule)

        with rounding(tuning, device):
            return _time(count, clean) / len(samples)
    place = (job.model.name, job.size, job.layer)
    if place not in speeds:
        features, head = fast.model.split(job.layer)
        with torch.inference_mode(), rounding(tuning, device):
            given = features(noisy(clean, plan.sigma, 0, range(_samples(clean, 128))))
            speeds[place] = _time(head, given) / len(given)
    return passes * speeds[place]


def _time(work: Callable[[Tensor], object], given: Tensor) -> float:
    """Return the seconds that `work` takes."""
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
