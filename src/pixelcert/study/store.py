"""Store: the files with the answers of jobs, and a lock for each job, held by the process that does it.

Where a file system has no locks, two processes may do the same job at once. That only wastes time, because files are
replaced whole, and both hold the same answer.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from ..basics.files import digest_of, disk_full, read_sealed, sha256, write_sealed
from ..basics.locks import lock
from ..basics.messages import ArgumentError, Progress, VotesFileError
from ..sampling.checkpoint import Place
from ..votes import Votes, count_type
from .job import Job
from .settings import Settings

MEASURES, MEASURES_VERSION = "pixelcert measures", 2
FAILURE, FAILURE_VERSION = "pixelcert failure", 1
_CHUNK = 256  # jobs whose files are read at once
_SPARE = 1 << 20  # bytes that a disk should have left besides the next file


class Store:
    """The answers of a study's jobs, by job."""

    def __init__(self, folder: str | Path, settings: Settings) -> None:
        self.folder = Path(folder)
        self._test = _digest_of_test(settings)

    # ── Files ─────────────────────────────────────────────────────────────────────────────────────────────────

    def votes_file(self, job: Job) -> Path:
        return self.folder / "votes" / job.key[:2] / f"{job.key}.safetensors"

    def measures_file(self, job: Job) -> Path:
        return self.folder / "measures" / job.key[:2] / f"{job.key}-{self._test}.json"

    def failure_file(self, job: Job) -> Path:
        return self.folder / "failures" / f"{job.key}.json"

    def lock_file(self, job: Job) -> Path:
        return self.folder / "claims" / job.key

    def place(self, job: Job) -> Place:
        """Return the files of a job's whole and partial votes."""
        return Place(self.votes_file(job), self.folder / "partial" / f"{job.key}.safetensors")

    def lock(self, job: Job) -> AbstractContextManager[bool]:
        """Yield True if this process may do the job, and no other one is doing it."""
        return lock(self.lock_file(job))

    # ── State ─────────────────────────────────────────────────────────────────────────────────────────────────

    def done(self, job: Job) -> bool:
        """Return True if votes and measures are there; `damaged` reads them."""
        return self.measured(job) and self.votes_file(job).exists()

    def measured(self, job: Job) -> bool:
        """Return True if the measures are there. Tables need no more, so the votes may be elsewhere."""
        return self.measures_file(job).exists()

    def begun(self, job: Job) -> bool:
        """Return True if a process is doing the job, or ended in the middle of it."""
        return self.lock_file(job).exists()

    def damaged(self, jobs: Sequence[Job], progress: Progress | None = None) -> list[Path]:
        """Read all files of these jobs; return those that are not whole, and measures of other votes."""
        found: list[Path] = []
        with ThreadPoolExecutor(8) as pool:
            for start in range(0, len(jobs), _CHUNK):
                chunk = jobs[start : start + _CHUNK]
                found += (file for files in pool.map(self._damaged, chunk) for file in files)
                if progress is not None:
                    progress(start + len(chunk), len(jobs))
        return found

    def _damaged(self, job: Job) -> list[Path]:
        votes, measures = self.votes_file(job), self.measures_file(job)
        if votes.exists() and self.load_votes(job) is None:
            return [votes]
        if measures.exists() and (self.load_measures(job) or {}).get("votes") != _digest_of_file(votes):
            return [measures]
        return []

    # ── Answers ───────────────────────────────────────────────────────────────────────────────────────────────

    def load_votes(self, job: Job) -> Votes | None:
        """Return the job's votes; None if they are absent or damaged."""
        return load_votes(self.votes_file(job))

    def load_measures(self, job: Job) -> dict[str, Any] | None:
        """Return the job's measures; None if they are absent or damaged."""
        return _read(self.measures_file(job), MEASURES, MEASURES_VERSION)

    def save_measures(self, job: Job, measures: Mapping[str, Any]) -> None:
        """Keep a job's measures with the digest of its votes, so that measures of other votes are found."""
        content = {"job": job.question, "votes": _digest_of_file(self.votes_file(job)), **measures}
        write_sealed(self.measures_file(job), MEASURES, MEASURES_VERSION, content)
        self.failure_file(job).unlink(missing_ok=True)

    def save_failure(self, job: Job, cause: str) -> None:
        content = {"title": str(job), "cause": cause, "job": job.question}
        write_sealed(self.failure_file(job), FAILURE, FAILURE_VERSION, content)

    def failures(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, str]]:
        """Yield the jobs that failed when they were last tried, with the cause."""
        for job in jobs:
            if (failure := _read(self.failure_file(job), FAILURE, FAILURE_VERSION)) is not None:
                yield job, str(failure["cause"])

    def make_room(self, job: Job) -> None:
        """Remove half-written files of a process that was killed in this job; refuse a disk without room for votes.

        The caller holds the job's lock.
        """
        for file in (*self.place(job), self.measures_file(job), self.failure_file(job)):
            for litter in file.parent.glob(f".{file.name}.*"):
                litter.unlink(missing_ok=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(self.folder).free
        if free < (needed := bytes_of_votes(job) + _SPARE):
            raise disk_full(self.folder, f"{free / 1e6:.1f} MB are left and {needed / 1e6:.1f} MB are needed")


def bytes_of_votes(job: Job) -> int:
    """Return the approximate size of a job's votes file, in bytes."""
    counts = (2 + bool(job.plan.guess)) * len(job.plan.levels) * count_type(job.plan.n).itemsize
    return (counts + 3) * job.size**2 + (1 << 13)


def load_votes(file: Path) -> Votes | None:
    """Return the votes in a file; None if it is absent or damaged."""
    try:
        return Votes.load(file) if file.exists() else None
    except VotesFileError:
        return None


def _digest_of_test(settings: Settings) -> str:
    """Return a digest of all that measures depend on besides the votes."""
    asked = settings.model_dump(mode="json", include={"tau", "alpha", "correction"})
    asked |= {"deletion": list(settings.deletion_taus), "version": MEASURES_VERSION}
    return digest_of(asked)[:8]


def _digest_of_file(file: Path) -> str | None:
    return sha256(file.read_bytes()) if file.exists() else None


def _read(file: Path, kind: str, version: int) -> dict[str, Any] | None:
    """Return sealed JSON; None if it is absent or damaged."""
    try:
        return read_sealed(file, kind, version, "run the study again")
    except ArgumentError:
        return None
