"""The store: files that are whole or absent, room on the disk, failures until success, and a lock for each job."""

from __future__ import annotations

import errno
import os
import shutil
from collections import namedtuple
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_studies import FACTS, GRID, IMAGE, job, small_study
from thoroughness import examples

import pixelcert as pc
from pixelcert.basics.messages import DiskFullError
from pixelcert.study.job import Job
from pixelcert.study.settings import Settings
from pixelcert.study.store import Store, bytes_of_votes, load_votes

MEASURES = {
    "target": 3,
    "target_name": "tabby, cät",
    "radius": {"0.6": 0.05},
    "rows": [{"metric": "certified", "value": 1e-7}],
}
JOB, OTHER = job(), job(layer="final")


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path / "study", Settings(models="resnet18"))


@pytest.fixture
def finish(store, make_votes) -> Callable[..., None]:
    def finish(*jobs: Job) -> None:
        for one in jobs:
            store.place(one).save(make_votes(n=30))
            store.save_measures(one, MEASURES)

    return finish


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@contextmanager
def failing(monkeypatch: pytest.MonkeyPatch, number: int) -> Iterator[None]:
    """A disk that answers with an error once everything is written, and before it is in place."""

    def refuse(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        yield


# ── Whole or absent ───────────────────────────────────────────────────────────────────────────────────────────────


def test_job_is_done_once_its_votes_and_its_measures_are_there(store, make_votes):
    assert not store.done(JOB)
    store.place(JOB).save(make_votes(n=30))
    assert not store.done(JOB)
    store.save_measures(JOB, MEASURES)
    assert store.done(JOB)
    assert not store.done(OTHER)
    store.votes_file(JOB).unlink()
    assert not store.done(JOB)


def test_votes_and_measures_come_back_as_they_were(store, make_votes):
    votes = make_votes(n=30)
    store.place(JOB).save(votes)
    store.save_measures(JOB, MEASURES)
    again = store.load_votes(JOB)
    assert (again.ones == votes.ones).all()
    assert again.provenance == votes.provenance
    found = store.load_measures(JOB)
    assert {name: found[name] for name in MEASURES} == MEASURES
    assert found["job"] == {**JOB.question, "plan": {**JOB.question["plan"], "levels": [50, 10]}}


def test_what_is_absent_is_none(store):
    assert store.load_votes(JOB) is None
    assert load_votes(store.place(JOB).partial) is None
    assert store.load_measures(JOB) is None


def test_incomplete_votes_wait_apart_and_are_no_answer(store, make_votes):
    store.place(JOB).save(make_votes(n=30, counted=20))
    assert load_votes(store.place(JOB).partial).counted == 20
    assert store.load_votes(JOB) is None
    assert not store.done(JOB)


def test_complete_votes_take_the_place_of_incomplete_ones(store, make_votes):
    store.place(JOB).save(make_votes(n=30, counted=20))
    store.place(JOB).save(make_votes(n=30))
    assert load_votes(store.place(JOB).partial) is None
    assert store.load_votes(JOB).complete


def test_files_are_named_by_keys_and_the_question_put_to_the_votes(store, finish):
    finish(JOB)
    (measures, votes) = files_in(store.folder)
    assert votes == f"votes/{JOB.key[:2]}/{JOB.key}.safetensors"
    assert measures.startswith(f"measures/{JOB.key[:2]}/{JOB.key}-")


@pytest.mark.parametrize("changes", [{"tau": 0.6}, {"alpha": 0.01}, {"correction": "joint"}, {"deletion": []}], ids=str)
def test_measures_of_another_test_are_another_file_of_the_same_votes(store, finish, changes):
    finish(JOB)
    other = Store(store.folder, Settings(models="resnet18", **changes))
    assert other.load_votes(JOB) is not None
    assert other.load_measures(JOB) is None
    assert not other.done(JOB)
    other.save_measures(JOB, {**MEASURES, "target": 4})
    assert store.load_measures(JOB)["target"] == 3


@pytest.mark.parametrize(
    "changes", [{"sigma": 0.3}, {"methods": "lrp"}, {"seed": 4}, {"images": {"count": 3}}], ids=str
)
def test_measures_do_not_depend_on_the_rest_of_the_study(store, finish, changes):
    finish(JOB)
    assert Store(store.folder, Settings(models="resnet18", **changes)).done(JOB)


def test_writing_that_fails_leaves_the_old_files_and_no_litter(store, finish, make_votes, monkeypatch):
    finish(JOB)
    before = {name: (store.folder / name).read_bytes() for name in files_in(store.folder)}
    with failing(monkeypatch, errno.EIO):
        for write in (lambda: store.place(JOB).save(make_votes(n=31)), lambda: store.save_measures(JOB, {"rows": []})):
            with pytest.raises(OSError, match="Input/output error"):
                write()
    assert {name: (store.folder / name).read_bytes() for name in files_in(store.folder)} == before


# ── Damage ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_whole_files_and_absent_ones_are_not_damaged(store, finish):
    assert store.damaged([JOB, OTHER]) == []
    finish(JOB)
    assert store.damaged([JOB, OTHER]) == []


@pytest.mark.parametrize("kind", ["votes_file", "measures_file"])
@pytest.mark.parametrize("length", [0, 1, 0.5, -1])
def test_file_that_was_cut_short_is_found(store, finish, kind, length):
    finish(JOB, OTHER)
    file = getattr(store, kind)(JOB)
    data = file.read_bytes()
    file.write_bytes(data[: int(length * len(data)) if 0 < length < 1 else length])
    assert store.damaged([JOB, OTHER]) == [file]
    assert (store.load_votes if kind == "votes_file" else store.load_measures)(JOB) is None
    assert store.done(JOB), "which looks at no contents"


@pytest.mark.parametrize("kind", ["votes_file", "measures_file"])
@settings(deadline=None, max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_flipped_bit_is_found_or_means_the_same(tmp_path_factory, make_votes, kind, place, bit):
    """It means the same in an exponent, 1e-07 or 1E-07, and in the hexadecimal digits of a letter."""
    store = Store(tmp_path_factory.mktemp("study"), Settings(models="resnet18"))
    store.place(JOB).save(make_votes(n=30))
    store.save_measures(JOB, MEASURES)
    before = store.load_measures(JOB)
    file = getattr(store, kind)(JOB)
    data = bytearray(file.read_bytes())
    data[int(place * len(data))] ^= 1 << bit
    file.write_bytes(data)
    if kind == "votes_file" or store.load_measures(JOB) != before:
        assert store.damaged([JOB]) == [file]


def test_count_in_the_votes_that_was_changed_is_found(store, finish):
    finish(JOB)
    data = bytearray(store.votes_file(JOB).read_bytes())
    data[-1] ^= 1  # arrays are at the end
    store.votes_file(JOB).write_bytes(data)
    assert store.damaged([JOB]) == [store.votes_file(JOB)]


def test_number_in_the_measures_that_was_changed_is_found(store, finish):
    finish(JOB)
    text = store.measures_file(JOB).read_text()
    assert '"target": 3' in text
    store.measures_file(JOB).write_text(text.replace('"target": 3', '"target": 4'))
    assert store.damaged([JOB]) == [store.measures_file(JOB)]


def test_progress_of_the_search_counts_jobs(store, finish, monkeypatch):
    monkeypatch.setattr("pixelcert.study.store._CHUNK", 2)
    finish(JOB, OTHER)
    told: list[tuple[int, int]] = []
    store.damaged([JOB, OTHER, job(layer="features")], lambda *now: told.append(now))
    assert told == [(2, 3), (3, 3)]


def test_measures_of_other_votes_are_found(store, finish, make_votes):
    finish(JOB)
    assert store.damaged([JOB]) == []
    make_votes(n=7, size=(4, 4)).save(store.votes_file(JOB))
    assert store.damaged([JOB]) == [store.measures_file(JOB)]


def test_job_whose_process_was_cut_off_is_told_from_one_that_ended(store):
    assert not store.begun(JOB)
    with store.lock(JOB):
        assert store.begun(JOB)
    assert not store.begun(JOB)
    with pytest.raises(KeyboardInterrupt), store.lock(JOB):
        raise KeyboardInterrupt
    assert store.begun(JOB)


def test_damaged_files_of_a_study_are_made_again(tmp_path):
    study = small_study(tmp_path)
    study.run()
    (one, two, *_) = study.jobs()
    votes, measures = study.store.votes_file(one), study.store.measures_file(two)
    before = {file: file.read_bytes() for file in (votes, measures)}
    for file, data in before.items():
        file.write_bytes(data[:100])
    assert study.run(verify=False).finished == 0
    assert study.run().finished == 2
    assert {file: file.read_bytes() for file in before} == before


# ── Room ──────────────────────────────────────────────────────────────────────────────────────────────────────────

Usage = namedtuple("Usage", "total used free")


def test_job_whose_votes_would_not_fit_is_refused_before_it_begins(store, monkeypatch):
    for free, fits in ((10_000_000, True), (bytes_of_votes(JOB), False), (0, False)):
        monkeypatch.setattr(shutil, "disk_usage", lambda folder, free=free: Usage(10**9, 0, free))
        if fits:
            store.make_room(JOB)
        else:
            with pytest.raises(DiskFullError, match=rf"{store.folder} is full .*MB are needed.*free some room"):
                store.make_room(JOB)


@pytest.mark.parametrize("n", [100, 1000])
@pytest.mark.parametrize("guess", [0, 10])
@pytest.mark.parametrize("size", [8, 160])
def test_votes_take_about_as_much_room_as_foreseen(store, make_votes, n, guess, size):
    plan = pc.Plan(n=n, levels=(50, 10, 5), guess=guess, seed=0)
    one = job(plan=plan, model=replace(FACTS, grid_size=size))
    photo = np.zeros((size, size, 3), np.uint8)
    predictions = np.full(1000, n // 1000)
    store.place(one).save(make_votes(plan.levels, (size, size), n, guess=guess, photo=photo, predictions=predictions))
    taken = store.votes_file(one).stat().st_size
    assert taken <= bytes_of_votes(one) <= taken + 8192


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_disk_that_is_full_is_told_from_other_failures(store, make_votes, monkeypatch, number):
    writes = [
        lambda: store.place(JOB).save(make_votes(n=30)),
        lambda: store.place(JOB).save(make_votes(n=30, counted=5)),
        lambda: store.save_measures(JOB, MEASURES),
        lambda: store.save_failure(JOB, "ValueError: why"),
    ]
    with failing(monkeypatch, number):
        for write in writes:
            with pytest.raises(DiskFullError, match=r"is full .*free some room and run again; finished jobs are safe"):
                write()
    assert files_in(store.folder) == []
    with failing(monkeypatch, errno.EACCES):
        for write in writes:
            with pytest.raises(PermissionError):
                write()


def test_full_disk_ends_a_run_and_is_no_jobs_failure(tmp_path, monkeypatch):
    study = small_study(tmp_path)
    inventory = study.resolve()
    room = iter([10**9, 10**9, 0])
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda folder: Usage(10**9, 0, next(room)))
        with pytest.raises(DiskFullError):
            study.run(inventory)
    done = [study.store.done(one) for one in study.jobs()]
    assert done == [True, True, False, False]
    assert list(study.store.failures(study.jobs())) == []
    assert study.run().finished == 2


# ── Litter ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_sweeping_removes_what_was_left_of_this_job_alone(store, finish, make_votes):
    finish(JOB, OTHER)
    store.place(OTHER).save(make_votes(n=30, counted=5))
    store.save_failure(OTHER, "ValueError: why")
    kept = files_in(store.folder)
    litter = []
    for one in (JOB, OTHER):
        for file in (
            store.votes_file(one),
            store.measures_file(one),
            store.place(one).partial,
            store.failure_file(one),
        ):
            file.parent.mkdir(parents=True, exist_ok=True)
            half = file.with_name(f".{file.name}.ab12cd")  # as a process that was killed leaves it
            half.write_bytes(b"half")
            os.utime(half, (0, 0))  # long ago
            litter.append(half)
    store.make_room(JOB)
    assert [half.exists() for half in litter] == [False] * 4 + [True] * 4
    store.make_room(OTHER)
    assert files_in(store.folder) == kept


def test_sweeping_an_empty_folder_does_nothing(store):
    store.make_room(JOB)


def test_two_at_the_same_job_without_locks_cost_time_and_nothing_else(tmp_path, monkeypatch):
    """One begins while the other is writing: it must not take that file for litter."""
    study = small_study(tmp_path)
    inventory = study.resolve()
    monkeypatch.setattr("pixelcert.basics.locks.fcntl", None)
    fsync, others = os.fsync, []

    def meanwhile(handle: int) -> None:
        if not others:
            others.append("begun")
            others.append(study.run(inventory, retries=0))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", meanwhile)
    tally = study.run(inventory, retries=0)
    assert tally.failures == others[1].failures == {}
    assert all(map(study.store.done, study.jobs()))
    assert list(study.store.failures(study.jobs())) == []
    assert study.store.damaged(study.jobs()) == []


# ── Failures ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_failures_are_listed_with_their_causes_until_the_job_succeeds(store, finish):
    assert list(store.failures([JOB, OTHER])) == []
    store.save_failure(JOB, "ValueError: no such [layer]")
    store.save_failure(OTHER, "ModelError: too large")
    assert list(store.failures([OTHER, JOB])) == [
        (OTHER, "ModelError: too large"),
        (JOB, "ValueError: no such [layer]"),
    ]
    assert not store.done(JOB)
    finish(JOB)
    assert list(store.failures([JOB, OTHER])) == [(OTHER, "ModelError: too large")]


def test_last_cause_of_a_failure_counts(store):
    store.save_failure(JOB, "ValueError: first")
    store.save_failure(JOB, "ValueError: second")
    assert [cause for _, cause in store.failures([JOB])] == ["ValueError: second"]


def test_failure_of_a_study_is_gone_when_the_job_succeeds(tmp_path, monkeypatch):
    study = small_study(tmp_path)
    inventory = study.resolve()
    photo = tmp_path / "photos" / "2.png"
    data = photo.read_bytes()
    photo.unlink()
    tally = study.run(inventory)
    assert (tally.done, len(tally.failures)) == (3, 1)
    assert [failed.scene.name for failed, _ in study.store.failures(study.jobs())] == ["2.png"]
    photo.write_bytes(data)
    tally = study.run(inventory)
    assert (tally.done, tally.finished, tally.failures) == (4, 1, {})
    assert list(study.store.failures(study.jobs())) == []


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_failed_jobs_are_tried_again_after_all_others(tmp_path, monkeypatch, retries):
    study = small_study(tmp_path)
    inventory = study.resolve()
    worker = study.worker(inventory)
    tried = []

    def do(one: Job, progress: Any) -> list[str]:
        tried.append(one.scene.name)
        raise RuntimeError("today nothing works")

    monkeypatch.setattr(worker, "do", do)
    monkeypatch.setattr(study, "worker", lambda *_: worker)
    tally = study.run(inventory, retries=retries)
    names = [one.scene.name for one in study.jobs()]
    assert tried == names * (1 + retries)
    assert {cause for _, cause in tally.failures.values()} == {"RuntimeError: today nothing works"}
    assert (tally.done, tally.finished, tally.total) == (0, 0, 4)


def test_job_that_succeeds_at_the_second_try_has_not_failed(tmp_path, monkeypatch):
    study = small_study(tmp_path)
    inventory = study.resolve()
    worker = study.worker(inventory)
    do, bad = worker.do, [True]

    def moody(one: Job, progress: Any) -> list[str]:
        if one.scene.name == "2.png" and bad and bad.pop():
            raise RuntimeError("not now")
        return do(one, progress)

    monkeypatch.setattr(worker, "do", moody)
    monkeypatch.setattr(study, "worker", lambda *_: worker)
    seen: list[int] = []
    tally = study.run(inventory, watch=lambda tally: seen.append(len(tally.failures)))
    assert max(seen) == 1
    assert (tally.done, tally.finished, tally.failures) == (4, 4, {})
    assert list(study.store.failures(study.jobs())) == []


# ── Locks ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_lock_of_one_job_leaves_the_others_free(store):
    with store.lock(JOB) as mine, store.lock(JOB) as again, store.lock(OTHER) as other:
        assert (mine, again, other) == (True, False, True)


def test_locks_leave_nothing_behind(store):
    with store.lock(JOB):
        assert files_in(store.folder) == [f"claims/{JOB.key}"]
    assert files_in(store.folder) == []


def test_lock_of_a_job_that_failed_is_free_again(store):
    with pytest.raises(ValueError, match="midway"), store.lock(JOB):
        raise ValueError("midway")
    with store.lock(JOB) as mine:
        assert mine


def test_job_that_is_being_done_elsewhere_is_waited_for_after_all_others(tmp_path, monkeypatch):
    study = small_study(tmp_path)
    inventory = study.resolve()
    (one, *others) = study.jobs()
    elsewhere = ExitStack()
    assert elsewhere.enter_context(study.store.lock(one))

    def meanwhile(seconds: float) -> None:
        assert all(map(study.store.done, others))
        study.worker(inventory).do(one)
        elsewhere.close()

    monkeypatch.setattr("pixelcert.study.runner.time.sleep", meanwhile)
    tally = study.run(inventory)
    assert (tally.done, tally.finished, tally.failures) == (4, 3, {})


def test_grid_and_image_of_the_same_photographs_are_different_jobs(store, finish):
    finish(job(scene=IMAGE))
    assert not store.done(job(scene=GRID))
