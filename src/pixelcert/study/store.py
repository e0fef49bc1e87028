"""Store: the folder of a study. Each job's votes and measures in files of their own, whole or absent, named by keys.

    resolved.json           what the study file meant
    selection-….json        the photographs and grids chosen
    votes/ab/KEY.safetensors      counts of one job, with plan and provenance
    measures/ab/KEY-TEST.json     its metrics at the τ, α and corrections asked for
    failures/KEY.json       why a job failed, until it succeeds
    partial/, claims/       votes of interrupted jobs, and jobs being done now
    results/                tables

Folders of the same study from several machines are merged by copying one into the other.
"""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from ..digest import sha256
from ..errors import PixelcertError, VotesFileError
from ..files import write_atomically
from ..votes import Votes
from .claim import claim
from .job import Job
from .settings import Settings

MEASURES_VERSION = 1
_SPARE = 1 << 20  # bytes that a disk should have left besides the next file
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class DiskFullError(PixelcertError):
    """No room for the next result. Everything finished before is safe."""


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

    def partial_file(self, job: Job) -> Path:
        return self.folder / "partial" / f"{job.key}.safetensors"

    def failure_file(self, job: Job) -> Path:
        return self.folder / "failures" / f"{job.key}.json"

    # ── Jobs ──────────────────────────────────────────────────────────────────────────────────────────────────

    def done(self, job: Job) -> bool:
        """Whether both answers are there; `damaged` says whether they are whole."""
        return self.measures_file(job).exists() and self.votes_file(job).exists()

    def claim(self, job: Job) -> AbstractContextManager[bool]:
        """Whether this process may do the job now, and no other does."""
        return claim(self.folder / "claims" / job.key)

    def damaged(self, jobs: Sequence[Job], progress: Callable[[int, int], None] | None = None) -> list[Path]:
        """Files of these jobs whose contents do not match their checksums, after reading them all."""
        files = [file for job in jobs for file in (self.votes_file(job), self.measures_file(job)) if file.exists()]
        found = []
        with ThreadPoolExecutor(8) as pool:
            for count, (file, whole) in enumerate(zip(files, pool.map(_is_whole, files), strict=True), 1):
                if not whole:
                    found.append(file)
                if progress is not None:
                    progress(count, len(files))
        return found

    # ── Answers ───────────────────────────────────────────────────────────────────────────────────────────────

    def load_votes(self, job: Job) -> Votes | None:
        """The job's votes; None if they are absent or damaged."""
        return _load(self.votes_file(job))

    def load_partial(self, job: Job) -> Votes | None:
        return _load(self.partial_file(job))

    def save_votes(self, job: Job, votes: Votes) -> None:
        """Keep complete votes as the job's answer, incomplete ones to be continued."""
        file = self.votes_file(job) if votes.complete else self.partial_file(job)
        _write(self.folder, lambda: votes.save(file))
        if votes.complete:
            self.partial_file(job).unlink(missing_ok=True)

    def load_measures(self, job: Job) -> dict[str, Any] | None:
        """The job's measures; None if they are absent or damaged."""
        return _read_json(self.measures_file(job))

    def save_measures(self, job: Job, measures: dict[str, Any]) -> None:
        content = {"version": MEASURES_VERSION, "job": job.question, **measures}
        _write(self.folder, lambda: _write_json(self.measures_file(job), content))
        self.failure_file(job).unlink(missing_ok=True)

    def save_failure(self, job: Job, error: BaseException) -> None:
        cause = f"{type(error).__name__}: {error}"
        content = {"title": str(job), "cause": cause, "job": job.question}
        _write(self.folder, lambda: _write_json(self.failure_file(job), content))

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
            raise _disk_full(self.folder, f"{free / 1e6:.1f} MB are left and {needed / 1e6:.1f} MB are needed")

    def sweep(self, job: Job) -> None:
        """Remove what a process that was killed while writing this job's files left behind. Needs the job's claim."""
        for file in (self.votes_file(job), self.measures_file(job), self.partial_file(job), self.failure_file(job)):
            for litter in file.parent.glob(f".{file.name}.*"):
                litter.unlink(missing_ok=True)


def bytes_of_votes(job: Job) -> int:
    """About how large a job's votes file is."""
    counts = (2 + bool(job.plan.guess)) * len(job.plan.levels) * (1 if job.plan.n < 256 else 2)
    return (counts + 3) * job.size**2 + (1 << 13)


def _write(folder: Path, write: Callable[[], object]) -> None:
    """Write a file of the study, telling a full disk from other troubles."""
    try:
        try:
            write()
        except FileNotFoundError:  # swept away by another process, where there are no locks to tell it of this one
            write()
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise _disk_full(folder, str(error.strerror)) from error


def _disk_full(folder: Path, why: str) -> DiskFullError:
    return DiskFullError(f"the disk of {folder} is full ({why}): free some room and run again; finished jobs are safe.")


def _digest_of_test(settings: Settings) -> str:
    """What the measures depend on besides the votes."""
    asked = settings.model_dump(mode="json", include={"tau", "alpha", "correction"})
    asked |= {"deletion": list(settings.deletion_taus), "version": MEASURES_VERSION}
    return sha256(json.dumps(asked, sort_keys=True).encode())[:8]


def _load(file: Path) -> Votes | None:
    try:
        return Votes.load(file) if file.exists() else None
    except VotesFileError:
        return None


def _is_whole(file: Path) -> bool:
    return (_read_json(file) if file.suffix == ".json" else _load(file)) is not None


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
