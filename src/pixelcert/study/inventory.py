"""Inventory: a study's settings, and what they stand for: weights, sizes and the photographs chosen.

It is saved in the study's folder. Later commands read it there and need not load a model, and a study can be repeated
on the same photographs.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ..basics.files import digest_of, read_sealed, write_sealed
from ..basics.locks import one_at_a_time
from ..basics.machine import check_device
from ..basics.messages import ArgumentError, PixelcertWarning, Progress, Track, naming
from ..models import Classifier, load_model
from ..models.variants import for_grid
from ..photographs import Photograph, Selection, choose, find_photographs, unlisted_images
from ..plan import Plan, Preset, draw_seed
from ..statistics import check_feasible
from .settings import Settings

FILE, KIND, VERSION = "resolved.json", "pixelcert inventory", 1
SEED_KIND, SEED_VERSION = "pixelcert seed", 1
NAMED = 3  # of the photographs that are left out


@dataclass(frozen=True)
class ModelFacts:
    """A model as the study found it."""

    name: str
    model: str  # what `load_model` is given
    weights: str  # SHA-256 of the parameters
    image_size: int  # side in pixels of its images
    cell_size: int  # of the photographs in its grids
    grid_size: int  # of the grids that it gets; smaller than side · cell_size if it takes only one size


class Noise(NamedTuple):
    """The noise of a study."""

    seed: int
    streams: bool  # each image has its own; not in folders of 0.1.0
    photographs: str = ""  # a digest of those that were chosen before the seed was drawn


@dataclass(frozen=True)
class Inventory:
    """Everything that the jobs of a study depend on."""

    settings: Settings
    models: Mapping[str, ModelFacts]
    selection: Selection
    noise: Noise
    selection_file: str = ""

    def plans(self) -> dict[tuple[Preset, float, int], Plan]:
        """Return the sampling plans, by preset, sigma and n."""
        seed, streams, _ = self.noise
        return {point: replace(plan, seed=seed, streams=streams) for point, plan in self.settings.plans().items()}

    def sizes(self) -> dict[str, int]:
        """Return the side in pixels of all that is certified, by model and kind of scene in words."""
        found = {}
        for name in self.settings.models:
            if self.selection.images:
                found[f"images of {name}"] = self.models[name].image_size
            if self.selection.grids:
                found[f"grids of {name}"] = self.models[name].grid_size
        return found

    def save(self, folder: Path) -> None:
        content = {
            "about": "What the study file meant when it was last planned or run; `study results` reads it.",
            "settings": self.settings.model_dump(mode="json"),
            "models": {name: asdict(facts) for name, facts in self.models.items()},
            "selection": self.selection_file,
            "noise": {**self.noise._asdict(), "seed": str(self.noise.seed)},
        }
        write_sealed(folder / FILE, KIND, VERSION, content)

    @classmethod
    def load(cls, folder: Path) -> Inventory:
        """Return the inventory in a study's folder; refuse a folder in which nothing was planned or run yet."""
        if not (folder / FILE).exists():
            raise ArgumentError(f"{folder} holds no study yet: `pixelcert study run` fills it.")
        try:
            content = _read(folder / FILE)
            settings = Settings.model_validate(content["settings"])
            models = {name: _facts_from(name, facts) for name, facts in content["models"].items()}
            selection_file = str(content["selection"])
            selection = _load_selection(folder / selection_file)
            noise = _noise_from(content, settings)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ArgumentError(f"{folder / FILE} is damaged ({error}): `pixelcert study plan` repairs it.") from error
        return cls(settings, models, selection, noise, selection_file)


def _facts_from(name: str, saved: Mapping[str, Any]) -> ModelFacts:
    """Return a model's facts as saved; before 0.2.0 its name was called a label."""
    return ModelFacts(**{**{key: value for key, value in saved.items() if key != "label"}, "name": name})


def _noise_from(saved: Mapping[str, Any], settings: Settings) -> Noise:
    """Return a study's noise as saved; folders of 0.1.0 have the settings' seed, and one stream for all images."""
    if (noise := saved.get("noise")) is None:
        return Noise(settings.seed or 0, streams=False)
    return Noise(int(noise["seed"]), bool(noise["streams"]), str(noise["photographs"]))


def _read(file: Path) -> dict[str, Any]:
    try:
        return read_sealed(file, KIND, VERSION, "`pixelcert study plan` writes it anew")
    except ArgumentError:
        content: dict[str, Any] = json.loads(file.read_bytes())
        if "checksum" in content:
            raise
        return content  # written before 0.2.0, without a seal


def take_inventory(settings: Settings, base: Path, folder: Path, device: str | None, track: Track) -> Inventory:
    """Load each model once, choose the photographs or read the earlier choice, and check that τ can be reached.

    Paths in the settings are relative to `base`, the study file's folder. The inventory is saved in `folder`.
    """
    check_device(device)
    _check_folder(settings, base)
    models, filters, classes = {}, [], None
    names, progress = tuple(dict.fromkeys((*settings.models, *settings.images.filter))), track("models")
    for count, name in enumerate(names):
        progress(count, len(names))
        model = load_study_model(settings, name, base, device)
        classes = _same_classes(settings, name, model, classes)
        if name in settings.images.filter:
            filters.append(model)
        models[name] = _facts(settings, name, model)
    progress(len(names), len(names))
    photographs = _photographs(settings, base, classes)
    file = folder / _selection_file(settings, models, photographs)
    _refuse_another(file)
    if not file.exists():
        _keep_first(_choose(settings, base, photographs, filters, track("photographs")).save, file)
    selection = _load_selection(file)
    noise = _settle_noise(settings, folder, selection)  # last, when all that it serves is fixed
    inventory = Inventory(settings, models, selection, noise, file.name)
    _check_feasible(inventory)
    inventory.save(folder)
    return inventory


def load_study_model(settings: Settings, name: str, base: Path, device: str | None = None) -> Classifier:
    """Load the model that `name` stands for. Random weights are the same every time, so that jobs are found again."""
    spec = settings.model_named(name)
    weights = {"DEFAULT": "DEFAULT", "none": None}.get(spec.weights, base / spec.weights)
    with one_at_a_time, torch.random.fork_rng():
        torch.manual_seed(0)
        model = load_model(str(spec.model), weights, device)
    model.name = name
    if spec.size is None or spec.size == model.size:
        return model
    if (other := for_grid(model, spec.size)).size != spec.size:
        raise ArgumentError(
            f"model.{name}.size = {spec.size}: the model only takes images of {model.size}: leave size out."
        )
    return other


def image_folder(settings: Settings, base: Path) -> Path | str:
    """Return the folder of the photographs, or "embedded"."""
    return settings.images.folder if settings.images.folder == "embedded" else base / settings.images.folder


def _facts(settings: Settings, name: str, model: Classifier) -> ModelFacts:
    cell = settings.grids.cell or model.size
    side, shown = settings.grids.side, settings.grids.count and name in settings.models
    grid = for_grid(model, side * cell).size if shown else 0
    if grid % side:
        raise ArgumentError(
            f"grids.side = {side}: {name} sees grids at {grid} × {grid}, which cannot be cut into {side} × {side} "
            f"equal cells: choose a side that divides {grid}."
        )
    return ModelFacts(name, str(settings.model_named(name).model), model.weights_hash, model.size, cell, grid)


def _check_folder(settings: Settings, base: Path) -> None:
    folder = image_folder(settings, base)
    if isinstance(folder, Path) and not folder.is_dir():
        raise ArgumentError(
            f"images.folder = {settings.images.folder!r} is not a folder beside the study file: correct it."
        )


def _same_classes(
    settings: Settings, name: str, model: Classifier, classes: tuple[str, ...] | None
) -> tuple[str, ...] | None:
    """Return the class names that all models share; refuse others, because a class is one index for all models."""
    if classes and model.classes and classes != model.classes:
        raise ArgumentError(
            f"models: {name} has other classes, or another order of them, than {settings.models[0]}: use two studies."
        )
    return classes or model.classes


def _photographs(settings: Settings, base: Path, classes: tuple[str, ...] | None) -> list[Photograph]:
    labels, synsets = (base / path if path else None for path in (settings.images.labels, settings.images.synsets))
    return find_photographs(image_folder(settings, base), labels=labels, synsets=synsets, classes=classes)


def _choose(
    settings: Settings, base: Path, photographs: list[Photograph], filters: list[Classifier], progress: Progress
) -> Selection:
    asked, folder = settings.images, image_folder(settings, base)
    _warn_left_out(unlisted_images(folder, photographs), "have no label", "add them to the labels")
    selection = choose(
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
    causes = list(selection.unreadable.values())
    _warn_left_out(list(selection.unreadable), "cannot be read", f"repair them (the first: {''.join(causes[:1])})")
    return selection


def _warn_left_out(files: Sequence[str], why: str, remedy: str) -> None:
    if files:
        some = f"{len(files)} of the photographs {why} and are left out: {', '.join(files[:NAMED])}"
        more = ", …" if len(files) > NAMED else ""
        warnings.warn(f"{some}{more}. To have them in the study, {remedy}.", PixelcertWarning, stacklevel=4)


def _selection_file(settings: Settings, models: Mapping[str, ModelFacts], photographs: list[Photograph]) -> str:
    """Return a file name made from the settings, and from the photographs and labels to choose from."""
    asked: dict[str, Any] = {
        "images": settings.images.model_dump(mode="json"),
        "grids": settings.grids.model_dump(mode="json", include={"count", "side"}),
        "filters": {name: [models[name].weights, models[name].image_size] for name in settings.images.filter},
    }
    listed = [(photograph.file, photograph.target) for photograph in photographs]
    return f"selection-{digest_of(asked)[:8]}-{digest_of(listed)[:8]}.json"


def _refuse_another(file: Path) -> None:
    """Refuse photographs or labels other than those that the study began with."""
    asked = file.name.rpartition("-")[0]
    if others := sorted(other.name for other in file.parent.glob(f"{asked}-*.json") if other.name != file.name):
        raise ArgumentError(
            f"the photographs or their labels have changed since {others[0]} in {file.parent} was chosen from them: "
            f"put them back, or delete that file to choose again."
        )


def _settle_noise(settings: Settings, folder: Path, selection: Selection) -> Noise:
    """Return the study's noise, with the seed of the study file, or else the one drawn for these photographs."""
    photographs = digest_of([chosen.digest for chosen in selection.photographs])[:8]
    file = folder / f"seed-{photographs}.json"
    if not file.exists():
        known = _earlier_noise(folder, settings)
        if known is not None and not known.streams:
            return Noise(settings.seed or 0, streams=False)
        seed = known.seed if known and known.photographs == photographs else settings.seed
        kept = {"seed": str(draw_seed() if seed is None else seed)}
        _keep_first(lambda path: write_sealed(path, SEED_KIND, SEED_VERSION, kept), file)
    remedy = "restore it, or delete it and set seed to the one that the study's votes name"
    kept = read_sealed(file, SEED_KIND, SEED_VERSION, remedy)
    return Noise(int(kept["seed"]) if settings.seed is None else settings.seed, True, photographs)


def _earlier_noise(folder: Path, settings: Settings) -> Noise | None:
    """Return the noise of a folder that was planned before; None for a new folder."""
    if not (folder / FILE).exists():
        return None
    try:
        return _noise_from(_read(folder / FILE), settings)
    except (ValueError, KeyError, TypeError):  # damaged, and of 0.1.0: later folders have a seed file
        return Noise(0, streams=False)


def _keep_first(save: Callable[[Path], Path], file: Path) -> None:
    """Save a file, unless another process has saved its own: all processes go on with the first."""
    mine = save(file.with_name(f".{file.name}.{os.getpid()}"))
    try:
        os.link(mine, file)
    except FileExistsError:
        pass
    except OSError:  # a file system without links
        with suppress(FileExistsError), file.open("xb") as first:
            first.write(mine.read_bytes())
    finally:
        mine.unlink()


def _load_selection(file: Path) -> Selection:
    try:
        return Selection.load(file)
    except ArgumentError as error:
        raise ArgumentError(f"{error} To choose again, delete {file}.") from error


def _check_feasible(inventory: Inventory) -> None:
    """Refuse an n that certifies nothing even at the lowest τ, on some model's images or grids."""
    settings = inventory.settings
    for plan in inventory.plans().values():
        for what, size in inventory.sizes().items():
            with naming(what):
                check_feasible(plan, settings.criterion(min(settings.tau)), size**2)
