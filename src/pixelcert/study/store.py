"""Claims: who is doing a job now, among any number of processes on one folder.

A claim is an advisory lock of the operating system on a small file, so that it ends with its process, however that
ends: no stale claims, no clocks, no database. Network file systems carry such locks between machines (NFS does; Lustre
when mounted with `flock`). Where there are none, two processes may do the same job at once, which wastes time and
nothing else: files are replaced whole, and both hold the same answer.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from ..basics.files import disk_full, sha256, write_atomically
from ..basics.messages import VotesFileError
from ..sampling.checkpoint import Place
from ..votes import Votes
from .job import Job
from .settings import Settings

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


@contextmanager
def lock(path: Path) -> Iterator[bool]:
    """Whether `path` could be claimed, for as long as the context lasts."""
    if fcntl is None:
        yield True
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_CREAT | os.O_RDWR, 0o666)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        except OSError:  # a file system without locks
            yield True
            return
        if not _is_there(path, handle):  # its owner removed it since we opened it, and others may claim it anew
            yield False
            return
        yield True
        path.unlink(missing_ok=True)
    finally:
        os.close(handle)


def _is_there(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


MEASURES_VERSION = 2
_CHUNK = 256  # jobs whose files are read at once
_SPARE = 1 << 20  # bytes that a disk should have left besides the next file


class Store:
    """Where a study's jobs leave their answers."""

    def __init__(self, folder: str | Path, settings: Settings) -> None:
        self.folder = Path(folder)
        self._test = _digest_of_test(settings)

    # ── Names ─────────────────────────────────────────────────────────────────────────────────────────────────

    def votes_file(self, job: Job) -> Path:
        return self.folder / "votes" / job.key[:2] / f"{job.key}.safetensors"

    def measures_file(self, job: Job) -> Path:
        return self.folder / "measures" / job.key[:2] / f"{job.key}-{self._test}.json"

    def place(self, job: Job) -> Place:
        return Place(self.votes_file(job), self.folder / "partial" / f"{job.key}.safetensors")

    def failure_file(self, job: Job) -> Path:
        return self.folder / "failures" / f"{job.key}.json"

    # ── Jobs ──────────────────────────────────────────────────────────────────────────────────────────────────

    def done(self, job: Job) -> bool:
        """Whether both answers are there; `damaged` says whether they are whole."""
        return self.measured(job) and self.votes_file(job).exists()

    def measured(self, job: Job) -> bool:
        """Whether the job's measures are there, which is all that tables need: votes may have stayed elsewhere."""
        return self.measures_file(job).exists()

    def begun(self, job: Job) -> bool:
        """Whether a process began the job and was cut off, or is doing it now."""
        return self._claim_file(job).exists()

    def _claim_file(self, job: Job) -> Path:
        return self.folder / "claims" / job.key

    def lock(self, job: Job) -> AbstractContextManager[bool]:
        """Whether this process may do the job now, and no other does."""
        return lock(self._claim_file(job))

    def damaged(self, jobs: Sequence[Job], progress: Callable[[int, int], None] | None = None) -> list[Path]:
        """Files of these jobs that are not whole, or measures of other votes, after reading them all."""
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
        if votes.exists() and _load(votes) is None:
            return [votes]
        if measures.exists() and (self.load_measures(job) or {}).get("votes") != _digest_of(votes):
            return [measures]
        return []

    # ── Answers ───────────────────────────────────────────────────────────────────────────────────────────────

    def load_votes(self, job: Job) -> Votes | None:
        """The job's votes; None if they are absent or damaged."""
        return _load(self.votes_file(job))

    def load_partial(self, job: Job) -> Votes | None:
        return _load(self.place(job).partial)

    def save_votes(self, job: Job, votes: Votes) -> None:
        """Keep complete votes as the job's answer, incomplete ones to be continued."""
        self.place(job).save(votes)

    def load_measures(self, job: Job) -> dict[str, Any] | None:
        """The job's measures; None if they are absent or damaged."""
        return _read_json(self.measures_file(job))

    def save_measures(self, job: Job, measures: dict[str, Any]) -> None:
        votes = _digest_of(self.votes_file(job))  # so that measures of other votes are told apart
        content = {"version": MEASURES_VERSION, "job": job.question, "votes": votes, **measures}
        _write(lambda: _write_json(self.measures_file(job), content))
        self.failure_file(job).unlink(missing_ok=True)

    def save_failure(self, job: Job, cause: str) -> None:
        content = {"title": str(job), "cause": cause, "job": job.question}
        _write(lambda: _write_json(self.failure_file(job), content))

    def failures(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, str]]:
        """Jobs that failed when they were last tried, and why."""
        for job in jobs:
            if (failure := _read_json(self.failure_file(job))) is not None:
                yield job, str(failure["cause"])

    # ── Room ──────────────────────────────────────────────────────────────────────────────────────────────────

    def require_room(self, job: Job) -> None:
        """Refuse to begin a job whose votes would not fit on the disk, before any time is spent on it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(self.folder).free
        if free < (needed := bytes_of_votes(job) + _SPARE):
            raise disk_full(self.folder, f"{free / 1e6:.1f} MB are left and {needed / 1e6:.1f} MB are needed")

    def sweep(self, job: Job) -> None:
        """Remove what a process that was killed while writing this job's files left behind. Needs the job's claim."""
        for file in (self.votes_file(job), self.measures_file(job), self.place(job).partial, self.failure_file(job)):
            for litter in file.parent.glob(f".{file.name}.*"):
                litter.unlink(missing_ok=True)


def bytes_of_votes(job: Job) -> int:
    """About how large a job's votes file is."""
    counts = (2 + bool(job.plan.guess)) * len(job.plan.levels) * (1 if job.plan.n < 256 else 2)
    return (counts + 3) * job.size**2 + (1 << 13)


def _write(write: Callable[[], object]) -> None:
    """Write a file, twice if need be: where there are no locks, another process may sweep the first try away."""
    try:
        write()
    except FileNotFoundError:
        write()


def _digest_of_test(settings: Settings) -> str:
    """What the measures depend on besides the votes."""
    asked = settings.model_dump(mode="json", include={"tau", "alpha", "correction"})
    asked |= {"deletion": list(settings.deletion_taus), "version": MEASURES_VERSION}
    return sha256(json.dumps(asked, sort_keys=True).encode())[:8]


def _digest_of(file: Path) -> str | None:
    return sha256(file.read_bytes()) if file.exists() else None


def _load(file: Path) -> Votes | None:
    try:
        return Votes.load(file) if file.exists() else None
    except VotesFileError:
        return None


def _write_json(file: Path, content: dict[str, Any]) -> None:
    text = json.dumps(content, sort_keys=True)
    whole = {"checksum": sha256(text.encode()), **content}
    write_atomically(file, json.dumps(whole, indent=1, sort_keys=True).encode())


def _read_json(file: Path) -> dict[str, Any] | None:
    """What `_write_json` wrote; None if it is absent or damaged."""
    try:
        content: dict[str, Any] = dict(json.loads(file.read_bytes()))
    except (OSError, ValueError, TypeError):
        return None
    checksum = content.pop("checksum", None)
    return content if checksum == sha256(json.dumps(content, sort_keys=True).encode()) else None
