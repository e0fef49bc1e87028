"""A real Ray cluster of two nodes on this machine: the same results, whichever worker dies."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest
from survivors import JOBS, LONG, contents, write_study

import pixelcert as pc
from pixelcert.commands import main
from pixelcert.study.cluster import Cluster

KILLS = 3 if LONG else 1  # of workers that come back

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'pixelcert[ray]'")


@pytest.fixture(scope="session")
def address():
    """Two nodes of one CPU each, so that two workers run on two of them."""
    from ray.cluster_utils import Cluster as RayCluster

    before = os.environ.get("PYTHONPATH")
    here = str(Path(__file__).parent)  # where workers find the study's model
    os.environ["PYTHONPATH"] = here if before is None else os.pathsep.join([here, before])
    head = {"num_cpus": 1, "include_dashboard": False, "wait": False}
    cluster = RayCluster(initialize_head=True, head_node_args=head)
    cluster.add_node(num_cpus=1, wait=False)
    cluster.wait_for_nodes(timeout=300)
    yield cluster.address
    cluster.shutdown()
    del os.environ["PYTHONPATH"]
    if before is not None:
        os.environ["PYTHONPATH"] = before


@pytest.fixture(scope="session")
def file(tmp_path_factory):
    return write_study(tmp_path_factory.mktemp("study"))


@pytest.fixture(scope="session")
def expected(file):
    """The files that a run without Ray leaves."""
    study = pc.Study.open(file, file.parent / "local")
    study.run(device="cpu")
    study.results()
    return contents(study.folder)


def test_two_workers_leave_the_same_as_a_local_run(file, expected, address, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "ray"
    arguments = ("run", str(file), "--out", str(folder), "--ray", address, "--cpus", "1")
    monkeypatch.setattr(sys, "argv", ["pixelcert", "study", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    told = capsys.readouterr().err
    assert not ended.value.code, told
    assert f"{JOBS} of {JOBS} jobs are done, {JOBS} by this run" in " ".join(told.split())
    assert contents(folder) == expected


def test_killed_workers_come_back_or_leave_their_jobs_to_the_others_and_nothing_is_lost(
    file, expected, address, tmp_path
):
    """A worker is killed again and again, and comes back. The last one to be killed finds no folder any more."""
    study = pc.Study.open(file, tmp_path / "killed")
    earlier, killed, given_up = worker_processes(), [], time.monotonic() + 1800
    missed = True  # whether the run knows of the last death: until then it counts the dead worker, too

    def kill(tally) -> None:
        nonlocal missed
        assert time.monotonic() < given_up
        missed = missed or tally.workers == 1
        workers = [worker for worker in worker_processes() if worker not in (*earlier, *killed)]
        both_work = missed and len(workers) == tally.workers == 2
        if len(killed) < KILLS and missed and tally.finished >= len(killed) + 2 and workers:
            os.kill(workers[0], signal.SIGKILL)
            killed.append(workers[0])
            missed = False
        elif len(killed) == KILLS and both_work:  # all that were killed are back
            for token in study.folder.glob("claims/.run-*"):
                token.unlink()  # without it a new worker takes the folder for another
            os.kill(workers[0], signal.SIGKILL)
            killed.append(workers[0])
        elif len(killed) > KILLS and tally.workers == 1:
            held.__exit__(None, None, None)

    study.resolve("cpu")
    held = study.store.lock(study.jobs()[-1])  # before the last job is free no study ends, however fast it is
    assert held.__enter__()
    tally = study.run(device="cpu", cluster=Cluster(address), watch=kill)
    assert len(killed) == KILLS + 1
    assert (tally.done, tally.workers, tally.failures) == (JOBS, 1, {})
    study.results()
    assert contents(study.folder) == expected


def test_jobs_that_are_done_are_not_sent_out_and_failures_come_back(file, address, tmp_path):
    text = file.read_text().replace('"grad_cam"', '"cam"')
    text = text.replace("methods", 'layers = ["nowhere", "final"]\nmethods')
    broken = file.with_name("broken.toml")
    broken.write_text(text)
    study = pc.Study.open(broken, tmp_path / "broken")
    inventory = study.resolve("cpu")
    bad, good = ([job for job in study.jobs() if (job.layer == "nowhere") == is_bad] for is_bad in (True, False))
    assert len(bad) == len(good) == JOBS // 2
    for job in good[1:]:
        study.worker(inventory, "cpu").do(job)
    tally = study.run(inventory, cluster=Cluster(address, workers=1), retries=0)
    assert (tally.done, tally.finished) == (len(good), 1)
    assert [failed.key for failed, _ in tally.failures.values()] == [job.key for job in bad]
    assert all("nowhere" in cause for _, cause in tally.failures.values())


def test_a_cluster_without_what_a_worker_takes_is_refused(file, address, tmp_path):
    study = pc.Study.open(file, tmp_path / "greedy")
    with pytest.raises(pc.ArgumentError, match=r"0 GPU, less than one worker takes: lower --cpus or --gpus"):
        study.run(device="cpu", cluster=Cluster(address, gpus=1))


def test_an_address_where_nobody_answers_is_refused(file, tmp_path):
    study = pc.Study.open(file, tmp_path / "nobody")
    with pytest.raises(pc.ArgumentError, match=r"no Ray cluster answers at 127\.0\.0\.1:1 .* start it, or use auto"):
        study.run(device="cpu", cluster=Cluster("127.0.0.1:1"))


def worker_processes() -> list[int]:
    """Return the process numbers of the studies' workers that our cluster's nodes have started."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "cmdline").read_bytes().startswith(b"ray::RemoteWorker"):
                worker = int(folder.name)
                found += [worker] if parent_of(parent_of(worker)) == os.getpid() else []
        except OSError:  # it ended while we looked
            time.sleep(0)
    return sorted(found)


def parent_of(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
