"""Tally: how far a study is, how long its jobs take, and how long the rest will."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from .job import Cell, Job
from .worker import Ending


@dataclass
class Tally:
    """Counts what happens to the jobs of one run. Seconds come from this run alone."""

    totals: Counter[Cell]  # all jobs, by cell
    waiting: Counter[Cell]  # those still to be done
    workers: int = 1
    failures: dict[str, tuple[Job, str]] = field(default_factory=dict)  # by key
    notes: list[tuple[str, str]] = field(default_factory=list)  # jobs, and what the library warned of in them
    finished: int = 0  # in this run
    doing: str = ""
    memory: float | None = None  # peak of the GPU, GiB
    started: float = field(default_factory=time.monotonic)
    _seconds: dict[Cell, list[float]] = field(default_factory=lambda: defaultdict(list))

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

    def seconds_per_job(self, cell: Cell) -> float | None:
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
