"""Locks: held by one process at a time, freed however it ends, and granted to all where there are none."""

from __future__ import annotations

import errno
import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from pixelcert.basics import locks

forked = multiprocessing.get_context("fork")  # begins at once, with everything imported


def hold(path: Path, link: Connection) -> None:
    """Try to lock `path`, say whether that went well, and hold on until told to end."""
    with locks.lock(path) as mine:
        link.send(mine)
        link.recv()


@contextmanager
def other_process(path: Path) -> Iterator[tuple[BaseProcess, Connection, bool]]:
    """Start a process that tries to lock `path`; yield it, the link to end it, and whether it holds the lock."""
    ours, theirs = forked.Pipe()
    process = forked.Process(target=hold, args=(path, theirs))
    process.start()
    try:
        yield process, ours, ours.recv()
    finally:
        process.kill()
        process.join()


def test_lock_is_held_once_among_processes_and_freed_when_its_process_ends(tmp_path):
    path = tmp_path / "folder" / "lock"
    with other_process(path) as (process, link, held):
        assert held
        with locks.lock(path) as mine:
            assert not mine
        with locks.lock(tmp_path / "other") as mine:
            assert mine, "another lock is free"
        link.send("end")
        process.join()
        assert process.exitcode == 0
        with locks.lock(path) as mine:
            assert mine
            with other_process(path) as (_, _, held):
                assert not held


def test_lock_ends_with_a_process_that_is_killed(tmp_path):
    path = tmp_path / "lock"
    with other_process(path) as (process, _, held):
        assert held
        process.kill()
        process.join()
        with locks.lock(path) as mine:
            assert mine
    assert list(tmp_path.iterdir()) == []


def test_lock_excludes_others_in_the_same_process(tmp_path):
    path = tmp_path / "lock"
    with locks.lock(path) as mine, locks.lock(path) as again:
        assert (mine, again) == (True, False)
    with locks.lock(path) as mine:
        assert mine


def test_refused_lock_does_not_end_the_one_that_holds(tmp_path):
    path = tmp_path / "lock"
    with locks.lock(path):
        for _ in range(2):
            with locks.lock(path) as mine:
                assert not mine


def test_lock_on_a_file_that_its_owner_removed_meanwhile_is_shared_with_nobody(tmp_path, monkeypatch):
    """Opened while another process held it, and locked after that one was done and removed it."""
    path, flock = tmp_path / "job", locks.fcntl.flock

    def late(handle: int, how: int) -> None:
        path.unlink()
        flock(handle, how)

    with monkeypatch.context() as patch:
        patch.setattr(locks.fcntl, "flock", late)
        first = locks.lock(path)
        mine = first.__enter__()
    with locks.lock(path) as other:
        assert not (mine and other)
    first.__exit__(None, None, None)


def test_without_locks_every_lock_is_granted(tmp_path, monkeypatch):
    """On a file system that has none, as on Windows: the answer is the same whoever gives it."""

    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    with monkeypatch.context() as patch:
        patch.setattr(locks.fcntl, "flock", refuse)
        with locks.lock(tmp_path / "job") as mine:
            assert mine
    monkeypatch.setattr(locks, "fcntl", None)
    with locks.lock(tmp_path / "job") as mine, locks.lock(tmp_path / "job") as again:
        assert mine
        assert again
