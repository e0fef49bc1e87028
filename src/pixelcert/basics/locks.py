"""Locks: they show which process is at work on something.

A lock is the operating system's advisory lock on a small file. The system releases it when its process ends for any
reason, so there are no stale locks. Network file systems carry such locks between machines (NFS does; Lustre when
mounted with `flock`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


@contextmanager
def lock(path: Path) -> Iterator[bool]:
    """Yield True if this process holds the lock at `path` inside the block, False if another one does."""
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
        if not _is_there(path, handle):  # its owner removed it after we opened it, and others may lock a new one
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
