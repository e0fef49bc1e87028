"""Entries: what a page says about votes and studies, and the chunks that hold their bytes."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from ..basics.files import sha256, write_atomically
from ..basics.messages import ArgumentError
from ..figures.registry import FIGURES
from ..plan import PRESETS, Plan
from ..statistics import fewest_samples
from ..study.inventory import FILE, Inventory
from ..study.study import Study
from ..study.tables import COLUMNS, Line, Means, planned, point_in_words, rows, summarise
from ..votes import Votes

LIMIT = 32_000_000  # characters of chunks inside a page; beyond it a browser is slow to open and needs much memory
NAME = re.compile(r"(counts|photo|figure)-[0-9a-f]{20}")


class Chunks:
    """Chunks by name. They stay in memory up to `limit`; beyond it, all move to `folder`.

    As a context manager, it deletes the files of an earlier page of the same name or, if the page fails, its own.
    """

    def __init__(self, folder: Path, limit: int = LIMIT) -> None:
        self.folder, self.limit = folder, limit
        self.inside: dict[str, str] = {}
        self.names: set[str] = set()
        self.size = 0  # characters, inside and outside

    def __enter__(self) -> Chunks:
        self._earlier = {file.stem for file in self._files()}
        return self

    def __exit__(self, *error: object) -> None:
        kept = self._earlier if error[0] is not None else self.names if self.apart else set()
        for file in self._files():
            if file.stem not in kept:
                file.unlink(missing_ok=True)
        if self.folder.is_dir() and not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _files(self) -> list[Path]:
        """Return the chunks in the folder, and no other file."""
        return [file for file in self.folder.glob("*.js") if NAME.fullmatch(file.stem)]

    def add(self, kind: str, data: bytes) -> str:
        """Keep `data`, and return the name to find it by."""
        name = f"{kind}-{sha256(data)[:20]}"
        assert NAME.fullmatch(name), "a name that serve refuses"
        if name not in self.names:
            self.names.add(name)
            self.inside[name] = b64encode(data).decode()
            self.size += len(self.inside[name])
        while self.apart and self.inside:
            one, text = self.inside.popitem()
            write_atomically(self.folder / f"{one}.js", f'pixelcertChunk("{one}","{text}");\n'.encode())
        return name

    @property
    def apart(self) -> Path | None:
        """The folder, once the chunks are in it."""
        return self.folder if self.size > self.limit else None


def choices_of(votes: Votes) -> dict[str, str]:
    """Return facts that tell these votes from others, the most important first."""
    plan, source = votes.plan, votes.provenance
    return {
        "Image": source.image_title,
        "Model": source.model or "not named",
        "Method": source.method or "not named",
        "Layer": source.layer or "not named",
        "Noise σ": str(plan.sigma),
        "Samples n": str(plan.n),
        "Preset": preset_in_words(plan),
        "Class": source.target_name,
        "Parameters": json.dumps(dict(source.params), sort_keys=True),
        "Digest of the image": source.image[:12],
        "Digest of the weights": source.weights[:12],
        "Seed": str(plan.seed),
    }


def facts_of(votes: Votes) -> dict[str, str]:
    """Return facts by which these votes can be made again."""
    plan, source = votes.plan, votes.provenance
    parameters = ", ".join(f"{name} = {json.dumps(value)}" for name, value in source.params.items())
    return {
        "Explained class": f"{source.target_name} ({source.target})",
        "Parameters": parameters or "none",
        "Noise": f"σ = {plan.sigma}, n = {plan.n} samples",
        "Seed": f"{plan.seed}. A seed that was known beforehand proves nothing to others: they run pixelcert verify",
        "Preset": f"{preset_in_words(plan)} ({plan.sign} values, {plan.rule} rule)",
        "Weights": source.weights[:16] or "unknown",
        "Image": source.image[:16],
        "Computed on": f"{source.device}, {source.precision}",
        "Network": "; ".join(f"{name}: {step}" for name, step in (source.surgery or {}).items()) or "unknown",
        "Batches": ", ".join(f"{size} from sample {first}" for first, size in source.batches or ()) or "unknown",
        "Versions": ", ".join(f"{library} {version}" for library, version in source.versions.items()),
    }


def preset_in_words(plan: Plan) -> str:
    """Name the preset that a plan follows, or spell what it ranks and guesses."""
    own = {"sign": plan.sign, "rule": plan.rule, "guess": plan.guess}
    guess = f", {plan.guess} samples to guess" if plan.guess else ""
    return next((name for name, preset in PRESETS.items() if own == preset), f"{plan.sign}, {plan.rule}{guess}")


_PNG = b"\x89PNG\r\n\x1a\n"


def open_study(path: Path) -> Study:
    """Open the study of a study file, or of the folder that it filled."""
    if path.suffix == ".toml" and not path.is_dir():
        return Study.open(path)
    if not (path / FILE).is_file():
        raise ArgumentError(f"{path} is not a study's folder, it has no {FILE}: give votes files or a study's folder.")
    return Study(Inventory.load(path).settings, path.parent, path)


def votes_of(study: Study) -> Iterator[Votes | None]:
    """Yield the votes of each job under the study's own names, None if they are not there yet."""
    for job in study.jobs():
        if votes := study.store.load_votes(job):
            model, method, layer = job.model.name, job.method, job.layer
            named = replace(votes.provenance, image_name=job.scene.name, model=model, method=method, layer=layer)
            votes = replace(votes, provenance=named)
        yield votes


def describe_study(study: Study, chunks: Chunks) -> dict[str, Any]:
    """Return what a page says about a study besides its votes."""
    figures = []
    for path in sorted((study.folder / "figures").glob("*.png")):
        if (data := path.read_bytes()).startswith(_PNG):
            name = path.stem.replace("_", " ").replace("-", " ")
            about = FIGURES[path.stem].about if path.stem in FIGURES else name  # for readers who do not see it
            figures.append({"name": name, "about": about, "chunk": chunks.add("figure", data)})
    return {
        "name": study.folder.name,
        "columns": [f"{column.title}{' (less is better)' if column.best < 0 else ''}" for column in COLUMNS],
        "tables": list(_tables(study)),
        "figures": figures,
    }


def _tables(study: Study) -> Iterator[dict[str, Any]]:
    """Yield a summary for each point of the study at which something was measured, the usual point first."""
    jobs, settings, usual = study.jobs(), study.settings, study.point()
    means = Means(planned(jobs))
    for row in rows(jobs, study.store):
        means.add(row)
    table = means.table()
    sizes = {(job.model.name, job.scene.kind): job.size for job in jobs}
    axes = (settings.sigma, settings.n, settings.presets, settings.tau, sorted(settings.levels, reverse=True))
    points: list[dict[str, Any]] = [dict(zip(usual, point, strict=True)) for point in product(*axes)]
    for point in sorted(points, key=lambda point: point != usual):
        if lines := summarise(table, **point):
            plan = settings.plans()[point["preset"], point["sigma"], point["n"]]
            criterion = settings.criterion(point["tau"])
            beyond = {which for which, size in sizes.items() if fewest_samples(plan, criterion, size**2)}
            yield {"caption": point_in_words(point), "lines": [_line(line, beyond) for line in lines]}


def _line(line: Line, beyond: Collection[tuple[str, str]]) -> dict[str, Any]:
    """Return cells and the mean rank. Where nothing can be certified, all methods are equal and none has a rank.

    `beyond` holds (model, kind of scene) of the maps with too many pixels for n to certify any at the point's τ.
    """
    reached = {column.metric for column in COLUMNS if (line.model, column.scene) not in beyond}
    cells = []
    for column in COLUMNS:
        mean, rank = line.cell(column.metric)
        told = column.metric in reached or mean == "not measured"
        cells.append(f"{mean} {rank}".rstrip() if told else "out of reach")
    ranked = replace(line, ranks={metric: rank for metric, rank in line.ranks.items() if metric in reached})
    rank = "" if ranked.mean_rank is None else f"{ranked.mean_rank:.1f}"
    return {"names": [line.model, line.layer, line.method], "cells": [*cells, rank]}
