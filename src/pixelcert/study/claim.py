"""Claims: who is doing a job now, among any number of processes on one folder.

A claim is an advisory lock of the operating system on a small file, so that it ends with its process, however that
ends: no stale claims, no clocks, no database. Network file systems carry such locks between machines (NFS does; Lustre
when mounted with `flock`). Where there are none, two processes may do the same job at once, which wastes time and
nothing else: files are replaced whole, and both hold the same answer.
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
def claim(path: Path) -> Iterator[bool]:
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
