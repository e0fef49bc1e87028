"""Study: a study file and its folder, from plan to run to results."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

from ..basics.messages import ArgumentError, Progress, Track
from ..statistics import fewest_samples
from .cluster import Cluster, run_on_ray
from .inventory import Inventory, take_inventory
from .job import Job, JobKind, jobs
from .runner import Estimate, Tally, Watch, estimate, run_jobs
from .settings import Settings, load_settings
from .store import Store
from .tables import Row, planned, rows, write_tables
from .worker import Materials, Worker


class Study:
    """The jobs of a study file, models × methods × layers × σ × n on images and grids, with answers in a folder.

        study = Study.open("study.toml")
        study.run()
        study.results()

    Everything finished is kept. Run it again after a crash, after a change of the file, or on another machine: it only
    does what is missing.
    """

    def __init__(self, settings: Settings, base: Path, folder: Path) -> None:
        self.settings, self.base, self.folder = settings, base, folder
        self.store = Store(folder, settings)

    @classmethod
    def open(cls, path: str | Path, folder: str | Path | None = None) -> Study:
        """Return the study in the TOML file at `path`. By default, its folder is beside it, of the same name."""
        path = Path(path)
        if folder is not None and Path(folder).is_file():
            raise ArgumentError(f"folder={folder} is a file: name a folder for the study's results.")
        beside = path.with_suffix("") if path.suffix else path.with_name(f"{path.name}-study")
        return cls(load_settings(path), path.parent, beside if folder is None else Path(folder))

    def resolve(self, device: str | None = None, track: Track = lambda what: lambda done, total: None) -> Inventory:
        """Load each model once and choose the photographs, or read the choice made before.

        ``track(what)`` makes a progress callback, one for the models and one for the photographs.
        """
        return take_inventory(self.settings, self.base, self.folder, device, track)

    def worker(self, inventory: Inventory, device: str | None = None) -> Worker:
        return Worker(self.materials(inventory, device), self.store)

    def materials(self, inventory: Inventory, device: str | None = None) -> Materials:
        """Return the explainers and images of the jobs, which are loaded when they are asked for."""
        return Materials(inventory, self.base, device)

    def estimate(
        self,
        inventory: Inventory,
        *,
        device: str | None = None,
        calibrate: bool = True,
        progress: Progress | None = None,
    ) -> dict[JobKind, Estimate]:
        """Return the cost on this machine of the jobs that are not done, by kind."""
        todo = [job for job in jobs(inventory) if not self.store.done(job)]
        return estimate(todo, self.materials(inventory, device), calibrate, progress)

    def unreachable(self, inventory: Inventory) -> list[str]:
        """Say which τ some n cannot reach: nothing will be certified there, and the tables will say so."""
        needed: dict[tuple[str, int], dict[float, int]] = {}
        for (preset, _, n), plan in self.settings.plans().items():
            for size, tau in product(set(inventory.sizes().values()), self.settings.tau):
                if fewest := fewest_samples(plan, self.settings.criterion(tau), size**2):
                    taus = needed.setdefault((preset, n), {})
                    taus[tau] = max(fewest, taus.get(tau, 0))
        return [
            f"n = {n} can certify nothing at tau = {', '.join(map(str, sorted(taus)))} (preset {preset}): the tables "
            f"will say 0 % there. Raise n to {max(taus.values())} to reach them all."
            for (preset, n), taus in needed.items()
        ]

    def verify(self, inventory: Inventory, progress: Progress | None = None) -> list[Path]:
        """Read the files of all finished jobs, and remove the damaged ones, so that they are made again."""
        damaged = self.store.damaged([job for job in jobs(inventory) if self.store.done(job)], progress)
        for file in damaged:
            file.unlink(missing_ok=True)
        return damaged

    def run(
        self,
        inventory: Inventory | None = None,
        *,
        device: str | None = None,
        cluster: Cluster | None = None,
        retries: int = 1,
        verify: bool = True,
        watch: Watch = lambda tally: None,
    ) -> Tally:
        """Do what is not done, here or on a Ray `cluster`, and return what failed and why.

        With `verify`, files of finished jobs are read first and damaged ones made again. `watch` is called whenever
        something happened.
        """
        inventory = inventory or self.resolve(device)
        if verify:
            self.verify(inventory)
        all_jobs = list(jobs(inventory))
        todo = [job for job in all_jobs if not self.store.done(job)]
        todo.sort(key=self.store.begun)  # last come jobs that a process began and did not end: one may have killed it
        tally = Tally.of(all_jobs, todo)
        watch(tally)
        if cluster is None:
            run_jobs(todo, self.worker(inventory, device), tally, watch, retries)
        elif todo:
            run_on_ray(todo, inventory, self.base, self.store, cluster, tally, watch, retries)
        return tally

    def results(self, undefined: float | None = None, inventory: Inventory | None = None) -> list[Row]:
        """Write the tables of all finished jobs to ``results/`` in the folder, and return the means.

        The inventory in the folder is read, unless the one of a run is given.
        """
        found = self.jobs() if inventory is None else list(jobs(inventory))
        if not any(map(self.store.measured, found)):
            raise ArgumentError(
                f"none of the {len(found)} jobs in {self.folder} is done: `pixelcert study run` does them."
            )
        return write_tables(rows(found, self.store, undefined), self.folder / "results", planned(found))

    def jobs(self) -> list[Job]:
        """Return the jobs as they were last planned or run, without loading a model."""
        inventory = Inventory.load(self.folder)
        self._check_unchanged(inventory)
        return list(jobs(inventory))

    def point(self, **asked: Any) -> dict[str, Any]:
        """Return one point of the study for a summary: as asked, else its first values and its middle level."""
        settings, plan = self.settings, next(iter(self.settings.plans().values()))
        axes = {
            "sigma": settings.sigma,
            "n": settings.n,
            "preset": settings.presets,
            "tau": (*settings.deletion_taus, *settings.tau),
            "level": (plan.level(), *plan.levels),
        }
        point = {name: values[0] if asked.get(name) is None else asked[name] for name, values in axes.items()}
        for name, value in point.items():
            if value not in axes[name]:
                raise ArgumentError(f"{name}={value} is not in the study: choose one of {sorted(set(axes[name]))}.")
        return {name: axes[name][axes[name].index(value)] for name, value in point.items()}  # 10 where 10.0 was asked

    def _check_unchanged(self, before: Inventory) -> None:
        """Refuse settings other than those in the folder. A file without a seed means the folder's."""
        now, then = self.settings.model_dump(), {**before.settings.model_dump(), "seed": before.noise.seed}
        if now["seed"] is None:
            now["seed"] = before.noise.seed
        if changed := [name for name in now if now[name] != then[name]]:
            raise ArgumentError(
                f"{', '.join(changed)} changed in the study file since it was last planned or run in {self.folder}: "
                f"use `pixelcert study run` to do what is missing, or `pixelcert study plan` to see how much it is."
            )
