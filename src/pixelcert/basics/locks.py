"""Locks: one for the threads of this process, and file locks that show which process is at work on something.

File locks are the operating system's advisory locks on small files. The system releases one when its process ends for
any reason, so there are no stale locks. Network file systems carry such locks between machines (NFS does; Lustre when
mounted with `flock`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

# A thread holds this lock while it changes, or relies on, what all threads share: rounding, random generators, hooks on
# a network, torch's own functions during a trace, and what is remembered of a network. Do not wait for another thread
# while you hold it.
one_at_a_time = threading.RLock()


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
