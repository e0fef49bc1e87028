"""A study is killed, starved, damaged and shared; its results are byte for byte those of an undisturbed run."""

import contextlib
import json
import multiprocessing
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest
import survivors
from survivors import JOBS, KILLS, LONG, contents, write_study

import pixelcert as pc
from pixelcert.basics.messages import DiskFullError
from pixelcert.study.job import jobs

processes = multiprocessing.get_context("forkserver")  # forks what is imported already: each life begins at once
processes.set_forkserver_preload(["survivors", "pixelcert.commands.study", "pyarrow.parquet", "pytest"])


def start(function, *arguments):
    process = processes.Process(target=function, args=tuple(map(str, arguments)))
    process.start()
    return process


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    return write_study(tmp_path_factory.mktemp("study"))


@pytest.fixture(scope="module")
def undisturbed(file) -> tuple[dict[str, bytes], float]:
    """What an undisturbed run leaves, and the seconds a job takes."""
    folder = file.parent / "undisturbed"
    process = start(survivors.command, "study", "run", file, "--out", folder)
    process.join()
    assert process.exitcode == 0
    found = contents(folder)
    assert sum(name.startswith("votes/") for name in found) == JOBS
    assert sum(name.startswith("measures/") for name in found) == JOBS
    ends = [votes.stat().st_mtime for votes in folder.glob("votes/*/*")]
    return found, (max(ends) - min(ends)) / JOBS


def finish(file: Path, folder: Path) -> dict[str, bytes]:
    """Run the study to its end, and return what it leaves."""
    process = start(survivors.command, "study", "run", file, "--out", folder)
    process.join()
    assert process.exitcode == 0
    return contents(folder)


@contextlib.contextmanager
def held_back(file: Path, folder: Path, first: int):
    """Keeps the jobs from that number on from all others, so that no study ends before we are ready to disturb it."""
    store = pc.Study.open(file, folder).store
    with contextlib.ExitStack() as claims:
        for job in pc.Study.open(file, file.parent / "undisturbed").jobs()[first:]:
            assert claims.enter_context(store.lock(job))
        yield


def test_killed_at_random_moments_it_loses_and_repeats_no_job(file, undisturbed, tmp_path):
    expected, seconds = undisturbed
    folder, moments = tmp_path / "killed", random.Random(0)
    kept: dict[Path, tuple[int, int]] = {}
    hit = 0
    for life in range(KILLS):
        enough = len(kept) + moments.randrange(3)
        with held_back(file, folder, 3 * life + 2):
            process = start(survivors.command, "study", "run", file, "--out", folder)
            wait_for(process, folder, enough)
            time.sleep(moments.uniform(0, seconds))
            hit += process.is_alive()
            process.kill()
            process.join()
        for votes in folder.glob("votes/*/*.safetensors"):
            identity = (votes.stat().st_ino, votes.stat().st_mtime_ns)
            assert kept.setdefault(votes, identity) == identity, "a finished job was done again"
    assert hit == KILLS, "the study ended before it could be killed as often as planned"
    assert 0 < len(kept) < JOBS
    assert finish(file, folder) == expected
    assert all((votes.stat().st_ino, votes.stat().st_mtime_ns) == identity for votes, identity in kept.items())


def test_ctrl_c_saves_the_job_in_hand_and_the_same_command_goes_on(file, undisturbed, tmp_path):
    folder = tmp_path / "interrupted"
    with held_back(file, folder, JOBS - 1):
        process = start(survivors.command, "study", "run", file, "--out", folder)
        wait_for(process, folder, 1)
        os.kill(process.pid, signal.SIGINT)
        process.join(600)
        process.kill()  # if it did not listen
        process.join()
    assert process.exitcode == 130
    assert 0 < len(list(folder.glob("votes/*/*.safetensors"))) < JOBS
    assert finish(file, folder) == undisturbed[0]
    assert not list(folder.glob("partial/*"))


def test_damaged_files_are_found_and_made_again(file, undisturbed, tmp_path):
    folder = tmp_path / "damaged"
    finish(file, folder)
    votes, measures = (sorted(folder.glob(f"{kind}/*/*")) for kind in ("votes", "measures"))
    votes[0].write_bytes(votes[0].read_bytes()[:-100])
    votes[1].write_bytes(flipped(votes[1].read_bytes(), -1))
    votes[2].write_bytes(b"")
    measures[5].write_bytes(flipped(measures[5].read_bytes(), len(measures[5].read_bytes()) // 2))
    measures[6].unlink()
    assert contents(folder) != undisturbed[0]
    assert finish(file, folder) == undisturbed[0]


def flipped(data: bytes, index: int) -> bytes:
    changed = bytearray(data)
    changed[index] ^= 1
    return bytes(changed)


def test_what_was_cut_off_comes_last_so_that_it_cannot_keep_others_from_their_turn(file, tmp_path):
    study = pc.Study.open(file, tmp_path / "cut")
    inventory = study.resolve("cpu")
    first = next(iter(jobs(inventory)))
    (study.folder / "claims").mkdir()
    (study.folder / "claims" / first.key).touch()  # as its process left it
    begun: list[str] = []
    study.run(inventory, device="cpu", watch=lambda tally: begun.append(tally.doing))
    seen = list(dict.fromkeys(doing for doing in begun if doing and "samples" not in doing))
    assert (len(seen), seen[-1]) == (JOBS, str(first))


def test_two_processes_on_one_folder_share_the_jobs(file, undisturbed, tmp_path):
    folder = tmp_path / "shared"
    answers = [tmp_path / "one", tmp_path / "two"]
    running = [start(survivors.count_finished, file, folder, *both) for both in (answers, answers[::-1])]
    for process in running:
        process.join()
    (done, one), (also_done, two) = (json.loads(answer.read_text()) for answer in answers)
    assert done == also_done == JOBS
    assert one + two == JOBS, "a job was done twice"
    assert min(one, two) > JOBS // 5, "one process did nearly everything"
    assert finish(file, folder) == undisturbed[0]


def test_folders_from_two_machines_are_merged_by_copying(file, undisturbed, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    for folder, share in ((one, 0), (two, 1)):
        study = pc.Study.open(file, folder)
        inventory = study.resolve("cpu")
        worker = study.worker(inventory, "cpu")
        for job in list(jobs(inventory))[share::2]:
            worker.do(job)
    subprocess.run(["cp", "-r", f"{two}/.", str(one)], check=True)
    study = pc.Study.open(file, one)
    tally = study.run(device="cpu")
    assert (tally.done, tally.finished) == (JOBS, 0)
    study.results()
    assert contents(one) == undisturbed[0]


@pytest.fixture
def small_disk(tmp_path):
    """A file system of a given size, and how to enlarge it."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def resize(size: str, *, first: bool = False) -> None:
        option = f"size={size}" if first else f"remount,size={size}"
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", option, "tmpfs", str(folder)], capture_output=True)
        if done.returncode:
            pytest.skip(f"a small tmpfs cannot be mounted here: {done.stderr.decode().strip()}")

    resize("1400k" if LONG else "1200k", first=True)
    yield folder, resize
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_stops_it_with_a_word_and_it_goes_on_when_there_is_room(file, undisturbed, small_disk, tmp_path):
    folder, resize = small_disk
    process = start(survivors.command_into, tmp_path / "log", "study", "run", file, "--out", folder)
    process.join()
    assert process.exitcode == 1
    assert "is full" in (tmp_path / "log").read_text()
    kept = {votes: votes.read_bytes() for votes in folder.glob("votes/*/*.safetensors")}
    assert 0 < len(kept) < JOBS
    assert not list(folder.rglob(".*.safetensors.*")), "an unfinished file was left behind"
    resize("20m")
    assert finish(file, folder) == undisturbed[0]
    assert all(votes.read_bytes() == data for votes, data in kept.items())


def test_a_disk_that_fills_up_while_a_job_is_written_loses_nothing_else(file, undisturbed, small_disk):
    folder, resize = small_disk
    resize("3m")

    def fill(tally) -> None:
        if tally.finished == 5 and "samples" in tally.doing and not (folder / "filler").exists():
            with open(folder / "filler", "wb", buffering=0) as filler, contextlib.suppress(OSError):
                while True:
                    filler.write(bytes(4096))

    with pytest.raises(DiskFullError, match=r"is full .* free some room and run again"):
        pc.Study.open(file, folder).run(device="cpu", watch=fill)
    assert len(list(folder.glob("measures/*/*"))) == 5
    (folder / "filler").unlink()
    resize("20m")
    assert finish(file, folder) == undisturbed[0]


def wait_for(process, folder: Path, enough: int) -> None:
    """Until so many votes are there."""
    for _ in range(60_000):
        if len(list(folder.glob("votes/*/*.safetensors"))) >= enough:
            return
        assert process.is_alive(), "it ended by itself"
        time.sleep(0.01)
    process.kill()
    pytest.fail("waited ten minutes in vain")
