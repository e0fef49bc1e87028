"""A study as a page shows it: its votes under the study's own names, its summary, and its figures."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

from ..errors import ArgumentError
from ..figures.registry import FIGURES
from ..study.resolved import FILE, Resolved
from ..study.results import Means, Row, planned, rows
from ..study.settings import Settings
from ..study.store import Store
from ..study.study import Study
from ..study.summary import MEASURES, Line, mean_in_words, summarise
from .chunks import Chunks
from .shown import Shown

_PNG = b"\x89PNG\r\n\x1a\n"
_SYMBOLS = {"sigma": "σ", "tau": "τ", "level": "K"}


def is_study(path: Path) -> bool:
    """Whether `path` names a study file or a study's folder, rather than votes."""
    return path.suffix == ".toml" or path.is_dir()


def open_study(path: Path) -> Study:
    """The study in a study file, or in the folder that one filled."""
    if path.suffix == ".toml" and not path.is_dir():
        return Study.open(path)
    if not (path / FILE).is_file():
        raise ArgumentError(f"{path} is no study's folder, it has no {FILE}: give votes files, or a folder with one.")
    return Study(Resolved.load(path).settings, path.parent, path)


def shown_of(study: Study) -> Iterator[Shown | None]:
    """The votes of each job under the study's own names, None for those that are not there yet."""
    for job in study.jobs():
        votes = study.store.load_votes(job)
        yield None if votes is None else Shown(votes, job.scene.name, job.model.label, job.method, job.layer)


def describe_study(study: Study, chunks: Chunks) -> dict[str, Any]:
    """What a page says of a study beside its votes."""
    return {
        "name": study.folder.name,
        "columns": [f"{measure.title}{' (less is better)' if measure.best < 0 else ''}" for measure in MEASURES],
        "tables": list(_tables(study)),
        "figures": [
            {**_name_figure(path.stem), "chunk": chunks.add("figure", data)}
            for path in sorted((study.folder / "figures").glob("*.png"))
            if (data := path.read_bytes()).startswith(_PNG)
        ],
    }


def _name_figure(stem: str) -> dict[str, str]:
    """A figure's name, and what it shows for those who do not see it."""
    name = stem.replace("_", " ").replace("-", " ")
    return {"name": name, "about": FIGURES[stem].about if stem in FIGURES else name}


def _tables(study: Study) -> Iterator[dict[str, Any]]:
    """A summary for each point of the study at which something was measured, the study's usual point first."""
    means = _means(study, study.store)
    settings, usual = study.settings, study.setting()
    sizes = {(job.model.label, job.scene.kind): job.size for job in study.jobs()}
    axes = (settings.sigma, settings.n, settings.presets, settings.tau, sorted(settings.levels, reverse=True))
    points: list[dict[str, Any]] = [dict(zip(usual, point, strict=True)) for point in product(*axes)]
    for point in sorted(points, key=lambda point: point != usual):
        if lines := summarise(means, **point):
            caption = ", ".join(f"{_SYMBOLS.get(name, name)} = {_in_words(name, v)}" for name, v in point.items())
            beyond = _out_of_reach(settings, point, sizes)
            yield {"caption": caption, "lines": [_line(line, beyond) for line in lines]}


def _out_of_reach(
    settings: Settings, point: Mapping[str, Any], sizes: Mapping[tuple[str, str], int]
) -> set[tuple[str, str]]:
    """(model, kind of scene) whose maps have too many pixels for n to certify any of them at this point's τ."""
    plan = settings.plans()[point["preset"], point["sigma"], point["n"]]
    return {which for which, size in sizes.items() if settings.fewest_samples(plan, point["tau"], size**2)}


def _means(study: Study, store: Store) -> list[Row]:
    jobs = study.jobs()
    means = Means(planned(jobs))
    for row in rows(jobs, store):
        means.add(row)
    return means.table()


def _in_words(name: str, value: Any) -> str:
    return f"{value:g} %" if name == "level" else f"{value:g}" if isinstance(value, float) else str(value)


def _line(line: Line, beyond: Collection[tuple[str, str]]) -> dict[str, Any]:
    """Cells and mean rank; where nothing can be certified, all methods are equal, and none has a rank."""
    reached = {measure.metric for measure in MEASURES if (line.model, measure.scene) not in beyond}
    ranks = {metric: rank for metric, rank in line.ranks.items() if metric in reached}
    cells = [_cell(line.means.get(m.metric), m.metric, ranks, m.metric in reached) for m in MEASURES]
    rank = f"{sum(ranks.values()) / len(ranks):.1f}" if ranks else ""
    return {"names": [line.model, line.layer, line.method], "cells": [*cells, rank]}


def _cell(row: Row | None, metric: str, ranks: Mapping[str, int], reached: bool) -> str:
    """A mean with its 95 % half-width and rank, for a person."""
    if row is None or row["count"] == 0:
        return "not measured"
    if not reached:
        return "out of reach"
    if row["mean"] is None:
        return "undefined"
    return f"{mean_in_words(row, metric)} #{ranks[metric]}"
