"""Choose photographs and grids at random among those that the filter models get right with confidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from operator import index
from pathlib import Path
from typing import SupportsIndex

import torch
from torch import Tensor

from ..basics.files import sha256
from ..basics.messages import ArgumentError, ImageError
from ..models import Classifier
from .folder import Photograph, locate
from .selection import Chosen, Grid, Purpose, Request, Seats, Selection, decode, drawn, read_file, shuffled, stream

DIGITS = 6  # of the confidences that are written down; the rest is rounding, which differs between machines


@dataclass(frozen=True)
class _Read:
    digest: str
    images: Mapping[int, Tensor]  # (3, size, size), by size


def check_filters(filters: Sequence[Classifier], photographs: Sequence[Photograph]) -> None:
    """Refuse models that cannot judge these photographs."""
    names = [model.name for model in filters]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise ArgumentError(f"filters has {repeated[0]!r} twice: name them apart with Classifier(…, name=…).")
    highest = max(photographs, key=lambda photograph: -1 if photograph.target is None else photograph.target)
    for model in filters:
        if model.channels != 3:
            raise ArgumentError(
                f"filters has {model.name!r}, which takes {model.channels} channels: use models of RGB images."
            )
        if highest.target is not None and highest.target >= model.num_classes:
            raise ArgumentError(
                f"{highest.file} has the target {highest.target} and the filter {model.name!r} only "
                f"{model.num_classes} classes: use labels and filters of the same classes."
            )


def judge(
    photographs: Sequence[Photograph],
    folder: Path,
    filters: Sequence[Classifier],
    confidence: float,
    batch_size: int,
) -> Iterator[Chosen | ImageError | None]:
    """One verdict per photograph, in order: chosen, unreadable, or not good enough (None). Works a batch ahead."""
    sizes = {model.size for model in filters} or {224}  # any size shows whether a file can be read
    read = partial(_read, folder=folder, sizes=sizes)
    for start in range(0, len(photographs), batch_size):
        batch = photographs[start : start + batch_size]
        with ThreadPoolExecutor() as threads:  # Pillow lets others work while it decodes
            readings = list(threads.map(read, batch))
        yield from _judge_batch(batch, readings, filters, confidence)


def _judge_batch(
    batch: Sequence[Photograph],
    readings: Sequence[_Read | ImageError],
    filters: Sequence[Classifier],
    confidence: float,
) -> Iterator[Chosen | ImageError | None]:
    good = {i: reading for i, reading in enumerate(readings) if isinstance(reading, _Read)}
    targets = {i: batch[i].target for i in good}
    confidences: dict[int, dict[str, float]] = {i: {} for i in good}
    for model in filters:
        for i, (answer, sure) in _predict(model, {i: good[i].images[model.size] for i in targets}).items():
            if sure >= confidence and targets[i] in (None, answer):
                targets[i] = answer  # which the next filters have to agree on
                confidences[i][model.name] = round(sure, DIGITS)
            else:
                del targets[i]
    for i, (photograph, reading) in enumerate(zip(batch, readings, strict=True)):
        if isinstance(reading, ImageError):
            yield reading
        elif i in targets:
            labelled = photograph.target is not None
            yield Chosen(photograph.file, reading.digest, targets[i], labelled, confidences[i])
        else:
            yield None


def _predict(model: Classifier, images: Mapping[int, Tensor]) -> dict[int, tuple[int, float]]:
    """The class of every image (3, size, size), and the softmax confidence in it."""
    if not images:
        return {}
    with torch.inference_mode():
        confidences, classes = model(torch.stack(list(images.values())).to(model.device)).softmax(dim=1).max(dim=1)
    return dict(zip(images, zip(classes.tolist(), confidences.tolist(), strict=True), strict=True))


def _read(photograph: Photograph, folder: Path, sizes: set[int]) -> _Read | ImageError:
    try:
        data = read_file(folder, photograph.file)
        return _Read(sha256(data), {size: decode(data, photograph.file, size) for size in sizes})
    except ImageError as error:
        return error


def choose(
    photographs: Sequence[Photograph],
    folder: str | Path,
    *,
    filters: Sequence[Classifier] = (),
    confidence: float = 0.99,
    images: int | None = None,
    grids: int = 0,
    m: int = 2,
    seed: int = 0,
    batch_size: int = 32,
    progress: Callable[[int, int], None] | None = None,
) -> Selection:
    """Choose the images and grids of a study.

    A photograph passes if every filter answers its target with a softmax confidence of at least `confidence`; one
    without a target, if all filters answer the same class so. Without filters, every readable one passes. Unreadable
    files are left out and listed.

    The seed alone decides the order of the photographs (sorted by file, then shuffled by NumPy's PCG64). Images are
    the first to pass; grids are made of the same stream of passing photographs, none used again while there are others
    that fit. So images do not depend on grids, nor grids on images, and asking for more of either keeps the first ones.
    The batch size matters only to a confidence within rounding of the threshold.

    Args:
        photographs: what to choose from, as `find_photographs` lists it.
        folder: where the files are, or "embedded".
        filters: models that have to get a photograph right.
        images: how many images; None for all that pass.
        grids: how many grids of m × m photographs of distinct classes; the cell to be explained is drawn at random.
        batch_size: how many photographs are read and classified at once.
        progress: called after every photograph with (passed, wanted), or with (examined, all) if images is None.
    """
    images = None if images is None else _whole("images", images, 0)
    grids, m, batch_size = _whole("grids", grids, 0), _whole("m", m, 1), _whole("batch_size", batch_size, 1)
    seed, confidence = _whole("seed", seed, -(2**63)), _share("confidence", confidence)
    _check_photographs(photographs, images, grids, m, labelled=not filters)
    check_filters(filters, photographs)
    settings = Request(seed, confidence, images, grids, m, {model.name: model.weights_hash for model in filters})
    ordered = sorted(photographs, key=lambda photograph: photograph.file)
    order = [ordered[number] for number in shuffled(stream(seed, Purpose.ORDER), len(ordered))]
    unreadable: dict[str, str] = {}
    pool: list[Chosen] = []
    seats = Seats(grids, m)
    examined, wanted = 0, len(order) if images is None else max(images, grids * m * m)
    for verdict in judge(order, locate(folder), filters, confidence, batch_size):
        examined += 1
        if isinstance(verdict, ImageError):
            unreadable[order[examined - 1].file] = str(verdict)
        elif verdict is not None:
            pool.append(verdict)
            if verdict.target is not None:
                seats.add(len(pool) - 1, verdict.target)
        if progress is not None:
            progress(min(examined if images is None else len(pool), wanted), wanted)
        if images is not None and len(pool) >= images and seats.full:
            break
    _check_enough(settings, len(pool), examined, len(unreadable), seats)
    seats.fill(stream(seed, Purpose.REUSE))
    return _pack(settings, pool, seats.cells(), examined, unreadable)


def _pack(
    settings: Request, pool: list[Chosen], cells: list[tuple[int, ...]], examined: int, unreadable: dict[str, str]
) -> Selection:
    """Leave out what passed but is in no use, and number the rest."""
    images = len(pool) if settings.images is None else settings.images
    used = sorted({*range(images), *(number for grid in cells for number in grid)})
    place = {number: position for position, number in enumerate(used)}
    targets = drawn(stream(settings.seed, Purpose.CELLS), len(cells), settings.m**2)
    grids = tuple(
        Grid(tuple(place[number] for number in grid), cell) for grid, cell in zip(cells, targets, strict=True)
    )
    return Selection(settings, tuple(pool[number] for number in used), images, grids, examined, len(pool), unreadable)


def _check_photographs(
    photographs: Sequence[Photograph], images: int | None, grids: int, m: int, labelled: bool
) -> None:
    """Refuse what these photographs cannot give, whichever pass; `labelled` if only labels can tell their classes."""
    if not photographs:
        raise ArgumentError("photographs is empty: find_photographs(folder) lists those of a folder.")
    file, times = Counter(photograph.file for photograph in photographs).most_common(1)[0]
    if times > 1:
        raise ArgumentError(f"photographs has {file} {times} times: list every file once.")
    if images == grids == 0:
        raise ArgumentError("images=0 and grids=0 choose nothing: ask for one of either.")
    if images is not None and images > len(photographs):
        raise ArgumentError(f"images={images} of {len(photographs)} photographs: ask for fewer, or give more.")
    targets = {photograph.target for photograph in photographs}
    if grids and labelled and None in targets:
        raise ArgumentError(
            f"grids={grids} need distinct classes, and not every photograph has a target: give labels, or filters to "
            f"tell the classes."
        )
    if grids and None not in targets and len(targets) < m * m:
        raise ArgumentError(
            f"grids={grids} with m={m} need {m * m} distinct classes, and the photographs have {len(targets)}: use a "
            f"smaller m, or photographs of more classes."
        )


def _check_enough(settings: Request, passed: int, examined: int, unreadable: int, seats: Seats) -> None:
    names = " and ".join(settings.filters)
    test = f"pass, with confidence {settings.confidence} in the right class by {names}" if names else "pass"
    found = f"{passed} of {examined} photographs {test}" + (f" ({unreadable} cannot be read)" if unreadable else "")
    remedy = "lower confidence, use other filters" if names else "repair files"
    least = 1 if settings.images is None else settings.images
    if passed < least:
        raise ArgumentError(
            f"images={settings.images}: only {found}: {remedy}, ask for fewer images, or give more photographs."
        )
    if settings.grids and seats.classes < settings.m**2:
        raise ArgumentError(
            f"grids={settings.grids} with m={settings.m} need {settings.m**2} distinct classes: only {found}, of "
            f"{seats.classes} classes: {remedy}, use a smaller m, or give more photographs."
        )


def _whole(name: str, value: SupportsIndex, least: int) -> int:
    try:
        number = index(value)
    except TypeError:
        number = least - 1
    if not least <= number < 2**63:
        raise ArgumentError(
            f"{name}={value!r} is not a whole number of {least} or more: use one such as {max(1, least)}."
        )
    return number


def _share(name: str, value: float) -> float:
    if not 0 <= value <= 1:
        raise ArgumentError(f"{name}={value} is outside [0, 1]: it is a softmax confidence, such as 0.99.")
    return float(value)
