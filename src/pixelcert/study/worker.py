"""Worker: do one job after the other and measure it, on models, explainers and photographs that are kept."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..basics.messages import ArgumentError, DiskFullError, ModelError, PixelcertError, PixelcertWarning, Progress
from ..certificate import Certificate, certify_or_abstain
from ..image import image_hash, resize_image
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
from ..noise import key_of, snap
from ..photographs import Chosen, compose_grid, read_chosen
from ..sampling.checkpoint import sample_into
from ..sampling.loop import explain_copies
from ..sampling.sample import Subject
from ..votes import Votes
from .inventory import Inventory, image_folder, load_study_model
from .job import Job, Scene, scenes
from .settings import Settings
from .store import Store, load_votes

ORDER_PERCENTS = (1, 2, 5, 10, 20, 50)  # of the pixels, deleted in the order of the certified maps

Measurement = dict[str, Any]
Labels = Mapping[float, NDArray[np.int8]]  # level → (H, W)


class Ending(NamedTuple):
    """The end of an attempt: "found" if it was done already, "busy" if another process does it, or the result."""

    what: Literal["done", "found", "busy", "failed", "died"]
    seconds: float | None = None
    cause: str = ""
    memory: float | None = None
    notes: Sequence[str] = ()


class Materials:
    """The explainers and images of a study's jobs, on one device. Holds one model at a time."""

    def __init__(self, inventory: Inventory, base: Path, device: str | None = None) -> None:
        self.settings = inventory.settings
        self._inventory, self._base, self._device = inventory, base, device
        self._model = lru_cache(1)(self._load_model)
        self._explainer = lru_cache(2)(self._make_explainer)
        self._image = lru_cache(64)(self._render)
        self._scenes = {(scene.kind, scene.name): scene for scene in scenes(inventory.selection)}

    def explainer(self, job: Job) -> Method:
        """Return the method of a job, on the model that sees scenes of its size."""
        return self._explainer(job.model.name, job.base, job.layer, tuple(sorted(job.params.items())), job.scene.kind)

    def image(self, job: Job) -> Tensor:
        """Return the image that a job explains, (3, size, size) in [0, 1]."""
        return self._image(job.scene.kind, job.scene.name, job.photograph_size, job.size)

    def target(self, job: Job) -> int:
        """Return the labelled class, or the model's answer to a photograph without a label."""
        if (chosen := job.scene.explained).target is not None:
            return chosen.target
        return self.explainer(job).model.predict(self._read(chosen, job.model.image_size))[0]

    def maps(self, job: Job, sigma: float, count: int) -> NDArray[Any]:
        """Return the maps (B, H, W) of the first noisy copies of a job's image, with the noise of its votes."""
        explainer = self.explainer(job)
        clean = snap(self.image(job).cpu())
        asked: dict[str, Any] = {"sigma": sigma, "key": key_of(job.plan, image_hash(clean)), "samples": range(count)}
        clean = clean.to(explainer.model.device)
        return np.asarray(explain_copies(explainer, clean, self.target(job), **asked)[1].maps.cpu())

    def _load_model(self, name: str) -> Classifier:
        self._explainer.cache_clear()  # its explainers hold the previous model
        model = load_study_model(self.settings, name, self._base, self._device)
        if model.weights_hash != self._inventory.models[name].weights:
            raise ModelError(f"the weights of {name} are not those of the plan: plan or run the study again.")
        return model

    def _make_explainer(
        self, name: str, method: str, layer: str, params: tuple[tuple[str, object], ...], kind: str
    ) -> Method:
        model, facts = self._model(name), self._inventory.models[name]
        if kind == "grid":  # by the size of the photographs together: one that is too large is resized, on record
            model = for_grid(model, self.settings.grids.side * facts.cell_size)
        return make_method(method, model, layer, **dict(params))

    def _render(self, kind: str, name: str, photograph_size: int, size: int) -> Tensor:
        """Compose a scene as (3, size, size). A grid too large for its model is resized here, before noise is added."""
        scene = self._scenes[kind, name]
        image = compose_grid([self._read(chosen, photograph_size) for chosen in scene.photographs], scene.side)
        return image if image.shape[-1] == size else resize_image(image, size)

    def _read(self, chosen: Chosen, size: int) -> Tensor:
        return read_chosen(image_folder(self.settings, self._base), chosen, size)


class Worker:
    """Does jobs of one study on one device."""

    def __init__(self, materials: Materials, store: Store) -> None:
        self.materials, self.store = materials, store

    def attempt(self, job: Job, progress: Progress | None = None) -> Ending:
        """Do a job unless it is done, or another process is doing it; save the cause if it fails.

        A full disk and a GPU that no longer answers are not failures of the job: they end the run.
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
                    remedy = "This process cannot use the GPU any more: run again to continue."
                    raise PixelcertError(f"{job}: {cause}. {remedy}") from error
                return Ending("failed", cause=cause)
            peak = torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else None  # GiB
            return Ending("done", time.monotonic() - started, memory=peak, notes=notes)

    def do(self, job: Job, progress: Progress | None = None) -> list[str]:
        """Save the job's votes and measures in the store, and return the library's warnings.

        An interruption leaves partial votes, which are resumed later. The caller holds the job's lock.
        """
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", PixelcertWarning)
            self.store.make_room(job)
            explainer, image = self.materials.explainer(job), self.materials.image(job)
            clean_map = self.materials.maps(job, sigma=0.0, count=1)[0] if job.scene.kind == "grid" else None
            votes = self.store.load_votes(job) or self._sample(job, explainer, image, progress)
            measures = measure(votes, self.materials.settings, job.scene, explainer.model, image, clean_map)
            self.store.save_measures(job, measures)
        return [str(warning.message) for warning in caught if issubclass(warning.category, PixelcertWarning)]

    def _sample(self, job: Job, explainer: Method, image: Tensor, progress: Progress | None) -> Votes:
        """Sample the job and the siblings that count the same maps, save all votes, and return the job's."""
        tuning, place = self.materials.settings.tuning, self.store.place(job)
        subject = Subject(image, self.materials.target(job), job.scene.name, progress)
        if (partial := load_votes(place.partial)) is not None:
            try:
                return next(sample_into([[place]], [job.plan], explainer, [subject], [partial], tuning))[0]
            except ArgumentError as error:  # such as votes counted on another machine, which rounds differently
                warnings.warn(f"{error} The job starts again.", PixelcertWarning, stacklevel=2)
        with ExitStack() as locks:
            siblings = [other for other in job.siblings if locks.enter_context(self._untouched(other))]
            places, plans = zip(*((self.store.place(one), one.plan) for one in (job, *siblings)), strict=True)
            return next(sample_into([places], plans, explainer, [subject], [None], tuning))[0]

    @contextmanager
    def _untouched(self, job: Job) -> Iterator[bool]:
        """Yield True if a job has no votes yet, and nobody else is doing it."""
        with self.store.lock(job) as mine:
            yield mine and not any(path.exists() for path in self.store.place(job))


# ── Measures ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def measure(
    votes: Votes, settings: Settings, scene: Scene, model: Classifier, image: Tensor, clean_map: NDArray[Any] | None
) -> dict[str, Any]:
    """Return measurements: metric, τ, level, value and, where there is one, the certified interval around it."""
    levels = votes.plan.levels
    rows = [_measured("mean_radius", None, k, float(votes.radius_map(k, settings.alpha).mean())) for k in levels]
    if clean_map is not None:
        finite = bool(np.isfinite(clean_map).all())
        rows.append(
            _measured("grid_pg", None, None, grid_pg(clean_map, scene.side, scene.cell) if finite else math.nan)
        )
    for tau in settings.tau:
        _, labels, _, certificate = certify_or_abstain(votes, settings.criterion(tau))
        rows += _share(labels, tau)
        if certificate is not None and certificate.prediction is not None:
            rows.append(_measured("prediction_certified", tau, None, float(certificate.prediction.certified)))
        if scene.kind == "grid":
            rows += _localise(labels, tau, scene)
        elif certificate is not None and tau in settings.deletion_taus:
            rows += _delete(certificate, model, image, tau)
    return {
        "target": votes.provenance.target,
        "target_name": votes.provenance.target_name,
        "radius": {str(tau): votes.radius_at(tau) for tau in settings.tau},
        "rows": rows,
    }


def _measured(metric: str, tau: float | None, level: float | None, value: float, *interval: float) -> Measurement:
    """Return one number; an undefined one is None, because JSON knows no NaN."""
    numbers = dict(zip(("value", "low", "high"), (value, *(interval or (math.nan, math.nan))), strict=True))
    defined = {name: None if math.isnan(number) else float(number) for name, number in numbers.items()}
    return {"metric": metric, "tau": tau, "level": level, **defined}


def _share(labels: Labels, tau: float) -> Iterator[Measurement]:
    for level, own in labels.items():
        found = shares(own)
        yield _measured("certified", tau, level, 100 - found.abstained)
        for metric, share in zip(("certified_1", "certified_0", "abstained"), found, strict=True):
            yield _measured(metric, tau, level, share)


def _localise(labels: Labels, tau: float, scene: Scene) -> Iterator[Measurement]:
    for level, own in labels.items():
        interval = certified_interval(own, scene.side, scene.cell)
        yield _measured("certified_grid_pg", tau, level, certified_grid_pg(own, scene.side, scene.cell), *interval)


def _delete(certificate: Certificate, model: Classifier, image: Tensor, tau: float) -> Iterator[Measurement]:
    """Yield the confidence while certified pixels are deleted: level by level, and in the certified maps' own order."""
    target, size = certificate.votes.provenance.target, certificate.votes.size
    by_level = deletion_curve(model, image, target, deletion_masks(certificate.labels))
    by_order = deletion_curve(model, image, target, order_masks(certificate.order, size, ORDER_PERCENTS))
    yield _measured("confidence", tau, None, by_level.confidence[0])
    for level, deleted, confidence in zip(sorted(certificate.levels), *(c[1:] for c in by_level), strict=True):
        yield _measured("deleted", tau, level, deleted)
        yield _measured("deletion_confidence", tau, level, confidence)
    for percent, confidence in zip(ORDER_PERCENTS, by_order.confidence[1:], strict=True):
        yield _measured("order_deletion_confidence", tau, percent, confidence)
    yield _measured("deletion_area", tau, None, by_level.area)
    yield _measured("order_deletion_area", tau, None, by_order.area)
