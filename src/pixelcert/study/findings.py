"""Findings: a finished or running study read back for figures. Files are read when a figure asks for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..basics.messages import ArgumentError
from ..certificate import CertifiedMaps, certify_or_abstain
from ..methods import METHODS
from ..plan import Plan
from ..statistics import certified_radius, fewest_samples, radius
from .inventory import Inventory
from .job import Job, Scene
from .settings import Settings
from .store import Store
from .study import Study
from .tables import mean_and_half_width
from .worker import Materials

MetricAt = tuple[str, float | None, float | None]  # metric, τ, level


class UnavailableError(ArgumentError):
    """This study cannot give a figure; the message says what it lacks."""


class Measured:
    """The measures of jobs, read from a store and kept. A series is the jobs of one method on every image or grid."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._measures: dict[str, dict[MetricAt, float | None] | None] = {}
        self._names: dict[MetricAt, MetricAt] = {}  # equal keys once: a large study has millions

    def measures(self, job: Job) -> Mapping[MetricAt, float | None] | None:
        """Return everything measured of a job, by metric, τ and level; None if it is not finished."""
        if job.key not in self._measures:
            loaded, found = self._store.load_measures(job), {}
            for row in loaded["rows"] if loaded else ():
                key = row["metric"], row["tau"], row["level"]
                found[self._names.setdefault(key, key)] = row["value"]
            self._measures[job.key] = found if loaded else None
        return self._measures[job.key]

    def finished(self, series: Sequence[Job]) -> int:
        """Count the finished jobs of a series."""
        return sum(self.measures(job) is not None for job in series)

    def values(self, series: Sequence[Job], at: MetricAt) -> list[float | None]:
        """Return a metric of the finished jobs of a series; None where it is undefined."""
        finished = (self.measures(job) for job in series)
        return [measured[at] for measured in finished if measured and at in measured]

    def defined(self, series: Sequence[Job], at: MetricAt) -> list[Job]:
        """Return the finished jobs of a series on which a metric is defined."""
        return [job for job in series if (measured := self.measures(job)) and measured.get(at) is not None]

    def mean(self, series: Sequence[Job], at: MetricAt) -> float | None:
        """Return the mean of the defined values, as in the study's tables; None where there are none."""
        return mean_and_half_width([one for one in self.values(series, at) if one is not None])[0]


class Findings(Measured):
    """The jobs of a study by their settings, with their measures and certified maps."""

    def __init__(self, study: Study) -> None:
        super().__init__(study.store)
        self.study, self.settings = study, study.settings
        self.series: dict[tuple[Any, ...], list[Job]] = {}  # by kind of scene, model, method, layer, σ, n and preset
        jobs = study.jobs()
        if not any(map(study.store.measured, jobs)):
            raise ArgumentError(f"no job in {study.folder} is finished: `pixelcert study run` does them.")
        for job in jobs:
            where = (job.scene.kind, job.model.name, job.method, job.layer, job.plan.sigma, job.plan.n, job.preset)
            self.series.setdefault(where, []).append(job)

    # ── Names ─────────────────────────────────────────────────────────────────────────────────────────

    def at(
        self,
        *,
        model: str | None = None,
        layer: str | None = None,
        methods: Sequence[str] = (),
        image: str | None = None,
        **point: Any,
    ) -> View:
        """Return one point of the study: as asked, else all models, layers and methods at `Study.point`."""
        asked = {"model": model, "layer": layer, "method": methods or None, "image": image, **point}
        names = self.settings
        return View(
            self,
            _choose("model", [model] if model else [], names.models),
            _choose("layer", [layer] if layer else [], names.layers),
            _choose("method", methods, names.methods),
            image=image,
            given=frozenset(name for name, value in asked.items() if value is not None),
            **self.study.point(**point),
        )

    def base(self, method: str) -> str:
        """Return the method that a name in the study stands for."""
        return self.settings.method_named(method)[0]

    def family(self, method: str) -> str:
        return METHODS[self.base(method)].family

    def by_family(self, methods: Iterable[str]) -> dict[str, list[str]]:
        """Group methods by their families, which come in the order of the registry."""
        families = dict.fromkeys(method.family for method in METHODS.values())
        found = {family: [name for name in methods if self.family(name) == family] for family in families}
        return {family: names for family, names in found.items() if names}

    def scenes(self, kind: str) -> list[Scene]:
        """Return the study's images or grids."""
        jobs = next((jobs for where, jobs in self.series.items() if where[0] == kind), [])
        return [job.scene for job in jobs]

    def require(self, kind: str) -> list[Scene]:
        """Return the scenes; refuse a study that has none of the kind."""
        if not (found := self.scenes(kind)):
            raise UnavailableError(f"the study has no {kind}s: set {kind}s.count in its file and run it.")
        return found

    @staticmethod
    def radius(jobs: Sequence[Job], sigma: float, tau: float) -> float:
        """Return R for every image, on the noise's lattice or not: the smallest of the jobs' sizes."""
        largest = max((job.size for job in jobs), default=0)
        return certified_radius(radius(sigma, tau), largest**2)

    # ── Maps ──────────────────────────────────────────────────────────────────────────────────────────────────

    def certified(self, job: Job, tau: float) -> CertifiedMaps | None:
        """Return a job's certified maps; None if it is not finished."""
        votes = self.study.store.load_votes(job)
        return None if votes is None else certify_or_abstain(votes, self.settings.criterion(tau))

    def noisy_maps(self, job: Job, count: int) -> NDArray[np.float64]:
        """Return maps of the image and of its first `count` noisy samples, the study's own: (1 + count, H, W).

        This loads the model, which nothing else here does.
        """
        clean, noisy = self._materials.maps(job, 0.0, 1), self._materials.maps(job, job.plan.sigma, count)
        return np.concatenate([clean, noisy]).astype(np.float64)

    @cached_property
    def _materials(self) -> Materials:
        return self.study.materials(Inventory.load(self.study.folder))


@dataclass(frozen=True)
class View:
    """A part of a study to show: one point of it, and some of its models, layers and methods."""

    findings: Findings
    models: tuple[str, ...]
    layers: tuple[str, ...]
    methods: tuple[str, ...]
    sigma: float
    n: int
    preset: str
    tau: float
    level: float
    image: str | None = None  # a photograph's name; None for the first
    given: frozenset[str] = frozenset()  # names of the choices that were asked for, not taken by default

    @property
    def settings(self) -> Settings:
        return self.findings.settings

    @property
    def model(self) -> str:
        return self.models[0]

    @property
    def levels(self) -> list[float]:
        """All levels of the study, the largest first."""
        return sorted(self.settings.levels, reverse=True)

    @property
    def families(self) -> dict[str, list[str]]:
        """The methods shown, by family, in the paper's order."""
        return self.findings.by_family(self.methods)

    @property
    def correction(self) -> str:
        """Name the test's correction for its many pixels."""
        named = self.settings.criterion(self.tau).correction_for(self._plan)
        return "not corrected" if named == "none" else named

    @property
    def _plan(self) -> Plan:
        plans = {(str(preset), sigma, n): plan for (preset, sigma, n), plan in self.settings.plans().items()}
        return plans[self.preset, self.sigma, self.n]

    def fewest_samples(self, tau: float, size: int) -> int | None:
        """Return how many samples τ needs on images with sides of `size` pixels, if n is too few; else None."""
        return fewest_samples(self._plan, self.settings.criterion(tau), size**2)

    def own_layer(self, method: str) -> str:
        """Return the layer to show a method at: its preferred one if this view has it, else the first."""
        preferred = METHODS[self.findings.base(method)].layers[0]
        return preferred if preferred in self.layers else self.layers[0]

    def image_number(self) -> int:
        """Return the index of the image to show: the one asked for by its file's name, else the first."""
        names = [scene.name for scene in self.findings.require("image")]
        if self.image is None:
            return 0
        if self.image not in names:
            some = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
            raise ArgumentError(f"image {self.image!r} is not in the study: choose one of {some}.")
        return names.index(self.image)

    def series(
        self, kind: str, method: str, layer: str, *, model: str | None = None, sigma: float | None = None
    ) -> list[Job]:
        """Return a method's jobs on every image or grid, finished or not, at this view's model and σ or another."""
        where = (kind, model or self.model, method, layer, sigma or self.sigma, self.n, self.preset)
        return self.findings.series.get(where, [])

    def all_series(self, *kinds: str, sigmas: Sequence[float] = ()) -> list[list[Job]]:
        """Return the series of every model, layer and method shown."""
        each = product(kinds, self.models, self.layers, self.methods, sigmas or (self.sigma,))
        return [self.series(kind, method, layer, model=model, sigma=s) for kind, model, layer, method, s in each]

    def certified(self, job: Job) -> CertifiedMaps | None:
        """Return a job's certified maps at this view's τ; None if the job is not finished."""
        return self.findings.certified(job, self.tau)


def _choose(what: str, asked: Sequence[str], known: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names asked for, or all; refuse a name that the study does not have."""
    for name in asked:
        if name not in known:
            raise ArgumentError(f"{what} {name!r} is not in the study: choose one of {', '.join(known)}.")
    return tuple(dict.fromkeys(asked)) or known
