"""Worker: does one job after the other and measures it; keeps model, explainer and photographs."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..basics.messages import (
    ArgumentError,
    DiskFullError,
    ModelError,
    PixelcertError,
    PixelcertWarning,
    Progress,
)
from ..certificate import Certificate, certify_or_abstain
from ..explainer import Precision, Tuning, explain
from ..image import resize_image
from ..methods import Method
from ..methods import method as make_method
from ..metrics import (
    certified_grid_pg,
    certified_interval,
    deletion_curve,
    deletion_masks,
    grid_pg,
    order_masks,
    shares,
)
from ..models import Classifier
from ..models.variants import for_grid
from ..noise import snap
from ..photographs import Chosen, compose_grid, read_chosen
from ..plan import ABSTAIN
from ..sampling.checkpoint import sample_into
from ..sampling.sample import Subject
from ..votes import Votes
from .inventory import Inventory, image_folder, load_study_model
from .job import Job, Scene, scenes
from .settings import Settings
from .store import Store

ORDER_PERCENTS = (1, 2, 5, 10, 20, 50)  # of the pixels, deleted in the order of the certified maps

Measurement = dict[str, Any]


def measure(votes: Votes, settings: Settings, explainer: Method, image: Tensor, scene: Scene) -> dict[str, Any]:
    """Rows of metric, τ, level, value and, where there is one, the certified interval around it."""
    rows = [_row("mean_radius", None, level, _mean_radius(votes, settings, level)) for level in votes.plan.levels]
    if scene.kind == "grid":
        rows.append(_row("grid_pg", None, None, _grid_pg(explainer, image, votes, scene)))
    for tau in settings.tau:
        certificate = certify_or_abstain(votes, settings.criterion(tau))
        rows += _shares(votes, certificate, tau)
        if scene.kind == "grid":
            rows += _localisation(votes, certificate, tau, scene)
        elif certificate is not None and tau in settings.deletion_taus:
            rows += _deletion(certificate, explainer, image, tau)
    return {
        "target": votes.provenance.target,
        "target_name": votes.provenance.target_name,
        "radius": {str(tau): votes.radius_at(tau) for tau in settings.tau},
        "rows": rows,
    }


def _row(metric: str, tau: float | None, level: float | None, value: float, *interval: float) -> Measurement:
    """Undefined numbers are None: JSON knows no NaN."""
    numbers = dict(zip(("value", "low", "high"), (value, *(interval or (math.nan, math.nan))), strict=True))
    defined = {name: None if math.isnan(number) else float(number) for name, number in numbers.items()}
    return {"metric": metric, "tau": tau, "level": level, **defined}


def _labels(votes: Votes, certificate: Certificate | None, level: float) -> np.ndarray[Any, np.dtype[np.int8]]:
    return np.full(votes.size, ABSTAIN, np.int8) if certificate is None else certificate.labels[level]


def _shares(votes: Votes, certificate: Certificate | None, tau: float) -> list[Measurement]:
    rows = []
    for level in votes.plan.levels:
        ones, zeros, abstained = shares(_labels(votes, certificate, level))
        rows += [
            _row("certified", tau, level, 100 - abstained),
            _row("certified_1", tau, level, ones),
            _row("certified_0", tau, level, zeros),
            _row("abstained", tau, level, abstained),
        ]
    if certificate is not None and certificate.prediction is not None:
        rows.append(_row("prediction_certified", tau, None, float(certificate.prediction.certified)))
    return rows


def _mean_radius(votes: Votes, settings: Settings, level: float) -> float:
    return float(votes.radius_map(level, settings.alpha).mean())


def _grid_pg(explainer: Method, image: Tensor, votes: Votes, scene: Scene) -> float:
    """Of the explanation without noise, as people look at it; the votes know nothing of it."""
    clean = snap(image.to(explainer.model.device))
    attribution = explain(explainer, clean[None], votes.provenance.target).maps[0]
    if not bool(attribution.isfinite().all()):
        return math.nan
    return grid_pg(attribution.cpu().numpy(), scene.side, scene.cell)


def _localisation(votes: Votes, certificate: Certificate | None, tau: float, scene: Scene) -> list[Measurement]:
    rows = []
    for level in votes.plan.levels:
        labels = _labels(votes, certificate, level)
        value = certified_grid_pg(labels, scene.side, scene.cell)
        rows.append(_row("certified_grid_pg", tau, level, value, *certified_interval(labels, scene.side, scene.cell)))
    return rows


def _deletion(certificate: Certificate, explainer: Method, image: Tensor, tau: float) -> list[Measurement]:
    """Confidence while certified pixels are deleted: level by level, and in the certified maps' own order."""
    target, size = certificate.votes.provenance.target, certificate.votes.size
    ordered = order_masks(certificate.order, size, ORDER_PERCENTS)
    by_level = deletion_curve(explainer.model, image, target, deletion_masks(certificate.labels))
    by_order = deletion_curve(explainer.model, image, target, ordered)
    rows = [_row("confidence", tau, None, by_level.confidence[0])]
    for level, deleted, confidence in zip(sorted(certificate.levels), *(c[1:] for c in by_level), strict=True):
        rows += [_row("deleted", tau, level, deleted), _row("deletion_confidence", tau, level, confidence)]
    for percent, confidence in zip(ORDER_PERCENTS, by_order.confidence[1:], strict=True):
        rows.append(_row("order_deletion_confidence", tau, percent, confidence))
    rows.append(_row("deletion_area", tau, None, by_level.area))
    rows.append(_row("order_deletion_area", tau, None, by_order.area))
    return rows


class Ending(NamedTuple):
    """What became of a job: "found" done by another process, "busy" being done by it, or what this one did."""

    what: Literal["done", "found", "busy", "failed", "died"]
    seconds: float | None = None
    cause: str = ""
    memory: float | None = None
    notes: Sequence[str] = ()


class Worker:
    """Does jobs of one study on one device. Holds one model at a time."""

    def __init__(self, inventory: Inventory, base: Path, store: Store, device: str | None = None) -> None:
        self._inventory, self._base, self.store, self._device = inventory, base, store, device
        self._model = lru_cache(1)(self._load_model)
        self._explainer = lru_cache(2)(self._make_explainer)
        self._image = lru_cache(64)(self._render)
        self._scenes = {(scene.kind, scene.name): scene for scene in scenes(inventory.selection)}

    def attempt(self, job: Job, progress: Progress | None = None) -> Ending:
        """Do a job unless it is done, or another process is doing it. A failure is recorded with its cause.

        A full disk is not the job's failure, nor is a GPU that answers nothing any more: they end the run.
        """
        with self.store.lock(job) as mine:
            if self.store.done(job):
                return Ending("found")
            if not mine:
                return Ending("busy")
            started = time.monotonic()
            try:
                notes = self.do(job, progress)
            except DiskFullError:
                raise
            except Exception as error:
                self.store.save_failure(job, cause := f"{type(error).__name__}: {error}")
                if "CUDA error" in str(error):  # every later call would fail too
                    raise PixelcertError(
                        f"{job}: {cause}. The GPU is lost to this process: run again to go on."
                    ) from error
                return Ending("failed", cause=cause)
            return Ending("done", time.monotonic() - started, memory=self.memory, notes=notes)

    def do(self, job: Job, progress: Progress | None = None) -> list[str]:
        """Leave the job's votes and measures in the store, and return what the library warned of.

        What an interruption leaves unfinished is continued later. The caller holds the job's claim.
        """
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", PixelcertWarning)
            self._do(job, progress)
        return [str(warning.message) for warning in caught if issubclass(warning.category, PixelcertWarning)]

    def _do(self, job: Job, progress: Progress | None) -> None:
        self.store.require_room(job)
        self.store.sweep(job)
        explainer = self.explainer(job)
        image = self.image(job)
        votes = self.store.load_votes(job) or self._sample(job, explainer, image, progress)
        self.store.save_measures(job, measure(votes, self._inventory.settings, explainer, image, job.scene))

    def _sample(self, job: Job, explainer: Method, image: Tensor, progress: Progress | None) -> Votes:
        """Return the job's votes, kept in the store, with those of its siblings that count the same maps."""
        settings = self._inventory.settings
        subject = Subject(image, self._target(job, explainer.model), job.scene.name, progress)
        tuning = Tuning(precision=settings.precision, compile=settings.compile)
        if (partial := self.store.load_partial(job)) is not None:
            places = [[self.store.place(job)]]
            try:
                return next(sample_into(places, [job.plan], explainer, [subject], [partial], tuning))[0]
            except ArgumentError as error:  # such as votes counted on another machine, which rounds differently
                warnings.warn(f"{error} The job began again.", PixelcertWarning, stacklevel=2)
        with ExitStack() as locks:
            siblings = [other for other in job.siblings(settings) if locks.enter_context(self._untouched(other))]
            together = [job, *siblings]
            places = [[self.store.place(one) for one in together]]
            plans = [one.plan for one in together]
            return next(sample_into(places, plans, explainer, [subject], [None], tuning))[0]

    @contextmanager
    def _untouched(self, job: Job) -> Iterator[bool]:
        """Yield True if a job has no votes yet, and nobody else is doing it."""
        with self.store.lock(job) as mine:
            yield mine and not any(path.exists() for path in self.store.place(job))

    def image(self, job: Job) -> Tensor:
        """What a job explains, (3, size, size) in [0, 1]."""
        return self._image(job.scene.kind, job.scene.name, job.photograph_size, job.size)

    def explainer(self, job: Job) -> Method:
        """The method of a job, on the model that sees scenes of its size."""
        return self._explainer(job.model.label, job.base, job.layer, tuple(sorted(job.params.items())), job.scene.kind)

    def _make_explainer(
        self, label: str, method: str, layer: str, params: tuple[tuple[str, object], ...], kind: str
    ) -> Method:
        model, facts = self._model(label), self._inventory.models[label]
        if kind == "grid":
            model = for_grid(model, facts.grid_size)
        return make_method(method, model, layer, **dict(params))

    def _load_model(self, label: str) -> Classifier:
        self._explainer.cache_clear()  # they hold the model before
        model = load_study_model(self._inventory.settings, label, self._base, self._device)
        if model.weights_hash != self._inventory.models[label].weights:
            raise ModelError(f"the weights of {label} are not those of the plan: plan or run the study again.")
        return model

    def _render(self, kind: str, name: str, photograph_size: int, size: int) -> Tensor:
        """A scene as (3, size, size). A grid too large for its model is resized here, before any noise is added."""
        scene = self._scenes[kind, name]
        image = compose_grid([self._read(chosen, photograph_size) for chosen in scene.photographs], scene.side)
        return image if image.shape[-1] == size else resize_image(image, size)

    def _read(self, chosen: Chosen, size: int) -> Tensor:
        return read_chosen(image_folder(self._inventory.settings, self._base), chosen, size)

    def _target(self, job: Job, model: Classifier) -> int:
        """The labelled class; for a photograph without a label, what the model takes it for."""
        chosen = job.scene.explained
        if chosen.target is not None:
            return chosen.target
        return model.predict(self._read(chosen, job.model.image_size))[0]

    @property
    def precision(self) -> Precision:
        """As the study asks for."""
        return self._inventory.settings.precision

    @property
    def memory(self) -> float | None:
        """Peak GPU memory in GiB; None without a GPU."""
        return torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else None
