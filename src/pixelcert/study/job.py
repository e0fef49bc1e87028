"""Job: one method at one layer of one model on one scene, sampled once. Its key is a digest of its settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

from ..basics.files import digest_of
from ..explainer import Precision
from ..methods import METHODS
from ..photographs import Chosen, Selection
from ..plan import Plan, Preset
from ..votes import ALGORITHM, plan_as_dict
from .inventory import Inventory, ModelFacts


@dataclass(frozen=True)
class Scene:
    """One photograph, or a grid of `side` × `side` of them in which the photograph of number `cell` is explained."""

    name: str
    photographs: tuple[Chosen, ...]
    side: int = 1
    cell: int = 0

    @property
    def kind(self) -> str:
        return "image" if self.side == 1 else "grid"

    @property
    def explained(self) -> Chosen:
        """The photograph whose class is explained."""
        return self.photographs[self.cell]


def scenes(selection: Selection) -> Iterator[Scene]:
    """Yield the study's images, then its grids."""
    for chosen in selection.photographs[: selection.images]:
        yield Scene(chosen.file, (chosen,))
    for number, grid in enumerate(selection.grids):
        cells = tuple(selection.photographs[index] for index in grid.cells)
        yield Scene(f"grid {number}", cells, selection.request.m, grid.cell)


class JobKind(NamedTuple):
    """The properties that jobs of about the same cost share."""

    model: str
    method: str
    layer: str
    scene: str  # its kind
    n: int


@dataclass(frozen=True)
class Job:
    """All that is sampled into one votes file."""

    model: ModelFacts
    method: str  # its name in the study, which may be a variant's
    base: str  # the method itself
    params: dict[str, Any]
    layer: str
    preset: Preset
    plan: Plan
    scene: Scene
    precision: Precision = "auto"  # as asked for; the votes' provenance has the one that "auto" chose
    shared: Mapping[Preset, Plan] = field(default_factory=dict)  # the study's plans that count the same maps

    @property
    def kind(self) -> JobKind:
        return JobKind(self.model.name, self.method, self.layer, self.scene.kind, self.plan.n)

    @property
    def size(self) -> int:
        """The side in pixels of the image in which noise is added."""
        return self.model.image_size if self.scene.kind == "image" else self.model.grid_size

    @property
    def photograph_size(self) -> int:
        """The side in pixels of each photograph in the scene."""
        return self.model.image_size if self.scene.kind == "image" else self.model.cell_size

    @property
    def question(self) -> dict[str, Any]:
        """Everything that the votes depend on, except device and versions, which their provenance has."""
        return {
            "pixelcert": ALGORITHM,
            "model": self.model.model,
            "weights": self.model.weights,
            "method": self.base,
            "params": self.params,
            "layer": self.layer,
            "plan": self._planned,
            "precision": self.precision,
            "scene": {
                "files": [chosen.digest for chosen in self.scene.photographs],
                "side": self.scene.side,
                "cell": self.scene.cell,
                "target": self.scene.explained.target,
                "photograph_size": self.photograph_size,
                "size": self.size,
            },
        }

    @property
    def _planned(self) -> dict[str, Any]:
        """The plan, in a study of 0.1.0 as it was written there, so that its jobs are found again."""
        if self.plan.streams:
            return plan_as_dict(self.plan)
        return {name: value for name, value in asdict(self.plan).items() if name != "streams"}

    @cached_property
    def key(self) -> str:
        return digest_of(self.question)[:32]

    @property
    def siblings(self) -> list[Job]:
        """The same job under the study's other presets, which count votes in the same maps."""
        others = ((preset, plan) for preset, plan in self.shared.items() if preset != self.preset)
        return [replace(self, preset=preset, plan=plan) for preset, plan in others]

    def __str__(self) -> str:
        plan = f"σ = {self.plan.sigma}, n = {self.plan.n}, {self.preset}"
        return f"{self.model.name} {self.method} {self.layer} {self.scene.name} ({plan})"


def jobs(inventory: Inventory) -> Iterator[Job]:
    """Yield every job of a study, model by model and, for each model, method by method.

    Jobs that share their maps come close together, which keeps their mean time steady while a study runs.
    """
    settings, plans = inventory.settings, inventory.plans()
    looked_at = list(scenes(inventory.selection))
    for name, method, layer in product(settings.models, settings.methods, settings.layers):
        base, given = settings.method_named(method, layer)
        params = {**METHODS[base].parameters(), **given}
        explained = (inventory.models[name], method, base, params, layer)
        for scene in looked_at:
            for (preset, sigma, n), plan in plans.items():
                shared = {other: plans[other, sigma, n] for other in settings.presets}
                yield Job(*explained, preset, plan, scene, settings.precision, shared)
