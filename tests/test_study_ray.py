"""A real Ray cluster of two nodes on this machine: the same results, whoever dies."""

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from survivors import JOBS, contents, write_study

import pixelcert as pc
from pixelcert.study.cluster import Cluster

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'pixelcert[ray]'")


@pytest.fixture(scope="module")
def address():
    """Two nodes of one CPU each, so that two workers run on two of them."""
    from ray.cluster_utils import Cluster as RayCluster

    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)  # where workers find the study's model
    head = {"num_cpus": 1, "include_dashboard": False, "wait": False}
    cluster = RayCluster(initialize_head=True, head_node_args=head)
    cluster.add_node(num_cpus=1, wait=False)
    cluster.wait_for_nodes(timeout=300)
    yield cluster.address
    cluster.shutdown()
    del os.environ["PYTHONPATH"]
    if before is not None:
        os.environ["PYTHONPATH"] = before


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return write_study(tmp_path_factory.mktemp("study"))


@pytest.fixture(scope="module")
def expected(file):
    """What a run without Ray leaves."""
    study = pc.Study.open(file, file.parent / "local")
    study.run(device="cpu")
    study.results()
    return contents(study.folder)


def test_two_workers_leave_the_same_as_a_local_run(file, expected, address, tmp_path):
    folder = tmp_path / "ray"
    arguments = ("study", "run", str(file), "--out", str(folder), "--ray", address, "--cpus", "1")
    started = "import survivors, sys; survivors.command(*sys.argv[1:])"
    done = subprocess.run([sys.executable, "-c", started, *arguments], capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr
    assert f"{JOBS} of {JOBS} jobs are done, {JOBS} by this run" in " ".join(done.stderr.split())
    assert contents(folder) == expected


def hold_last_job(study: pc.Study) -> ExitStack:
    """Keeps the last job from all workers until it is closed: before that no study ends, however fast it is."""
    study.resolve("cpu")
    held = ExitStack()
    assert held.enter_context(study.store.lock(study.jobs()[-1]))
    return held


def test_a_worker_killed_in_the_middle_loses_nothing(file, expected, address, tmp_path):
    study = pc.Study.open(file, tmp_path / "killed")
    earlier, killed, given_up = worker_processes(), [], time.monotonic() + 1800

    def kill(tally) -> None:
        assert time.monotonic() < given_up
        workers = [worker for worker in worker_processes() if worker not in (*earlier, *killed)]
        if len(killed) < 3 and tally.finished >= 5 * (1 + len(killed)) and workers:
            os.kill(workers[0], signal.SIGKILL)
            killed.append(workers[0])
        elif len(killed) == 3 and len(workers) == tally.workers == 2:  # the last is back, too
            held.close()

    with hold_last_job(study) as held:
        tally = study.run(device="cpu", cluster=Cluster(address), watch=kill)
    assert len(killed) == 3
    assert tally.workers == 2
    assert (tally.done, len(tally.failures)) == (JOBS, 0)
    study.results()
    assert contents(study.folder) == expected


def test_a_worker_that_cannot_come_back_leaves_its_jobs_to_the_others(file, expected, address, tmp_path):
    study = pc.Study.open(file, tmp_path / "lost")
    earlier, killed, given_up = worker_processes(), [], time.monotonic() + 1800

    def kill(tally) -> None:
        assert time.monotonic() < given_up
        workers = [worker for worker in worker_processes() if worker not in earlier]
        if tally.finished >= 5 and len(workers) == tally.workers == 2 and not killed:
            for token in study.folder.glob("claims/.run-*"):
                token.unlink()  # without it a new worker takes the folder for another
            os.kill(workers[0], signal.SIGKILL)
            killed.append(workers[0])
        elif killed and tally.workers == 1:
            held.close()

    with hold_last_job(study) as held:
        tally = study.run(device="cpu", cluster=Cluster(address), watch=kill)
    assert killed
    assert (tally.done, tally.workers, tally.failures) == (JOBS, 1, {})
    study.results()
    assert contents(study.folder) == expected


def test_jobs_that_are_done_are_not_sent_out_and_failures_come_back(file, address, tmp_path):
    text = file.read_text().replace('"grad_cam"', '"cam"').replace("sigma = [0.1, 0.2]", "sigma = 0.1")
    text = text.replace('layers = ["input", "final"]', "").replace("methods", 'layers = ["nowhere", "final"]\nmethods')
    broken = file.with_name("broken.toml")
    broken.write_text(text)
    study = pc.Study.open(broken, tmp_path / "broken")
    tally = study.run(device="cpu", cluster=Cluster(address), retries=0)
    assert tally.done == 3 * 5
    causes = {cause for _, cause in tally.failures.values()}
    assert len(tally.failures) == 3 * 5
    assert all("nowhere" in cause for cause in causes)
    again = study.run(device="cpu", cluster=Cluster(address), retries=0)
    assert again.finished == 0


def test_a_cluster_without_what_a_worker_takes_is_refused(file, address, tmp_path):
    study = pc.Study.open(file, tmp_path / "greedy")
    with pytest.raises(pc.ArgumentError, match=r"0 GPU, less than one worker takes: lower --cpus or --gpus"):
        study.run(device="cpu", cluster=Cluster(address, gpus=1))


def test_an_address_where_nobody_answers_is_refused(file, tmp_path):
    study = pc.Study.open(file, tmp_path / "nobody")
    with pytest.raises(pc.ArgumentError, match=r"no Ray cluster answers at 127\.0\.0\.1:1 .* start it, or use auto"):
        study.run(device="cpu", cluster=Cluster("127.0.0.1:1"))


def worker_processes() -> list[int]:
    """Process numbers of the studies' workers, which our cluster's nodes have started."""
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
