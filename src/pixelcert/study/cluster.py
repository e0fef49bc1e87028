"""Cluster: a study on Ray. Ray starts the worker processes, and starts a worker again when it dies."""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..basics.messages import ArgumentError, check_whole
from .inventory import Inventory
from .job import Job
from .runner import Tally, Watch
from .store import Store
from .worker import Ending, Materials, Worker

_DEATHS = 3  # of the worker doing a job, after which the job counts as failed


@dataclass(frozen=True)
class Cluster:
    """A Ray cluster, and what each worker takes of it."""

    address: str  # "auto" (the cluster of this machine, or a new one on it), HOST:PORT or ray://HOST:PORT
    cpus: float = 1
    gpus: float | None = None  # None: one where the cluster has any
    workers: int | None = None  # None: as many as fit

    def __post_init__(self) -> None:
        for name in ("cpus", "gpus"):
            if (getattr(self, name) or 0) < 0:
                raise ArgumentError(f"{name}={getattr(self, name)} is negative: give what each worker takes.")
        if self.workers is not None:
            check_whole("workers", self.workers, 1)


class RemoteWorker:
    """A `Worker` in a process of its own, on any machine that sees the study's folder."""

    def __init__(self, inventory: Inventory, base: Path, folder: Path, token: Path, threads: int) -> None:
        if not token.exists():
            raise ArgumentError(f"{folder} on {os.uname().nodename} is not the folder of this run: use a shared one.")
        torch.set_num_threads(threads)
        self._worker = Worker(Materials(inventory, base), Store(folder, inventory.settings))

    def ready(self) -> str:
        return os.uname().nodename

    def attempt(self, job: Job) -> Ending:
        return self._worker.attempt(job)


def run_on_ray(
    jobs: Sequence[Job],
    inventory: Inventory,
    base: Path,
    store: Store,
    cluster: Cluster,
    tally: Tally,
    watch: Watch,
    retries: int = 1,
) -> None:
    """Do every job that is not done on the workers of a Ray cluster, as `run_jobs` does on this machine.

    Ray restarts a worker that dies, here or on another machine, and the job it was doing is done again.
    """
    ray = _connect(cluster)
    token = store.folder.absolute() / "claims" / f".run-{uuid.uuid4().hex}"
    try:
        token.parent.mkdir(parents=True, exist_ok=True)
        token.touch()
        given = inventory, base.absolute(), store.folder.absolute(), token
        pool = Pool(ray, _start_workers(ray, cluster, given), store)
        todo = list(jobs)
        for _ in range(1 + retries):
            todo = pool.do_all(todo, tally, watch)
    finally:
        token.unlink(missing_ok=True)
        ray.shutdown()


class Pool:
    """The workers of a cluster, and their jobs. A worker joins when it is ready, and after each restart."""

    def __init__(self, ray: Any, workers: Sequence[Any], store: Store) -> None:
        self._ray, self._store = ray, store
        self._idle: list[Any] = []
        self._doing: dict[Any, tuple[Any, Job]] = {}
        self._starting = {worker.ready.remote(): worker for worker in workers}

    def do_all(self, jobs: Sequence[Job], tally: Tally, watch: Watch) -> list[Job]:
        """Do each job until it is done or failed, and return the failed ones. Idle workers get the next job in line."""
        line, failed, deaths = deque(jobs), [], Counter[str]()
        while line or self._doing:
            while line and self._idle:
                worker, job = self._idle.pop(0), line.popleft()
                self._doing[worker.attempt.remote(job)] = (worker, job)
            for job, ending in self._endings():
                deaths[job.key] += ending.what == "died"
                if ending.what == "died" and deaths[job.key] < _DEATHS:
                    line.appendleft(job)
                    continue
                if ending.what == "busy":  # another process on the folder does it: look again after the others
                    line.append(job)
                    time.sleep(0.1)
                elif ending.what in ("failed", "died"):
                    failed.append(job)
                    self._store.save_failure(job, ending.cause)
                tally.record(job, ending)
            tally.workers = max(1, len(self._idle) + len(self._doing))
            tally.doing = "; ".join(str(job) for _, job in list(self._doing.values())[:2])
            watch(tally)
        return failed

    def _endings(self) -> Iterator[tuple[Job, Ending]]:
        """Yield the attempts that end within a second."""
        ready, _ = self._ray.wait([*self._doing, *self._starting], timeout=1.0)
        for future in ready:
            if future in self._starting:
                self._welcome(self._starting.pop(future), future)
                continue
            worker, job = self._doing.pop(future)
            try:
                ending = self._ray.get(future)
                self._idle.append(worker)
            except self._ray.exceptions.RayTaskError as error:  # what ends a run: a full disk, a lost GPU
                raise error.cause from error
            except self._ray.exceptions.RayError as error:  # the worker died, and Ray may start it again
                self._starting[worker.ready.remote()] = worker
                ending = Ending("died", cause=f"its worker died {_DEATHS} times: {_reason(error)}")
            yield job, ending

    def _welcome(self, worker: Any, future: Any) -> None:
        try:
            self._ray.get(future)
        except self._ray.exceptions.ActorUnavailableError:  # Ray is starting it again
            time.sleep(0.1)
            self._starting[worker.ready.remote()] = worker
        except self._ray.exceptions.RayError as error:
            if not (self._starting or self._idle or self._doing):
                raise ArgumentError(f"no worker could start: {_reason(error)}") from error
        else:
            self._idle.append(worker)


def _connect(cluster: Cluster) -> Any:
    try:
        import ray
    except ImportError as error:
        raise ArgumentError("ray is not installed: pip install 'pixelcert[ray]' brings it.") from error
    if cluster.address not in ("auto", "local"):
        _knock(cluster.address)
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "ignore_reinit_error": True}
    try:
        ray.init(address=cluster.address, **options)
    except ConnectionError:
        if cluster.address != "auto":
            raise
        ray.init(address="local", include_dashboard=False, **options)
    return ray


def _knock(address: str) -> None:
    """Refuse an address where nobody answers, because Ray itself would wait for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdecimal():
        raise ArgumentError(f"address={address} is not one of a Ray cluster: write auto, HOST:PORT or ray://HOST:PORT.")
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except OSError as error:
        raise ArgumentError(f"no Ray cluster answers at {address} ({error}): start it, or use auto.") from error


def _start_workers(ray: Any, cluster: Cluster, settings: tuple[Any, ...]) -> list[Any]:
    """Start as many workers as fit. A worker that dies is restarted wherever there is room."""
    resources = ray.cluster_resources()
    gpus = float(resources.get("GPU", 0) > 0) if cluster.gpus is None else cluster.gpus
    asked = {"CPU": cluster.cpus, "GPU": gpus}
    fit = [int(resources.get(kind, 0) // amount) for kind, amount in asked.items() if amount]
    if fit and min(fit) < 1:
        has = ", ".join(f"{resources.get(kind, 0):g} {kind}" for kind in asked)
        raise ArgumentError(f"the cluster has {has}, less than one worker takes: lower --cpus or --gpus.")
    count = cluster.workers or min(fit, default=1)
    threads = max(1, int(cluster.cpus))
    kind = ray.remote(num_cpus=cluster.cpus, num_gpus=gpus, max_restarts=-1, max_task_retries=0)(RemoteWorker)
    return [kind.remote(*settings, threads) for _ in range(count)]


def _reason(error: BaseException) -> str:
    return str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
