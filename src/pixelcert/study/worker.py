"""Worker: does one job after the other, and keeps what they share: the model, the explainer, the photographs."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from ..data import Chosen, compose_grid, read_chosen
from ..errors import ArgumentError, DiskFullError, ModelError, PixelcertError, PixelcertWarning
from ..image import resize_image
from ..methods import Method
from ..methods import method as make_method
from ..models import Classifier
from ..models.grid import for_grid
from ..progress import Progress
from ..sampling import Interrupted, SamplingError, Subject, sample_plans
from ..tuning import Precision
from ..votes import Votes
from .job import Job
from .measure import measure
from .resolved import Resolved, image_folder, load_study_model
from .scene import scenes
from .store import Store


class Ending(NamedTuple):
    """What became of a job: "found" done by another process, "busy" being done by it, or what this one did."""

    what: Literal["done", "found", "busy", "failed", "died"]
    seconds: float | None = None
    cause: str = ""
    memory: float | None = None
    notes: Sequence[str] = ()


class Worker:
    """Does jobs of one study on one device. Holds one model at a time."""

    def __init__(self, resolved: Resolved, base: Path, store: Store, device: str | None = None) -> None:
        self._resolved, self._base, self.store, self._device = resolved, base, store, device
        self._model = lru_cache(1)(self._load_model)
        self._explainer = lru_cache(2)(self._make_explainer)
        self._image = lru_cache(64)(self._render)
        self._scenes = {(scene.kind, scene.name): scene for scene in scenes(resolved.selection)}

    def attempt(self, job: Job, progress: Progress | None = None) -> Ending:
        """Do a job unless it is done, or another process is doing it. A failure is recorded with its cause.

        A full disk is not the job's failure, nor is a GPU that answers nothing any more: they end the run.
        """
        with self.store.claim(job) as mine:
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
        self.store.save_measures(job, measure(votes, self._resolved.settings, explainer, image, job.scene))

    def _sample(self, job: Job, explainer: Method, image: Tensor, progress: Progress | None) -> Votes:
        """The job's votes, kept in the store, with those of its siblings that count the same maps by other rules."""
        if (partial := self.store.load_partial(job)) is not None:
            try:
                return self._keep([job], lambda: (partial.resume(explainer, image, progress=progress),))
            except ArgumentError:  # counted on another machine, which rounds differently: begin again
                pass
        subject = Subject(image, self._target(job, explainer.model), job.scene.name, progress)
        settings = self._resolved.settings
        how: Any = {"precision": settings.precision, "compile": settings.compile}
        with ExitStack() as claims:
            siblings = [other for other in job.siblings(settings) if claims.enter_context(self._untouched(other))]
            plans = [job.plan, *(other.plan for other in siblings)]
            return self._keep([job, *siblings], lambda: next(sample_plans(plans, explainer, [subject], **how)))

    @contextmanager
    def _untouched(self, job: Job) -> Iterator[bool]:
        """Whether a job has no votes yet, and nobody else is doing it."""
        with self.store.claim(job) as mine:
            yield mine and not (self.store.votes_file(job).exists() or self.store.partial_file(job).exists())

    def _keep(self, jobs: Sequence[Job], sample: Callable[[], tuple[Votes, ...]]) -> Votes:
        """The first job's votes; all are saved, and what was counted before a stop too, to be continued later."""
        try:
            sampled = sample()
        except (Interrupted, SamplingError) as stop:
            self._save(jobs, stop.all_votes)
            raise
        self._save(jobs, sampled)
        return sampled[0]

    def _save(self, jobs: Sequence[Job], votes: Sequence[Votes]) -> None:
        for job, own in zip(jobs, votes, strict=True):
            self.store.save_votes(job, own)

    def image(self, job: Job) -> Tensor:
        """What a job explains, (3, size, size) in [0, 1]."""
        return self._image(job.scene.kind, job.scene.name, job.photograph_size, job.size)

    def explainer(self, job: Job) -> Method:
        """The method of a job, on the model that sees scenes of its size."""
        return self._explainer(job.model.label, job.base, job.layer, tuple(sorted(job.params.items())), job.scene.kind)

    def _make_explainer(
        self, label: str, method: str, layer: str, params: tuple[tuple[str, object], ...], kind: str
    ) -> Method:
        model, facts = self._model(label), self._resolved.models[label]
        if kind == "grid":
            model = for_grid(model, facts.grid_size)
        return make_method(method, model, layer, **dict(params))

    def _load_model(self, label: str) -> Classifier:
        self._explainer.cache_clear()  # they hold the model before
        model = load_study_model(self._resolved.settings, label, self._base, self._device)
        if model.weights_hash != self._resolved.models[label].weights:
            raise ModelError(f"the weights of {label} are not those of the plan: plan or run the study again.")
        return model

    def _render(self, kind: str, name: str, photograph_size: int, size: int) -> Tensor:
        """A scene as (3, size, size). A grid too large for its model is resized here, before any noise is added."""
        scene = self._scenes[kind, name]
        image = compose_grid([self._read(chosen, photograph_size) for chosen in scene.photographs], scene.side)
        return image if image.shape[-1] == size else resize_image(image, size)

    def _read(self, chosen: Chosen, size: int) -> Tensor:
        return read_chosen(image_folder(self._resolved.settings, self._base), chosen, size)

    def _target(self, job: Job, model: Classifier) -> int:
        """The labelled class; for a photograph without a label, what the model takes it for."""
        chosen = job.scene.explained
        if chosen.target is not None:
            return chosen.target
        return model.predict(self._read(chosen, job.model.image_size))[0]

    @property
    def precision(self) -> Precision:
        """As the study asks for."""
        return self._resolved.settings.precision

    @property
    def memory(self) -> float | None:
        """Peak GPU memory in GiB; None without a GPU."""
        return torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else None
