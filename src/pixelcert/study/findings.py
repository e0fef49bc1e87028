"""Findings: what a finished or running study knows, read-only, for figures. Files are read when a figure asks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..basics.messages import ArgumentError
from ..certificate import certify_or_abstain
from ..figures.sheet import FAMILIES
from ..methods import METHODS
from ..plan import ABSTAIN, Plan
from ..statistics import certified_radius, fewest_samples, radius
from ..votes import Votes
from .inventory import Inventory
from .job import Job, Scene
from .study import Study
from .tables import mean_and_half_width

if TYPE_CHECKING:
    from .worker import Worker


MetricAt = tuple[str, float | None, float | None]  # metric, τ, level


class UnavailableError(ArgumentError):
    """A figure that this study cannot give, and what the study lacks."""


@dataclass(frozen=True)
class View:
    """One point of a study, and which of its models, layers and methods to show."""

    models: tuple[str, ...]
    layers: tuple[str, ...]
    methods: tuple[str, ...]
    sigma: float
    n: int
    preset: str
    tau: float
    level: float
    image: str | None = None  # a photograph's name; None for the first
    given: frozenset[str] = frozenset()  # what was asked for by name, not taken by default

    @property
    def model(self) -> str:
        return self.models[0]


@dataclass(frozen=True, eq=False)
class Certified:
    """One job's votes and what they certify at a τ; where τ is out of reach, everything abstains."""

    votes: Votes
    labels: dict[float, NDArray[np.int8]]  # level → (H, W)
    overlay: NDArray[np.float32]  # (H, W)


class Findings:
    """The jobs of a study by what they are, their measures, and their certified maps.

    A `cell` is one method at one layer of one model, at one σ; it has a job for each image or grid.
    """

    def __init__(self, study: Study) -> None:
        self.study, self.settings = study, study.settings
        self._cells: dict[tuple[Any, ...], list[Job]] = {}
        jobs = study.jobs()
        if not any(map(study.store.measured, jobs)):
            raise ArgumentError(f"no job in {study.folder} is finished: `pixelcert study run` does them.")
        for job in jobs:
            where = (job.scene.kind, job.model.label, job.method, job.layer, job.plan.sigma, job.plan.n, job.preset)
            self._cells.setdefault(where, []).append(job)
        self._measures: dict[str, dict[MetricAt, float | None] | None] = {}
        self._names: dict[MetricAt, MetricAt] = {}  # equal keys once: a large study has millions

    # ── What there is ─────────────────────────────────────────────────────────────────────────────────────────

    def at(
        self,
        *,
        model: str | None = None,
        layer: str | None = None,
        methods: Sequence[str] = (),
        image: str | None = None,
        **point: Any,
    ) -> View:
        """One point of the study: what is asked, else all models, layers and methods, and `Study.setting`."""
        asked = {"model": model, "layer": layer, "method": methods or None, "image": image, **point}
        names = self.settings
        return View(
            self._choose("model", [model] if model else [], names.models),
            self._choose("layer", [layer] if layer else [], names.layers),
            self._choose("method", methods, tuple(names.methods)),
            image=image,
            given=frozenset(name for name, value in asked.items() if value is not None),
            **self.study.point(**point),
        )

    @staticmethod
    def _choose(what: str, asked: Sequence[str], known: tuple[str, ...]) -> tuple[str, ...]:
        for name in asked:
            if name not in known:
                raise ArgumentError(f"{what} {name!r} is not in the study: choose one of {', '.join(known)}.")
        return tuple(dict.fromkeys(asked)) or known

    def base(self, method: str) -> str:
        """The method that a name in the study stands for."""
        return self.settings.method_named(method)[0]

    def family(self, method: str) -> str:
        return METHODS[self.base(method)].family

    def by_family(self, methods: Iterable[str]) -> dict[str, list[str]]:
        """Methods of each family that has any, families in the paper's order."""
        found = {family: [name for name in methods if self.family(name) == family] for family in FAMILIES}
        return {family: names for family, names in found.items() if names}

    def own_layer(self, method: str, at: View) -> str:
        """Where a method's maps are shown: as asked, else where the method itself prefers, if the study has it."""
        preferred = METHODS[self.base(method)].layers[0]
        return preferred if preferred in at.layers else at.layers[0]

    def scenes(self, kind: str) -> list[Scene]:
        """The study's images or grids."""
        jobs = next((jobs for where, jobs in self._cells.items() if where[0] == kind), [])
        return [job.scene for job in jobs]

    def require(self, kind: str) -> list[Scene]:
        """`scenes`, of which there must be some."""
        if not (found := self.scenes(kind)):
            raise UnavailableError(f"the study has no {kind}s: set {kind}s.count in its file and run it.")
        return found

    def image_number(self, at: View) -> int:
        """Which of the images to show: the one asked for by its file's name, else the first."""
        names = [scene.name for scene in self.require("image")]
        if at.image is None:
            return 0
        if at.image not in names:
            some = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
            raise ArgumentError(f"image {at.image!r} is not in the study: choose one of {some}.")
        return names.index(at.image)

    def cell(self, kind: str, model: str, method: str, layer: str, at: View, sigma: float | None = None) -> list[Job]:
        """The jobs on every image or grid, finished or not, at the setting's σ or another."""
        return self._cells.get((kind, model, method, layer, sigma or at.sigma, at.n, at.preset), [])

    # ── Measures ──────────────────────────────────────────────────────────────────────────────────────────────

    def values(
        self, cell: Sequence[Job], metric: str, tau: float | None = None, level: float | None = None
    ) -> list[float | None]:
        """A metric of the finished jobs of a cell; None where it is undefined."""
        finished = (self.measures(job) for job in cell)
        return [measured[metric, tau, level] for measured in finished if measured and (metric, tau, level) in measured]

    def defined(
        self, cell: Sequence[Job], metric: str, tau: float | None = None, level: float | None = None
    ) -> list[Job]:
        """The finished jobs of a cell on which a metric is defined."""
        finished = ((job, self.measures(job)) for job in cell)
        return [job for job, measured in finished if measured and measured.get((metric, tau, level)) is not None]

    def mean(
        self, cell: Sequence[Job], metric: str, tau: float | None = None, level: float | None = None
    ) -> float | None:
        """Of the defined values, as in the study's tables; None where there are none."""
        return mean_and_half_width([one for one in self.values(cell, metric, tau, level) if one is not None])[0]

    def finished(self, cell: Sequence[Job]) -> int:
        return sum(self.measures(job) is not None for job in cell)

    def measures(self, job: Job) -> Mapping[MetricAt, float | None] | None:
        """Everything measured of a job, by metric, τ and level; None if it is not finished."""
        if job.key not in self._measures:
            loaded = self.study.store.load_measures(job)
            self._measures[job.key] = None if loaded is None else self._index(loaded["rows"])
        return self._measures[job.key]

    def _index(self, rows: Iterable[Mapping[str, Any]]) -> dict[MetricAt, float | None]:
        keys = [(row["metric"], row["tau"], row["level"]) for row in rows]
        return {self._names.setdefault(key, key): row["value"] for key, row in zip(keys, rows, strict=True)}

    @staticmethod
    def radius(jobs: Sequence[Job], sigma: float, tau: float) -> float:
        """R for every image, on the noise's grid or not: the smallest of the jobs' sizes."""
        largest = max((job.size for job in jobs), default=0)
        return certified_radius(radius(sigma, tau), largest**2)

    # ── The test ──────────────────────────────────────────────────────────────────────────────────────────────

    def correction(self, at: View) -> str:
        """How the test accounts for its many pixels, in words."""
        named = self.settings.criterion(at.tau).correction_for(self._plan(at))
        return "not corrected" if named == "none" else named

    def fewest_samples(self, at: View, tau: float, size: int) -> int | None:
        """How many samples τ needs on images of that side in pixels, where the setting has too few; else None."""
        return fewest_samples(self._plan(at), self.settings.criterion(tau), size**2)

    def _plan(self, at: View) -> Plan:
        plans = {(str(preset), sigma, n): plan for (preset, sigma, n), plan in self.settings.plans().items()}
        return plans[at.preset, at.sigma, at.n]

    # ── Maps ──────────────────────────────────────────────────────────────────────────────────────────────────

    def certified(self, job: Job, tau: float) -> Certified | None:
        """A job's certified maps; None if it is not finished."""
        if (votes := self.study.store.load_votes(job)) is None:
            return None
        if (made := certify_or_abstain(votes, self.settings.criterion(tau))) is None:
            nothing = {level: np.full(votes.size, ABSTAIN, np.int8) for level in votes.plan.levels}
            return Certified(votes, nothing, np.zeros(votes.size, np.float32))
        return Certified(votes, dict(made.labels), made.overlay)

    def noisy_maps(self, job: Job, count: int) -> NDArray[np.float64]:
        """Explanations of the image and of its first `count` noisy samples, the study's own: (1 + count, H, W).

        Loads the model, which nothing else here does.
        """
        import torch

        from ..explainer import explain
        from ..noise import noisy, snap

        explainer, image = self._worker.explainer(job), self._worker.image(job)
        clean = snap(image.to(explainer.model.device))
        images = torch.cat([clean[None], noisy(clean, job.plan.sigma, job.plan.seed, range(count))])
        if (votes := self.study.store.load_votes(job)) is None:
            raise UnavailableError(f"{job} is not finished: `pixelcert study run` does it.")
        return explain(explainer, images, votes.provenance.target).maps.double().cpu().numpy()

    @cached_property
    def _worker(self) -> Worker:
        return self.study.worker(Inventory.load(self.study.folder))
