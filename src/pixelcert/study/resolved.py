"""Resolved: a study's settings beside what they turned out to mean: weights, sizes and the photographs chosen.

It is saved in the study's folder, so that jobs and results can be named again without loading a model, and a study can
be repeated on the same photographs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from ..data import Selection, choose, find_photographs
from ..digest import sha256
from ..errors import ArgumentError, InfeasibleError
from ..files import write_atomically
from ..models import Classifier, load_model
from ..models.grid import for_grid
from .settings import Settings

FILE = "resolved.json"
Progress = Callable[[int, int], None]  # (done, total)
Track = Callable[[str], Progress]


@dataclass(frozen=True)
class ModelFacts:
    """A model as the study found it."""

    label: str
    model: str  # what `load_model` is given
    weights: str  # SHA-256 of the parameters
    image_size: int  # side in pixels of its images
    cell_size: int  # of the photographs in its grids
    grid_size: int  # of the grids as it sees them; smaller than side · cell_size where it takes no other size


@dataclass(frozen=True)
class Resolved:
    """All that the jobs of a study depend on."""

    settings: Settings
    models: Mapping[str, ModelFacts]
    selection: Selection

    def sizes(self) -> dict[str, int]:
        """The side in pixels of everything that is certified, by what it is."""
        found = {}
        for label in self.settings.models:
            if self.selection.images:
                found[f"images of {label}"] = self.models[label].image_size
            if self.selection.grids:
                found[f"grids of {label}"] = self.models[label].grid_size
        return found

    def save(self, folder: Path) -> None:
        content = {
            "about": "What the study file meant when it was last planned or run; `study results` reads it.",
            "settings": self.settings.model_dump(mode="json"),
            "models": {label: asdict(facts) for label, facts in self.models.items()},
            "selection": _selection_file(self.settings, self.models),
        }
        write_atomically(folder / FILE, json.dumps(content, indent=1).encode())

    @classmethod
    def load(cls, folder: Path) -> Resolved:
        """What `save` wrote; refuses a folder in which nothing was planned or run yet."""
        try:
            content = json.loads((folder / FILE).read_bytes())
            settings = Settings.model_validate(content["settings"])
            models = {label: ModelFacts(**facts) for label, facts in content["models"].items()}
            selection = Selection.load(folder / content["selection"])
        except FileNotFoundError as error:
            raise ArgumentError(f"{folder} holds no study yet: `pixelcert study run` fills it.") from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ArgumentError(f"{folder / FILE} is damaged ({error}): `pixelcert study plan` mends it.") from error
        return cls(settings, models, selection)


def resolve(settings: Settings, base: Path, folder: Path, device: str | None, track: Track) -> Resolved:
    """Load each model once, choose the photographs or read the earlier choice, and check that τ can be reached.

    Paths in the settings are relative to `base`, the study file's folder. Saves what it found in `folder`.
    """
    models, filters, classes = {}, [], None
    labels, progress = tuple(dict.fromkeys((*settings.models, *settings.images.filter))), track("models")
    for count, label in enumerate(labels):
        progress(count, len(labels))
        model = load_study_model(settings, label, base, device)
        classes = classes or model.classes
        if label in settings.images.filter:
            filters.append(model)
        models[label] = _facts(settings, label, model)
    progress(len(labels), len(labels))
    file = folder / _selection_file(settings, models)
    if file.exists():
        selection = Selection.load(file)
    else:
        selection = _choose(settings, base, filters, classes, track("photographs"))
        selection.save(file)
    resolved = Resolved(settings, models, selection)
    _check_feasible(resolved)
    resolved.save(folder)
    return resolved


def load_study_model(settings: Settings, label: str, base: Path, device: str | None = None) -> Classifier:
    """The model that `label` stands for. Random weights are the same every time, or no job could be found again."""
    spec = settings.model_named(label)
    weights = {"DEFAULT": "DEFAULT", "none": None}.get(spec.weights, base / spec.weights)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = load_model(str(spec.model), weights, device)
    model.name = label
    if spec.size is None or spec.size == model.size:
        return model
    if (other := for_grid(model, spec.size)).size != spec.size:
        raise ArgumentError(f"model.{label}.size = {spec.size}: it takes images of {model.size} alone, leave size out.")
    return other


def image_folder(settings: Settings, base: Path) -> Path | str:
    """Where the photographs are."""
    return settings.images.folder if settings.images.folder == "embedded" else base / settings.images.folder


def _facts(settings: Settings, label: str, model: Classifier) -> ModelFacts:
    cell = settings.grids.cell or model.size
    side = settings.grids.side
    grid = for_grid(model, side * cell).size if settings.grids.count else 0
    if grid % side:
        raise ArgumentError(
            f"grids.side = {side}: {label} sees grids at {grid} × {grid}, which cannot be cut into {side} × {side} "
            f"equal cells: choose a side that divides {grid}."
        )
    return ModelFacts(label, str(settings.model_named(label).model), model.weights_hash, model.size, cell, grid)


def _choose(
    settings: Settings, base: Path, filters: list[Classifier], classes: Sequence[str] | None, progress: Progress
) -> Selection:
    asked = settings.images
    folder = image_folder(settings, base)
    labels, synsets = (base / path if path else None for path in (asked.labels, asked.synsets))
    photographs = find_photographs(folder, labels=labels, synsets=synsets, classes=classes)
    return choose(
        photographs,
        folder,
        filters=filters,
        confidence=asked.confidence,
        images=None if asked.count == "all" else asked.count,
        grids=settings.grids.count,
        m=settings.grids.side,
        seed=asked.seed,
        progress=progress,
    )


def _selection_file(settings: Settings, models: Mapping[str, ModelFacts]) -> str:
    """Named by what the choice depends on, so that another choice is another file."""
    asked: dict[str, Any] = {
        "images": settings.images.model_dump(mode="json"),
        "grids": settings.grids.model_dump(mode="json", include={"count", "side"}),
        "filters": {label: [models[label].weights, models[label].image_size] for label in settings.images.filter},
    }
    return f"selection-{sha256(json.dumps(asked, sort_keys=True).encode())[:8]}.json"


def _check_feasible(resolved: Resolved) -> None:
    """Refuse an n with which not even the lowest τ can certify anything, on some model's images or grids."""
    settings = resolved.settings
    for plan in settings.plans().values():
        for what, size in resolved.sizes().items():
            try:
                settings.check_feasible(plan, min(settings.tau), size**2)
            except InfeasibleError as error:
                raise InfeasibleError(f"{what}: {error}") from error
