"""Study: a study file and its folder, from plan to run to results."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..basics.messages import ArgumentError, Progress, Track
from ..statistics import fewest_samples
from .inventory import Inventory, take_inventory
from .job import Job, JobKind, jobs
from .runner import Estimate, Tally, Watch, estimate, run_jobs
from .settings import Settings, load_settings
from .store import Store
from .tables import Row, planned, rows, write_tables
from .worker import Worker

if TYPE_CHECKING:
    from .cluster import Cluster


class Study:
    """Models × methods × layers × σ × n on images and grids, as a file names them, answered in a folder.

        study = Study.open("study.toml")
        study.run()
        study.results()

    Everything finished is kept: run it again after a crash, a change of the file or on another machine, and only what
    is missing is done.
    """

    def __init__(self, settings: Settings, base: Path, folder: Path) -> None:
        self.settings, self.base, self.folder = settings, base, folder
        self.store = Store(folder, settings)

    @classmethod
    def open(cls, path: str | Path, folder: str | Path | None = None) -> Study:
        """The study in the TOML file at `path`; its folder is by default beside it, of the same name."""
        path = Path(path)
        if folder is not None and Path(folder).is_file():
            raise ArgumentError(f"folder={folder} is a file: name a folder for the study's results.")
        beside = path.with_suffix("") if path.suffix else path.with_name(f"{path.name}-study")
        return cls(load_settings(path), path.parent, beside if folder is None else Path(folder))

    def resolve(self, device: str | None = None, track: Track = lambda what: lambda done, total: None) -> Inventory:
        """Load each model once and choose the photographs, or read the choice made before.

        ``track(what)`` makes a progress callback for the models and one for the photographs.
        """
        return take_inventory(self.settings, self.base, self.folder, device, track)

    def worker(self, resolved: Inventory, device: str | None = None) -> Worker:
        return Worker(resolved, self.base, self.store, device)

    def estimate(
        self,
        resolved: Inventory,
        *,
        device: str | None = None,
        calibrate: bool = True,
        progress: Progress | None = None,
    ) -> dict[JobKind, Estimate]:
        """What the jobs that are not done will cost on this machine, by cell."""
        todo = [job for job in jobs(resolved) if not self.store.done(job)]
        return estimate(todo, self.worker(resolved, device), calibrate, progress)

    def unreachable(self, resolved: Inventory) -> list[str]:
        """τ that some n cannot reach, in words: nothing will be certified there, and the tables will say so."""
        needed: dict[tuple[str, int], dict[float, int]] = {}
        for (preset, _, n), plan in self.settings.plans().items():
            for size, tau in product(set(resolved.sizes().values()), self.settings.tau):
                if fewest := fewest_samples(plan, self.settings.criterion(tau), size**2):
                    taus = needed.setdefault((preset, n), {})
                    taus[tau] = max(fewest, taus.get(tau, 0))
        return [
            f"n = {n} can certify nothing at tau = {', '.join(map(str, sorted(taus)))} (preset {preset}): the tables "
            f"will say 0 % there. Raise n to {max(taus.values())} to reach them all."
            for (preset, n), taus in needed.items()
        ]

    def verify(self, resolved: Inventory, progress: Progress | None = None) -> list[Path]:
        """Read the files of all finished jobs, and remove those that are damaged, so that they are made again."""
        damaged = self.store.damaged([job for job in jobs(resolved) if self.store.done(job)], progress)
        for file in damaged:
            file.unlink(missing_ok=True)
        return damaged

    def run(
        self,
        resolved: Inventory | None = None,
        *,
        device: str | None = None,
        cluster: Cluster | None = None,
        retries: int = 1,
        verify: bool = True,
        watch: Watch = lambda tally: None,
    ) -> Tally:
        """Do what is not done, here or on a Ray `cluster`; `watch` is told of everything that happens.

        With `verify`, files of finished jobs are read first and damaged ones made again. The answer says what failed,
        and why.
        """
        resolved = resolved or self.resolve(device)
        if verify:
            self.verify(resolved)
        all_jobs = list(jobs(resolved))
        todo = [job for job in all_jobs if not self.store.done(job)]
        todo.sort(key=self.store.begun)  # what ended its process before comes last, or nothing else would get its turn
        tally = Tally.of(all_jobs, todo)
        watch(tally)
        if cluster is None:
            run_jobs(todo, self.worker(resolved, device), tally, watch, retries)
        elif todo:
            from .cluster import run_on_ray

            run_on_ray(todo, resolved, self.base, self.store, cluster, tally, watch, retries)
        return tally

    def results(self, undefined: float | None = None) -> list[Row]:
        """Write the tables of all finished jobs to ``results/`` in the folder, and return the means."""
        jobs = self.jobs()
        if not any(map(self.store.measured, jobs)):
            raise ArgumentError(
                f"none of the {len(jobs)} jobs in {self.folder} is done: `pixelcert study run` does them."
            )
        return write_tables(rows(jobs, self.store, undefined), self.folder / "results", planned(jobs))

    def jobs(self) -> list[Job]:
        """The jobs as they were last planned or run, without loading a model."""
        resolved = Inventory.load(self.folder)
        self._check_unchanged(resolved.settings)
        return list(jobs(resolved))

    def point(self, **asked: Any) -> dict[str, Any]:
        """One point of the study for a summary: what is asked, else its first values and its middle level."""
        settings = self.settings
        levels = sorted(settings.levels)
        axes = {
            "sigma": settings.sigma,
            "n": settings.n,
            "preset": settings.presets,
            "tau": (*settings.deletion_taus, *settings.tau),
            "level": (levels[len(levels) // 2], *levels),
        }
        point = {name: values[0] if asked.get(name) is None else asked[name] for name, values in axes.items()}
        for name, value in point.items():
            if value not in axes[name]:
                raise ArgumentError(f"{name}={value} is not in the study: choose one of {sorted(set(axes[name]))}.")
        return {name: axes[name][axes[name].index(value)] for name, value in point.items()}  # 10 where 10.0 was asked

    def _check_unchanged(self, before: Settings) -> None:
        now, then = self.settings.model_dump(), before.model_dump()
        if changed := [name for name in now if now[name] != then[name]]:
            raise ArgumentError(
                f"{', '.join(changed)} changed in the study file since it was last planned or run in {self.folder}: "
                f"`pixelcert study run` does what is missing, `pixelcert study plan` only looks."
            )
