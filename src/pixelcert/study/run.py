"""Running a study on this machine: one job after the other, skipping what is done, here or by other processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from .job import Job
from .store import DiskFullError
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
            with worker.store.claim(job) as mine:
                if worker.store.done(job):
                    tally.finish(job, None)
                elif not mine:
                    busy.append(job)
                    continue
                elif not _attempt(job, worker, tally, watch):
                    failed.append(job)
            watch(tally)
        if busy and len(busy) == len(waiting):
            time.sleep(_PAUSE)
        waiting = busy
    return failed


def _attempt(job: Job, worker: Worker, tally: Tally, watch: Watch) -> bool:
    """Do one job, and record a failure with its cause. A full disk is not the job's failure: it ends the run."""

    def progress(counted: int, planned: int) -> None:
        tally.doing = f"{job}: {counted} of {planned} samples"
        watch(tally)

    tally.doing = str(job)
    watch(tally)
    started = time.monotonic()
    try:
        notes = worker.do(job, progress)
    except DiskFullError:
        raise
    except Exception as error:
        worker.store.save_failure(job, error)
        tally.fail(job, f"{type(error).__name__}: {error}")
        return False
    tally.doing, tally.memory = "", worker.memory
    tally.finish(job, time.monotonic() - started, notes)
    return True
