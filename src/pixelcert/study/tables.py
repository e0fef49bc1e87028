"""Tables: one row per scene, point and metric, their means, and a summary that ranks methods."""

from __future__ import annotations

import codecs
import csv
import json
import math
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from scipy.special import stdtrit

from ..basics.files import open_atomically
from ..basics.messages import ArgumentError
from ..methods import METHODS
from ..statistics import outward
from .job import Job
from .store import Store

CONFIDENCE = 0.95  # of the intervals around means over scenes
_CHUNK = 50_000  # rows written at once
_VALUES = ("value", "low", "high")  # of a scene; low and high are the ends of its certified interval

JOB = ("model", "method", "family", "layer", "params", "preset", "sigma", "n", "scene")
POINT = (*JOB, "tau", "radius", "level", "metric")
ROW = (*POINT, "name", "target", "target_name", "cell", "value", "low", "high", "key")
MEAN = (*POINT, "planned", "count", "defined", "mean", "mean_low", "mean_high", "low", "high")
_TYPES = {
    "string": (*JOB[:6], "scene", "metric", "name", "target_name", "key"),
    "int64": ("n", "planned", "target", "cell", "count", "defined"),
}

Row = dict[str, Any]


def rows(jobs: Iterable[Job], store: Store, undefined: float | None = None) -> Iterator[Row]:
    """Yield every measure of every finished job, in the order of the jobs.

    `undefined` stands for the Certified GridPG of a map in which nothing is certified 1: None leaves it undefined, 0 is
    the paper's convention.
    """
    for job in jobs:
        if (measures := store.load_measures(job)) is None:
            continue
        common = {**_axes(job), "name": job.scene.name, "cell": job.scene.cell, "key": job.key}
        common |= {name: measures[name] for name in ("target", "target_name")}
        for measured in measures["rows"]:
            stands = measured["value"] is None and measured["metric"] == "certified_grid_pg"
            value = undefined if stands else measured["value"]
            yield {**common, **measured, "value": value, "radius": measures["radius"].get(str(measured["tau"]))}


def planned(jobs: Iterable[Job]) -> Counter[tuple[Any, ...]]:
    """Count the scenes on which each of the jobs' points is to be measured."""
    return Counter(tuple(_axes(job).values()) for job in jobs)


def _axes(job: Job) -> Row:
    values = (job.model.name, job.method, METHODS[job.base].family, job.layer, json.dumps(job.params, sort_keys=True))
    return dict(zip(JOB, (*values, job.preset, job.plan.sigma, job.plan.n, job.scene.kind), strict=True))


class Means:
    """Means over scenes, with their 95 % intervals and the mean certified intervals, by point and metric.

    The 95 % interval is Student's, for scenes drawn at random: it says how far the mean may be from that over all such
    scenes, and needs two of them. Undefined values are left out, and counted: `defined` of `count`. `planned` is the
    number of scenes when all jobs are done.
    """

    def __init__(self, planned: Mapping[tuple[Any, ...], int] | None = None) -> None:
        self._planned = planned or {}
        self._groups: dict[tuple[Any, ...], dict[str, array[float]]] = {}

    def add(self, row: Row) -> None:
        group = self._groups.setdefault(tuple(row[name] for name in POINT), {name: array("d") for name in _VALUES})
        for name, numbers in group.items():
            numbers.append(math.nan if row[name] is None else row[name])

    def table(self) -> list[Row]:
        table = []
        for point, group in self._groups.items():
            planned = self._planned.get(point[: len(JOB)], len(group["value"]))
            table.append({**dict(zip(POINT, point, strict=True)), "planned": planned, **_summary_of(group)})
        return table


def _summary_of(group: Mapping[str, Sequence[float]]) -> Row:
    """Average the scenes where the value is defined, so that a mean lies between those of its certified ends."""
    scenes = [scene for scene in zip(*(group[name] for name in _VALUES), strict=True) if not math.isnan(scene[0])]
    values, *ends = zip(*scenes, strict=True) if scenes else ((), (), ())
    mean, half = mean_and_half_width(values)
    below, above = (None if mean is None or half is None else mean + sign * half for sign in (-1, 1))
    low, high = (_mean_end(end, bound) for end, bound in zip(ends or ((), ()), (0, 1), strict=True))
    counts = {"count": len(group["value"]), "defined": len(values)}
    return {**counts, "mean": mean, "mean_low": below, "mean_high": above, "low": low, "high": high}


def mean_and_half_width(values: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float | None, float | None]:
    """Return the mean, and how far Student's interval reaches to either side; None where there are too few values.

    >>> mean, half = mean_and_half_width([1.0, 2.0, 3.0])
    >>> mean, round(half, 4)
    (2.0, 2.4841)
    """
    mean, count = _average(values), len(values)
    if mean is None or count < 2:
        return mean, None
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    return mean, float(stdtrit(count - 1, (1 + confidence) / 2)) * math.sqrt(variance / count)


def _mean_end(ends: Sequence[float], bound: float) -> float | None:
    """Return the mean end of certified intervals, rounded outward, towards `bound`; None where no scene has one."""
    known = [Fraction(end) for end in ends if not math.isnan(end)]
    return outward(sum(known) / Fraction(len(known)), bound) if known else None


def _average(values: Sequence[float]) -> float | None:
    """Return the mean of exact sums, so that the order of the scenes does not matter."""
    return math.fsum(values) / len(values) if values else None


# ── Files ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def write_tables(table: Iterable[Row], folder: Path, planned: Mapping[tuple[Any, ...], int] | None = None) -> list[Row]:
    """Write `rows` and `means` as CSV and Parquet, and return the means. Equal rows make equal files.

    Rows are written as they come; they are never all in memory.
    """
    means = Means(planned)
    with _open_table(folder / "rows", ROW) as add:
        for row in table:
            means.add(row)
            add({**row, "name": _printable(row["name"])})
    with _open_table(folder / "means", MEAN) as add:
        for row in (summary := means.table()):
            add(row)
    return summary


def _printable(name: str) -> str:
    """Return a file name in UTF-8; the system's own need not be."""
    return name.encode("utf-8", "backslashreplace").decode()


@contextmanager
def _open_table(path: Path, columns: Sequence[str]) -> Iterator[Callable[[Row], None]]:
    """Yield a function that adds a row to one table in two files, which appear when the block ends well."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ArgumentError("pyarrow is not installed: pip install pyarrow, for Parquet tables.") from error
    kinds = {name: next((kind for kind, names in _TYPES.items() if name in names), "float64") for name in columns}
    schema = pyarrow.schema([(name, getattr(pyarrow, kind)()) for name, kind in kinds.items()])
    waiting: list[Row] = []

    def write() -> None:
        lines.writerows(waiting)
        arrays = [pyarrow.array([row[one.name] for row in waiting], type=one.type) for one in schema]
        parquet.write_table(pyarrow.Table.from_arrays(arrays, schema=schema))
        waiting.clear()

    def add(row: Row) -> None:
        waiting.append(row)
        if len(waiting) == _CHUNK:
            write()

    with open_atomically(path.with_suffix(".csv")) as text, open_atomically(path.with_suffix(".parquet")) as binary:
        lines = csv.DictWriter(codecs.getwriter("utf-8")(text), columns, lineterminator="\n", extrasaction="ignore")
        lines.writeheader()
        with pyarrow.parquet.ParquetWriter(binary, schema) as parquet:
            yield add
            write()


@dataclass(frozen=True)
class Column:
    """A column of the summary."""

    metric: str
    scene: str
    title: str
    best: int  # +1 where more is better, -1 where less is


COLUMNS = (
    Column("certified", "image", "certified %", +1),
    Column("certified_grid_pg", "grid", "certified GridPG", +1),
    Column("deletion_area", "image", "deletion area", -1),
)


@dataclass(frozen=True)
class Line:
    """A method at a layer of a model: its means by metric (rows of `means`), and its ranks there."""

    model: str
    layer: str
    method: str
    family: str
    means: dict[str, Row]
    ranks: dict[str, int]

    @property
    def mean_rank(self) -> float | None:
        return sum(self.ranks.values()) / len(self.ranks) if self.ranks else None

    def cell(self, metric: str) -> tuple[str, str]:
        """Return a mean and its rank in words; without a mean, the reason and no rank."""
        row = self.means.get(metric)
        if row is None or row["count"] == 0:
            return "not measured", ""
        return mean_in_words(row, metric), "" if row["mean"] is None else f"#{self.ranks[metric]}"


def summarise(means: Sequence[Row], *, level: float, **point: Any) -> list[Line]:
    """Return lines at one `level` and `point` (sigma, n, preset, tau), the best mean rank first in model and layer."""
    blocks: dict[tuple[str, str], dict[str, dict[str, Row]]] = {}
    for row in means:
        if all(row[name] == value for name, value in point.items()) and row["level"] in (level, None):
            block = blocks.setdefault((row["model"], row["layer"]), {})
            of_method = block.setdefault(row["method"], {})
            if any((row["metric"], row["scene"]) == (column.metric, column.scene) for column in COLUMNS):
                of_method[row["metric"]] = row
    lines = []
    for (model, layer), block in blocks.items():
        ranks = {column.metric: _rank(block, column) for column in COLUMNS}
        here = []
        for method, found in block.items():
            family = next((str(row["family"]) for row in found.values()), "")
            own = {metric: rank[method] for metric, rank in ranks.items() if method in rank}
            here.append(Line(model, layer, method, family, found, own))
        lines += sorted(here, key=lambda line: line.mean_rank or len(block) + 1)
    return lines


def _rank(block: dict[str, dict[str, Row]], column: Column) -> dict[str, int]:
    """Return ranks by method, 1 for the best. Ties share the better rank; undefined means come last."""
    means = {method: found[column.metric]["mean"] for method, found in block.items() if column.metric in found}
    worth = {method: -math.inf if mean is None else column.best * mean for method, mean in means.items()}
    return {method: 1 + sum(other > own for other in worth.values()) for method, own in worth.items()}


# ── Words ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

_SIGNS = {"sigma": "σ", "tau": "τ", "level": "K"}


def point_in_words(point: Mapping[str, Any]) -> str:
    """Name a point of a study.

    >>> point_in_words({"sigma": 0.15, "n": 100, "preset": "default", "tau": 0.75, "level": 10})
    'σ = 0.15, n = 100, preset = default, τ = 0.75, K = 10 %'
    """
    return ", ".join(f"{_SIGNS.get(name, name)} = {value}{' %' * (name == 'level')}" for name, value in point.items())


def mean_in_words(row: Row, metric: str) -> str:
    """Return a mean with its 95 % half-width and, if scenes are missing, the number of scenes behind it."""
    if row["mean"] is None:
        return "undefined"
    digits = 1 if metric == "certified" else 3
    half = "" if row["mean_high"] is None else f" ± {row['mean_high'] - row['mean']:.{digits}f}"
    some = "" if row["defined"] == row["planned"] else f" ({row['defined']} of {row['planned']})"
    return f"{row['mean']:.{digits}f}{half}{some}"
