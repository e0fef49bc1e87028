"""Evidence: the means of a finished study, found by what they are means of."""

from __future__ import annotations

import csv
import gzip
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from scipy.special import stdtrit

from pixelcert.basics.messages import ArgumentError

RANDOM = 0.25  # the Certified GridPG of evidence that is spread evenly over four cells
OTHER_NETWORKS = {"reproduction-resnet50": "resnet50", "reproduction-lite0": "efficientnet_lite0"}  # by study

Where = tuple[str, str, str, str, float, float | None, float | None]  # metric, scene, method, layer, σ, τ, level


@dataclass(frozen=True)
class Mean:
    """Over `count` of the `planned` scenes, on `defined` of which the metric is defined.

    `low` and `high` end its certified interval.
    """

    value: float | None
    spread: float | None  # standard deviation over the scenes
    count: int
    defined: int
    low: float | None = None
    high: float | None = None
    planned: int | None = None


class Evidence:
    """What a study found for one model by the rules of one preset.

    A Certified GridPG without any certified pixel is undefined. The paper counts it as 0, and so does the evidence of
    its rules; ours leaves such grids out.
    """

    def __init__(self, means: Mapping[Where, Mean], preset: str) -> None:
        self._means, self.preset = means, preset

    @classmethod
    def read(cls, file: Path, model: str, preset: str) -> Evidence:
        """From the table `means` of a study, packed or not."""
        means = {}
        for row in _rows(file):
            if (row["model"], row["preset"]) == (model, preset):
                means[_where(row)] = _mean(row)
        if not means:
            raise ArgumentError(f"{file} has nothing of model={model} with preset={preset}: run the study it is of.")
        return cls(means, preset)

    def mean(
        self,
        metric: str,
        method: str,
        layer: str,
        *,
        scene: str = "image",
        sigma: float = 0.15,
        tau: float | None = 0.75,
        level: float | None = 50,
    ) -> Mean:
        where = (metric, scene, method, layer, sigma, tau, level)
        if where not in self._means:
            raise ArgumentError(
                f"the study has no {metric} of {method} at {layer} with {scene=}, {sigma=}, {tau=}, {level=}: add it."
            )
        return self._means[where]

    @property
    def missing(self) -> dict[tuple[str, str, float, str], tuple[int, int]]:
        """Where fewer scenes were measured than planned: how many of how many, by method, layer, σ and scene."""
        counts = {
            (method, layer, sigma, scene): (mean.count, mean.planned or mean.count)
            for (metric, scene, method, layer, sigma, _, _), mean in self._means.items()
            if metric == "certified"
        }
        planned = {scene: of for (*_, scene), (_, of) in counts.items()}
        cells = product(*map(dict.fromkeys, zip(*counts, strict=True)))  # each method at each layer and so on
        found = {where: counts.get(where, (0, planned[where[-1]])) for where in cells}
        return {where: (count, of) for where, (count, of) in found.items() if count < of}

    # ── Of images, or of grids if asked ───────────────────────────────────────────────────────────────────────

    def certified(self, method: str, layer: str, **at: Any) -> float:
        """Percent of pixels that do not abstain."""
        return _defined(self.mean("certified", method, layer, **at))

    def ones(self, method: str, layer: str, **at: Any) -> float:
        """Percent of pixels certified to be in the top K %."""
        return _defined(self.mean("certified_1", method, layer, **at))

    def zeros(self, method: str, layer: str, **at: Any) -> float:
        """Percent of pixels certified not to be in the top K %."""
        return _defined(self.mean("certified_0", method, layer, **at))

    # ── Of grids ──────────────────────────────────────────────────────────────────────────────────────────────

    def localisation(self, method: str, layer: str, **at: Any) -> float:
        """Certified GridPG; NaN where it is undefined on every grid."""
        found = self.mean("certified_grid_pg", method, layer, scene="grid", **at)
        if self.preset == "reference":
            return (found.value or 0.0) * found.defined / found.count
        return _defined(found)

    def grid_pg(self, method: str, layer: str) -> float:
        """GridPG of the map without noise."""
        return _defined(self.mean("grid_pg", method, layer, scene="grid", tau=None, level=None))

    # ── Of images ─────────────────────────────────────────────────────────────────────────────────────────────

    def confidence(self, method: str, layer: str, level: float | None, **at: Any) -> float:
        """In the explained class, once all pixels certified 1 up to `level` are deleted; None: before any is."""
        metric = "confidence" if level is None else "deletion_confidence"
        return _defined(self.mean(metric, method, layer, level=level, **at))

    def deletion_area(self, method: str, layer: str, **at: Any) -> float:
        """Mean confidence while certified pixels are deleted; less is more faithful."""
        return _defined(self.mean("deletion_area", method, layer, level=None, **at))


def _defined(mean: Mean) -> float:
    return math.nan if mean.value is None else mean.value


def find(folder: Path, study: str) -> Path:
    """The means of a study: in its own folder, where `pixelcert study run` left them, or as STUDY.csv.gz."""
    for file in (folder / study / "results" / "means.csv", folder / f"{study}.csv.gz"):
        if file.exists():
            return file
    raise ArgumentError(f"{folder} has no means of {study}: `pixelcert study run studies/{study}.toml` makes them.")


def attacks(folder: Path) -> Any:
    """What `pixelcert attack --json` printed: where `studies.attack` left it, or as attack.json.gz."""
    for file in (folder / "attack" / "attack.json", folder / "attack.json.gz"):
        if file.exists():
            return json.loads(_text(file))
    raise ArgumentError(f"{folder} has no attack.json: `python -m studies.attack studies/reproduction.toml` makes it.")


def _rows(file: Path) -> Iterable[dict[str, str]]:
    return csv.DictReader(_text(file).splitlines())


def _text(file: Path) -> str:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ArgumentError(
            f"{file} cannot be read ({error.strerror}): `pixelcert study results` writes it."
        ) from error
    return (gzip.decompress(data) if file.suffix == ".gz" else data).decode()


def _where(row: Mapping[str, str]) -> Where:
    tau, level = _number(row["tau"]), _number(row["level"])
    return row["metric"], row["scene"], row["method"], row["layer"], float(row["sigma"]), tau, level


def _mean(row: Mapping[str, str]) -> Mean:
    value, high = _number(row["mean"]), _number(row["mean_high"])
    defined = int(row["defined"])
    spread = None
    if value is not None and high is not None:  # back from Student's interval
        spread = (high - value) * math.sqrt(defined) / float(stdtrit(defined - 1, 0.975))
    ends = _number(row["low"]), _number(row["high"])
    return Mean(value, spread, int(row["count"]), defined, *ends, planned=int(row["planned"]))


def _number(text: str) -> float | None:
    return float(text) if text else None
