"""Summary: one line per method that a person understands: robustness, localisation, faithfulness, and their ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .results import Row


@dataclass(frozen=True)
class Measure:
    """A column of the summary."""

    metric: str
    scene: str
    title: str
    best: int  # +1 where more is better, -1 where less is


MEASURES = (
    Measure("certified", "image", "certified %", +1),
    Measure("certified_grid_pg", "grid", "certified GridPG", +1),
    Measure("deletion_area", "image", "deletion area", -1),
)


@dataclass(frozen=True)
class Line:
    """A method at a layer of a model: its means (rows of `means`) by metric, and its ranks among the methods there."""

    model: str
    layer: str
    method: str
    family: str
    means: dict[str, Row]
    ranks: dict[str, int]

    @property
    def mean_rank(self) -> float | None:
        return sum(self.ranks.values()) / len(self.ranks) if self.ranks else None


def summarise(means: Sequence[Row], *, level: float, **setting: Any) -> list[Line]:
    """Lines at one `level` and `setting` (sigma, n, preset, tau), best mean rank first within each model and layer."""
    blocks: dict[tuple[str, str], dict[str, dict[str, Row]]] = {}
    for row in means:
        if all(row[name] == value for name, value in setting.items()) and row["level"] in (level, None):
            block = blocks.setdefault((row["model"], row["layer"]), {})
            of_method = block.setdefault(row["method"], {})
            if any((row["metric"], row["scene"]) == (measure.metric, measure.scene) for measure in MEASURES):
                of_method[row["metric"]] = row
    lines = []
    for (model, layer), block in blocks.items():
        ranks = {measure.metric: _rank(block, measure) for measure in MEASURES}
        here = [
            Line(model, layer, method, _family(found), found, {m: r[method] for m, r in ranks.items() if method in r})
            for method, found in block.items()
        ]
        lines += sorted(here, key=lambda line: line.mean_rank or len(block) + 1)
    return lines


def mean_in_words(row: Row, metric: str) -> str:
    """A mean for a person: with its 95 % half-width, and of how many of the planned scenes, if not of all."""
    if row["mean"] is None:
        return "undefined"
    digits = 1 if metric == "certified" else 3
    half = "" if row["mean_high"] is None else f" ± {row['mean_high'] - row['mean']:.{digits}f}"
    some = "" if row["defined"] == row["planned"] else f" ({row['defined']} of {row['planned']})"
    return f"{row['mean']:.{digits}f}{half}{some}"


def _family(found: dict[str, Row]) -> str:
    return next((str(row["family"]) for row in found.values()), "")


def _rank(block: dict[str, dict[str, Row]], measure: Measure) -> dict[str, int]:
    """1 for the best; ties share the better rank. What is undefined comes last, what was not measured has no rank."""
    means = {method: found[measure.metric]["mean"] for method, found in block.items() if measure.metric in found}
    worth = {method: -math.inf if mean is None else measure.best * mean for method, mean in means.items()}
    return {method: 1 + sum(other > own for other in worth.values()) for method, own in worth.items()}
