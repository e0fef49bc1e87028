"""Means of a finished study, looked up by metric, method, layer and setting."""

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

RANDOM = 0.25  # Certified GridPG by chance: certified pixels are spread evenly over four cells
OTHER_NETWORKS = {"reproduction-resnet50": "resnet50", "reproduction-lite0": "efficientnet_lite0"}  # by study

Where = tuple[str, str, str, str, float, float | None, float | None]  # metric, scene, method, layer, σ, τ, level


@dataclass(frozen=True)
class Mean:
    """Mean of a metric over scenes.

    `count` of the `planned` scenes were measured, and the metric is defined on `defined` of these. `low` and `high` are
    the ends of the certified interval.
    """

    value: float | None
    spread: float | None  # standard deviation over the scenes
    count: int
    defined: int
    low: float | None = None
    high: float | None = None
    planned: int | None = None


class Evidence:
    """Findings of a study for one model by the rules of one preset.

    Certified GridPG is undefined on a grid without any pixel certified 1. The paper's rules count it as 0; ours leave
    such grids out.
    """

    def __init__(self, means: Mapping[Where, Mean], preset: str) -> None:
        self._means, self.preset = means, preset

    @classmethod
    def read(cls, file: Path, model: str, preset: str) -> Evidence:
        """Read the table `means` of a study, with or without gzip."""
        means = {}
        for row in _rows(file):
            if (row["model"], row["preset"]) == (model, preset):
                means[_where(row)] = _mean(row)
        if not means:
            raise ArgumentError(f"{file} has no means with model={model} and preset={preset}: run its study with both.")
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
                f"the study has no {metric} of {method} at {layer} with {scene=}, {sigma=}, {tau=}, {level=}: "
                f"add it to the study file and run it again."
            )
        return self._means[where]

    @property
    def missing(self) -> dict[tuple[str, str, float, str], tuple[int, int]]:
        """Counts of measured and planned scenes where some are missing, by method, layer, σ and kind of scene."""
        counts = {
            (method, layer, sigma, scene): (mean.count, mean.planned or mean.count)
            for (metric, scene, method, layer, sigma, _, _), mean in self._means.items()
            if metric == "certified"
        }
        planned = {scene: of for (*_, scene), (_, of) in counts.items()}
        cells = product(*map(dict.fromkeys, zip(*counts, strict=True)))  # each method at each layer and so on
        found = {where: counts.get(where, (0, planned[where[-1]])) for where in cells}
        return {where: (count, of) for where, (count, of) in found.items() if count < of}

    # ── Means over images, or over grids ──────────────────────────────────────────────────────────────────────────

    def certified(self, method: str, layer: str, **at: Any) -> float:
        """Return the percent of pixels that do not abstain."""
        return _defined(self.mean("certified", method, layer, **at))

    def ones(self, method: str, layer: str, **at: Any) -> float:
        """Return the percent of pixels certified to be in the top K %."""
        return _defined(self.mean("certified_1", method, layer, **at))

    def zeros(self, method: str, layer: str, **at: Any) -> float:
        """Return the percent of pixels certified not to be in the top K %."""
        return _defined(self.mean("certified_0", method, layer, **at))

    # ── Means over grids ──────────────────────────────────────────────────────────────────────────────────────────

    def localisation(self, method: str, layer: str, **at: Any) -> float:
        """Return Certified GridPG, or NaN if our rules leave out every grid."""
        found = self.mean("certified_grid_pg", method, layer, scene="grid", **at)
        if self.preset == "reference":
            return (found.value or 0.0) * found.defined / found.count
        return _defined(found)

    def grid_pg(self, method: str, layer: str) -> float:
        """Return GridPG of the map without noise."""
        return _defined(self.mean("grid_pg", method, layer, scene="grid", tau=None, level=None))

    # ── Means over images ─────────────────────────────────────────────────────────────────────────────────────────

    def confidence(self, method: str, layer: str, level: float | None, **at: Any) -> float:
        """Return the confidence in the explained class once all pixels certified 1 up to `level` are deleted.

        None is the confidence before any deletion.
        """
        metric = "confidence" if level is None else "deletion_confidence"
        return _defined(self.mean(metric, method, layer, level=level, **at))

    def deletion_area(self, method: str, layer: str, **at: Any) -> float:
        """Return the mean confidence while certified pixels are deleted; less is more faithful."""
        return _defined(self.mean("deletion_area", method, layer, level=None, **at))


def _defined(mean: Mean) -> float:
    return math.nan if mean.value is None else mean.value


def find(folder: Path, study: str) -> Path:
    """Find the means of a study: in its own folder, where `pixelcert study run` wrote them, or as STUDY.csv.gz."""
    for file in (folder / study / "results" / "means.csv", folder / f"{study}.csv.gz"):
        if file.exists():
            return file
    raise ArgumentError(f"{folder} has no means of {study}: run `pixelcert study run studies/{study}.toml`.")


def attacks(folder: Path) -> Any:
    """Load the output of `pixelcert attack --json`: where `studies.attack` wrote it, or as attack.json.gz."""
    for file in (folder / "attack" / "attack.json", folder / "attack.json.gz"):
        if file.exists():
            return json.loads(_text(file))
    raise ArgumentError(f"{folder} has no attack.json: run `python -m studies.attack studies/reproduction.toml`.")


def _rows(file: Path) -> Iterable[dict[str, str]]:
    return csv.DictReader(_text(file).splitlines())


def _text(file: Path) -> str:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ArgumentError(
            f"{file} cannot be read ({error.strerror}): write it again with `pixelcert study results`."
        ) from error
    return (gzip.decompress(data) if file.suffix == ".gz" else data).decode()


def _where(row: Mapping[str, str]) -> Where:
    tau, level = _number(row["tau"]), _number(row["level"])
    return row["metric"], row["scene"], row["method"], row["layer"], float(row["sigma"]), tau, level


def _mean(row: Mapping[str, str]) -> Mean:
    value, high = _number(row["mean"]), _number(row["mean_high"])
    defined = int(row["defined"])
    spread = None
    if value is not None and high is not None:  # undo Student's interval
        spread = (high - value) * math.sqrt(defined) / float(stdtrit(defined - 1, 0.975))
    ends = _number(row["low"]), _number(row["high"])
    return Mean(value, spread, int(row["count"]), defined, *ends, planned=int(row["planned"]))


def _number(text: str) -> float | None:
    return float(text) if text else None
