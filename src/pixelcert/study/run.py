"""Running a study on this machine: one job after the other, skipping what is done, here or by other processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from .job import Job
from .tally import Tally
from .worker import Worker

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
